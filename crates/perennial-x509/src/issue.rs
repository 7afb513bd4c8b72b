//! Issues certificates: self-signed ones, signed ones, and cross-certificates.

mod error;
#[cfg(test)]
mod tests;

use std::time::Duration;

use der::asn1::{AnyRef, BitStringRef, GeneralizedTime, UintRef, UtcTime};
use der::{DateTime, Encode, Sequence};
use jiff::Timestamp;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, SubjectSpec, Validity};
use x509_cert::ext::Extension;
use x509_cert::time::Time;

use crate::certificate::Certificate;
use crate::extensions::{self, Copied, Wanted};
use crate::facts::Facts;
use crate::key::PrivateKey;
use crate::name::Name;
use crate::public_key::PublicKey;
use crate::random;

pub use error::{IssueError, IssuerError};

/// A CA certificate with its own key.
#[derive(Debug, Clone, Copy)]
pub struct Issuer<'a> {
    certificate: &'a Certificate,
    key: &'a PrivateKey,
}

impl<'a> Issuer<'a> {
    /// Checks that the key is that of the certificate, and that the certificate may sign others.
    pub fn new(certificate: &'a Certificate, key: &'a PrivateKey) -> Result<Issuer<'a>, IssuerError> {
        let subject = || certificate.facts().subject.clone();
        if !key.matches(certificate) {
            return Err(IssuerError::KeyMismatch { subject: subject() });
        }
        if !certificate.facts().may_sign() {
            return Err(IssuerError::NotCa { subject: subject() });
        }
        Ok(Issuer { certificate, key })
    }

    /// The certificate.
    pub fn certificate(&self) -> &'a Certificate {
        self.certificate
    }
}

/// Issues a self-signed certificate: a root CA for [`Usage::Signer`], else a leaf.
pub fn self_signed(spec: &CertificateSpec, key: &PrivateKey) -> Result<Certificate, IssueError> {
    check_instants(spec.validity)?;
    let subject = subject_of(spec)?;
    let subject_key_id = key.public_key().key_id();
    let extensions = extensions::build(&Wanted {
        usage: spec.usage,
        hosts: &spec.hosts,
        subject_is_empty: subject.is_empty(),
        key: key.public_key(),
        copied: Copied::default(),
        subject_key_id: &subject_key_id,
        authority_key_id: Some(&subject_key_id),
        more: &spec.extensions,
    })?;
    sign(&subject, &subject, key.public_key(), spec.validity, &extensions, key)
}

/// Issues a certificate for `key`: an intermediate CA for [`Usage::Signer`], else a leaf.
///
/// The certificate gets the given key; `spec.key` is ignored.
pub fn issue(spec: &CertificateSpec, key: &PublicKey, issuer: &Issuer<'_>) -> Result<Certificate, IssueError> {
    check_within_signer(spec.validity, issuer)?;
    if spec.usage == Usage::Signer {
        check_room_for_ca(issuer)?;
    }
    let subject = subject_of(spec)?;
    let signer = issuer.certificate.facts();
    let extensions = extensions::build(&Wanted {
        usage: spec.usage,
        hosts: &spec.hosts,
        subject_is_empty: subject.is_empty(),
        key,
        copied: Copied::default(),
        subject_key_id: &key.key_id(),
        authority_key_id: signer.subject_key_id.as_deref(),
        more: &spec.extensions,
    })?;
    sign(&signer.subject, &subject, key, spec.validity, &extensions, issuer.key)
}

/// Issues a cross-certificate: a verifier that trusts `issuer` then also accepts certificates of `subject_ca`.
///
/// Subject, public key and subject key identifier are those of `subject_ca` byte for byte, because
/// its leaves refer to them. Its path length and key usage are copied, so that it may do no more
/// than before; a CA with other restrictions is rejected.
pub fn cross_sign(
    subject_ca: &Certificate,
    validity: Validity,
    issuer: &Issuer<'_>,
) -> Result<Certificate, IssueError> {
    check_within_signer(validity, issuer)?;
    check_room_for_ca(issuer)?;
    let (facts, signer) = (subject_ca.facts(), issuer.certificate.facts());
    if !facts.may_sign() {
        return Err(IssueError::NotCa { subject: facts.subject.clone() });
    }
    check_no_other_limits(facts)?;
    let key = &facts.public_key;
    let subject_key_id = facts.subject_key_id.clone().unwrap_or_else(|| key.key_id());
    let extensions = extensions::build(&Wanted {
        usage: Usage::Signer,
        hosts: &[],
        subject_is_empty: facts.subject.is_empty(),
        key,
        copied: Copied { key_usage: facts.key_usage, path_len: facts.path_len },
        subject_key_id: &subject_key_id,
        authority_key_id: signer.subject_key_id.as_deref(),
        more: &[],
    })?;
    sign(&signer.subject, &facts.subject, key, validity, &extensions, issuer.key)
}

/// A TBSCertificate that keeps the bytes of names and key.
#[derive(Sequence)]
struct Tbs<'a> {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT")]
    version: u8,
    serial: UintRef<'a>,
    algorithm: AnyRef<'a>,
    issuer: AnyRef<'a>,
    validity: TbsValidity,
    subject: AnyRef<'a>,
    spki: AnyRef<'a>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT")]
    extensions: Vec<Extension>,
}

#[derive(Sequence)]
struct TbsValidity {
    not_before: Time,
    not_after: Time,
}

#[derive(Sequence)]
struct Signed<'a> {
    tbs: AnyRef<'a>,
    algorithm: AnyRef<'a>,
    signature: BitStringRef<'a>,
}

/// Signs a TBSCertificate.
pub(crate) fn sign(
    issuer: &Name,
    subject: &Name,
    key: &PublicKey,
    validity: Validity,
    extensions: &[Extension],
    signer: &PrivateKey,
) -> Result<Certificate, IssueError> {
    let serial = random::serial()?;
    let algorithm = signer.signature_algorithm();
    let encode = || {
        let algorithm = AnyRef::try_from(algorithm.identifier())?;
        Tbs {
            version: 2,
            serial: UintRef::new(&serial)?,
            algorithm,
            issuer: AnyRef::try_from(issuer.der())?,
            validity: TbsValidity { not_before: time(validity.not_before)?, not_after: time(validity.not_after)? },
            subject: AnyRef::try_from(subject.der())?,
            spki: AnyRef::try_from(key.spki_der())?,
            extensions: extensions.to_vec(),
        }
        .to_der()
    };
    let tbs = encode().map_err(IssueError::Encode)?;
    let signature = signer.sign(&tbs)?;
    let encode = || {
        let tbs = AnyRef::try_from(&tbs[..])?;
        let algorithm = AnyRef::try_from(algorithm.identifier())?;
        Signed { tbs, algorithm, signature: BitStringRef::from_bytes(&signature)? }.to_der()
    };
    Certificate::from_der(&encode().map_err(IssueError::Encode)?).map_err(|error| IssueError::Unreadable(error.into()))
}

fn subject_of(spec: &CertificateSpec) -> Result<Name, IssueError> {
    let subject = match &spec.subject {
        SubjectSpec::New(subject) => Name::from_subject(subject)?,
        SubjectSpec::Kept(der) => Name::from_der(der)?,
    };
    match (subject.is_empty(), spec.usage) {
        (true, Usage::Signer) => Err(IssueError::CaWithoutSubject),
        (true, _) if spec.hosts.is_empty() => Err(IssueError::Nameless),
        _ => Ok(subject),
    }
}

fn check_instants(validity: Validity) -> Result<(), IssueError> {
    let Validity { not_before, not_after } = validity;
    for (field, instant) in [("not_before", not_before), ("not_after", not_after)] {
        if instant.subsec_nanosecond() != 0 {
            return Err(IssueError::Fraction { field, instant });
        }
        if instant < Timestamp::UNIX_EPOCH {
            return Err(IssueError::TooEarly { field, instant });
        }
    }
    if not_before < not_after { Ok(()) } else { Err(IssueError::Backwards { not_before, not_after }) }
}

fn check_within_signer(validity: Validity, issuer: &Issuer<'_>) -> Result<(), IssueError> {
    check_instants(validity)?;
    let facts = issuer.certificate.facts();
    let signer = || facts.subject.clone();
    if validity.not_before < facts.validity.not_before {
        return Err(IssueError::PredatesSigner {
            not_before: validity.not_before,
            signer: signer(),
            signer_not_before: facts.validity.not_before,
        });
    }
    if facts.validity.not_after < validity.not_after {
        return Err(IssueError::OutlivesSigner {
            not_after: validity.not_after,
            signer: signer(),
            signer_not_after: facts.validity.not_after,
        });
    }
    Ok(())
}

fn check_room_for_ca(issuer: &Issuer<'_>) -> Result<(), IssueError> {
    let facts = issuer.certificate.facts();
    if facts.path_len == Some(0) {
        return Err(IssueError::NoRoomForCa { signer: facts.subject.clone() });
    }
    Ok(())
}

/// Checks that only a path length and a key usage restrict the CA.
fn check_no_other_limits(ca: &Facts) -> Result<(), IssueError> {
    let found = match (&ca.extended_key_usage, ca.restrictions.first(), ca.unknown_critical.first()) {
        (Some(usages), ..) => format!("the extended key usage {}", usages.join(", ")),
        (_, Some(restriction), _) => restriction.to_string(),
        (.., Some(oid)) => format!("the unknown critical extension {oid}"),
        (None, None, None) => return Ok(()),
    };
    Err(IssueError::Constrained { subject: ca.subject.clone(), found })
}

/// UTCTime through 2049, GeneralizedTime after that (RFC 5280 section 4.1.2.5).
fn time(instant: Timestamp) -> der::Result<Time> {
    let seconds = u64::try_from(instant.as_second()).map_err(|_| der::ErrorKind::DateTime)?;
    let date_time = DateTime::from_unix_duration(Duration::from_secs(seconds))?;
    if date_time.year() < 2050 {
        Ok(Time::UtcTime(UtcTime::from_date_time(date_time)?))
    } else {
        Ok(Time::GeneralTime(GeneralizedTime::from_date_time(date_time)))
    }
}
