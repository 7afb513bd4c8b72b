//! The objects that a cluster has before any controller starts: definitions, namespaces, what it is, and its nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context;
use perennial_api::{crds, pki};
use perennial_apiserver::api::{Api, WriteOptions, Written};
use perennial_apiserver::path::Objects;
use perennial_apiserver::selector::Selector;
use perennial_apiserver::status::{ApiError, Reason};
use perennial_core::catalog::{BundleHome, Catalog, Component};
use perennial_operator::observe::KEPT;
use serde_json::{Map, Value, json};

use super::wishes::{Node, Wishes};

/// What came of preparing a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// How many objects were made.
    pub(crate) made: usize,
    /// What was changed because it was asked for, by kind and name.
    pub(crate) changed: Vec<String>,
    /// What somebody should look at.
    pub(crate) doubts: Vec<String>,
}

/// Makes what is absent, and changes what was asked for. Everything else stays as it is.
pub(crate) async fn prepare(api: &Api, wishes: &Wishes) -> anyhow::Result<Prepared> {
    let mut prepared = Prepared::default();
    for definition in crds() {
        let wanted = serde_json::to_value(&definition).context("a definition is plain data")?;
        keep_definition(api, &wanted, &mut prepared).await?;
    }
    for name in namespaces(Catalog::builtin()) {
        ensure(api, &at("", "namespaces", name), json!({"metadata": {"name": name}}), None, &mut prepared).await?;
    }
    // Nodes first: what the cluster is depends on how many there are.
    let (nodes, asked) = wishes.nodes();
    if asked || names(api, &at("", "nodes", ""))?.is_empty() {
        for node in &nodes {
            let wanted = node_object(node);
            ensure(api, &at("", "nodes", &node.name), wanted.clone(), asked.then_some(wanted), &mut prepared).await?;
        }
    }
    let count = names(api, &at("", "nodes", ""))?.len();
    let whole = infrastructure(wishes, count);
    let asked = infrastructure_change(wishes, count);
    ensure(api, &at(CONFIG, "infrastructures", "cluster"), whole, asked, &mut prepared).await?;
    let whole = network(wishes);
    let asked = (!wishes.service_networks.is_empty()).then(|| whole.clone());
    ensure(api, &at(CONFIG, "networks", "cluster"), whole, asked, &mut prepared).await?;
    let empty = json!({"metadata": {"name": pki::NAME}, "spec": {}});
    ensure(api, &at(pki::GROUP, pki::PLURAL, pki::NAME), empty, None, &mut prepared).await?;
    // Without a status, the specification of the gates counts: there is nobody else who would compute one.
    let gates = json!({"metadata": {"name": "cluster"}, "spec": {}});
    ensure(api, &at(CONFIG, "featuregates", "cluster"), gates, None, &mut prepared).await?;
    let service_ca = json!({"metadata": {"name": "cluster"}, "spec": {"managementState": "Managed"}});
    ensure(api, &at("operator.openshift.io", "servicecas", "cluster"), service_ca, None, &mut prepared).await?;
    Ok(prepared)
}

/// What the cluster is called, for who has several.
pub(crate) fn name(api: &Api) -> String {
    let infrastructure = api.get(&at(CONFIG, "infrastructures", "cluster")).unwrap_or_default();
    let name = infrastructure["status"]["infrastructureName"].as_str().filter(|name| !name.is_empty());
    name.unwrap_or("perennial").to_owned()
}

const CONFIG: &str = "config.openshift.io";

/// A cluster-wide object.
pub(super) fn at(group: &str, plural: &str, name: &str) -> Objects {
    Objects {
        group: group.to_owned(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        namespace: None,
        name: Some(name).filter(|name| !name.is_empty()).map(ToOwned::to_owned),
        subresource: None,
    }
}

/// What the object's writer is called.
pub(super) fn options() -> WriteOptions {
    WriteOptions { manager: "perennial-up".to_owned(), ..WriteOptions::default() }
}

/// Makes an object that is absent. One that is there is changed as far as somebody asked for it.
async fn ensure(
    api: &Api,
    at: &Objects,
    whole: Value,
    asked: Option<Value>,
    prepared: &mut Prepared,
) -> anyhow::Result<()> {
    let name = at.name.as_deref().unwrap_or_default();
    let failed = || format!("failed to write {} {name}", at.plural);
    let has_status = api.resource(at).with_context(failed)?.has_status;
    let with_status = |wanted: &Value| has_status && wanted.get("status").is_some();
    match (api.get(at), asked) {
        (Err(error), _) if error.reason == Reason::NotFound => {
            let without_name = Objects { name: None, ..at.clone() };
            api.create(&without_name, whole.clone(), &options()).await.with_context(failed)?;
            if with_status(&whole) {
                merge_status(api, at, &whole).await.with_context(failed)?;
            }
            prepared.made += 1;
        }
        (Err(error), _) => return Err(error).with_context(failed),
        (Ok(_), None) => {}
        (Ok(old), Some(asked)) => {
            let mut new = api.merge(at, &asked, &options()).await.with_context(failed)?.object;
            if with_status(&asked) {
                new = merge_status(api, at, &asked).await.with_context(failed)?.object;
            }
            if new["metadata"]["resourceVersion"] != old["metadata"]["resourceVersion"] {
                prepared.changed.push(format!("{} {name}", at.plural));
            }
        }
    }
    Ok(())
}

async fn merge_status(api: &Api, at: &Objects, wanted: &Value) -> Result<Written, ApiError> {
    let at = Objects { subresource: Some("status".to_owned()), ..at.clone() };
    api.merge(&at, &json!({"status": wanted["status"]}), &options()).await
}

/// A definition that is there is never overwritten: whose it is, is not known.
async fn keep_definition(api: &Api, wanted: &Value, prepared: &mut Prepared) -> anyhow::Result<()> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let at = at("apiextensions.k8s.io", "customresourcedefinitions", name);
    ensure(api, &at, wanted.clone(), None, prepared).await?;
    let found = api.get(&at)?;
    if found["spec"]["versions"] != wanted["spec"]["versions"] {
        let doubt = format!(
            "the definition {name} is not the one of this version and was left as it is; to take this one: perennial \
             crds {name} | kubectl replace -f -"
        );
        prepared.doubts.push(doubt);
    }
    Ok(())
}

fn names(api: &Api, at: &Objects) -> anyhow::Result<Vec<String>> {
    let items = api.list(at, &Selector::default(), None, None)?.items;
    Ok(items.iter().filter_map(|item| item["metadata"]["name"].as_str()).map(ToOwned::to_owned).collect())
}

/// Those that every cluster has, and every one that the catalog writes to.
fn namespaces(catalog: &Catalog) -> BTreeSet<&'static str> {
    let of_rows = catalog.rows.iter().flat_map(|row| {
        let copies = row.copies.iter().map(|copy| copy.object);
        catalog.secret_of(row).into_iter().chain(copies).map(|object| object.namespace)
    });
    let of_bundles = catalog.bundles.iter().flat_map(|bundle| {
        let homes = match bundle.home {
            BundleHome::File { config_maps, .. } => config_maps.to_vec(),
            BundleHome::ConfigMap(place) => vec![place],
        };
        let copies = bundle.copies.iter().map(|copy| copy.object);
        homes.into_iter().map(|place| place.object).chain(copies).map(|object| object.namespace)
    });
    let of_operators = KEPT.into_iter().filter_map(Component::operator_namespace);
    // A placeholder stands for the namespaces of Services, which are not ours to make.
    let ours = of_rows.chain(of_bundles).chain(of_operators).filter(|name| !name.contains('<'));
    ["default", "kube-system", "kube-public", "kube-node-lease"].into_iter().chain(ours).collect()
}

fn infrastructure(wishes: &Wishes, nodes: usize) -> Value {
    let mut status = of_domain(wishes.domain());
    status["apiServerURL"] = wishes.api_url().into();
    status["platformStatus"] = json!({"type": "None"});
    for field in TOPOLOGIES {
        status[field] = topology(nodes).into();
    }
    json!({"metadata": {"name": "cluster"}, "spec": {}, "status": status})
}

/// What the flags say about it, and nothing else.
fn infrastructure_change(wishes: &Wishes, nodes: usize) -> Option<Value> {
    let mut status = json!({});
    if let Some(domain) = &wishes.cluster_domain {
        status = of_domain(domain);
    }
    if wishes.cluster_domain.is_some() || wishes.api_url.is_some() {
        status["apiServerURL"] = wishes.api_url().into();
    }
    if !wishes.nodes.is_empty() {
        TOPOLOGIES.iter().for_each(|field| status[field] = topology(nodes).into());
    }
    let says_nothing = status.as_object().is_none_or(Map::is_empty);
    (!says_nothing).then(|| json!({"status": status}))
}

const TOPOLOGIES: [&str; 2] = ["controlPlaneTopology", "infrastructureTopology"];

fn topology(nodes: usize) -> &'static str {
    if nodes > 1 { "HighlyAvailable" } else { "SingleReplica" }
}

fn of_domain(domain: &str) -> Value {
    json!({
        "infrastructureName": domain.split('.').next().unwrap_or_default(),
        "apiServerInternalURI": format!("https://api-int.{domain}:6443"),
    })
}

fn network(wishes: &Wishes) -> Value {
    let networks: Vec<String> = wishes.service_networks().iter().map(ToString::to_string).collect();
    json!({
        "metadata": {"name": "cluster"},
        "spec": {"serviceNetwork": networks},
        "status": {"serviceNetwork": networks},
    })
}

fn node_object(node: &Node) -> Value {
    let address = |kind: &str, text: String| json!({"type": kind, "address": text});
    let mut addresses: Vec<Value> =
        node.addresses.iter().map(|ip: &IpAddr| address("InternalIP", ip.to_string())).collect();
    addresses.push(address("Hostname", node.name.clone()));
    json!({
        "metadata": {
            "name": node.name,
            "labels": {
                "kubernetes.io/hostname": node.name,
                "node-role.kubernetes.io/control-plane": "",
                "node-role.kubernetes.io/master": "",
            }
        },
        "spec": {},
        "status": {"addresses": addresses},
    })
}
