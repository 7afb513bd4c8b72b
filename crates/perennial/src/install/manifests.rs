//! The objects that carry Day-1 into the cluster: Secrets, ConfigMaps and the initial PKI resource.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use perennial_api::pki::{Pki, PkiSpec};
use perennial_core::catalog::{Annotations, Component, Object};
use perennial_core::install::{PlannedConfigMap, PlannedSecret};
use perennial_core::policy::Policy;
use perennial_core::spec::Validity;
use serde::Serialize;
use zeroize::Zeroizing;

/// What a Secret of type `kubernetes.io/tls` is made of.
#[derive(Debug)]
pub(crate) struct TlsParts<'a> {
    /// The certificate, and its chain where it serves one, as PEM.
    pub(crate) certificate_pem: &'a str,
    /// Its life.
    pub(crate) validity: Validity,
    /// The common name of its issuer.
    pub(crate) issuer: &'a str,
    /// The instant of issue: ages count from here, not from the backdated `not_before`.
    pub(crate) issued_at: Timestamp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Manifest<'a, D> {
    api_version: &'a str,
    kind: &'a str,
    metadata: Metadata<'a>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    secret_type: Option<&'a str>,
    data: BTreeMap<&'a str, D>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    namespace: &'a str,
    name: &'a str,
    annotations: BTreeMap<&'a str, String>,
}

const OWNING_COMPONENT: &str = "openshift.io/owning-component";
const DESCRIPTION: &str = "openshift.io/description";
const NOT_BEFORE: &str = "auth.openshift.io/certificate-not-before";
const NOT_AFTER: &str = "auth.openshift.io/certificate-not-after";
const ISSUER: &str = "auth.openshift.io/certificate-issuer";
const ISSUED_AT: &str = "perennial.dev/issued-at";

/// The path of an object's manifest: kind, namespace and name, as one can guess it.
pub(crate) fn path(kind: &str, object: Object) -> String {
    format!("manifests/{kind}-{}-{}.yaml", object.namespace, object.name)
}

/// A Secret with certificate and key.
pub(crate) fn secret(
    planned: &PlannedSecret,
    parts: &TlsParts<'_>,
    key_pem: &Zeroizing<String>,
) -> anyhow::Result<Zeroizing<Vec<u8>>> {
    let mut annotations = common_annotations(planned.owner, planned.row.logical().purpose);
    if planned.row.annotations == Annotations::CertificateValidity {
        annotations.insert(NOT_BEFORE, parts.validity.not_before.to_string());
        annotations.insert(NOT_AFTER, parts.validity.not_after.to_string());
        annotations.insert(ISSUER, parts.issuer.to_owned());
    }
    annotations.insert(ISSUED_AT, whole_seconds(parts.issued_at));
    let data = BTreeMap::from([
        ("tls.crt", Zeroizing::new(STANDARD.encode(parts.certificate_pem))),
        ("tls.key", Zeroizing::new(STANDARD.encode(key_pem.as_bytes()))),
    ]);
    let manifest = Manifest {
        api_version: "v1",
        kind: "Secret",
        metadata: metadata(planned.object, annotations),
        secret_type: Some("kubernetes.io/tls"),
        data,
    };
    Ok(Zeroizing::new(serde_norway::to_string(&manifest)?.into_bytes()))
}

/// A ConfigMap with a bundle.
pub(crate) fn config_map(planned: &PlannedConfigMap, bundle_pem: &str) -> anyhow::Result<String> {
    let manifest = Manifest {
        api_version: "v1",
        kind: "ConfigMap",
        metadata: metadata(planned.place.object, common_annotations(planned.owner, "CA bundle")),
        secret_type: None,
        data: BTreeMap::from([(planned.place.key, bundle_pem)]),
    };
    Ok(serde_norway::to_string(&manifest)?)
}

/// The PKI resource with which the cluster starts.
pub(crate) fn pki(policy: &Policy) -> anyhow::Result<String> {
    Ok(serde_norway::to_string(&Pki::new("cluster", PkiSpec::from(policy)))?)
}

fn metadata<'a>(object: Object, annotations: BTreeMap<&'a str, String>) -> Metadata<'a> {
    Metadata { namespace: object.namespace, name: object.name, annotations }
}

fn common_annotations(owner: Component, description: &str) -> BTreeMap<&'static str, String> {
    BTreeMap::from([(OWNING_COMPONENT, owner.owner().to_owned()), (DESCRIPTION, description.to_owned())])
}

fn whole_seconds(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}
