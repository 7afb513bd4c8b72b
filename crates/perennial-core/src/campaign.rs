//! Many rotations for one reason, a few at a time: signers first, so that what they sign is replaced once.

use crate::catalog::Row;
use crate::policy::Usage;
use crate::snapshot::{Slot, Snapshot};

/// A certificate that should be replaced.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its row.
    pub row: &'a Row,
    /// Where it is kept.
    pub slot: &'a Slot,
}

/// How far a campaign is.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Wave {
    /// What to ask for now.
    pub ask: Vec<Slot>,
    /// What was asked for, and is not done yet.
    pub in_flight: Vec<Slot>,
    /// What was replaced for this reason and still is not as it should be: the same reason does not replace it again.
    pub spent: Vec<Slot>,
    /// What is asked for when others are done.
    pub later: Vec<Slot>,
}

impl Wave {
    /// Whether nothing is left that this reason could do.
    pub fn is_over(&self) -> bool {
        self.ask.is_empty() && self.in_flight.is_empty() && self.later.is_empty()
    }
}

/// What to ask for, so that no more than so many rotations are under way. Whoever was asked for before, and by whomever, counts.
pub fn wave(candidates: &[Candidate<'_>], snapshot: &Snapshot, reason: &str, at_once: usize) -> Wave {
    let mut wave = Wave::default();
    let mut open = Vec::new();
    for candidate in candidates {
        let done = snapshot.secrets.get(candidate.slot).and_then(|found| found.present()?.forced.as_deref());
        let asked = snapshot.settings.forced.get(candidate.row.id).map(String::as_str);
        match (done == Some(reason), asked) {
            (true, _) => wave.spent.push(candidate.slot.clone()),
            (false, Some(asked)) if done != Some(asked) => wave.in_flight.push(candidate.slot.clone()),
            (false, _) => open.push(candidate),
        }
    }
    // A stable sort: otherwise the order of the catalog stays.
    open.sort_by_key(|candidate| candidate.row.usage != Usage::Signer);
    let room = at_once.saturating_sub(wave.in_flight.len());
    for candidate in open {
        let to = if wave.ask.len() < room { &mut wave.ask } else { &mut wave.later };
        to.push(candidate.slot.clone());
    }
    wave
}
