//! The objects that a cluster has before any controller starts: definitions, namespaces, what it is, and its nodes.

use std::collections::BTreeSet;
use std::net::IpAddr;

use anyhow::Context;
use perennial_api::crds;
use perennial_apiserver::api::{Api, WriteOptions, Written};
use perennial_apiserver::path::Objects;
use perennial_apiserver::selector::Selector;
use perennial_apiserver::status::{ApiError, Reason};
use perennial_core::catalog::{BundleHome, Catalog};
use serde_json::{Value, json};

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
        let namespace = json!({"metadata": {"name": name}});
        ensure(api, &at("", "namespaces", name), namespace, Asked::No, &mut prepared).await?;
    }
    let infrastructure = at("config.openshift.io", "infrastructures", "cluster");
    let asked = Asked::when(wishes.cluster_domain.is_some() || wishes.api_url.is_some());
    ensure(api, &infrastructure, infrastructure_object(wishes), asked, &mut prepared).await?;
    let network = at("config.openshift.io", "networks", "cluster");
    let asked = Asked::when(!wishes.service_networks.is_empty());
    ensure(api, &network, network_object(wishes), asked, &mut prepared).await?;
    let (nodes, asked) = wishes.nodes();
    // Without a wish, nodes are for a cluster that has none.
    if asked || list_is_empty(api, &at("", "nodes", ""))? {
        for node in &nodes {
            ensure(api, &at("", "nodes", &node.name), node_object(node), Asked::when(asked), &mut prepared).await?;
        }
    }
    let pki = at(perennial_api::pki::GROUP, perennial_api::pki::PLURAL, perennial_api::pki::NAME);
    ensure(api, &pki, json!({"metadata": {"name": "cluster"}, "spec": {}}), Asked::No, &mut prepared).await?;
    Ok(prepared)
}

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

/// Whether somebody asked for an object to be like this, or it is only what it is by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Yes,
    No,
}

impl Asked {
    fn when(asked: bool) -> Asked {
        if asked { Asked::Yes } else { Asked::No }
    }
}

async fn ensure(api: &Api, at: &Objects, wanted: Value, asked: Asked, prepared: &mut Prepared) -> anyhow::Result<()> {
    let name = at.name.as_deref().unwrap_or_default();
    let failed = || format!("failed to write {} {name}", at.plural);
    let has_status = api.resource(at).with_context(failed)?.has_status && wanted.get("status").is_some();
    match api.get(at) {
        Err(error) if error.reason == Reason::NotFound => {
            let whole = Objects { name: None, ..at.clone() };
            api.create(&whole, wanted.clone(), &options()).await.with_context(failed)?;
            if has_status {
                merge_status(api, at, &wanted).await.with_context(failed)?;
            }
            prepared.made += 1;
        }
        Err(error) => return Err(error).with_context(failed),
        Ok(_) if asked == Asked::No => {}
        Ok(old) => {
            let mut new = api.merge(at, &wanted, &options()).await.with_context(failed)?.object;
            if has_status {
                new = merge_status(api, at, &wanted).await.with_context(failed)?.object;
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
    ensure(api, &at, wanted.clone(), Asked::No, prepared).await?;
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

fn list_is_empty(api: &Api, at: &Objects) -> anyhow::Result<bool> {
    Ok(api.list(at, &Selector::default(), None, Some(1))?.items.is_empty())
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
    // A placeholder stands for the namespaces of Services, which are not ours to make.
    let ours = of_rows.chain(of_bundles).filter(|name| !name.contains('<'));
    ["default", "kube-system", "kube-public", "kube-node-lease"].into_iter().chain(ours).collect()
}

fn infrastructure_object(wishes: &Wishes) -> Value {
    let domain = wishes.domain();
    let topology = if wishes.nodes().0.len() > 1 { "HighlyAvailable" } else { "SingleReplica" };
    json!({
        "metadata": {"name": "cluster"},
        "spec": {},
        "status": {
            "infrastructureName": domain.split('.').next().unwrap_or_default(),
            "apiServerURL": wishes.api_url(),
            "apiServerInternalURI": format!("https://api-int.{domain}:6443"),
            "controlPlaneTopology": topology,
            "infrastructureTopology": topology,
            "platformStatus": {"type": "None"},
        }
    })
}

fn network_object(wishes: &Wishes) -> Value {
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
