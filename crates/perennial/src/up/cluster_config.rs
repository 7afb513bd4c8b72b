//! The configuration of the cluster from the flags, and its defaults.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{bail, ensure};
use ipnet::IpNet;
use perennial_apiserver::names::is_dns_subdomain;

/// The configuration from the flags. Absent fields keep the stored value or get the default.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ClusterConfig {
    /// The DNS domain of the cluster.
    pub(crate) cluster_domain: Option<String>,
    /// The URL of the API server for users.
    pub(crate) api_url: Option<String>,
    /// The service networks.
    pub(crate) service_networks: Vec<IpNet>,
    /// The names and addresses of nodes.
    pub(crate) nodes: Vec<(String, IpAddr)>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) addresses: Vec<IpAddr>,
}

impl ClusterConfig {
    pub(crate) fn domain(&self) -> &str {
        self.cluster_domain.as_deref().unwrap_or("perennial.test")
    }

    pub(crate) fn api_url(&self) -> String {
        self.api_url.clone().unwrap_or_else(|| format!("https://api.{}:6443", self.domain()))
    }

    pub(crate) fn service_networks(&self) -> Vec<IpNet> {
        match &self.service_networks[..] {
            [] => vec!["172.30.0.0/16".parse().expect("this is a network")],
            asked => asked.to_vec(),
        }
    }

    /// Returns the nodes with their addresses, and whether a flag asked for them.
    pub(crate) fn nodes(&self) -> (Vec<Node>, bool) {
        if self.nodes.is_empty() {
            return (vec![Node { name: this_machine(), addresses: vec![Ipv4Addr::LOCALHOST.into()] }], false);
        }
        let mut addresses: BTreeMap<&str, Vec<IpAddr>> = BTreeMap::new();
        self.nodes.iter().for_each(|(name, address)| addresses.entry(name).or_default().push(*address));
        let node = |(name, addresses): (&str, Vec<IpAddr>)| Node { name: name.to_owned(), addresses };
        (addresses.into_iter().map(node).collect(), true)
    }

    /// Checks the service networks.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        let (v4, v6): (Vec<&IpNet>, Vec<&IpNet>) =
            self.service_networks.iter().partition(|network| network.addr().is_ipv4());
        ensure!(
            v4.len() <= 1 && v6.len() <= 1,
            "--service-network: found {}; accepted are at most one IPv4 and one IPv6 network",
            self.service_networks.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        );
        if let Some(network) = self.service_networks.iter().find(|network| **network != network.trunc()) {
            bail!("--service-network: found {network}, which has host bits; did you mean {}?", network.trunc());
        }
        Ok(())
    }
}

/// Parses `NAME=IP`.
pub(crate) fn parse_node(text: &str) -> anyhow::Result<(String, IpAddr)> {
    let Some((name, address)) = text.split_once('=') else { bail!("expected NAME=IP, such as node-0=10.0.0.4") };
    let name = parse_domain(name)?;
    let Ok(address) = address.parse() else { bail!("{address:?} is not an IP address") };
    Ok((name, address))
}

/// Parses a lower-case DNS name.
pub(crate) fn parse_domain(text: &str) -> anyhow::Result<String> {
    ensure!(
        is_dns_subdomain(text) && text.split('.').all(|label| label.len() <= 63),
        "{text:?} is not a DNS name: expected labels of lower-case letters, digits and '-', separated by dots"
    );
    Ok(text.to_owned())
}

/// Parses `https://HOST[:PORT]`.
pub(crate) fn parse_api_url(text: &str) -> anyhow::Result<String> {
    let accepted = "accepted is https://HOST or https://HOST:PORT";
    let Ok(uri) = text.parse::<axum::http::Uri>() else { bail!("{text:?} is not a URL; {accepted}") };
    let has_user = uri.authority().is_some_and(|authority| authority.as_str().contains('@'));
    let is_plain = uri.query().is_none() && matches!(uri.path(), "" | "/") && !has_user;
    ensure!(uri.scheme_str() == Some("https") && uri.host().is_some_and(|host| !host.is_empty()) && is_plain, accepted);
    Ok(text.trim_end_matches('/').to_owned())
}

/// Returns the host name, or `localhost` if it is not a valid node name.
pub(super) fn this_machine() -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    parse_domain(&name.trim().to_ascii_lowercase()).unwrap_or_else(|_| "localhost".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_a_name_and_an_address() {
        assert_eq!(parse_node("n-0.lab=10.0.0.4").unwrap(), ("n-0.lab".to_owned(), [10, 0, 0, 4].into()));
        assert_eq!(parse_node("n=fd00::1").unwrap().1, "fd00::1".parse::<IpAddr>().unwrap());
        for wrong in ["n", "=10.0.0.4", "N=10.0.0.4", "n=10.0.0", "-n=10.0.0.4", "n_=10.0.0.4"] {
            assert!(parse_node(wrong).is_err(), "{wrong}");
        }
        // A DNS label has at most 63 characters.
        assert!(parse_domain(&"n".repeat(63)).is_ok() && parse_domain(&"n".repeat(64)).is_err());
    }

    #[test]
    fn an_api_url_has_a_host_and_no_path() {
        for right in ["https://api.lab.test:6443", "https://10.0.0.4/", "https://[fd00::1]:6443"] {
            assert!(parse_api_url(right).is_ok(), "{right}");
        }
        for wrong in
            ["http://api.lab.test", "api.lab.test", "https://", "https://a/b", "https://a?b", "https://u:p@a", ""]
        {
            assert!(parse_api_url(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_node_may_have_several_addresses_and_each_family_one_network() {
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let nodes =
            vec![("b".to_owned(), ip("10.0.0.2")), ("a".to_owned(), ip("10.0.0.1")), ("b".to_owned(), ip("::2"))];
        let config = ClusterConfig { nodes, ..ClusterConfig::default() };
        let (nodes, asked) = config.nodes();
        assert!(asked);
        assert_eq!(nodes[1], Node { name: "b".to_owned(), addresses: vec![ip("10.0.0.2"), ip("::2")] });
        let networks = |texts: &[&str]| ClusterConfig {
            service_networks: texts.iter().map(|text| text.parse().unwrap()).collect(),
            ..ClusterConfig::default()
        };
        assert!(networks(&["10.0.0.0/16", "fd00::/112"]).check().is_ok());
        assert!(networks(&["10.0.0.0/16", "10.1.0.0/16"]).check().is_err());
        assert!(networks(&["10.0.1.7/16"]).check().is_err());
        assert_eq!(ClusterConfig::default().service_networks().len(), 1);
    }
}
