//! What is the same for every Service: the service CA, what trusts it, and how the cluster is looked at.

use std::collections::BTreeSet;

use perennial_core::catalog::{Component, ObjectName};
use perennial_core::plan::distrusted;
use perennial_core::rules::SecretState;
use perennial_core::service_ca;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::trust::CertificateId;
use perennial_core::wiring::Wiring;
use perennial_x509::{Bundle, Certificate, trust};

use crate::library::Library;
use crate::observe::Observation;
use crate::read;

/// The part of an observation on which decisions about Services rest.
#[derive(Debug)]
pub struct Base {
    pub(super) snapshot: Snapshot,
    pub(super) library: Library,
    /// Which one it is: later ones have higher numbers.
    pub(super) number: u64,
    signer: Slot,
    /// Where its bundle is kept, and the copies of that.
    bundles: Vec<Slot>,
}

impl Base {
    /// Of what was seen last.
    pub fn of(observation: &Observation, wiring: &Wiring<'_>, number: u64) -> Option<Base> {
        let row = wiring.row(service_ca::ROW)?.row;
        let signer = wiring.home(row, &perennial_core::catalog::Instance::Cluster);
        let wired = wiring.bundle(service_ca::BUNDLE)?;
        let copies = wired.copies.iter().map(|(slot, _)| slot.clone());
        let bundles: Vec<Slot> = [wired.home.clone()].into_iter().chain(copies).collect();
        let all = &observation.snapshot;
        let mut snapshot = Snapshot::empty(wiring, all.cluster.clone(), all.taken_at);
        snapshot.settings = all.settings.clone();
        // Each is decided for itself.
        snapshot.settings.in_flight = usize::MAX;
        snapshot.policy = all.policy.clone();
        snapshot.policy_unknown_since = all.policy_unknown_since;
        snapshot.nodes = all.nodes.clone();
        snapshot.secrets.extend(all.secrets.get_key_value(&signer).map(|(slot, found)| (slot.clone(), found.clone())));
        for slot in &bundles {
            snapshot.bundles.extend(all.bundles.get(slot).map(|found| (slot.clone(), found.clone())));
        }
        // Who writes a copy does not keep the CA.
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
        Some(Base { snapshot, library, number, signer, bundles })
    }

    /// Which one it is: later ones have higher numbers.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The signer and its bundle, if somebody is distrusted and it is ours to keep that in mind.
    pub(crate) fn of_distrust(&self) -> Option<(ObjectName, ObjectName)> {
        let settings = &self.snapshot.settings;
        let is_frozen = settings.leaves(Component::ServiceCa, service_ca::ROW);
        let is_kept = !settings.distrusted.is_empty() && self.is_ours() && !is_frozen;
        Some((self.signer.object(), self.bundles.first()?.object())).filter(|_| is_kept)
    }

    /// Whether anything may be written.
    pub(crate) fn is_ours(&self) -> bool {
        let (settings, component) = (&self.snapshot.settings, Component::ServiceCa.owner());
        let is_foreign = !self.snapshot.other_writers.is_empty() && !settings.taken_over.contains(component);
        !is_foreign && !settings.left_alone.contains(component)
    }

    /// The service CA, if there is one.
    pub(super) fn signer(&self) -> Option<&SecretState> {
        self.snapshot.secrets.get(&self.signer)?.present()
    }

    /// The service CA itself.
    pub(super) fn signer_certificate(&self) -> Option<&Certificate> {
        self.library.get(&self.signer()?.certificate.id)
    }

    /// Whether a text is the CA's bundle as it was seen last, and nothing besides: the CA and those that it has followed are in it.
    /// One that is to be left as it is may be written otherwise.
    pub(crate) fn is_bundle(&self, text: &str) -> bool {
        let seen = self.bundles.first().and_then(|home| self.snapshot.bundles.get(home)?.present());
        let (Some(seen), Some(signer)) = (seen, self.signer()) else { return false };
        let (found, damage) = Bundle::salvage(text.as_bytes());
        let is_frozen = self.snapshot.settings.leaves(Component::ServiceCa, service_ca::BUNDLE);
        let is_clean = match is_frozen {
            true => damage.is_empty() && has_only_certificates(text),
            false => read::bundle_text(found.certificates()) == text,
        };
        let found: BTreeSet<CertificateId> = found.certificates().iter().map(trust::id).collect();
        is_clean
            && seen.members.iter().cloned().collect::<BTreeSet<_>>() == found
            && self.needed(signer, is_frozen).all(|id| found.contains(id))
    }

    /// What has to be in the bundle: without these it is not whole, whoever left it so.
    fn needed<'a>(&'a self, signer: &'a SecretState, is_frozen: bool) -> impl Iterator<Item = &'a CertificateId> {
        let now = self.snapshot.taken_at;
        let bridged = signer.bridged.iter().filter_map(|id| self.snapshot.certificates.get(id));
        let bridged = bridged.filter(move |it| !is_frozen && it.is_valid_at(now));
        let distrusted = distrusted(&self.snapshot);
        let all = [&signer.certificate].into_iter().chain(bridged);
        all.filter(move |it| !distrusted.contains_key(&it.subject.key)).map(|it| &it.id)
    }

    /// Where it is kept.
    pub(super) fn signer_slot(&self) -> &Slot {
        &self.signer
    }

    /// Whether other decisions may follow from another one.
    pub(super) fn differs(&self, other: &Base) -> bool {
        let trusted = |base: &Base| -> Vec<Vec<CertificateId>> {
            let members = |slot| base.snapshot.bundles.get(slot).and_then(|found| found.present());
            self.bundles.iter().map(|slot| members(slot).map(|it| it.members.clone()).unwrap_or_default()).collect()
        };
        let signer = |base: &Base| base.signer().map(|it| (it.certificate.id.clone(), it.bridges.clone()));
        self.is_ours() != other.is_ours()
            || signer(self) != signer(other)
            || trusted(self) != trusted(other)
            || self.snapshot.cluster != other.snapshot.cluster
            || self.snapshot.policy != other.snapshot.policy
            || self.snapshot.settings != other.snapshot.settings
            || self.snapshot.other_writers != other.snapshot.other_writers
    }
}

/// Whether there is no PEM block but certificates: no key that somebody put beside them.
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
