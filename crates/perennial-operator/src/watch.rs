//! Hears when something changes that decisions rest on. Only metadata is watched, so that no key is ever kept.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{StreamExt, future};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube_client::core::{NamespaceResourceScope, ObjectMeta, PartialObjectMeta};
use kube_client::{Api, Client, Resource};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use perennial_api::config::{FeatureGate, Infrastructure, Network};
use perennial_api::operator::{KubeAPIServer, KubeControllerManager, ServiceCA};
use perennial_api::pki;
use perennial_core::catalog::{Component, Instance, ObjectName};
use perennial_core::snapshot::Snapshot;
use perennial_core::wiring::Wiring;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::brief;
use crate::cluster::{CONTROL_PLANE, ROTATION_BASE};
use crate::observe::related;
use crate::rbac::Kept;

/// A watch that failed begins again within a minute, and does not say that it works before something changes: it does if it has not
/// failed for this long.
pub(crate) const TROUBLE_LASTS: Duration = Duration::from_secs(120);

/// What is watched. It changes when nodes come and go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    secrets: BTreeSet<ObjectName>,
    maps: BTreeSet<ObjectName>,
    control_plane: bool,
    service_ca: bool,
    /// The version of the PKI resource.
    pki: Option<&'static str>,
}

impl Watched {
    /// Everything that the catalog names in namespaces in which something is kept, the PKI resource in the version that the server
    /// has, and what is asked of the service CA if that is anybody's business here.
    pub(crate) fn of(wiring: &Wiring<'_>, snapshot: &Snapshot, service_ca: bool, pki: Option<&'static str>) -> Watched {
        // What is only looked at is looked at every minute.
        let kept = Kept::of(wiring.catalog, &snapshot.settings);
        let secrets = wiring.secret_slots(snapshot).into_iter().filter(|slot| kept.secrets.contains(slot.namespace()));
        let maps = wiring.bundle_slots().filter(|slot| kept.maps.contains(slot.namespace()));
        let control_plane = related(wiring.catalog, &snapshot.settings).contains(&Component::KubeApiserver);
        let base = control_plane.then(|| ROTATION_BASE.of(&Instance::Cluster));
        let maps = maps.map(|slot| slot.object()).chain(base).collect();
        Watched { secrets: secrets.map(|slot| slot.object()).collect(), maps, control_plane, service_ca, pki }
    }
}

/// Wakes somebody whenever something of it changes. Ends never.
pub(crate) async fn watch(client: Client, watched: Watched, wake: Arc<Notify>) {
    let mut changes: SelectAll<BoxStream<'static, ()>> = SelectAll::new();
    changes.extend(namespaced::<Secret>(&client, watched.secrets));
    changes.extend(namespaced::<ConfigMap>(&client, watched.maps));
    // Of the control plane only, by the labels that say so: every node says every few seconds that it lives.
    for label in CONTROL_PLANE {
        let config = watcher::Config::default().labels(label);
        changes.push(selected(Api::<PartialObjectMeta<Node>>::all(client.clone()), config, |_| true));
    }
    // All versions have one shape; a server has the kind in some of them, or not at all.
    changes.extend(watched.pki.map(|version| match version {
        "v1alpha1" => whole::<pki::v1alpha1::PKI>(&client),
        _ => whole::<pki::v1::PKI>(&client),
    }));
    changes.push(whole::<Infrastructure>(&client));
    changes.push(whole::<Network>(&client));
    changes.push(whole::<FeatureGate>(&client));
    if watched.control_plane {
        changes.push(whole::<KubeAPIServer>(&client));
        changes.push(whole::<KubeControllerManager>(&client));
    }
    if watched.service_ca {
        changes.push(specified::<ServiceCA>(&client));
    }
    while let Some(()) = changes.next().await {
        wake.notify_one();
    }
}

/// The named objects, one watch for each namespace.
fn namespaced<K>(client: &Client, names: BTreeSet<ObjectName>) -> Vec<BoxStream<'static, ()>>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let names = Arc::new(names);
    let namespaces: BTreeSet<String> = names.iter().map(|name| name.namespace.clone()).collect();
    let stream = |namespace: String| {
        let (api, names) = (Api::<PartialObjectMeta<K>>::namespaced(client.clone(), &namespace), names.clone());
        let is_ours = move |metadata: &PartialObjectMeta<K>| {
            let name = metadata.metadata.name.clone().unwrap_or_default();
            names.contains(&ObjectName { namespace: namespace.clone(), name })
        };
        changes(api, is_ours)
    };
    namespaces.into_iter().map(stream).collect()
}

fn whole<K>(client: &Client) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    changes(Api::<PartialObjectMeta<K>>::all(client.clone()), |_| true)
}

/// Of which somebody changed more than the status: that is ours to write, and no reason to look.
fn specified<K>(client: &Client) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut seen = BTreeMap::new();
    let is_change = move |event: &Event<PartialObjectMeta<K>>| match event {
        Event::Apply(object) => is_new(&mut seen, &object.metadata),
        Event::InitApply(object) => {
            is_new(&mut seen, &object.metadata);
            false
        }
        Event::Delete(_) | Event::InitDone => true,
        Event::Init => false,
    };
    heard(Api::<PartialObjectMeta<K>>::all(client.clone()), watcher::Config::default(), is_change)
}

/// Notes which generation of an object was heard of, and says whether it is another than before.
fn is_new(seen: &mut BTreeMap<String, i64>, metadata: &ObjectMeta) -> bool {
    let uid = metadata.uid.clone().unwrap_or_default();
    let generation = metadata.generation.unwrap_or_default();
    seen.insert(uid, generation) != Some(generation)
}

fn changes<K>(
    api: Api<PartialObjectMeta<K>>,
    is_ours: impl Fn(&PartialObjectMeta<K>) -> bool + Send + 'static,
) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    selected(api, watcher::Config::default(), is_ours)
}

fn selected<K>(
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
    is_ours: impl Fn(&PartialObjectMeta<K>) -> bool + Send + 'static,
) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let is_change = move |event: &Event<PartialObjectMeta<K>>| match event {
        Event::Apply(object) | Event::Delete(object) => is_ours(object),
        // What was there at the beginning was looked at; after an interruption something may have happened.
        Event::InitDone => true,
        Event::Init | Event::InitApply(_) => false,
    };
    heard(api, config, is_change)
}

/// How a watch fares, as the log tells it: an interruption is nothing to worry about, a failure that lasts is a warning.
#[derive(Debug)]
pub(crate) struct Health {
    /// What is watched.
    what: String,
    /// When it failed last, if nothing was heard since.
    failed: Option<Instant>,
    /// What was warned about.
    warned: Option<String>,
}

impl Health {
    /// Of a watch that begins now.
    pub(crate) fn new(what: impl Into<String>) -> Health {
        Health { what: what.into(), failed: None, warned: None }
    }

    /// Notes what was heard, and logs a failure that lasts and its end.
    pub(crate) fn note<T>(&mut self, event: &Result<Event<T>, watcher::Error>) {
        match event {
            // A list that begins may be refused once more.
            Ok(Event::Init) => {}
            Ok(_) if self.works() => info!("{} can be watched again", self.what),
            Ok(_) => {}
            Err(error) => {
                let why = why(error);
                let lasts = self.fails(&why, Instant::now());
                // A kind that the server does not know has no objects.
                match lasts && !is_not_found(error) {
                    true => warn!(error = why, "{} cannot be watched: changes are noticed late", self.what),
                    false => debug!(error = why, "the watch of {} was interrupted", self.what),
                }
            }
        }
    }

    /// Something was heard. True if it was said that nothing would be.
    fn works(&mut self) -> bool {
        self.failed = None;
        self.warned.take().is_some()
    }

    /// It failed. True if it did so twice in a row, and for this reason was not said before.
    fn fails(&mut self, why: &str, now: Instant) -> bool {
        let lasts = self.failed.replace(now).is_some_and(|before| now.duration_since(before) < TROUBLE_LASTS);
        if !lasts || self.warned.as_deref() == Some(why) {
            return false;
        }
        self.warned = Some(why.to_owned());
        true
    }
}

/// What a server says about a watch.
pub(crate) fn why(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => brief(error),
        other => other.to_string(),
    }
}

fn is_not_found(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(error) | watcher::Error::WatchStartFailed(error)) = error else {
        return false;
    };
    matches!(error, kube_client::Error::Api(status) if status.code == 404)
}

fn heard<K>(
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
    mut is_change: impl FnMut(&Event<PartialObjectMeta<K>>) -> bool + Send + 'static,
) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut health = Health::new(K::kind(&()));
    let change = move |event: Result<Event<PartialObjectMeta<K>>, watcher::Error>| {
        health.note(&event);
        let is_change = event.is_ok_and(|event| is_change(&event));
        future::ready(is_change.then_some(()))
    };
    watcher(api, config).default_backoff().filter_map(change).boxed()
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use perennial_core::catalog::{Catalog, ClusterFacts};

    use super::*;

    #[test]
    fn what_is_written_to_a_status_is_nothing_new() {
        let object = |uid: &str, generation: i64, version: &str| ObjectMeta {
            uid: Some(uid.to_owned()),
            generation: Some(generation),
            resource_version: Some(version.to_owned()),
            ..ObjectMeta::default()
        };
        let mut seen = BTreeMap::new();
        assert!(is_new(&mut seen, &object("a", 1, "1")));
        assert!(!is_new(&mut seen, &object("a", 1, "2")));
        assert!(is_new(&mut seen, &object("a", 2, "3")));
        assert!(is_new(&mut seen, &object("b", 2, "4")), "another one of the same name");
    }

    #[test]
    fn a_watch_failure_that_lasts_is_a_warning_once_and_its_end_is_told() {
        let (mut health, start) = (Health::new("Secret"), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!health.works());
        assert!(!health.fails("forbidden", start));
        assert!(health.fails("forbidden", after(1)));
        assert!(!health.fails("forbidden", after(3)));
        assert!(health.fails("quota", after(7)));
        assert!(health.works());
        assert!(!health.works());
        // Interruptions that are far from each other do not last.
        assert!(!health.fails("reset", after(10)));
        assert!(!health.fails("reset", after(500)));
    }

    #[test]
    fn a_node_that_joins_brings_objects_to_watch() {
        let wiring = Wiring::new(Catalog::builtin());
        let facts = ClusterFacts {
            service_domain: "cluster.local".to_owned(),
            api_external: None,
            api_internal: None,
            service_networks: Vec::new(),
            api_vips: Vec::new(),
            bootstrap_provisioning: None,
        };
        let mut snapshot = Snapshot::empty(&wiring, facts, Timestamp::UNIX_EPOCH);
        let before = Watched::of(&wiring, &snapshot, false, None);
        assert_eq!(before, Watched::of(&wiring, &snapshot, false, None));
        snapshot.nodes.insert("m0".to_owned(), Vec::new());
        let after = Watched::of(&wiring, &snapshot, false, None);
        let name = ObjectName { namespace: "openshift-etcd".to_owned(), name: "etcd-peer-m0".to_owned() };
        assert!(after.secrets.contains(&name) && !before.secrets.contains(&name));
    }
}
