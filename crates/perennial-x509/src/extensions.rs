//! The extensions that Perennial writes, and the object identifiers of those it reads.

use std::collections::BTreeSet;

use der::Encode;
use der::asn1::{Ia5String, ObjectIdentifier, OctetString};
use der::flagset::FlagSet;
use perennial_core::policy::Usage;
use perennial_core::spec::{Extension as SpecExtension, Host};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::ext::pkix::{
    AuthorityKeyIdentifier, BasicConstraints, ExtendedKeyUsage, KeyUsage, KeyUsages, SubjectAltName,
};

use crate::issue::IssueError;
use crate::public_key::PublicKey;

/// The input for the extensions of a certificate.
pub(crate) struct Wanted<'a> {
    pub(crate) usage: Usage,
    pub(crate) hosts: &'a [Host],
    /// If the subject is empty, the alternative names must be critical (RFC 5280 4.2.1.6).
    pub(crate) subject_is_empty: bool,
    pub(crate) key: &'a PublicKey,
    /// The key usage and path length of a CA that are copied from another certificate.
    pub(crate) copied: Copied,
    pub(crate) subject_key_id: &'a [u8],
    /// The subject key identifier of the issuer; none if the issuer has none.
    pub(crate) authority_key_id: Option<&'a [u8]>,
    pub(crate) more: &'a [SpecExtension],
}

/// What a cross-certificate copies from the certificate of its CA.
#[derive(Default)]
pub(crate) struct Copied {
    pub(crate) key_usage: Option<FlagSet<KeyUsages>>,
    pub(crate) path_len: Option<u8>,
}

/// Returns the extensions in Go's order.
pub(crate) fn build(wanted: &Wanted<'_>) -> Result<Vec<Extension>, IssueError> {
    let is_ca = wanted.usage == Usage::Signer;
    let mut list = Vec::with_capacity(7 + wanted.more.len());
    let usage = wanted.copied.key_usage.unwrap_or_else(|| key_usage(is_ca, wanted.key));
    list.push(extension(oid::KEY_USAGE, true, &KeyUsage(usage))?);
    let extended: &[ObjectIdentifier] = match wanted.usage {
        Usage::Signer => &[],
        Usage::Serving => &[oid::SERVER_AUTH],
        Usage::Client => &[oid::CLIENT_AUTH],
        Usage::Peer => &[oid::SERVER_AUTH, oid::CLIENT_AUTH],
    };
    if !extended.is_empty() {
        list.push(extension(oid::EXTENDED_KEY_USAGE, false, &ExtendedKeyUsage(extended.to_vec()))?);
    }
    let constraints = BasicConstraints { ca: is_ca, path_len_constraint: wanted.copied.path_len };
    list.push(extension(oid::BASIC_CONSTRAINTS, true, &constraints)?);
    list.push(extension(oid::SUBJECT_KEY_ID, false, &octets(wanted.subject_key_id)?)?);
    if let Some(id) = wanted.authority_key_id {
        let authority = AuthorityKeyIdentifier { key_identifier: Some(octets(id)?), ..Default::default() };
        list.push(extension(oid::AUTHORITY_KEY_ID, false, &authority)?);
    }
    if !wanted.hosts.is_empty() {
        let names = wanted.hosts.iter().map(general_name).collect::<Result<_, _>>()?;
        list.push(extension(oid::SUBJECT_ALT_NAME, wanted.subject_is_empty, &SubjectAltName(names))?);
    }
    let mut taken = BTreeSet::from(OURS);
    for more in wanted.more {
        let oid = ObjectIdentifier::new(&more.oid).map_err(|_| IssueError::ExtensionOid { oid: more.oid.clone() })?;
        if !taken.insert(oid) {
            return Err(IssueError::ExtensionClash { oid: more.oid.clone() });
        }
        list.push(Extension { extn_id: oid, critical: more.critical, extn_value: octets(&more.value)? });
    }
    Ok(list)
}

/// keyEncipherment is for RSA key exchange: the subject's own key decides, not the issuer's.
fn key_usage(is_ca: bool, key: &PublicKey) -> FlagSet<KeyUsages> {
    let mut usage: FlagSet<KeyUsages> = KeyUsages::DigitalSignature.into();
    if key.kind().is_rsa() {
        usage |= KeyUsages::KeyEncipherment;
    }
    if is_ca {
        usage |= KeyUsages::KeyCertSign;
    }
    usage
}

fn general_name(host: &Host) -> Result<GeneralName, IssueError> {
    match host {
        Host::Ip(ip) => Ok(GeneralName::from(*ip)),
        Host::Dns(name) => {
            let bad = || IssueError::DnsName { name: name.clone() };
            if name.is_empty() || !name.bytes().all(|b| b.is_ascii_graphic()) {
                return Err(bad());
            }
            Ok(GeneralName::DnsName(Ia5String::new(name).map_err(|_| bad())?))
        }
    }
}

fn extension(oid: ObjectIdentifier, critical: bool, value: &impl Encode) -> Result<Extension, IssueError> {
    let value = value.to_der().map_err(IssueError::Encode)?;
    Ok(Extension { extn_id: oid, critical, extn_value: OctetString::new(value).map_err(IssueError::Encode)? })
}

fn octets(bytes: &[u8]) -> Result<OctetString, IssueError> {
    OctetString::new(bytes).map_err(IssueError::Encode)
}

/// The extensions that follow from the usage and the keys alone.
const OURS: [ObjectIdentifier; 6] = [
    oid::KEY_USAGE,
    oid::EXTENDED_KEY_USAGE,
    oid::BASIC_CONSTRAINTS,
    oid::SUBJECT_KEY_ID,
    oid::AUTHORITY_KEY_ID,
    oid::SUBJECT_ALT_NAME,
];

/// Object identifiers of extensions and extended key usages.
pub(crate) mod oid {
    use der::asn1::ObjectIdentifier;

    pub(crate) const SUBJECT_KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.14");
    pub(crate) const KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.15");
    pub(crate) const SUBJECT_ALT_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");
    pub(crate) const BASIC_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.19");
    pub(crate) const NAME_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.30");
    pub(crate) const POLICY_CONSTRAINTS: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.36");
    pub(crate) const AUTHORITY_KEY_ID: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.35");
    pub(crate) const EXTENDED_KEY_USAGE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37");

    pub(crate) const NETSCAPE_TYPE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.16.840.1.113730.1.1");

    pub(crate) const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
    pub(crate) const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");
}
