//! Fixtures for the tests of this crate: one key of each kind per process, and short constructors.

use std::sync::OnceLock;

use der::Decode;
use der::asn1::{ObjectIdentifier, OctetString};
use jiff::Timestamp;
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use x509_cert::ext::Extension;

use crate::issue::sign;
use crate::{Certificate, Issuer, PrivateKey, issue, self_signed};

/// Returns the key of this kind; generating RSA keys repeatedly would take most of the time.
pub(crate) fn key(spec: KeySpec) -> &'static PrivateKey {
    static KEYS: [OnceLock<PrivateKey>; 6] = [const { OnceLock::new() }; 6];
    let position = KeySpec::ALL.iter().position(|kind| *kind == spec).unwrap();
    KEYS[position].get_or_init(|| PrivateKey::generate(spec).unwrap())
}

/// Returns a new P-256 key, for several CAs with different keys.
pub(crate) fn fresh_key() -> PrivateKey {
    PrivateKey::generate("ECDSA P256".parse().unwrap()).unwrap()
}

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// Returns a specification that is valid for all of 2030.
pub(crate) fn spec(common_name: &str, usage: Usage) -> CertificateSpec {
    CertificateSpec {
        subject: Subject::common_name(common_name).into(),
        usage,
        hosts: if usage.serves() { vec![Host::parse("localhost"), Host::parse("127.0.0.1")] } else { Vec::new() },
        validity: validity("2030-01-01T00:00:00Z", "2030-12-31T23:59:59Z"),
        key: "ECDSA P256".parse().unwrap(),
        extensions: Vec::new(),
    }
}

pub(crate) fn validity(not_before: &str, not_after: &str) -> Validity {
    Validity { not_before: at(not_before), not_after: at(not_after) }
}

/// A CA with its key.
pub(crate) struct Ca {
    pub(crate) certificate: Certificate,
    pub(crate) key: PrivateKey,
}

impl Ca {
    pub(crate) fn root(common_name: &str) -> Ca {
        Ca::root_of(&spec(common_name, Usage::Signer))
    }

    pub(crate) fn root_of(spec: &CertificateSpec) -> Ca {
        let key = fresh_key();
        Ca { certificate: self_signed(spec, &key).unwrap(), key }
    }

    pub(crate) fn intermediate(&self, common_name: &str) -> Ca {
        let key = fresh_key();
        Ca { certificate: self.issue(&spec(common_name, Usage::Signer), &key), key }
    }

    pub(crate) fn leaf(&self, common_name: &str, usage: Usage) -> Certificate {
        self.issue(&spec(common_name, usage), &fresh_key())
    }

    pub(crate) fn issue(&self, spec: &CertificateSpec, key: &PrivateKey) -> Certificate {
        issue(spec, key.public_key(), &self.issuer()).unwrap()
    }

    pub(crate) fn issuer(&self) -> Issuer<'_> {
        Issuer::new(&self.certificate, &self.key).unwrap()
    }
}

/// Returns a certificate with some bytes replaced, whose signature is wrong.
pub(crate) fn rewritten(certificate: &Certificate, from: &[u8], to: &[u8]) -> Certificate {
    assert_eq!(from.len(), to.len(), "the lengths around the bytes stay");
    let mut der = certificate.der().to_vec();
    let position = der.windows(from.len()).position(|window| window == from).unwrap();
    der[position..position + from.len()].copy_from_slice(to);
    Certificate::from_der(&der).unwrap()
}

/// A replaced extension: its number below 2.5.29, whether it is critical, and its value if it stays.
pub(crate) type Edit<'a> = (u8, bool, Option<&'a [u8]>);

/// Returns a certificate with another extension, signed again with its issuer's key.
pub(crate) fn reshaped(
    certificate: &Certificate,
    signer: &PrivateKey,
    (arc, critical, value): Edit<'_>,
) -> Certificate {
    let extn_id = ObjectIdentifier::new_unwrap("2.5.29").push_arc(arc.into()).unwrap();
    let read = x509_cert::Certificate::from_der(certificate.der()).unwrap();
    let mut extensions = read.tbs_certificate().extensions().cloned().unwrap_or_default();
    extensions.retain(|extension| extension.extn_id != extn_id);
    extensions.extend(value.map(|value| Extension { extn_id, critical, extn_value: OctetString::new(value).unwrap() }));
    let facts = certificate.facts();
    sign(&facts.issuer, &facts.subject, &facts.public_key, facts.validity, &extensions, signer).unwrap()
}

/// Returns a root that allows no CA below it.
pub(crate) fn with_path_length_zero(root: &Ca) -> Certificate {
    reshaped(&root.certificate, &root.key, (19, true, Some(&[0x30, 6, 1, 1, 0xff, 2, 1, 0])))
}

/// Returns a DER element of these parts.
pub(crate) fn tlv(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let contents = parts.concat();
    let mut element = vec![tag];
    match contents.len() {
        short @ 0..128 => element.push(u8::try_from(short).unwrap()),
        medium @ 128..256 => element.extend([0x81, u8::try_from(medium).unwrap()]),
        long => {
            element.push(0x82);
            element.extend(u16::try_from(long).unwrap().to_be_bytes());
        }
    }
    element.extend(contents);
    element
}
