//! Perennial in the simulation: when it looks, what becomes of its plan, and what its writes are judged by.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use super::super::judge::{Content, Side, Wrong};
use super::super::outcome::{Happening, Violation};
use super::super::words;
use super::super::world::content;
use super::queue::Event;
use super::{Run, later};
use crate::catalog::{Day, Signer};
use crate::plan::{Action, Pending, Planner, Report, Scope, Step};
use crate::policy::Usage;
use crate::snapshot::Slot;

/// How soon Perennial looks when something happened.
const NOTICES_WITHIN: i64 = 30;
/// How late a timer may be.
const TIMER_LATE: i64 = 600;
/// After so many writes, certificates that nothing speaks of are forgotten.
const FORGETS_EVERY: u64 = 500;

/// What Perennial is about to do, and what keeps it from that.
#[derive(Debug)]
pub(super) struct Operator {
    next_look: Option<Timestamp>,
    /// The rest of its plan.
    pub(super) pending: VecDeque<Step>,
    /// Objects that somebody else changed since it looked: the API refuses a write of them.
    pub(super) touched: BTreeSet<String>,
    pub(super) down_until: Timestamp,
    /// By how many seconds its clock is wrong, and until when.
    pub(super) clock_off: (i64, Timestamp),
    /// So many of its writes do not get through.
    pub(super) lose_writes: u64,
    /// Whether its next write gets through, but not the answer.
    pub(super) lose_answer: bool,
    /// It dies after so many writes.
    pub(super) crash_after: Option<u64>,
    /// When each family is to be looked at.
    due: BTreeMap<&'static str, Timestamp>,
    /// Families that something happened to.
    dirty: BTreeSet<&'static str>,
    /// What waits, by family: since when, and for what.
    pub(super) waiting: BTreeMap<(&'static str, Slot), (Timestamp, String, Pending)>,
    /// The risks that it announced.
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

    /// A family that something happened to, or whose time has come.
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

    /// At this instant, and not before.
    pub(super) fn look_again_at(&mut self, at: Timestamp) {
        self.operator.next_look = Some(at);
        self.queue.push(at, Event::Look);
    }

    fn notice(&mut self) {
        let at = self.now + self.chance.seconds(1, NOTICES_WITHIN);
        self.look_at(at);
    }

    /// Something happened that may matter to anybody.
    pub(super) fn stir(&mut self) {
        self.operator.dirty.extend(self.operator.due.keys());
        self.notice();
    }

    /// A static pod restarted: who waits for nothing has nothing to learn from that.
    pub(super) fn stir_who_waits(&mut self) {
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
        // One family after the other: what one writes, the next one sees.
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
        // Nobody trusts a timer alone when the clock was wrong.
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
                self.outcome.tell(self.now, Happening::Waited, text);
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
                self.outcome.tell(self.now, Happening::Risk, words::short(&risk.to_string()));
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
        // Somebody changed the object since it was looked at, or the write does not get through: look again.
        if self.operator.touched.contains(&step.object) || self.operator.lose_writes > 0 {
            self.operator.lose_writes = self.operator.lose_writes.saturating_sub(1);
            self.operator.pending.clear();
            return self.notice();
        }
        self.carry_out(&step);
        // Without an answer it is tried again, meets its own newer version, and is refused: look again.
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
            self.outcome.tell(self.now, kind, words::write(step));
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

    /// Bundles that several families share are everybody's.
    fn dirty_by(&mut self, step: &Step) {
        let wiring = self.planner.wiring();
        let is_in = |root: &&str, bundle: &str| wiring.row(root).is_some_and(|it| it.flows_into.contains(&bundle));
        let roots: Vec<&'static str> = match &step.action {
            Action::Issue(issue) => self.planner.root_of(issue.row).into_iter().collect(),
            Action::Publish(bundles) => {
                let roots = self.operator.due.keys().filter(|root| bundles.iter().any(|it| is_in(root, it.bundle)));
                roots.copied().collect()
            }
            Action::CopySecret(_) | Action::CopyBundle(_) | Action::Retype(_) | Action::Describe(_) => Vec::new(),
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
                let patience = case.patience();
                let text =
                    format!("{}: {} breaks in any case, and everybody else is saved", words::write(step), wrong.edge);
                self.outcome.tell(self.now, Happening::Risk, text);
                self.meetings.lose(wrong.edge, self.now, later(self.now, patience));
                continue;
            }
            let what = sentence(&wrong);
            self.violation(wrong.edge.to_string(), words::write(step), what);
        }
    }

    pub(super) fn violation(&mut self, edge: String, by: String, what: String) {
        let violation = Violation { at: self.now, edge, by, what };
        self.outcome.tell(self.now, Happening::Violation, violation.sentence());
        self.outcome.violations.push(violation);
    }
}

fn sentence(wrong: &Wrong) -> String {
    let (held, presented) = (words::content(&wrong.verifier_holds), words::content(&wrong.presented));
    format!("whoever holds [{held}] refuses [{presented}] from {} on", words::minute(wrong.at))
}

/// What a write changes, as processes see it.
fn changed(step: &Step) -> Vec<(Side, Slot)> {
    match &step.action {
        Action::Issue(issue) => vec![(Side::Presented, issue.slot.clone())],
        Action::Publish(bundles) => bundles.iter().map(|it| (Side::Trust, it.slot.clone())).collect(),
        Action::CopySecret(items) => items.iter().map(|it| (Side::Presented, it.to.clone())).collect(),
        Action::CopyBundle(item) => vec![(Side::Trust, item.to.clone())],
        Action::Retype(_) | Action::Describe(_) => Vec::new(),
    }
}

fn is_same(one: &Content, other: &Content) -> bool {
    one.len() == other.len() && one.iter().zip(other.iter()).all(|(one, other)| one.id == other.id)
}
