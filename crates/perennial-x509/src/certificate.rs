//! A certificate: the bytes it was read from, and the facts in them.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Range;

use der::pem::LineEnding;

use crate::asn1;
use crate::facts::{self, Facts};
use crate::name::NameError;

/// A certificate with its original bytes. Equality is equality of the bytes.
#[derive(Clone)]
pub struct Certificate {
    der: Vec<u8>,
    /// The range of the signed part in `der`.
    signed: Range<usize>,
    signature: Vec<u8>,
    facts: Facts,
}

/// The DER is not a certificate that all common verifiers read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// A field is not the DER it should be; trailing bytes are reported here too.
    #[error("the {field} is malformed: {source}")]
    Field {
        /// The field.
        field: &'static str,
        /// The error.
        source: der::Error,
    },
    /// A field is well-formed, but has a value that Go rejects.
    #[error("the {field} is {found}, accepted is {accepted}")]
    Value {
        /// The field.
        field: &'static str,
        /// The value.
        found: String,
        /// The accepted values.
        accepted: &'static str,
    },
    /// The issuer or the subject cannot be read.
    #[error("the {field} cannot be read")]
    Name {
        /// Issuer or subject.
        field: &'static str,
        /// The error.
        #[source]
        source: NameError,
    },
    /// An extension is repeated; Go rejects such certificates.
    #[error("extension {oid} appears twice")]
    DuplicateExtension {
        /// The dotted object identifier.
        oid: String,
    },
}

impl Certificate {
    /// Reads one certificate; trailing bytes are an error.
    pub fn from_der(der: &[u8]) -> Result<Certificate, CertificateError> {
        let facts::Parsed { facts, signed, signature } = facts::parse(der)?;
        Ok(Certificate { der: der.to_vec(), signed, signature, facts })
    }

    /// Returns the bytes from which it was read.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns the facts in it.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns one `CERTIFICATE` block.
    pub fn to_pem(&self) -> String {
        // Fails only for texts beyond the address space.
        der::pem::encode_string("CERTIFICATE", LineEnding::LF, &self.der).unwrap_or_default()
    }

    /// Returns true if the signature was made with the key of `issuer`. Names and key identifiers are not compared.
    pub(crate) fn is_signed_with_key_of(&self, issuer: &Certificate) -> bool {
        let key = &issuer.facts.public_key;
        self.facts.signature_algorithm.verifies(key, &self.der[self.signed.clone()], &self.signature)
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Certificate) -> bool {
        self.der == other.der
    }
}

impl Eq for Certificate {}

impl Hash for Certificate {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.facts.fingerprint.hash(state);
    }
}

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Certificate({}, serial {}, ", self.facts.subject, self.facts.serial)?;
        write!(f, "fingerprint {})", asn1::hex(&self.facts.fingerprint[..8]))
    }
}
