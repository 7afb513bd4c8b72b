//! One run of a simulation.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::chance::Chance;
use super::judge::{Content, Judge, Side, accepts, handed_out};
use super::outcome::{ClosestCall, Happening, Outage, Outcome, Violation};
use super::world::{Reads, World, content};
use super::{Decide, Fault, Options, Scheduled, day1};
use crate::catalog::{Catalog, ClusterFacts, Day, Delivery, Instance, ObjectName, Signer, Span};
use crate::key::KeySpec;
use crate::plan::{Action, Planner, Scope, Step};
use crate::policy::{Policy, Usage};
use crate::rules::{Annotation, Observed};
use crate::snapshot::{Service, Slot, Snapshot};
use crate::spec::Host;
use crate::wiring::home_slot;

/// How soon Perennial looks when something happened.
const NOTICES_WITHIN: i64 = 30;
/// How late a timer may be.
const TIMER_LATE: i64 = 600;
/// How long an outage may last after Perennial is back.
const HEALS_WITHIN: SignedDuration = SignedDuration::from_hours(6);

#[derive(Debug, Clone)]
enum Event {
    Look,
    Write,
    Load(Arc<str>, Side, Slot),
    Relay { process: (Arc<str>, Side, Slot), content: Content },
    Revision(Arc<str>),
    Restart(Arc<str>),
    Check(Arc<str>, Side, Slot),
    Fault(usize),
    PolicyReadable,
}

pub(super) struct Run<'a, 'c> {
    planner: &'a Planner<'c>,
    decide: &'a Decide<'a>,
    script: Vec<Scheduled>,
    end: Timestamp,
    chance: Chance,
    now: Timestamp,
    snapshot: Snapshot,
    world: World,
    judge: Judge,
    outcome: Outcome,
    queue: BinaryHeap<Reverse<(Timestamp, u64)>>,
    events: HashMap<u64, Event>,
    number: u64,
    next_look: Option<Timestamp>,
    pending: VecDeque<Step>,
    touched: BTreeSet<String>,
    operator_down: Timestamp,
    cluster_down: Timestamp,
    clock_off: (i64, Timestamp),
    lose_writes: u64,
    crash_after: Option<u64>,
    names: u32,
    /// What waits, by family: since when, and for what.
    waiting: BTreeMap<(&'static str, Slot), (Timestamp, String)>,
    /// When each family is to be looked at.
    due: BTreeMap<&'static str, Timestamp>,
    /// Families that something happened to.
    dirty_roots: BTreeSet<&'static str>,
    risks: BTreeSet<(String, Timestamp)>,
    open: HashMap<usize, usize>,
    ended: BTreeSet<Arc<str>>,
    /// Edges on which everybody has accepted everybody once.
    was_up: BTreeSet<Arc<str>>,
    /// Edges that nothing could save: their signer's key was destroyed while somebody knew only that signer.
    lost: BTreeSet<Arc<str>>,
}

impl<'a, 'c> Run<'a, 'c> {
    pub(super) fn new(
        planner: &'a Planner<'c>,
        options: &Options,
        script: Vec<Scheduled>,
        decide: &'a Decide<'a>,
    ) -> Run<'a, 'c> {
        let mut snapshot = Snapshot::empty(planner.wiring(), cluster(), options.start);
        let mut run_names = 0;
        for number in 0..options.nodes {
            snapshot.nodes.insert(format!("master-{number}"), vec![node_address(number)]);
            run_names = run_names.max(u32::try_from(number).unwrap_or(0) + 1);
        }
        for number in 0..options.services {
            let (slot, service) = service(number);
            snapshot.services.insert(slot, service);
        }
        snapshot.complete(planner.wiring());
        day1::install(&mut snapshot, planner.wiring());
        let rows = planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two);
        let roots: Vec<&'static str> = rows.filter(|row| row.signer == Signer::Itself).map(|row| row.id).collect();
        let outcome = Outcome::new(options.seed, options.start, script.clone());
        let mut run = Run {
            planner,
            decide,
            end: options.end(),
            chance: Chance::new(options.seed),
            now: options.start,
            snapshot,
            world: World::default(),
            judge: Judge::default(),
            outcome,
            queue: BinaryHeap::new(),
            events: HashMap::new(),
            number: 0,
            next_look: None,
            pending: VecDeque::new(),
            touched: BTreeSet::new(),
            operator_down: Timestamp::MIN,
            cluster_down: Timestamp::MIN,
            clock_off: (0, Timestamp::MIN),
            lose_writes: 0,
            crash_after: None,
            names: run_names + u32::try_from(options.services).unwrap_or(0),
            waiting: BTreeMap::new(),
            due: roots.iter().map(|root| (*root, options.start)).collect(),
            dirty_roots: BTreeSet::new(),
            risks: BTreeSet::new(),
            open: HashMap::new(),
            ended: BTreeSet::new(),
            was_up: BTreeSet::new(),
            lost: BTreeSet::new(),
            script,
        };
        run.begin();
        run
    }

    fn begin(&mut self) {
        self.rebuild();
        let slots: Vec<(Side, Slot)> = self.world.cases_of.keys().cloned().collect();
        for (side, slot) in slots {
            if let Some(content) = content(&self.snapshot, side, &slot) {
                self.judge.remember(side, &slot, self.now, content);
            }
        }
        for process in &mut self.world.processes {
            if process.reads == Reads::Once {
                process.content = content(&self.snapshot, process.side, &process.slot).unwrap_or_default();
            }
        }
        let once: Vec<_> =
            self.world.processes.iter().filter(|it| it.reads == Reads::Once).map(|it| it.key()).collect();
        once.iter().for_each(|key| self.watch_end(key));
        for number in 0..self.script.len() {
            self.at(self.script[number].at, Event::Fault(number));
        }
        self.look_at(self.now);
    }

    pub(super) fn run(mut self) -> Outcome {
        while let Some(Reverse((at, number))) = self.queue.pop() {
            let Some(event) = self.events.remove(&number) else { continue };
            if self.end < at {
                break;
            }
            self.now = at;
            self.handle(event);
        }
        self.now = self.end;
        self.outcome.to = self.end;
        self.judge_outages();
        self.outcome
    }

    // Events

    fn at(&mut self, at: Timestamp, event: Event) {
        self.number += 1;
        self.queue.push(Reverse((at, self.number)));
        self.events.insert(self.number, event);
    }

    fn soon(&mut self, from: i64, to: i64, event: Event) {
        let at = self.now + self.chance.seconds(from, to);
        self.at(at, event);
    }

    fn look_at(&mut self, at: Timestamp) {
        if self.next_look.is_none_or(|next| at < next) {
            self.next_look = Some(at);
            self.at(at, Event::Look);
        }
    }

    fn notice(&mut self) {
        let at = self.now + self.chance.seconds(1, NOTICES_WITHIN);
        self.look_at(at);
    }

    fn handle(&mut self, event: Event) {
        let is_of_cluster = !matches!(event, Event::Fault(_) | Event::PolicyReadable);
        if is_of_cluster && self.now < self.cluster_down {
            let later = self.cluster_down + self.chance.seconds(1, 60);
            if matches!(event, Event::Look) {
                self.next_look = Some(later);
            }
            return self.at(later, event);
        }
        match event {
            Event::Look if self.next_look == Some(self.now) => self.look(),
            Event::Look => {}
            Event::Write => self.write(),
            Event::Load(name, side, slot) => self.load(&(name, side, slot)),
            Event::Relay { process, content } => self.take(&process, content),
            Event::Revision(operand) => self.revision(&operand),
            Event::Restart(operand) => self.restart(&operand),
            Event::Check(name, side, slot) => self.check_process(&(name, side, slot)),
            Event::Fault(number) => self.fault(number),
            Event::PolicyReadable => {
                self.snapshot.policy = Observed::Absent;
                self.stir();
            }
        }
    }

    // Perennial

    fn operator_clock(&self) -> Timestamp {
        let (seconds, until) = self.clock_off;
        if self.now < until { self.now + SignedDuration::from_secs(seconds) } else { self.now }
    }

    fn look(&mut self) {
        self.next_look = None;
        if !self.pending.is_empty() {
            return;
        }
        if self.now < self.operator_down {
            return self.look_at(self.operator_down);
        }
        self.snapshot.taken_at = self.operator_clock();
        self.world.observe(&mut self.snapshot);
        self.touched.clear();
        // One family after the other: what one writes, the next one sees.
        while let Some(root) = self.next_root() {
            self.outcome.looks += 1;
            let report = (self.decide)(self.planner, &self.snapshot, &Scope::Signer(root));
            self.note_waiting(root, &report);
            if !report.steps.is_empty() {
                self.pending = report.steps.into();
                return self.soon(1, 2, Event::Write);
            }
            self.dirty_roots.remove(root);
            self.due.insert(root, report.next_look);
        }
        self.sleep();
    }

    /// A family that something happened to, or whose time has come.
    fn next_root(&self) -> Option<&'static str> {
        let clock = self.snapshot.taken_at;
        let due = || self.due.iter().find(|(_, due)| **due <= clock).map(|(root, _)| *root);
        self.dirty_roots.first().copied().or_else(due)
    }

    fn sleep(&mut self) {
        let off = self.snapshot.taken_at.duration_since(self.now);
        let next = self.due.values().min().copied().unwrap_or(Timestamp::MAX);
        let next = next.saturating_sub(off).unwrap_or(Timestamp::MAX);
        if next < Timestamp::MAX {
            // A timer is never early, and often late.
            let late = self.chance.seconds(1, TIMER_LATE);
            let at = next.max(self.now).saturating_add(late).unwrap_or(Timestamp::MAX);
            self.look_at(at);
        }
        // Nobody trusts a timer alone when the clock was wrong.
        if self.now < self.clock_off.1 {
            self.look_at(self.clock_off.1);
        }
    }

    /// Something happened that may matter to anybody.
    fn stir(&mut self) {
        self.dirty_roots.extend(self.due.keys());
        self.notice();
    }

    fn note_waiting(&mut self, root: &'static str, report: &crate::plan::Report) {
        let of_root: Vec<_> = self.waiting.keys().filter(|(of, _)| *of == root).cloned().collect();
        for key in of_root {
            if report.waiting.iter().any(|pending| pending.slot == key.1) {
                continue;
            }
            if let Some((since, text)) = self.waiting.remove(&key) {
                let waited = since.duration_until(self.now);
                let text = format!("{} waited {}: {text}", key.1, span(waited));
                self.outcome.tell(self.now, Happening::Waited, text);
            }
        }
        for pending in &report.waiting {
            let text = pending.waiting.to_string();
            let entry = self.waiting.entry((root, pending.slot.clone())).or_insert((self.now, String::new()));
            entry.1 = text;
        }
        for risk in &report.risks {
            if self.risks.insert((risk.edge.clone(), risk.at)) {
                self.outcome.tell(self.now, Happening::Risk, risk.to_string());
            }
        }
    }

    fn write(&mut self) {
        let Some(step) = self.pending.pop_front() else { return };
        if self.now < self.operator_down {
            self.pending.clear();
            return self.look_at(self.operator_down);
        }
        if self.crash_after == Some(0) {
            self.crash_after = None;
            self.pending.clear();
            self.operator_down = self.now + self.chance.seconds(5, 120);
            return self.look_at(self.operator_down);
        }
        self.crash_after = self.crash_after.map(|left| left - 1);
        // Somebody changed the object since it was looked at, or the write does not get through: look again.
        if self.touched.contains(&step.object) || self.lose_writes > 0 {
            self.lose_writes = self.lose_writes.saturating_sub(1);
            self.pending.clear();
            return self.notice();
        }
        self.carry_out(&step);
        if self.pending.is_empty() {
            self.notice();
        } else {
            self.soon(0, 1, Event::Write);
        }
    }

    fn carry_out(&mut self, step: &Step) {
        self.outcome.writes += 1;
        self.dirty_by(step);
        let changed: Vec<(Side, Slot)> = match &step.action {
            Action::Issue(issue) => vec![(Side::Presented, issue.slot.clone())],
            Action::Publish(bundles) => bundles.iter().map(|it| (Side::Trust, it.slot.clone())).collect(),
            Action::CopySecret(items) => items.iter().map(|it| (Side::Presented, it.to.clone())).collect(),
            Action::CopyBundle(item) => vec![(Side::Trust, item.to.clone())],
        };
        if let Action::Issue(issue) = &step.action {
            *self.outcome.issued.entry(issue.row.to_owned()).or_default() += 1;
            let is_signer = issue.spec.usage == Usage::Signer;
            let kind = if is_signer { Happening::Signer } else { Happening::Certificate };
            self.outcome.tell(self.now, kind, step.to_string());
        }
        let before: Vec<Option<Content>> =
            changed.iter().map(|(side, slot)| content(&self.snapshot, *side, slot)).collect();
        self.snapshot.taken_at = self.operator_clock();
        self.snapshot.apply(step);
        if self.outcome.writes.is_multiple_of(500) {
            self.world.observe(&mut self.snapshot);
            self.snapshot.forget_unmentioned();
        }
        for ((side, slot), before) in changed.into_iter().zip(before) {
            let Some(new) = content(&self.snapshot, side, &slot) else { continue };
            let ids = |content: &Content| content.iter().map(|it| it.id.clone()).collect::<Vec<_>>();
            if before.as_ref().map(ids) == Some(ids(&new)) {
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
                let roots = self.due.keys().filter(|root| bundles.iter().any(|it| is_in(root, it.bundle)));
                roots.copied().collect()
            }
            Action::CopySecret(_) | Action::CopyBundle(_) => Vec::new(),
        };
        self.dirty_roots.extend(roots);
    }

    fn judge_write(&mut self, step: &Step, side: Side, slot: &Slot, new: &Content) {
        let cases = self.world.cases_of.get(&(side, slot.clone())).cloned().unwrap_or_default();
        for number in cases {
            let case = &self.world.cases[number];
            if let Some(wrong) = self.judge.judge(case, side, new, &self.world, self.now) {
                let is_announced = step.risks.iter().any(|risk| risk.edge == *wrong.edge);
                if (is_announced && wrong.breaks_anyway.is_some()) || self.is_lost(&wrong.edge) {
                    let text = format!("{step}: {} breaks in any case, and everybody else is saved", wrong.edge);
                    self.outcome.tell(self.now, Happening::Risk, text);
                    self.lost.insert(wrong.edge);
                    continue;
                }
                let what =
                    format!("who holds [{}] refuses [{}] at {}", wrong.verifier_holds, wrong.presented, wrong.at);
                self.violation(wrong.edge.to_string(), step.to_string(), what);
            }
        }
    }

    fn violation(&mut self, edge: String, by: String, what: String) {
        let violation = Violation { at: self.now, edge, by, what };
        self.outcome.tell(self.now, Happening::Violation, violation.to_string());
        self.outcome.violations.push(violation);
    }

    // Processes

    /// Lets everybody who reads the slot know, sooner or later.
    fn spread(&mut self, side: Side, slot: &Slot) {
        let readers = self.world.readers.get(&(side, slot.clone())).cloned().unwrap_or_default();
        for number in readers {
            let process = &self.world.processes[number];
            let (key, reads, is_new) = (process.key(), process.reads.clone(), process.content.is_empty());
            match reads {
                Reads::Again { seconds } => self.soon(1, seconds, Event::Load(key.0, key.1, key.2)),
                Reads::AtRestart { operand, .. } => {
                    // Some read a certificate as soon as its file changes, and trust only when they start.
                    if side == Side::Presented && !is_new && self.chance.percent(50) {
                        self.soon(1, 600, Event::Load(key.0, key.1, key.2));
                    }
                    self.dirty(&operand);
                }
                Reads::Requests if is_new => self.soon(1, 120, Event::Load(key.0, key.1, key.2)),
                Reads::Requests | Reads::From { .. } | Reads::Once => {}
            }
        }
    }

    fn dirty(&mut self, name: &Arc<str>) {
        let Some(operand) = self.world.operands.get_mut(name) else { return };
        if !operand.is_dirty {
            operand.is_dirty = true;
            self.soon(5, 60, Event::Revision(name.clone()));
        }
    }

    fn revision(&mut self, name: &Arc<str>) {
        let mut contents = HashMap::new();
        for process in &self.world.processes {
            if matches!(&process.reads, Reads::AtRestart { operand, .. } if operand == name)
                && let Some(content) = content(&self.snapshot, process.side, &process.slot)
            {
                contents.insert((process.side, process.slot.clone()), content);
            }
        }
        let Some(operand) = self.world.operands.get_mut(name) else { return };
        operand.is_dirty = false;
        operand.revision += 1;
        operand.contents.extend(contents);
        if !operand.is_rolling {
            operand.is_rolling = true;
            self.soon(120, 600, Event::Restart(name.clone()));
        }
    }

    fn restart(&mut self, name: &Arc<str>) {
        let nodes: Vec<Arc<str>> = self.snapshot.nodes.keys().map(|node| node.as_str().into()).collect();
        let Some(operand) = self.world.operands.get_mut(name) else { return };
        let latest = operand.revision;
        let runs = |node: &Arc<str>| operand.nodes.get(node).is_some_and(|(revision, _)| *revision == latest);
        let mut behind = nodes.iter().filter(|node| !runs(node)).cloned();
        let Some(node) = behind.next() else {
            operand.is_rolling = false;
            return;
        };
        let is_last = behind.next().is_none();
        operand.nodes.insert(node.clone(), (latest, self.now));
        let contents = operand.contents.clone();
        operand.is_rolling = !is_last;
        self.outcome.restarts += 1;
        if !is_last {
            self.soon(120, 600, Event::Restart(name.clone()));
        }
        let mut started = Vec::new();
        for process in &self.world.processes {
            if matches!(&process.reads, Reads::AtRestart { operand, node: on } if operand == name && *on == node)
                && let Some(content) = contents.get(&(process.side, process.slot.clone()))
            {
                started.push((process.key(), content.clone()));
            }
        }
        started.into_iter().for_each(|(key, content)| self.take(&key, content));
        self.relay(name, &contents, is_last);
        // Who waits for nothing has nothing to learn from a restart.
        if !self.waiting.is_empty() {
            self.dirty_roots.extend(self.waiting.keys().map(|(root, _)| *root));
            self.notice();
        }
    }

    /// What the restarted process hands on; while others still run the old revision, perhaps.
    fn relay(&mut self, name: &Arc<str>, contents: &HashMap<(Side, Slot), Content>, is_last: bool) {
        let mut told = Vec::new();
        for process in &self.world.processes {
            if let Reads::From { operand, seconds } = &process.reads
                && operand == name
                && let Some(content) = contents.get(&(process.side, process.slot.clone()))
            {
                told.push((process.key(), *seconds, content.clone()));
            }
        }
        for (process, seconds, content) in told {
            if is_last || self.chance.percent(50) {
                self.soon(1, seconds, Event::Relay { process, content });
            }
        }
    }

    fn find(&self, key: &(Arc<str>, Side, Slot)) -> Option<usize> {
        let readers = self.world.readers.get(&(key.1, key.2.clone()))?;
        readers.iter().copied().find(|number| self.world.processes[*number].name == key.0)
    }

    fn load(&mut self, key: &(Arc<str>, Side, Slot)) {
        let Some(number) = self.find(key) else { return };
        if self.world.processes[number].reads == Reads::Requests {
            return self.request(key);
        }
        // What is absent or damaged is not taken over: the process goes on with what it has.
        if let Some(content) = content(&self.snapshot, key.1, &key.2) {
            self.take(key, content);
        }
    }

    fn take(&mut self, key: &(Arc<str>, Side, Slot), content: Content) {
        let Some(number) = self.find(key) else { return };
        let process = &mut self.world.processes[number];
        let old = std::mem::replace(&mut process.content, content);
        let cases = process.cases.clone();
        if let (Side::Presented, Some(leaf)) = (key.1, old.first()) {
            let left = self.now.duration_until(leaf.validity.not_after).as_secs();
            for case in &cases {
                let call = ClosestCall { at: self.now, left };
                let name = self.world.cases[*case].name.to_string();
                let known = self.outcome.closest.entry(name).or_insert_with(|| call.clone());
                if left < known.left {
                    *known = call;
                }
            }
        }
        self.watch_end(key);
        cases.into_iter().for_each(|case| self.check(case));
    }

    /// A kubelet's certificate: of the signer that issues now, renewed when most of its life is over.
    fn request(&mut self, key: &(Arc<str>, Side, Slot)) {
        let signer = content(&self.snapshot, Side::Presented, &key.2).and_then(|content| content.first().cloned());
        let Some(signer) = signer.filter(|signer| signer.is_valid_at(self.now)) else {
            return self.soon(60, 600, Event::Load(key.0.clone(), key.1, key.2.clone()));
        };
        let month = self.now + SignedDuration::from_hours(24 * 30);
        let end = month.min(signer.validity.not_after);
        let begin = (self.now - SignedDuration::from_mins(5)).max(signer.validity.not_before);
        let life = self.now.duration_until(end).as_secs();
        self.take(key, Content::from([Arc::new(handed_out(&signer, begin, end))]));
        self.soon(life * 7 / 10, life * 9 / 10, Event::Load(key.0.clone(), key.1, key.2.clone()));
    }

    /// Looks at the process again when something that it holds ends.
    fn watch_end(&mut self, key: &(Arc<str>, Side, Slot)) {
        let Some(number) = self.find(key) else { return };
        let ends = self.world.processes[number].content.iter().filter_map(|it| it.validity.first_after());
        let ends: BTreeSet<Timestamp> = ends.filter(|end| self.now < *end && *end < self.end).collect();
        for end in ends {
            self.at(end, Event::Check(key.0.clone(), key.1, key.2.clone()));
        }
    }

    fn check_process(&mut self, key: &(Arc<str>, Side, Slot)) {
        let Some(number) = self.find(key) else { return };
        let cases = self.world.processes[number].cases.clone();
        cases.into_iter().for_each(|case| self.check(case));
    }

    /// Whether everybody on an edge accepts everybody, right now.
    fn check(&mut self, number: usize) {
        let case = &self.world.cases[number];
        let (verifiers, presenters) = &self.world.pairs[number];
        let process = |number: &usize| &self.world.processes[*number];
        let (mut refused, mut met) = (None, false);
        for verifier in verifiers.iter().map(process).filter(|it| !it.content.is_empty()) {
            for presenter in presenters.iter().map(process).filter(|it| !it.content.is_empty()) {
                if accepts(&verifier.content, &presenter.content, case.purpose, &case.hosts, self.now) {
                    met = true;
                    continue;
                }
                // What nobody can renew has ended: that is no outage of ours.
                let over = |content: &Content| content.iter().all(|it| it.validity.not_after < self.now);
                let is_over = [verifier, presenter].iter().any(|it| it.reads == Reads::Once && over(&it.content));
                if is_over {
                    if self.ended.insert(case.name.clone()) {
                        let text = format!("{}: ended, and nobody here can renew it", case.name);
                        self.outcome.tell(self.now, Happening::Ended, text);
                    }
                    continue;
                }
                let names =
                    |content: &Content| content.iter().map(|it| it.id.to_string()).collect::<Vec<_>>().join(" + ");
                refused = Some(format!(
                    "{} with [{}] refuses {} with [{}]",
                    verifier.name,
                    names(&verifier.content),
                    presenter.name,
                    names(&presenter.content)
                ));
            }
        }
        let edge = case.name.to_string();
        // Until everybody has started once, there is nothing to lose.
        if refused.is_none() && met {
            self.was_up.insert(case.name.clone());
        }
        if !self.was_up.contains(&case.name) {
            return;
        }
        match (refused, self.open.get(&number).copied()) {
            (Some(what), None) => {
                self.outcome.tell(self.now, Happening::Trust, format!("{edge} is down: {what}"));
                self.open.insert(number, self.outcome.outages.len());
                self.outcome.outages.push(Outage { edge, from: self.now, to: None, what });
            }
            (None, Some(outage)) => {
                self.open.remove(&number);
                self.outcome.outages[outage].to = Some(self.now);
                self.outcome.tell(self.now, Happening::Trust, format!("{edge} is up again"));
            }
            _ => {}
        }
    }

    /// An outage is excused by a long one of Perennial or the cluster, and then only for as long as healing takes.
    fn judge_outages(&mut self) {
        let excuses: Vec<(Timestamp, Timestamp)> = self.script.iter().filter_map(excuse).collect();
        for outage in self.outcome.outages.clone() {
            let excuse = excuses.iter().find(|(from, to)| *from <= outage.from && outage.from <= *to + HEALS_WITHIN);
            let limit = excuse.map_or(outage.from, |(_, to)| *to + HEALS_WITHIN);
            if self.is_lost(&outage.edge) || outage.to.unwrap_or(self.end) <= limit {
                continue;
            }
            let by = if excuse.is_some() { "it did not heal in time" } else { "nothing excuses it" };
            let violation = Violation {
                at: outage.from,
                edge: outage.edge.clone(),
                by: by.to_owned(),
                what: format!("{}, until {}", outage.what, outage.to.unwrap_or(self.end)),
            };
            self.outcome.tell(outage.from, Happening::Violation, violation.to_string());
            self.outcome.violations.push(violation);
        }
    }

    fn rebuild(&mut self) {
        self.snapshot.complete(self.planner.wiring());
        self.world.rebuild(self.planner.wiring(), &self.snapshot);
        self.open.clear();
    }

    // Trouble

    fn fault(&mut self, number: usize) {
        let fault = self.script[number].fault.clone();
        let mut text = fault.to_string();
        match fault {
            Fault::OperatorDown { seconds } => {
                self.operator_down = self.operator_down.max(self.now + SignedDuration::from_secs(seconds));
                self.pending.clear();
                self.look_at(self.operator_down);
            }
            Fault::ClusterDown { seconds } => self.cluster_goes_down(seconds),
            Fault::DeleteSecret(number) => {
                if let Some(slot) = self.choose_secret(number) {
                    text = format!("{text}: {slot}");
                    self.disturb_secret(&slot, Observed::Absent);
                }
            }
            Fault::CorruptSecret(number) => {
                if let Some(slot) = self.choose_secret(number) {
                    text = format!("{text}: {slot}");
                    let why = "tls.crt is no certificate".to_owned();
                    self.disturb_secret(&slot, Observed::Unreadable { why });
                }
            }
            Fault::GarbleAnnotation(number) => {
                if let Some(slot) = self.choose_secret(number)
                    && let Some(mut state) = self.snapshot.secrets[&slot].present().cloned()
                {
                    text = format!("{text}: {slot}");
                    state.not_after = Annotation::Missing;
                    self.disturb_secret(&slot, Observed::Present(state));
                }
            }
            Fault::DeleteBundle(number) => {
                if let Some(slot) = self.choose_bundle(number) {
                    text = format!("{text}: {slot}");
                    self.disturb_bundle(&slot, Observed::Absent);
                }
            }
            Fault::CorruptBundle(number) => {
                if let Some(slot) = self.choose_bundle(number)
                    && let Some(mut state) = self.snapshot.bundles[&slot].present().cloned()
                {
                    text = format!("{text}: {slot}");
                    let keep = usize::try_from(number % 2).unwrap_or(0).min(state.members.len());
                    state.members.truncate(keep);
                    state.damage.push("block 2 is no certificate".to_owned());
                    self.disturb_bundle(&slot, Observed::Present(state));
                }
            }
            Fault::LoseWrites(count) => self.lose_writes = count,
            Fault::RepeatWrite => self.repeat_write(),
            Fault::Crash(writes) => self.crash_after = Some(writes),
            Fault::ClockOff { seconds } => {
                self.clock_off = (seconds, self.now + SignedDuration::from_hours(1));
                self.stir();
            }
            Fault::NodeJoins => self.node_joins(&mut text),
            Fault::NodeLeaves => self.node_leaves(&mut text),
            Fault::ServiceComes => {
                let (slot, service) = service(usize::try_from(self.names).unwrap_or(0));
                self.names += 1;
                text = format!("{text}: {slot}");
                self.snapshot.services.insert(slot, service);
                self.rebuild();
                self.stir();
            }
            Fault::ServiceGoes => {
                if let Some(slot) = self.snapshot.services.keys().next().cloned() {
                    text = format!("{text}: {slot}");
                    self.snapshot.services.remove(&slot);
                    self.snapshot.secrets.remove(&slot);
                    self.rebuild();
                }
            }
            Fault::PolicyEdit(number) => {
                let keys = KeySpec::ALL;
                let key = keys[usize::try_from(number % keys.len() as u64).unwrap_or(0)];
                text = format!("{text}: {key}");
                self.snapshot.policy = Observed::Present(Policy { defaults: Some(key), ..Policy::default() });
                self.stir();
            }
            Fault::PolicyUnreadable { seconds } => {
                let why = "spec.defaults is garbled".to_owned();
                self.snapshot.policy = Observed::Unreadable { why };
                self.at(self.now + SignedDuration::from_secs(seconds), Event::PolicyReadable);
                self.stir();
            }
            Fault::Force(number) => {
                if let Some(row) = self.choose_row(number) {
                    text = format!("{text}: {row}");
                    self.snapshot.settings.forced.insert(row, format!("drill {}", self.now));
                    self.stir();
                }
            }
        }
        self.outcome.tell(self.now, Happening::Fault, text);
    }

    fn cluster_goes_down(&mut self, seconds: i64) {
        self.cluster_down = self.cluster_down.max(self.now + SignedDuration::from_secs(seconds));
        self.pending.clear();
        self.look_at(self.cluster_down);
        // Every process starts with what is there when the power returns.
        let all: Vec<_> = self.world.processes.iter().map(|it| (it.key(), it.reads.clone())).collect();
        for (key, reads) in all {
            match reads {
                Reads::Again { .. } | Reads::Requests => {
                    let at = self.cluster_down + self.chance.seconds(1, 120);
                    self.at(at, Event::Load(key.0, key.1, key.2));
                }
                Reads::AtRestart { .. } | Reads::From { .. } | Reads::Once => {}
            }
        }
    }

    /// The second of two equal writes meets a newer version of the object and fails: there is nothing to do.
    fn repeat_write(&mut self) {
        if let Some(step) = self.pending.front().cloned() {
            self.touched.insert(step.object);
        }
    }

    fn disturb_secret(&mut self, slot: &Slot, state: Observed<crate::rules::SecretState>) {
        if state.present().is_none() {
            self.key_is_lost(slot);
        }
        self.snapshot.secrets.insert(slot.clone(), state);
        self.touched.insert(slot.object_text().to_owned());
        self.stir();
    }

    /// Whoever knows only this signer, and reads again after longer than its certificates live, cannot be saved.
    fn key_is_lost(&mut self, slot: &Slot) {
        let wiring = self.planner.wiring();
        let signers = wiring.catalog.rows.iter().filter(|row| row.usage == Usage::Signer && row.day == Day::Two);
        let Some(signer) = signers.into_iter().find(|row| home_slot(row, &Instance::Cluster) == *slot) else { return };
        let signed = wiring.row(signer.id).map(|wired| wired.signs.clone()).unwrap_or_default();
        for edge in wiring.edges().iter().filter(|edge| signed.contains(&edge.row)) {
            let is_slow = match edge.edge.verifier.delivery {
                Delivery::Reloaded { within } => within > Span::days(1),
                Delivery::Never => true,
                Delivery::Revisioned | Delivery::Relayed { .. } | Delivery::Indirect => false,
            };
            if is_slow {
                self.lost.insert(edge.name.clone());
            }
        }
    }

    /// Whether it is one of the edges that nothing could save, for whatever instance.
    fn is_lost(&self, edge: &str) -> bool {
        self.lost.iter().any(|lost| edge.starts_with(lost.as_ref()))
    }

    fn disturb_bundle(&mut self, slot: &Slot, state: Observed<crate::rules::BundleState>) {
        self.snapshot.bundles.insert(slot.clone(), state);
        self.touched.insert(slot.object_text().to_owned());
        self.stir();
    }

    fn choose_secret(&mut self, number: u64) -> Option<Slot> {
        let present: Vec<&Slot> = self
            .snapshot
            .secrets
            .iter()
            .filter(|(slot, state)| !slot.is_file() && state.present().is_some())
            .map(|(slot, _)| slot)
            .collect();
        Chance::new(number).pick(&present).map(|slot| (*slot).clone())
    }

    /// A bundle that can be made again: those of the installation cannot.
    fn choose_bundle(&mut self, number: u64) -> Option<Slot> {
        let wiring = self.planner.wiring();
        let bundles = wiring.catalog.bundles.iter().filter(|bundle| bundle.day == Day::Two);
        let ours = bundles.filter_map(|bundle| wiring.bundle(bundle.id));
        let slots: Vec<Slot> = ours
            .flat_map(|it| [it.home.clone()].into_iter().chain(it.copies.iter().map(|(slot, _)| slot.clone())))
            .collect();
        Chance::new(number).pick(&slots).cloned()
    }

    fn choose_row(&self, number: u64) -> Option<String> {
        let catalog: &Catalog = self.planner.wiring().catalog;
        let rows: Vec<&str> = catalog.rows.iter().filter(|row| row.day == Day::Two).map(|row| row.id).collect();
        Chance::new(number).pick(&rows).map(ToString::to_string)
    }

    fn node_joins(&mut self, text: &mut String) {
        if self.snapshot.nodes.len() >= 5 {
            return;
        }
        let name = format!("master-{}", self.names);
        *text = format!("{text}: {name}");
        self.snapshot.nodes.insert(name, vec![node_address(usize::try_from(self.names).unwrap_or(0))]);
        self.names += 1;
        self.rebuild();
        // Its static pods are started like any others.
        let operands: Vec<Arc<str>> = self.world.operands.keys().cloned().collect();
        operands.iter().for_each(|operand| self.dirty(operand));
        self.stir();
    }

    fn node_leaves(&mut self, text: &mut String) {
        if self.snapshot.nodes.len() <= 3 {
            return;
        }
        if let Some(name) = self.snapshot.nodes.keys().next().cloned() {
            *text = format!("{text}: {name}");
            self.snapshot.nodes.remove(&name);
            self.rebuild();
            self.stir();
        }
    }
}

impl super::world::Process {
    fn key(&self) -> (Arc<str>, Side, Slot) {
        (self.name.clone(), self.side, self.slot.clone())
    }
}

/// A time in which something was off that everything depends on.
fn excuse(scheduled: &Scheduled) -> Option<(Timestamp, Timestamp)> {
    match scheduled.fault {
        Fault::OperatorDown { seconds } | Fault::ClusterDown { seconds } if seconds > 4 * 86_400 => {
            Some((scheduled.at, scheduled.at + SignedDuration::from_secs(seconds)))
        }
        _ => None,
    }
}

fn cluster() -> ClusterFacts {
    ClusterFacts {
        service_domain: "cluster.local".to_owned(),
        api_external: Some(Host::Dns("api.simulated.test".to_owned())),
        api_internal: Some(Host::Dns("api-int.simulated.test".to_owned())),
        service_networks: "172.30.0.0/16".parse().into_iter().collect(),
        api_vips: Vec::new(),
        bootstrap_provisioning: None,
    }
}

fn node_address(number: usize) -> std::net::IpAddr {
    let [high, low] = u16::try_from(number + 4).unwrap_or(u16::MAX).to_be_bytes();
    std::net::IpAddr::from([10, 0, high, low])
}

fn service(number: usize) -> (Slot, Service) {
    let object = ObjectName { namespace: "shop".to_owned(), name: format!("web-{number}-tls") };
    (Slot::tls(&object), Service { name: format!("web-{number}"), headless: number % 3 == 2 })
}

/// A time in the two largest of its units.
pub(super) fn span(span: SignedDuration) -> String {
    let seconds = span.as_secs();
    match (seconds / 86_400, seconds % 86_400 / 3600, seconds % 3600 / 60) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}
