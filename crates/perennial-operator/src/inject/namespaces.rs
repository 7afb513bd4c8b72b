//! Makes the ConfigMap that asks for the bundle in every namespace, for clusters in which nobody else does.
//!
//! One that is there stays as it is, whatever it asks for. One that is deleted is made again.

use std::collections::BTreeSet;
use std::pin::pin;

use futures_util::stream::{BoxStream, FuturesUnordered, SelectAll};
use futures_util::{StreamExt, future};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ObjectReference};
use kube_client::api::{ObjectMeta, PostParams};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client, Error, Resource};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use perennial_core::injection::{INJECT, LEGACY_NAME};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::{AT_ONCE, MANAGER, Outcome, sleep_until};
use crate::brief;
use crate::event::{self, Told};
use crate::pass::Clock;
use crate::queue::Queue;

/// Makes the ConfigMap in every namespace.
pub struct Publisher {
    client: Client,
    clock: Clock,
}

/// Of what something was heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// A namespace that is there to stay.
    Namespaces,
    /// The ConfigMap, by its namespace.
    Maps,
}

/// What was heard.
#[derive(Debug)]
enum Heard {
    /// All of them are told from here on.
    Begins,
    /// One of all.
    Listed(String),
    /// These were all.
    Complete,
    /// There is one.
    There(String),
    /// There is none any more.
    Gone(String),
}

impl Publisher {
    /// In this cluster.
    pub fn new(client: Client, clock: Clock) -> Publisher {
        Publisher { client, clock }
    }

    /// Makes them until it is told to stop: then after the writes that are under way.
    pub async fn run(&self, stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut heard = SelectAll::new();
        heard.push(self.listen::<Namespace>(Of::Namespaces, watcher::Config::default()));
        let ours = watcher::Config::default().fields(&format!("metadata.name={LEGACY_NAME}"));
        heard.push(self.listen::<ConfigMap>(Of::Maps, ours));
        let (mut known, mut queue) = (Known::default(), Queue::<String>::new());
        let mut under_way = FuturesUnordered::new();
        info!("Starting publication of the CA bundle of Services in every namespace");
        loop {
            while under_way.len() < AT_ONCE {
                let Some(namespace) = queue.next(Instant::now()) else { break };
                // Somebody else may have made it, or the namespace may be ending, since it was refused.
                if known.lacks(&namespace) {
                    under_way.push(async move { (self.make(&namespace).await, namespace) });
                } else {
                    queue.forget(&namespace);
                }
            }
            let due = queue.due();
            tokio::select! {
                () = &mut stop => break,
                Some((of, what)) = heard.next() => known.note(of, what).into_iter().for_each(|it| queue.add(it)),
                Some((outcome, namespace)) = under_way.next() => self.settle(&mut queue, namespace, outcome).await,
                () = sleep_until(due), if under_way.len() < AT_ONCE => {}
            }
        }
        while under_way.next().await.is_some() {}
    }

    async fn settle(&self, queue: &mut Queue<String>, namespace: String, outcome: Outcome) {
        match outcome {
            Outcome::Right | Outcome::Written | Outcome::Gone => queue.forget(&namespace),
            Outcome::Again => _ = queue.failed(&namespace, "somebody was faster", Instant::now()),
            Outcome::Refused(why) => {
                if queue.failed(&namespace, &why, Instant::now()) {
                    warn!(namespace, "cannot make ConfigMap {LEGACY_NAME}: {why}");
                    let involved = ObjectReference {
                        api_version: Some("v1".to_owned()),
                        kind: Some("Namespace".to_owned()),
                        name: Some(namespace),
                        ..ObjectReference::default()
                    };
                    let text = &format!("cannot make ConfigMap {LEGACY_NAME}: {why}");
                    let (reason, now) = ("ServiceCAPublicationFailed", (self.clock)());
                    event::post(&self.client, Told { involved, is_warning: true, reason, text, now }).await;
                }
            }
        }
    }

    async fn make(&self, namespace: &str) -> Outcome {
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
                info!(namespace, "made ConfigMap {LEGACY_NAME}");
                Outcome::Written
            }
            Err(Error::Api(status)) if status.reason == "AlreadyExists" => Outcome::Right,
            Err(Error::Api(status)) if status.code == 404 => Outcome::Gone,
            Err(Error::Api(status)) if status.code == 409 => Outcome::Again,
            Err(error) if crate::is_ending(&error) => Outcome::Gone,
            Err(error) => Outcome::Refused(brief(&error)),
        }
    }

    fn listen<K>(&self, of: Of, config: watcher::Config) -> BoxStream<'static, (Of, Heard)>
    where
        K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
    {
        let events = watcher(Api::<PartialObjectMeta<K>>::all(self.client.clone()), config);
        let hear = move |event: Result<Event<PartialObjectMeta<K>>, watcher::Error>| {
            let heard = match event {
                Ok(Event::Init) => Some(Heard::Begins),
                Ok(Event::InitApply(object)) => match name(of, &object.metadata) {
                    Some(name) if is_there(of, &object.metadata) => Some(Heard::Listed(name)),
                    _ => None,
                },
                Ok(Event::InitDone) => Some(Heard::Complete),
                Ok(Event::Apply(object)) => {
                    name(of, &object.metadata).map(|name| match is_there(of, &object.metadata) {
                        true => Heard::There(name),
                        false => Heard::Gone(name),
                    })
                }
                Ok(Event::Delete(object)) => name(of, &object.metadata).map(Heard::Gone),
                Err(error) => {
                    debug!(?of, %error, "a watch was interrupted");
                    None
                }
            };
            future::ready(heard.map(|heard| (of, heard)))
        };
        events.default_backoff().filter_map(hear).boxed()
    }
}

/// The namespace that is meant.
fn name(of: Of, metadata: &ObjectMeta) -> Option<String> {
    match of {
        Of::Namespaces => metadata.name.clone(),
        Of::Maps => metadata.namespace.clone(),
    }
}

/// A namespace that is ending takes nothing new. A ConfigMap that is ending is in the way until it is gone.
fn is_there(of: Of, metadata: &ObjectMeta) -> bool {
    of == Of::Maps || metadata.deletion_timestamp.is_none()
}

/// Which namespaces there are, and which of them have the ConfigMap.
#[derive(Default)]
struct Known {
    namespaces: Names,
    maps: Names,
}

#[derive(Default)]
struct Names {
    all: BTreeSet<String>,
    /// Those that were told since the last beginning.
    listed: BTreeSet<String>,
    is_complete: bool,
}

impl Known {
    /// Notes it, and says which namespaces lack the ConfigMap because of it.
    fn note(&mut self, of: Of, heard: Heard) -> Vec<String> {
        let names = match of {
            Of::Namespaces => &mut self.namespaces,
            Of::Maps => &mut self.maps,
        };
        match heard {
            Heard::Begins => names.listed.clear(),
            Heard::Listed(name) => drop(names.listed.insert(name)),
            Heard::Complete => {
                names.all = std::mem::take(&mut names.listed);
                names.is_complete = true;
                return self.namespaces.all.iter().filter(|it| self.lacks(it)).cloned().collect();
            }
            Heard::There(name) => {
                names.all.insert(name.clone());
                return if self.lacks(&name) { vec![name] } else { Vec::new() };
            }
            Heard::Gone(name) => {
                names.all.remove(&name);
                return if self.lacks(&name) { vec![name] } else { Vec::new() };
            }
        }
        Vec::new()
    }

    /// Whether it is known that a namespace has none and may have one.
    fn lacks(&self, namespace: &str) -> bool {
        let all_are_known = self.namespaces.is_complete && self.maps.is_complete;
        all_are_known && self.namespaces.all.contains(namespace) && !self.maps.all.contains(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(known: &mut Known, of: Of, names: &[&str]) -> Vec<String> {
        known.note(of, Heard::Begins);
        names.iter().for_each(|it| assert!(known.note(of, Heard::Listed((*it).to_owned())).is_empty()));
        known.note(of, Heard::Complete)
    }

    #[test]
    fn nothing_lacks_before_all_are_known() {
        let mut known = Known::default();
        assert!(list(&mut known, Of::Namespaces, &["a", "b", "c"]).is_empty());
        assert!(!known.lacks("a"));
        assert_eq!(list(&mut known, Of::Maps, &["b", "elsewhere"]), ["a", "c"]);
        assert!(known.lacks("a") && !known.lacks("b") && !known.lacks("elsewhere"));
    }

    #[test]
    fn what_changes_is_followed() {
        let mut known = Known::default();
        list(&mut known, Of::Namespaces, &["a"]);
        list(&mut known, Of::Maps, &["a"]);
        let (namespace, map) = (Of::Namespaces, Of::Maps);
        let gone = |name: &str| Heard::Gone(name.to_owned());
        let there = |name: &str| Heard::There(name.to_owned());
        assert_eq!(known.note(map, gone("a")), ["a"]);
        assert!(known.note(map, there("a")).is_empty());
        assert_eq!(known.note(namespace, there("b")), ["b"]);
        assert!(known.note(namespace, gone("b")).is_empty(), "it is ending");
        assert!(known.note(map, gone("b")).is_empty());
    }

    #[test]
    fn what_vanished_while_nobody_listened_is_found_in_the_next_list() {
        let mut known = Known::default();
        list(&mut known, Of::Namespaces, &["a", "b"]);
        list(&mut known, Of::Maps, &["a", "b"]);
        known.note(Of::Maps, Heard::Begins);
        assert!(!known.lacks("b"), "what was known counts until the list is complete");
        assert_eq!(list(&mut known, Of::Maps, &["a"]), ["b"]);
        assert!(list(&mut known, Of::Namespaces, &["a"]).is_empty());
        assert!(!known.lacks("b"));
    }
}
