//! Watches the objects that a pass depends on, and starts a pass when one changes. It watches metadata only, so it holds no private keys.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{BoxStream, SelectAll};
use futures_util::{StreamExt, future};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
use kube_client::api::DynamicObject;
use kube_client::core::{NamespaceResourceScope, ObjectMeta, PartialObjectMeta};
use kube_client::{Api, Client, Resource};
use kube_runtime::WatchStreamExt;
use kube_runtime::watcher::{self, Event, watcher};
use perennial_api::config::{FeatureGate, Infrastructure, Network};
use perennial_api::pki;
use perennial_core::catalog::index::Wiring;
use perennial_core::catalog::{Component, Instance, ObjectName, OperatorResource};
use perennial_core::snapshot::Snapshot;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::brief;
use crate::cluster::{CONTROL_PLANE, ROTATION_BASE};
use crate::observe::{api_resource, operator_resources, related};
use crate::rbac::Managed;

/// How long after its last failure a watch counts as failing.
///
/// A failed watch restarts within a minute, and reports nothing until an object changes.
pub(crate) const PROBLEM_LASTS: Duration = Duration::from_secs(120);

/// The watched objects. They change with the nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Watched {
    secrets: BTreeSet<ObjectName>,
    maps: BTreeSet<ObjectName>,
    operators: Vec<OperatorResource>,
    /// The API version of the PKI resource.
    pki: Option<&'static str>,
}

impl Watched {
    /// Returns the objects to watch: the catalog's objects in namespaces with managed objects, the PKI resource, and the operator
    /// resources of `components`.
    pub(crate) fn of(
        wiring: &Wiring<'_>,
        snapshot: &Snapshot,
        components: impl IntoIterator<Item = Component>,
        pki: Option<&'static str>,
    ) -> Watched {
        // Objects that Perennial only reads are not watched: a pass reads them every minute.
        let is_managed = |it: Component| !snapshot.is_left_alone(wiring.catalog, it);
        let managed = Managed::of(wiring.catalog, is_managed);
        let secrets =
            wiring.secret_slots(snapshot).into_iter().filter(|slot| managed.secrets.contains(slot.namespace()));
        let maps = wiring.bundle_slots().filter(|slot| managed.maps.contains(slot.namespace()));
        let has_base = related(wiring.catalog, is_managed).contains(&Component::KubeApiserver);
        let base = has_base.then(|| ROTATION_BASE.of(&Instance::Cluster));
        let maps = maps.map(|slot| slot.object()).chain(base).collect();
        let operators = operator_resources(wiring.catalog, components).collect();
        Watched { secrets: secrets.map(|slot| slot.object()).collect(), maps, operators, pki }
    }
}

/// Notifies `wake` whenever one of these objects changes. Never ends.
pub(crate) async fn watch(client: Client, watched: Watched, wake: Arc<Notify>) {
    let mut changes: SelectAll<BoxStream<'static, ()>> = SelectAll::new();
    changes.extend(namespaced::<Secret>(&client, watched.secrets));
    changes.extend(namespaced::<ConfigMap>(&client, watched.maps));
    // Only nodes of the control plane, by label: the kubelet updates every node every few seconds.
    for label in CONTROL_PLANE {
        let config = watcher::Config::default().labels(label);
        changes.push(selected(Api::<PartialObjectMeta<Node>>::all(client.clone()), config, |_| true));
    }
    // All versions have the same schema. The server may have one of them, or none.
    changes.extend(watched.pki.map(|version| match version {
        "v1alpha1" => whole::<pki::v1alpha1::PKI>(&client),
        _ => whole::<pki::v1::PKI>(&client),
    }));
    changes.push(whole::<Infrastructure>(&client));
    changes.push(whole::<Network>(&client));
    changes.push(whole::<FeatureGate>(&client));
    for resource in watched.operators {
        let api = Api::<PartialObjectMeta<DynamicObject>>::all_with(client.clone(), &api_resource(&resource));
        let kind = Cow::Borrowed(resource.kind);
        changes.push(match resource.static_pods {
            // The status has the revisions that the static pods run.
            Some(_) => watched_changes(kind, api, watcher::Config::default(), is_anything),
            None => spec_changes(kind, api),
        });
    }
    while let Some(()) = changes.next().await {
        wake.notify_one();
    }
}

/// True if an event may be a change. The pass has read the objects of the first list; after an interruption, any may have changed.
fn is_anything<K>(event: &Event<K>) -> bool {
    match event {
        Event::Apply(_) | Event::Delete(_) | Event::InitDone => true,
        Event::Init | Event::InitApply(_) => false,
    }
}

/// Returns watches of the named objects, one for each namespace.
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

/// Reports changes of the spec. Perennial itself writes the status, so a change of the status starts no pass.
fn spec_changes<K>(kind: Cow<'static, str>, api: Api<PartialObjectMeta<K>>) -> BoxStream<'static, ()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
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
    watched_changes(kind, api, watcher::Config::default(), is_change)
}

/// Records the generation of an object. Returns true if it differs from the previous one.
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
        // The pass has read the objects of the first list; after an interruption, any may have changed.
        Event::InitDone => true,
        Event::Init | Event::InitApply(_) => false,
    };
    watched_changes(K::kind(&()), api, config, is_change)
}

/// Logs the health of a watch: an interruption at debug level, a failure that lasts as a warning.
#[derive(Debug)]
pub(crate) struct Health {
    /// The watched kind.
    what: String,
    /// When the watch failed last, if it has reported nothing since.
    failed: Option<Instant>,
    /// The reason of the last warning.
    warned: Option<String>,
}

impl Health {
    /// Returns the health of a watch that begins now.
    pub(crate) fn new(what: impl Into<String>) -> Health {
        Health { what: what.into(), failed: None, warned: None }
    }

    /// Handles an event of the watch. Logs a failure that lasts, and its end.
    pub(crate) fn note<T>(&mut self, event: &Result<Event<T>, watcher::Error>) {
        match event {
            // A list that begins may still fail.
            Ok(Event::Init) => {}
            Ok(_) if self.works() => info!("{} can be watched again", self.what),
            Ok(_) => {}
            Err(error) => {
                let why = why(error);
                let lasts = self.fails(&why, Instant::now());
                // A kind that the server does not have has no objects.
                match lasts && !is_not_found(error) {
                    true => warn!(
                        error = why,
                        "{} cannot be watched: Perennial notices changes up to a minute later", self.what
                    ),
                    false => debug!(error = why, "the watch of {} was interrupted", self.what),
                }
            }
        }
    }

    /// Records that the watch works. Returns true if a warning was logged before.
    fn works(&mut self) -> bool {
        self.failed = None;
        self.warned.take().is_some()
    }

    /// Records a failure. Returns true if it is the second in a row, and no warning with this reason was logged.
    fn fails(&mut self, why: &str, now: Instant) -> bool {
        let lasts = self.failed.replace(now).is_some_and(|before| now.duration_since(before) < PROBLEM_LASTS);
        if !lasts || self.warned.as_deref() == Some(why) {
            return false;
        }
        self.warned = Some(why.to_owned());
        true
    }
}

/// Returns the message of a watch error.
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

/// Returns a stream with an item for each change that a watch reports.
fn watched_changes<K>(
    kind: Cow<'static, str>,
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
    mut is_change: impl FnMut(&Event<PartialObjectMeta<K>>) -> bool + Send + 'static,
) -> BoxStream<'static, ()>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut health = Health::new(kind);
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
    fn change_of_the_status_starts_no_pass() {
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
        assert!(is_new(&mut seen, &object("b", 2, "4")), "another object");
    }

    #[test]
    fn lasting_watch_failure_is_logged_once_and_so_is_its_end() {
        let (mut health, start) = (Health::new("Secret"), Instant::now());
        let after = |seconds: u64| start + Duration::from_secs(seconds);
        assert!(!health.works());
        assert!(!health.fails("forbidden", start));
        assert!(health.fails("forbidden", after(1)));
        assert!(!health.fails("forbidden", after(3)));
        assert!(health.fails("quota", after(7)));
        assert!(health.works());
        assert!(!health.works());
        // Two interruptions with a long time between them are no lasting failure.
        assert!(!health.fails("reset", after(10)));
        assert!(!health.fails("reset", after(500)));
    }

    #[test]
    fn objects_of_a_new_node_are_watched() {
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
        snapshot.settings.every_component = true;
        let before = Watched::of(&wiring, &snapshot, [], None);
        assert_eq!(before, Watched::of(&wiring, &snapshot, [], None));
        snapshot.nodes.found_mut().insert("m0".to_owned(), Vec::new());
        let after = Watched::of(&wiring, &snapshot, [], None);
        let name = ObjectName { namespace: "openshift-etcd".to_owned(), name: "etcd-peer-m0".to_owned() };
        assert!(after.secrets.contains(&name) && !before.secrets.contains(&name));
    }
}
