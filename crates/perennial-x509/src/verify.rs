//! Path verification: checks if a verifier with these anchors accepts a certificate at an instant, and returns the reason
//! if not.
//!
//! For servers and clients, this module rejects every path that one of these verifiers rejects, so that all of them accept
//! every path that this module accepts: OpenSSL with `-x509_strict` at security level 2, Go, Java, GnuTLS at its medium
//! profile, rustls-webpki.
//! - Every certificate of a path must be valid at the instant, the anchor included.
//! - Every certificate of a bundle is an anchor. Only a certificate whose extensions mark it as a CA can be an issuer. A
//!   leaf can be its own anchor only if it is self-signed. A CA is not a leaf, except for [`Purpose::Any`], which checks
//!   paths of CAs.
//! - Every certificate of a path except the last must have an authority key identifier, equal to the subject key
//!   identifier of the issuer. The other requirements of `-x509_strict` are in [`Irregularity`](crate::Irregularity);
//!   as in OpenSSL, they do not apply to a leaf that is its own anchor.
//! - Keys are RSA of 2048 to 8192 bits, ECDSA on P256, P384 or P521, or Ed25519; signatures use SHA-2.
//! - The key usage of a leaf, if present, has digitalSignature. An extended key usage, also of a CA, has the purpose.
//! - The path length counts every CA below, as Go and GnuTLS do, although RFC 5280 does not count self-issued CAs.
//! - Only alternative names count as names. A wildcard stands for one whole label, followed by at least two others.
//! - Name constraints and other [`Restriction`](crate::Restriction)s are not evaluated; a path with them is rejected.
//!
//! Known differences, where this module accepts a path and another verifier rejects it:
//! - The last second of a certificate belongs to its validity, as RFC 5280 says; OpenSSL leaves it out.
//! - An intermediate CA as the only anchor suffices; OpenSSL asks for `-partial_chain` then.
//! - Every path is tried. If two certificates of one CA key are presented, such as two cross-certificates, OpenSSL and
//!   GnuTLS follow the first and stop if it leads to no anchor, GnuTLS also if it has expired.
//!   [`Path`] shows which one to present.
//!
//! `verifier.rs` in the tests of perennial-testbed asks the five verifiers about many unusual certificates, and lists
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

/// A verification: whether `leaf` is accepted.
#[derive(Debug, Clone, Copy)]
pub struct Verification<'a> {
    /// The certificate that is presented.
    pub leaf: &'a Certificate,
    /// The certificates that are presented after it, in any order.
    pub intermediates: &'a [Certificate],
    /// The bundle of the verifier.
    pub anchors: &'a [Certificate],
    /// The time of verification.
    pub at: Timestamp,
    /// The purpose for which the certificate is presented.
    pub purpose: &'a Purpose,
}

/// The purpose for which a certificate is presented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Purpose {
    /// A server presents it to a client.
    Server {
        /// The name to which the client connects, if it matters.
        name: Option<Host>,
    },
    /// A client presents it to a server.
    Client,
    /// Any purpose, including signing: key usages of the leaf are not checked.
    Any,
}

/// An accepted path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path<'a> {
    /// The leaf first, the anchor last; for a self-signed leaf, only the leaf.
    certificates: Vec<&'a Certificate>,
}

impl<'a> Path<'a> {
    /// Returns the leaf first, the anchor last.
    pub fn certificates(&self) -> &[&'a Certificate] {
        &self.certificates
    }

    /// Returns the anchor at the end of the path.
    pub fn anchor(&self) -> &'a Certificate {
        self.certificates[self.certificates.len() - 1]
    }

    /// Returns the time in which all certificates of the path are valid.
    pub fn validity(&self) -> Validity {
        let validities = || self.certificates.iter().map(|certificate| certificate.facts().validity);
        Validity {
            not_before: validities().map(|v| v.not_before).max().unwrap_or(Timestamp::MAX),
            not_after: validities().map(|v| v.not_after).min().unwrap_or(Timestamp::MIN),
        }
    }
}

/// Searches a path from the leaf to an anchor.
pub fn verify<'a>(question: &Verification<'a>) -> Result<Path<'a>, VerifyError> {
    search::Search::new(question).run()
}

/// Returns true if `issuer` signed `child`: by name, by key identifiers if both have them, and by signature.
///
/// This does not check whether the issuer may sign.
pub fn signed_by(child: &Certificate, issuer: &Certificate) -> bool {
    child.facts().issuer == issuer.facts().subject
        && search::key_ids_agree(child, issuer)
        && child.is_signed_with_key_of(issuer)
}
