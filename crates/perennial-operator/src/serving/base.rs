//! What is the same for every Service: the service CA, what trusts it, and how the cluster is looked at.

use std::collections::BTreeSet;

use perennial_core::catalog::{Component, ObjectName};
use perennial_core::rules::SecretState;
use perennial_core::service_ca;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::trust::CertificateId;
use perennial_core::wiring::Wiring;
use perennial_x509::{Bundle, Certificate, trust};

use crate::library::Library;
use crate::observe::Observation;

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
            snapshot.other_writers.extend(all.other_writers.get(slot).map(|writer| (slot.clone(), writer.clone())));
        }
        snapshot.other_writers.extend(all.other_writers.get(&signer).map(|writer| (signer.clone(), writer.clone())));
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

    /// Whether a text has the certificates that the CA's bundle had when it was seen last, and nothing besides.
    pub(crate) fn is_bundle(&self, text: &str) -> bool {
        let seen = self.bundles.first().and_then(|home| self.snapshot.bundles.get(home)?.present());
        let (found, damage) = Bundle::salvage(text.as_bytes());
        let found: BTreeSet<CertificateId> = found.certificates().iter().map(trust::id).collect();
        damage.is_empty() && seen.is_some_and(|seen| seen.members.iter().cloned().collect::<BTreeSet<_>>() == found)
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
