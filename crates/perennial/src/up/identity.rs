//! The certificates of the embedded API server itself: rows of the catalog, which are kept like all others.
//!
//! It serves with the API server's certificate for localhost, and the kubeconfig that it writes has the administrator's
//! certificate on a node. It lets in whomever the bundle trusts by which an API server accepts its clients.
//!
//! Where clients reach it under other names, it serves with a certificate that is like the one for localhost, and has these
//! names, too. It has the same signer, kind of key and validity, so it is replaced when that one is, and who trusts that
//! one trusts it. Its key is kept in memory alone.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use base64::prelude::{BASE64_STANDARD, Engine};
use perennial_apiserver::api::Api;
use perennial_apiserver::path::Objects;
use perennial_core::catalog::{Catalog, ObjectName};
use perennial_core::policy::Usage;
use perennial_core::snapshot::Slot;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_core::wiring::Wiring;
use perennial_x509::{Bundle, Certificate, Issuer, PrivateKey, issue, read_certificates};
use serde_json::Value;

use super::cluster::at;

/// A leaf with its key.
#[derive(Debug)]
pub(crate) struct Credential {
    /// The leaf first, and what is presented beside it.
    pub(crate) certificates: Vec<Certificate>,
    /// Its key.
    pub(crate) key: PrivateKey,
}

/// Who the server is, who its administrator is, and who trusts whom.
#[derive(Debug)]
pub(crate) struct Identity {
    /// What the server presents.
    pub(crate) server: Arc<Credential>,
    /// The certificate for localhost, as it is kept.
    for_localhost: Vec<Certificate>,
    /// What clients call the server, beside localhost.
    pub(crate) names: BTreeSet<Host>,
    /// What the server is trusted by.
    pub(crate) server_trust: Bundle,
    /// What the kubeconfig presents.
    pub(crate) admin: Credential,
    /// What clients are trusted by.
    pub(crate) client_trust: Bundle,
}

const SERVING: &str = "localhost-serving-cert-certkey";
const SERVING_SIGNER: &str = "localhost-serving-signer";
const SERVING_CA: &str = "localhost-serving-ca";
const ADMIN: &str = "node-system-admin-client";
const CLIENT_CA: &str = "client-ca";

impl Identity {
    /// Reads it from where it is kept.
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

    /// The same, and the server is also called by these names. What it presented before is presented again, unless the certificate
    /// for localhost or the names are others now.
    pub(crate) fn also_called(
        mut self,
        api: &Api,
        names: BTreeSet<Host>,
        before: Option<&Identity>,
    ) -> anyhow::Result<Identity> {
        let is_same = |it: &&Identity| it.for_localhost == self.for_localhost && it.names == names;
        let leaf = self.for_localhost.first().context("the certificate for localhost is empty")?;
        if let Some(before) = before.filter(is_same) {
            self.server = before.server.clone();
        } else if names.iter().any(|name| !leaf.facts().hosts.contains(name)) {
            let server = with_names(leaf, &self.server.key, &credential(api, SERVING_SIGNER)?, &names)?;
            self.server = Arc::new(server);
        }
        self.names = names;
        Ok(self)
    }

    /// Whether the server's certificate is for this host.
    pub(crate) fn is_for(&self, host: &Host) -> bool {
        self.server.certificates.first().is_some_and(|leaf| leaf.facts().hosts.contains(host))
    }

    /// Whether both rest on the same certificates and bundles, as they are kept.
    pub(crate) fn is_same(&self, other: &Identity) -> bool {
        self.for_localhost == other.for_localhost
            && self.admin.certificates == other.admin.certificates
            && self.server_trust == other.server_trust
            && self.client_trust == other.client_trust
    }
}

/// A certificate like this one, with more names.
fn with_names(
    leaf: &Certificate,
    key: &PrivateKey,
    signer: &Credential,
    names: &BTreeSet<Host>,
) -> anyhow::Result<Credential> {
    let facts = leaf.facts();
    let kind = key.spec().context("the key for localhost is of an unknown kind")?;
    let certificate = signer.certificates.first().context("the signer is empty")?;
    let issuer = Issuer::new(certificate, &signer.key).context("the signer cannot sign")?;
    // The signer may be the next one already.
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
        issue(&spec, key.public_key(), &issuer).context("failed to issue a certificate for more names")?;
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
