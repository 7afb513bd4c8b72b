//! Decides whether a write is safe and, if not, what the write waits for.

use std::collections::BTreeSet;
use std::slice::from_ref;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::draft::{Draft, Undo};
use super::step::{Action, Risk, Step};
use super::touched::{Touched, states};
use super::versions::after;
use crate::catalog::index::{Presents, Wiring, copy_slot, presented_slot};
use crate::catalog::{
    BundleInput, Copied, CopyData, Day, Delivery, Instance, Leaf, ROLLOUT_AT_MOST, Row, Signer, Span,
};
use crate::rules::Waiting;
use crate::snapshot::{SecretState, Slot};
use crate::trust::{CertificateFacts, EdgeState, Evidence, InUse, Known, Refusal, Version, Write, prove};

/// The interval in which every object is reconciled at least once.
const RESYNC: Span = Span::minutes(10);

/// The result of trying a write.
pub(super) enum Outcome {
    /// The write is safe, and is done in the draft.
    Safe(Broken),
    /// The write must wait, and is not done in the draft.
    Waits {
        waiting: Waiting,
        /// The edges that break before the wait ends.
        risks: Vec<Risk>,
        /// When more edges break.
        more_at: Option<Timestamp>,
    },
}

/// The edges that are broken after a safe write, and those of them with consent.
#[derive(Debug, Default)]
pub(super) struct Broken {
    pub(super) risks: Vec<Risk>,
    pub(super) consented: BTreeSet<String>,
}

/// How long a write may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Urgency {
    /// The write may wait without limit: no certificate expires or is missing without it.
    None,
    /// The write replaces a certificate that expires or is missing, so the wait is limited. A process that starts during the
    /// wait has no certificate to present.
    Replaces {
        /// The latest end of the wait for a missing certificate.
        missing_until: Timestamp,
    },
}

/// Does the write in the draft, unless a verifier would reject a presenter because of it.
///
/// With `flow`, the write is proved together with the copies that follow from it. A write that replaces an expiring
/// certificate waits at most until its [`Deadline`].
pub(super) fn attempt(
    wiring: &Wiring<'_>,
    draft: &mut Draft<'_>,
    step: &Step,
    touched: &[Touched],
    flow: &[Step],
    urgency: Urgency,
) -> Outcome {
    let (trial, undo) = Trial::of(wiring, draft, step, touched, flow, urgency);
    let (trial, may_break) = trial.without_consented();
    let Err(refusal) = trial.proved(trial.now) else {
        return Outcome::Safe(trial.broken().and_with_consent(&may_break));
    };
    let deadline = Deadline::of_all(wiring, draft, &trial, urgency);
    let lacking = |refusal: &Refusal| lacking(wiring, draft, &trial, refusal);
    if let Some(waiting) = trial.wait_for(*refusal, deadline, lacking) {
        draft.undo(undo);
        return trial.put_off(waiting);
    }
    // The write cannot wait any longer. The edges that it breaks, now or later, are its risks.
    Outcome::Safe(trial.broken().and_also(trial.breaks()).and_with_consent(&may_break))
}

/// A write on trial: the edges that it touches, before and after.
struct Trial {
    touched: Vec<Touched>,
    /// For each edge, whether there is no certificate to present.
    is_missing: Vec<bool>,
    before: Vec<EdgeState>,
    after: Vec<EdgeState>,
    now: Timestamp,
    /// The longest lag of their readers.
    longest: SignedDuration,
}

impl Trial {
    /// Does the write in the draft, and returns how to undo it.
    fn of(
        wiring: &Wiring<'_>,
        draft: &mut Draft<'_>,
        step: &Step,
        touched: &[Touched],
        flow: &[Step],
        urgency: Urgency,
    ) -> (Trial, Undo) {
        let mut touched = touched.to_vec();
        // Edges that may break come last.
        touched.sort_by_key(|it| it.is_consented);
        let mut before = states(wiring, draft, &touched);
        let is_missing: Vec<bool> = before.iter().map(|edge| edge.leaves.is_empty()).collect();
        if let Urgency::Replaces { .. } = urgency {
            for (touched, edge) in touched.iter().zip(&mut before).filter(|(_, edge)| edge.leaves.is_empty()) {
                edge.leaves = possible_stale_leaves(wiring, draft, touched);
            }
        }
        let undo = draft.apply(step);
        let copies: Vec<_> = flow.iter().map(|copy| draft.apply(copy)).collect();
        let after = states(wiring, draft, &touched);
        copies.into_iter().rev().for_each(|copy| draft.undo(copy));
        let (now, longest) = (draft.snapshot().taken_at, longest_lag(wiring, draft, &touched));
        (Trial { touched, is_missing, before, after, now, longest }, undo)
    }

    /// Splits the edges into those that must not break and those that may.
    fn without_consented(mut self) -> (Trial, Trial) {
        let at = self.touched.partition_point(|it| !it.is_consented);
        let may_break = Trial {
            touched: self.touched.split_off(at),
            is_missing: self.is_missing.split_off(at),
            before: self.before.split_off(at),
            after: self.after.split_off(at),
            now: self.now,
            longest: self.longest,
        };
        (self, may_break)
    }

    /// Checks that the write at this instant breaks no edge.
    fn proved(&self, at: Timestamp) -> Result<(), Box<Refusal>> {
        let horizon = after(at, self.longest);
        prove(&Write { before: &self.before, after: &self.after, now: at, horizon })
    }

    /// Returns the edges that are broken after the write. An edge without a certificate does not count.
    fn broken(&self) -> Broken {
        let existed = self.before.iter().zip(&self.after).filter(|(before, _)| !before.leaves.is_empty());
        let risk = |(_, after): (_, &EdgeState)| {
            let broken = after.holds(self.now).err()?;
            Some(Risk { edge: after.name.to_string(), at: self.now, broken })
        };
        Broken { risks: existed.filter_map(risk).collect(), consented: BTreeSet::new() }
    }

    /// Returns each edge that the write breaks, and when it breaks first.
    fn breaks(&self) -> impl Iterator<Item = Risk> {
        let (now, horizon) = (self.now, after(self.now, self.longest));
        let edges = self.before.iter().zip(&self.after).map(|(before, after)| (from_ref(before), from_ref(after)));
        let refused = edges.filter_map(move |(before, after)| prove(&Write { before, after, now, horizon }).err());
        refused.map(|refusal| Risk::from(refusal.as_ref()))
    }

    /// Returns the wait. An edge that breaks only long after the last reader's lag is not a risk yet.
    fn put_off(&self, waiting: Waiting) -> Outcome {
        let broken = self.breaks_up_to(waiting.until().unwrap_or(Timestamp::MAX));
        let (risks, later): (Vec<Risk>, Vec<Risk>) =
            broken.into_iter().partition(|risk| risk.at <= after(self.now, self.longest));
        let more_at = later.iter().filter_map(|risk| risk.at.checked_sub(self.longest).ok()).min();
        Outcome::Waits { waiting, risks, more_at }
    }

    /// Returns the edges that break without the write, up to this instant.
    fn breaks_up_to(&self, limit: Timestamp) -> Vec<Risk> {
        let first_break = |edge: &EdgeState| {
            edge.holds(self.now).ok()?;
            let (at, broken) = instants_after(edge, self.now)
                .take_while(|at| *at <= limit)
                .find_map(|at| edge.holds(at).err().map(|broken| (at, broken)))?;
            Some(Risk { edge: edge.name.to_string(), at, broken })
        };
        self.before.iter().filter_map(first_break).collect()
    }

    /// Returns what a refused write waits for: until it is safe, or until its deadline; none if the deadline has passed.
    fn wait_for(
        &self,
        mut refusal: Refusal,
        deadline: Deadline,
        lacking: impl Fn(&Refusal) -> Vec<String>,
    ) -> Option<Waiting> {
        for end in self.ends_of_use().into_iter().take_while(|end| *end <= deadline.rollout_pending) {
            match self.proved(end) {
                Ok(()) => return Some(Waiting::Trust { until: Some(end), refusal: Box::new(refusal) }),
                // The obstacle that lasts longest is the one to report.
                Err(later) => refusal = *later,
            }
        }
        // A process must load a new version first, or the obstacle expires by itself.
        let mut bundles = self.before.iter().flat_map(|edge| &edge.bundles);
        let is_rollout = bundles.find(|it| it.name == refusal.broken.bundle).is_some_and(is_loaded_at_restart);
        let last = if is_rollout { deadline.rollout_pending } else { deadline.no_remedy };
        if last <= self.now {
            return None;
        }
        let instants: BTreeSet<Timestamp> = self.before.iter().flat_map(EdgeState::instants).collect();
        let ends_itself = instants.into_iter().filter(|at| self.now < *at).find(|at| self.proved(*at).is_ok());
        let until = [Some(last).filter(|last| *last < Timestamp::MAX), ends_itself].into_iter().flatten().min();
        Some(if is_rollout {
            Waiting::Rollout { lacking: lacking(&refusal), until, refusal: Box::new(refusal) }
        } else {
            Waiting::Trust { until, refusal: Box::new(refusal) }
        })
    }

    /// Returns the instants at which superseded versions go out of use.
    fn ends_of_use(&self) -> BTreeSet<Timestamp> {
        let versions = self.before.iter().flat_map(|edge| edge.bundles.iter().chain(&edge.leaves));
        let end = |version: &Version| match version.in_use {
            InUse::Always => None,
            InUse::Until(end) => Some(end).filter(|end| self.now < *end),
        };
        versions.filter_map(end).collect()
    }
}

/// Returns the processes that must load a new version first: those of the refused edge, and others with the same obstacle.
fn lacking(wiring: &Wiring<'_>, draft: &Draft<'_>, trial: &Trial, refusal: &Refusal) -> Vec<String> {
    let mut lacking = vec![refusal.broken.bundle.clone()];
    for ((touched, before), after) in trial.touched.iter().zip(&trial.before).zip(&trial.after) {
        let (Some(old), Some(new)) = (before.leaves.last(), after.leaves.last()) else { continue };
        let lacks = |bundle: &&Version| {
            is_loaded_at_restart(bundle)
                && before.fits(bundle, old, refusal.at).is_ok()
                && after.fits(bundle, new, refusal.at).is_err()
        };
        for bundle in before.bundles.iter().filter(lacks) {
            let holders = draft.holders(&wiring.edges()[touched.edge].trust, bundle);
            lacking.extend(holders.into_iter().filter(|name| !lacking.contains(name)).collect::<Vec<_>>());
        }
    }
    lacking
}

/// Returns true if only a restart brings a newer version to its holder.
fn is_loaded_at_restart(version: &Version) -> bool {
    version.in_use == InUse::Always && matches!(version.evidence, Evidence::Observed | Evidence::Unknown)
}

/// Returns the instants after `now` at which the edge may change, in order.
pub(super) fn instants_after(edge: &EdgeState, now: Timestamp) -> impl Iterator<Item = Timestamp> {
    edge.instants().filter(|at| now < *at).collect::<BTreeSet<_>>().into_iter()
}

impl Broken {
    /// Adds the edges that break with consent. The plan names them too.
    fn and_with_consent(mut self, may_break: &Trial) -> Broken {
        self.risks.extend(may_break.broken().risks);
        self.consented.extend(may_break.breaks().map(|risk| risk.edge));
        self.and_also(may_break.breaks())
    }

    /// Adds these risks, each edge once.
    fn and_also(mut self, risks: impl Iterator<Item = Risk>) -> Broken {
        for risk in risks {
            if !self.risks.iter().any(|known| known.edge == risk.edge) {
                self.risks.push(risk);
            }
        }
        self
    }

    /// Adds the broken edges of another write.
    pub(super) fn append(&mut self, other: Broken) {
        self.risks.extend(other.risks);
        self.consented.extend(other.consented);
    }
}

/// Returns the certificates that processes may present although the Secret is absent: those that they were observed to hold, or
/// else any certificate by an earlier signer that is still trusted.
fn possible_stale_leaves(wiring: &Wiring<'_>, draft: &Draft<'_>, touched: &Touched) -> Vec<Version> {
    let edge = &wiring.edges()[touched.edge];
    let Some(row) = wiring.row(edge.row).map(|wired| wired.row) else { return Vec::new() };
    let slot = presented_slot(row, edge.presents, &touched.instance);
    let held = draft.held_leaves(&slot);
    let is_class = matches!(edge.edge.leaf, Leaf::AnyBy(_));
    // The operator observes static pods: a version that no pod was observed to hold is not in use.
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

/// Returns the earlier signers of a row that are still trusted, the youngest last.
fn earlier_signers(wiring: &Wiring<'_>, draft: &Draft<'_>, signer: &Row) -> Vec<Arc<CertificateFacts>> {
    let current = draft.secret(&wiring.home(signer, &Instance::Cluster)).present();
    let now = draft.snapshot().taken_at;
    let bundles = wiring.row(signer.id).map(|wired| wired.flows_into.as_slice()).unwrap_or_default();
    let bundles = bundles.iter().filter_map(|id| wiring.bundle(id));
    let direct = bundles.filter(|wired| wired.bundle.inputs.contains(&BundleInput::History(signer.id)));
    let members = direct.filter_map(|wired| draft.bundle(&wired.home).present()).flat_map(|state| &state.members);
    // Its bundle may also contain its own signers, and cross-certificates.
    let is_of_row =
        |it: &CertificateFacts| (signer.signer == Signer::Itself) == (it.signed_by.as_ref() == Some(&it.subject));
    let is_other = |it: &CertificateFacts| current.is_none_or(|current| current.certificate.subject != it.subject);
    let known = members.filter_map(|id| draft.get(id));
    let earlier = known.filter(|it| it.is_valid_at(now) && is_of_row(it) && is_other(it));
    let mut earlier: Vec<Arc<CertificateFacts>> = earlier.cloned().collect();
    earlier.sort_by_key(|it| (it.validity.not_before, it.id.clone()));
    earlier
}

/// The latest end of the wait of a refused write.
#[derive(Debug, Clone, Copy)]
struct Deadline {
    /// While a rollout of the required bundle is pending: as long as all holders can still load the new certificate in time.
    rollout_pending: Timestamp,
    /// If nothing can help in time: earlier, with a reserve. A verifier that rejects the new certificate would soon reject
    /// the old one too, and all other verifiers get the new one.
    no_remedy: Timestamp,
}

impl Deadline {
    /// Returns the earliest deadline of all these edges.
    fn of_all(wiring: &Wiring<'_>, draft: &Draft<'_>, trial: &Trial, urgency: Urgency) -> Deadline {
        let unlimited = Deadline { rollout_pending: Timestamp::MAX, no_remedy: Timestamp::MAX };
        let Urgency::Replaces { missing_until } = urgency else { return unlimited };
        let of = |((touched, edge), is_missing): ((&Touched, &EdgeState), &bool)| {
            if *is_missing {
                Deadline { rollout_pending: missing_until, no_remedy: missing_until }
            } else {
                Deadline::of(wiring, draft, touched, edge, trial.now)
            }
        };
        trial.touched.iter().zip(&trial.before).zip(&trial.is_missing).map(of).fold(unlimited, Deadline::earlier)
    }

    fn of(wiring: &Wiring<'_>, draft: &Draft<'_>, touched: &Touched, edge: &EdgeState, now: Timestamp) -> Deadline {
        let never = Deadline { rollout_pending: Timestamp::MAX, no_remedy: Timestamp::MAX };
        let (Some(bundle), Some(leaf)) = (edge.bundles.last(), edge.leaves.last()) else { return never };
        let Ok(end) = edge.fits(bundle, leaf, now) else { return never };
        let scale = draft.snapshot().time_scale();
        let needed = match wiring.edges()[touched.edge].edge.presenter.delivery {
            Delivery::Reloaded { within } => {
                draft.lag_with(within, signer_of(wiring, draft, touched)) + RESYNC.scaled(scale)
            }
            Delivery::Revisioned | Delivery::Relayed { .. } => ROLLOUT_AT_MOST.scaled(scale),
            // A signer issues on request until it expires, and its certificates are accepted until then.
            Delivery::Never | Delivery::Indirect => return Deadline { rollout_pending: end, no_remedy: end },
        };
        let life = leaf.members.first().map(|it| it.validity.not_before.duration_until(it.validity.not_after));
        let reserve = needed.max(life.unwrap_or(SignedDuration::ZERO) / 10);
        let before_end = |span| end.checked_sub(span).unwrap_or(Timestamp::MIN);
        Deadline { rollout_pending: before_end(needed), no_remedy: before_end(reserve) }
    }

    fn earlier(self, other: Deadline) -> Deadline {
        Deadline {
            rollout_pending: self.rollout_pending.min(other.rollout_pending),
            no_remedy: self.no_remedy.min(other.no_remedy),
        }
    }
}

/// Returns the signer of the certificate that is presented on an edge.
fn signer_of<'d>(wiring: &Wiring<'_>, draft: &'d Draft<'_>, touched: &Touched) -> Option<&'d SecretState> {
    let row = wiring.row(wiring.edges()[touched.edge].row)?.row;
    let Signer::Row(id) = row.signer else { return None };
    let signer = wiring.row(id)?.row;
    (signer.day == Day::Two).then(|| draft.secret(&wiring.home(signer, &Instance::Cluster)).present())?
}

fn longest_lag(wiring: &Wiring<'_>, draft: &Draft<'_>, touched: &[Touched]) -> SignedDuration {
    let of = |touched: &Touched| {
        let (edge, signer) = (wiring.edges()[touched.edge].edge, signer_of(wiring, draft, touched));
        let lag = move |delivery: Delivery| match delivery {
            Delivery::Reloaded { within } | Delivery::Relayed { within } => draft.lag_with(within, signer),
            Delivery::Revisioned | Delivery::Never | Delivery::Indirect => SignedDuration::ZERO,
        };
        lag(edge.verifier.delivery).max(lag(edge.presenter.delivery))
    };
    let longest = touched.iter().map(of).max();
    longest.unwrap_or(SignedDuration::ZERO) + RESYNC.scaled(draft.snapshot().time_scale())
}

/// Returns the copies that follow a certificate at once, as writes.
pub(super) fn flow(wiring: &Wiring<'_>, row: &Row, instance: &Instance, home: &Slot) -> Vec<Step> {
    let copies = wiring.flows(row).into_iter().filter_map(|presents| match presents {
        Presents::Home => None,
        Presents::Copy(number) => Some(&row.copies[number]),
    });
    let step = |copy: &Copied| {
        let to = copy_slot(row, copy, instance);
        let object = to.object_text().to_owned();
        let item = super::CopyItem { from: Some(home.clone()), to, alone: copy.data == CopyData::Alone, first: false };
        Step::new(&object, Action::CopySecret(vec![item]), BTreeSet::new())
    };
    copies.map(step).collect()
}
