//! The trust matrix of a snapshot: every edge, whether it holds, until when, and how that is known.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::catalog::Purpose;
use crate::plan::{Draft, Planner, every_edge, states};
use crate::snapshot::{Slot, Snapshot};
use crate::trust::{Broken, CertificateFacts, CertificateId, EdgeState, Evidence, Version};
use crate::wiring::presented_slot;

/// An edge with one certificate of its row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// What people call it.
    pub edge: String,
    /// Who verifies.
    pub verifier: &'static str,
    /// What the verifier reads.
    pub trust: Slot,
    /// Who presents.
    pub presenter: &'static str,
    /// What the presenter reads.
    pub presented: Slot,
    /// The row of what is presented.
    pub row: &'static str,
    /// What for.
    pub purpose: Purpose,
    /// Whether it holds.
    pub state: State,
    /// How it is known what both sides hold: the weakest that any of it rests on.
    pub evidence: Evidence,
    /// How many versions of the trust are in use, and how many of what is presented.
    pub versions: (usize, usize),
}

/// Whether an edge holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum State {
    /// With every version in use.
    Holds {
        /// The last second of the path that ends first, each pair taking its best path.
        until: Timestamp,
        /// The certificate on that path that ends then.
        limited_by: Option<CertificateId>,
    },
    /// Somebody refuses somebody.
    Broken(Broken),
    /// There is nothing to trust or nothing to present.
    Nothing,
    /// One side of it could not be looked at.
    Unknown {
        /// Which.
        object: String,
        /// Why.
        why: String,
    },
}

/// Every edge of the cluster, in the order of the catalog.
pub fn verify(planner: &Planner<'_>, snapshot: &Snapshot) -> Vec<Checked> {
    let wiring = planner.wiring();
    let draft = Draft::new(snapshot);
    let mut checked = Vec::new();
    for touched in every_edge(wiring, &draft) {
        let edge = &wiring.edges()[touched.edge];
        let Some(row) = wiring.row(edge.row).map(|wired| wired.row) else { continue };
        let presented = presented_slot(row, edge.presents, &touched.instance);
        for state in states(wiring, &draft, std::slice::from_ref(&touched)) {
            checked.push(Checked {
                edge: state.name.to_string(),
                verifier: edge.edge.verifier.name,
                trust: edge.trust.clone(),
                presenter: edge.edge.presenter.name,
                presented: presented.clone(),
                row: row.id,
                purpose: edge.edge.purpose,
                evidence: weakest(&state),
                versions: (state.bundles.len(), state.leaves.len()),
                state: unknown(&draft, &presented, &edge.trust).unwrap_or_else(|| judge(&state, snapshot.taken_at)),
            });
        }
    }
    checked
}

fn unknown(draft: &Draft<'_>, presented: &Slot, trust: &Slot) -> Option<State> {
    let sides = [(presented, draft.secret(presented).unknown()), (trust, draft.bundle(trust).unknown())];
    let unknown = |(slot, why): (&Slot, Option<&str>)| {
        Some(State::Unknown { object: slot.object_text().to_owned(), why: why?.to_owned() })
    };
    sides.into_iter().find_map(unknown)
}

fn judge(state: &EdgeState, now: Timestamp) -> State {
    if state.is_idle() {
        return State::Nothing;
    }
    match state.holds(now) {
        Err(broken) => State::Broken(broken),
        Ok(_) => {
            let until = holds_until(state, now);
            State::Holds { until, limited_by: limit(state, until) }
        }
    }
}

/// What ends then and was still in use: a signer rather than what it signed, which ends with it.
fn limit(state: &EdgeState, until: Timestamp) -> Option<CertificateId> {
    let ends = |it: &&Arc<CertificateFacts>| it.validity.not_after == until;
    let in_use = |versions: &'_ [Version]| -> Vec<Arc<CertificateFacts>> {
        let versions = versions.iter().filter(|version| version.in_use.contains(until));
        versions.flat_map(|version| version.members.iter().cloned()).collect()
    };
    let (leaves, bundles) = (in_use(&state.leaves), in_use(&state.bundles));
    let leaf = leaves.iter().find(ends);
    let signed = |it: &&Arc<CertificateFacts>| leaf.is_some_and(|leaf| leaf.signed_by.as_ref() == Some(&it.subject));
    let signer = bundles.iter().filter(ends).find(signed);
    signer.or(leaf).or_else(|| bundles.iter().find(ends)).map(|it| it.id.clone())
}

/// The last second before it breaks by itself. A version that goes out of use before it ends limits nothing.
fn holds_until(state: &EdgeState, now: Timestamp) -> Timestamp {
    let mut instants: Vec<Timestamp> = state.instants().filter(|at| now < *at).collect();
    instants.sort_unstable();
    let broken = instants.into_iter().find(|at| state.holds(*at).is_err());
    broken.map_or(Timestamp::MAX, |at| at.checked_sub(SignedDuration::from_secs(1)).unwrap_or(at))
}

fn weakest(state: &EdgeState) -> Evidence {
    let versions = state.bundles.iter().chain(&state.leaves);
    versions.map(|version| version.evidence).max().unwrap_or(Evidence::Unknown)
}
