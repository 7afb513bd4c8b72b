//! The proof before a write: nothing that holds without it fails with it.

use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;

use super::{Broken, Certificates, EdgeState};

/// A write, as far as trust sees it: the edges it touches, as they are and as they would be.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// All certificates of either side.
    pub certificates: &'a Certificates,
    /// The edges without the write.
    pub before: &'a [EdgeState],
    /// The same edges, in the same order, with the write.
    pub after: &'a [EdgeState],
    /// The instant of the write.
    pub now: Timestamp,
    /// Until when its consequences are looked at: now, the longest lag of the edges it touches, and one resync.
    pub horizon: Timestamp,
}

/// Why a write must not happen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The edge that it would break.
    pub edge: String,
    /// The first instant at which that would show.
    pub at: Timestamp,
    /// The versions that would not fit, and why.
    pub broken: Broken,
}

/// Refuses a write if some edge holds at some instant up to the horizon without it, and not with it.
///
/// An edge that is broken anyway never blocks what may be its repair.
pub fn prove(write: &Write<'_>) -> Result<(), Box<Refusal>> {
    for (before, after) in write.before.iter().zip(write.after) {
        for at in instants(write, before, after) {
            let Err(broken) = after.holds(write.certificates, at) else { continue };
            if before.holds(write.certificates, at).is_ok() {
                return Err(Box::new(Refusal { edge: after.name.clone(), at, broken }));
            }
        }
    }
    Ok(())
}

/// Between two of these nothing changes, so looking at each of them is looking at all time.
fn instants(write: &Write<'_>, before: &EdgeState, after: &EdgeState) -> BTreeSet<Timestamp> {
    let changes = [before, after].into_iter().flat_map(|edge| edge.instants(write.certificates));
    let within = changes.filter(|at| write.now < *at && *at <= write.horizon);
    [write.now].into_iter().chain(within).collect()
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} would break at {}: {}", self.edge, self.at, self.broken)
    }
}
