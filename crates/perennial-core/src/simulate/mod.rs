//! Decades of decisions on a virtual clock: a cluster as the planner's writes make it, with processes that read late,
//! and with trouble. Keys are symbols; time jumps from one event to the next; the same seed gives the same run.
//!
//! Two things are watched. An independent judge decides after every write whether it broke an edge, by the
//! definition: with everything that a process may hold. And the processes that there are meet: what one trusts and
//! another presents must fit at every moment, until the end of what nobody can renew.

mod chance;
mod day1;
mod faults;
mod judge;
mod outcome;
mod run;
mod shrink;
#[cfg(test)]
mod tests;
mod words;
mod world;

use jiff::{SignedDuration, Timestamp};

pub use faults::{Fault, FaultKind, Scheduled};
pub use outcome::{ClosestCall, Entry, Happening, Outage, Outcome, Violation};
pub use shrink::{Reproduction, shortest};

use crate::catalog::{Catalog, ClusterFacts};
use crate::plan::{Planner, Report, Scope};
use crate::snapshot::Snapshot;
use run::Run;

/// What to simulate.
#[derive(Debug, Clone)]
pub struct Options {
    /// Decides everything that is left to chance.
    pub seed: u64,
    /// The first instant.
    pub start: Timestamp,
    /// How long.
    pub length: SignedDuration,
    /// What may go wrong.
    pub faults: Vec<FaultKind>,
    /// How many control-plane nodes there are at first.
    pub nodes: usize,
    /// How many Services ask for a certificate at first.
    pub services: usize,
    /// How long the service CA is still valid that another operator has left, with certificates that outlive it; none where
    /// there is no service CA at first.
    pub adopted_service_ca: Option<SignedDuration>,
}

/// A cluster as the installation of `catalog` leaves it at an instant, with symbolic keys.
pub fn installed(planner: &Planner<'_>, cluster: ClusterFacts, taken_at: Timestamp) -> Snapshot {
    let mut snapshot = Snapshot::empty(planner.wiring(), cluster, taken_at);
    day1::install(&mut snapshot, planner.wiring());
    snapshot
}

/// Who decides: the planner, or in a test something worse.
pub type Decide<'d> = dyn Fn(&Planner<'_>, &Snapshot, &Scope) -> Report + 'd;

/// A cluster of a catalog, ready to run.
#[derive(Debug)]
pub struct Simulation<'c> {
    planner: Planner<'c>,
}

impl Options {
    /// So many years of a usual cluster without trouble.
    pub fn years(years: u32, seed: u64, start: Timestamp) -> Options {
        let length = SignedDuration::from_hours(24 * 365 * i64::from(years));
        Options { seed, start, length, faults: Vec::new(), nodes: 3, services: 5, adopted_service_ca: None }
    }

    /// The trouble that these options mean.
    pub fn script(&self) -> Vec<Scheduled> {
        // The signers of the first day have little slack: trouble begins when they are gone.
        let from = self.start.saturating_add(SignedDuration::from_hours(72)).unwrap_or(Timestamp::MAX);
        let to = self.end();
        faults::script(&self.faults, from, to, &mut chance::Chance::new(self.seed ^ 0x5eed_fa17))
    }

    fn end(&self) -> Timestamp {
        self.start.saturating_add(self.length).unwrap_or(Timestamp::MAX)
    }
}

impl<'c> Simulation<'c> {
    /// For clusters of a catalog without defects.
    pub fn new(catalog: &'c Catalog) -> Simulation<'c> {
        Simulation { planner: Planner::new(catalog) }
    }

    /// What happens.
    pub fn run(&self, options: &Options) -> Outcome {
        self.run_with(options, options.script(), &|planner, snapshot, scope| planner.plan(snapshot, scope))
    }

    /// What happens with this trouble when somebody else decides.
    pub fn run_with(&self, options: &Options, script: Vec<Scheduled>, decide: &Decide<'_>) -> Outcome {
        Run::new(&self.planner, options, script, decide).run()
    }
}
