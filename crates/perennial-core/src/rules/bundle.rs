//! The rules for bundles: trust is added first and removed last.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Observed;
use crate::snapshot::Slot;
use crate::trust::{CertificateId, Known};

/// A bundle as it was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleState {
    /// Every certificate in it that can be read, in order.
    pub members: Vec<CertificateId>,
    /// What could not be read, each with its reason.
    pub damage: Vec<String>,
    /// Whether it is written as we would write it: each certificate once, in the order of their bytes.
    pub is_canonical: bool,
    /// Since when each is in it, and from where it came, as far as that was written down.
    pub published: BTreeMap<CertificateId, Published>,
}

/// How a certificate came into a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// When.
    pub at: Timestamp,
    /// The bundle of somebody else that it came from: where it goes, this one follows.
    pub from: Option<Slot>,
    /// Whether nobody can hold the bundle without it: there was none before, nor anything that it could have verified.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// Since when everybody who hands it on has it, once that is so long ago that whoever they hand it to has it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Timestamp>,
    /// How many seconds whoever reads it is given, where somebody sees to it that they take less than usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hurry: Option<u32>,
}

/// What a bundle is made from.
#[derive(Debug, Clone, Copy)]
pub struct BundleInputs<'a> {
    /// The certificates of the current signers, and of bundles that flow into it.
    pub current: &'a [CertificateId],
    /// Signers that live leaves still need, wherever they are known from: what a deleted bundle is rebuilt from.
    pub needed: &'a [CertificateId],
    /// What somebody else had put there and has taken back.
    pub withdrawn: &'a BTreeSet<CertificateId>,
    /// Of a bundle that is handed on: what has reached everybody, and since when those who hand it on have it.
    pub reached: &'a BTreeMap<CertificateId, Timestamp>,
    /// All certificates.
    pub certificates: &'a dyn Known,
    /// The instant.
    pub now: Timestamp,
    /// How long a certificate stays in it after its end: clocks differ.
    pub allowance: SignedDuration,
}

/// A bundle that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleChange {
    /// What is to be in it, as a set: it is written in the order of the bytes, so that no rollout is about order.
    pub members: BTreeSet<CertificateId>,
    /// Why.
    pub reason: BundleReason,
}

/// Why a bundle is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BundleReason {
    /// There is none.
    Absent,
    /// What is there is no bundle at all.
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
    /// It is there, and empty.
    Empty,
    /// Some of it cannot be read; the rest stays.
    Damaged {
        /// What was lost.
        damage: Vec<String>,
    },
    /// A signer came, or an expired one went.
    SignerUpdate {
        /// New in it.
        added: Vec<CertificateId>,
        /// No longer in it.
        removed: Vec<CertificateId>,
    },
    /// The same certificates, written differently.
    NotCanonical,
    /// The same certificates, but nobody wrote down since when they are there.
    Unremembered,
    /// The same certificates, but others of them have reached everybody than is written down.
    Reached,
}

/// What is to be done about a bundle; none leaves it as it is.
pub fn decide_bundle(found: &Observed<BundleState>, inputs: &BundleInputs<'_>) -> Option<BundleChange> {
    let is_alive = |id: &&CertificateId| {
        inputs.certificates.get(id).is_some_and(|it| !it.validity.is_long_over(inputs.now, inputs.allowance))
    };
    let rebuilt = || inputs.current.iter().chain(inputs.needed).filter(is_alive).cloned().collect();
    let state = match found {
        Observed::Absent => return Some(BundleChange { members: rebuilt(), reason: BundleReason::Absent }),
        Observed::Unreadable { why } => {
            let reason = BundleReason::Unreadable { why: why.clone() };
            return Some(BundleChange { members: rebuilt(), reason });
        }
        Observed::Unknown { .. } => return None,
        Observed::Present(state) => state,
    };
    // Nearly always everything is in place, and nothing needs to be compared as sets.
    let is_as_written = |id: &CertificateId| {
        let written = state.published.get(id);
        written.is_some_and(|written| written.reached.as_ref() == inputs.reached.get(id))
    };
    let is_in_place = |id: &CertificateId| is_as_written(id) && is_alive(&id);
    if state.damage.is_empty()
        && state.is_canonical
        && !state.members.is_empty()
        && inputs.withdrawn.is_empty()
        && state.members.iter().all(is_in_place)
        && inputs.current.iter().all(|id| state.members.contains(id) || !is_alive(&id))
    {
        return None;
    }
    let held: BTreeSet<CertificateId> = state.members.iter().cloned().collect();
    let kept = held.difference(inputs.withdrawn);
    let lost = if state.damage.is_empty() { &[] } else { inputs.needed };
    let members: BTreeSet<CertificateId> =
        inputs.current.iter().chain(kept).chain(lost).filter(is_alive).cloned().collect();
    let reason = if !state.damage.is_empty() {
        BundleReason::Damaged { damage: state.damage.clone() }
    } else if held.is_empty() && !members.is_empty() {
        BundleReason::Empty
    } else if members != held {
        let difference = |one: &BTreeSet<_>, other: &BTreeSet<_>| one.difference(other).cloned().collect();
        BundleReason::SignerUpdate { added: difference(&members, &held), removed: difference(&held, &members) }
    } else if !state.is_canonical {
        BundleReason::NotCanonical
    } else if members.iter().any(|id| !state.published.contains_key(id)) {
        BundleReason::Unremembered
    } else if !members.iter().all(is_as_written) {
        BundleReason::Reached
    } else {
        return None;
    };
    Some(BundleChange { members, reason })
}

impl fmt::Display for BundleReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |ids: &[CertificateId]| ids.iter().map(CertificateId::to_string).collect::<Vec<_>>().join(", ");
        match self {
            BundleReason::Absent => f.write_str("configmap doesn't exist"),
            BundleReason::Unreadable { why } => write!(f, "unusable: {why}"),
            BundleReason::Empty => f.write_str("configmap is empty"),
            BundleReason::Damaged { damage } => write!(f, "damaged: {}", damage.join("; ")),
            BundleReason::SignerUpdate { added, removed } => {
                write!(f, "signer update: added [{}], removed [{}]", list(added), list(removed))
            }
            BundleReason::NotCanonical => f.write_str("duplicates or order"),
            BundleReason::Unremembered => f.write_str("nothing says since when its certificates are there"),
            BundleReason::Reached => f.write_str("nothing says which of its certificates have reached everybody"),
        }
    }
}
