//! Reads the certificates and bundles that static pods run with, from the revision of each node.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::core::{NamespaceResourceScope, Object};
use kube_client::{Api, Client, Error, Resource};
use perennial_api::operator::static_pod::{NodeStatus, StaticPodOperatorStatus};
use perennial_core::catalog::index::{EdgeWiring, Wiring, instances, presented_slot};
use perennial_core::catalog::{COMPONENTS, Component, Delivery};
use perennial_core::snapshot::{Held, Observed, Slot, Snapshot};
use perennial_x509::{Certificate, trust};
use serde::de::DeserializeOwned;

use super::{Problem, api_resource, said, single};
use crate::read;

/// The resource of any static pod operator.
type StaticPodOperator = Object<serde_json::Value, StaticPodOperatorStatus>;

/// The certificates that static pods hold, by place.
#[derive(Default)]
pub(super) struct Found {
    secrets: BTreeMap<Slot, Vec<Holder>>,
    bundles: BTreeMap<Slot, Vec<Holder>>,
}

struct Holder {
    by: String,
    revision: u64,
    since: Option<Timestamp>,
    members: Vec<Certificate>,
}

/// A node, and a revision that it may run.
struct Running {
    node: String,
    revision: u64,
    since: Option<Timestamp>,
}

/// Reads the revisions of all certificates and bundles of these components that reach their reader by a revision.
///
/// A place that cannot be read is missing from the result. The planner then assumes that its readers may hold every version.
pub(super) async fn read(
    client: &Client,
    wiring: &Wiring<'_>,
    snapshot: &Snapshot,
    components: &BTreeSet<Component>,
    problems: &mut Vec<Problem>,
) -> Result<Found, Error> {
    let (mut secrets, mut bundles) = (BTreeSet::new(), BTreeSet::new());
    let by_revision = |delivery| matches!(delivery, Delivery::Revisioned | Delivery::Relayed { .. });
    let is_theirs =
        |edge: &&EdgeWiring<'_>| wiring.row(edge.row).is_some_and(|it| components.contains(&it.row.component));
    for edge in wiring.edges().iter().filter(is_theirs) {
        if by_revision(edge.edge.verifier.delivery) {
            bundles.insert(edge.trust.clone());
        }
        if let Some(row) = wiring.row(edge.row).map(|wired| wired.row)
            && by_revision(edge.edge.presenter.delivery)
        {
            let slots = instances(row, snapshot).into_iter().map(|it| presented_slot(row, edge.presents, &it));
            secrets.extend(slots);
        }
    }
    let left_alone = COMPONENTS.iter().map(|row| row.component);
    let left_alone = left_alone.filter(|it| snapshot.is_left_alone(wiring.catalog, *it)).collect();
    let mut revisions = Revisions { client, left_alone, known: BTreeMap::new(), problems };
    let mut found = Found::default();
    for slot in secrets.into_iter().filter(|slot| !slot.is_file()) {
        let members = |copy: Secret| match read::secret(&copy, &slot) {
            Observed::Present(it) => Some([vec![it.certificate], it.chain].concat()),
            _ => None,
        };
        let holders = revisions.holders::<Secret>(&slot, members).await?;
        found.secrets.extend(holders.map(|holders| (slot, holders)));
    }
    for slot in bundles.into_iter().filter(|slot| !slot.is_file()) {
        let members = |copy: ConfigMap| match read::bundle(&copy, slot.key()) {
            Observed::Present(it) => Some(it.members),
            _ => None,
        };
        let holders = revisions.holders::<ConfigMap>(&slot, members).await?;
        found.bundles.extend(holders.map(|holders| (slot, holders)));
    }
    Ok(found)
}

impl Running {
    fn holds(&self, members: Vec<Certificate>) -> Holder {
        Holder { by: self.node.clone(), revision: self.revision, since: self.since, members }
    }
}

/// The revisions that the nodes run, by the namespace of their static pods; none if unknown.
struct Revisions<'a> {
    client: &'a Client,
    left_alone: BTreeSet<Component>,
    known: BTreeMap<String, Option<Vec<Running>>>,
    problems: &'a mut Vec<Problem>,
}

impl Revisions<'_> {
    /// Returns the nodes that hold a version of this place, from the copy in their revision.
    ///
    /// None if the copy of one node is missing: its process still holds that version, which is unknown.
    async fn holders<K>(
        &mut self,
        slot: &Slot,
        members: impl Fn(K) -> Option<Vec<Certificate>>,
    ) -> Result<Option<Vec<Holder>>, Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + DeserializeOwned + Debug,
    {
        let namespace = slot.namespace();
        if !self.known.contains_key(namespace) {
            let running = match self.read(namespace).await {
                Ok(running) => running,
                Err(error) => {
                    let why = said(error)?;
                    let text = format!("the revisions of the static pods in {namespace} could not be read: {why}");
                    self.problems.push(Problem::new(namespace, text));
                    None
                }
            };
            self.known.insert(namespace.to_owned(), running);
        }
        let Some(Some(running)) = self.known.get(namespace) else { return Ok(None) };
        let api = Api::<K>::namespaced(self.client.clone(), namespace);
        let mut holders = Vec::new();
        for running in running {
            let name = format!("{}-{}", slot.object().name, running.revision);
            let copy = match api.get_opt(&name).await {
                Ok(copy) => copy,
                Err(error) => {
                    let why = said(error)?;
                    let text = format!("{} {namespace}/{name} could not be read: {why}", K::kind(&()));
                    self.problems.push(Problem::new(namespace, text));
                    None
                }
            };
            holders.push(copy.and_then(&members).map(|members| running.holds(members)));
        }
        Ok(holders.into_iter().collect())
    }

    /// Reads the revisions of the nodes.
    ///
    /// Without the operator resource there are no static pods. If its status names no node, the revisions are unknown.
    async fn read(&self, namespace: &str) -> Result<Option<Vec<Running>>, Error> {
        let Some((row, resource, pods)) = Component::with_static_pods_in(namespace) else { return Ok(None) };
        // Perennial has no right to read components that it does not manage by default.
        if !row.is_managed && self.left_alone.contains(&row.component) {
            return Ok(None);
        }
        let api = Api::<StaticPodOperator>::all_with(self.client.clone(), &api_resource(&resource));
        let Some(found) = single(api, "cluster").await? else { return Ok(Some(Vec::new())) };
        let nodes = found.status.map(|status| status.node_statuses).unwrap_or_default();
        if nodes.is_empty() {
            return Ok(None);
        }
        let mut running = Vec::new();
        for NodeStatus { node_name, current_revision, target_revision, .. } in nodes {
            // During a rollout, the node may run either revision.
            let revisions: BTreeSet<u64> = [current_revision, target_revision]
                .into_iter()
                .flatten()
                .filter_map(|revision| u64::try_from(revision).ok().filter(|revision| *revision > 0))
                .collect();
            if revisions.is_empty() {
                continue;
            }
            let since = self.started(namespace, &format!("{}-{node_name}", pods.name)).await?;
            running.extend(revisions.into_iter().map(|revision| Running { node: node_name.clone(), revision, since }));
        }
        Ok(Some(running))
    }

    /// Returns when the mirror pod of a static pod started.
    async fn started(&self, namespace: &str, pod: &str) -> Result<Option<Timestamp>, Error> {
        let found = Api::<Pod>::namespaced(self.client.clone(), namespace).get_opt(pod).await?;
        Ok(found.and_then(|pod| pod.status?.start_time).map(|time| time.0))
    }
}

impl Found {
    /// Returns all certificates.
    pub(super) fn certificates(&self) -> Vec<&Certificate> {
        self.secrets.values().chain(self.bundles.values()).flatten().flat_map(|holder| &holder.members).collect()
    }

    pub(super) fn secrets(&self) -> BTreeMap<Slot, Vec<Held>> {
        as_held(&self.secrets)
    }

    pub(super) fn bundles(&self) -> BTreeMap<Slot, Vec<Held>> {
        as_held(&self.bundles)
    }
}

fn as_held(found: &BTreeMap<Slot, Vec<Holder>>) -> BTreeMap<Slot, Vec<Held>> {
    let held = |holder: &Holder| Held {
        by: holder.by.clone(),
        revision: Some(holder.revision),
        since: holder.since,
        members: holder.members.iter().map(trust::id).collect(),
    };
    found.iter().map(|(slot, holders)| (slot.clone(), holders.iter().map(held).collect())).collect()
}
