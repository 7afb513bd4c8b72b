//! The index of all Services that ask for a certificate. It keeps only the data that decisions need.

mod state;
mod summary;
mod watched;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use perennial_core::catalog::ObjectName;
use perennial_core::plan::REMEMBERED_ISSUES;
use perennial_core::service_ca::{Class, Presented};
use perennial_core::serving::{Annotations, Changes, Obstacle, Request};
use perennial_core::snapshot::Service;

use crate::controller::Turn;
use crate::watch::PROBLEM_LASTS;
use tokio::time::Instant;

/// The Services that ask for a certificate, by namespace and name.
#[derive(Debug, Default)]
pub struct Index {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    services: BTreeMap<ObjectName, Entry>,
    /// The Services that ask for each Secret.
    wanted: BTreeMap<ObjectName, BTreeSet<String>>,
    /// The classes of the certificates in use. Every client judges the certificates of one class equally.
    classes: BTreeSet<Arc<Class>>,
    /// The times of the last certificates that were issued here for each Service, by namespace and uid. A change to another Secret,
    /// or a request that is removed and added again, does not reset the circuit breaker.
    issues: BTreeMap<(String, String), Vec<Timestamp>>,
    /// The number of entries in `issues` after the last removal of old entries.
    issues_kept: usize,
    /// The Services that must be reconciled at a given time, by time.
    times: BTreeSet<(Timestamp, ObjectName)>,
    /// The Services that wait for the operator, by the start of the wait; the longest wait first.
    waiting: BTreeSet<(Timestamp, ObjectName)>,
    /// The number of Services that get no certificate until their owner acts.
    blocked: usize,
    /// The number of Services that the operator has not reconciled since the Service or the CA changed.
    backlog: usize,
    services_heard: Heard,
    secrets_heard: Heard,
    /// The Secrets that exist, while the first lists are incomplete, as hashes of their names. The index does not store the names,
    /// because the Secrets belong to other owners.
    seen: HashSet<u64>,
    /// True after both first lists are complete and the index has marked each missing Secret as absent.
    is_settled: bool,
    /// The last error of each list and its time, by the name of the list.
    problems: BTreeMap<&'static str, (String, Instant)>,
    /// True once the operator has reconciled every Service at least once. Services that are created later do not reset this flag.
    was_known: bool,
}

/// The progress of a list.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Heard {
    /// The number of the current list.
    round: u32,
    /// True after at least one list was complete.
    is_whole: bool,
}

/// The maximum number of blocked Services that a condition names.
const NAMED: usize = 10;

/// The operator re-issues a certificate that expires within this time before other certificates of its namespace.
const SOON: SignedDuration = SignedDuration::from_hours(24);

/// A Service that asks for a certificate.
#[derive(Debug, Clone)]
struct Entry {
    request: Result<Request, Box<Obstacle>>,
    uid: String,
    headless: bool,
    /// The annotations that the operator writes on the Service, as last observed or written.
    written: Annotations,
    secret: Secret,
    /// The last version of its Secret that the watch reported. The empty string means that the Secret exists in an unknown version.
    heard: Option<Box<str>>,
    /// The class of its current certificate, and when the certificate expires.
    class: Option<(Arc<Class>, Timestamp)>,
    /// The classes of earlier certificates that its pods may still present, each with the last instant of its use.
    past: Box<[(Arc<Class>, Timestamp)]>,
    /// The next time at which the Service must be reconciled even if no object changes.
    next: Timestamp,
    /// The reason why the Service is blocked, if it is blocked.
    blocked: Option<Box<str>>,
    /// The wait for the operator, if the Service waits for the operator.
    waiting: Option<Wait>,
    /// True if the operator has reconciled the Service at least once.
    is_known: bool,
    look: Look,
    round: u32,
    secret_round: u32,
}

/// A wait of a Service for the operator, not for its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    /// The start of the wait.
    pub(super) since: Timestamp,
    /// A label for the reason of the wait, from a small fixed set.
    pub(super) label: &'static str,
    /// The reason of the wait, as a sentence without timestamps.
    pub(super) why: Box<str>,
}

/// The state of the reconciliation of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// The operator does not reconcile the Service now.
    No,
    /// A reconciliation is in progress.
    UnderWay,
    /// A reconciliation is in progress, and the watch has reported an event of the Secret meanwhile. The event may be the write of
    /// this reconciliation.
    Overtaken,
}

/// The knowledge about a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Secret {
    /// Nothing is known.
    Unknown,
    /// The Secret does not exist.
    Absent,
    /// The Secret was correct in this version.
    Right(Box<str>),
}

/// The input of the reconciliation of one Service.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) request: Result<Request, Box<Obstacle>>,
    pub(super) service: Service,
    pub(super) written: Annotations,
    pub(super) issues: Vec<Timestamp>,
    /// True if its Secret probably does not exist.
    pub(super) is_probably_absent: bool,
    /// The last version of its Secret that the watch reported or the operator wrote, if any.
    pub(super) version: Option<Box<str>>,
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if both lists are complete: the Services that ask for a certificate, and the Secrets.
    pub fn is_heard(&self) -> bool {
        self.lock().is_heard()
    }

    /// Records the error of a list, or that the list succeeded again.
    pub(super) fn hears(&self, what: &'static str, problem: Option<String>) {
        let mut state = self.lock();
        match problem {
            Some(problem) => drop(state.problems.insert(what, (problem, Instant::now()))),
            None => drop(state.problems.remove(what)),
        }
    }

    /// Returns the recent errors of the lists that fail.
    pub fn problems(&self) -> Vec<String> {
        let state = self.lock();
        let lasting = state.problems.values().filter(|(_, failed)| failed.elapsed() < PROBLEM_LASTS);
        lasting.map(|(problem, _)| problem.clone()).collect()
    }

    /// True if Services or Secrets cannot be watched.
    pub(super) fn has_problem(&self) -> bool {
        !self.problems().is_empty()
    }

    /// Returns a Service that asks for a certificate.
    pub(super) fn service_of(&self, name: &ObjectName) -> Option<Service> {
        Some(self.lock().services.get(name)?.service(name))
    }

    /// Starts the reconciliation of a Service and returns its input; none if the Service no longer asks for a certificate.
    pub(super) fn subject(&self, name: &ObjectName) -> Option<Subject> {
        let mut state = self.lock();
        let state = &mut *state;
        let entry = state.services.get_mut(name)?;
        entry.look = Look::UnderWay;
        let issues = state.issues.get(&(name.namespace.clone(), entry.uid.clone())).cloned().unwrap_or_default();
        Some(Subject {
            request: entry.request.clone(),
            service: entry.service(name),
            written: entry.written.clone(),
            issues,
            is_probably_absent: entry.has_no_secret(),
            version: match &entry.secret {
                Secret::Right(version) => Some(version.clone()),
                Secret::Unknown | Secret::Absent => entry.heard.clone().filter(|heard| !heard.is_empty()),
            },
        })
    }

    /// Returns the turn of a Service in its namespace: urgent if the Service is not blocked and has no certificate, or one that
    /// expires soon.
    pub(super) fn turn(&self, name: &ObjectName, now: Timestamp) -> Turn {
        let state = self.lock();
        let Some(entry) = state.services.get(name) else { return Turn::Usual };
        let expires_soon = entry.class.as_ref().is_some_and(|(_, end)| now.duration_until(*end) < SOON);
        match entry.blocked.is_none() && (entry.has_no_secret() || expires_soon) {
            true => Turn::Urgent,
            false => Turn::Usual,
        }
    }

    /// Records the annotations that the operator is about to write on a Service, so that the watch event of the write starts no
    /// reconciliation.
    pub(super) fn expect(&self, name: &ObjectName, uid: &str, changes: &Changes) {
        let mut state = self.lock();
        let Some(entry) = state.services.get_mut(name).filter(|entry| entry.uid == uid) else { return };
        for (key, value) in changes {
            match value {
                Some(value) => drop(entry.written.insert(key.clone(), value.clone())),
                None => drop(entry.written.remove(key)),
            }
        }
    }

    /// Records the result of the reconciliation of a Service.
    pub(super) fn found(&self, name: &ObjectName, uid: &str, found: Found) {
        let state = &mut *self.lock();
        if state.services.get(name).is_none_or(|entry| entry.uid != uid) {
            return;
        }
        // A Secret that belongs to another owner or cannot be read has no class, so its Service represents no other Service.
        let (class, past) = match found.presents {
            Presents::Unknown => {
                let known = state.services.get(name).map(|entry| (entry.class.clone(), entry.past.clone()));
                known.unwrap_or_default()
            }
            Presents::These(presented) => {
                let mut classes = presented.into_iter().map(|it| (state.class(it.class), it.until));
                (classes.next(), classes.collect())
            }
        };
        let Some(entry) = state.services.get_mut(name) else { return };
        entry.is_known = true;
        let was_blocked = std::mem::replace(&mut entry.blocked, found.blocked.map(String::into_boxed_str)).is_some();
        state.blocked = state.blocked + usize::from(entry.blocked.is_some()) - usize::from(was_blocked);
        let since = entry.waiting.as_ref().map(|wait| wait.since);
        since.into_iter().for_each(|since| _ = state.waiting.remove(&(since, name.clone())));
        entry.waiting = found.waiting.map(|wait| Wait { since: since.unwrap_or(wait.since), ..wait });
        state.waiting.extend(entry.waiting.as_ref().map(|wait| (wait.since, name.clone())));
        state.times.remove(&(entry.next, name.clone()));
        // A plan is made for a whole second: at a fraction before, the Service would be due at once again.
        entry.next = next_whole_second(found.next);
        if entry.next < Timestamp::MAX {
            state.times.insert((entry.next, name.clone()));
        }
        let before = std::mem::replace(&mut entry.class, class);
        let past = std::mem::replace(&mut entry.past, past);
        if let Some(at) = found.issued_at {
            let issues = state.issues.entry((name.namespace.clone(), uid.to_owned())).or_default();
            issues.push(at);
            let forgotten = issues.len().saturating_sub(REMEMBERED_ISSUES);
            issues.drain(..forgotten);
        }
        entry.written = found.written.unwrap_or_else(|| std::mem::take(&mut entry.written));
        if let Some(version) = found.version {
            entry.secret = Secret::Right(version.into_boxed_str());
        }
        state.release(before.into_iter().chain(past));
        found.issued_at.into_iter().for_each(|at| state.forget_issues(at));
    }

    /// Ends the reconciliation of a Service. Returns true if the watch has meanwhile reported a version of the Secret that the
    /// reconciliation does not know.
    pub(super) fn ended(&self, name: &ObjectName) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.services.get_mut(name) else { return false };
        let is_known = matches!((&entry.secret, &entry.heard), (Secret::Right(seen), Some(heard)) if seen == heard);
        std::mem::replace(&mut entry.look, Look::No) == Look::Overtaken && !is_known
    }

    /// Returns the Services whose time to be reconciled has come, and clears their times.
    pub(super) fn due(&self, now: Timestamp) -> Vec<ObjectName> {
        let state = &mut *self.lock();
        let mut due = Vec::new();
        while let Some((at, name)) = state.times.pop_first() {
            if now < at {
                state.times.insert((at, name));
                break;
            }
            state.services.get_mut(&name).into_iter().for_each(|entry| entry.next = Timestamp::MAX);
            due.push(name);
        }
        due
    }

    /// Returns the next time at which [`due`](Self::due) returns a Service.
    pub(super) fn next(&self) -> Timestamp {
        self.lock().times.first().map_or(Timestamp::MAX, |(at, _)| *at)
    }

    /// Returns the names of all Services that ask for a certificate.
    pub(super) fn names(&self) -> Vec<ObjectName> {
        self.lock().services.keys().cloned().collect()
    }
}

/// The certificates that the pods of a Service may present.
#[derive(Debug, Default)]
pub(super) enum Presents {
    /// The operator could not read the certificates. The earlier ones probably still apply.
    #[default]
    Unknown,
    /// The certificate in its Secret first, then earlier ones that its pods may still present. Empty if the Secret belongs to
    /// another owner or cannot be read.
    These(Vec<Presented>),
}

/// The result of the reconciliation of a Service.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) presents: Presents,
    /// When the operator issued a certificate, if it issued one.
    pub(super) issued_at: Option<Timestamp>,
    /// The version of its Secret, if the Secret is correct.
    pub(super) version: Option<String>,
    /// The annotations that the operator has on the Service now, if they are known.
    pub(super) written: Option<Annotations>,
    /// The reason why the Service is blocked, if it is blocked.
    pub(super) blocked: Option<String>,
    /// The wait for the operator, if the Service waits for the operator.
    pub(super) waiting: Option<Wait>,
    pub(super) next: Timestamp,
}

/// Returns the first whole second that is not before an instant.
fn next_whole_second(at: Timestamp) -> Timestamp {
    let fraction = i64::from(at.subsec_nanosecond() != 0);
    Timestamp::from_second(at.as_second().saturating_add(fraction)).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests;
