//! Creates the ConfigMap that asks for the service CA bundle in every namespace, for clusters in which no other controller does.
//!
//! The controller does not change an existing ConfigMap, and creates a deleted one again.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream};
use futures_util::{FutureExt, StreamExt, future};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ObjectReference};
use kube_client::api::{ObjectMeta, PostParams};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client, Error, Resource};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use perennial_core::catalog::Component;
use perennial_core::injection::{INJECT, LEGACY_NAME};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::{info, warn};

use super::{FASTER, MANAGER};
use crate::brief;
use crate::controller::registry::{Parts, Registration, Runs};
use crate::controller::{self, Cause, Change, Controller, Key, Outcome};
use crate::events::{self, NewEvent};
use crate::pass::Clock;
use crate::rbac::{named, rule};
use crate::watch::Health;

/// Registers this controller.
pub(crate) const PUBLICATION: Registration = Registration {
    component: Component::ServiceCa,
    runs: Runs::OnRequest,
    role: "ca-publication",
    rights,
    make: |parts| Box::new(Publisher::new(parts)),
};

/// Returns the RBAC rules of this controller. It reads no ConfigMap of another name.
fn rights() -> Vec<Value> {
    vec![
        rule("", &["namespaces"], &["list", "watch"]),
        named("", &["configmaps"], &["list", "watch"], [LEGACY_NAME]),
        rule("", &["configmaps"], &["create"]),
        rule("", &["events"], &["create"]),
    ]
}

/// The kind of the objects that this controller reconciles.
const NAMESPACE: &str = "Namespace";

/// Creates the ConfigMap in every namespace.
struct Publisher {
    client: Client,
    clock: Clock,
    known: Mutex<Known>,
}

/// What a watch reports about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Watched {
    /// Namespaces that are not terminating.
    Namespaces,
    /// The ConfigMap of each namespace.
    Maps,
}

/// A report of a watch, with the name of a namespace.
#[derive(Debug)]
enum WatchEvent {
    /// A new list begins.
    ListBegins,
    /// The list has this namespace.
    Listed(String),
    /// The list is complete.
    ListComplete,
    /// The object exists.
    Exists(String),
    /// The object no longer exists.
    Gone(String),
}

/// Runs only this controller. It needs only its own RBAC rules.
pub async fn publish(client: Client, clock: Clock, stop: impl Future<Output = ()>) {
    let publisher = Publisher { client, clock: clock.clone(), known: Mutex::default() };
    controller::run(&[Box::new(publisher)], &clock, stop).await;
}

impl Publisher {
    fn new(parts: &Parts<'_>) -> Publisher {
        Publisher { client: parts.client.clone(), clock: parts.clock.clone(), known: Mutex::default() }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn create(&self, namespace: &str) -> Outcome {
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(LEGACY_NAME.to_owned()),
                annotations: Some([(INJECT.to_owned(), "true".to_owned())].into()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        };
        let api = Api::<ConfigMap>::namespaced(self.client.clone(), namespace);
        let params = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
        match api.create(&params, &map).await {
            Ok(_) => {
                info!(namespace, "created ConfigMap {LEGACY_NAME}");
                Outcome::Gone
            }
            Err(Error::Api(status)) if status.reason == "AlreadyExists" || status.code == 404 => Outcome::Gone,
            Err(Error::Api(status)) if status.code == 409 => Outcome::Later(FASTER),
            Err(error) if crate::is_namespace_terminating(&error) => Outcome::Gone,
            Err(error) => Outcome::Failed(brief(&error)),
        }
    }

    fn watch<K>(&self, of: Watched, config: watcher::Config) -> BoxStream<'static, (Watched, WatchEvent)>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let events = watcher(Api::<PartialObjectMeta<K>>::all(self.client.clone()), config);
        let mut health = Health::new(K::kind(&()));
        let report = move |event: Result<Event<PartialObjectMeta<K>>, watcher::Error>| {
            health.note(&event);
            let reported = match event {
                Ok(Event::Init) => Some(WatchEvent::ListBegins),
                Ok(Event::InitApply(object)) => match namespace_of(of, &object.metadata) {
                    Some(name) if exists(of, &object.metadata) => Some(WatchEvent::Listed(name)),
                    _ => None,
                },
                Ok(Event::InitDone) => Some(WatchEvent::ListComplete),
                Ok(Event::Apply(object)) => {
                    namespace_of(of, &object.metadata).map(|name| match exists(of, &object.metadata) {
                        true => WatchEvent::Exists(name),
                        false => WatchEvent::Gone(name),
                    })
                }
                Ok(Event::Delete(object)) => namespace_of(of, &object.metadata).map(WatchEvent::Gone),
                Err(_) => None,
            };
            future::ready(reported.map(|reported| (of, reported)))
        };
        events.default_backoff().filter_map(report).boxed()
    }
}

impl Controller for Publisher {
    fn name(&self) -> &'static str {
        "publication of the service CA bundle in every namespace"
    }

    fn changes(&self) -> BoxStream<'_, Change> {
        *self.known() = Known::default();
        let ours = watcher::Config::default().fields(&format!("metadata.name={LEGACY_NAME}"));
        let namespaces = self.watch::<Namespace>(Watched::Namespaces, watcher::Config::default());
        let reported = stream::select(namespaces, self.watch::<ConfigMap>(Watched::Maps, ours));
        reported
            .map(|(of, reported)| {
                let lacking = self.known().update(of, reported);
                Change::Objects(lacking.into_iter().map(|name| Key::of_cluster(NAMESPACE, name)).collect())
            })
            .boxed()
    }

    fn is_ready(&self, _: &Key) -> bool {
        true
    }

    fn reconcile<'a>(&'a self, key: &'a Key) -> BoxFuture<'a, Outcome> {
        async move {
            // Another client may have created it, or the namespace may be ending, since the create failed.
            let is_lacking = self.known().lacks(&key.name);
            if is_lacking { self.create(&key.name).await } else { Outcome::Gone }
        }
        .boxed()
    }

    fn report<'a>(&'a self, key: &'a Key, _: Cause, why: &'a str) -> BoxFuture<'a, ()> {
        async move {
            warn!(namespace = key.name, "failed to create ConfigMap {LEGACY_NAME}: {why}");
            let involved = ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some(NAMESPACE.to_owned()),
                name: Some(key.name.clone()),
                ..ObjectReference::default()
            };
            let text = &format!("failed to create ConfigMap {LEGACY_NAME}: {why}");
            let (reason, now) = ("ServiceCAPublicationFailed", (self.clock)());
            events::post(&self.client, NewEvent { involved, is_warning: true, reason, text, now }).await;
        }
        .boxed()
    }
}

/// Returns the namespace of the reported object.
fn namespace_of(of: Watched, metadata: &ObjectMeta) -> Option<String> {
    match of {
        Watched::Namespaces => metadata.name.clone(),
        Watched::Maps => metadata.namespace.clone(),
    }
}

/// True if the object counts as existing.
///
/// A terminating namespace does not: the server rejects new objects in it. A ConfigMap that is being deleted does: its name is taken.
fn exists(of: Watched, metadata: &ObjectMeta) -> bool {
    of == Watched::Maps || metadata.deletion_timestamp.is_none()
}

/// The namespaces, and those of them that have the ConfigMap.
#[derive(Default)]
struct Known {
    namespaces: Names,
    maps: Names,
}

#[derive(Default)]
struct Names {
    all: BTreeSet<String>,
    /// The names of the list that is not complete yet.
    listed: BTreeSet<String>,
    is_complete: bool,
}

impl Known {
    /// Updates the names, and returns the namespaces that lack the ConfigMap now.
    fn update(&mut self, of: Watched, reported: WatchEvent) -> Vec<String> {
        let names = match of {
            Watched::Namespaces => &mut self.namespaces,
            Watched::Maps => &mut self.maps,
        };
        match reported {
            WatchEvent::ListBegins => names.listed.clear(),
            WatchEvent::Listed(name) => drop(names.listed.insert(name)),
            WatchEvent::ListComplete => {
                names.all = std::mem::take(&mut names.listed);
                names.is_complete = true;
                return self.namespaces.all.iter().filter(|it| self.lacks(it)).cloned().collect();
            }
            WatchEvent::Exists(name) => {
                names.all.insert(name.clone());
                return if self.lacks(&name) { vec![name] } else { Vec::new() };
            }
            WatchEvent::Gone(name) => {
                names.all.remove(&name);
                return if self.lacks(&name) { vec![name] } else { Vec::new() };
            }
        }
        Vec::new()
    }

    /// True if a namespace is known to exist without the ConfigMap.
    fn lacks(&self, namespace: &str) -> bool {
        let all_are_known = self.namespaces.is_complete && self.maps.is_complete;
        all_are_known && self.namespaces.all.contains(namespace) && !self.maps.all.contains(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(known: &mut Known, of: Watched, names: &[&str]) -> Vec<String> {
        known.update(of, WatchEvent::ListBegins);
        names.iter().for_each(|it| assert!(known.update(of, WatchEvent::Listed((*it).to_owned())).is_empty()));
        known.update(of, WatchEvent::ListComplete)
    }

    #[test]
    fn no_namespace_lacks_the_config_map_until_both_lists_are_complete() {
        let mut known = Known::default();
        assert!(list(&mut known, Watched::Namespaces, &["a", "b", "c"]).is_empty());
        assert!(!known.lacks("a"));
        assert_eq!(list(&mut known, Watched::Maps, &["b", "elsewhere"]), ["a", "c"]);
        assert!(known.lacks("a") && !known.lacks("b") && !known.lacks("elsewhere"));
    }

    #[test]
    fn deleted_config_map_and_new_namespace_are_reported() {
        let mut known = Known::default();
        list(&mut known, Watched::Namespaces, &["a"]);
        list(&mut known, Watched::Maps, &["a"]);
        let (namespace, map) = (Watched::Namespaces, Watched::Maps);
        let gone = |name: &str| WatchEvent::Gone(name.to_owned());
        let there = |name: &str| WatchEvent::Exists(name.to_owned());
        assert_eq!(known.update(map, gone("a")), ["a"]);
        assert!(known.update(map, there("a")).is_empty());
        assert_eq!(known.update(namespace, there("b")), ["b"]);
        assert!(known.update(namespace, gone("b")).is_empty(), "the namespace is terminating");
        assert!(known.update(map, gone("b")).is_empty());
    }

    #[test]
    fn config_map_deleted_while_the_watch_was_down_is_found_in_the_next_list() {
        let mut known = Known::default();
        list(&mut known, Watched::Namespaces, &["a", "b"]);
        list(&mut known, Watched::Maps, &["a", "b"]);
        known.update(Watched::Maps, WatchEvent::ListBegins);
        assert!(!known.lacks("b"), "the previous list counts until the new one is complete");
        assert_eq!(list(&mut known, Watched::Maps, &["a"]), ["b"]);
        assert!(list(&mut known, Watched::Namespaces, &["a"]).is_empty());
        assert!(!known.lacks("b"));
    }
}
