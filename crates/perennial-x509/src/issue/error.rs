//! Why a certificate cannot be issued.

use jiff::Timestamp;

use crate::certificate::CertificateError;
use crate::key::KeyError;
use crate::name::{Name, NameError};
use crate::random::RandomError;

/// Why a certificate and a key are not an issuer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuerError {
    /// The key is not that of the certificate.
    #[error("the key of \"{subject}\" is not the one in its certificate")]
    KeyMismatch {
        /// The subject of the certificate.
        subject: Name,
    },
    /// The certificate must not sign others.
    #[error("\"{subject}\" is not a CA that may sign certificates")]
    NotCa {
        /// The subject of the certificate.
        subject: Name,
    },
}

/// Why a certificate cannot be issued as specified.
#[derive(Debug, thiserror::Error)]
pub enum IssueError {
    /// X.509 has no fractions of a second, and rounding would be a decision.
    #[error("{field} {instant} is not a whole second")]
    Fraction {
        /// `not_before` or `not_after`.
        field: &'static str,
        /// The instant.
        instant: Timestamp,
    },
    /// Before 1970.
    #[error("{field} {instant} is before 1970")]
    TooEarly {
        /// `not_before` or `not_after`.
        field: &'static str,
        /// The instant.
        instant: Timestamp,
    },
    /// It would end before it starts.
    #[error("not_after {not_after} is not after not_before {not_before}")]
    Backwards {
        /// The start.
        not_before: Timestamp,
        /// The end.
        not_after: Timestamp,
    },
    /// A certificate must not expire after its signer.
    #[error("not_after {not_after} is after that of the signer \"{signer}\", {signer_not_after}")]
    OutlivesSigner {
        /// The requested end.
        not_after: Timestamp,
        /// The subject of the signer.
        signer: Name,
        /// The end of the signer's validity.
        signer_not_after: Timestamp,
    },
    /// A certificate must not begin before its signer.
    #[error("not_before {not_before} is before that of the signer \"{signer}\", {signer_not_before}")]
    PredatesSigner {
        /// The requested start.
        not_before: Timestamp,
        /// The subject of the signer.
        signer: Name,
        /// The start of the signer's validity.
        signer_not_before: Timestamp,
    },
    /// The signer's path length leaves no room for another CA.
    #[error("the signer \"{signer}\" has path length 0, so no verifier accepts a CA below it")]
    NoRoomForCa {
        /// The subject of the signer.
        signer: Name,
    },
    /// Only a CA can be cross-signed.
    #[error("\"{subject}\" is not a CA, so it cannot be cross-signed")]
    NotCa {
        /// The subject.
        subject: Name,
    },
    /// A cross-certificate would be trusted for more than the CA itself.
    #[error("\"{subject}\" has {found}, which a cross-certificate would not preserve")]
    Constrained {
        /// The subject of the CA.
        subject: Name,
        /// The restriction.
        found: String,
    },
    /// A certificate needs a subject or a name.
    #[error("the certificate has neither a subject nor a host name")]
    Nameless,
    /// Leaves contain the signer's subject, so it must have one.
    #[error("a CA needs a subject")]
    CaWithoutSubject,
    /// The subject cannot be written.
    #[error("failed to write the subject")]
    Subject(#[from] NameError),
    /// A DNS name that is empty or not visible ASCII.
    #[error("DNS name {name:?} is empty or has characters other than visible ASCII")]
    DnsName {
        /// The name.
        name: String,
    },
    /// The text is not a dotted object identifier.
    #[error("{oid:?} is not an object identifier")]
    ExtensionOid {
        /// The text.
        oid: String,
    },
    /// Verifiers reject a certificate with a repeated extension.
    #[error("extension {oid} is requested, but is already present or follows from the usage")]
    ExtensionClash {
        /// The dotted object identifier.
        oid: String,
    },
    /// The serial number could not be generated.
    #[error(transparent)]
    Random(#[from] RandomError),
    /// The certificate could not be signed.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// A part is too long for DER.
    #[error("failed to encode the certificate: {0}")]
    Encode(der::Error),
    /// The issued certificate cannot be read back, most likely because of an added extension.
    #[error("the specified certificate would not be readable")]
    Unreadable(#[source] Box<CertificateError>),
}
