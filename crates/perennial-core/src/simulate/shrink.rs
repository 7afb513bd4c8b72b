//! The shortest reproduction of what must never happen.

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

/// Leaves out trouble, half of it at a time and then less, as long as something still breaks; and ends when it does.
pub fn shortest(
    simulation: &Simulation<'_>,
    options: &Options,
    script: &[Scheduled],
    decide: &Decide<'_>,
) -> Option<Reproduction> {
    let mut options = options.clone();
    let mut best = attempt(simulation, &options, script.to_vec(), decide)?;
    cut(&mut options, &mut best);
    let mut size = best.faults.len().div_ceil(2);
    let mut runs = 0;
    while size > 0 && runs < PATIENCE {
        let mut start = 0;
        while start < best.faults.len() && runs < PATIENCE {
            let mut fewer = best.faults.clone();
            fewer.drain(start..(start + size).min(fewer.len()));
            runs += 1;
            match attempt(simulation, &options, fewer, decide) {
                Some(found) => {
                    best = found;
                    cut(&mut options, &mut best);
                }
                None => start += size,
            }
        }
        size /= 2;
    }
    Some(best)
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
