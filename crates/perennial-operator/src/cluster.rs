//! Reads the facts about a cluster: addresses, nodes, key policy and features.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube_client::api::{ApiResource, DynamicObject, ListParams};
use kube_client::{Api, Client, Error};
use perennial_api::config::{self, Infrastructure, Network};
use perennial_api::feature_gates::FeatureGates;
use perennial_core::catalog::{ClusterFacts, Object};
use perennial_core::policy::Policy;
use perennial_core::snapshot::{FeatureGate, Observed};
use perennial_core::spec::Host;

use crate::key_policy::{self, PolicyObject};
use crate::observe::{said, single};

/// The state of a cluster that is the same for all its certificates.
#[derive(Debug)]
pub(crate) struct ClusterState {
    pub(crate) facts: ClusterFacts,
    pub(crate) nodes: Observed<BTreeMap<String, Vec<IpAddr>>>,
    pub(crate) feature_gate: Observed<FeatureGate>,
    pub(crate) policy: Observed<Policy>,
    /// The object that the key policy comes from.
    pub(crate) policy_object: PolicyObject,
    /// The requested length of a day of rotation, if the cluster requests one.
    pub(crate) rotation_base: Option<String>,
    /// The problems that an administrator should examine.
    pub(crate) problems: Vec<String>,
}

/// The ConfigMap in which developers request other lifetimes. A cluster with this ConfigMap is not upgraded.
pub(crate) const ROTATION_BASE: Object =
    Object { namespace: "openshift-config", name: "unsupported-cert-rotation-config" };

const SINGLETON: &str = "cluster";
/// The name of the ClusterVersion of an OpenShift cluster.
pub(crate) const CLUSTER_VERSION: &str = "version";
/// The labels of control plane nodes.
pub(crate) const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Which parts of a cluster the managed components depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Needs {
    /// The requested lifetimes. Only kube-apiserver supports them.
    pub(crate) rotation_base: bool,
    /// The addresses of the nodes, for certificates of single nodes.
    pub(crate) node_addresses: bool,
}

/// Reads the state of a cluster.
///
/// The function reports an object that is invalid or cannot be read, and continues with the others. A name that is missing or
/// invalid stays unknown; the function does not guess names.
pub(crate) async fn read(client: &Client, service_domain: &str, needs: Needs) -> Result<ClusterState, Error> {
    let mut problems = Vec::new();
    let infrastructure = optional::<Infrastructure>(client, &mut problems).await?.unwrap_or_default();
    let network = optional::<Network>(client, &mut problems).await?.unwrap_or_default();
    let feature_gate = feature_gate(client, &mut problems).await?;
    let status = infrastructure.and_then(|found| found.status).unwrap_or_default();
    let mut host = |field: &str, url: Option<&String>| {
        let url = url.filter(|url| !url.is_empty())?;
        let host = host_of(url);
        if host.is_none() {
            problems.push(format!("Infrastructure cluster: status.{field} is {url:?}, which has no host"));
        }
        host
    };
    let api_external = host("apiServerURL", status.api_server_url.as_ref());
    let api_internal = host("apiServerInternalURI", status.api_server_internal_uri.as_ref());
    let networks = network.map(service_networks).unwrap_or_default();
    let parsed = networks.iter().map(|text| text.parse::<IpNet>().map_err(|_| text)).collect::<Result<Vec<_>, _>>();
    // An incomplete list is no better than an empty one: a certificate would lose the names of the missing networks.
    let service_networks = parsed.unwrap_or_else(|text| {
        problems.push(format!("Network cluster: the service network {text:?} is not a CIDR"));
        Vec::new()
    });
    let facts = ClusterFacts {
        service_domain: service_domain.to_owned(),
        api_external,
        api_internal,
        service_networks,
        api_vips: Vec::new(),
        bootstrap_provisioning: None,
    };
    let nodes = nodes(client, needs, &mut problems).await?;
    let (policy, policy_object) = match &feature_gate {
        // The feature gate decides whether there is a policy, and how long certificates are valid.
        Observed::Unreadable { why } | Observed::Unknown { why } => {
            let problem = Some(key_policy::unreadable(why));
            (Observed::Unknown { why: why.clone() }, PolicyObject { problem, ..PolicyObject::default() })
        }
        Observed::Present(gate) if !gate.configurable_pki => {
            let why = "the feature gate ConfigurablePKI is off, so the PKI resource is not read".to_owned();
            (Observed::Unknown { why }, PolicyObject::default())
        }
        Observed::Absent | Observed::Present(_) => {
            let (policy, object) = key_policy::read(client).await?;
            // A policy that is invalid as a whole has its own condition.
            let is_invalid = matches!(policy, Observed::Unreadable { .. });
            problems.extend(object.problem.iter().filter(|_| !is_invalid).map(|it| it.text.clone()));
            (policy, object)
        }
    };
    let rotation_base = if needs.rotation_base { rotation_base(client, &mut problems).await? } else { None };
    Ok(ClusterState { facts, nodes, feature_gate, policy, policy_object, rotation_base, problems })
}

/// Returns the only object of a kind; none if the object or the kind does not exist; or the error that the server reports.
async fn optional<K>(client: &Client, problems: &mut Vec<String>) -> Result<Result<Option<K>, String>, Error>
where
    K: kube_client::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let found = single(Api::<K>::all(client.clone()), SINGLETON).await;
    readable(found, &format!("{} {SINGLETON}", K::kind(&())), problems)
}

/// Returns the object, or the error that the server reports, which also becomes a problem. Fails only if the server does not
/// answer.
fn readable<T>(found: Result<T, Error>, what: &str, problems: &mut Vec<String>) -> Result<Result<T, String>, Error> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(error) => {
            let why = said(error)?;
            problems.push(format!("{what} could not be read: {why}"));
            Ok(Err(why))
        }
    }
}

async fn rotation_base(client: &Client, problems: &mut Vec<String>) -> Result<Option<String>, Error> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), ROTATION_BASE.namespace);
    let found = single(api, ROTATION_BASE.name).await;
    let found = readable(found, &format!("ConfigMap {}/{}", ROTATION_BASE.namespace, ROTATION_BASE.name), problems)?;
    let data = found.unwrap_or_default().and_then(|map| map.data).unwrap_or_default();
    Ok(data.get("base").filter(|base| !base.is_empty()).cloned())
}

/// Returns the host of a URL, or of `host:port` without a scheme. The result has no brackets around an IPv6 address.
fn host_of(url: &str) -> Option<Host> {
    let uri: http::Uri = url.trim().parse().ok()?;
    let host = uri.host()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then(|| Host::parse(host))
}

/// Returns the service networks in use; the requested ones until then.
fn service_networks(network: Network) -> Vec<String> {
    let used = network.status.map(|status| status.service_network).unwrap_or_default();
    if used.is_empty() { network.spec.service_network } else { used }
}

async fn nodes(
    client: &Client,
    needs: Needs,
    problems: &mut Vec<String>,
) -> Result<Observed<BTreeMap<String, Vec<IpAddr>>>, Error> {
    let mut nodes = BTreeMap::new();
    let listed = Api::<Node>::all(client.clone()).list(&ListParams::default()).await;
    let listed = match readable(listed, "the list of Nodes", problems)? {
        Ok(listed) => listed,
        Err(why) => return Ok(Observed::Unknown { why }),
    };
    for node in listed {
        let labels = node.metadata.labels.unwrap_or_default();
        let name = node.metadata.name.unwrap_or_default();
        if !CONTROL_PLANE.iter().any(|label| labels.contains_key(*label)) {
            continue;
        }
        let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
        let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
        let parsed: Vec<IpAddr> = internal.filter_map(|address| address.address.parse().ok()).collect();
        if parsed.is_empty() && needs.node_addresses {
            problems.push(format!("Node {name}: it has no address of type InternalIP"));
        }
        nodes.insert(name, parsed);
    }
    Ok(Observed::Present(nodes))
}

/// Returns the version of the cluster, if the cluster has one; or the error that the server reports.
async fn cluster_version(client: &Client, problems: &mut Vec<String>) -> Result<Result<Option<String>, String>, Error> {
    let resource = ApiResource {
        group: "config.openshift.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "config.openshift.io/v1".to_owned(),
        kind: "ClusterVersion".to_owned(),
        plural: "clusterversions".to_owned(),
    };
    let found = single(Api::<DynamicObject>::all_with(client.clone(), &resource), CLUSTER_VERSION).await;
    let found = readable(found, &format!("ClusterVersion {CLUSTER_VERSION}"), problems)?;
    let version = |found: DynamicObject| Some(found.data.pointer("/status/desired/version")?.as_str()?.to_owned());
    Ok(found.map(|found| found.and_then(version)))
}

/// Returns the features that are on, or the reason why they are not known.
async fn feature_gate(client: &Client, problems: &mut Vec<String>) -> Result<Observed<FeatureGate>, Error> {
    let gates = match optional::<config::FeatureGate>(client, problems).await? {
        Ok(Some(gates)) => gates,
        Ok(None) => return Ok(Observed::Absent),
        Err(why) => {
            let why = format!("FeatureGate {SINGLETON} could not be read: {why}");
            return Ok(Observed::Unknown { why });
        }
    };
    // The FeatureGate lists several versions only during an upgrade.
    let version = match FeatureGates::depend_on_version(&gates) {
        true => cluster_version(client, problems).await?,
        false => Ok(None),
    };
    Ok(match version {
        Ok(version) => {
            let FeatureGates { configurable_pki, short_cert_rotation } = FeatureGates::of(&gates, version.as_deref());
            Observed::Present(FeatureGate { configurable_pki, short_cert_rotation })
        }
        Err(why) => Observed::Unknown { why: format!("ClusterVersion {CLUSTER_VERSION} could not be read: {why}") },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_an_address_is_found_whatever_its_form() {
        let host = |url: &str| host_of(url).map(|host| host.to_string());
        assert_eq!(host("https://api.shop.example.com:6443").as_deref(), Some("api.shop.example.com"));
        assert_eq!(host("https://api.shop.example.com").as_deref(), Some("api.shop.example.com"));
        assert_eq!(host("https://[FD00:0::1]:6443").as_deref(), Some("fd00::1"));
        assert_eq!(host("https://192.0.2.7:6443/").as_deref(), Some("192.0.2.7"));
        assert_eq!(host("api-int.shop.example.com:6443").as_deref(), Some("api-int.shop.example.com"));
        assert_eq!(host("https://"), None);
        assert_eq!(host("not a url"), None);
    }
}
