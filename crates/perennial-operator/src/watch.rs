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
use perennial_api::pki::Pki;
use perennial_core::catalog::{Component, Instance, ObjectName};
use perennial_core::snapshot::Snapshot;
use perennial_core::wiring::Wiring;
use serde::de::DeserializeOwned;
use tokio::sync::Notify;
use tracing::debug;

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
}

impl Watched {
    /// Everything that the catalog names in namespaces in which something is kept, and what is asked of the service CA if that is
    /// anybody's business here.
    pub(crate) fn of(wiring: &Wiring<'_>, snapshot: &Snapshot, service_ca: bool) -> Watched {
        // What is only looked at is looked at every minute.
        let kept = Kept::of(wiring.catalog, &snapshot.settings);
        let secrets = wiring.secret_slots(snapshot).into_iter().filter(|slot| kept.secrets.contains(slot.namespace()));
        let maps = wiring.bundle_slots().filter(|slot| kept.maps.contains(slot.namespace()));
        let control_plane = related(wiring.catalog, &snapshot.settings).contains(&Component::KubeApiserver);
        let base = control_plane.then(|| ROTATION_BASE.of(&Instance::Cluster));
        let maps = maps.map(|slot| slot.object()).chain(base).collect();
        Watched { secrets: secrets.map(|slot| slot.object()).collect(), maps, control_plane, service_ca }
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
    changes.push(whole::<Pki>(&client));
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

fn heard<K>(
    api: Api<PartialObjectMeta<K>>,
    config: watcher::Config,
    mut is_change: impl FnMut(&Event<PartialObjectMeta<K>>) -> bool + Send + 'static,
) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let change = move |event: Result<Event<PartialObjectMeta<K>>, watcher::Error>| {
        let is_change = match event {
            Ok(event) => is_change(&event),
            Err(error) => {
                debug!(%error, "a watch was interrupted");
                false
            }
        };
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
        let before = Watched::of(&wiring, &snapshot, false);
        assert_eq!(before, Watched::of(&wiring, &snapshot, false));
        snapshot.nodes.insert("m0".to_owned(), Vec::new());
        let after = Watched::of(&wiring, &snapshot, false);
        let name = ObjectName { namespace: "openshift-etcd".to_owned(), name: "etcd-peer-m0".to_owned() };
        assert!(after.secrets.contains(&name) && !before.secrets.contains(&name));
    }
}
