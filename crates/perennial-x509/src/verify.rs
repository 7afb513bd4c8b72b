//! Path verification: whether somebody who trusts these anchors accepts this certificate at this instant, and why not.
//!
//! For servers and clients it refuses what any of these refuses, so that what holds here holds there: OpenSSL with
//! `-x509_strict` at security level 2, Go, Java, GnuTLS at its medium profile, rustls-webpki.
//! - Every certificate of a path must be valid at the instant, the anchor included.
//! - Every entry of a bundle is an anchor, but only a CA by its extensions signs others, and a leaf is its own anchor
//!   only where it is self-signed. A CA is not a leaf, except for [`Purpose::Any`], by which paths of CAs are checked.
//! - Except in the last certificate of a path there must be an authority key identifier, which must be the subject
//!   key identifier of the issuer. What else `-x509_strict` asks for is in [`Irregularity`](crate::Irregularity);
//!   like there, a leaf that is its own anchor is spared.
//! - Keys are RSA of 2048 to 8192 bits, ECDSA on P256, P384 or P521, or Ed25519; signatures use SHA-2.
//! - A leaf's key usage, where present, has digitalSignature; an extended key usage names the purpose, in CAs too.
//! - The path length counts every CA below, as Go and GnuTLS do, although RFC 5280 leaves out self-issued ones.
//! - Names are alternative names. A wildcard stands for a whole label above at least two others.
//! - Name constraints and other [`Restriction`](crate::Restriction)s are not evaluated; a path with them is refused.
//!
//! The known differences, where something is accepted here and refused there:
//! - The last second of a certificate belongs to its validity, as RFC 5280 says; OpenSSL leaves it out.
//! - An intermediate CA as the only anchor suffices; OpenSSL asks for `-partial_chain` then.
//! - Every path is tried. Where two certificates of one CA key are presented, two cross-certificates say, OpenSSL and
//!   GnuTLS follow the first and give up where it leads to no anchor, GnuTLS also where it has expired.
//!   [`Path`] says which one to present.
//!
//! `verifier.rs` among the tests of perennial-testbed asks the five about a family of odd certificates and knows
//! these differences by name.

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
    /// Anything, signing certificates included: key usages of the leaf do not matter.
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
