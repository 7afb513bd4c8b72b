//! What the watches of Services and Secrets report to the index.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service as KubeService;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::catalog::ObjectName;
use perennial_core::serving::{self, Annotations, Request};

use super::state::{hash, name_of};
use super::{Entry, Index, Look, Secret};

impl Index {
    /// Starts a new list of all Services.
    ///
    /// This method and the following ones return the Services that the operator must reconcile.
    pub(in crate::serving) fn services_begin(&self) -> Vec<ObjectName> {
        self.lock().services_heard.round += 1;
        Vec::new()
    }

    /// Ends the list of Services: removes and returns the Services that are not in the list.
    pub(in crate::serving) fn services_end(&self) -> Vec<ObjectName> {
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
    pub(in crate::serving) fn service(&self, service: KubeService) -> Option<ObjectName> {
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
    pub(in crate::serving) fn service_gone(&self, service: &ObjectMeta) -> Vec<ObjectName> {
        let name = name_of(service);
        self.lock().remove(&name);
        vec![name]
    }

    /// Starts a new list of all Secrets.
    pub(in crate::serving) fn secrets_begin(&self) -> Vec<ObjectName> {
        self.lock().secrets_heard.round += 1;
        Vec::new()
    }

    /// Ends the list of Secrets. Returns the Services whose Secret is no longer in the list.
    pub(in crate::serving) fn secrets_end(&self) -> Vec<ObjectName> {
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
    pub(in crate::serving) fn secret(&self, secret: &ObjectMeta) -> Vec<ObjectName> {
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
    pub(in crate::serving) fn secret_gone(&self, secret: &ObjectMeta) -> Vec<ObjectName> {
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
}
