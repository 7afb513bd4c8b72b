//! Signers that nobody is to trust any more: somebody has decided that, and accepts what is lost by it.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::Pass;
use crate::catalog::Span;
use crate::plan::touched::{self, Touched};
use crate::plan::versions::after;
use crate::snapshot::Slot;
use crate::trust::{CertificateId, Known, Principal};

/// How long a distrusted signer stays in bundles at most, while something is presented that it signed.
const PATIENCE: Span = Span::minutes(10);

impl Pass<'_, '_> {
    /// Since when nobody is to trust it.
    pub(super) fn distrusted(&self, signer: &Principal) -> Option<Timestamp> {
        self.snapshot().settings.distrusted.get(&signer.key).copied()
    }

    /// Which of these are to go now. While something is presented that a distrusted one signed, it stays for a moment: everything by
    /// it is made again first, and whoever reads both in time loses nothing.
    pub(super) fn withdrawn(&mut self, members: Vec<CertificateId>) -> BTreeSet<CertificateId> {
        if self.snapshot().settings.distrusted.is_empty() {
            return BTreeSet::new();
        }
        let patience = PATIENCE.scaled(self.snapshot().settings.time_scale);
        let (mut withdrawn, mut looks) = (BTreeSet::new(), Vec::new());
        for id in members {
            let Some(signer) = self.draft.get(&id).map(|it| &it.subject) else { continue };
            let Some(since) = self.distrusted(signer) else { continue };
            let until = after(since, patience);
            if until <= self.now() || !self.is_presented(signer) {
                withdrawn.insert(id);
            } else {
                looks.push(until);
            }
        }
        looks.into_iter().for_each(|at| self.look(at));
        withdrawn
    }

    /// Whether a certificate that this signer signed is where processes read it.
    fn is_presented(&self, signer: &Principal) -> bool {
        let slots = self.snapshot().secrets.keys();
        let presented = slots.filter_map(|slot| self.draft.secret(slot).present()).map(|state| &state.certificate);
        presented.into_iter().any(|it| it.signed_by.as_ref() == Some(signer) && it.subject != *signer)
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
