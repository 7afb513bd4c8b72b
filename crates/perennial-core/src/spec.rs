//! The complete specification of a certificate to issue. The issuing code decides nothing.

use std::fmt;
use std::net::IpAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::key::KeySpec;
use crate::policy::Usage;

/// Everything about a certificate except its key, its serial number and its signature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CertificateSpec {
    /// The subject.
    pub subject: SubjectSpec,
    /// The usage, which decides the CA flag, key usage and extended key usage.
    pub usage: Usage,
    /// The subject alternative names, in this order.
    pub hosts: Vec<Host>,
    /// The validity.
    pub validity: Validity,
    /// The kind of key to generate for it.
    pub key: KeySpec,
    /// Further extensions, appended as they are.
    pub extensions: Vec<Extension>,
}

/// The subject of a certificate to make.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SubjectSpec {
    /// A new subject, written from its parts.
    New(Subject),
    /// The DER of an existing subject, kept byte for byte: some verifiers compare bytes.
    Kept(Vec<u8>),
}

/// A distinguished name in the parts that Kubernetes reads: the user and its groups.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subject {
    /// CN: the user name of a client.
    pub common_name: String,
    /// O: the groups of a client, written as one multi-valued RDN.
    pub organizations: Vec<String>,
    /// OU.
    pub organizational_units: Vec<String>,
}

/// A subject alternative name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Host {
    /// A DNS name, perhaps with a leading `*.` label. May be an IP address in text form, for the
    /// few old clients that look for it among the DNS names.
    Dns(String),
    /// An IP address.
    Ip(IpAddr),
}

/// The first and the last second of a certificate's validity, both whole seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Validity {
    /// Valid from this second on.
    pub not_before: Timestamp,
    /// Valid up to and including this second (RFC 5280 section 4.1.2.5).
    pub not_after: Timestamp,
}

/// An X.509 extension by its object identifier and DER value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extension {
    /// The dotted object identifier.
    pub oid: String,
    /// True if a verifier that does not know the extension must reject the certificate.
    pub critical: bool,
    /// The DER inside the extension's OCTET STRING.
    pub value: Vec<u8>,
}

impl From<Subject> for SubjectSpec {
    fn from(subject: Subject) -> SubjectSpec {
        SubjectSpec::New(subject)
    }
}

impl Subject {
    /// A subject that is a common name only.
    pub fn common_name(common_name: impl Into<String>) -> Subject {
        Subject { common_name: common_name.into(), ..Subject::default() }
    }
}

impl Host {
    /// Returns an IP address if the text is one, else a DNS name.
    pub fn parse(text: &str) -> Host {
        match text.parse() {
            Ok(ip) => Host::Ip(ip),
            Err(_) => Host::Dns(text.to_owned()),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Dns(name) => f.write_str(name),
            Host::Ip(ip) => ip.fmt(f),
        }
    }
}

impl Validity {
    /// Returns true if the certificate is valid at `at`; both ends are included.
    pub fn contains(&self, at: Timestamp) -> bool {
        self.not_before <= at && at <= self.not_after
    }
}
