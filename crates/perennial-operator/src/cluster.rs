//! What a cluster says about itself: addresses, nodes, key policy and features.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube_client::api::{ApiResource, DynamicObject, ListParams};
use kube_client::{Api, Client, Error};
use perennial_api::config::{FeatureGate, Infrastructure, Network};
use perennial_api::pki;
use perennial_core::catalog::{ClusterFacts, Object, TimeScale};
use perennial_core::policy::Policy;
use perennial_core::rules::Observed;
use perennial_core::spec::Host;

use crate::observe::{said, single};

/// What is the same for every certificate of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterState {
    pub(crate) facts: ClusterFacts,
    /// None where nobody could look.
    pub(crate) nodes: Option<BTreeMap<String, Vec<IpAddr>>>,
    pub(crate) policy: Observed<Policy>,
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
    let gates = optional::<FeatureGate>(client, &mut troubles).await?;
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
    let policy = match &gates {
        // Whether there is a policy depends on them, and how long certificates live.
        Err(why) => Observed::Unknown { why: why.clone() },
        Ok(gates) if is_off(gates.as_ref(), "ConfigurablePKI") => Observed::Absent,
        Ok(_) => policy(client, &mut troubles).await?,
    };
    let is_short = is_on(gates.ok().flatten().as_ref(), "ShortCertRotation");
    let rotation_base = if asks_for_base { rotation_base(client, &mut troubles).await? } else { None };
    Ok(ClusterState { facts, nodes, policy, is_short, rotation_base, troubles })
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

async fn policy(client: &Client, troubles: &mut Vec<String>) -> Result<Observed<Policy>, Error> {
    let resource = ApiResource {
        group: pki::GROUP.to_owned(),
        version: pki::VERSIONS[0].to_owned(),
        api_version: format!("{}/{}", pki::GROUP, pki::VERSIONS[0]),
        kind: pki::KIND.to_owned(),
        plural: pki::PLURAL.to_owned(),
    };
    let found = single(Api::<DynamicObject>::all_with(client.clone(), &resource), pki::NAME).await;
    let found = match readable(found, &format!("{} {}", pki::KIND, pki::NAME), troubles)? {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Observed::Absent),
        Err(why) => return Ok(Observed::Unknown { why }),
    };
    let value = serde_json::to_value(&found).map_err(Error::SerdeError)?;
    Ok(match pki::parse_value(value) {
        Ok((_, policy)) => Observed::Present(policy),
        Err(error) => Observed::Unreadable { why: error.to_string() },
    })
}

fn is_on(gates: Option<&FeatureGate>, name: &str) -> bool {
    listed(gates, name, |version| &version.enabled)
}

fn is_off(gates: Option<&FeatureGate>, name: &str) -> bool {
    listed(gates, name, |version| &version.disabled) && !is_on(gates, name)
}

/// The first entry is that of the version in use.
fn listed(
    gates: Option<&FeatureGate>,
    name: &str,
    list: impl Fn(
        &perennial_api::config::feature_gate::VersionFeatureGates,
    ) -> &Vec<perennial_api::config::feature_gate::Feature>,
) -> bool {
    let status = gates.and_then(|gates| gates.status.as_ref());
    let version = status.and_then(|status| status.feature_gates.first());
    version.is_some_and(|version| list(version).iter().any(|feature| feature.name == name))
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
