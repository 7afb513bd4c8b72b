//! What a cluster says about itself: addresses, nodes, key policy and features.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube_client::api::{ApiResource, DynamicObject, ListParams};
use kube_client::{Api, Client, Error};
use perennial_api::config::{FeatureGate, Infrastructure, Network};
use perennial_api::feature_gates::FeatureGates;
use perennial_core::catalog::{ClusterFacts, Object, TimeScale};
use perennial_core::policy::Policy;
use perennial_core::rules::Observed;
use perennial_core::spec::Host;

use crate::key_policy::{self, PolicyObject};
use crate::observe::{said, single};

/// What is the same for every certificate of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterState {
    pub(crate) facts: ClusterFacts,
    /// None where nobody could look.
    pub(crate) nodes: Option<BTreeMap<String, Vec<IpAddr>>>,
    pub(crate) policy: Observed<Policy>,
    /// Where that comes from.
    pub(crate) policy_object: PolicyObject,
    /// Whether lifetimes are those of a rehearsal.
    pub(crate) is_short: bool,
    /// How long a day of rotation should be, where somebody asks for that.
    pub(crate) rotation_base: Option<String>,
    /// What somebody should look at.
    pub(crate) troubles: Vec<String>,
}

/// Where developers ask for other lifetimes. Clusters with it are not upgraded.
pub(crate) const ROTATION_BASE: Object =
    Object { namespace: "openshift-config", name: "unsupported-cert-rotation-config" };

const SINGLETON: &str = "cluster";
/// What the version of an OpenShift cluster is called.
pub(crate) const CLUSTER_VERSION: &str = "version";
/// The labels of nodes of the control plane.
pub(crate) const CONTROL_PLANE: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];

/// Reads all of it. What is not there, makes no sense or cannot be read is said, and does not stop anybody: names that are not
/// known are not guessed at.
///
/// Other lifetimes are asked for of kube-apiserver alone, so `asks_for_base` is false where it is not kept.
pub(crate) async fn read(client: &Client, service_domain: &str, asks_for_base: bool) -> Result<ClusterState, Error> {
    let mut troubles = Vec::new();
    let infrastructure = optional::<Infrastructure>(client, &mut troubles).await?.unwrap_or_default();
    let network = optional::<Network>(client, &mut troubles).await?.unwrap_or_default();
    let gates = feature_gates(client, &mut troubles).await?;
    let status = infrastructure.and_then(|found| found.status).unwrap_or_default();
    let mut host = |field: &str, url: Option<&String>| {
        let url = url.filter(|url| !url.is_empty())?;
        let host = host_of(url);
        if host.is_none() {
            troubles.push(format!("Infrastructure cluster: status.{field} is {url:?}, which has no host"));
        }
        host
    };
    let api_external = host("apiServerURL", status.api_server_url.as_ref());
    let api_internal = host("apiServerInternalURI", status.api_server_internal_uri.as_ref());
    let networks = network.map(service_networks).unwrap_or_default();
    let parsed = networks.iter().map(|text| text.parse::<IpNet>().map_err(|_| text)).collect::<Result<Vec<_>, _>>();
    // Some of them are not better than none: a certificate would lose the names of the others.
    let service_networks = parsed.unwrap_or_else(|text| {
        troubles.push(format!("Network cluster: the service network {text:?} is no CIDR"));
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
    let nodes = nodes(client, &mut troubles).await?;
    let (policy, policy_object) = match &gates {
        // Whether there is a policy depends on them, and how long certificates live.
        Err(why) => {
            let problem = Some(key_policy::unreadable(why));
            (Observed::Unknown { why: why.clone() }, PolicyObject { problem, ..PolicyObject::default() })
        }
        Ok(gates) if !gates.configurable_pki => (Observed::Absent, PolicyObject::default()),
        Ok(_) => {
            let (policy, object) = key_policy::read(client).await?;
            // One that is invalid as a whole is a condition of its own.
            let is_invalid = matches!(policy, Observed::Unreadable { .. });
            troubles.extend(object.problem.iter().filter(|_| !is_invalid).map(|it| it.text.clone()));
            (policy, object)
        }
    };
    let is_short = gates.is_ok_and(|gates| gates.short_cert_rotation);
    let rotation_base = if asks_for_base { rotation_base(client, &mut troubles).await? } else { None };
    Ok(ClusterState { facts, nodes, policy, policy_object, is_short, rotation_base, troubles })
}

/// The lifetimes that a cluster asks for.
pub(crate) fn time_scale(asked: TimeScale, is_short: bool) -> TimeScale {
    if is_short && asked == TimeScale::FULL { TimeScale::SHORT } else { asked }
}

/// The one object of a kind; none where it is not there, or the kind is unknown; or what the server says instead.
async fn optional<K>(client: &Client, troubles: &mut Vec<String>) -> Result<Result<Option<K>, String>, Error>
where
    K: kube_client::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let found = single(Api::<K>::all(client.clone()), SINGLETON).await;
    readable(found, &format!("{} {SINGLETON}", K::kind(&())), troubles)
}

/// What was read, or what the server says instead, which is a trouble; an error only where it says nothing.
fn readable<T>(found: Result<T, Error>, what: &str, troubles: &mut Vec<String>) -> Result<Result<T, String>, Error> {
    match found {
        Ok(found) => Ok(Ok(found)),
        Err(error) => {
            let why = said(error)?;
            troubles.push(format!("{what} could not be read: {why}"));
            Ok(Err(why))
        }
    }
}

async fn rotation_base(client: &Client, troubles: &mut Vec<String>) -> Result<Option<String>, Error> {
    let api = Api::<ConfigMap>::namespaced(client.clone(), ROTATION_BASE.namespace);
    let found = single(api, ROTATION_BASE.name).await;
    let found = readable(found, &format!("ConfigMap {}/{}", ROTATION_BASE.namespace, ROTATION_BASE.name), troubles)?;
    let data = found.unwrap_or_default().and_then(|map| map.data).unwrap_or_default();
    Ok(data.get("base").filter(|base| !base.is_empty()).cloned())
}

/// The host of a URL, or of `host:port` without a scheme; brackets of an IPv6 address are not part of it.
fn host_of(url: &str) -> Option<Host> {
    let uri: http::Uri = url.trim().parse().ok()?;
    let host = uri.host()?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    (!host.is_empty()).then(|| Host::parse(host))
}

/// What is in use; what somebody asked for, until it is.
fn service_networks(network: Network) -> Vec<String> {
    let used = network.status.map(|status| status.service_network).unwrap_or_default();
    if used.is_empty() { network.spec.service_network } else { used }
}

async fn nodes(client: &Client, troubles: &mut Vec<String>) -> Result<Option<BTreeMap<String, Vec<IpAddr>>>, Error> {
    let mut nodes = BTreeMap::new();
    let listed = Api::<Node>::all(client.clone()).list(&ListParams::default()).await;
    let Ok(listed) = readable(listed, "the list of Nodes", troubles)? else { return Ok(None) };
    for node in listed {
        let labels = node.metadata.labels.unwrap_or_default();
        let name = node.metadata.name.unwrap_or_default();
        if !CONTROL_PLANE.iter().any(|label| labels.contains_key(*label)) {
            continue;
        }
        let addresses = node.status.and_then(|status| status.addresses).unwrap_or_default();
        let internal = addresses.iter().filter(|address| address.type_ == "InternalIP");
        let parsed: Vec<IpAddr> = internal.filter_map(|address| address.address.parse().ok()).collect();
        if parsed.is_empty() {
            troubles.push(format!("Node {name}: it has no address of type InternalIP"));
        }
        nodes.insert(name, parsed);
    }
    Ok(Some(nodes))
}

/// The version of the cluster, where it has one; or what the server says instead.
async fn cluster_version(client: &Client, troubles: &mut Vec<String>) -> Result<Result<Option<String>, String>, Error> {
    let resource = ApiResource {
        group: "config.openshift.io".to_owned(),
        version: "v1".to_owned(),
        api_version: "config.openshift.io/v1".to_owned(),
        kind: "ClusterVersion".to_owned(),
        plural: "clusterversions".to_owned(),
    };
    let found = single(Api::<DynamicObject>::all_with(client.clone(), &resource), CLUSTER_VERSION).await;
    let found = readable(found, &format!("ClusterVersion {CLUSTER_VERSION}"), troubles)?;
    let version = |found: DynamicObject| Some(found.data.pointer("/status/desired/version")?.as_str()?.to_owned());
    Ok(found.map(|found| found.and_then(version)))
}

/// Which features are on; or why nobody knows.
async fn feature_gates(client: &Client, troubles: &mut Vec<String>) -> Result<Result<FeatureGates, String>, Error> {
    let gates = match optional::<FeatureGate>(client, troubles).await? {
        Ok(Some(gates)) => gates,
        Ok(None) => return Ok(Ok(FeatureGates::default())),
        Err(why) => return Ok(Err(format!("FeatureGate {SINGLETON} could not be read: {why}"))),
    };
    // Only during an upgrade there are several.
    let version = match FeatureGates::depend_on_version(&gates) {
        true => cluster_version(client, troubles).await?,
        false => Ok(None),
    };
    let unknown = |why| format!("ClusterVersion {CLUSTER_VERSION} could not be read: {why}");
    Ok(version.map(|version| FeatureGates::of(&gates, version.as_deref())).map_err(unknown))
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
