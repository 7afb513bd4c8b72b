//! What static pods run with: the content of the revision that each node has.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::{Api, Client, Error};
use perennial_api::operator::static_pod::NodeStatus;
use perennial_api::operator::{Etcd, KubeAPIServer, KubeControllerManager};
use perennial_core::catalog::Delivery;
use perennial_core::rules::Observed;
use perennial_core::snapshot::{Held, Slot, Snapshot};
use perennial_core::wiring::{Wiring, instances, presented_slot};
use perennial_x509::{Certificate, trust};

use super::map;
use crate::read;

/// What was found of each slot, by whom.
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

/// A node and a revision that it may run.
struct Running {
    node: String,
    revision: u64,
    since: Option<Timestamp>,
}

/// Reads the revisions of everything that reaches its reader by one.
pub(super) async fn read(client: &Client, wiring: &Wiring<'_>, snapshot: &Snapshot) -> Result<Found, Error> {
    let (mut secrets, mut bundles) = (BTreeSet::new(), BTreeSet::new());
    let by_revision = |delivery| matches!(delivery, Delivery::Revisioned | Delivery::Relayed { .. });
    for edge in wiring.edges() {
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
    let mut revisions = Revisions { client, known: BTreeMap::new() };
    let mut found = Found::default();
    for slot in secrets.into_iter().filter(|slot| !slot.is_file()) {
        let mut holders = Vec::new();
        for running in revisions.of(slot.namespace()).await? {
            let object = slot.object();
            let api = Api::<Secret>::namespaced(client.clone(), &object.namespace);
            let copy = api.get_opt(&format!("{}-{}", object.name, running.revision)).await?;
            let members = copy.map_or(Observed::Absent, |copy| read::secret(&copy, &slot));
            let members = map(members, |it| [vec![it.certificate], it.chain].concat());
            holders.push(running.holds(members.present().cloned().unwrap_or_default()));
        }
        found.secrets.insert(slot, holders);
    }
    for slot in bundles.into_iter().filter(|slot| !slot.is_file()) {
        let mut holders = Vec::new();
        for running in revisions.of(slot.namespace()).await? {
            let object = slot.object();
            let api = Api::<ConfigMap>::namespaced(client.clone(), &object.namespace);
            let copy = api.get_opt(&format!("{}-{}", object.name, running.revision)).await?;
            let members = copy.map_or(Observed::Absent, |copy| read::bundle(&copy, slot.key()));
            let members = map(members, |it| it.members);
            holders.push(running.holds(members.present().cloned().unwrap_or_default()));
        }
        found.bundles.insert(slot, holders);
    }
    Ok(found)
}

impl Running {
    fn holds(&self, members: Vec<Certificate>) -> Holder {
        Holder { by: self.node.clone(), revision: self.revision, since: self.since, members }
    }
}

/// The revisions that the nodes run, by the namespace of their static pods.
struct Revisions<'a> {
    client: &'a Client,
    known: BTreeMap<String, Vec<Running>>,
}

impl Revisions<'_> {
    async fn of(&mut self, namespace: &str) -> Result<&[Running], Error> {
        if !self.known.contains_key(namespace) {
            let running = self.read(namespace).await?;
            self.known.insert(namespace.to_owned(), running);
        }
        Ok(self.known.get(namespace).map(Vec::as_slice).unwrap_or_default())
    }

    async fn read(&self, namespace: &str) -> Result<Vec<Running>, Error> {
        let client = self.client.clone();
        let (pod, nodes) = match namespace {
            "openshift-kube-apiserver" => {
                let found = Api::<KubeAPIServer>::all(client).get_opt("cluster").await?;
                ("kube-apiserver", found.and_then(|it| it.status).map(|it| it.node_statuses))
            }
            "openshift-kube-controller-manager" => {
                let found = Api::<KubeControllerManager>::all(client).get_opt("cluster").await?;
                ("kube-controller-manager", found.and_then(|it| it.status).map(|it| it.node_statuses))
            }
            "openshift-etcd" => {
                let found = Api::<Etcd>::all(client).get_opt("cluster").await?;
                ("etcd", found.and_then(|it| it.status).map(|it| it.node_statuses))
            }
            _ => return Ok(Vec::new()),
        };
        let mut running = Vec::new();
        for NodeStatus { node_name, current_revision, target_revision, .. } in nodes.unwrap_or_default() {
            // While a node changes over, it may run either.
            let revisions: BTreeSet<u64> = [current_revision, target_revision]
                .into_iter()
                .flatten()
                .filter_map(|revision| u64::try_from(revision).ok().filter(|revision| *revision > 0))
                .collect();
            if revisions.is_empty() {
                continue;
            }
            let since = self.started(namespace, &format!("{pod}-{node_name}")).await?;
            running.extend(revisions.into_iter().map(|revision| Running { node: node_name.clone(), revision, since }));
        }
        Ok(running)
    }

    /// When the mirror pod of a static pod started.
    async fn started(&self, namespace: &str, pod: &str) -> Result<Option<Timestamp>, Error> {
        let found = Api::<Pod>::namespaced(self.client.clone(), namespace).get_opt(pod).await?;
        Ok(found.and_then(|pod| pod.status?.start_time).map(|time| time.0))
    }
}

impl Found {
    /// Every certificate in it.
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
