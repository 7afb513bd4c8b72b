//! Parses the fields of an install-config into addresses, networks and names, and collects all errors.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ipnet::IpNet;
use perennial_core::key::KeySpec;
use perennial_schema::{ErrorKind, FieldError};
use serde_json::Value;

use super::network::{is_subdomain, nth_address, parse_address, parse_network};
use super::{InstallConfig, Platform, Warning};
use crate::feature_gates::FeatureGates;

/// The errors and warnings so far.
pub(super) struct Reader {
    pub(super) errors: Vec<FieldError>,
    pub(super) warnings: Vec<Warning>,
}

impl Reader {
    /// Returns the configuration, which is valid only if there are no errors.
    pub(super) fn read(&mut self, config: &Value, signer_key: Option<KeySpec>) -> InstallConfig {
        let cluster_name = self.domain("metadata.name", text(config, "/metadata/name"));
        let base_domain = text(config, "/baseDomain").map(|name| name.strip_suffix('.').unwrap_or(name));
        let base_domain = self.domain("baseDomain", base_domain);
        let service_network = self.service_network(config);
        let machine_network = self.machine_network(config);
        let platform = self.platform(config.get("platform"), &machine_network);
        let feature_gates = self.feature_gates(config.get("featureGates"));
        if self.errors.is_empty() && cluster_name.len() + 1 + base_domain.len() > 253 {
            let domain = format!("{cluster_name}.{base_domain}");
            self.invalid("metadata.name", &domain, "the domain of the cluster may not have more than 253 characters");
        }
        InstallConfig {
            cluster_name,
            base_domain,
            service_network,
            machine_network,
            platform,
            signer_key,
            feature_gates,
        }
    }

    fn domain(&mut self, path: &str, name: Option<&str>) -> String {
        let Some(name) = name else { return String::new() };
        if !is_subdomain(name) {
            let message = "must consist of lower case letters, digits, '-' and '.', and each part between dots must \
                           start and end with a letter or digit and have at most 63 characters";
            self.invalid(path, name, message);
        }
        name.to_owned()
    }

    fn service_network(&mut self, config: &Value) -> Vec<IpNet> {
        let texts = texts(config.pointer("/networking/serviceNetwork"));
        let entries = texts.into_iter().map(|(index, text)| (format!("{SERVICE_NETWORK}[{index}]"), text)).collect();
        let networks = self.networks(config, SERVICE_NETWORK, "networking.serviceCIDR", entries);
        let Some(networks) = networks else { return vec![default_network(DEFAULT_SERVICE_NETWORK)] };
        for (path, network) in &networks {
            if nth_address(*network, 1).is_none() {
                self.invalid(path, &network.to_string(), "is too small: it has no address for the API beside its own");
            }
        }
        self.one_of_each_family(SERVICE_NETWORK, &networks, |network| network.addr());
        networks.into_iter().map(|(_, network)| network).collect()
    }

    fn machine_network(&mut self, config: &Value) -> Vec<IpNet> {
        let entries = config.pointer("/networking/machineNetwork").and_then(Value::as_array).into_iter().flatten();
        let entry = |(index, entry)| Some((format!("{MACHINE_NETWORK}[{index}].cidr"), text(entry, "/cidr")?));
        let entries = entries.enumerate().filter_map(entry).collect();
        let networks = self.networks(config, MACHINE_NETWORK, "networking.machineCIDR", entries);
        let Some(networks) = networks else { return vec![default_network(DEFAULT_MACHINE_NETWORK)] };
        networks.into_iter().map(|(_, network)| network).collect()
    }

    /// Returns the networks of a list, or that of its deprecated predecessor. If both are given, the predecessor must be
    /// the first of the list, as the installer documents. None if neither is given.
    fn networks(
        &mut self,
        config: &Value,
        list: &str,
        deprecated: &str,
        entries: Vec<(String, &str)>,
    ) -> Option<Vec<(String, IpNet)>> {
        let one = text(config, &format!("/{}", deprecated.replace('.', "/")));
        let one = one.map(|text| (text, self.parse(deprecated, text, parse_network)));
        if entries.is_empty() {
            return one
                .map(|(_, network)| network.map(|network| (deprecated.to_owned(), network)).into_iter().collect());
        }
        let mut networks = Vec::new();
        let count = entries.len();
        for (path, text) in entries {
            networks.extend(self.parse(&path, text, parse_network).map(|network| (path, network)));
        }
        if let (Some((text, Some(one))), Some((path, first))) = (one, networks.first())
            && networks.len() == count
            && one != *first
        {
            let message = format!("differs from {path}, which is {first}; better use {list} alone");
            self.invalid(deprecated, text, message);
        }
        Some(networks)
    }

    fn platform(&mut self, platform: Option<&Value>, machine_network: &[IpNet]) -> Platform {
        let entry = platform.and_then(Value::as_object).and_then(|platforms| platforms.iter().next());
        let (name, settings) = entry.map_or(("none", &Value::Null), |(name, settings)| (name.as_str(), settings));
        if name == "none" {
            self.warn("platform", "there is no platform: load balancers and their addresses are yours to provide");
        } else if !PLATFORMS.contains(&name) {
            let known = PLATFORMS.join(", ");
            self.warn("platform", format!("{name:?} is not known; known are {known} and none"));
        }
        let path = format!("platform.{name}");
        let api_vips = if PLATFORMS_WITH_VIPS.contains(&name) {
            self.api_vips(&path, settings, machine_network)
        } else {
            self.warn_about_ignored_vips(&path, settings);
            Vec::new()
        };
        let bootstrap_provisioning_ip =
            if name == "baremetal" { self.bootstrap_provisioning_ip(&path, settings) } else { None };
        Platform { name: name.to_owned(), api_vips, bootstrap_provisioning_ip }
    }

    fn api_vips(&mut self, path: &str, settings: &Value, machine_network: &[IpNet]) -> Vec<IpAddr> {
        let (many, one) = if path == "platform.ovirt" { ("api_vips", "api_vip") } else { ("apiVIPs", "apiVIP") };
        let (many_path, one_path) = (format!("{path}.{many}"), format!("{path}.{one}"));
        let texts = texts(settings.get(many));
        let deprecated = settings.get(one).and_then(Value::as_str).filter(|text| !text.is_empty());
        let found = match deprecated {
            Some(text) if texts.is_empty() => {
                let address = self.parse(&one_path, text, parse_address);
                address.map(|address| (one_path, address)).into_iter().collect()
            }
            _ => {
                let found = self.each(&many_path, &texts, parse_address);
                let address = deprecated.and_then(|text| Some((text, self.parse(&one_path, text, parse_address)?)));
                if let Some((text, address)) = address
                    && !found.iter().any(|(_, vip)| *vip == address)
                {
                    self.invalid(&one_path, text, format!("must be one of {many}; better use {many} alone"));
                }
                found
            }
        };
        self.one_of_each_family(&many_path, &found, |address| *address);
        for (path, vip) in &found {
            if !machine_network.is_empty() && !machine_network.iter().any(|network| network.contains(vip)) {
                let networks: Vec<String> = machine_network.iter().map(IpNet::to_string).collect();
                let networks = networks.join(", ");
                self.warn(path, format!("{vip} is outside of every networking.machineNetwork ({networks})"));
            }
        }
        found.into_iter().map(|(_, vip)| vip).collect()
    }

    fn warn_about_ignored_vips(&mut self, path: &str, settings: &Value) {
        for field in ["apiVIPs", "apiVIP"] {
            if settings.get(field).is_some() {
                let platforms = PLATFORMS_WITH_VIPS.join(", ");
                self.warn(&format!("{path}.{field}"), format!("is ignored; it is read on {platforms}"));
            }
        }
    }

    fn bootstrap_provisioning_ip(&mut self, path: &str, settings: &Value) -> Option<IpAddr> {
        let setting = |name: &str| settings.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let disabled = setting("provisioningNetwork") == Some("Disabled");
        let network_path = format!("{path}.provisioningNetworkCIDR");
        let network_text = setting("provisioningNetworkCIDR").unwrap_or(DEFAULT_PROVISIONING_NETWORK);
        let network = self.parse(&network_path, network_text, parse_network);
        if let Some(text) = setting("bootstrapProvisioningIP") {
            let path = format!("{path}.bootstrapProvisioningIP");
            let address = self.parse(&path, text, parse_address)?;
            if let Some(network) = network.filter(|network| !disabled && !network.contains(&address)) {
                self.invalid(&path, text, format!("must be in provisioningNetworkCIDR {network}"));
            }
            return Some(address);
        }
        if disabled {
            return None;
        }
        let address = nth_address(network?, 2);
        if address.is_none() {
            self.invalid(&network_path, network_text, "has no third address for the bootstrap machine");
        }
        address
    }

    fn feature_gates(&mut self, gates: Option<&Value>) -> BTreeMap<String, bool> {
        let mut read = BTreeMap::new();
        for (index, text) in texts(gates) {
            let path = format!("featureGates[{index}]");
            let gate = match text.split_once('=') {
                Some((name, "true")) => Some((name, true)),
                Some((name, "false")) => Some((name, false)),
                _ => None,
            };
            let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
            match gate.filter(|(name, _)| is_name(name)) {
                None => self.invalid(&path, text, "must be NAME=true or NAME=false"),
                Some((name, _)) if read.contains_key(name) => {
                    self.errors.push(FieldError::new(path, ErrorKind::Duplicate, name.into(), ""));
                }
                Some((name, enabled)) => {
                    let known = FeatureGates::NAMES.into_iter().find(|known| known.eq_ignore_ascii_case(name));
                    if let Some(known) = known.filter(|known| *known != name) {
                        self.warn(&path, format!("{name:?} is ignored: names are case-sensitive, this one is {known}"));
                    }
                    read.insert(name.to_owned(), enabled);
                }
            }
        }
        read
    }

    /// Checks that there is one address or network, or one of each IP family, in any order.
    fn one_of_each_family<T>(&mut self, path: &str, found: &[(String, T)], address: impl Fn(&T) -> IpAddr) {
        if let [(_, first), (_, second)] = found
            && address(first).is_ipv4() == address(second).is_ipv4()
        {
            let family = if address(first).is_ipv4() { "IPv4" } else { "IPv6" };
            let message = format!("two entries must be one of IPv4 and one of IPv6; both are {family}");
            self.errors.push(FieldError::without_value(path, ErrorKind::Invalid, message));
        }
    }

    /// Returns the entries of a list that can be parsed, each with its path.
    fn each<T>(
        &mut self,
        path: &str,
        texts: &[(usize, &str)],
        parse: fn(&str) -> Result<T, String>,
    ) -> Vec<(String, T)> {
        let mut parsed = Vec::new();
        for (index, text) in texts {
            let path = format!("{path}[{index}]");
            parsed.extend(self.parse(&path, text, parse).map(|value| (path, value)));
        }
        parsed
    }

    fn parse<T>(&mut self, path: &str, text: &str, parse: fn(&str) -> Result<T, String>) -> Option<T> {
        match parse(text) {
            Ok(value) => Some(value),
            Err(message) => {
                self.invalid(path, text, message);
                None
            }
        }
    }

    fn invalid(&mut self, path: &str, found: &str, message: impl Into<String>) {
        self.errors.push(FieldError::new(path, ErrorKind::Invalid, found.into(), message));
    }

    fn warn(&mut self, path: &str, message: impl Into<String>) {
        self.warnings.push(Warning { path: path.to_owned(), message: message.into() });
    }
}

/// Returns the text at a path. The schema has already reported another type.
fn text<'a>(value: &'a Value, pointer: &str) -> Option<&'a str> {
    value.pointer(pointer).and_then(Value::as_str)
}

/// Returns the texts of a list, each with its index. The schema has already reported another type.
fn texts(value: Option<&Value>) -> Vec<(usize, &str)> {
    let items = value.and_then(Value::as_array).into_iter().flatten().enumerate();
    items.filter_map(|(index, item)| Some((index, item.as_str()?))).collect()
}

fn default_network(text: &str) -> IpNet {
    text.parse().expect("the default is a network")
}

const SERVICE_NETWORK: &str = "networking.serviceNetwork";
const MACHINE_NETWORK: &str = "networking.machineNetwork";

/// The defaults, also for an empty list.
const DEFAULT_SERVICE_NETWORK: &str = "172.30.0.0/16";
const DEFAULT_MACHINE_NETWORK: &str = "10.0.0.0/16";
const DEFAULT_PROVISIONING_NETWORK: &str = "172.22.0.0/24";

/// The platforms of the installer, except `none`.
const PLATFORMS: [&str; 13] = [
    "aws",
    "azure",
    "baremetal",
    "external",
    "gcp",
    "ibmcloud",
    "libvirt",
    "nutanix",
    "openstack",
    "ovirt",
    "powervc",
    "powervs",
    "vsphere",
];

/// The platforms on which the cluster itself holds the addresses of its API. On others a load balancer does.
const PLATFORMS_WITH_VIPS: [&str; 6] = ["baremetal", "nutanix", "openstack", "ovirt", "powervc", "vsphere"];
