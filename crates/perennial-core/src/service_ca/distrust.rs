//! Distrust: which CAs an administrator's decision removes, which clients it cuts off, and what remains of the CAs.

use std::collections::{BTreeMap, BTreeSet};

use crate::catalog::Instance;
use crate::plan::{Planner, Scope, distrusted};
use crate::service_ca;
use crate::snapshot::{SecretState, Slot, Snapshot};
use crate::trust::{CertificateFacts, KeyId, Principal};

/// More rounds than any rotation needs.
const MOST_ROUNDS: usize = 10;

/// The CAs to distrust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distrust {
    /// The place of the current CA.
    pub signer: Slot,
    /// The place of its bundle.
    pub bundle: Slot,
    /// The keys of the CAs.
    pub keys: BTreeSet<KeyId>,
    /// The certificates of the CAs, for messages.
    pub certificates: Vec<CertificateFacts>,
    /// True if the current CA is one of them.
    pub is_current: bool,
}

/// What remains of distrusted CAs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Left {
    /// Bundles that contain one of them.
    pub trusted: Vec<Slot>,
    /// Services that present a certificate of one of them.
    pub presented: Vec<Slot>,
}

impl Distrust {
    /// Returns all service CAs except the current one, with the CAs that cross-signed them; the current one if there is no other. None
    /// without a service CA.
    pub fn of_service_ca(planner: &Planner<'_>, snapshot: &Snapshot) -> Option<Distrust> {
        let signer = planner.wiring().home(planner.wiring().row(service_ca::ROW)?.row, &Instance::Cluster);
        let bundles = bundles(planner);
        let current = &state(snapshot, &signer)?.certificate;
        let mut certificates: BTreeMap<KeyId, CertificateFacts> = BTreeMap::new();
        let members =
            bundles.iter().filter_map(|slot| snapshot.bundles.get(slot)?.present()).flat_map(|it| &it.members);
        for it in members.filter_map(|id| snapshot.certificates.get(id)).filter(|it| it.subject != current.subject) {
            // Prefer the root to a cross-certificate.
            let known = certificates.entry(it.subject.key.clone()).or_insert_with(|| it.as_ref().clone());
            if known.signed_by.as_ref() != Some(&known.subject) {
                known.clone_from(it);
            }
        }
        if certificates.is_empty() {
            certificates.insert(current.subject.key.clone(), current.as_ref().clone());
        }
        let mut asked = snapshot.clone();
        asked.distrusted = certificates.keys().map(|key| (key.clone(), snapshot.taken_at)).collect();
        let keys: BTreeSet<KeyId> = distrusted(&asked).into_keys().collect();
        let is_current = keys.contains(&current.subject.key);
        if is_current {
            certificates.insert(current.subject.key.clone(), current.as_ref().clone());
        }
        let bundle = bundles.into_iter().next()?;
        Some(Distrust { signer, bundle, keys, certificates: certificates.into_values().collect(), is_current })
    }

    /// Returns the service CAs with these keys, which were distrusted before. None without a service CA.
    pub fn of_keys(planner: &Planner<'_>, snapshot: &Snapshot, keys: BTreeSet<KeyId>) -> Option<Distrust> {
        let signer = planner.wiring().home(planner.wiring().row(service_ca::ROW)?.row, &Instance::Cluster);
        let bundle = bundles(planner).into_iter().next()?;
        let members = bundles(planner).into_iter().filter_map(|slot| snapshot.bundles.get(&slot)?.present());
        let members: BTreeSet<_> = members.flat_map(|it| &it.members).collect();
        let facts = members.into_iter().filter_map(|id| snapshot.certificates.get(id));
        let certificates = facts.filter(|it| keys.contains(&it.subject.key)).map(|it| it.as_ref().clone()).collect();
        let is_current = keys.contains(&state(snapshot, &signer)?.certificate.subject.key);
        Some(Distrust { signer, bundle, keys, certificates, is_current })
    }

    /// Returns the edges that are cut off: those that the plan breaks with consent, until no step is left.
    pub fn cuts_off(&self, planner: &Planner<'_>, snapshot: &Snapshot) -> BTreeSet<String> {
        let mut world = snapshot.clone();
        world.distrusted.extend(self.keys.iter().map(|key| (key.clone(), world.taken_at)));
        world.settings.in_flight = usize::MAX;
        let mut lost = BTreeSet::new();
        for _ in 0..MOST_ROUNDS {
            let report = planner.plan(&world, &Scope::All);
            if report.steps.is_empty() {
                break;
            }
            for step in &report.steps {
                lost.extend(step.consented.iter().cloned());
                world.apply(step);
            }
        }
        lost
    }

    /// Returns what remains of them.
    pub fn left(&self, planner: &Planner<'_>, snapshot: &Snapshot) -> Left {
        let is_meant = |it: &Principal| self.keys.contains(&it.key);
        let trusts = |slot: &Slot| {
            let members = snapshot.bundles.get(slot).and_then(|it| it.present()).into_iter().flat_map(|it| &it.members);
            members.filter_map(|id| snapshot.certificates.get(id)).any(|it| is_meant(&it.subject))
        };
        let presents =
            |slot: &&Slot| state(snapshot, slot).and_then(|it| it.certificate.signed_by.as_ref()).is_some_and(is_meant);
        let presented = snapshot.services.found().keys().filter(presents).cloned().collect();
        Left { trusted: bundles(planner).into_iter().filter(trusts).collect(), presented }
    }

    /// Returns a Service that presents a certificate of the current CA.
    pub fn served<'s>(&self, snapshot: &'s Snapshot) -> Option<&'s Slot> {
        let current = &state(snapshot, &self.signer)?.certificate.subject;
        let is_by =
            |slot: &&Slot| state(snapshot, slot).is_some_and(|it| it.certificate.signed_by.as_ref() == Some(current));
        snapshot.services.found().keys().find(is_by)
    }
}

/// Returns the places of the service CA's bundle and its copies.
fn bundles(planner: &Planner<'_>) -> Vec<Slot> {
    let wired = planner.wiring().bundle(service_ca::BUNDLE);
    wired
        .into_iter()
        .flat_map(|it| [it.home.clone()].into_iter().chain(it.copies.iter().map(|(slot, _)| slot.clone())))
        .collect()
}

fn state<'s>(snapshot: &'s Snapshot, slot: &Slot) -> Option<&'s SecretState> {
    snapshot.secrets.get(slot)?.present()
}
