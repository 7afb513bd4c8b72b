//! The shortest reproduction of what must never happen.

use std::mem::discriminant;

use serde::Serialize;

use super::{Decide, Options, Outcome, Scheduled, Simulation};

/// A run that shows a violation, with as little else as could be found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reproduction {
    /// The seed.
    pub seed: u64,
    /// The trouble that it needs.
    pub faults: Vec<Scheduled>,
    /// What happens then.
    pub outcome: Outcome,
}

/// How many runs a search may take.
const PATIENCE: usize = 200;

/// Leaves out trouble as long as something still breaks, and ends when it does: each kind of it, then half of it at a
/// time and less, and in the end each alone until none can be left out.
pub fn shortest(
    simulation: &Simulation<'_>,
    options: &Options,
    script: &[Scheduled],
    decide: &Decide<'_>,
) -> Option<Reproduction> {
    let mut options = options.clone();
    let mut best = attempt(simulation, &options, script.to_vec(), decide)?;
    cut(&mut options, &mut best);
    let mut search = Search { simulation, options, decide, best, runs: 0 };
    let mut kinds = Vec::new();
    for kind in search.best.faults.iter().map(|it| discriminant(&it.fault)) {
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    for kind in kinds {
        search.without(|_, it| discriminant(&it.fault) == kind);
    }
    let mut size = search.best.faults.len().div_ceil(2);
    while size > 1 {
        search.without_each(size);
        size /= 2;
    }
    // What could not be left out at first may be, now that something else is.
    while search.without_each(1) {}
    Some(search.best)
}

struct Search<'s, 'c> {
    simulation: &'s Simulation<'c>,
    options: Options,
    decide: &'s Decide<'s>,
    best: Reproduction,
    runs: usize,
}

impl Search<'_, '_> {
    /// Leaves out these, if it breaks all the same.
    fn without(&mut self, left_out: impl Fn(usize, &Scheduled) -> bool) -> bool {
        let faults = self.best.faults.iter().enumerate();
        let fewer: Vec<Scheduled> = faults.filter(|(at, it)| !left_out(*at, it)).map(|(_, it)| it.clone()).collect();
        if self.runs >= PATIENCE || fewer.len() == self.best.faults.len() {
            return false;
        }
        self.runs += 1;
        let Some(found) = attempt(self.simulation, &self.options, fewer, self.decide) else { return false };
        self.best = found;
        cut(&mut self.options, &mut self.best);
        true
    }

    /// Leaves out so many in a row, wherever that is possible; whether it was.
    fn without_each(&mut self, size: usize) -> bool {
        let (mut start, mut was_possible) = (0, false);
        while start < self.best.faults.len() {
            if self.without(|at, _| (start..start + size).contains(&at)) {
                was_possible = true;
            } else {
                start += size;
            }
        }
        was_possible
    }
}

fn attempt(
    simulation: &Simulation<'_>,
    options: &Options,
    faults: Vec<Scheduled>,
    decide: &Decide<'_>,
) -> Option<Reproduction> {
    let outcome = simulation.run_with(options, faults.clone(), decide);
    (!outcome.violations.is_empty()).then_some(Reproduction { seed: options.seed, faults, outcome })
}

/// Nothing after the first violation is of interest.
fn cut(options: &mut Options, best: &mut Reproduction) {
    let Some(first) = best.outcome.violations.iter().map(|violation| violation.at).min() else { return };
    best.faults.retain(|scheduled| scheduled.at <= first);
    let shown = first + jiff::SignedDuration::from_hours(12);
    options.length = options.length.min(options.start.duration_until(shown));
    best.outcome.story.retain(|entry| entry.at <= shown);
}
