//! The part of an OpenShift `install-config.yaml` that affects certificates.
//!
//! All other keys of the file are ignored. The key `pki` has the schema and the rules of the
//! [PKI resource](crate::pki), and an unknown key there is an error.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::LazyLock;

use ipnet::IpNet;
use perennial_core::catalog::{ClusterFacts, Condition};
use perennial_core::key::KeySpec;
use perennial_core::policy::{Category, Policy};
use perennial_core::spec::Host;
use perennial_schema::{ErrorKind, FieldError, Options, Schema, UnknownFields};
use serde_json::{Value, json};

use crate::feature_gates::FeatureGates;
use crate::invalid::InvalidObject;
use crate::pki::KeyConfig;
use crate::yaml;

mod network;
mod read;
mod schema;

/// The facts of an install-config that affect certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstallConfig {
    /// `metadata.name`.
    pub cluster_name: String,
    /// `baseDomain`, without a final dot.
    pub base_domain: String,
    /// `networking.serviceNetwork`, or in older files `serviceCIDR`: one network, or one of each IP family. Each
    /// has an address besides its own, for the API.
    pub service_network: Vec<IpNet>,
    /// `networking.machineNetwork`, or in older files `machineCIDR`.
    pub machine_network: Vec<IpNet>,
    /// `platform`.
    pub platform: Platform,
    /// `pki.signerCertificates.key`: the key of every signer.
    pub signer_key: Option<KeySpec>,
    /// `featureGates`.
    pub feature_gates: BTreeMap<String, bool>,
}

/// The platform of the installation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Platform {
    /// The name, such as `baremetal`; `none` without a platform.
    pub name: String,
    /// The virtual addresses of the API: none, one, or one of each IP family. None on platforms with load balancers
    /// for them.
    pub api_vips: Vec<IpAddr>,
    /// On bare metal, the address of the bootstrap machine in the provisioning network.
    pub bootstrap_provisioning_ip: Option<IpAddr>,
}

/// A part of the file that is valid but probably wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// The field, such as `platform.baremetal.apiVIPs[0]`.
    pub path: String,
    /// The reason of the warning.
    pub message: String,
}

impl InstallConfig {
    /// Returns the domain of the cluster, `NAME.BASEDOMAIN`.
    pub fn cluster_domain(&self) -> String {
        format!("{}.{}", self.cluster_name, self.base_domain)
    }

    /// Returns the gates of `featureGates` that Perennial reads.
    pub fn gates(&self) -> FeatureGates {
        let mut gates = FeatureGates::default();
        for (name, &on) in &self.feature_gates {
            gates.set(name, on);
        }
        gates
    }

    /// Returns the initial key policy of the cluster, as far as an install-config has it: for signers.
    pub fn policy(&self, gates: FeatureGates) -> Result<Policy, InvalidObject> {
        let Some(key) = self.signer_key else { return Ok(Policy::default()) };
        if !gates.configurable_pki {
            let message = "the feature gate ConfigurablePKI is off; remove pki, or switch the gate on";
            let error = FieldError::without_value("pki", ErrorKind::Forbidden, message);
            return Err(InvalidObject::fields(NAME, vec![error], &Value::Null));
        }
        Ok(Policy { categories: BTreeMap::from([(Category::Signer, key)]), ..Policy::default() })
    }

    /// Returns the facts of the cluster that certificates name.
    pub fn cluster_facts(&self) -> ClusterFacts {
        let domain = self.cluster_domain();
        ClusterFacts {
            service_domain: SERVICE_DOMAIN.to_owned(),
            api_external: Some(Host::Dns(format!("api.{domain}"))),
            api_internal: Some(Host::Dns(format!("api-int.{domain}"))),
            service_networks: self.service_network.clone(),
            api_vips: self.platform.api_vips.clone(),
            bootstrap_provisioning: self.platform.bootstrap_provisioning_ip,
        }
    }

    /// Returns the kind of cluster.
    pub fn conditions(&self) -> BTreeSet<Condition> {
        (self.platform.name == "baremetal").then_some(Condition::BareMetal).into_iter().collect()
    }
}

/// An install-config cannot change the DNS domain of Services.
const SERVICE_DOMAIN: &str = "cluster.local";

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Reads an install-config from YAML or JSON text.
pub fn parse(text: &str) -> Result<(InstallConfig, Vec<Warning>), InvalidObject> {
    let value = yaml::parse(text).map_err(|error| InvalidObject::syntax(NAME, error))?;
    parse_value(value)
}

/// Reads an install-config from JSON.
pub fn parse_value(mut value: Value) -> Result<(InstallConfig, Vec<Warning>), InvalidObject> {
    if !value.is_object() {
        let found = yaml::type_name(&value);
        return Err(InvalidObject::syntax(NAME, format!("the document must be an object with keys, found {found}")));
    }
    if let Some(kind) = value["kind"].as_str().filter(|kind| *kind != KIND && value.get("baseDomain").is_none()) {
        let message = format!("the document is of kind {kind:?}; an install-config has metadata.name and baseDomain");
        return Err(InvalidObject::syntax(NAME, message));
    }
    yaml::normalize(&mut value);
    OUTER.drop_nulls(&mut value);
    let mut errors = OUTER.validate(&value, None);
    let signer_key = signer_key(&value, &mut errors);
    // Fields of the right type are read even after errors, so that their errors are reported too.
    let mut reader = read::Reader { errors, warnings: Vec::new() };
    let config = reader.read(&value, signer_key);
    if reader.errors.is_empty() {
        Ok((config, reader.warnings))
    } else {
        Err(InvalidObject::fields(NAME, reader.errors, &value))
    }
}

fn signer_key(config: &Value, errors: &mut Vec<FieldError>) -> Option<KeySpec> {
    let pki = config.get("pki").filter(|pki| !pki.is_null())?;
    let strict = Options { unknown_fields: UnknownFields::Refuse, ..Options::default() };
    match PKI.admit(json!({ "pki": pki }), strict) {
        Err(found) => {
            // An error without a path is about the object as a server sees it: here that is a part of a file.
            errors.extend(found.into_iter().filter(|error| !error.path.is_empty()));
            None
        }
        Ok(admitted) => {
            let key = admitted.pointer("/pki/signerCertificates/key").cloned().unwrap_or_default();
            let key: KeyConfig = serde_json::from_value(key).expect("the schema let it through");
            Some(KeySpec::try_from(&key).expect("the rule let it through"))
        }
    }
}

/// The name of the file in messages.
const NAME: &str = "install-config";
/// The kind of an install-config, if it has one; most do not.
const KIND: &str = "InstallConfig";

static OUTER: LazyLock<Schema> =
    LazyLock::new(|| Schema::compile_plain(&schema::outer()).expect("the schema is a constant"));
static PKI: LazyLock<Schema> =
    LazyLock::new(|| Schema::compile_plain(&schema::pki()).expect("the schema is part of the definition's"));

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "expectations and schemas read best in place")]
mod tests;
