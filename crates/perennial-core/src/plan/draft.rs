//! The draft: a snapshot with the writes of a plan applied.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::breaker::REMEMBERED_ISSUES;
use super::step::{Action, CopyItem, CrossCertificate, Issue, Publication, Step};
use crate::catalog::Instance;
use crate::clocks::shifted;
use crate::snapshot::{BundleState, Observed, Published, SecretState, Slot, Snapshot, Superseded};
use crate::spec::SubjectSpec;
use crate::trust::{CertificateFacts, CertificateId, Known, PathLength};

/// A snapshot with writes applied.
#[derive(Debug)]
pub(crate) struct Draft<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    /// The time after which all clients and servers of Services have reloaded; none if unknown.
    reloaded_at: Option<Timestamp>,
    changes: Changes,
}

/// The differences from the snapshot.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    secrets: HashMap<Slot, Observed<SecretState>>,
    bundles: HashMap<Slot, Observed<BundleState>>,
    certificates: HashMap<CertificateId, Arc<CertificateFacts>>,
}

/// The previous state of a write, to undo it.
#[derive(Debug, Default)]
pub(crate) struct Undo {
    secrets: Vec<(Slot, Option<Observed<SecretState>>)>,
    bundles: Vec<(Slot, Option<Observed<BundleState>>)>,
}

impl<'a> Draft<'a> {
    /// Returns a draft for decisions: it believes only reloads that an administrator acknowledged.
    pub(crate) fn new(snapshot: &'a Snapshot) -> Draft<'a> {
        let reloaded_at = snapshot.reloads.acknowledged_at();
        Draft { snapshot, now: snapshot.taken_at, reloaded_at, changes: Changes::default() }
    }

    /// Returns a draft for reports: it also believes reloads that were observed in pods.
    pub(crate) fn to_report(snapshot: &'a Snapshot) -> Draft<'a> {
        Draft { reloaded_at: snapshot.reloads.known_at(), ..Draft::new(snapshot) }
    }

    /// Returns the time after which all clients and servers of Services have reloaded; none if unknown.
    pub(crate) fn reloaded_at(&self) -> Option<Timestamp> {
        self.reloaded_at
    }

    pub(crate) fn snapshot(&self) -> &'a Snapshot {
        self.snapshot
    }

    pub(crate) fn secret(&self, slot: &Slot) -> &Observed<SecretState> {
        let found = self.changes.secrets.get(slot).or_else(|| self.snapshot.secrets.get(slot));
        found.unwrap_or_else(|| panic!("a checked snapshot contains {slot}"))
    }

    pub(crate) fn bundle(&self, slot: &Slot) -> &Observed<BundleState> {
        let found = self.changes.bundles.get(slot).or_else(|| self.snapshot.bundles.get(slot));
        found.unwrap_or_else(|| panic!("a checked snapshot contains {slot}"))
    }

    /// Returns when the last few certificates of a place were issued, the oldest first.
    pub(crate) fn issues(&self, slot: &Slot) -> &[Timestamp] {
        match self.secret(slot) {
            Observed::Present(state) => &state.issues,
            Observed::Absent | Observed::Unreadable { .. } | Observed::Unknown { .. } => {
                self.snapshot.lost_issues.get(slot).map(Vec::as_slice).unwrap_or_default()
            }
        }
    }

    /// Returns the same without times in the future, which a wrong clock recorded.
    pub(crate) fn past_issues(&self, slot: &Slot) -> Vec<Timestamp> {
        let latest = shifted(self.now, self.clock_allowance());
        self.issues(slot).iter().copied().filter(|at| *at <= latest).collect()
    }

    /// Returns the keys of an object that have content.
    pub(crate) fn keys_of(&self, object: &str) -> Vec<Slot> {
        let slots = self.snapshot.secrets.range(Slot::before_keys_of(object)..).map(|(slot, _)| slot);
        let slots = slots.take_while(|slot| slot.object_text() == object);
        slots.filter(|slot| *self.secret(slot) != Observed::Absent).cloned().collect()
    }

    /// Does a write, and returns how to undo it.
    pub(crate) fn apply(&mut self, step: &Step) -> Undo {
        let mut undo = Undo::default();
        match &step.action {
            Action::Issue(issue) => {
                let state = self.issue(issue);
                undo.secrets.push(self.set_secret(&issue.slot, Observed::Present(state)));
            }
            Action::Publish(bundles) => {
                for bundle in bundles {
                    let state = self.publish(bundle);
                    undo.bundles.push(self.set_bundle(&bundle.slot, Observed::Present(state)));
                }
            }
            Action::CopySecret(items) => {
                for item in items {
                    let state = self.copy_secret(item);
                    undo.secrets.push(self.set_secret(&item.to, state));
                }
            }
            Action::Describe(_) => {}
            Action::CopyBundle(item) => {
                if let Some(state) = self.copy_bundle(item) {
                    undo.bundles.push(self.set_bundle(&item.to, Observed::Present(state)));
                }
            }
        }
        undo
    }

    /// Undoes a write. The certificates of the write stay in the draft, but no slot refers to them.
    pub(crate) fn undo(&mut self, undo: Undo) {
        for (slot, previous) in undo.secrets.into_iter().rev() {
            restore(&mut self.changes.secrets, slot, previous);
        }
        for (slot, previous) in undo.bundles.into_iter().rev() {
            restore(&mut self.changes.bundles, slot, previous);
        }
    }

    pub(crate) fn into_changes(self) -> Changes {
        self.changes
    }

    fn set_secret(&mut self, slot: &Slot, state: Observed<SecretState>) -> (Slot, Option<Observed<SecretState>>) {
        (slot.clone(), self.changes.secrets.insert(slot.clone(), state))
    }

    fn set_bundle(&mut self, slot: &Slot, state: Observed<BundleState>) -> (Slot, Option<Observed<BundleState>>) {
        (slot.clone(), self.changes.bundles.insert(slot.clone(), state))
    }

    fn issue(&mut self, issue: &Issue) -> SecretState {
        let old = self.secret(&issue.slot).present().cloned();
        let made = Arc::new(self.facts(issue));
        self.know(made.clone());
        for cross in issue.cross_signed_by_earlier.iter().chain(&issue.earlier_cross_signed) {
            self.add_cross_certificate(cross);
        }
        let ids = |all: &[CrossCertificate]| all.iter().map(|cross| cross.id.clone()).collect::<Vec<_>>();
        let mut cross_signed_by_earlier = ids(&issue.cross_signed_by_earlier);
        cross_signed_by_earlier.extend(issue.remaining_cross_certificates.iter().cloned());
        let mut issues = self.past_issues(&issue.slot);
        issues.push(self.now);
        let subject = match &issue.spec.subject {
            SubjectSpec::Kept(der) => der.clone(),
            // A placeholder for the bytes of the subject.
            SubjectSpec::New(subject) => subject.common_name.clone().into_bytes(),
        };
        let forgotten = issues.len().saturating_sub(REMEMBERED_ISSUES);
        let mut superseded = self.superseded(old.as_ref(), issue.lag_override);
        if let Instance::Service { .. } = issue.instance {
            // An earlier certificate of the same signer behaves the same for every verifier.
            let signer = |past: &Superseded| self.get(&past.certificate).and_then(|it| it.signed_by.clone());
            superseded.retain(|past| signer(past) != made.signed_by);
        }
        SecretState {
            forced: issue.forced.clone().or_else(|| old.as_ref().and_then(|old| old.forced.clone())),
            requested: issue.requested.clone().or_else(|| old.as_ref().and_then(|old| old.requested.clone())),
            chain: issue.chain.clone(),
            subject: Some(subject),
            cross_signed_by_earlier,
            earlier_cross_signed: ids(&issue.earlier_cross_signed),
            superseded,
            issues: issues.split_off(forgotten),
            ..SecretState::new(made, Some(self.now))
        }
    }

    /// Returns the facts of the certificate that an issue creates.
    fn facts(&self, issue: &Issue) -> CertificateFacts {
        let signer = issue.signer.as_ref().and_then(|(_, id)| self.get(id)).map(|signer| signer.subject.clone());
        let usage = issue.spec.usage;
        let is_ca = usage == crate::policy::Usage::Signer;
        CertificateFacts {
            id: issue.id.clone(),
            subject: issue.subject.clone(),
            signed_by: Some(signer.unwrap_or_else(|| issue.subject.clone())),
            validity: issue.spec.validity,
            ca: is_ca.then_some(PathLength::Unlimited),
            serves: is_ca || usage.serves(),
            connects: is_ca || usage.connects(),
            hosts: issue.spec.hosts.clone(),
        }
    }

    fn add_cross_certificate(&mut self, cross: &CrossCertificate) {
        let (Some(of), Some(by)) = (self.get(&cross.of), self.get(&cross.by)) else { return };
        let facts = CertificateFacts {
            id: cross.id.clone(),
            signed_by: Some(by.subject.clone()),
            validity: cross.validity,
            ..of.as_ref().clone()
        };
        self.know(Arc::new(facts));
    }

    fn know(&mut self, certificate: Arc<CertificateFacts>) {
        self.changes.certificates.insert(certificate.id.clone(), certificate);
    }

    /// Returns the earlier certificates of a place, as long as they matter.
    fn superseded(&self, old: Option<&SecretState>, lag_override: Option<u32>) -> Vec<Superseded> {
        let Some(old) = old else { return Vec::new() };
        let is_alive = |id: &CertificateId| self.get(id).is_some_and(|it| self.now <= it.validity.not_after);
        let (certificate, chain) = (old.certificate.id.clone(), old.chain.clone());
        let last = Superseded { certificate, chain, at: self.now, lag_override };
        let earlier = old.superseded.iter().map(|past| Superseded { at: past.at.min(self.now), ..past.clone() });
        earlier.chain([last]).filter(|past| is_alive(&past.certificate)).collect()
    }

    fn publish(&self, bundle: &Publication) -> BundleState {
        let old = self.bundle(&bundle.slot).present();
        let mut published = BTreeMap::new();
        for id in &bundle.members {
            let from = bundle.foreign.iter().find(|(foreign, _)| foreign == id).map(|(_, from)| from.clone());
            let before = old.and_then(|old| old.published.get(id));
            // A wrong clock may have recorded a time in the future, which counts as now.
            let at = before.map_or(self.now, |before| before.at.min(self.now));
            let from = from.or_else(|| before.and_then(|before| before.from.clone()));
            let first = before.map_or(bundle.first, |before| before.first);
            let reached = bundle.reached.get(id).copied();
            let lag_override = before.map_or(bundle.lag_override, |before| before.lag_override);
            published.insert(id.clone(), Published { at, from, first, reached, lag_override });
        }
        BundleState {
            members: bundle.members.iter().cloned().collect(),
            damage: Vec::new(),
            is_canonical: true,
            published,
        }
    }

    fn copy_secret(&self, item: &CopyItem) -> Observed<SecretState> {
        let Some(source) = item.from.as_ref().and_then(|from| self.secret(from).present()) else {
            return Observed::Absent;
        };
        let old = self.secret(&item.to).present();
        let mut copy = SecretState { superseded: self.superseded(old, None), issues: Vec::new(), ..source.clone() };
        if item.alone {
            copy.chain.clear();
        }
        Observed::Present(copy)
    }

    fn copy_bundle(&self, item: &CopyItem) -> Option<BundleState> {
        let source = self.bundle(item.from.as_ref()?).present()?;
        let old = self.bundle(&item.to).present();
        let since = |id: &CertificateId| {
            let before = old.and_then(|old| old.published.get(id));
            let before = before.map(|before| Published { at: before.at.min(self.now), ..before.clone() });
            let lag_override = source.published.get(id).and_then(|it| it.lag_override);
            before.unwrap_or(Published { at: self.now, from: None, first: item.first, reached: None, lag_override })
        };
        let published = source.members.iter().map(|id| (id.clone(), since(id))).collect();
        Some(BundleState { published, damage: Vec::new(), ..source.clone() })
    }
}

impl Known for Draft<'_> {
    fn get(&self, id: &CertificateId) -> Option<&Arc<CertificateFacts>> {
        self.changes.certificates.get(id).or_else(|| self.snapshot.certificates.get(id))
    }
}

fn restore<T>(map: &mut HashMap<Slot, T>, slot: Slot, previous: Option<T>) {
    match previous {
        Some(previous) => drop(map.insert(slot, previous)),
        None => drop(map.remove(&slot)),
    }
}

impl Snapshot {
    /// Applies a write to the snapshot.
    pub fn apply(&mut self, step: &Step) {
        let mut draft = Draft::new(self);
        draft.apply(step);
        let changes = draft.into_changes();
        self.mistyped.retain(|slot| slot.object_text() != step.object);
        self.undescribed.retain(|slot| slot.object_text() != step.object);
        self.secrets.extend(changes.secrets);
        self.bundles.extend(changes.bundles);
        changes.certificates.into_values().for_each(|certificate| self.certificates.insert(certificate));
    }
}
