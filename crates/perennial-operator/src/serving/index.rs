//! Every Service that asks for a certificate, with as little as has to be known of each.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service as KubeService;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::catalog::ObjectName;
use perennial_core::rules::SecretState;
use perennial_core::serving::{self, Annotations, Changes, Obstacle, Request};
use perennial_core::snapshot::{Service, Slot};
use perennial_core::trust::{CertificateId, Principal};

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
    /// How certificates are verified: by whom they are signed, and what is served beside them.
    classes: Vec<Class>,
    /// When time alone changes something, and for whom.
    times: BTreeSet<(Timestamp, ObjectName)>,
    services_heard: Heard,
    secrets_heard: Heard,
    /// Secrets that there are, while they are heard of for the first time: not their names, which are other people's.
    seen: HashSet<u64>,
    /// Whether it was said of each Service whether its Secret is there.
    is_settled: bool,
    /// Why a list could not be heard, until it can.
    trouble: Option<String>,
}

/// How far a list was heard.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Heard {
    /// Which list.
    round: u32,
    /// Whether one was heard to its end.
    is_whole: bool,
}

/// Certificates that every client judges alike, but for their ends.
type Class = (Option<Principal>, Vec<CertificateId>);

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
    class: Option<(usize, Timestamp)>,
    /// When time alone changes something.
    next: Timestamp,
    /// Whether something stands in the way.
    is_blocked: bool,
    /// Whether it has been looked at.
    is_known: bool,
    round: u32,
    secret_round: u32,
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
    /// Whether its Secret is probably not there.
    pub(super) is_probably_absent: bool,
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
        Vec::new()
    }

    /// A Service is there, or has changed. Says whether it is to be looked at.
    pub(super) fn service(&self, service: KubeService) -> Option<ObjectName> {
        let name = name_of(&service.metadata);
        let annotations = service.metadata.annotations.unwrap_or_default();
        let state = &mut *self.lock();
        let Some(request) = Request::of(&annotations) else {
            state.remove(&name);
            return None;
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
            is_blocked: false,
            is_known: false,
            round,
            secret_round: state.secrets_heard.round,
        };
        state.services.insert(name.clone(), entry);
        Some(name)
    }

    /// A Service is gone.
    pub(super) fn service_gone(&self, service: &ObjectMeta) -> Vec<ObjectName> {
        self.lock().remove(&name_of(service));
        Vec::new()
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
            let stays_blocked = entry.is_blocked && !serving::is_of(annotations, &entry.uid);
            if !is_same && !stays_blocked {
                entry.secret = Secret::Unknown;
                changed.push(service);
            }
        }
        changed
    }

    /// A Secret is gone. Says who is to be looked at.
    pub(super) fn secret_gone(&self, secret: &ObjectMeta) -> Vec<ObjectName> {
        let name = name_of(secret);
        let state = &mut *self.lock();
        state.seen.remove(&hash(&name));
        let services: Vec<ObjectName> = state.wanted_by(&name);
        for service in &services {
            if let Some(entry) = state.services.get_mut(service) {
                (entry.secret, entry.heard) = (Secret::Absent, None);
            }
        }
        services
    }

    /// Whether it is known who asks and which Secrets there are.
    pub(super) fn is_heard(&self) -> bool {
        self.lock().is_heard()
    }

    /// A list cannot be heard.
    pub(super) fn fails(&self, why: String) {
        self.lock().trouble = Some(why);
    }

    /// Why nobody knows who asks, where somebody tried.
    pub fn trouble(&self) -> Option<String> {
        let state = self.lock();
        state.trouble.clone().filter(|_| !state.is_heard())
    }

    /// What to look at; none where nobody asks any more.
    pub(super) fn subject(&self, name: &ObjectName) -> Option<Subject> {
        let state = self.lock();
        let entry = state.services.get(name)?;
        // Who was never served and has just come has nothing yet: writing tells if that is wrong.
        let is_new = entry.secret == Secret::Unknown && entry.heard.is_none() && !serving::was_served(&entry.written);
        Some(Subject {
            request: entry.request.clone(),
            service: Service { name: name.name.clone(), headless: entry.headless, uid: entry.uid.clone() },
            written: entry.written.clone(),
            is_probably_absent: entry.secret == Secret::Absent || is_new,
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

    /// What came of looking at a Service. Says whether everything that was heard of its Secret is known by that.
    pub(super) fn found(&self, name: &ObjectName, uid: &str, found: Found<'_>) -> bool {
        let state = &mut *self.lock();
        let Some(entry) = state.services.get(name).filter(|entry| entry.uid == uid) else { return false };
        let was_known = entry.is_known;
        let class = found.state.map(|it| {
            let class = (it.certificate.signed_by.clone(), it.chain.clone());
            let known = state.classes.iter().position(|known| *known == class);
            let number = known.unwrap_or_else(|| {
                state.classes.push(class);
                state.classes.len() - 1
            });
            (number, it.certificate.validity.not_after)
        });
        let Some(entry) = state.services.get_mut(name) else { return false };
        entry.is_known = true;
        entry.is_blocked = found.is_blocked;
        state.times.remove(&(entry.next, name.clone()));
        entry.next = found.next;
        if entry.next < Timestamp::MAX {
            state.times.insert((entry.next, name.clone()));
        }
        if found.is_read {
            entry.class = class;
        }
        entry.written = found.written.unwrap_or_else(|| std::mem::take(&mut entry.written));
        let version = found.version.map(String::into_boxed_str);
        let is_last = version.is_some() && entry.heard == version;
        match version {
            Some(version) => entry.secret = Secret::Right(version),
            None if !was_known => entry.secret = Secret::Unknown,
            None => {}
        }
        is_last
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

    /// How many ask, and how many of them in vain.
    pub fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.services.len(), state.services.values().filter(|entry| entry.is_blocked).count())
    }

    /// Whether everybody has been looked at.
    pub fn is_known(&self) -> bool {
        let state = self.lock();
        state.is_heard() && state.services.values().all(|entry| entry.is_known)
    }

    /// For each kind of certificate that is out there one that stands for all of them: the one that ends last. None where that is
    /// not known yet.
    pub fn representatives(&self) -> Option<BTreeMap<Slot, Service>> {
        let state = self.lock();
        if !state.is_heard() || state.services.values().any(|entry| !entry.is_known) {
            return None;
        }
        let mut last: BTreeMap<usize, (Timestamp, &ObjectName, &Entry)> = BTreeMap::new();
        for (name, entry) in &state.services {
            let Some((class, end)) = entry.class else { continue };
            let best = last.entry(class).or_insert((end, name, entry));
            if best.0 < end {
                *best = (end, name, entry);
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

/// What came of looking at a Service.
#[derive(Debug, Default)]
pub(super) struct Found<'s> {
    /// What its Secret holds.
    pub(super) state: Option<&'s SecretState>,
    /// Whether that was looked at.
    pub(super) is_read: bool,
    /// The version of its Secret, where that is as it should be.
    pub(super) version: Option<String>,
    /// What is written on the Service now, where that is known.
    pub(super) written: Option<Annotations>,
    pub(super) is_blocked: bool,
    pub(super) next: Timestamp,
}

impl State {
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
