//! What a simulation tells.

use std::collections::BTreeMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::Scheduled;

/// What happened in a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The seed that repeats it.
    pub seed: u64,
    /// The first instant.
    pub from: Timestamp,
    /// The last instant.
    pub to: Timestamp,
    /// How often the planner was asked.
    pub looks: u64,
    /// How many objects were written.
    pub writes: u64,
    /// How many restarts of static pods that caused.
    pub restarts: u64,
    /// How often each row was issued.
    pub issued: BTreeMap<String, u64>,
    /// What went wrong from outside.
    pub faults: Vec<Scheduled>,
    /// What happened, in the order of time.
    pub story: Vec<Entry>,
    /// Processes that did not accept each other, and until when.
    pub outages: Vec<Outage>,
    /// For each edge, the least time that a certificate had left when it was replaced.
    pub closest: BTreeMap<String, ClosestCall>,
    /// What must never happen, and did.
    pub violations: Vec<Violation>,
}

/// Something worth telling.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// When.
    pub at: Timestamp,
    /// What kind of thing.
    pub kind: Happening,
    /// What.
    pub text: String,
}

/// A kind of thing in a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Happening {
    /// A signer was issued.
    Signer,
    /// A certificate was issued.
    Certificate,
    /// Something waited, and is done.
    Waited,
    /// Trouble from outside.
    Fault,
    /// A risk that the planner announced.
    Risk,
    /// Processes stopped or started to accept each other.
    Trust,
    /// Something that nobody here can renew has ended.
    Ended,
    /// What must never happen.
    Violation,
}

/// Processes that did not accept each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Outage {
    /// The edge.
    pub edge: String,
    /// Since when.
    pub from: Timestamp,
    /// Until when; none where it lasts.
    pub to: Option<Timestamp>,
    /// Who refused what.
    pub what: String,
}

/// The least time that was left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClosestCall {
    /// When.
    pub at: Timestamp,
    /// How much was left then, in seconds.
    pub left: i64,
}

/// What must never happen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Violation {
    /// When it was done, or noticed.
    pub at: Timestamp,
    /// The edge; or the object that is issued too often.
    pub edge: String,
    /// The write that did it; for what time did, why that is no excuse.
    pub by: String,
    /// Who refuses whom, and since when.
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
            closest: BTreeMap::new(),
            violations: Vec::new(),
        }
    }

    pub(super) fn tell(&mut self, at: Timestamp, kind: Happening, text: impl Into<String>) {
        self.story.push(Entry { at, kind, text: text.into() });
    }
}

impl ClosestCall {
    /// How much was left.
    pub fn left(&self) -> SignedDuration {
        SignedDuration::from_secs(self.left)
    }
}

impl Violation {
    /// Without the time at which it was done.
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
