//! Connections between processes: which verifier rejects which presenter, since when, and which fault excuses it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::judge::{Case, Content, accepts};
use super::super::outcome::{Happening, Outage, Violation};
use super::super::words;
use super::super::world::{Process, Reads};
use super::super::{Fault, Scheduled};
use super::{Run, later};
use crate::catalog::index::home_slot;
use crate::catalog::{Day, Delivery, Instance};
use crate::policy::Usage;
use crate::snapshot::Slot;

/// How long an outage may last after Perennial runs again, in addition to the reload time of processes.
pub(super) const HEALS_WITHIN: SignedDuration = SignedDuration::from_hours(6);
/// A stop longer than this is an excuse: everything has at least this reserve.
const SLACK: i64 = 4 * 86_400;

/// The connections on edges, by name.
#[derive(Debug, Default)]
pub(super) struct Meetings {
    /// Outages that continue, by their number.
    open: HashMap<Arc<str>, usize>,
    /// Edges with an expired certificate that cannot be renewed.
    ended: BTreeSet<Arc<str>>,
    /// Edges on which all verifiers have accepted all presenters once.
    was_up: BTreeSet<Arc<str>>,
    /// Edges that cannot be repaired.
    lost: BTreeMap<Arc<str>, Vec<Lost>>,
    /// Outages that began with an expired certificate: a lost key alone does not excuse them.
    of_ends: BTreeSet<usize>,
    /// How long the processes of an edge with an outage need to reload.
    reload_times: HashMap<String, SignedDuration>,
}

/// Why an edge cannot be repaired: a signer's key was lost, or its break was reported and excused.
#[derive(Debug)]
struct Lost {
    /// When that happened.
    since: Timestamp,
    /// When the last process has loaded the replacement.
    until: Timestamp,
}

/// The result of the connections on an edge.
enum Meeting {
    /// Not all processes have started yet.
    NotStarted,
    Fine,
    Refused {
        what: String,
        /// True if the presented certificate has expired.
        has_ended: bool,
    },
}

impl Meetings {
    pub(super) fn lose(&mut self, edge: Arc<str>, since: Timestamp, until: Timestamp) {
        self.lost.entry(edge).or_default().push(Lost { since, until });
    }

    /// Returns true if the edge cannot be repaired before this time.
    fn is_lost(&self, edge: &str, at: Timestamp) -> bool {
        self.lost.get(edge).into_iter().flatten().any(|lost| at <= lost.until)
    }

    /// Returns true if a certificate from that time cannot be replaced without breaking the edge. Only certificates of a lost key, or
    /// of one before it, are excused, and none that came later.
    pub(super) fn cannot_follow(&self, edge: &str, began: Timestamp, now: Timestamp) -> bool {
        self.lost.get(edge).into_iter().flatten().any(|lost| began <= lost.since && now <= lost.until)
    }
}

impl Case {
    /// Returns how long its processes need to load a write, and the write that follows from it.
    pub(super) fn reload_time(&self) -> SignedDuration {
        let lag = |delivery: Delivery| match delivery {
            Delivery::Reloaded { within } | Delivery::Relayed { within } => {
                SignedDuration::from_secs(within.as_seconds())
            }
            Delivery::Revisioned | Delivery::Never | Delivery::Indirect => SignedDuration::ZERO,
        };
        lag(self.verifier) + lag(self.presenter) + HEALS_WITHIN
    }
}

impl Run<'_, '_> {
    pub(super) fn check_process(&mut self, process: usize) {
        for number in 0..self.world.processes[process].cases.len() {
            self.check(self.world.processes[process].cases[number]);
        }
    }

    /// Checks whether all verifiers on an edge accept all presenters now.
    fn check(&mut self, number: usize) {
        let meeting = self.meet(number);
        let case = &self.world.cases[number];
        let edge = case.name.clone();
        // Until all processes have started once, there is no outage.
        if matches!(meeting, Meeting::Fine) && !self.meetings.was_up.contains(&edge) {
            self.meetings.was_up.insert(edge.clone());
        }
        if !self.meetings.was_up.contains(&edge) {
            return;
        }
        match (meeting, self.meetings.open.get(&edge).copied()) {
            (Meeting::Refused { what, has_ended }, None) => {
                self.meetings.reload_times.insert(edge.to_string(), case.reload_time());
                if has_ended {
                    self.meetings.of_ends.insert(self.outcome.outages.len());
                }
                self.outcome.record(
                    self.now,
                    Happening::Trust,
                    format!("{}: {what}", edge.replacen(" accepts ", " rejects ", 1)),
                );
                let outage = Outage { edge: edge.to_string(), from: self.now, to: None, what };
                self.meetings.open.insert(edge, self.outcome.outages.len());
                self.outcome.outages.push(outage);
            }
            (Meeting::Fine | Meeting::NotStarted, Some(outage)) => self.close(&edge, outage),
            (Meeting::Refused { .. }, Some(_)) | (Meeting::Fine | Meeting::NotStarted, None) => {}
        }
    }

    fn close(&mut self, edge: &Arc<str>, outage: usize) {
        self.meetings.open.remove(edge);
        let outage = &mut self.outcome.outages[outage];
        outage.to = Some(self.now);
        let lasted = words::span(outage.from.duration_until(self.now));
        self.outcome.record(self.now, Happening::Trust, format!("{edge} again, after {lasted}"));
    }

    /// Closes the outages of edges with a node or Service that no longer exists.
    pub(super) fn close_gone(&mut self) {
        let there: BTreeSet<&Arc<str>> = self.world.cases.iter().map(|case| &case.name).collect();
        let gone: Vec<_> = self.meetings.open.iter().filter(|(edge, _)| !there.contains(edge)).collect();
        let mut gone: Vec<(Arc<str>, usize)> = gone.into_iter().map(|(edge, outage)| (edge.clone(), *outage)).collect();
        gone.sort();
        gone.iter().for_each(|(edge, outage)| self.close(edge, *outage));
    }

    fn meet(&mut self, number: usize) -> Meeting {
        let case = &self.world.cases[number];
        let (verifiers, presenters) = &self.world.pairs[number];
        let there = |number: &usize| Some(&self.world.processes[*number]).filter(|it| !it.content.is_empty());
        let (mut refused, mut met, mut has_ended) = (None, false, false);
        for verifier in verifiers.iter().filter_map(there) {
            for presenter in presenters.iter().filter_map(there) {
                if accepts(&verifier.content, &presenter.content, case.purpose, &case.hosts, self.now) {
                    met = true;
                } else if [verifier, presenter].iter().any(|it| is_over(it, self.now)) {
                    has_ended = true;
                } else {
                    refused = Some((verifier, presenter));
                }
            }
        }
        let refused = refused.map(|(verifier, presenter)| {
            let (held, presented) = (words::content(&verifier.content), words::content(&presenter.content));
            let what =
                format!("{}, which holds [{held}], rejects {} with [{presented}]", verifier.name, presenter.name);
            let has_ended = presenter.content.first().is_some_and(|leaf| leaf.validity.not_after < self.now);
            Meeting::Refused { what, has_ended }
        });
        if has_ended && self.meetings.ended.insert(case.name.clone()) {
            let text = format!("{}: expired, and cannot be renewed", case.name);
            self.outcome.record(self.now, Happening::Ended, text);
        }
        match refused {
            Some(refused) => refused,
            None if met => Meeting::Fine,
            None => Meeting::NotStarted,
        }
    }

    /// Judges the outages. A long stop of Perennial or the cluster excuses an outage, and only for as long as the repair takes.
    pub(super) fn judge_outages(&mut self) {
        let excuses = excuses(&self.script);
        for (number, outage) in self.outcome.outages.clone().into_iter().enumerate() {
            let reload_time = self.meetings.reload_times.get(&outage.edge).copied().unwrap_or(HEALS_WITHIN);
            let excuse =
                excuses.iter().rev().find(|(from, to)| *from <= outage.from && outage.from <= later(*to, reload_time));
            let limit = excuse.map_or(outage.from, |(_, to)| later(*to, reload_time));
            let end = outage.to.unwrap_or(self.end);
            // A certificate that expired without an excuse should have been replaced, lost key or not.
            let may_be_lost = excuse.is_some() || !self.meetings.of_ends.contains(&number);
            let is_lost = may_be_lost && self.meetings.is_lost(&outage.edge, end);
            if end <= limit || is_lost {
                continue;
            }
            let by = if excuse.is_some() { "it was not repaired in time" } else { "no fault excuses it" };
            let lasts = match outage.to {
                Some(to) => format!("until {}", words::minute(to)),
                None => "to the end".to_owned(),
            };
            let what = format!("{} from {} {lasts}", outage.what, words::minute(outage.from));
            let violation = Violation { at: outage.from, edge: outage.edge, by: by.to_owned(), what };
            self.outcome.record(violation.at, Happening::Violation, violation.sentence());
            self.outcome.violations.push(violation);
        }
    }

    /// Records that clients which know only an adopted service CA, and reload after it expires, cannot be repaired.
    pub(super) fn lose_clients_of_adopted_ca(&mut self, left: SignedDuration) {
        let signed =
            self.planner.wiring().row(crate::service_ca::ROW).map(|wired| wired.signs.clone()).unwrap_or_default();
        for case in self.world.cases.iter().filter(|case| signed.contains(&case.row)) {
            let until = later(self.now, left + case.reload_time());
            self.meetings.lost.entry(case.name.clone()).or_default().push(Lost { since: self.now, until });
        }
    }

    /// Records that clients which know only this signer, and reload after its certificates expire, cannot be repaired.
    pub(super) fn key_is_lost(&mut self, slot: &Slot) {
        let wiring = self.planner.wiring();
        let mut signers = wiring.catalog.rows.iter().filter(|row| row.usage == Usage::Signer && row.day == Day::Two);
        let Some(signer) = signers.find(|row| home_slot(row, &Instance::Cluster) == *slot) else { return };
        let signed = wiring.row(signer.id).map(|wired| wired.signs.as_slice()).unwrap_or_default();
        for case in self.world.cases.iter().filter(|case| signed.contains(&case.row)) {
            let until = match (case.verifier, case.presenter) {
                (Delivery::Never, _) => Timestamp::MAX,
                (Delivery::Reloaded { within }, presenter) if within.as_seconds() > SLACK => {
                    let presenter = presenter.within().map_or(0, |within| within.as_seconds());
                    later(self.now, HEALS_WITHIN + SignedDuration::from_secs(within.as_seconds() + presenter))
                }
                _ => continue,
            };
            self.meetings.lose(case.name.clone(), self.now, until);
        }
    }
}

/// Returns true if a certificate that cannot be renewed has expired: that is no outage of Perennial.
fn is_over(process: &Process, now: Timestamp) -> bool {
    let over = |content: &Content| content.iter().all(|it| it.validity.not_after < now);
    process.reads == Reads::Once && over(&process.content)
}

/// Returns the times in which Perennial or the cluster was stopped; consecutive ones are joined.
fn excuses(script: &[Scheduled]) -> Vec<(Timestamp, Timestamp)> {
    let mut excuses: Vec<(Timestamp, Timestamp)> = Vec::new();
    for scheduled in script {
        let (Fault::OperatorDown { seconds } | Fault::ClusterDown { seconds }) = scheduled.fault else { continue };
        let end = scheduled.at + SignedDuration::from_secs(seconds);
        match excuses.last_mut() {
            Some((_, to)) if scheduled.at <= *to + HEALS_WITHIN => *to = end.max(*to),
            _ if seconds > SLACK => excuses.push((scheduled.at, end)),
            _ => {}
        }
    }
    excuses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_key_excuses_only_certificates_that_it_had_signed() {
        let day = |number: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * number);
        let mut meetings = Meetings::default();
        meetings.lose("kubectl accepts it".into(), day(5), Timestamp::MAX);
        assert!(meetings.cannot_follow("kubectl accepts it", day(3), day(400)));
        assert!(!meetings.cannot_follow("kubectl accepts it", day(6), day(400)), "a later certificate can be replaced");
        assert!(!meetings.cannot_follow("kubectl accepts it too", day(3), day(400)), "another edge");
        meetings.lose("kubectl accepts it".into(), day(10), day(20));
        assert!(meetings.cannot_follow("kubectl accepts it", day(6), day(20)));
        assert!(!meetings.cannot_follow("kubectl accepts it", day(6), day(21)), "all processes have reloaded");
    }
}
