//! The results of a simulation.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Scheduled;

/// The result of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The seed, which repeats the run.
    pub seed: u64,
    /// The start time.
    pub from: Timestamp,
    /// The end time.
    pub to: Timestamp,
    /// The number of plans.
    pub looks: u64,
    /// The number of writes.
    pub writes: u64,
    /// The number of restarts of static pods because of the writes.
    pub restarts: u64,
    /// The number of issues of each row.
    pub issued: BTreeMap<String, u64>,
    /// The faults.
    pub faults: Vec<Scheduled>,
    /// The events, in the order of time.
    pub story: Vec<Entry>,
    /// The outages: processes that did not accept each other.
    pub outages: Vec<Outage>,
    /// For each edge, the shortest remaining validity of a certificate when it was replaced.
    pub shortest_validity: BTreeMap<String, RemainingValidity>,
    /// The violations of the rules of the simulation.
    pub violations: Vec<Violation>,
}

/// An event of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The time.
    pub at: Timestamp,
    /// The kind of the event.
    pub kind: Happening,
    /// The description.
    pub text: String,
}

/// The kind of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Happening {
    /// A signer was issued.
    Signer,
    /// A leaf was issued.
    Certificate,
    /// A wait ended.
    Waited,
    /// A fault occurred.
    Fault,
    /// The planner reported a risk.
    Risk,
    /// Processes stopped or started accepting each other.
    Trust,
    /// A certificate that cannot be renewed has expired.
    Ended,
    /// A rule of the simulation was violated.
    Violation,
}

/// A time in which processes did not accept each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// The edge.
    pub edge: String,
    /// The start.
    pub from: Timestamp,
    /// The end; none if it lasts to the end of the run.
    pub to: Option<Timestamp>,
    /// The verifier and the certificate that it rejected.
    pub what: String,
}

/// The shortest remaining validity of an edge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemainingValidity {
    /// The time.
    pub at: Timestamp,
    /// The remaining validity in seconds.
    pub left: i64,
}

/// A violation of a rule of the simulation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// When it happened or was noticed.
    pub at: Timestamp,
    /// The edge, or the object that is issued too often.
    pub edge: String,
    /// The write that caused it; if time caused it, why that is a violation.
    pub by: String,
    /// The verifier and the certificate that it rejects, and since when.
    pub what: String,
}

impl Outcome {
    pub(super) fn new(seed: u64, from: Timestamp, faults: Vec<Scheduled>) -> Outcome {
        Outcome {
            seed,
            from,
            to: from,
            looks: 0,
            writes: 0,
            restarts: 0,
            issued: BTreeMap::new(),
            faults,
            story: Vec::new(),
            outages: Vec::new(),
            shortest_validity: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn record(&mut self, at: Timestamp, kind: Happening, text: impl Into<String>) {
        self.story.push(Entry { at, kind, text: text.into() });
    }
}

impl RemainingValidity {
    /// Returns the remaining validity.
    pub fn left(&self) -> SignedDuration {
        SignedDuration::from_secs(self.left)
    }
}

impl Violation {
    /// Returns the text without the time.
    pub(super) fn sentence(&self) -> String {
        format!("{}: {} ({})", self.edge, self.what, self.by)
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.sentence())
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}  {}", self.at, self.text)
    }
}
