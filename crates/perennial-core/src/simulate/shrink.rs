//! Searches the shortest reproduction of a violation.

use std::mem::discriminant;

use serde::Serialize;

use super::{Decide, Options, Outcome, Scheduled, Simulation};

/// A run with a violation, and with as few faults as the search found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Reproduction {
    /// The seed.
    pub seed: u64,
    /// The faults that it needs.
    pub faults: Vec<Scheduled>,
    /// The result of the run.
    pub outcome: Outcome,
}

/// The largest number of runs of a search.
const MOST_RUNS: usize = 200;

/// Removes faults as long as the run still has a violation, and ends the run at the violation. The search removes each kind, then
/// halves and smaller parts, and finally single faults until none can be removed.
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
    // A fault that was needed at first may be unnecessary after others are removed.
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
    /// Removes these faults, if the run still has a violation.
    fn without(&mut self, left_out: impl Fn(usize, &Scheduled) -> bool) -> bool {
        let faults = self.best.faults.iter().enumerate();
        let fewer: Vec<Scheduled> = faults.filter(|(at, it)| !left_out(*at, it)).map(|(_, it)| it.clone()).collect();
        if self.runs >= MOST_RUNS || fewer.len() == self.best.faults.len() {
            return false;
        }
        self.runs += 1;
        let Some(found) = attempt(self.simulation, &self.options, fewer, self.decide) else { return false };
        self.best = found;
        cut(&mut self.options, &mut self.best);
        true
    }

    /// Removes so many consecutive faults wherever possible. Returns whether any was removed.
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

/// Ends the run after the first violation.
fn cut(options: &mut Options, best: &mut Reproduction) {
    let Some(first) = best.outcome.violations.iter().map(|violation| violation.at).min() else { return };
    best.faults.retain(|scheduled| scheduled.at <= first);
    let shown = first + jiff::SignedDuration::from_hours(12);
    options.length = options.length.min(options.start.duration_until(shown));
    best.outcome.story.retain(|entry| entry.at <= shown);
}
