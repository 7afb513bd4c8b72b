//! Certificates that can be read but that strict verifiers reject: shapes that RFC 5280 forbids, and restrictions that
//! Perennial does not evaluate.

use std::fmt;

use der::asn1::ObjectIdentifier;

use crate::extensions::oid;
use crate::facts::{Facts, KeyUsages};

/// A shape that RFC 5280 forbids and that OpenSSL rejects with `-x509_strict`, the default of Python 3.13.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Irregularity {
    /// Section 4.1.2.4.
    #[error("it has no issuer")]
    NoIssuer,
    /// Section 4.1.2.6: every CA needs a subject, and every leaf a subject or an alternative name.
    #[error("it has no subject")]
    NoSubject,
    /// Section 4.2.1.6.
    #[error("it has no subject, so its alternative names must be critical")]
    HostsNotCritical,
    /// Section 4.2.1.6.
    #[error("its list of alternative names is empty")]
    EmptyHosts,
    /// Section 4.2.1.9.
    #[error("it is a CA, so its basic constraints must be critical")]
    ConstraintsNotCritical,
    /// Section 4.2.1.9.
    #[error("it has a path length, but is not a CA")]
    PathLengthWithoutCa,
    /// Section 4.2.1.3.
    #[error("it is a CA without a key usage")]
    CaWithoutKeyUsage,
    /// Section 4.2.1.9.
    #[error("its key usage has keyCertSign, but it is not a CA")]
    KeyCertSignWithoutCa,
    /// Section 4.2.1.2.
    #[error("it is a CA without a subject key identifier")]
    CaWithoutKeyId,
    /// Sections 4.2.1.1 and 4.2.1.2.
    #[error("its key identifiers must not be critical")]
    KeyIdCritical,
}

/// An extension that some verifiers evaluate, critical or not, and that Perennial does not evaluate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Restriction {
    /// Which names the certificates below it may have.
    NameConstraints,
    /// Which policies the certificates below it must have; Java evaluates it.
    PolicyConstraints,
    /// Whether it is for servers, clients or CAs; OpenSSL and Java evaluate it.
    NetscapeType,
}

impl Irregularity {
    /// Returns true if verifiers ignore it in a self-signed anchor, about which RFC 5280 says nothing
    /// (RFC 6818 section 2).
    pub(crate) fn is_ignored_in_self_signed_anchor(self) -> bool {
        match self {
            Irregularity::ConstraintsNotCritical
            | Irregularity::PathLengthWithoutCa
            | Irregularity::CaWithoutKeyUsage
            | Irregularity::KeyCertSignWithoutCa
            | Irregularity::CaWithoutKeyId => true,
            Irregularity::NoIssuer
            | Irregularity::NoSubject
            | Irregularity::HostsNotCritical
            | Irregularity::EmptyHosts
            | Irregularity::KeyIdCritical => false,
        }
    }
}

impl Restriction {
    /// Returns the restriction of an extension, if it is one of these.
    pub(crate) fn of(extension: ObjectIdentifier) -> Option<Restriction> {
        match extension {
            oid::NAME_CONSTRAINTS => Some(Restriction::NameConstraints),
            oid::POLICY_CONSTRAINTS => Some(Restriction::PolicyConstraints),
            oid::NETSCAPE_TYPE => Some(Restriction::NetscapeType),
            _ => None,
        }
    }
}

impl fmt::Display for Restriction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Restriction::NameConstraints => "name constraints",
            Restriction::PolicyConstraints => "policy constraints",
            Restriction::NetscapeType => "a Netscape certificate type",
        })
    }
}

/// The form of the extensions, besides their content.
#[derive(Debug, Default)]
pub(crate) struct Form {
    pub(crate) critical: Vec<ObjectIdentifier>,
    /// The number of alternative names of any kind.
    pub(crate) alternative_names: Option<usize>,
}

pub(crate) fn irregularities(facts: &Facts, form: &Form) -> Vec<Irregularity> {
    let is_critical = |oid| form.critical.contains(&oid);
    let no_subject = facts.subject.is_empty();
    let may_sign = facts.key_usage.is_some_and(|usage| usage.contains(KeyUsages::KeyCertSign));
    let found = [
        (facts.issuer.is_empty(), Irregularity::NoIssuer),
        (no_subject && (facts.is_ca || form.alternative_names.is_none()), Irregularity::NoSubject),
        (
            no_subject && form.alternative_names.is_some() && !is_critical(oid::SUBJECT_ALT_NAME),
            Irregularity::HostsNotCritical,
        ),
        (form.alternative_names == Some(0), Irregularity::EmptyHosts),
        (facts.is_ca && !is_critical(oid::BASIC_CONSTRAINTS), Irregularity::ConstraintsNotCritical),
        (!facts.is_ca && facts.path_len.is_some(), Irregularity::PathLengthWithoutCa),
        (facts.is_ca && facts.key_usage.is_none(), Irregularity::CaWithoutKeyUsage),
        (!facts.is_ca && may_sign, Irregularity::KeyCertSignWithoutCa),
        (facts.is_ca && facts.subject_key_id.is_none(), Irregularity::CaWithoutKeyId),
        (is_critical(oid::SUBJECT_KEY_ID) || is_critical(oid::AUTHORITY_KEY_ID), Irregularity::KeyIdCritical),
    ];
    found.into_iter().filter(|(is_so, _)| *is_so).map(|(_, irregularity)| irregularity).collect()
}
