//! The proof before a write: every edge that holds without the write also holds with it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::{Broken, EdgeState, Version};

/// A write: the edges that it touches, before and after.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The edges without the write.
    pub before: &'a [EdgeState],
    /// The same edges, in the same order, with the write.
    pub after: &'a [EdgeState],
    /// The time of the write.
    pub now: Timestamp,
    /// The last instant that is checked: now, plus the longest lag of the touched edges, plus one resync.
    pub horizon: Timestamp,
}

/// Why a write is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The edge that the write would break.
    pub edge: Arc<str>,
    /// The first instant at which the edge would be broken.
    pub at: Timestamp,
    /// The versions that do not fit, and why.
    pub broken: Broken,
}

/// Refuses a write that breaks an edge at some instant up to the horizon, if the edge holds without the write.
///
/// The proof checks each pair of versions: a bundle in use and a certificate in use. So an edge whose pairs all hold
/// is never broken, and on a partly broken edge the pairs that still hold are kept. A pair that is broken without the
/// write never refuses the write, which may be its repair.
pub fn prove(write: &Write<'_>) -> Result<(), Box<Refusal>> {
    for (before, after) in write.before.iter().zip(write.after) {
        let pairs = changed_pairs(before, after, write.now);
        if pairs.is_empty() {
            continue;
        }
        for at in instants(write, before, after) {
            for pair in &pairs {
                let in_use = pair.new.iter().chain(&pair.old).all(|version| version.in_use.contains(at));
                if !in_use || before.fits(pair.old[0], pair.old[1], at).is_err() {
                    continue;
                }
                if let Err(broken) = after.fits(pair.new[0], pair.new[1], at) {
                    return Err(Box::new(Refusal { edge: after.name.clone(), at, broken }));
                }
            }
        }
    }
    Ok(())
}

/// A bundle and a leaf after the write, and the versions that they replace.
struct Pair<'a> {
    old: [&'a Version; 2],
    new: [&'a Version; 2],
}

/// Returns the pairs that the write may break.
fn changed_pairs<'a>(before: &'a EdgeState, after: &'a EdgeState, now: Timestamp) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    for (number, bundle) in after.bundles.iter().enumerate() {
        let Some(old_bundle) = predecessor(&before.bundles, &after.bundles, number) else { continue };
        for (number, leaf) in after.leaves.iter().enumerate() {
            let Some(old_leaf) = predecessor(&before.leaves, &after.leaves, number) else { continue };
            // A larger bundle accepts no less.
            if !(old_leaf.is_same(leaf) && bundle.has_all_of(old_bundle, now)) {
                pairs.push(Pair { old: [old_bundle, old_leaf], new: [bundle, leaf] });
            }
        }
    }
    pairs
}

/// Returns the version before: the newest replaces the newest, all others stay.
fn predecessor<'a>(before: &'a [Version], after: &[Version], number: usize) -> Option<&'a Version> {
    let newest = before.last();
    if number + 1 == after.len() {
        return newest;
    }
    before.iter().find(|version| version.is_same(&after[number])).or(newest)
}

/// Between two of these instants nothing changes, so checking each of them checks all time.
fn instants(write: &Write<'_>, before: &EdgeState, after: &EdgeState) -> BTreeSet<Timestamp> {
    let within = before.instants().chain(after.instants()).filter(|at| write.now < *at && *at <= write.horizon);
    [write.now].into_iter().chain(within).collect()
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let edge = self.edge.replacen(" accepts ", " would reject ", 1);
        write!(f, "{edge} from {} on: {}", self.at, self.broken)
    }
}
