//! Perennial in the simulation: when it runs a pass, what happens to its plan, and how its writes are judged.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::super::judge::{Content, Side, Wrong};
use super::super::outcome::{Happening, Violation};
use super::super::words;
use super::super::world::content;
use super::queue::Event;
use super::{Run, later};
use crate::catalog::{Day, Signer};
use crate::plan::{Action, Kind, Pending, Planner, Report, Scope, Step};
use crate::policy::Usage;
use crate::snapshot::Slot;

/// How soon Perennial runs a pass after an event, in seconds.
const NOTICES_WITHIN: i64 = 30;
/// How late a timer may be, in seconds.
const TIMER_LATE: i64 = 600;
/// After this many writes, certificates that no slot refers to are removed.
const FORGETS_EVERY: u64 = 500;

/// The state of Perennial.
#[derive(Debug)]
pub(super) struct Operator {
    next_look: Option<Timestamp>,
    /// The remaining steps of its plan.
    pub(super) pending: VecDeque<Step>,
    /// Objects that another writer changed since the last observation: the API rejects a write of them.
    pub(super) touched: BTreeSet<String>,
    pub(super) down_until: Timestamp,
    /// By how many seconds its clock is wrong, and until when.
    pub(super) clock_off: (i64, Timestamp),
    /// The number of next writes that are lost.
    pub(super) lose_writes: u64,
    /// True if the response of the next write is lost.
    pub(super) lose_answer: bool,
    /// It crashes after so many writes.
    pub(super) crash_after: Option<u64>,
    /// When each family of certificates is planned next.
    due: BTreeMap<&'static str, Timestamp>,
    /// Families with a change.
    dirty: BTreeSet<&'static str>,
    /// The waits by family: since when, and for what.
    pub(super) waiting: BTreeMap<(&'static str, Slot), (Timestamp, String, Pending)>,
    /// The risks that it reported.
    risks: BTreeSet<(String, Timestamp)>,
}

impl Operator {
    pub(super) fn new(planner: &Planner<'_>, start: Timestamp) -> Operator {
        let rows = planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two);
        let roots = rows.filter(|row| row.signer == Signer::Itself).map(|row| row.id);
        Operator {
            next_look: None,
            pending: VecDeque::new(),
            touched: BTreeSet::new(),
            down_until: Timestamp::MIN,
            clock_off: (0, Timestamp::MIN),
            lose_writes: 0,
            lose_answer: false,
            crash_after: None,
            due: roots.map(|root| (root, start)).collect(),
            dirty: BTreeSet::new(),
            waiting: BTreeMap::new(),
            risks: BTreeSet::new(),
        }
    }

    fn clock(&self, now: Timestamp) -> Timestamp {
        let (seconds, until) = self.clock_off;
        if now < until { now + SignedDuration::from_secs(seconds) } else { now }
    }

    /// Returns a family with a change, or one that is due.
    fn next_root(&self, clock: Timestamp) -> Option<&'static str> {
        let due = || self.due.iter().find(|(_, due)| **due <= clock).map(|(root, _)| *root);
        self.dirty.first().copied().or_else(due)
    }
}

impl Run<'_, '_> {
    pub(super) fn look_at(&mut self, at: Timestamp) {
        if self.operator.next_look.is_none_or(|next| at < next) {
            self.look_again_at(at);
        }
    }

    /// Runs a pass at this instant, not earlier.
    pub(super) fn look_again_at(&mut self, at: Timestamp) {
        self.operator.next_look = Some(at);
        self.queue.push(at, Event::Look);
    }

    fn notice(&mut self) {
        let at = self.now + self.chance.seconds(1, NOTICES_WITHIN);
        self.look_at(at);
    }

    /// Plans all families after an event that may affect any of them.
    pub(super) fn plan_all_families(&mut self) {
        self.operator.dirty.extend(self.operator.due.keys());
        self.notice();
    }

    /// Plans the families with waits after the restart of a static pod. Others are not affected.
    pub(super) fn plan_waiting_families(&mut self) {
        if !self.operator.waiting.is_empty() {
            self.operator.dirty.extend(self.operator.waiting.keys().map(|(root, _)| *root));
            self.notice();
        }
    }

    pub(super) fn look(&mut self) {
        if self.operator.next_look != Some(self.now) {
            return;
        }
        self.operator.next_look = None;
        if !self.operator.pending.is_empty() {
            return;
        }
        if self.now < self.operator.down_until {
            return self.look_at(self.operator.down_until);
        }
        self.snapshot.taken_at = self.operator.clock(self.now);
        self.world.observe(&mut self.snapshot);
        self.operator.touched.clear();
        // One family after the other: each sees the writes of the previous one.
        while let Some(root) = self.operator.next_root(self.snapshot.taken_at) {
            self.outcome.looks += 1;
            let report = (self.decide)(self.planner, &self.snapshot, &Scope::Signer(root));
            self.note(root, &report);
            if !report.steps.is_empty() {
                self.operator.pending = report.steps.into();
                return self.soon(1, 2, Event::Write);
            }
            self.operator.dirty.remove(root);
            let again = self.second_look(root).unwrap_or(Timestamp::MAX);
            self.operator.due.insert(root, report.next_look.min(again));
        }
        self.sleep();
    }

    fn sleep(&mut self) {
        let off = self.snapshot.taken_at.duration_since(self.now);
        let next = self.operator.due.values().min().copied().unwrap_or(Timestamp::MAX);
        let next = next.saturating_sub(off).unwrap_or(Timestamp::MAX);
        if next < Timestamp::MAX {
            // A timer is never early, and often late.
            let late = self.chance.seconds(1, TIMER_LATE);
            self.look_at(later(next.max(self.now), late));
        }
        // With a wrong clock, a timer alone is not enough.
        if self.now < self.operator.clock_off.1 {
            self.look_at(self.operator.clock_off.1);
        }
    }

    fn note(&mut self, root: &'static str, report: &Report) {
        let is_over = |key: &&(&str, Slot)| key.0 == root && !report.waiting.iter().any(|it| it.slot == key.1);
        let over: Vec<_> = self.operator.waiting.keys().filter(is_over).cloned().collect();
        for key in over {
            if let Some((since, what, _)) = self.operator.waiting.remove(&key) {
                let waited = words::span(since.duration_until(self.now));
                let text = format!("{} waited {waited}: {what}", key.1.object_text());
                self.outcome.record(self.now, Happening::Waited, text);
            }
        }
        for pending in &report.waiting {
            let key = (root, pending.slot.clone());
            let entry = self.operator.waiting.entry(key).or_insert((self.now, String::new(), pending.clone()));
            entry.1 = words::short(&pending.waiting.to_string());
            entry.2 = pending.clone();
        }
        self.judge_delays(root, report);
        for risk in &report.risks {
            if self.operator.risks.insert((risk.edge.clone(), risk.at)) {
                self.outcome.record(self.now, Happening::Risk, words::short(&risk.to_string()));
            }
        }
    }

    pub(super) fn write(&mut self) {
        let Some(step) = self.operator.pending.pop_front() else { return };
        if self.now < self.operator.down_until {
            self.operator.pending.clear();
            return self.look_at(self.operator.down_until);
        }
        if self.operator.crash_after == Some(0) {
            return self.crash();
        }
        self.operator.crash_after = self.operator.crash_after.map(|left| left - 1);
        // Another writer changed the object since the observation, or the write is lost: observe again.
        if self.operator.touched.contains(&step.object) || self.operator.lose_writes > 0 {
            self.operator.lose_writes = self.operator.lose_writes.saturating_sub(1);
            self.operator.pending.clear();
            return self.notice();
        }
        self.carry_out(&step);
        // Without a response Perennial retries, gets a conflict with its own write, and observes again.
        if std::mem::take(&mut self.operator.lose_answer) {
            self.operator.pending.clear();
        }
        if self.operator.pending.is_empty() {
            self.notice();
        } else {
            self.soon(0, 1, Event::Write);
        }
    }

    fn crash(&mut self) {
        self.operator.crash_after = None;
        self.operator.pending.clear();
        self.operator.down_until = self.now + self.chance.seconds(5, 120);
        self.look_at(self.operator.down_until);
    }

    fn carry_out(&mut self, step: &Step) {
        self.outcome.writes += 1;
        self.dirty_by(step);
        if let Action::Issue(issue) = &step.action {
            self.account(issue);
            *self.outcome.issued.entry(issue.row.to_owned()).or_default() += 1;
            let is_signer = issue.spec.usage == Usage::Signer;
            let kind = if is_signer { Happening::Signer } else { Happening::Certificate };
            self.outcome.record(self.now, kind, words::write(step));
        }
        let changed = changed(step);
        let before: Vec<Option<Content>> =
            changed.iter().map(|(side, slot)| content(&self.snapshot, *side, slot)).collect();
        self.snapshot.taken_at = self.operator.clock(self.now);
        self.snapshot.apply(step);
        if self.outcome.writes.is_multiple_of(FORGETS_EVERY) {
            self.world.observe(&mut self.snapshot);
            self.snapshot.forget_unmentioned();
        }
        for ((side, slot), before) in changed.into_iter().zip(before) {
            let Some(new) = content(&self.snapshot, side, &slot) else { continue };
            if before.is_some_and(|before| is_same(&before, &new)) {
                continue;
            }
            self.judge_write(step, side, &slot, &new);
            self.judge.remember(side, &slot, self.now, new);
            self.spread(side, &slot);
        }
    }

    /// Marks the families that share a changed bundle.
    fn dirty_by(&mut self, step: &Step) {
        let wiring = self.planner.wiring();
        let is_in = |root: &&str, bundle: &str| wiring.row(root).is_some_and(|it| it.flows_into.contains(&bundle));
        let roots: Vec<&'static str> = match &step.action {
            Action::Issue(issue) => self.planner.root_of(issue.row).into_iter().collect(),
            Action::Publish(bundles) => {
                let roots = self.operator.due.keys().filter(|root| bundles.iter().any(|it| is_in(root, it.bundle)));
                roots.copied().collect()
            }
            _ => Vec::new(),
        };
        self.operator.dirty.extend(roots);
    }

    fn judge_write(&mut self, step: &Step, side: Side, slot: &Slot, new: &Content) {
        let cases = self.world.cases_of.get(&(side, slot.clone())).cloned().unwrap_or_default();
        for number in cases {
            let case = &self.world.cases[number];
            let Some(wrong) = self.judge.judge(case, side, new, &self.world, self.now) else { continue };
            let is_announced = step.risks.iter().any(|risk| risk.edge == *wrong.edge);
            let cannot_follow =
                wrong.replaced_from.is_some_and(|began| self.meetings.cannot_follow(&wrong.edge, began, self.now));
            if is_announced && (wrong.breaks_anyway.is_some() || cannot_follow) {
                let reload_time = case.reload_time();
                let text = format!("{}: {} breaks in any case; all other edges hold", words::write(step), wrong.edge);
                self.outcome.record(self.now, Happening::Risk, text);
                self.meetings.lose(wrong.edge, self.now, later(self.now, reload_time));
                continue;
            }
            let what = sentence(&wrong);
            self.violation(wrong.edge.to_string(), words::write(step), what);
        }
    }

    pub(super) fn violation(&mut self, edge: String, by: String, what: String) {
        let violation = Violation { at: self.now, edge, by, what };
        self.outcome.record(self.now, Happening::Violation, violation.sentence());
        self.outcome.violations.push(violation);
    }
}

fn sentence(wrong: &Wrong) -> String {
    let (held, presented) = (words::content(&wrong.verifier_holds), words::content(&wrong.presented));
    format!("a process that holds [{held}] rejects [{presented}] from {} on", words::minute(wrong.at))
}

/// Returns the slots that a write changes, as processes see them.
fn changed(step: &Step) -> Vec<(Side, Slot)> {
    let side = match step.kind() {
        Kind::Secret => Side::Presented,
        Kind::ConfigMap => Side::Trust,
    };
    step.changes().into_iter().map(|slot| (side, slot.clone())).collect()
}

fn is_same(one: &Content, other: &Content) -> bool {
    one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| one.id == other.id)
}
