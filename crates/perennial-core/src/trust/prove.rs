//! The proof before a write: nothing that holds without it fails with it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::{Broken, EdgeState, Version};

/// A write, as far as trust sees it: the edges it touches, as they are and as they would be.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Refusal {
    /// The edge that it would break.
    pub edge: Arc<str>,
    /// The first instant at which that would show.
    pub at: Timestamp,
    /// The versions that would not fit, and why.
    pub broken: Broken,
}

/// Refuses a write if somebody who accepts somebody at some instant up to the horizon without it would not with it.
///
/// This looks at each pair of versions: who holds the one and is presented the other. An edge all of whose pairs hold
/// is therefore never broken; and on an edge that is partly broken already, the pairs that still hold are kept too. A
/// pair that is broken anyway never blocks what may be its repair.
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

/// A bundle and a leaf that meet after the write, and those in whose place they stand.
struct Pair<'a> {
    old: [&'a Version; 2],
    new: [&'a Version; 2],
}

/// The pairs that the write may make worse.
fn changed_pairs<'a>(before: &'a EdgeState, after: &'a EdgeState, now: Timestamp) -> Vec<Pair<'a>> {
    let mut pairs = Vec::new();
    for (number, bundle) in after.bundles.iter().enumerate() {
        let Some(old_bundle) = predecessor(&before.bundles, &after.bundles, number) else { continue };
        for (number, leaf) in after.leaves.iter().enumerate() {
            let Some(old_leaf) = predecessor(&before.leaves, &after.leaves, number) else { continue };
            // Whoever trusts more accepts no less.
            if !(old_leaf.is_same(leaf) && bundle.has_all_of(old_bundle, now)) {
                pairs.push(Pair { old: [old_bundle, old_leaf], new: [bundle, leaf] });
            }
        }
    }
    pairs
}

/// What the version was before: the newest one stands in the place of the newest, and the others stay what they are.
fn predecessor<'a>(before: &'a [Version], after: &[Version], number: usize) -> Option<&'a Version> {
    let newest = before.last();
    if number + 1 == after.len() {
        return newest;
    }
    before.iter().find(|version| version.is_same(&after[number])).or(newest)
}

/// Between two of these nothing changes, so looking at each of them is looking at all time.
fn instants(write: &Write<'_>, before: &EdgeState, after: &EdgeState) -> BTreeSet<Timestamp> {
    let within = before.instants().chain(after.instants()).filter(|at| write.now < *at && *at <= write.horizon);
    [write.now].into_iter().chain(within).collect()
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} would break at {}: {}", self.edge, self.at, self.broken)
    }
}
