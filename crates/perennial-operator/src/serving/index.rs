//! The index of all Services that ask for a certificate. It keeps only the data that decisions need.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Service as KubeService;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::catalog::{ObjectName, TimeScale};
use perennial_core::conditions::{BACKLOG, Services, WaitingService};
use perennial_core::key::KeySpec;
use perennial_core::plan::{BREAKER_WINDOW, REMEMBERED_ISSUES};
use perennial_core::service_ca::{self, Class, Presented};
use perennial_core::serving::{self, Annotations, Changes, Obstacle, Request};
use perennial_core::snapshot::{Service, Slot};

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

    /// Starts a new list of all Services.
    ///
    /// This method and the following ones return the Services that the operator must reconcile.
    pub(super) fn services_begin(&self) -> Vec<ObjectName> {
        self.lock().services_heard.round += 1;
        Vec::new()
    }

    /// Ends the list of Services: removes and returns the Services that are not in the list.
    pub(super) fn services_end(&self) -> Vec<ObjectName> {
        let state = &mut *self.lock();
        state.services_heard.is_whole = true;
        let round = state.services_heard.round;
        let gone: Vec<ObjectName> =
            state.services.iter().filter(|(_, entry)| entry.round != round).map(|(name, _)| name.clone()).collect();
        gone.iter().for_each(|name| state.remove(name));
        state.know_absent();
        gone
    }

    /// Records a new or changed Service. Returns its name if the operator must reconcile the Service.
    pub(super) fn service(&self, service: KubeService) -> Option<ObjectName> {
        let name = name_of(&service.metadata);
        let annotations = service.metadata.annotations.unwrap_or_default();
        let state = &mut *self.lock();
        let Some(request) = Request::of(&annotations) else {
            let was_there = state.services.contains_key(&name);
            state.remove(&name);
            return was_there.then_some(name);
        };
        let request = request.map_err(Box::new);
        let uid = service.metadata.uid.unwrap_or_default();
        let headless = service.spec.and_then(|spec| spec.cluster_ip).as_deref() == Some("None");
        let written = serving::written(&annotations);
        let round = state.services_heard.round;
        let old = state.services.get_mut(&name);
        if let Some(old) = old.filter(|old| old.uid == uid && old.request == request) {
            // A change of the annotations that the operator writes itself needs no reconciliation. If another client removes or adds an error annotation, the
            // operator must reconcile the Service.
            let is_changed_by_others =
                old.written != written && (serving::says_error(&written) || serving::says_error(&old.written));
            let is_other = old.headless != headless || is_changed_by_others;
            (old.headless, old.written, old.round) = (headless, written, round);
            return is_other.then_some(name);
        }
        state.remove(&name);
        if let Ok(request) = &request {
            let secret = ObjectName { namespace: name.namespace.clone(), name: request.secret.clone() };
            state.wanted.entry(secret).or_default().insert(name.name.clone());
        }
        let entry = Entry {
            request,
            uid,
            headless,
            written,
            secret: Secret::Unknown,
            heard: None,
            class: None,
            past: Box::default(),
            next: Timestamp::MAX,
            blocked: None,
            waiting: None,
            is_known: false,
            look: Look::No,
            round,
            secret_round: state.secrets_heard.round,
        };
        state.services.insert(name.clone(), entry);
        Some(name)
    }

    /// Removes a deleted Service and returns its name.
    pub(super) fn service_gone(&self, service: &ObjectMeta) -> Vec<ObjectName> {
        let name = name_of(service);
        self.lock().remove(&name);
        vec![name]
    }

    /// Starts a new list of all Secrets.
    pub(super) fn secrets_begin(&self) -> Vec<ObjectName> {
        self.lock().secrets_heard.round += 1;
        Vec::new()
    }

    /// Ends the list of Secrets. Returns the Services whose Secret is no longer in the list.
    pub(super) fn secrets_end(&self) -> Vec<ObjectName> {
        let state = &mut *self.lock();
        let is_first = !state.secrets_heard.is_whole;
        state.secrets_heard.is_whole = true;
        state.know_absent();
        if is_first {
            return Vec::new();
        }
        let round = state.secrets_heard.round;
        let mut gone = Vec::new();
        for (name, entry) in &mut state.services {
            if entry.secret_round != round && entry.secret != Secret::Absent {
                (entry.secret, entry.secret_round) = (Secret::Absent, round);
                gone.push(name.clone());
            }
        }
        gone
    }

    /// Records a new or changed Secret. Returns the Services that the operator must reconcile.
    pub(super) fn secret(&self, secret: &ObjectMeta) -> Vec<ObjectName> {
        let name = name_of(secret);
        let version = secret.resource_version.as_deref().unwrap_or_default();
        let none = Annotations::new();
        let annotations = secret.annotations.as_ref().unwrap_or(&none);
        let state = &mut *self.lock();
        if !state.is_settled {
            state.seen.insert(hash(&name));
        }
        let round = state.secrets_heard.round;
        let mut changed = Vec::new();
        for service in state.wanted.get(&name).into_iter().flatten() {
            let service = ObjectName { namespace: name.namespace.clone(), name: service.clone() };
            let Some(entry) = state.services.get_mut(&service) else { continue };
            entry.secret_round = round;
            entry.heard = Some(version.into());
            let is_same = matches!(&entry.secret, Secret::Right(seen) if **seen == *version);
            // A change of a Secret that belongs to another owner does not unblock the Service. The operator retries at the
            // scheduled time.
            let stays_blocked = entry.blocked.is_some() && !serving::is_of(annotations, &entry.uid);
            if !is_same && !stays_blocked {
                entry.secret = Secret::Unknown;
                if !entry.is_overtaken() {
                    changed.push(service);
                }
            }
        }
        changed
    }

    /// Records a deleted Secret. Returns the Services that the operator must reconcile.
    pub(super) fn secret_gone(&self, secret: &ObjectMeta) -> Vec<ObjectName> {
        let name = name_of(secret);
        let state = &mut *self.lock();
        state.seen.remove(&hash(&name));
        let mut services: Vec<ObjectName> = state.wanted_by(&name);
        services.retain(|service| {
            let Some(entry) = state.services.get_mut(service) else { return false };
            (entry.secret, entry.heard) = (Secret::Absent, None);
            !entry.is_overtaken()
        });
        services
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
        entry.next = found.next;
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

    /// Returns the number of Services that ask for a certificate, and how many of them get none until their owner acts.
    pub fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.services.len(), state.blocked)
    }

    /// Returns a summary of the Services that ask for a certificate, for the conditions of the component.
    pub fn summary(&self) -> Services {
        let (all, blocked) = self.count();
        let state = self.lock();
        let why = |entry: &Entry| entry.blocked.as_deref().map(str::to_owned);
        let first_blocked = state.services.iter().filter_map(|(name, entry)| Some((name.clone(), why(entry)?)));
        let oldest = state.waiting.first().and_then(|(since, name)| {
            let why = state.services.get(name)?.waiting.as_ref()?.why.to_string();
            Some(WaitingService { name: name.clone(), since: *since, why })
        });
        let first_blocked = first_blocked.take(NAMED).collect();
        Services { all, blocked, first_blocked, waiting: state.waiting.len(), oldest, backlog: state.backlog }
    }

    /// Returns the number of Services that wait for the operator, by the label of the reason.
    pub fn waiting(&self) -> BTreeMap<&'static str, usize> {
        let state = self.lock();
        let mut counts = BTreeMap::new();
        if 0 < state.backlog {
            counts.insert("Queue", state.backlog);
        }
        let waiting = state.waiting.iter().filter_map(|(_, name)| state.services.get(name)?.waiting.as_ref());
        waiting.for_each(|wait| *counts.entry(wait.label).or_default() += 1);
        counts
    }

    /// Records the number of Services that the operator has yet to reconcile.
    pub(super) fn set_backlog(&self, backlog: usize) {
        self.lock().backlog = backlog;
    }

    /// True if a condition must report on Services: a Service waits, a Service is blocked, or the backlog is too long.
    pub(super) fn needs_attention(&self) -> bool {
        let state = self.lock();
        !state.waiting.is_empty() || 0 < state.blocked || BACKLOG < state.backlog
    }

    /// Returns when the first certificate of these Services expires; none if there are no certificates.
    pub fn first_end(&self) -> Option<Timestamp> {
        self.lock().services.values().filter_map(|entry| Some(entry.class.as_ref()?.1)).min()
    }

    /// Returns the number of certificates by kind of key. `None` stands for a kind that no policy can ask for.
    pub fn keys(&self) -> BTreeMap<Option<KeySpec>, usize> {
        let mut keys = BTreeMap::new();
        for (class, _) in self.lock().services.values().filter_map(|entry| entry.class.as_ref()) {
            *keys.entry(class.key).or_default() += 1;
        }
        keys
    }

    /// True once the operator has reconciled every Service at least once.
    pub fn is_known(&self) -> bool {
        let state = &mut *self.lock();
        state.was_known |= state.is_heard() && state.services.values().all(|entry| entry.is_known);
        state.was_known
    }

    /// Returns the Services that represent all others in a proof; none while the Services are not known.
    pub fn representatives(&self) -> Option<BTreeMap<Slot, Service>> {
        // A Service that was created later and is not reconciled yet has no certificate that matters.
        if !self.is_known() {
            return None;
        }
        let state = self.lock();
        // The owner of a blocked Service must repair its certificate. The proof does not wait for that.
        let unblocked = state.services.iter().filter(|(_, entry)| entry.blocked.is_none());
        let presented = unblocked.flat_map(|(name, entry)| {
            let all = entry.class.iter().chain(&entry.past);
            all.map(move |(class, until)| (class.as_ref(), *until, (name, entry)))
        });
        let representative = |(name, entry): (&ObjectName, &Entry)| {
            let secret = entry.request.as_ref().ok()?.secret.clone();
            let slot = Slot::tls(&ObjectName { namespace: name.namespace.clone(), name: secret });
            Some((slot, entry.service(name)))
        };
        Some(service_ca::representatives(presented).into_iter().filter_map(representative).collect())
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

impl Entry {
    fn service(&self, name: &ObjectName) -> Service {
        let family = self.request.as_ref().map(|request| request.family).unwrap_or_default();
        Service { name: name.name.clone(), headless: self.headless, uid: self.uid.clone(), family }
    }

    /// True if the Secret of the Service probably does not exist.
    ///
    /// A new Service that never had a certificate has no Secret yet. If its Secret exists after all, the attempt to create the
    /// Secret shows that.
    fn has_no_secret(&self) -> bool {
        let is_new = self.secret == Secret::Unknown && self.heard.is_none() && !serving::was_served(&self.written);
        self.secret == Secret::Absent || is_new
    }

    /// Records an event of the Secret. Returns true if the reconciliation in progress must judge the event when it ends.
    fn is_overtaken(&mut self) -> bool {
        if self.look == Look::UnderWay {
            self.look = Look::Overtaken;
        }
        self.look == Look::Overtaken
    }
}

impl State {
    /// Returns the shared copy of a class. Adds the class if it is new.
    fn class(&mut self, class: Class) -> Arc<Class> {
        match self.classes.get(&class) {
            Some(known) => known.clone(),
            None => {
                let new = Arc::new(class);
                self.classes.insert(new.clone());
                new
            }
        }
    }

    /// Removes the classes that no Service uses any more.
    fn release(&mut self, classes: impl IntoIterator<Item = (Arc<Class>, Timestamp)>) {
        for (class, _) in classes {
            if Arc::strong_count(&class) == 2 {
                self.classes.remove(&class);
            }
        }
    }

    /// Removes, from time to time, the issues that the circuit breaker no longer counts.
    fn forget_issues(&mut self, now: Timestamp) {
        if self.issues.len() < 2 * self.issues_kept.max(512) {
            return;
        }
        let window = BREAKER_WINDOW.scaled(TimeScale::FULL);
        let is_recent = |at: &Timestamp| at.duration_until(now) < window;
        self.issues.retain(|_, issues| issues.last().is_some_and(is_recent));
        self.issues_kept = self.issues.len();
    }

    fn is_heard(&self) -> bool {
        self.services_heard.is_whole && self.secrets_heard.is_whole
    }

    /// Marks each Secret that is not in the list of Secrets as absent, as soon as both lists are complete.
    fn know_absent(&mut self) {
        if !self.is_heard() || self.is_settled {
            return;
        }
        self.is_settled = true;
        for (name, entry) in &mut self.services {
            let Ok(request) = &entry.request else { continue };
            let secret = ObjectName { namespace: name.namespace.clone(), name: request.secret.clone() };
            if entry.secret == Secret::Unknown && !self.seen.contains(&hash(&secret)) {
                entry.secret = Secret::Absent;
            } else if entry.heard.is_none() {
                entry.heard = Some("".into());
            }
        }
        self.seen = HashSet::new();
    }

    fn wanted_by(&self, secret: &ObjectName) -> Vec<ObjectName> {
        let names = self.wanted.get(secret).into_iter().flatten();
        names.map(|name| ObjectName { namespace: secret.namespace.clone(), name: name.clone() }).collect()
    }

    fn remove(&mut self, name: &ObjectName) {
        let Some(entry) = self.services.remove(name) else { return };
        self.times.remove(&(entry.next, name.clone()));
        entry.waiting.iter().for_each(|wait| _ = self.waiting.remove(&(wait.since, name.clone())));
        self.blocked -= usize::from(entry.blocked.is_some());
        self.release(entry.class.into_iter().chain(entry.past));
        let Ok(request) = entry.request else { return };
        let secret = ObjectName { namespace: name.namespace.clone(), name: request.secret };
        if let Some(services) = self.wanted.get_mut(&secret) {
            services.remove(&name.name);
            if services.is_empty() {
                self.wanted.remove(&secret);
            }
        }
    }
}

fn hash(name: &ObjectName) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

fn name_of(metadata: &ObjectMeta) -> ObjectName {
    ObjectName {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use perennial_core::trust::CertificateId;
    use serde_json::json;

    use super::*;

    fn service(name: &str, uid: &str) -> KubeService {
        let asks = json!({"service.beta.openshift.io/serving-cert-secret-name": format!("{name}-tls")});
        let metadata = json!({"name": name, "namespace": "shop", "uid": uid, "annotations": asks});
        serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
    }

    fn secret(name: &str, version: &str) -> ObjectMeta {
        let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": version});
        serde_json::from_value(metadata).unwrap()
    }

    fn named(name: &str) -> ObjectName {
        ObjectName { namespace: "shop".to_owned(), name: name.to_owned() }
    }

    /// Returns an index with one Service after both lists are complete.
    fn index() -> Index {
        let index = Index::default();
        index.services_begin();
        assert_eq!(index.service(service("web", "u1")), Some(named("web")));
        index.services_end();
        index.secrets_begin();
        index.secrets_end();
        index
    }

    fn right(version: &str) -> Found {
        Found { version: Some(version.to_owned()), next: Timestamp::MAX, ..Found::default() }
    }

    #[test]
    fn what_is_written_says_nothing_new_whenever_it_is_heard() {
        let index = index();
        assert!(index.subject(&named("web")).unwrap().is_probably_absent);
        // The watch reports the write before the reconciliation ends.
        assert_eq!(index.secret(&secret("web-tls", "7")), []);
        index.found(&named("web"), "u1", right("7"));
        assert!(!index.ended(&named("web")));
        // The watch reports the write after the reconciliation has ended.
        index.subject(&named("web"));
        index.found(&named("web"), "u1", right("8"));
        assert!(!index.ended(&named("web")));
        assert_eq!(index.secret(&secret("web-tls", "8")), []);
        // A write by another client carries news, both after a reconciliation and during one.
        assert_eq!(index.secret(&secret("web-tls", "9")), [named("web")]);
        index.subject(&named("web"));
        assert_eq!(index.secret(&secret("web-tls", "11")), []);
        index.found(&named("web"), "u1", right("10"));
        assert!(index.ended(&named("web")));
        // A deletion carries news too.
        index.subject(&named("web"));
        assert_eq!(index.secret_gone(&secret("web-tls", "12")), []);
        index.found(&named("web"), "u1", right("12"));
        assert!(index.ended(&named("web")));
        assert_eq!(index.secret_gone(&secret("web-tls", "13")), [named("web")]);
    }

    #[test]
    fn a_service_that_is_created_later_does_not_delay_the_representatives() {
        let index = index();
        assert_eq!(index.representatives(), None, "web is not reconciled yet");
        index.found(&named("web"), "u1", right("7"));
        assert!(index.representatives().is_some());
        index.service(service("new", "u2"));
        assert!(index.representatives().is_some());
    }

    #[test]
    fn a_deleted_service_is_reconciled_once_more_and_found_gone() {
        let index = index();
        index.service(service("other", "u2"));
        let metadata = service("web", "u1").metadata;
        assert_eq!(index.service_gone(&metadata), [named("web")]);
        assert!(index.subject(&named("web")).is_none());
        let mut silent = service("other", "u2");
        silent.metadata.annotations = None;
        assert_eq!(index.service(silent.clone()), Some(named("other")));
        assert_eq!(index.service(silent), None);
        // A new list does not contain this Service.
        index.service(service("last", "u3"));
        index.services_begin();
        assert_eq!(index.services_end(), [named("last")]);
    }

    #[test]
    fn a_blocked_one_is_tried_again_when_its_obstacle_goes_and_not_whenever_it_changes() {
        let index = index();
        index.subject(&named("web"));
        index.found(
            &named("web"),
            "u1",
            Found { blocked: Some("theirs".to_owned()), next: Timestamp::MAX, ..Found::default() },
        );
        assert!(!index.ended(&named("web")));
        assert_eq!(index.secret(&secret("web-tls", "7")), []);
        assert_eq!(index.secret_gone(&secret("web-tls", "8")), [named("web")]);
        let summary = index.summary();
        assert_eq!((summary.all, summary.blocked), (1, 1));
        assert_eq!(summary.first_blocked, [(named("web"), "theirs".to_owned())]);
        assert!(index.needs_attention());
    }

    #[test]
    fn a_service_waits_since_it_began_to_until_it_is_right_or_gone() {
        let index = index();
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let waits = |second: i64, why: &str| {
            let wait = Wait { since: at(second), label: "ClientsLackTrust", why: why.into() };
            Found { waiting: Some(wait), ..Found::default() }
        };
        index.service(service("other", "u2"));
        index.found(&named("web"), "u1", waits(10, "first"));
        index.found(&named("other"), "u2", waits(20, "second"));
        // The wait keeps its start when its reason changes.
        index.found(&named("web"), "u1", waits(30, "still"));
        let summary = index.summary();
        assert_eq!(summary.waiting, 2);
        assert_eq!(
            summary.oldest.map(|it| (it.name, it.since, it.why)),
            Some((named("web"), at(10), "still".to_owned()))
        );
        assert_eq!(index.waiting(), [("ClientsLackTrust", 2)].into());
        index.found(&named("web"), "u1", right("7"));
        assert_eq!(index.summary().oldest.map(|it| it.name), Some(named("other")));
        index.service_gone(&service("other", "u2").metadata);
        assert!(index.summary().waiting == 0 && !index.needs_attention());
    }

    #[test]
    fn of_each_kind_of_certificate_the_one_that_ends_last_stands_for_all() {
        let index = index();
        index.service(service("other", "u2"));
        let presents = |chain: &[&str], end: i64| {
            let chain = chain.iter().map(|id| CertificateId((*id).into())).collect();
            let (key, is_for_service) = (Some(KeySpec::PLATFORM_DEFAULT), true);
            let class = Class { signed_by: None, own: None, chain, is_for_service, begins_at: None, key };
            let presented = Presented { class, until: Timestamp::from_second(end).unwrap() };
            Found { presents: Presents::These(vec![presented]), ..right("7") }
        };
        let standing =
            || -> Vec<String> { index.representatives().unwrap().into_values().map(|service| service.name).collect() };
        index.found(&named("web"), "u1", presents(&["a"], 1));
        index.found(&named("other"), "u2", presents(&["a"], 2));
        assert_eq!(standing(), ["other"]);
        assert_eq!(index.keys(), [(Some(KeySpec::PLATFORM_DEFAULT), 2)].into());
        index.found(&named("web"), "u1", presents(&["a", "b"], 1));
        assert_eq!(standing(), ["other", "web"]);
        let first = |seconds: i64| Timestamp::from_second(seconds).ok();
        assert_eq!(index.first_end(), first(1));
        // If the operator could not read the certificates, the earlier ones still count.
        index.found(&named("web"), "u1", Found::default());
        assert_eq!((standing().len(), index.lock().classes.len()), (2, 2));
        // The index removes a class that no Service uses any more.
        index.found(&named("web"), "u1", presents(&["a"], 3));
        assert_eq!((standing(), index.lock().classes.len()), (vec!["web".to_owned()], 1));
        index.found(&named("other"), "u2", Found { presents: Presents::These(Vec::new()), ..right("8") });
        assert_eq!(index.first_end(), first(3));
        index.service_gone(&service("web", "u1").metadata);
        assert_eq!((standing(), index.lock().classes.len()), (Vec::new(), 0));
    }

    #[test]
    fn a_service_without_a_certificate_or_with_one_that_expires_soon_comes_first() {
        let index = index();
        let at = |hours: i64| Timestamp::from_second(hours * 3600).unwrap();
        let turn = |hours: i64| index.turn(&named("web"), at(hours));
        let presents = |until: Timestamp| {
            let chain = vec![CertificateId("a".into())];
            let class =
                Class { signed_by: None, own: None, chain, is_for_service: true, begins_at: None, key: None };
            Presents::These(vec![Presented { class, until }])
        };
        assert_eq!(turn(0), Turn::Urgent, "it has no certificate");
        index.secret(&secret("web-tls", "7"));
        index.found(&named("web"), "u1", Found { presents: presents(at(100)), ..right("7") });
        assert_eq!(turn(0), Turn::Usual);
        assert_eq!(turn(77), Turn::Urgent, "its certificate expires within a day");
        let blocked = Some("theirs".to_owned());
        index.found(&named("web"), "u1", Found { presents: Presents::Unknown, blocked, ..right("7") });
        assert_eq!(turn(77), Turn::Usual, "its owner must act first");
        assert_eq!(index.representatives().map(|it| it.len()), Some(0), "a blocked Service represents no other");
    }

    #[test]
    fn another_service_of_the_same_name_is_another_one() {
        let index = index();
        index.found(&named("web"), "u1", right("7"));
        assert_eq!(index.service(service("web", "u1")), None);
        assert_eq!(index.service(service("web", "u2")), Some(named("web")));
        // The result for the first Service does not apply to the second.
        index.found(&named("web"), "u1", right("7"));
        assert_eq!(index.secret(&secret("web-tls", "7")), [named("web")]);
    }
}
