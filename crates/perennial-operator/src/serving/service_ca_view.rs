//! The data that is the same for every Service: the service CA, its trust bundles, and the settings and state of the cluster.

use std::sync::Arc;

use futures_util::{Stream, stream};
use jiff::Timestamp;
use perennial_core::catalog::ObjectName;
use perennial_core::catalog::index::Wiring;
use perennial_core::clocks::{Clocks, TOLERANCE, shifted};
use perennial_core::injection::FoundBundle;
use perennial_core::service_ca;
use perennial_core::snapshot::{SecretState, Slot, Snapshot};
use perennial_core::trust::CertificateId;
use perennial_x509::{Bundle, trust};
use tokio::sync::watch;

use crate::library::Library;
use crate::observe::Observation;
use crate::read;

/// The part of an observation that decisions about Services use.
#[derive(Debug)]
pub struct ServiceCaView {
    pub(super) snapshot: Snapshot,
    pub(super) library: Library,
    /// The number of this view; later views have higher numbers.
    pub(super) number: u64,
    /// True if the operator may write anything of the service CA.
    is_ours: bool,
    signer: Slot,
    /// The home of the bundle of the service CA, followed by the copies of the bundle.
    bundles: Vec<Slot>,
}

impl ServiceCaView {
    /// Returns the view of the last observation; none if the catalog has no service CA.
    pub fn of(observation: &Observation, wiring: &Wiring<'_>, number: u64) -> Option<ServiceCaView> {
        let row = wiring.row(service_ca::ROW)?.row;
        let signer = wiring.home(row, &perennial_core::catalog::Instance::Cluster);
        let wired = wiring.bundle(service_ca::BUNDLE)?;
        let copies = wired.copies.iter().map(|(slot, _)| slot.clone());
        let bundles: Vec<Slot> = [wired.home.clone()].into_iter().chain(copies).collect();
        let all = &observation.snapshot;
        let mut snapshot = Snapshot::empty(wiring, all.cluster.clone(), all.taken_at);
        snapshot.settings = all.settings.clone();
        (snapshot.clock_skew_seconds, snapshot.not_earlier_than) = (all.clock_skew_seconds, all.not_earlier_than);
        snapshot.feature_gate = all.feature_gate.clone();
        snapshot.service_ca = all.service_ca.clone();
        snapshot.distrusted = all.distrusted.clone();
        snapshot.policy = all.policy.clone();
        snapshot.policy_unknown_since = all.policy_unknown_since;
        snapshot.nodes = all.nodes.clone();
        snapshot.reloads = all.reloads.clone();
        snapshot.secrets.extend(all.secrets.get_key_value(&signer).map(|(slot, found)| (slot.clone(), found.clone())));
        for slot in &bundles {
            snapshot.bundles.extend(all.bundles.get(slot).map(|found| (slot.clone(), found.clone())));
        }
        // A writer of a copy does not manage the CA.
        for slot in [&signer, &wired.home] {
            snapshot.other_writers.extend(all.other_writers.get(slot).map(|writer| (slot.clone(), writer.clone())));
        }
        snapshot.certificates = all.certificates.clone();
        snapshot.forget_unmentioned();
        let mut library = Library::default();
        for certificate in observation.library.certificates() {
            if snapshot.certificates.get(&trust::id(certificate)).is_some() {
                library.add(certificate.clone());
            }
        }
        let is_ours = service_ca::is_ours(wiring, all);
        Some(ServiceCaView { snapshot, library, number, is_ours, signer, bundles })
    }

    /// The number of this view; later views have higher numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Returns the objects of the signer and of its bundle, if the operator may write records on them.
    pub(crate) fn recorded_on(&self) -> Option<(ObjectName, ObjectName)> {
        let is_frozen = self.snapshot.is_frozen(service_ca::ROW);
        let is_managed = self.is_ours() && !is_frozen;
        Some((self.signer.object(), self.bundles.first()?.object())).filter(|_| is_managed)
    }

    /// Returns the time by both clocks when the leading clock shows `now`.
    pub(crate) fn clocks_at(&self, now: Timestamp) -> Clocks {
        Clocks::apart(now, self.snapshot.clock_skew_seconds)
    }

    /// True if a distrusted key or a reload is recorded.
    pub(crate) fn has_records(&self) -> bool {
        !self.snapshot.distrusted.is_empty() || !self.snapshot.reloads.is_empty()
    }

    /// Returns the observation of the service CA and its bundles.
    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// True if the operator may write anything of the service CA.
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Returns the service CA, if it exists.
    pub(super) fn signer(&self) -> Option<&SecretState> {
        self.snapshot.secrets.get(&self.signer)?.present()
    }

    /// True if the operator may distribute this text, which was found at the home of the bundle.
    pub(crate) fn is_bundle(&self, text: &str) -> bool {
        let Some(home) = self.bundles.first() else { return false };
        let (found, damage) = Bundle::salvage(text.as_bytes());
        let found = FoundBundle {
            members: found.certificates().iter().map(trust::id).collect(),
            is_canonical: read::bundle_text(found.certificates()) == text,
            has_only_certificates: damage.is_empty() && has_only_certificates(text),
        };
        found.may_be_handed_out(&self.snapshot, &self.signer, home)
    }

    /// True if decisions that use the other view may differ from decisions that use this view.
    pub(super) fn differs(&self, other: &ServiceCaView) -> bool {
        let trusted = |view: &ServiceCaView| -> Vec<Vec<CertificateId>> {
            let members = |slot| view.snapshot.bundles.get(slot).and_then(|found| found.present());
            self.bundles.iter().map(|slot| members(slot).map(|it| it.members.clone()).unwrap_or_default()).collect()
        };
        let asked = |view: &ServiceCaView| {
            let snapshot = &view.snapshot;
            let is_frozen = snapshot.is_frozen(service_ca::ROW);
            (snapshot.time_scale(), is_frozen, snapshot.service_ca.present().cloned(), snapshot.distrusted.clone())
        };
        let signer = |view: &ServiceCaView| {
            view.signer().map(|it| (it.certificate.id.clone(), it.cross_signed_by_earlier.clone()))
        };
        self.is_ours() != other.is_ours()
            || signer(self) != signer(other)
            || trusted(self) != trusted(other)
            || self.snapshot.cluster != other.snapshot.cluster
            || self.snapshot.policy != other.snapshot.policy
            || self.snapshot.settings != other.snapshot.settings
            || asked(self) != asked(other)
            || self.snapshot.reloads.acknowledged != other.snapshot.reloads.acknowledged
            || self.snapshot.clock_skew_seconds != other.snapshot.clock_skew_seconds
            // The clock was set back: certificates that were issued before may not be valid yet.
            || shifted(other.snapshot.taken_at, TOLERANCE) < self.snapshot.taken_at
            || self.snapshot.other_writers != other.snapshot.other_writers
    }
}

/// Returns the views of a channel, beginning with the current one. The stream skips a missing view.
pub(crate) fn views(
    receiver: &watch::Receiver<Option<Arc<ServiceCaView>>>,
) -> impl Stream<Item = Arc<ServiceCaView>> + use<> {
    let mut receiver = receiver.clone();
    receiver.mark_changed();
    stream::unfold(receiver, |mut receiver| async move {
        loop {
            receiver.changed().await.ok()?;
            let view = receiver.borrow_and_update().clone();
            if let Some(view) = view {
                return Some((view, receiver));
            }
        }
    })
}

/// True if every PEM block of the text is a certificate, and none is a private key or another object.
fn has_only_certificates(text: &str) -> bool {
    text.split("-----BEGIN").skip(1).all(|block| block.starts_with(" CERTIFICATE-----"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_block_that_is_no_certificate_is_found() {
        let certificate = "# ours\n-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
        assert!(has_only_certificates(certificate));
        for other in ["-----BEGIN PRIVATE KEY-----\n", "-----BEGIN CERTIFICATE REQUEST-----\n", " -----BEGIN"] {
            assert!(!has_only_certificates(&format!("{certificate}{other}")), "{other}");
            assert!(!has_only_certificates(&format!("{other}{certificate}")), "{other}");
        }
    }
}
