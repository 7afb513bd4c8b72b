//! Path verification: whether somebody who trusts these anchors accepts this certificate at this instant, and why not.
//!
//! It is as strict as the strictest common verifier, so that what holds here holds everywhere:
//! - Every certificate of a path must be valid at the instant, the anchor included, from its first second to its
//!   last, both included (RFC 5280 and Go; OpenSSL leaves out the last).
//! - Every entry of a bundle is an anchor, an intermediate CA too (Go; OpenSSL with `-partial_chain`).
//!   A leaf is its own anchor only where it is self-signed.
//! - An anchor must be a CA by its extensions; certificates of version 1 are none.
//! - Where both an authority and a subject key identifier exist, they must be equal.
//! - The path length counts as in RFC 5280: self-issued certificates are free (Go counts them too, which is
//!   why Perennial never writes a path length).
//! - Name constraints are not evaluated; a path that has them is refused.

mod error;
mod host;
mod search;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use perennial_core::spec::{Host, Validity};

use crate::certificate::Certificate;

pub use error::{Problem, VerifyError};

/// A question: is `leaf` acceptable?
#[derive(Debug, Clone, Copy)]
pub struct Verification<'a> {
    /// The certificate that is presented.
    pub leaf: &'a Certificate,
    /// What is presented beside it, in any order.
    pub intermediates: &'a [Certificate],
    /// What the verifier trusts: its bundle.
    pub anchors: &'a [Certificate],
    /// The instant.
    pub at: Timestamp,
    /// What the certificate is presented for.
    pub purpose: &'a Purpose,
}

/// What a certificate is presented for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A server shows it to a client.
    Server {
        /// The name by which the client knows the server, if that matters.
        name: Option<Host>,
    },
    /// A client shows it to a server.
    Client,
    /// Anything: key usages of the leaf do not matter.
    Any,
}

/// An accepted path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path<'a> {
    /// The leaf first, the anchor last; for a self-signed leaf, that one alone.
    certificates: Vec<&'a Certificate>,
}

impl<'a> Path<'a> {
    /// The leaf first, the anchor last.
    pub fn certificates(&self) -> &[&'a Certificate] {
        &self.certificates
    }

    /// The anchor that the path ends in.
    pub fn anchor(&self) -> &'a Certificate {
        self.certificates[self.certificates.len() - 1]
    }

    /// From when to when all certificates of the path are valid.
    pub fn validity(&self) -> Validity {
        let validities = || self.certificates.iter().map(|certificate| certificate.facts().validity);
        Validity {
            not_before: validities().map(|v| v.not_before).max().unwrap_or(Timestamp::MAX),
            not_after: validities().map(|v| v.not_after).min().unwrap_or(Timestamp::MIN),
        }
    }
}

/// Looks for a path from the leaf to an anchor.
pub fn verify<'a>(question: &Verification<'a>) -> Result<Path<'a>, VerifyError> {
    search::Search::new(question).run()
}

/// Whether `issuer` signed `child`: by name, by key identifiers where both have them, and by signature.
///
/// Whether it was allowed to is another question.
pub fn signed_by(child: &Certificate, issuer: &Certificate) -> bool {
    child.facts().issuer == issuer.facts().subject
        && search::key_ids_agree(child, issuer)
        && child.is_signed_with_key_of(issuer)
}
