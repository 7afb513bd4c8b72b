//! The decisions about distrusted signers. An administrator has ended the trust and accepts the broken edges.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Pass;
use crate::catalog::Span;
use crate::plan::touched::{self, Touched};
use crate::plan::versions::after;
use crate::snapshot::{Slot, Snapshot};
use crate::trust::{CertificateFacts, CertificateId, KeyId, Known, Principal};

/// The longest time that a distrusted signer stays in bundles while its certificates are presented.
const LONGEST_WAIT: Span = Span::minutes(10);

/// Returns the distrusted keys, and the keys that cross-signed a distrusted one: a server that sends such a cross-certificate, which
/// is public, would be accepted.
pub fn closure(snapshot: &Snapshot) -> BTreeMap<KeyId, Timestamp> {
    let mut distrusted = snapshot.distrusted.clone();
    if distrusted.is_empty() {
        return distrusted;
    }
    loop {
        let vouched = snapshot.certificates.iter().filter(|it| it.ca.is_some() && it.is_valid_at(snapshot.taken_at));
        let found = vouched.filter_map(|it| {
            let (by, since) = (it.signed_by.as_ref()?, *distrusted.get(&it.subject.key)?);
            (!distrusted.contains_key(&by.key)).then(|| (by.key.clone(), since))
        });
        let found: Vec<(KeyId, Timestamp)> = found.collect();
        if found.is_empty() {
            return distrusted;
        }
        distrusted.extend(found);
    }
}

impl Pass<'_, '_> {
    /// Returns since when a signer is distrusted.
    pub(super) fn distrusted(&self, signer: &Principal) -> Option<Timestamp> {
        self.distrusted.get(&signer.key).copied()
    }

    /// Returns which of these must be removed now. While a certificate of a distrusted signer is presented, the signer stays for a
    /// short time: all its certificates are re-issued first, and processes that reload both in time see no outage.
    pub(super) fn withdrawn(&mut self, members: Vec<CertificateId>) -> BTreeSet<CertificateId> {
        let is_meant = |id: &CertificateId| self.draft.get(id).and_then(|it| self.distrusted(&it.subject));
        let mut meant: Vec<(CertificateId, Timestamp)> = Vec::new();
        meant.extend(members.into_iter().filter_map(|id| is_meant(&id).map(|since| (id, since))));
        // All of them at once: while a cross-certificate is in the bundle, its signer is known.
        let Some(since) = meant.iter().map(|(_, since)| *since).max() else { return BTreeSet::new() };
        let until = after(since, LONGEST_WAIT.scaled(self.snapshot().time_scale()));
        if self.now() < until && self.is_presented() {
            self.look(until);
            return BTreeSet::new();
        }
        meant.into_iter().map(|(id, _)| id).collect()
    }

    /// Returns true if processes read a certificate of a distrusted signer.
    fn is_presented(&self) -> bool {
        let slots = self.snapshot().secrets.keys();
        let presented = slots.filter_map(|slot| self.draft.secret(slot).present()).map(|state| &state.certificate);
        let is_by = |it: &CertificateFacts| it.signed_by.as_ref().is_some_and(|by| self.distrusted(by).is_some());
        presented.into_iter().any(|it| is_by(it) && it.ca.is_none())
    }

    /// Returns the edges that a changed bundle touches. The removal of a distrusted signer may break them.
    pub(super) fn touched_by(&self, slot: &Slot, new: &BTreeSet<CertificateId>) -> Vec<Touched> {
        let old = self.draft.bundle(slot).present().map(|state| state.members.as_slice()).unwrap_or_default();
        let gone = old.iter().filter(|id| !new.contains(id)).filter_map(|id| self.draft.get(id));
        let is_accepted = gone.into_iter().any(|it| self.distrusted(&it.subject).is_some());
        let touched = touched::edges_of_bundle(self.wiring, &self.draft, slot).into_iter();
        touched.map(|it| Touched { is_consented: it.is_consented || is_accepted, ..it }).collect()
    }
}
