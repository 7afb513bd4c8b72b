//! Whether a write is safe, and if not, what it waits for.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::draft::Draft;
use super::step::{Action, Risk, Step};
use super::versions::after;
use crate::catalog::{BundleInput, Delivery, Instance, Leaf, Row, Signer, Span};
use crate::rules::Waiting;
use crate::snapshot::Slot;
use crate::spec::Host;
use crate::trust::{CertificateFacts, EdgeState, Evidence, InUse, Known, Refusal, Version, Write, prove};
use crate::wiring::{Presents, Wiring, copy_slot, instances, presented_slot};

/// The time in which everything is looked at at least once.
const RESYNC: Span = Span::minutes(10);

/// The time that a new revision of static pods needs on all nodes, with some to spare.
pub(super) const ROLLOUT: Span = Span::minutes(120);

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

/// The edges on which a certificate of a row is presented, from these of its slots; perhaps without those that may break.
pub(crate) fn edges_of_leaf(
    wiring: &Wiring<'_>,
    draft: &Draft<'_>,
    row: &Row,
    instance: &Instance,
    presented: &[Presents],
    spare_consented: bool,
) -> Vec<Touched> {
    let Some(wired) = wiring.row(row.id) else { return Vec::new() };
    let hosts: Arc<[Host]> =
        row.resolve_hosts(&draft.snapshot().cluster, instance).map(Arc::from).unwrap_or_else(|_| Arc::from([]));
    // Of all instances of an edge, or of this one.
    let consented = |edge: &usize| {
        let (edge, consent) = (&wiring.edges()[*edge], &draft.snapshot().settings.consent);
        consent.contains(edge.name.as_ref()) || consent.contains(edge.name_of(instance).as_ref())
    };
    let edges = wired.edges.iter().copied().filter(|edge| presented.contains(&wiring.edges()[*edge].presents));
    edges
        .filter(|edge| !(spare_consented && consented(edge)))
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
            let of_row = edges_of_leaf(wiring, draft, row, &instance, &[edge.presents], true);
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

/// Whether a write may wait for ever, or something ends or is missing without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// Nothing is lost by waiting.
    None,
    /// It takes the place of a certificate that ends, or that is gone: then it waits until this instant at the latest,
    /// because whoever starts meanwhile has nothing to present.
    Replaces {
        /// The latest, where nothing is there.
        missing_until: Timestamp,
    },
}

/// Makes the write in the draft if nobody stops trusting anybody by it.
///
/// Where `flow` is given, the write is looked at together with the copies that follow from it. What takes the place of a
/// certificate that ends waits only so long: see [`Patience`].
pub(super) fn attempt(
    wiring: &Wiring<'_>,
    draft: &mut Draft<'_>,
    step: &Step,
    touched: &[Touched],
    flow: &[Step],
    urgency: Urgency,
) -> Outcome {
    let now = draft.snapshot().taken_at;
    let mut before = states(wiring, draft, touched);
    let is_missing: Vec<bool> = before.iter().map(|edge| edge.leaves.is_empty()).collect();
    if let Urgency::Replaces { .. } = urgency {
        for (touched, edge) in touched.iter().zip(&mut before).filter(|(_, edge)| edge.leaves.is_empty()) {
            edge.leaves = ghosts(wiring, draft, touched);
        }
    }
    let undo = draft.apply(step);
    let copies: Vec<_> = flow.iter().map(|copy| draft.apply(copy)).collect();
    let after_it = states(wiring, draft, touched);
    copies.into_iter().rev().for_each(|copy| draft.undo(copy));
    let longest = longest_lag(wiring, draft, touched);
    let proved = |at: Timestamp| {
        let horizon = after(at, longest);
        prove(&Write { before: &before, after: &after_it, now: at, horizon })
    };
    let risks = || {
        let broken = |edge: &EdgeState| {
            let broken = edge.holds(now).err()?;
            Some(Risk { edge: edge.name.to_string(), at: now, broken })
        };
        // What was never there does not count as broken.
        let existed = before.iter().zip(&after_it).filter(|(before, _)| !before.leaves.is_empty());
        existed.filter_map(|(_, after)| broken(after)).collect()
    };
    let Err(refusal) = proved(now) else { return Outcome::Safe(risks()) };
    let patience = match urgency {
        Urgency::None => Patience { hopeful: Timestamp::MAX, hopeless: Timestamp::MAX },
        Urgency::Replaces { missing_until } => {
            let edges = touched.iter().zip(&before).zip(is_missing);
            let of = |((touched, edge), is_missing)| {
                if is_missing {
                    Patience { hopeful: missing_until, hopeless: missing_until }
                } else {
                    Patience::of(wiring, draft, touched, edge, now)
                }
            };
            edges.map(of).fold(Patience { hopeful: Timestamp::MAX, hopeless: Timestamp::MAX }, Patience::least)
        }
    };
    let refused = Risk { edge: refusal.edge.to_string(), at: refusal.at, broken: refusal.broken.clone() };
    let Some(waiting) = wait_for(&before, *refusal, now, patience, proved) else {
        // It cannot be put off: what it breaks, now or later, goes with it.
        let mut risks: Vec<Risk> = risks();
        if !risks.iter().any(|risk| risk.edge == refused.edge) {
            risks.push(refused);
        }
        return Outcome::Safe(risks);
    };
    draft.undo(undo);
    // What breaks only long after the last reader has had its time is not yet a risk.
    let limit = waiting.until().unwrap_or(Timestamp::MAX).min(after(now, longest));
    Outcome::Waits(waiting, breaks_before(&before, now, limit))
}

/// What processes may present although its place is empty: what they were seen to hold, or else anything by an earlier
/// signer that is still trusted.
fn ghosts(wiring: &Wiring<'_>, draft: &Draft<'_>, touched: &Touched) -> Vec<Version> {
    let edge = &wiring.edges()[touched.edge];
    let Some(row) = wiring.row(edge.row).map(|wired| wired.row) else { return Vec::new() };
    let slot = presented_slot(row, edge.presents, &touched.instance);
    let held = draft.held_leaves(&slot);
    let is_class = matches!(edge.edge.leaf, Leaf::AnyBy(_));
    // Static pods are watched: what nobody was seen to hold, nobody holds.
    let is_assumed = is_class || matches!(edge.edge.presenter.delivery, Delivery::Reloaded { .. });
    let signer = match (is_class, row.signer) {
        (true, _) => row,
        (false, Signer::Row(id)) => wiring.row(id).map_or(row, |wired| wired.row),
        (false, Signer::Itself) => return held,
    };
    if !held.is_empty() || !is_assumed {
        return held;
    }
    let earlier = earlier_signers(wiring, draft, signer);
    let any = |signer: &Arc<CertificateFacts>| draft.any_leaf_by(signer, &slot, &touched.hosts);
    earlier.iter().map(any).collect()
}

/// The signers of a row that are still trusted, but for the current one; the youngest last.
fn earlier_signers(wiring: &Wiring<'_>, draft: &Draft<'_>, signer: &Row) -> Vec<Arc<CertificateFacts>> {
    let current = draft.secret(&wiring.home(signer, &Instance::Cluster)).present();
    let now = draft.snapshot().taken_at;
    let bundles = wiring.row(signer.id).map(|wired| wired.flows_into.as_slice()).unwrap_or_default();
    let bundles = bundles.iter().filter_map(|id| wiring.bundle(id));
    let direct = bundles.filter(|wired| wired.bundle.inputs.contains(&BundleInput::History(signer.id)));
    let members = direct.filter_map(|wired| draft.bundle(&wired.home).present()).flat_map(|state| &state.members);
    // Its bundle may hold its own signers too, and cross-certificates.
    let is_of_row =
        |it: &CertificateFacts| (signer.signer == Signer::Itself) == (it.signed_by.as_ref() == Some(&it.subject));
    let is_other = |it: &CertificateFacts| current.is_none_or(|current| current.certificate.subject != it.subject);
    let known = members.filter_map(|id| draft.get(id));
    let earlier = known.filter(|it| it.is_valid_at(now) && is_of_row(it) && is_other(it));
    let mut earlier: Vec<Arc<CertificateFacts>> = earlier.cloned().collect();
    earlier.sort_by_key(|it| (it.validity.not_before, it.id.clone()));
    earlier
}

/// Until when a refused write may be put off.
#[derive(Debug, Clone, Copy)]
struct Patience {
    /// While somebody is about to load what it needs: as long as its holders still have the time to come to the new one.
    hopeful: Timestamp,
    /// Where nothing comes in time that could help: as long as there is also time for a mishap. Whoever would refuse the
    /// new one refuses the old one soon as well, and everybody else is saved.
    hopeless: Timestamp,
}

impl Patience {
    fn of(wiring: &Wiring<'_>, draft: &Draft<'_>, touched: &Touched, edge: &EdgeState, now: Timestamp) -> Patience {
        let never = Patience { hopeful: Timestamp::MAX, hopeless: Timestamp::MAX };
        let (Some(bundle), Some(leaf)) = (edge.bundles.last(), edge.leaves.last()) else { return never };
        let Ok(end) = edge.fits(bundle, leaf, now) else { return never };
        let scale = draft.snapshot().settings.time_scale;
        let needed = match wiring.edges()[touched.edge].edge.presenter.delivery {
            Delivery::Reloaded { within } => draft.lag(within) + RESYNC.scaled(scale),
            Delivery::Revisioned | Delivery::Relayed { .. } => ROLLOUT.scaled(scale),
            // A signer issues on request until its last second, and what it issued is accepted until then.
            Delivery::Never | Delivery::Indirect => return Patience { hopeful: end, hopeless: end },
        };
        let life = leaf.members.first().map(|it| it.validity.not_before.duration_until(it.validity.not_after));
        let spare = needed.max(life.unwrap_or(SignedDuration::ZERO) / 10);
        let before_end = |span| end.checked_sub(span).unwrap_or(Timestamp::MIN);
        Patience { hopeful: before_end(needed), hopeless: before_end(spare) }
    }

    fn least(self, other: Patience) -> Patience {
        Patience { hopeful: self.hopeful.min(other.hopeful), hopeless: self.hopeless.min(other.hopeless) }
    }
}

/// What a refused write waits for: until it is safe, or cannot be put off any longer; none where that is so now.
fn wait_for(
    before: &[EdgeState],
    mut refusal: Refusal,
    now: Timestamp,
    patience: Patience,
    proved: impl Fn(Timestamp) -> Result<(), Box<Refusal>>,
) -> Option<Waiting> {
    let versions = before.iter().flat_map(|edge| edge.bundles.iter().chain(&edge.leaves));
    let mut ends_of_use: Vec<Timestamp> = versions
        .filter_map(|version| match version.in_use {
            InUse::Always => None,
            InUse::Until(end) => Some(end).filter(|end| now < *end),
        })
        .collect();
    ends_of_use.sort_unstable();
    ends_of_use.dedup();
    for end in ends_of_use.into_iter().take_while(|end| *end <= patience.hopeful) {
        match proved(end) {
            Ok(()) => return Some(Waiting::Trust { until: Some(end), refusal: Box::new(refusal) }),
            // Who stands in the way longest is who is waited for.
            Err(later) => refusal = *later,
        }
    }
    // Somebody must load it first; or what stands in the way ends by itself.
    let mut bundles = before.iter().flat_map(|edge| &edge.bundles);
    let refuser = bundles.find(|version| version.name == refusal.broken.bundle);
    let is_rollout = refuser
        .is_some_and(|it| it.in_use == InUse::Always && matches!(it.evidence, Evidence::Observed | Evidence::Unknown));
    let last = if is_rollout { patience.hopeful } else { patience.hopeless };
    if last <= now {
        return None;
    }
    let ends_itself = ends(before, now).into_iter().find(|at| proved(*at).is_ok());
    let until = [Some(last).filter(|last| *last < Timestamp::MAX), ends_itself].into_iter().flatten().min();
    let refusal = Box::new(refusal);
    Some(if is_rollout {
        Waiting::Rollout { lacking: vec![refusal.broken.bundle.clone()], until, refusal }
    } else {
        Waiting::Trust { until, refusal }
    })
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

/// What breaks by itself up to this instant.
fn breaks_before(before: &[EdgeState], now: Timestamp, limit: Timestamp) -> Vec<Risk> {
    let first_break = |edge: &EdgeState| {
        edge.holds(now).ok()?;
        let mut instants: Vec<Timestamp> = edge.instants().filter(|at| now < *at && *at <= limit).collect();
        instants.sort_unstable();
        let (at, broken) = instants.into_iter().find_map(|at| edge.holds(at).err().map(|broken| (at, broken)))?;
        Some(Risk { edge: edge.name.to_string(), at, broken })
    };
    before.iter().filter_map(first_break).collect()
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
