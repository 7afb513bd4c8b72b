//! Parses the certificates and bundles in Secrets and ConfigMaps.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use perennial_api::annotations::{ISSUER, NOT_AFTER, NOT_BEFORE};
use perennial_core::snapshot::{Annotation, Observed, Slot};
use perennial_x509::{Bundle, Certificate, PrivateKey, read_certificates};

use crate::history::{self, Annotations, SecretHistory};

/// The data key of a signer's Secret with the cross-certificate of the signer, signed by the previous CA.
///
/// The service CA operator of OpenShift reads this key, and accepts only one certificate in it.
pub(crate) const INTERMEDIATE: &str = "intermediate-ca.crt";
/// The data key with the earlier cross-certificates, which lead to the CAs before.
pub(crate) const EARLIER_INTERMEDIATES: &str = "earlier-intermediate-ca.crt";
/// The data key of a signer's Secret with the cross-certificates of the previous CAs, signed by this signer.
pub(crate) const CROSS_SIGNED: &str = "cross-signed-ca.crt";
/// The data key where the service CA operator of OpenShift expects these: first the signer, then the cross-certificates.
pub(crate) const CA_BUNDLE: &str = "ca-bundle.crt";

/// A certificate in a Secret, with its history. Its private key was checked, and is not kept.
#[derive(Debug)]
pub(crate) struct FoundSecret {
    pub(crate) certificate: Certificate,
    pub(crate) chain: Vec<Certificate>,
    pub(crate) cross_signed_by_earlier: Vec<Certificate>,
    pub(crate) earlier_cross_signed: Vec<Certificate>,
    pub(crate) not_after: Annotation,
    pub(crate) not_before: Annotation,
    pub(crate) names_issuer: bool,
    pub(crate) memory: SecretHistory,
}

/// A bundle in a ConfigMap, with its annotations.
#[derive(Debug)]
pub(crate) struct FoundBundle {
    pub(crate) members: Vec<Certificate>,
    pub(crate) damage: Vec<String>,
    pub(crate) is_canonical: bool,
    pub(crate) annotations: Annotations,
}

/// Returns the certificate that a Secret holds under the slot's data key.
pub(crate) fn secret(secret: &Secret, slot: &Slot) -> Observed<FoundSecret> {
    let none = Annotations::new();
    let annotations = secret.metadata.annotations.as_ref().unwrap_or(&none);
    let is_gathered = slot.key() != TLS_CERT;
    if is_gathered && data(secret, slot.key()).is_none() {
        return Observed::Absent;
    }
    let (certificates, _) = match pair(secret, slot.key()) {
        Ok(pair) => pair,
        Err(why) => return Observed::Unreadable { why },
    };
    let mut certificates = certificates.into_iter();
    let Some(certificate) = certificates.next() else {
        return Observed::Unreadable { why: format!("{} has no certificate", slot.key()) };
    };
    // A damaged cross-certificate counts as absent. The next rotation issues a new one.
    let beside = |key: &str| data(secret, key).and_then(|pem| read_certificates(pem).ok()).unwrap_or_default();
    let mut earlier_cross_signed = beside(CROSS_SIGNED);
    earlier_cross_signed.extend(beside(CA_BUNDLE).into_iter().filter(|it| *it != certificate));
    Observed::Present(FoundSecret {
        certificate,
        chain: certificates.collect(),
        cross_signed_by_earlier: [beside(INTERMEDIATE), beside(EARLIER_INTERMEDIATES)].concat(),
        earlier_cross_signed,
        not_after: instant(annotations, NOT_AFTER),
        not_before: instant(annotations, NOT_BEFORE),
        names_issuer: annotations.get(ISSUER).is_some_and(|issuer| !issuer.is_empty()),
        memory: SecretHistory::read(annotations, slot.key()),
    })
}

/// Returns the serving certificate in the Secret of a Service, whose expiry is in another annotation.
pub(crate) fn serving(found: &Secret, slot: &Slot) -> Observed<FoundSecret> {
    let none = Annotations::new();
    let annotations = found.metadata.annotations.as_ref().unwrap_or(&none);
    match secret(found, slot) {
        Observed::Present(found) => {
            Observed::Present(FoundSecret { not_after: perennial_core::serving::expiry(annotations), ..found })
        }
        other => other,
    }
}

/// Returns the certificates under a data key of a Secret, and the private key of the first one.
pub(crate) fn pair(secret: &Secret, key: &str) -> Result<(Vec<Certificate>, PrivateKey), String> {
    let key_name = key_name(key);
    let part = |name: &str| data(secret, name).ok_or_else(|| format!("data key {name} is missing"));
    let certificates = read_certificates(part(key)?).map_err(|error| format!("{key}: {error}"))?;
    let private = PrivateKey::from_pem(part(&key_name)?).map_err(|error| format!("{key_name}: {error}"))?;
    match certificates.first() {
        Some(first) if !private.matches(first) => Err(format!("{key_name} is not the key of {key}")),
        _ => Ok((certificates, private)),
    }
}

/// Returns the bundle that a ConfigMap holds under a data key.
pub(crate) fn bundle(map: &ConfigMap, key: &str) -> Observed<FoundBundle> {
    let text = map.data.as_ref().and_then(|data| data.get(key)).map(String::as_str).unwrap_or_default();
    let annotations = map.metadata.annotations.clone().unwrap_or_default();
    if text.trim().is_empty() {
        return Observed::Present(FoundBundle {
            members: Vec::new(),
            damage: Vec::new(),
            is_canonical: true,
            annotations,
        });
    }
    let (found, damage) = Bundle::salvage(text.as_bytes());
    let is_canonical = bundle_text(found.certificates()) == text;
    let damage = damage.iter().map(ToString::to_string).collect();
    Observed::Present(FoundBundle { members: found.into_iter().collect(), damage, is_canonical, annotations })
}

/// Returns a bundle in PEM, sorted by bytes, so that no rollout happens only because of the order.
pub(crate) fn bundle_text<'a>(members: impl IntoIterator<Item = &'a Certificate>) -> String {
    let mut members: Vec<&Certificate> = members.into_iter().collect();
    members.sort_by_key(|certificate| certificate.der());
    members.dedup_by_key(|certificate| certificate.der());
    members.into_iter().map(Certificate::to_pem).collect()
}

/// Returns since when each CA is in a bundle.
pub(crate) fn published(
    found: &FoundBundle,
    key: &str,
) -> std::collections::BTreeMap<perennial_core::trust::CertificateId, perennial_core::snapshot::Published> {
    history::read_published(&found.annotations, key)
}

/// Returns the data key of the private key of a certificate.
pub(crate) fn key_name(certificate: &str) -> String {
    format!("{}.key", certificate.strip_suffix(".crt").unwrap_or(certificate))
}

pub(crate) const TLS_CERT: &str = "tls.crt";

fn data<'s>(secret: &'s Secret, key: &str) -> Option<&'s [u8]> {
    secret.data.as_ref()?.get(key).map(|bytes| bytes.0.as_slice())
}

fn instant(annotations: &Annotations, name: &str) -> Annotation {
    match annotations.get(name).map(String::as_str) {
        None | Some("") => Annotation::Missing,
        Some(text) if text.parse::<Timestamp>().is_ok() => Annotation::Readable,
        Some(text) => Annotation::Garbled(text.to_owned()),
    }
}
