//! The rules for bundles: a new signer is added before it is used, an old one is removed after its last use.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::clocks::shifted;
use crate::snapshot::{BundleState, Observed};
use crate::trust::{CertificateId, Known};

/// What a bundle is computed from.
#[derive(Debug, Clone, Copy)]
pub struct BundleInputs<'a> {
    /// The certificates of the current signers, and of bundles that are an input of this bundle.
    pub current: &'a [CertificateId],
    /// The signers of leaves that are still valid, from any source. A deleted bundle is rebuilt from them.
    pub needed: &'a [CertificateId],
    /// The certificates that another writer added and has removed again.
    pub withdrawn: &'a BTreeSet<CertificateId>,
    /// For a relayed bundle: the certificates that have reached all readers, and when the relay got each of them.
    pub reached: &'a BTreeMap<CertificateId, Timestamp>,
    /// All known certificates.
    pub certificates: &'a dyn Known,
    /// The current time.
    pub now: Timestamp,
    /// A certificate that has expired at this instant is removed. Earlier than `now` if another clock may be right.
    pub trusted_until: Timestamp,
    /// How long an expired certificate stays in the bundle, because clocks differ.
    pub allowance: SignedDuration,
}

/// A bundle that is to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BundleChange {
    /// The certificates, as a set. They are written sorted by their bytes, so that a different order causes no rollout.
    pub members: BTreeSet<CertificateId>,
    /// Why the bundle is written.
    pub reason: BundleReason,
}

/// Why a bundle is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum BundleReason {
    /// The ConfigMap or its key does not exist.
    Absent,
    /// The content is not a bundle.
    Unreadable {
        /// The error.
        why: String,
    },
    /// The bundle exists, but is empty.
    Empty,
    /// A part of the bundle cannot be read. The readable part stays.
    Damaged {
        /// The unreadable parts.
        damage: Vec<String>,
    },
    /// A signer was added, or an expired one removed.
    SignerUpdate {
        /// The added certificates.
        added: Vec<CertificateId>,
        /// The removed certificates.
        removed: Vec<CertificateId>,
    },
    /// The certificates are right, but duplicated or in another order.
    NotCanonical,
    /// The certificates are right, but no annotation records since when they are in the bundle.
    Unremembered,
    /// The certificates are right, but a wrong clock recorded since when they are in the bundle. They count as new.
    DatedAhead,
    /// The certificates are right, but the annotation does not record which of them have reached all readers.
    Reached,
}

/// Returns the write that a bundle needs; none if it stays as it is.
pub fn decide_bundle(found: &Observed<BundleState>, inputs: &BundleInputs<'_>) -> Option<BundleChange> {
    let is_alive = |id: &&CertificateId| {
        inputs.certificates.get(id).is_some_and(|it| !it.validity.is_long_over(inputs.trusted_until, inputs.allowance))
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
    let latest = shifted(inputs.now, inputs.allowance);
    let is_dated_ahead = |id: &CertificateId| state.published.get(id).is_some_and(|written| latest < written.at);
    // In nearly every pass the bundle is right, and no sets need to be compared.
    let is_as_written = |id: &CertificateId| {
        let written = state.published.get(id);
        written.is_some_and(|written| written.reached.as_ref() == inputs.reached.get(id))
    };
    let is_in_place = |id: &CertificateId| is_as_written(id) && is_alive(&id) && !is_dated_ahead(id);
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
    } else if members.iter().any(is_dated_ahead) {
        BundleReason::DatedAhead
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
            BundleReason::NotCanonical => f.write_str("its certificates are duplicated or not sorted"),
            BundleReason::Unremembered => f.write_str("no annotation records when its certificates were added"),
            BundleReason::DatedAhead => f.write_str("the annotation has a time in the future"),
            BundleReason::Reached => {
                f.write_str("the annotation does not record which of its certificates have reached all readers")
            }
        }
    }
}
