//! How the parts of the index stay consistent with each other.

use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::catalog::{ObjectName, TimeScale};
use perennial_core::plan::BREAKER_WINDOW;
use perennial_core::service_ca::Class;
use perennial_core::serving;
use perennial_core::snapshot::Service;

use super::{Entry, Look, Secret, State};

impl Entry {
    pub(super) fn service(&self, name: &ObjectName) -> Service {
        let family = self.request.as_ref().map(|request| request.family).unwrap_or_default();
        Service { name: name.name.clone(), headless: self.headless, uid: self.uid.clone(), family }
    }

    /// True if the Secret of the Service probably does not exist.
    ///
    /// A new Service that never had a certificate has no Secret yet. If its Secret exists after all, the attempt to create the
    /// Secret shows that.
    pub(super) fn has_no_secret(&self) -> bool {
        let is_new = self.secret == Secret::Unknown && self.heard.is_none() && !serving::was_served(&self.written);
        self.secret == Secret::Absent || is_new
    }

    /// Records an event of the Secret. Returns true if the reconciliation in progress must judge the event when it ends.
    pub(super) fn is_overtaken(&mut self) -> bool {
        if self.look == Look::UnderWay {
            self.look = Look::Overtaken;
        }
        self.look == Look::Overtaken
    }
}

impl State {
    /// Returns the shared copy of a class. Adds the class if it is new.
    pub(super) fn class(&mut self, class: Class) -> Arc<Class> {
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
    pub(super) fn release(&mut self, classes: impl IntoIterator<Item = (Arc<Class>, Timestamp)>) {
        for (class, _) in classes {
            if Arc::strong_count(&class) == 2 {
                self.classes.remove(&class);
            }
        }
    }

    /// Removes, from time to time, the issues that the circuit breaker no longer counts.
    pub(super) fn forget_issues(&mut self, now: Timestamp) {
        if self.issues.len() < 2 * self.issues_kept.max(512) {
            return;
        }
        let window = BREAKER_WINDOW.scaled(TimeScale::FULL);
        let is_recent = |at: &Timestamp| at.duration_until(now) < window;
        self.issues.retain(|_, issues| issues.last().is_some_and(is_recent));
        self.issues_kept = self.issues.len();
    }

    pub(super) fn is_heard(&self) -> bool {
        self.services_heard.is_whole && self.secrets_heard.is_whole
    }

    /// Marks each Secret that is not in the list of Secrets as absent, as soon as both lists are complete.
    pub(super) fn know_absent(&mut self) {
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

    pub(super) fn wanted_by(&self, secret: &ObjectName) -> Vec<ObjectName> {
        let names = self.wanted.get(secret).into_iter().flatten();
        names.map(|name| ObjectName { namespace: secret.namespace.clone(), name: name.clone() }).collect()
    }

    pub(super) fn remove(&mut self, name: &ObjectName) {
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

pub(super) fn hash(name: &ObjectName) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

pub(super) fn name_of(metadata: &ObjectMeta) -> ObjectName {
    ObjectName {
        namespace: metadata.namespace.clone().unwrap_or_default(),
        name: metadata.name.clone().unwrap_or_default(),
    }
}
