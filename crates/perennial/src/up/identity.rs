//! The certificates of the embedded API server itself: rows of the catalog, which are kept like all others.
//!
//! It serves with the API server's certificate for localhost, and the kubeconfig that it writes has the administrator's
//! certificate on a node. It lets in whomever the bundle trusts by which an API server accepts its clients.

use anyhow::Context;
use base64::prelude::{BASE64_STANDARD, Engine};
use perennial_apiserver::api::Api;
use perennial_apiserver::path::Objects;
use perennial_core::catalog::{Catalog, ObjectName};
use perennial_core::snapshot::Slot;
use perennial_core::wiring::Wiring;
use perennial_x509::{Bundle, Certificate, PrivateKey, read_certificates};
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
    pub(crate) server: Credential,
    /// What the server is trusted by.
    pub(crate) server_trust: Bundle,
    /// What the kubeconfig presents.
    pub(crate) admin: Credential,
    /// What clients are trusted by.
    pub(crate) client_trust: Bundle,
}

const SERVING: &str = "localhost-serving-cert-certkey";
const SERVING_CA: &str = "localhost-serving-ca";
const ADMIN: &str = "node-system-admin-client";
const CLIENT_CA: &str = "client-ca";

impl Identity {
    /// Reads it from where it is kept.
    pub(crate) fn read(api: &Api) -> anyhow::Result<Identity> {
        Ok(Identity {
            server: credential(api, SERVING)?,
            server_trust: bundle(api, SERVING_CA)?,
            admin: credential(api, ADMIN)?,
            client_trust: bundle(api, CLIENT_CA)?,
        })
    }

    /// Whether both are the same in everything that anybody sees.
    pub(crate) fn is_same(&self, other: &Identity) -> bool {
        self.server.certificates == other.server.certificates
            && self.admin.certificates == other.admin.certificates
            && self.server_trust == other.server_trust
            && self.client_trust == other.client_trust
    }
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
