//! Every Service that asks for a certificate, with as little as has to be known of each.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service as KubeService;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::catalog::ObjectName;
use perennial_core::conditions::{BACKLOG, Services, WaitingService};
use perennial_core::key::KeySpec;
use perennial_core::serving::{self, Annotations, Changes, Obstacle, Request};
use perennial_core::snapshot::{Service, Slot};
use perennial_core::trust::{CertificateId, Principal};

use crate::watch::TROUBLE_LASTS;
use tokio::time::Instant;

/// Services by namespace and name.
#[derive(Debug, Default)]
pub struct Index {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    services: BTreeMap<ObjectName, Entry>,
    /// Who wants this Secret.
    wanted: BTreeMap<ObjectName, BTreeSet<String>>,
    /// How the certificates that are out there are verified.
    classes: BTreeSet<Arc<Class>>,
    /// When time alone changes something, and for whom.
    times: BTreeSet<(Timestamp, ObjectName)>,
    /// Services that wait for the operator, the one that has waited longest first.
    waiting: BTreeSet<(Timestamp, ObjectName)>,
    /// How many Services cannot have a certificate until their owner acts.
    blocked: usize,
    /// How many Services the operator has not looked at since something about them or their CA changed.
    backlog: usize,
    services_heard: Heard,
    secrets_heard: Heard,
    /// Secrets that there are, while they are heard of for the first time: not their names, which are other people's.
    seen: HashSet<u64>,
    /// Whether it was said of each Service whether its Secret is there.
    is_settled: bool,
    /// Why a list could not be heard, and when that was last.
    troubles: BTreeMap<&'static str, (String, Instant)>,
    /// Whether everybody had been looked at at least once.
    was_known: bool,
}

/// How far a list was heard.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Heard {
    /// Which list.
    round: u32,
    /// Whether one was heard to its end.
    is_whole: bool,
}

/// How many blocked Services a condition names.
const NAMED: usize = 5;

/// How many issues are remembered: as many as the circuit breaker asks about.
pub(super) const REMEMBERED_ISSUES: usize = 5;

/// Certificates that every client judges alike, but for their ends: by whom they are signed, what is served beside them, and what
/// kind of key they have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Class {
    pub(super) signed_by: Option<Principal>,
    /// Without what is over, which helps nobody.
    pub(super) chain: Vec<CertificateId>,
    /// The kind of key; none for one that no policy can ask for.
    pub(super) key: Option<KeySpec>,
}

/// A Service.
#[derive(Debug, Clone)]
struct Entry {
    request: Result<Request, Box<Obstacle>>,
    uid: String,
    headless: bool,
    /// What was written on it.
    written: Annotations,
    secret: Secret,
    /// The version of its Secret that was heard of last.
    heard: Option<Box<str>>,
    /// Which class its certificate is of, and its end.
    class: Option<(Arc<Class>, Timestamp)>,
    /// When time alone changes something.
    next: Timestamp,
    /// What stands in the way, if anything does.
    blocked: Option<Box<str>>,
    /// What it waits for, while it waits for the operator.
    waiting: Option<Wait>,
    /// Whether it has been looked at.
    is_known: bool,
    look: Look,
    /// When its last few certificates were issued here: a Secret that is gone cannot say so.
    issues: Vec<Timestamp>,
    round: u32,
    secret_round: u32,
}

/// What a Service waits for, while it waits for the operator and not for its owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wait {
    /// Since when.
    pub(super) since: Timestamp,
    /// In one word, one of a fixed few.
    pub(super) label: &'static str,
    /// In a sentence without any instant.
    pub(super) why: Box<str>,
}

/// Whether somebody looks at a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    /// Nobody does.
    No,
    /// Somebody does.
    UnderWay,
    /// Somebody does, and something was heard of its Secret meanwhile: perhaps what is being written.
    Overtaken,
}

/// What is known of a Secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Secret {
    /// Nothing.
    Unknown,
    /// It is not there.
    Absent,
    /// It was as it should be in this version.
    Right(Box<str>),
}

/// What to look at.
#[derive(Debug, Clone)]
pub(super) struct Subject {
    pub(super) request: Result<Request, Box<Obstacle>>,
    pub(super) service: Service,
    pub(super) written: Annotations,
    pub(super) issues: Vec<Timestamp>,
    /// Whether its Secret is probably not there.
    pub(super) is_probably_absent: bool,
    /// The version of its Secret that was heard of or written last, where one was.
    pub(super) version: Option<Box<str>>,
}

impl Index {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list of all Services begins. This and what follows say who is to be looked at.
    pub(super) fn services_begin(&self) -> Vec<ObjectName> {
        self.lock().services_heard.round += 1;
        Vec::new()
    }

    /// It ends: who was not in it is gone.
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

    /// A Service is there, or has changed. Says whether it is to be looked at.
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
            // What we write there ourselves says nothing new; what others take away or bring is a wish.
            let is_told_otherwise =
                old.written != written && (serving::says_error(&written) || serving::says_error(&old.written));
            let is_other = old.headless != headless || is_told_otherwise;
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
            next: Timestamp::MAX,
            blocked: None,
            waiting: None,
            is_known: false,
            look: Look::No,
            issues: Vec::new(),
            round,
            secret_round: state.secrets_heard.round,
        };
        state.services.insert(name.clone(), entry);
        Some(name)
    }

    /// A Service is gone.
    pub(super) fn service_gone(&self, service: &ObjectMeta) -> Vec<ObjectName> {
        let name = name_of(service);
        self.lock().remove(&name);
        vec![name]
    }

    /// A list of all Secrets begins.
    pub(super) fn secrets_begin(&self) -> Vec<ObjectName> {
        self.lock().secrets_heard.round += 1;
        Vec::new()
    }

    /// It ends. Says whose Secret was not in it any more.
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

    /// A Secret is there, or has changed. Says who is to be looked at.
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
            // Whatever somebody does with a Secret that is theirs, it is tried again in its time.
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

    /// A Secret is gone. Says who is to be looked at.
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

    /// Whether it is known who asks and which Secrets there are.
    pub fn is_heard(&self) -> bool {
        self.lock().is_heard()
    }

    /// A list cannot be heard; or it can.
    pub(super) fn hears(&self, what: &'static str, trouble: Option<String>) {
        let mut state = self.lock();
        match trouble {
            Some(trouble) => drop(state.troubles.insert(what, (trouble, Instant::now()))),
            None => drop(state.troubles.remove(what)),
        }
    }

    /// What cannot be heard, and why.
    pub fn troubles(&self) -> Vec<String> {
        let state = self.lock();
        let lasting = state.troubles.values().filter(|(_, failed)| failed.elapsed() < TROUBLE_LASTS);
        lasting.map(|(trouble, _)| trouble.clone()).collect()
    }

    /// What to look at; none where nobody asks any more.
    pub(super) fn subject(&self, name: &ObjectName) -> Option<Subject> {
        let mut state = self.lock();
        let entry = state.services.get_mut(name)?;
        entry.look = Look::UnderWay;
        // Who was never served and has just come has nothing yet: writing tells if that is wrong.
        let is_new = entry.secret == Secret::Unknown && entry.heard.is_none() && !serving::was_served(&entry.written);
        Some(Subject {
            request: entry.request.clone(),
            service: Service { name: name.name.clone(), headless: entry.headless, uid: entry.uid.clone() },
            written: entry.written.clone(),
            issues: entry.issues.clone(),
            is_probably_absent: entry.secret == Secret::Absent || is_new,
            version: match &entry.secret {
                Secret::Right(version) => Some(version.clone()),
                Secret::Unknown | Secret::Absent => entry.heard.clone().filter(|heard| !heard.is_empty()),
            },
        })
    }

    /// What is about to be written on a Service: hearing of it says nothing new.
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

    /// What came of looking at a Service.
    pub(super) fn found(&self, name: &ObjectName, uid: &str, found: Found) {
        let state = &mut *self.lock();
        if state.services.get(name).is_none_or(|entry| entry.uid != uid) {
            return;
        }
        // What is somebody else's, or cannot be read, stands for nobody.
        let class = match found.presents {
            Presents::Unknown => state.services.get(name).and_then(|entry| entry.class.clone()),
            Presents::Nothing => None,
            Presents::This(class, end) => Some((state.class(class), end)),
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
        if let Some(at) = found.issued_at {
            entry.issues.push(at);
            let forgotten = entry.issues.len().saturating_sub(REMEMBERED_ISSUES);
            entry.issues.drain(..forgotten);
        }
        entry.written = found.written.unwrap_or_else(|| std::mem::take(&mut entry.written));
        if let Some(version) = found.version {
            entry.secret = Secret::Right(version.into_boxed_str());
        }
        state.release(before);
    }

    /// A look has ended. Says whether something was heard of its Secret meanwhile that is not known by it.
    pub(super) fn ended(&self, name: &ObjectName) -> bool {
        let mut state = self.lock();
        let Some(entry) = state.services.get_mut(name) else { return false };
        let is_known = matches!((&entry.secret, &entry.heard), (Secret::Right(seen), Some(heard)) if seen == heard);
        std::mem::replace(&mut entry.look, Look::No) == Look::Overtaken && !is_known
    }

    /// Who is to be looked at because of the time alone.
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

    /// When that is.
    pub(super) fn next(&self) -> Timestamp {
        self.lock().times.first().map_or(Timestamp::MAX, |(at, _)| *at)
    }

    /// Everybody who asks.
    pub(super) fn names(&self) -> Vec<ObjectName> {
        self.lock().services.keys().cloned().collect()
    }

    /// How many ask, and how many of them cannot have a certificate until their owner acts.
    pub fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.services.len(), state.blocked)
    }

    /// The Services that ask, for the conditions of the component.
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

    /// How many Services wait for the operator, by the word for what they wait for.
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

    /// Notes how many Services are still to be looked at.
    pub(super) fn set_backlog(&self, backlog: usize) {
        self.lock().backlog = backlog;
    }

    /// Whether a condition has to tell about a Service: that one waits, or that one is blocked.
    pub(super) fn needs_attention(&self) -> bool {
        let state = self.lock();
        !state.waiting.is_empty() || 0 < state.blocked || BACKLOG < state.backlog
    }

    /// When the first of their certificates ends; none where there are none.
    pub fn first_end(&self) -> Option<Timestamp> {
        self.lock().services.values().filter_map(|entry| Some(entry.class.as_ref()?.1)).min()
    }

    /// How many of their certificates have which kind of key; none is one that no policy can ask for.
    pub fn keys(&self) -> BTreeMap<Option<KeySpec>, usize> {
        let mut keys = BTreeMap::new();
        for (class, _) in self.lock().services.values().filter_map(|entry| entry.class.as_ref()) {
            *keys.entry(class.key).or_default() += 1;
        }
        keys
    }

    /// Whether everybody has been looked at, at least once.
    pub fn is_known(&self) -> bool {
        let state = &mut *self.lock();
        state.was_known |= state.is_heard() && state.services.values().all(|entry| entry.is_known);
        state.was_known
    }

    /// For each kind of certificate that is out there one that stands for all of them: the one that ends last. None where that is
    /// not known yet.
    pub fn representatives(&self) -> Option<BTreeMap<Slot, Service>> {
        // Who came later and has not been looked at has nothing that matters yet.
        if !self.is_known() {
            return None;
        }
        let state = self.lock();
        let mut last: BTreeMap<&Class, (Timestamp, &ObjectName, &Entry)> = BTreeMap::new();
        for (name, entry) in &state.services {
            let Some((class, end)) = &entry.class else { continue };
            let best = last.entry(class).or_insert((*end, name, entry));
            if best.0 < *end {
                *best = (*end, name, entry);
            }
        }
        let representative = |(_, name, entry): (Timestamp, &ObjectName, &Entry)| {
            let secret = entry.request.as_ref().ok()?.secret.clone();
            let slot = Slot::tls(&ObjectName { namespace: name.namespace.clone(), name: secret });
            Some((slot, Service { name: name.name.clone(), headless: entry.headless, uid: entry.uid.clone() }))
        };
        Some(last.into_values().filter_map(representative).collect())
    }
}

/// What a Service presents.
#[derive(Debug, Default)]
pub(super) enum Presents {
    /// Nobody could look: probably what it did before.
    #[default]
    Unknown,
    /// Nothing that is ours, or that can be read.
    Nothing,
    /// A certificate of this kind, which ends then.
    This(Class, Timestamp),
}

/// What came of looking at a Service.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) presents: Presents,
    /// When a certificate was issued, where one was.
    pub(super) issued_at: Option<Timestamp>,
    /// The version of its Secret, where that is as it should be.
    pub(super) version: Option<String>,
    /// What is written on the Service now, where that is known.
    pub(super) written: Option<Annotations>,
    /// What stands in the way, if anything does.
    pub(super) blocked: Option<String>,
    /// What it waits for, while it waits for the operator.
    pub(super) waiting: Option<Wait>,
    pub(super) next: Timestamp,
}

impl Entry {
    /// Something was heard of its Secret. Says whether that is for the look that is under way to judge, when it has ended.
    fn is_overtaken(&mut self) -> bool {
        if self.look == Look::UnderWay {
            self.look = Look::Overtaken;
        }
        self.look == Look::Overtaken
    }
}

impl State {
    /// One of the classes.
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

    /// Forgets a class that nobody is of any more.
    fn release(&mut self, class: Option<(Arc<Class>, Timestamp)>) {
        if let Some((class, _)) = class
            && Arc::strong_count(&class) == 2
        {
            self.classes.remove(&class);
        }
    }

    fn is_heard(&self) -> bool {
        self.services_heard.is_whole && self.secrets_heard.is_whole
    }

    /// As soon as both lists are whole: who is not in the one has no Secret.
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
        self.release(entry.class);
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

    /// One Service, and everything was heard to its end.
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
        // Before the look has ended.
        assert_eq!(index.secret(&secret("web-tls", "7")), []);
        index.found(&named("web"), "u1", right("7"));
        assert!(!index.ended(&named("web")));
        // And after it.
        index.subject(&named("web"));
        index.found(&named("web"), "u1", right("8"));
        assert!(!index.ended(&named("web")));
        assert_eq!(index.secret(&secret("web-tls", "8")), []);
        // What others write does, both ways.
        assert_eq!(index.secret(&secret("web-tls", "9")), [named("web")]);
        index.subject(&named("web"));
        assert_eq!(index.secret(&secret("web-tls", "11")), []);
        index.found(&named("web"), "u1", right("10"));
        assert!(index.ended(&named("web")));
        // So does a deletion.
        index.subject(&named("web"));
        assert_eq!(index.secret_gone(&secret("web-tls", "12")), []);
        index.found(&named("web"), "u1", right("12"));
        assert!(index.ended(&named("web")));
        assert_eq!(index.secret_gone(&secret("web-tls", "13")), [named("web")]);
    }

    #[test]
    fn who_came_later_holds_up_nobody() {
        let index = index();
        assert_eq!(index.representatives(), None, "nobody has looked at web");
        index.found(&named("web"), "u1", right("7"));
        assert!(index.representatives().is_some());
        index.service(service("new", "u2"));
        assert!(index.representatives().is_some());
    }

    #[test]
    fn whoever_goes_is_looked_at_once_more_and_found_gone() {
        let index = index();
        index.service(service("other", "u2"));
        let metadata = service("web", "u1").metadata;
        assert_eq!(index.service_gone(&metadata), [named("web")]);
        assert!(index.subject(&named("web")).is_none());
        let mut silent = service("other", "u2");
        silent.metadata.annotations = None;
        assert_eq!(index.service(silent.clone()), Some(named("other")));
        assert_eq!(index.service(silent), None);
        // Those that a new list does not have.
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
        // It is the same wait, for whatever it waits now.
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
            let presents = Presents::This(
                Class { signed_by: None, chain, key: Some(KeySpec::PLATFORM_DEFAULT) },
                Timestamp::from_second(end).unwrap(),
            );
            Found { presents, ..right("7") }
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
        // Where nobody could look, it is what it was.
        index.found(&named("web"), "u1", Found::default());
        assert_eq!((standing().len(), index.lock().classes.len()), (2, 2));
        // A kind that nobody has any more is forgotten.
        index.found(&named("web"), "u1", presents(&["a"], 3));
        assert_eq!((standing(), index.lock().classes.len()), (vec!["web".to_owned()], 1));
        index.found(&named("other"), "u2", Found { presents: Presents::Nothing, ..right("8") });
        assert_eq!(index.first_end(), first(3));
        index.service_gone(&service("web", "u1").metadata);
        assert_eq!((standing(), index.lock().classes.len()), (Vec::new(), 0));
    }

    #[test]
    fn another_service_of_the_same_name_is_another_one() {
        let index = index();
        index.found(&named("web"), "u1", right("7"));
        assert_eq!(index.service(service("web", "u1")), None);
        assert_eq!(index.service(service("web", "u2")), Some(named("web")));
        // What was found of the first says nothing of the second.
        index.found(&named("web"), "u1", right("7"));
        assert_eq!(index.secret(&secret("web-tls", "7")), [named("web")]);
    }
}
