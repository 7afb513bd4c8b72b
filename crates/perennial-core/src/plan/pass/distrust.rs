//! Signers that nobody is to trust any more: somebody has decided that, and accepts what is lost by it.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Pass;
use crate::catalog::Span;
use crate::plan::touched::{self, Touched};
use crate::plan::versions::after;
use crate::snapshot::{Slot, Snapshot};
use crate::trust::{CertificateFacts, CertificateId, KeyId, Known, Principal};

/// How long a distrusted signer stays in bundles at most, while something is presented that it signed.
const PATIENCE: Span = Span::minutes(10);

/// The keys that nobody is to trust, with those that vouch for them: whoever has signed a distrusted one is a way to it for everybody
/// who serves that certificate, and it is no secret.
pub fn closure(snapshot: &Snapshot) -> BTreeMap<KeyId, Timestamp> {
    let mut distrusted = snapshot.settings.distrusted.clone();
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
    /// Since when nobody is to trust it.
    pub(super) fn distrusted(&self, signer: &Principal) -> Option<Timestamp> {
        self.distrusted.get(&signer.key).copied()
    }

    /// Which of these are to go now. While something is presented that a distrusted one signed, it stays for a moment: everything by
    /// it is made again first, and whoever reads both in time loses nothing.
    pub(super) fn withdrawn(&mut self, members: Vec<CertificateId>) -> BTreeSet<CertificateId> {
        let is_meant = |id: &CertificateId| self.draft.get(id).and_then(|it| self.distrusted(&it.subject));
        let mut meant: Vec<(CertificateId, Timestamp)> = Vec::new();
        meant.extend(members.into_iter().filter_map(|id| is_meant(&id).map(|since| (id, since))));
        // All together: while one is there that vouches for another, it is known that it does.
        let Some(since) = meant.iter().map(|(_, since)| *since).max() else { return BTreeSet::new() };
        let until = after(since, PATIENCE.scaled(self.snapshot().settings.time_scale));
        if self.now() < until && self.is_presented() {
            self.look(until);
            return BTreeSet::new();
        }
        meant.into_iter().map(|(id, _)| id).collect()
    }

    /// Whether a certificate that a distrusted signer signed is where processes read it.
    fn is_presented(&self) -> bool {
        let slots = self.snapshot().secrets.keys();
        let presented = slots.filter_map(|slot| self.draft.secret(slot).present()).map(|state| &state.certificate);
        let is_by = |it: &CertificateFacts| it.signed_by.as_ref().is_some_and(|by| self.distrusted(by).is_some());
        presented.into_iter().any(|it| is_by(it) && it.ca.is_none())
    }

    /// The edges that another content of a bundle touches. Where a distrusted signer goes, they may break.
    pub(super) fn touched_by(&self, slot: &Slot, new: &BTreeSet<CertificateId>) -> Vec<Touched> {
        let old = self.draft.bundle(slot).present().map(|state| state.members.as_slice()).unwrap_or_default();
        let gone = old.iter().filter(|id| !new.contains(id)).filter_map(|id| self.draft.get(id));
        let is_accepted = gone.into_iter().any(|it| self.distrusted(&it.subject).is_some());
        let touched = touched::edges_of_bundle(self.wiring, &self.draft, slot).into_iter();
        touched.map(|it| Touched { is_consented: it.is_consented || is_accepted, ..it }).collect()
    }
}
