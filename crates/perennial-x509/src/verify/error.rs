//! Why a certificate is rejected: the certificate with the problem, and the problem.

use jiff::Timestamp;
use perennial_core::spec::Host;

use crate::certificate::Certificate;
use crate::conformance::{Irregularity, Restriction};
use crate::name::Name;

/// The certificate is rejected. Of all rejected paths, this names the one that came closest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("certificate \"{subject}\" (serial {serial}): {problem}")]
pub struct VerifyError {
    /// The subject of the certificate with the problem.
    pub subject: Name,
    /// Its serial number.
    pub serial: String,
    /// The number of certificates of the path before it: 0 for the leaf.
    pub depth: usize,
    /// The problem.
    pub problem: Problem,
}

/// The problem of a certificate, or of the path after it.
///
/// Later variants were closer to being accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// No known certificate has the issuer's name.
    #[error("no issuer \"{issuer}\" found{}", key_id(authority_key_id))]
    NoIssuer {
        /// The issuer it names.
        issuer: Name,
        /// The key identifier it names.
        authority_key_id: Option<String>,
    },
    /// The only issuers with that name have another key.
    #[error(
        "it names the key {authority_key_id} of the issuer \"{issuer}\", but the known certificates with this subject have the key {found}"
    )]
    OtherIssuerKey {
        /// The issuer it names.
        issuer: Name,
        /// The key identifier it names.
        authority_key_id: Box<str>,
        /// The key identifier of the candidate.
        found: Box<str>,
    },
    /// The candidate did not sign it.
    #[error("its signature ({algorithm}) was not made with the key of \"{issuer}\"")]
    Signature {
        /// The issuer it names.
        issuer: Name,
        /// How it says to be signed.
        algorithm: String,
    },
    /// It does not name the key of its signer, and OpenSSL does not guess.
    #[error("it has no authority key identifier, which every certificate below another must have")]
    NoAuthorityKeyId,
    /// The path would be longer than any of Perennial's.
    #[error("the path is longer than {limit} certificates")]
    TooLong {
        /// The limit.
        limit: usize,
    },
    /// An issuer is not a CA.
    #[error("it signed a certificate, but is not a CA")]
    NotCa,
    /// An issuer's key usage lacks keyCertSign.
    #[error("it signed a certificate, but its key usage lacks keyCertSign")]
    NoKeyCertSign,
    /// An issuer allows fewer CAs below it.
    #[error("it allows {allowed} further CAs below it, the path has {found}")]
    PathLength {
        /// Its path length.
        allowed: u8,
        /// The number of CAs below it, self-issued ones included.
        found: usize,
    },
    /// A critical extension that Perennial does not know.
    #[error("it has the unknown critical extension {oid}")]
    UnknownCritical {
        /// The dotted object identifier.
        oid: String,
    },
    /// An extension that is not evaluated.
    #[error("it is restricted by {by}, and that is not evaluated")]
    Restricted {
        /// The restriction.
        by: Restriction,
    },
    /// Only version 3 has extensions.
    #[error("it is of version {version}, accepted is 3")]
    Version {
        /// Its version.
        version: u8,
    },
    /// A shape that strict verifiers reject.
    #[error(transparent)]
    Irregular(#[from] Irregularity),
    /// A weak or uncommon key.
    #[error("its key is {found}, accepted are RSA of 2048 to 8192 bits, ECDSA P256, P384, P521, and Ed25519")]
    Key {
        /// The kind of the key.
        found: String,
    },
    /// A CA is presented as a server or client.
    #[error("it is a CA, which is not accepted as a server or client")]
    CaAsLeaf,
    /// The wrong extended key usage.
    #[error("its extended key usage does not allow {wanted}")]
    ExtendedKeyUsage {
        /// serverAuth or clientAuth.
        wanted: &'static str,
    },
    /// The wrong key usage.
    #[error("its key usage lacks digitalSignature")]
    KeyUsage,
    /// The name is missing.
    #[error("it is not for {wanted}, but for {}", names(found))]
    Name {
        /// The required name.
        wanted: Host,
        /// The names in the certificate.
        found: Vec<Host>,
    },
    /// Its validity has not begun.
    #[error("it is not valid at {at}, only from {not_before} on")]
    NotYetValid {
        /// The first second of its validity.
        not_before: Timestamp,
        /// The time of verification.
        at: Timestamp,
    },
    /// It has expired.
    #[error("it expired at {not_after}, before {at}")]
    Expired {
        /// The last second of its validity.
        not_after: Timestamp,
        /// The time of verification.
        at: Timestamp,
    },
    /// The certificates are designed to keep verifiers busy.
    #[error("no path found within {limit} attempts")]
    TooComplex {
        /// The limit.
        limit: usize,
    },
}

impl VerifyError {
    pub(crate) fn new(certificate: &Certificate, depth: usize, problem: Problem) -> VerifyError {
        let facts = certificate.facts();
        VerifyError { subject: facts.subject.clone(), serial: facts.serial.clone(), depth, problem }
    }

    /// Returns true if this explains better than `other` why there is no path.
    pub(crate) fn is_closer_than(&self, other: &VerifyError) -> bool {
        // After the search was stopped, the other problems are incomplete.
        let closeness = |error: &VerifyError| {
            (matches!(error.problem, Problem::TooComplex { .. }), error.depth, error.problem.rank())
        };
        closeness(self) > closeness(other)
    }
}

impl Problem {
    fn rank(&self) -> u8 {
        match self {
            Problem::NoIssuer { .. } => 0,
            Problem::OtherIssuerKey { .. } => 1,
            Problem::Signature { .. } => 2,
            Problem::NoAuthorityKeyId | Problem::TooLong { .. } => 3,
            Problem::NotCa | Problem::NoKeyCertSign | Problem::PathLength { .. } => 4,
            Problem::UnknownCritical { .. }
            | Problem::Restricted { .. }
            | Problem::Version { .. }
            | Problem::Irregular(_)
            | Problem::Key { .. } => 5,
            Problem::CaAsLeaf | Problem::ExtendedKeyUsage { .. } | Problem::KeyUsage | Problem::Name { .. } => 6,
            Problem::NotYetValid { .. } | Problem::Expired { .. } => 7,
            Problem::TooComplex { .. } => 8,
        }
    }
}

fn key_id(id: &Option<String>) -> String {
    id.as_ref().map(|id| format!(" (with key {id})")).unwrap_or_default()
}

fn names(hosts: &[Host]) -> String {
    if hosts.is_empty() {
        return "no name at all".to_owned();
    }
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}
