//! Whether a write is safe, and if not, what it waits for.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::draft::Draft;
use super::step::{Action, Risk, Step};
use super::versions::after;
use crate::catalog::{Delivery, Instance, Row, Span};
use crate::rules::Waiting;
use crate::snapshot::Slot;
use crate::spec::Host;
use crate::trust::{EdgeState, Evidence, InUse, Refusal, Version, Write, prove};
use crate::wiring::{Presents, Wiring, copy_slot, instances};

/// The time in which everything is looked at at least once.
const RESYNC: Span = Span::minutes(10);

/// An edge with the certificate of one instance, as a write touches it.
#[derive(Debug, Clone)]
pub(crate) struct Touched {
    pub(crate) edge: usize,
    pub(crate) instance: Instance,
    pub(crate) hosts: Arc<[Host]>,
}

/// What came of trying a write.
pub(super) enum Outcome {
    /// It is safe, and done in the draft. What is broken all the same.
    Safe(Vec<Risk>),
    /// It must wait, and was not done. What breaks before waiting helps.
    Waits(Waiting, Vec<Risk>),
}

/// The edges on which a certificate of a row is presented, from these of its slots.
pub(crate) fn edges_of_leaf(
    wiring: &Wiring<'_>,
    draft: &Draft<'_>,
    row: &Row,
    instance: &Instance,
    presented: &[Presents],
) -> Vec<Touched> {
    let Some(wired) = wiring.row(row.id) else { return Vec::new() };
    let hosts: Arc<[Host]> =
        row.resolve_hosts(&draft.snapshot().cluster, instance).map(Arc::from).unwrap_or_else(|_| Arc::from([]));
    let consented = |edge: &usize| draft.snapshot().settings.consent.contains(wiring.edges()[*edge].name.as_ref());
    let edges = wired.edges.iter().copied().filter(|edge| presented.contains(&wiring.edges()[*edge].presents));
    edges
        .filter(|edge| !consented(edge))
        .map(|edge| Touched { edge, instance: instance.clone(), hosts: hosts.clone() })
        .collect()
}

/// The edges whose verifier reads a bundle here.
pub(crate) fn edges_of_bundle(wiring: &Wiring<'_>, draft: &Draft<'_>, slot: &Slot) -> Vec<Touched> {
    let mut touched = Vec::new();
    for edge in wiring.readers(slot) {
        let edge = &wiring.edges()[*edge];
        let Some(row) = wiring.row(edge.row).map(|wired| wired.row) else { continue };
        for instance in instances(row, draft.snapshot()) {
            let of_row = edges_of_leaf(wiring, draft, row, &instance, &[edge.presents]);
            touched.extend(of_row.into_iter().filter(|touched| wiring.edges()[touched.edge].trust == *slot));
        }
    }
    touched
}

pub(crate) fn states(wiring: &Wiring<'_>, draft: &Draft<'_>, touched: &[Touched]) -> Vec<EdgeState> {
    let state = |touched: &Touched| {
        let edge = &wiring.edges()[touched.edge];
        let row = wiring.row(edge.row)?.row;
        Some(draft.edge_state(edge, row, &touched.instance, &touched.hosts))
    };
    touched.iter().filter_map(state).collect()
}

/// Makes the write in the draft if nobody stops trusting anybody by it.
///
/// Where `flow` is given, the write is looked at together with the copies that follow from it.
pub(super) fn attempt(
    wiring: &Wiring<'_>,
    draft: &mut Draft<'_>,
    step: &Step,
    touched: &[Touched],
    flow: &[Step],
) -> Outcome {
    let now = draft.snapshot().taken_at;
    let before = states(wiring, draft, touched);
    let undo = draft.apply(step);
    let copies: Vec<_> = flow.iter().map(|copy| draft.apply(copy)).collect();
    let after_it = states(wiring, draft, touched);
    copies.into_iter().rev().for_each(|copy| draft.undo(copy));
    let longest = longest_lag(wiring, draft, touched);
    let proved = |at: Timestamp| {
        let horizon = after(at, longest);
        prove(&Write { before: &before, after: &after_it, now: at, horizon })
    };
    match proved(now) {
        Ok(()) => {
            let broken = |edge: &EdgeState| {
                let broken = edge.holds(now).err()?;
                Some(Risk { edge: edge.name.to_string(), at: now, broken })
            };
            // What was never there does not count as broken.
            let existed = before.iter().zip(&after_it).filter(|(before, _)| !before.leaves.is_empty());
            Outcome::Safe(existed.filter_map(|(_, after)| broken(after)).collect())
        }
        Err(refusal) => {
            draft.undo(undo);
            let until = ends(&before, now).into_iter().find(|at| proved(*at).is_ok());
            let risks = breaks_before(&before, now, until);
            Outcome::Waits(waiting(&before, refusal, until), risks)
        }
    }
}

fn longest_lag(wiring: &Wiring<'_>, draft: &Draft<'_>, touched: &[Touched]) -> SignedDuration {
    let of = |delivery: Delivery| match delivery {
        Delivery::Reloaded { within } | Delivery::Relayed { within } => draft.lag(within),
        Delivery::Revisioned | Delivery::Never | Delivery::Indirect => SignedDuration::ZERO,
    };
    let edges = touched.iter().map(|touched| wiring.edges()[touched.edge].edge);
    let longest = edges.flat_map(|edge| [of(edge.verifier.delivery), of(edge.presenter.delivery)]).max();
    longest.unwrap_or(SignedDuration::ZERO) + RESYNC.scaled(draft.snapshot().settings.time_scale)
}

/// The instants at which time alone may make a write safe: the end of a version's use, or of a certificate.
fn ends(before: &[EdgeState], now: Timestamp) -> Vec<Timestamp> {
    let mut ends: Vec<Timestamp> = before.iter().flat_map(EdgeState::instants).filter(|at| now < *at).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// What breaks by itself before the write becomes safe, or as it does.
fn breaks_before(before: &[EdgeState], now: Timestamp, until: Option<Timestamp>) -> Vec<Risk> {
    let limit = until.unwrap_or(Timestamp::MAX);
    let first_break = |edge: &EdgeState| {
        edge.holds(now).ok()?;
        let mut instants: Vec<Timestamp> = edge.instants().filter(|at| now < *at && *at <= limit).collect();
        instants.sort_unstable();
        let (at, broken) = instants.into_iter().find_map(|at| edge.holds(at).err().map(|broken| (at, broken)))?;
        Some(Risk { edge: edge.name.to_string(), at, broken })
    };
    before.iter().filter_map(first_break).collect()
}

fn waiting(before: &[EdgeState], refusal: Box<Refusal>, until: Option<Timestamp>) -> Waiting {
    let lacks = |version: &&Version| {
        version.in_use == InUse::Always && matches!(version.evidence, Evidence::Observed | Evidence::Unknown)
    };
    let of_edge = before.iter().find(|edge| edge.name == refusal.edge);
    let refuser = of_edge.and_then(|edge| edge.bundles.iter().find(|version| version.name == refusal.broken.bundle));
    match refuser.filter(lacks) {
        Some(version) => Waiting::Rollout { lacking: vec![version.name.clone()], until, refusal },
        None => Waiting::Trust { until, refusal },
    }
}

/// The copies that follow a certificate by themselves, as writes.
pub(super) fn flow(wiring: &Wiring<'_>, row: &Row, instance: &Instance, home: &Slot) -> Vec<Step> {
    let copies = wiring.flows(row).into_iter().filter_map(|presents| match presents {
        Presents::Home => None,
        Presents::Copy(number) => Some(copy_slot(row, &row.copies[number], instance)),
    });
    let step = |to: Slot| Step {
        object: to.object_text().to_owned(),
        action: Action::CopySecret(vec![super::CopyItem { from: Some(home.clone()), to }]),
        restarts: Default::default(),
        risks: Vec::new(),
    };
    copies.map(step).collect()
}
