//! The certificates of the embedded API server itself, which are rows of the catalog.
//!
//! The server serves with the API server's certificate for localhost, and its kubeconfig presents the administrator's certificate of a
//! node. It accepts clients with the bundle that an API server uses for its clients.
//!
//! If clients use other names, the server issues another certificate with these names, and with the same signer, kind of key and validity
//! as the certificate for localhost. The server replaces both together. The key of the additional certificate is only in memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use base64::prelude::{BASE64_STANDARD, Engine};
use jiff::Timestamp;
use perennial_apiserver::api::Api;
use perennial_apiserver::path::Objects;
use perennial_core::catalog::index::Wiring;
use perennial_core::catalog::{Catalog, ObjectName};
use perennial_core::policy::Usage;
use perennial_core::snapshot::Slot;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_x509::{Bundle, Certificate, Issuer, PrivateKey, issue, read_certificates};
use serde_json::Value;

use super::cluster::at;

/// A leaf with its key.
#[derive(Debug)]
pub(crate) struct Credential {
    /// The leaf, followed by the rest of the chain.
    pub(crate) certificates: Vec<Certificate>,
    /// Its key.
    pub(crate) key: PrivateKey,
}

/// The certificates and bundles of the server and of its administrator.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The certificate that the server presents.
    pub(crate) server: Arc<Credential>,
    /// The stored certificate for localhost.
    for_localhost: Vec<Certificate>,
    /// The names of the server besides localhost.
    pub(crate) names: BTreeSet<Host>,
    /// The bundle that verifies the server.
    pub(crate) server_trust: Bundle,
    /// The certificate in the kubeconfig.
    pub(crate) admin: Credential,
    /// The bundle that verifies clients.
    pub(crate) client_trust: Bundle,
}

const SERVING: &str = "localhost-serving-cert-certkey";
const SERVING_SIGNER: &str = "localhost-serving-signer";
const SERVING_CA: &str = "localhost-serving-ca";
const ADMIN: &str = "node-system-admin-client";
const CLIENT_CA: &str = "client-ca";

impl Identity {
    /// Reads the certificates and bundles from the API.
    pub(crate) fn read(api: &Api) -> anyhow::Result<Identity> {
        let server = Arc::new(credential(api, SERVING)?);
        Ok(Identity {
            for_localhost: server.certificates.clone(),
            names: BTreeSet::new(),
            server,
            server_trust: bundle(api, SERVING_CA)?,
            admin: credential(api, ADMIN)?,
            client_trust: bundle(api, CLIENT_CA)?,
        })
    }

    /// Adds names to the certificate of the server.
    ///
    /// Reuses the certificate of the previous identity, unless the certificate for localhost or the names have changed.
    pub(crate) fn with_names(
        mut self,
        api: &Api,
        names: BTreeSet<Host>,
        previous: Option<&Identity>,
    ) -> anyhow::Result<Identity> {
        let is_same = |it: &&Identity| it.for_localhost == self.for_localhost && it.names == names;
        let leaf = self.for_localhost.first().context("the certificate for localhost is empty")?;
        if let Some(previous) = previous.filter(is_same) {
            self.server = previous.server.clone();
        } else if names.iter().any(|name| !leaf.facts().hosts.contains(name)) {
            let server = issue_with_names(leaf, &self.server.key, &credential(api, SERVING_SIGNER)?, &names)?;
            self.server = Arc::new(server);
        }
        self.names = names;
        Ok(self)
    }

    /// Returns whether the server's certificate has this host.
    pub(crate) fn is_for(&self, host: &Host) -> bool {
        self.server.certificates.first().is_some_and(|leaf| leaf.facts().hosts.contains(host))
    }

    /// Returns a description of each certificate of the server and the administrator that is not valid at this instant.
    pub(crate) fn not_valid_at(&self, now: Timestamp) -> Vec<String> {
        let leaves = [
            ("the server's certificate", &self.for_localhost),
            ("the administrator's certificate", &self.admin.certificates),
        ];
        let problem = |(name, certificates): (&str, &Vec<Certificate>)| {
            let Validity { not_before, not_after } = certificates.first()?.facts().validity;
            let is_valid = not_before <= now && now <= not_after;
            (!is_valid).then(|| format!("{name} is valid from {not_before} to {not_after}"))
        };
        leaves.into_iter().filter_map(problem).collect()
    }

    /// Returns whether both have the same stored certificates and bundles.
    pub(crate) fn is_same(&self, other: &Identity) -> bool {
        self.for_localhost == other.for_localhost
            && self.admin.certificates == other.admin.certificates
            && self.server_trust == other.server_trust
            && self.client_trust == other.client_trust
    }
}

/// Issues a certificate like this one, with additional names.
fn issue_with_names(
    leaf: &Certificate,
    key: &PrivateKey,
    signer: &Credential,
    names: &BTreeSet<Host>,
) -> anyhow::Result<Credential> {
    let facts = leaf.facts();
    let kind = key.spec().context("the key for localhost has an unknown kind")?;
    let certificate = signer.certificates.first().context("the signer is empty")?;
    let issuer = Issuer::new(certificate, &signer.key).context("the signer cannot sign")?;
    // The signer may be newer than the certificate.
    let within = certificate.facts().validity;
    let validity = Validity {
        not_before: facts.validity.not_before.max(within.not_before),
        not_after: facts.validity.not_after.min(within.not_after),
    };
    let more = names.iter().filter(|name| !facts.hosts.contains(name));
    let spec = CertificateSpec {
        subject: Subject::common_name(facts.subject.common_name().unwrap_or_default()).into(),
        usage: Usage::Serving,
        hosts: facts.hosts.iter().chain(more).cloned().collect(),
        validity,
        key: kind,
        extensions: Vec::new(),
    };
    let key = PrivateKey::generate(kind)?;
    let certificate =
        issue(&spec, key.public_key(), &issuer).context("failed to issue a certificate with additional names")?;
    Ok(Credential { certificates: vec![certificate], key })
}

fn credential(api: &Api, row: &str) -> anyhow::Result<Credential> {
    let catalog = Catalog::builtin();
    let object = catalog.row(row).and_then(|row| catalog.secret_of(row)).context("the catalog has no such row")?;
    let name = format!("Secret {}/{}", object.namespace, object.name);
    let secret = api.get(&object_at("secrets", object.namespace, object.name)).with_context(|| name.clone())?;
    let part = |key: &str| {
        let text = secret["data"][key].as_str().and_then(|text| BASE64_STANDARD.decode(text).ok());
        text.with_context(|| format!("{name} has no {key}"))
    };
    let certificates = read_certificates(&part("tls.crt")?).with_context(|| format!("{name}, tls.crt"))?;
    let key = PrivateKey::from_pem(&part("tls.key")?).with_context(|| format!("{name}, tls.key"))?;
    Ok(Credential { certificates, key })
}

fn bundle(api: &Api, id: &str) -> anyhow::Result<Bundle> {
    let wiring = Wiring::new(Catalog::builtin());
    let slot: Slot = wiring.bundle(id).context("the catalog has no such bundle")?.home.clone();
    let ObjectName { namespace, name } = slot.object();
    let map: Value = api
        .get(&object_at("configmaps", &namespace, &name))
        .with_context(|| format!("ConfigMap {namespace}/{name}"))?;
    let text = map["data"][slot.key()].as_str().unwrap_or_default();
    Ok(Bundle::salvage(text.as_bytes()).0)
}

fn object_at(plural: &str, namespace: &str, name: &str) -> Objects {
    Objects { namespace: Some(namespace.to_owned()), ..at("", plural, name) }
}
