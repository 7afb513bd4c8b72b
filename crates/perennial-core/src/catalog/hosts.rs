//! The sources of the names in serving certificates, and the facts of the cluster that they need.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::spec::Host;

/// A source of host names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum HostSource {
    /// A fixed name or address.
    Fixed(&'static str),
    /// All four forms of a Service's name: `s`, `s.ns`, `s.ns.svc` and `s.ns.svc.<cluster domain>`.
    ServiceShort {
        /// The Service.
        service: &'static str,
        /// Its namespace.
        namespace: &'static str,
    },
    /// The two full forms of a Service's name: `s.ns.svc` and `s.ns.svc.<cluster domain>`.
    Service {
        /// The Service.
        service: &'static str,
        /// Its namespace.
        namespace: &'static str,
    },
    /// The first address of every service network: the address of the Service `kubernetes`.
    ServiceNetwork,
    /// The host that clients outside the cluster connect to.
    ApiExternal,
    /// The host that nodes connect to.
    ApiInternal,
    /// The virtual addresses of the API, on platforms that have them.
    ApiVips,
    /// The provisioning address of the bootstrap host.
    BootstrapProvisioning,
    /// The internal addresses of the node.
    NodeAddresses,
    /// The names of the Service that asked for the certificate.
    OwnService,
}

/// The facts about a cluster that certificates name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterFacts {
    /// The DNS domain of Services, usually `cluster.local`.
    pub service_domain: String,
    /// The host of the external API address.
    pub api_external: Option<Host>,
    /// The host of the internal API address.
    pub api_internal: Option<Host>,
    /// The networks of Service addresses.
    pub service_networks: Vec<IpNet>,
    /// The virtual addresses of the API; empty on platforms without them.
    pub api_vips: Vec<IpAddr>,
    /// The provisioning address of the bootstrap host, on bare metal.
    pub bootstrap_provisioning: Option<IpAddr>,
}

/// Which of a row's certificates: the one of the cluster, of a node, or of a Service.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Instance {
    /// The only certificate of the row.
    Cluster,
    /// The certificate of a control-plane node.
    Node {
        /// The node's name.
        name: String,
        /// Its internal addresses.
        addresses: Vec<IpAddr>,
    },
    /// The certificate of a Service.
    Service {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// The Secret that it asked for.
        secret: String,
        /// True for a headless Service, which needs wildcard names for its pods.
        headless: bool,
        /// The uid of the Service, which its certificate names. Empty if unknown.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        uid: String,
    },
}

/// Why a source has no host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostError {
    /// The cluster does not have the fact.
    #[error("the {fact} of the cluster is unknown")]
    Missing {
        /// The missing fact, as in the message.
        fact: &'static str,
    },
    /// The network has no address except its own.
    #[error("the service network {network} is too small: it has no address for the API")]
    NoAddress {
        /// The network.
        network: IpNet,
    },
}

impl HostSource {
    /// Returns the names of this source in canonical form, in the order of the certificate.
    pub fn hosts(&self, cluster: &ClusterFacts, instance: &Instance) -> Result<Vec<Host>, HostError> {
        let missing = |fact| HostError::Missing { fact };
        Ok(match *self {
            HostSource::Fixed(host) => vec![Host::parse(host)],
            HostSource::ServiceShort { service, namespace } => {
                let mut names = vec![Host::Dns(service.to_owned()), Host::Dns(format!("{service}.{namespace}"))];
                names.extend(service_names(service, namespace, cluster));
                names
            }
            HostSource::Service { service, namespace } => service_names(service, namespace, cluster).to_vec(),
            HostSource::ServiceNetwork => {
                if cluster.service_networks.is_empty() {
                    return Err(missing("service network"));
                }
                let first = |network| first_address(network).ok_or(HostError::NoAddress { network: *network });
                cluster.service_networks.iter().map(|network| first(network).map(Host::Ip)).collect::<Result<_, _>>()?
            }
            HostSource::ApiExternal => vec![cluster.api_external.clone().ok_or(missing("external API address"))?],
            HostSource::ApiInternal => vec![cluster.api_internal.clone().ok_or(missing("internal API address"))?],
            HostSource::ApiVips => cluster.api_vips.iter().copied().map(Host::Ip).collect(),
            HostSource::BootstrapProvisioning => cluster.bootstrap_provisioning.into_iter().map(Host::Ip).collect(),
            HostSource::NodeAddresses => match instance {
                Instance::Node { addresses, .. } if !addresses.is_empty() => {
                    addresses.iter().copied().map(Host::Ip).collect()
                }
                _ => return Err(missing("node's internal addresses")),
            },
            HostSource::OwnService => match instance {
                Instance::Service { namespace, name, headless: false, .. } => {
                    service_names(name, namespace, cluster).to_vec()
                }
                Instance::Service { namespace, name, headless: true, .. } => {
                    let names = service_names(name, namespace, cluster);
                    let wildcards = names.clone().map(|name| Host::Dns(format!("*.{name}")));
                    [names, wildcards].concat()
                }
                _ => return Err(missing("Service")),
            },
        })
    }
}

/// Returns the address after the network's own, which Kubernetes assigns to the Service `kubernetes`.
fn first_address(network: &IpNet) -> Option<IpAddr> {
    let address = match network.network() {
        IpAddr::V4(ip) => IpAddr::V4(ip.to_bits().checked_add(1)?.into()),
        IpAddr::V6(ip) => IpAddr::V6(ip.to_bits().checked_add(1)?.into()),
    };
    network.contains(&address).then_some(address)
}

fn service_names(service: &str, namespace: &str, cluster: &ClusterFacts) -> [Host; 2] {
    let name = format!("{service}.{namespace}.svc");
    let full = format!("{name}.{}", cluster.service_domain);
    [Host::Dns(name), Host::Dns(full)]
}
