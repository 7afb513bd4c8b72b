//! Converts certificates into core's trust facts. The signer of each is identified here, by signature.

use aws_lc_rs::digest;
use perennial_core::trust::{CertificateFacts, CertificateId, Certificates, KeyId, PathLength, Principal};

use crate::certificate::Certificate;
use crate::{asn1, verify};

/// Returns the facts of all certificates, each with its signer if that is among them.
pub fn facts<'a>(certificates: impl IntoIterator<Item = &'a Certificate>) -> Certificates {
    let all: Vec<&Certificate> = certificates.into_iter().collect();
    all.iter().map(|certificate| facts_of(certificate, &all)).collect()
}

/// Returns the facts of one certificate, with its signer if that is among these.
pub fn facts_among<'a>(
    certificate: &Certificate,
    among: impl IntoIterator<Item = &'a Certificate>,
) -> CertificateFacts {
    facts_of(certificate, &among.into_iter().collect::<Vec<_>>())
}

/// Returns the id of a certificate in [`facts`]: its fingerprint.
pub fn id(certificate: &Certificate) -> CertificateId {
    CertificateId(certificate.facts().fingerprint_hex().into())
}

fn facts_of(certificate: &Certificate, all: &[&Certificate]) -> CertificateFacts {
    let facts = certificate.facts();
    let signer = all.iter().find(|candidate| verify::signed_by(certificate, candidate));
    let path_length = facts.path_len.map_or(PathLength::Unlimited, PathLength::AtMost);
    CertificateFacts {
        id: id(certificate),
        subject: principal(certificate),
        signed_by: signer.map(|signer| principal(signer)),
        validity: facts.validity,
        ca: facts.may_sign().then_some(path_length),
        serves: facts.allows_server_auth(),
        connects: facts.allows_client_auth(),
        hosts: facts.hosts.clone(),
    }
}

/// Verifiers distinguish signers by the bytes of the name, the key, and the key identifier.
fn principal(certificate: &Certificate) -> Principal {
    let facts = certificate.facts();
    let mut hash = digest::Context::new(&digest::SHA256);
    for part in [facts.subject.der(), facts.public_key.spki_der(), facts.subject_key_id.as_deref().unwrap_or_default()]
    {
        hash.update(&part.len().to_be_bytes());
        hash.update(part);
    }
    Principal { name: facts.subject.to_string().into(), key: KeyId(asn1::hex(&hash.finish().as_ref()[..16]).into()) }
}
