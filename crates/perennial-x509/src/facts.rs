//! The facts of a certificate, read once from its DER.
//!
//! Reading rejects what Go rejects, because some components of the cluster cannot parse such a certificate:
//! duplicate extensions, strings that are not of their type, malformed alternative names, a negative serial
//! number, two different signature algorithms.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use aws_lc_rs::digest;
use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, OctetStringRef};
use der::flagset::FlagSet;
use der::{Decode, Encode, Sequence, Tag, Tagged};
use jiff::Timestamp;
use perennial_core::spec::{Host, Validity};
use x509_cert::ext::pkix::{BasicConstraints, ExtendedKeyUsage, KeyUsage};
use x509_cert::time::Time;

pub use x509_cert::ext::pkix::KeyUsages;

use crate::asn1;
use crate::certificate::CertificateError;
use crate::conformance::{self, Form, Irregularity, Restriction};
use crate::extensions::oid;
use crate::meter;
use crate::name::Name;
use crate::public_key::PublicKey;
use crate::signature::SignatureAlgorithm;

/// The facts of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// 1, 2 or 3; only version 3 has extensions.
    pub version: u8,
    /// The serial number in hexadecimal, as encoded.
    pub serial: String,
    /// The issuer that it names.
    pub issuer: Name,
    /// The subject.
    pub subject: Name,
    /// The validity. The end of the year 9999 is cut to the last instant of [`Timestamp`].
    pub validity: Validity,
    /// True if BasicConstraints say CA.
    pub is_ca: bool,
    /// How many further CAs may follow below this one.
    pub path_len: Option<u8>,
    /// The key usages; none means no restriction.
    pub key_usage: Option<FlagSet<KeyUsages>>,
    /// The extended key usages as dotted object identifiers; none means no restriction.
    pub extended_key_usage: Option<Vec<String>>,
    /// The DNS and IP alternative names, in their order.
    pub hosts: Vec<Host>,
    /// The subject key identifier.
    pub subject_key_id: Option<Vec<u8>>,
    /// The key identifier within the authority key identifier.
    pub authority_key_id: Option<Vec<u8>>,
    /// The serial number within the authority key identifier, in hexadecimal.
    pub authority_serial: Option<String>,
    /// The public key.
    pub public_key: PublicKey,
    /// The signature algorithm.
    pub signature_algorithm: SignatureAlgorithm,
    /// Critical extensions that Perennial does not know.
    pub unknown_critical: Vec<String>,
    /// Extensions with restrictions that Perennial does not evaluate.
    pub restrictions: Vec<Restriction>,
    /// Shapes that RFC 5280 forbids and strict verifiers reject.
    pub irregularities: Vec<Irregularity>,
    /// SHA-256 over the whole certificate.
    pub fingerprint: [u8; 32],
}

impl Facts {
    /// Returns true if issuer and subject have the same bytes.
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Returns true if it may sign certificates: a CA whose key usage, if present, has keyCertSign.
    pub fn may_sign(&self) -> bool {
        self.is_ca && self.key_usage.is_none_or(|usage| usage.contains(KeyUsages::KeyCertSign))
    }

    /// Returns true if its extended key usage allows a TLS server.
    ///
    /// anyExtendedKeyUsage does not count, because OpenSSL and webpki do not count it.
    pub fn allows_server_auth(&self) -> bool {
        self.allows(oid::SERVER_AUTH)
    }

    /// Returns true if its extended key usage allows a TLS client.
    pub fn allows_client_auth(&self) -> bool {
        self.allows(oid::CLIENT_AUTH)
    }

    fn allows(&self, usage: ObjectIdentifier) -> bool {
        self.extended_key_usage.as_ref().is_none_or(|usages| usages.contains(&usage.to_string()))
    }

    /// Returns the fingerprint in hexadecimal.
    pub fn fingerprint_hex(&self) -> String {
        asn1::hex(&self.fingerprint)
    }
}

/// The facts, and the parts for checking the signature.
pub(crate) struct Parsed {
    pub(crate) facts: Facts,
    pub(crate) signed: Range<usize>,
    pub(crate) signature: Vec<u8>,
}

pub(crate) fn parse(der: &[u8]) -> Result<Parsed, CertificateError> {
    let outer = Outer::from_der(der).map_err(in_field("certificate"))?;
    let tbs: Tbs<'_> = outer.tbs.decode_as().map_err(in_field("TBSCertificate"))?;
    if outer.algorithm != tbs.algorithm {
        return Err(CertificateError::Value {
            field: "signature algorithm",
            found: "another outside than inside".to_owned(),
            accepted: "the same in both places",
        });
    }
    if tbs.version != 2 && tbs.extensions.is_some() || tbs.version > 2 {
        return Err(CertificateError::Value {
            field: "version",
            found: format!("{}", u16::from(tbs.version) + 1),
            accepted: "3, or 1 and 2 without extensions",
        });
    }
    let signature = outer.signature.as_bytes().ok_or_else(|| CertificateError::Value {
        field: "signature",
        found: "not a whole number of bytes".to_owned(),
        accepted: "a whole number of bytes",
    })?;
    let validity: [Time; 2] = [tbs.validity.not_before, tbs.validity.not_after];
    let [not_before, not_after] = validity.map(instant);
    let spki = asn1::whole(tbs.spki).map_err(in_field("public key"))?;
    let mut facts = Facts {
        version: tbs.version + 1,
        serial: serial(tbs.serial)?,
        issuer: name("issuer", tbs.issuer)?,
        subject: name("subject", tbs.subject)?,
        validity: Validity { not_before, not_after },
        is_ca: false,
        path_len: None,
        key_usage: None,
        extended_key_usage: None,
        hosts: Vec::new(),
        subject_key_id: None,
        authority_key_id: None,
        authority_serial: None,
        public_key: PublicKey::from_spki_der(&spki).map_err(in_field("public key"))?,
        signature_algorithm: SignatureAlgorithm::from_identifier(tbs.algorithm)
            .map_err(in_field("signature algorithm"))?,
        unknown_critical: Vec::new(),
        restrictions: Vec::new(),
        irregularities: Vec::new(),
        fingerprint: [0; 32],
    };
    facts.fingerprint.copy_from_slice(meter::crypto(|| digest::digest(&digest::SHA256, der)).as_ref());
    let mut seen = BTreeSet::new();
    let mut form = Form::default();
    for extension in tbs.extensions.unwrap_or_default() {
        if !seen.insert(extension.oid) {
            return Err(CertificateError::DuplicateExtension { oid: extension.oid.to_string() });
        }
        read_extension(&mut facts, &mut form, &extension)?;
    }
    facts.irregularities = conformance::irregularities(&facts, &form);
    // The header of the outer SEQUENCE is all that precedes the signed part.
    let inner = AnyRef::try_from(der).map_err(in_field("certificate"))?.value().len();
    let start = der.len() - inner;
    let signed_len = usize::try_from(outer.tbs.encoded_len().map_err(in_field("TBSCertificate"))?);
    let end = start + signed_len.unwrap_or(usize::MAX).min(inner);
    Ok(Parsed { facts, signed: start..end, signature: signature.to_vec() })
}

#[derive(Sequence)]
struct Outer<'a> {
    tbs: AnyRef<'a>,
    algorithm: AnyRef<'a>,
    signature: BitStringRef<'a>,
}

#[derive(Sequence)]
struct Tbs<'a> {
    #[asn1(context_specific = "0", tag_mode = "EXPLICIT", default = "Default::default")]
    version: u8,
    serial: AnyRef<'a>,
    algorithm: AnyRef<'a>,
    issuer: AnyRef<'a>,
    validity: RawValidity,
    subject: AnyRef<'a>,
    spki: AnyRef<'a>,
    #[asn1(context_specific = "1", tag_mode = "IMPLICIT", optional = "true")]
    issuer_id: Option<BitStringRef<'a>>,
    #[asn1(context_specific = "2", tag_mode = "IMPLICIT", optional = "true")]
    subject_id: Option<BitStringRef<'a>>,
    #[asn1(context_specific = "3", tag_mode = "EXPLICIT", optional = "true")]
    extensions: Option<Vec<RawExtension<'a>>>,
}

#[derive(Sequence)]
struct RawValidity {
    not_before: Time,
    not_after: Time,
}

#[derive(Sequence)]
struct RawExtension<'a> {
    oid: ObjectIdentifier,
    #[asn1(default = "Default::default")]
    critical: bool,
    value: &'a OctetStringRef,
}

fn read_extension(facts: &mut Facts, form: &mut Form, extension: &RawExtension<'_>) -> Result<(), CertificateError> {
    let value = extension.value.as_bytes();
    if extension.critical {
        form.critical.push(extension.oid);
    }
    match extension.oid {
        oid::BASIC_CONSTRAINTS => {
            let constraints = BasicConstraints::from_der(value).map_err(in_field("basic constraints"))?;
            facts.is_ca = constraints.ca;
            facts.path_len = constraints.path_len_constraint;
        }
        oid::KEY_USAGE => {
            facts.key_usage = Some(KeyUsage::from_der(value).map_err(in_field("key usage"))?.0);
        }
        oid::EXTENDED_KEY_USAGE => {
            let usages = ExtendedKeyUsage::from_der(value).map_err(in_field("extended key usage"))?;
            facts.extended_key_usage = Some(usages.0.iter().map(ToString::to_string).collect());
        }
        oid::SUBJECT_ALT_NAME => {
            let names = AnyRef::try_from(value).and_then(asn1::sequence).map_err(in_field(ALTERNATIVE_NAMES))?;
            form.alternative_names = Some(names.len());
            facts.hosts = hosts(&names)?;
        }
        oid::SUBJECT_KEY_ID => {
            let id = <&OctetStringRef>::from_der(value).map_err(in_field("subject key identifier"))?;
            facts.subject_key_id = Some(id.as_bytes().to_vec());
        }
        oid::AUTHORITY_KEY_ID => {
            let parts = AnyRef::try_from(value).and_then(asn1::sequence);
            for part in parts.map_err(in_field("authority key identifier"))? {
                match asn1::context_number(part) {
                    Some(0) => facts.authority_key_id = Some(part.value().to_vec()),
                    Some(2) => facts.authority_serial = Some(asn1::hex(part.value())),
                    _ => {}
                }
            }
        }
        other => match Restriction::of(other) {
            Some(restriction) => facts.restrictions.push(restriction),
            None if extension.critical => facts.unknown_critical.push(other.to_string()),
            None => {}
        },
    }
    Ok(())
}

fn hosts(names: &[AnyRef<'_>]) -> Result<Vec<Host>, CertificateError> {
    let field = ALTERNATIVE_NAMES;
    let mut hosts = Vec::new();
    for name in names {
        let bytes = name.value();
        match asn1::context_number(*name) {
            Some(2) => match std::str::from_utf8(bytes) {
                Ok(text) if text.is_ascii() => hosts.push(Host::Dns(text.to_owned())),
                _ => {
                    let found = format!("the DNS name {:?}", String::from_utf8_lossy(bytes));
                    return Err(CertificateError::Value { field, found, accepted: "ASCII" });
                }
            },
            Some(7) => {
                if let Ok(v4) = <[u8; 4]>::try_from(bytes) {
                    hosts.push(Host::Ip(Ipv4Addr::from(v4).into()));
                } else if let Ok(v6) = <[u8; 16]>::try_from(bytes) {
                    hosts.push(Host::Ip(Ipv6Addr::from(v6).into()));
                } else {
                    let found = format!("an IP address of {} bytes", bytes.len());
                    return Err(CertificateError::Value { field, found, accepted: "4 or 16 bytes" });
                }
            }
            _ => {}
        }
    }
    Ok(hosts)
}

fn serial(any: AnyRef<'_>) -> Result<String, CertificateError> {
    let field = "serial number";
    any.tag().assert_eq(Tag::Integer).map_err(|error| in_field(field)(error))?;
    match any.value() {
        [] => Err(CertificateError::Value { field, found: "empty".to_owned(), accepted: "an INTEGER" }),
        [0x80..=0xff, ..] => {
            let found = format!("negative ({})", asn1::hex(any.value()));
            Err(CertificateError::Value { field, found, accepted: "zero or more" })
        }
        bytes => Ok(asn1::hex(bytes)),
    }
}

fn name(field: &'static str, any: AnyRef<'_>) -> Result<Name, CertificateError> {
    let der = asn1::whole(any).map_err(in_field(field))?;
    Name::from_der(&der).map_err(|source| CertificateError::Name { field, source })
}

fn instant(time: Time) -> Timestamp {
    let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(LAST_SECOND)
}

fn in_field(field: &'static str) -> impl Fn(der::Error) -> CertificateError {
    move |source| CertificateError::Field { field, source }
}

const ALTERNATIVE_NAMES: &str = "subject alternative name";

/// 9999-12-30T22:00:00Z: [`Timestamp`] ends before "no well-defined end", 99991231235959Z.
const LAST_SECOND: Timestamp = Timestamp::constant(253_402_207_200, 0);

#[cfg(test)]
mod tests {
    use perennial_core::policy::Usage;
    use perennial_core::spec::Extension;

    use super::*;
    use crate::certificate::Certificate;
    use crate::fixtures::{Ca, fresh_key, spec, tlv};

    /// Checks the error of a certificate with some bytes replaced. Its signature does not matter.
    ///
    /// The lengths around the bytes stay, so `from` and `to` have the same length.
    fn check(certificate: &Certificate, from: &[u8], to: &[u8], expected: &str) {
        assert_eq!(from.len(), to.len());
        let mut der = certificate.der().to_vec();
        let position = der.windows(from.len()).position(|window| window == from).expect("the bytes are there");
        der[position..position + from.len()].copy_from_slice(to);
        let error = Certificate::from_der(&der).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
        assert!(format!("{error}: {source}").contains(expected), "{error}: {source}");
    }

    #[test]
    fn certificates_that_go_rejects_are_rejected() {
        let root = Ca::root("root");
        let leaf = root.leaf("leaf", Usage::Serving);
        let mut more = spec("leaf", Usage::Serving);
        more.extensions = ["1.2.3.4", "1.2.3.5"]
            .map(|oid| Extension { oid: oid.to_owned(), critical: false, value: vec![5, 0] })
            .into();
        let twice = root.issue(&more, &fresh_key());
        check(&twice, &[6, 3, 42, 3, 5], &[6, 3, 42, 3, 4], "extension 1.2.3.4 appears twice");
        check(&leaf, b"\x13\x04leaf", b"\x13\x04le_f", "attribute CN is not a valid PrintableString");
        check(&leaf, b"\x13\x04leaf", b"\x0c\x04le\xfff", "attribute CN is not a valid UTF8String");
        check(&leaf, b"\x82\x09localhost", b"\x82\x09local\xffost", "accepted is ASCII");
        check(&leaf, &[0x87, 4, 127, 0, 0, 1], &[0x87, 3, 127, 0, 0, 1], "subject alternative name");
        let serial = [2, 16];
        let start = leaf.der().windows(2).position(|window| window == serial).unwrap();
        let first = leaf.der()[start + 2];
        check(&leaf, &[2, 16, first], &[2, 16, 0x81], "the serial number is negative");
        check(&leaf, &[0xa0, 3, 2, 1, 2], &[0xa0, 3, 2, 1, 3], "the version is 4");
    }

    #[test]
    fn an_ip_address_has_4_or_16_bytes() {
        let name = tlv(0x87, &[&[1, 2, 3, 4, 5]]);
        let error = hosts(&[AnyRef::try_from(&name[..]).unwrap()]).unwrap_err().to_string();
        assert!(error.contains("an IP address of 5 bytes, accepted is 4 or 16 bytes"), "{error}");
    }

    #[test]
    fn two_signature_algorithms_are_rejected() {
        let mut der = Ca::root("root").certificate.der().to_vec();
        let sha256 = [0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2];
        let last = der.windows(8).rposition(|window| window == sha256).unwrap();
        der[last + 7] = 3;
        let error = Certificate::from_der(&der).unwrap_err().to_string();
        assert_eq!(
            error,
            "the signature algorithm is another outside than inside, accepted is the same in both places"
        );
    }

    #[test]
    fn no_cut_or_changed_byte_makes_the_parser_panic() {
        let whole = Ca::root("root").issue(&spec("leaf", Usage::Peer), &fresh_key());
        for cut in 0..whole.der().len() {
            assert!(Certificate::from_der(&whole.der()[..cut]).is_err());
        }
        for position in 0..whole.der().len() {
            for flip in [1, 0x20, 0x80, 0xff] {
                let mut der = whole.der().to_vec();
                der[position] ^= flip;
                if let Ok(read) = Certificate::from_der(&der) {
                    assert_eq!(read.der(), der);
                    let _ = read.facts().subject.to_string();
                }
            }
        }
    }

    #[test]
    fn the_end_of_9999_is_read() {
        let mut spec = spec("root", Usage::Signer);
        spec.validity.not_after = LAST_SECOND;
        let root = Ca::root_of(&spec).certificate;
        let mut der = root.der().to_vec();
        let position = der.windows(14).position(|window| window == b"99991230220000").unwrap();
        der[position..position + 14].copy_from_slice(b"99991231235959");
        assert_eq!(Certificate::from_der(&der).unwrap().facts().validity.not_after, LAST_SECOND);
    }
}
