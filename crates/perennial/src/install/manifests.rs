//! Writes the manifests of Day-1: Secrets, ConfigMaps and the initial PKI resource.

use jiff::Timestamp;
use perennial_api::annotations::{DESCRIPTION, ISSUED_AT, ISSUER, NOT_AFTER, NOT_BEFORE, OWNING_COMPONENT};
use perennial_api::pki::{Pki, PkiSpec};
use perennial_core::catalog::{Annotations, Object};
use perennial_core::install::{PlannedConfigMap, PlannedSecret};
use perennial_core::policy::Policy;
use perennial_core::spec::Validity;
use zeroize::Zeroizing;

use super::yaml::Document;

/// The content of a Secret of type `kubernetes.io/tls`.
#[derive(Debug)]
pub(crate) struct TlsParts<'a> {
    /// The certificate, and the chain of a serving certificate, as PEM.
    pub(crate) certificate_pem: &'a str,
    /// The purpose of the certificate.
    pub(crate) purpose: &'a str,
    /// Its validity.
    pub(crate) validity: Validity,
    /// The common name of its issuer.
    pub(crate) issuer: &'a str,
    /// The instant of issue.
    pub(crate) issued_at: Timestamp,
}

/// Returns a Secret with certificate and key.
pub(crate) fn secret(
    planned: &PlannedSecret<'_>,
    parts: &TlsParts<'_>,
    key_pem: &Zeroizing<String>,
) -> Zeroizing<Vec<u8>> {
    let mut annotations =
        vec![(OWNING_COMPONENT, planned.owner.owner().to_owned()), (DESCRIPTION, parts.purpose.to_owned())];
    if planned.row.annotations == Annotations::CertificateValidity {
        annotations.push((NOT_BEFORE, parts.validity.not_before.to_string()));
        annotations.push((NOT_AFTER, parts.validity.not_after.to_string()));
        annotations.push((ISSUER, parts.issuer.to_owned()));
    }
    let issued_at = Timestamp::from_second(parts.issued_at.as_second()).unwrap_or(parts.issued_at);
    annotations.push((ISSUED_AT, issued_at.to_string()));

    let mut yaml = header("Secret", planned.object, &annotations);
    yaml.line("type: kubernetes.io/tls")
        .line("data:")
        .base64("  tls.crt: ", parts.certificate_pem.as_bytes())
        .base64("  tls.key: ", key_pem.as_bytes());
    yaml.finish()
}

/// Returns a ConfigMap with a bundle.
pub(crate) fn config_map(planned: &PlannedConfigMap, bundle_pem: &str) -> Vec<u8> {
    let annotations = [(OWNING_COMPONENT, planned.owner.owner().to_owned()), (DESCRIPTION, "CA bundle".to_owned())];
    let mut yaml = header("ConfigMap", planned.place.object, &annotations);
    yaml.line("data:").block(&format!("  {}: ", planned.place.key), "    ", bundle_pem);
    yaml.finish().to_vec()
}

/// Returns the initial PKI resource of the cluster.
pub(crate) fn pki(policy: &Policy) -> anyhow::Result<String> {
    Ok(serde_norway::to_string(&Pki::new(perennial_api::pki::NAME, PkiSpec::from(policy)))?)
}

fn header(kind: &str, object: Object, annotations: &[(&str, String)]) -> Document {
    let mut yaml = Document::default();
    yaml.line("apiVersion: v1")
        .line(&format!("kind: {kind}"))
        .line("metadata:")
        .text("  namespace: ", object.namespace)
        .text("  name: ", object.name)
        .line("  annotations:");
    for (name, value) in annotations {
        yaml.text(&format!("    {name}: "), value);
    }
    yaml
}
