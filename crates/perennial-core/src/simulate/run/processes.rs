//! What processes do with a new version: reload it, restart with it, pass it on, or request a new certificate.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::judge::{Content, Side, handed_out};
use super::super::outcome::RemainingValidity;
use super::super::world::{Contents, Reads, Running, content};
use super::Run;
use super::queue::Event;
use crate::snapshot::Slot;

/// The validity of a certificate that a kubelet requests, limited by its signer's.
const REQUESTED_LIFE: SignedDuration = SignedDuration::from_hours(24 * 30);
/// How many seconds a file on a node may be behind its object.
const SYNC_WITHIN: i64 = 600;

impl Run<'_, '_> {
    /// Schedules the reload of all processes that read the slot.
    pub(super) fn spread(&mut self, side: Side, slot: &Slot) {
        let readers = self.world.readers.get(&(side, slot.clone())).cloned().unwrap_or_default();
        for number in readers {
            let process = &self.world.processes[number];
            let is_new = process.content.is_empty();
            match process.reads.clone() {
                Reads::Again { seconds } => self.soon(1, seconds, Event::Load(number)),
                Reads::AtRestart { operand, reads_file, .. } => {
                    if reads_file && !is_new {
                        self.soon(1, SYNC_WITHIN, Event::Load(number));
                    }
                    self.dirty(&operand);
                }
                Reads::Requests if is_new => self.soon(1, 120, Event::Load(number)),
                Reads::Requests | Reads::From { .. } | Reads::Once => {}
            }
        }
    }

    // Static pods

    pub(super) fn dirty(&mut self, name: &Arc<str>) {
        let Some(operand) = self.world.operands.get_mut(name) else { return };
        if !operand.is_dirty {
            operand.is_dirty = true;
            self.soon(5, 60, Event::Revision(name.clone()));
        }
    }

    /// Creates a revision with the current content of the objects; for absent or damaged ones, that of the previous revision.
    pub(super) fn revision(&mut self, name: &Arc<str>) {
        let Some(operand) = self.world.operands.get(name) else { return };
        let mut contents: Contents = operand.latest.as_ref().clone();
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
        operand.latest = Arc::new(contents);
        if !operand.is_rolling {
            operand.is_rolling = true;
            self.soon(120, 600, Event::Restart(name.clone()));
        }
    }

    /// Starts the latest revision on the next node that is behind.
    pub(super) fn restart(&mut self, name: &Arc<str>) {
        let nodes: Vec<Arc<str>> = self.snapshot.nodes.found().keys().map(|node| node.as_str().into()).collect();
        let Some(operand) = self.world.operands.get_mut(name) else { return };
        let (revision, contents) = (operand.revision, operand.latest.clone());
        let runs = |node: &Arc<str>| operand.nodes.get(node).is_some_and(|running| running.revision == revision);
        let mut behind = nodes.iter().filter(|node| !runs(node)).cloned();
        let Some(node) = behind.next() else {
            operand.is_rolling = false;
            return;
        };
        let is_last = behind.next().is_none();
        operand.is_rolling = !is_last;
        operand.nodes.insert(node.clone(), Running { revision, since: self.now, contents: contents.clone() });
        self.outcome.restarts += 1;
        if !is_last {
            self.soon(120, 600, Event::Restart(name.clone()));
        }
        self.start(name, &node, &contents);
        // While other nodes run the old revision, the content that they pass on may be older.
        for (process, seconds, content) in self.handed_on(name, &contents) {
            if is_last || self.chance.percent(50) {
                self.soon(1, seconds, Event::Relay(process, content));
            }
        }
        self.plan_waiting_families();
    }

    /// Starts the processes of a static pod with the content of its revision, or of their files.
    fn start(&mut self, name: &Arc<str>, node: &Arc<str>, contents: &Contents) {
        for number in 0..self.world.processes.len() {
            let process = &self.world.processes[number];
            let Reads::AtRestart { operand, node: on, reads_file } = &process.reads else { continue };
            if operand != name || on != node {
                continue;
            }
            let of_file = || content(&self.snapshot, process.side, &process.slot).filter(|_| *reads_file);
            let of_revision = || contents.get(&(process.side, process.slot.clone())).cloned();
            if let Some(content) = of_file().or_else(of_revision) {
                self.take(number, content);
            }
        }
    }

    /// Returns the processes to which an operand passes on content: within how many seconds, and which content.
    fn handed_on(&self, name: &Arc<str>, contents: &Contents) -> Vec<(usize, i64, Content)> {
        let told = |(number, process): (usize, &super::super::world::Process)| match &process.reads {
            Reads::From { operand, seconds } if operand == name => {
                let content = contents.get(&(process.side, process.slot.clone()))?;
                Some((number, *seconds, content.clone()))
            }
            _ => None,
        };
        self.world.processes.iter().enumerate().filter_map(told).collect()
    }

    /// Starts the static pods of a node again with their previous revision.
    pub(super) fn boot(&mut self, node: &Arc<str>) {
        let mut started: Vec<(Arc<str>, Arc<Contents>)> = Vec::new();
        for (name, operand) in &mut self.world.operands {
            if let Some(running) = operand.nodes.get_mut(node) {
                running.since = self.now;
                started.push((name.clone(), running.contents.clone()));
            }
        }
        for (name, contents) in started {
            self.start(&name, node, &contents);
            for (process, seconds, content) in self.handed_on(&name, &contents) {
                self.soon(1, seconds, Event::Relay(process, content));
            }
        }
        self.plan_waiting_families();
    }

    // Others

    pub(super) fn load(&mut self, number: usize) {
        let process = &self.world.processes[number];
        if !process.is_there {
            return;
        }
        if process.reads == Reads::Requests {
            return self.request(number);
        }
        // A process ignores absent or damaged content and keeps what it has.
        if let Some(content) = content(&self.snapshot, process.side, &process.slot) {
            self.take(number, content);
        }
    }

    pub(super) fn take(&mut self, number: usize, content: Content) {
        let process = &mut self.world.processes[number];
        if !process.is_there {
            return;
        }
        let old = std::mem::replace(&mut process.content, content);
        if let (Side::Presented, Some(leaf)) = (process.side, old.first()) {
            let left = self.now.duration_until(leaf.validity.not_after).as_secs();
            self.note_closest(number, left);
        }
        self.watch_end(number);
        self.check_process(number);
    }

    fn note_closest(&mut self, number: usize, left: i64) {
        for case in &self.world.processes[number].cases {
            let name = &self.world.cases[*case].name;
            let call = RemainingValidity { at: self.now, left };
            match self.outcome.shortest_validity.get_mut(name.as_ref()) {
                Some(known) if known.left <= left => {}
                Some(known) => *known = call,
                None => drop(self.outcome.shortest_validity.insert(name.to_string(), call)),
            }
        }
    }

    /// Requests a kubelet's certificate from the current signer; it is renewed when most of its validity has passed.
    fn request(&mut self, number: usize) {
        let slot = &self.world.processes[number].slot;
        let signer = content(&self.snapshot, Side::Presented, slot).and_then(|content| content.first().cloned());
        let Some(signer) = signer.filter(|signer| signer.is_valid_at(self.now)) else {
            return self.soon(60, 600, Event::Load(number));
        };
        let end = (self.now + REQUESTED_LIFE).min(signer.validity.not_after);
        let begin = (self.now - SignedDuration::from_mins(5)).max(signer.validity.not_before);
        let life = self.now.duration_until(end).as_secs();
        self.take(number, Content::from([Arc::new(handed_out(&signer, begin, end))]));
        // No process requests more often than once a minute, however short the validity.
        self.soon((life * 7 / 10).max(60), (life * 9 / 10).max(120), Event::Load(number));
    }

    /// Schedules a check of the process for when one of its certificates expires.
    pub(super) fn watch_end(&mut self, number: usize) {
        let ends = self.world.processes[number].content.iter().filter_map(|it| it.validity.first_after());
        let ends: BTreeSet<Timestamp> = ends.filter(|end| self.now < *end && *end < self.end).collect();
        ends.into_iter().for_each(|end| self.queue.push(end, Event::Check(number)));
    }
}
