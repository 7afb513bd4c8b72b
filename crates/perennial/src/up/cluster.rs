//! Creates the initial objects of the cluster: definitions, namespaces, nodes and configuration.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context;
use perennial_api::{crds, pki};
use perennial_apiserver::api::{Api, WriteOptions, Written};
use perennial_apiserver::path::Objects;
use perennial_apiserver::selector::Selector;
use perennial_apiserver::status::{ApiError, Reason};
use perennial_core::catalog::{BundleHome, Catalog, Component};
use serde_json::{Map, Value, json};

use super::cluster_config::{ClusterConfig, Node};

/// The result of preparing a cluster.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Prepared {
    /// The number of created objects.
    pub(crate) created: usize,
    /// The objects that a flag changed, by kind and name.
    pub(crate) changed: Vec<String>,
    /// Warnings for the log.
    pub(crate) warnings: Vec<String>,
}

/// Creates absent objects, and applies the flags to existing ones.
pub(crate) async fn prepare(api: &Api, config: &ClusterConfig) -> anyhow::Result<Prepared> {
    let mut prepared = Prepared::default();
    for definition in crds() {
        let wanted = serde_json::to_value(&definition).context("failed to serialize a definition")?;
        ensure_definition(api, &wanted, &mut prepared).await?;
    }
    for name in namespaces(Catalog::builtin()) {
        ensure(api, &at("", "namespaces", name), json!({"metadata": {"name": name}}), None, &mut prepared).await?;
    }
    // Nodes first: the topology of the cluster depends on their number.
    let (nodes, asked) = config.nodes();
    if asked || names(api, &at("", "nodes", ""))?.is_empty() {
        for node in &nodes {
            let wanted = node_object(node);
            ensure(api, &at("", "nodes", &node.name), wanted.clone(), asked.then_some(wanted), &mut prepared).await?;
        }
    }
    let count = names(api, &at("", "nodes", ""))?.len();
    let whole = infrastructure(config, count);
    let asked = infrastructure_change(config, count);
    ensure(api, &at(CONFIG, "infrastructures", "cluster"), whole, asked, &mut prepared).await?;
    let whole = network(config);
    let asked = (!config.service_networks.is_empty()).then(|| whole.clone());
    ensure(api, &at(CONFIG, "networks", "cluster"), whole, asked, &mut prepared).await?;
    let empty = json!({"metadata": {"name": pki::NAME}, "spec": {}});
    ensure(api, &at(pki::GROUP, pki::PLURAL, pki::NAME), empty, None, &mut prepared).await?;
    // Without a status, the spec of the gates applies. No controller here computes a status.
    let gates = json!({"metadata": {"name": "cluster"}, "spec": {}});
    ensure(api, &at(CONFIG, "featuregates", "cluster"), gates, None, &mut prepared).await?;
    let service_ca = json!({"metadata": {"name": "cluster"}, "spec": {"managementState": "Managed"}});
    ensure(api, &at("operator.openshift.io", "servicecas", "cluster"), service_ca, None, &mut prepared).await?;
    Ok(prepared)
}

/// Returns the name of the cluster for the kubeconfig.
pub(crate) fn name(api: &Api) -> String {
    let infrastructure = api.get(&at(CONFIG, "infrastructures", "cluster")).unwrap_or_default();
    let name = infrastructure["status"]["infrastructureName"].as_str().filter(|name| !name.is_empty());
    name.unwrap_or("perennial").to_owned()
}

const CONFIG: &str = "config.openshift.io";

/// Returns the path of a cluster-scoped object.
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

/// Returns the write options with the field manager of `perennial up`.
pub(super) fn options() -> WriteOptions {
    WriteOptions { manager: "perennial-up".to_owned(), ..WriteOptions::default() }
}

/// Creates an absent object, or applies `asked` to an existing one.
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
            prepared.created += 1;
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

/// Creates an absent definition. Never overwrites an existing one, whose owner is unknown.
async fn ensure_definition(api: &Api, wanted: &Value, prepared: &mut Prepared) -> anyhow::Result<()> {
    let name = wanted["metadata"]["name"].as_str().unwrap_or_default();
    let at = at("apiextensions.k8s.io", "customresourcedefinitions", name);
    ensure(api, &at, wanted.clone(), None, prepared).await?;
    let found = api.get(&at)?;
    if found["spec"]["versions"] != wanted["spec"]["versions"] {
        let warning = format!(
            "the definition {name} differs from the definition of this version, and was not changed; to replace it: perennial \
             crds {name} | kubectl replace -f -"
        );
        prepared.warnings.push(warning);
    }
    Ok(())
}

fn names(api: &Api, at: &Objects) -> anyhow::Result<Vec<String>> {
    let items = api.list(at, &Selector::default(), None, None)?.items;
    Ok(items.iter().filter_map(|item| item["metadata"]["name"].as_str()).map(ToOwned::to_owned).collect())
}

/// Returns the namespaces of every cluster and the namespaces of the catalog.
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
    let of_operators = Component::managed().filter_map(Component::operator_namespace);
    // A placeholder stands for the namespaces of Services, which users create.
    let ours = of_rows.chain(of_bundles).chain(of_operators).filter(|name| !name.contains('<'));
    ["default", "kube-system", "kube-public", "kube-node-lease"].into_iter().chain(ours).collect()
}

fn infrastructure(config: &ClusterConfig, nodes: usize) -> Value {
    let mut status = of_domain(config.domain());
    status["apiServerURL"] = config.api_url().into();
    status["platformStatus"] = json!({"type": "None"});
    for field in TOPOLOGIES {
        status[field] = topology(nodes).into();
    }
    json!({"metadata": {"name": "cluster"}, "spec": {}, "status": status})
}

/// Returns the change that the flags ask for, or none.
fn infrastructure_change(config: &ClusterConfig, nodes: usize) -> Option<Value> {
    let mut status = json!({});
    if let Some(domain) = &config.cluster_domain {
        status = of_domain(domain);
    }
    if config.cluster_domain.is_some() || config.api_url.is_some() {
        status["apiServerURL"] = config.api_url().into();
    }
    if !config.nodes.is_empty() {
        TOPOLOGIES.iter().for_each(|field| status[field] = topology(nodes).into());
    }
    let is_unchanged = status.as_object().is_none_or(Map::is_empty);
    (!is_unchanged).then(|| json!({"status": status}))
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

fn network(config: &ClusterConfig) -> Value {
    let networks: Vec<String> = config.service_networks().iter().map(ToString::to_string).collect();
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
