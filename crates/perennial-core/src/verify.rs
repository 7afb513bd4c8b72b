//! The trust matrix of a snapshot: whether each edge holds, until when, and on which evidence.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::catalog::Purpose;
use crate::catalog::index::presented_slot;
use crate::plan::{Draft, Planner, every_edge, states};
use crate::snapshot::{Slot, Snapshot};
use crate::trust::{Broken, CertificateFacts, CertificateId, EdgeState, Evidence, Version};

/// An edge, checked for one certificate of its row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Checked {
    /// The name of the edge.
    pub edge: String,
    /// The verifier.
    pub verifier: &'static str,
    /// The place of the bundle that the verifier reads.
    pub trust: Slot,
    /// The presenter.
    pub presenter: &'static str,
    /// The place of the certificate that the presenter reads.
    pub presented: Slot,
    /// The row of the presented certificate.
    pub row: &'static str,
    /// The purpose of the presented certificate.
    pub purpose: Purpose,
    /// Whether the edge holds.
    pub state: State,
    /// The weakest evidence about the versions that both sides hold.
    pub evidence: Evidence,
    /// The number of bundle versions and of certificate versions in use.
    pub versions: (usize, usize),
}

/// Whether an edge holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum State {
    /// Every version of the bundle in use accepts every version of the certificate in use.
    Holds {
        /// The last second at which all pairs of versions have a valid path.
        until: Timestamp,
        /// The certificate that expires then.
        limited_by: Option<CertificateId>,
    },
    /// At least one version of the bundle rejects a version of the certificate.
    Broken(Broken),
    /// The bundle or the certificate does not exist.
    Nothing,
    /// The bundle or the certificate could not be read.
    Unknown {
        /// The object that could not be read.
        object: String,
        /// The error.
        why: String,
    },
}

/// Returns every edge of the cluster, in the order of the catalog.
pub fn verify(planner: &Planner<'_>, snapshot: &Snapshot) -> Vec<Checked> {
    let wiring = planner.wiring();
    let draft = Draft::to_report(snapshot);
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

/// Returns the certificate that expires then and is still in use: the signer, if signer and leaf expire together.
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

/// Returns the last second before the edge breaks by itself. A version that goes out of use before it expires sets no limit.
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
