//! The simulation: decades of the planner's decisions on a virtual clock. Processes reload late, and faults occur. Keys are
//! symbols, time jumps from one event to the next, and the same seed gives the same run.
//!
//! The simulation checks two things. After every write, an independent judge decides by the definition whether the write broke
//! an edge, with every version that a process may hold. And the simulated processes connect to each other: each verifier must
//! accept each presenter at every moment, until the expiry of certificates that cannot be renewed.

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
pub use outcome::{Entry, Happening, Outage, Outcome, RemainingValidity, Violation};
pub use shrink::{Reproduction, shortest};

use crate::catalog::{Catalog, ClusterFacts, Component};
use crate::conditions::{self, Circumstances, Claim};
use crate::plan::{Planner, Report, Scope};
use crate::snapshot::Snapshot;
use run::Run;

/// The options of a simulation.
#[derive(Debug, Clone)]
pub struct Options {
    /// The seed of all random choices.
    pub seed: u64,
    /// The start time.
    pub start: Timestamp,
    /// The simulated time.
    pub length: SignedDuration,
    /// The kinds of faults.
    pub faults: Vec<FaultKind>,
    /// The initial number of control-plane nodes.
    pub nodes: usize,
    /// The initial number of Services that ask for a certificate.
    pub services: usize,
    /// The remaining validity of an initial service CA of another operator, with certificates that expire after it; none if there
    /// is no service CA initially.
    pub adopted_service_ca: Option<SignedDuration>,
}

/// Returns a cluster as the installation leaves it, with symbolic keys.
pub fn installed(planner: &Planner<'_>, cluster: ClusterFacts, taken_at: Timestamp) -> Snapshot {
    let mut snapshot = Snapshot::empty(planner.wiring(), cluster, taken_at);
    snapshot.settings.every_component = true;
    day1::install(&mut snapshot, planner.wiring());
    snapshot
}

/// The planner, or a worse one in a test.
pub type Decide<'d> = dyn Fn(&Planner<'_>, &Snapshot, &Scope) -> Report + 'd;

/// The conditions of a component, or wrong ones in a test.
pub type Claims<'d> = dyn Fn(&Planner<'_>, Component, &Circumstances<'_>) -> Option<Vec<Claim>> + 'd;

/// A cluster of a catalog, ready to run.
#[derive(Debug)]
pub struct Simulation<'c> {
    planner: Planner<'c>,
}

impl Options {
    /// Returns the options for so many years of a usual cluster without faults.
    pub fn years(years: u32, seed: u64, start: Timestamp) -> Options {
        let length = SignedDuration::from_hours(24 * 365 * i64::from(years));
        Options { seed, start, length, faults: Vec::new(), nodes: 3, services: 5, adopted_service_ca: None }
    }

    /// Returns the faults of these options.
    pub fn script(&self) -> Vec<Scheduled> {
        // The signers of the first day have little reserve: faults start when they are replaced.
        let from = self.start.saturating_add(SignedDuration::from_hours(72)).unwrap_or(Timestamp::MAX);
        let to = self.end();
        faults::script(&self.faults, from, to, &mut chance::Chance::new(self.seed ^ 0x5eed_fa17))
    }

    fn end(&self) -> Timestamp {
        self.start.saturating_add(self.length).unwrap_or(Timestamp::MAX)
    }
}

impl<'c> Simulation<'c> {
    /// Returns a simulation of clusters of a catalog without defects.
    pub fn new(catalog: &'c Catalog) -> Simulation<'c> {
        Simulation { planner: Planner::new(catalog) }
    }

    /// Runs the simulation.
    pub fn run(&self, options: &Options) -> Outcome {
        self.run_with(options, options.script(), &|planner, snapshot, scope| planner.plan(snapshot, scope))
    }

    /// Runs the simulation with these faults and another planner.
    pub fn run_with(&self, options: &Options, script: Vec<Scheduled>, decide: &Decide<'_>) -> Outcome {
        self.run_reporting(options, script, decide, &conditions::claims)
    }

    /// Runs the simulation with other conditions too.
    pub fn run_reporting(
        &self,
        options: &Options,
        script: Vec<Scheduled>,
        decide: &Decide<'_>,
        claims: &Claims<'_>,
    ) -> Outcome {
        Run::new(&self.planner, options, script, decide, claims).run()
    }
}
