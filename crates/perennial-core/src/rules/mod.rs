//! The rules of rotation: for a signer, a bundle and a certificate each one ordered list of small checks, first match wins.
//!
//! A rule sees one object and answers from data alone. It does not know whether its wish is safe: that is for
//! [`crate::trust`] to prove before anything is written.

mod bundle;
mod reason;
mod secret;
#[cfg(test)]
mod tests;
mod timing;

use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use bundle::{BundleChange, BundleInputs, BundleReason, BundleState, Published, decide_bundle};
pub use reason::{Reason, Remedy, Waiting, first_few};
pub use secret::{ChainFault, SignerCase, TargetCase, decide_signer, decide_target};
pub use timing::{Timing, canonical_hosts};

use crate::spec::Host;
use crate::trust::{CertificateFacts, CertificateId};

/// What was found of an object. A half-filled cache cannot be expressed: somebody has looked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Observed<T> {
    /// It is not there.
    Absent,
    /// It is there, but cannot be used.
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
    /// Nobody could look: whether it is there, and what it is, is not known. Nothing that depends on it is decided.
    Unknown {
        /// Why.
        why: String,
    },
    /// It is there.
    Present(T),
}

/// A Secret with a certificate and its key, as far as decisions look at it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretState {
    /// The certificate, from its bytes.
    pub certificate: Arc<CertificateFacts>,
    /// The instant of issue, as recorded; none on what others issued, which then counts from `not_before`.
    pub issued_at: Option<Timestamp>,
    /// `auth.openshift.io/certificate-not-after`.
    pub not_after: Annotation,
    /// `auth.openshift.io/certificate-not-before`.
    pub not_before: Annotation,
    /// Whether `auth.openshift.io/certificate-issuer` is there.
    pub names_issuer: bool,
    /// The reason of the last rotation that an annotation of the Secret asked for.
    pub forced: Option<String>,
    /// The reason of the last rotation that a resource asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    /// What is served beside it.
    pub chain: Vec<CertificateId>,
    /// For a signer: its subject as bytes, for one that keeps it.
    pub subject: Option<Vec<u8>>,
    /// For a signer that is cross-signed: itself, signed by earlier ones.
    pub bridges: Vec<CertificateId>,
    /// For a signer that is cross-signed: earlier ones, signed by itself.
    pub bridged: Vec<CertificateId>,
    /// Earlier certificates of this place that a process may still hold.
    pub superseded: Vec<Superseded>,
    /// When the last few were issued, the oldest first.
    pub issues: Vec<Timestamp>,
}

/// An earlier certificate of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Superseded {
    /// The certificate.
    pub certificate: CertificateId,
    /// What was served beside it.
    pub chain: Vec<CertificateId>,
    /// When another took its place.
    pub at: Timestamp,
    /// How many seconds whoever reads it is given to come to the other one, where somebody sees to it that they take less than usual.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hurry: Option<u32>,
}

/// An annotation that holds an instant. The bytes decide; but people rotate by removing or garbling one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Annotation {
    /// It is not there, or empty.
    Missing,
    /// It is no instant.
    Garbled(String),
    /// It is an instant.
    Readable,
}

/// How eagerly a rotation is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// By all rules.
    Normal,
    /// Only what is absent, unusable or expired, and names that changed: for recovery beside a running operator.
    OnlyWhenExpired,
}

impl<T> Observed<T> {
    /// What is there, if it can be used.
    pub fn present(&self) -> Option<&T> {
        match self {
            Observed::Present(found) => Some(found),
            Observed::Absent | Observed::Unreadable { .. } | Observed::Unknown { .. } => None,
        }
    }

    /// Why it is not known what is there.
    pub fn unknown(&self) -> Option<&str> {
        match self {
            Observed::Unknown { why } => Some(why),
            Observed::Absent | Observed::Unreadable { .. } | Observed::Present(_) => None,
        }
    }
}

impl SecretState {
    /// A certificate with everything about it in order, and without a past.
    pub fn new(certificate: Arc<CertificateFacts>, issued_at: Option<Timestamp>) -> SecretState {
        SecretState {
            certificate,
            issued_at,
            not_after: Annotation::Readable,
            not_before: Annotation::Readable,
            names_issuer: true,
            forced: None,
            requested: None,
            chain: Vec::new(),
            subject: None,
            bridges: Vec::new(),
            bridged: Vec::new(),
            superseded: Vec::new(),
            issues: Vec::new(),
        }
    }

    /// Every certificate that it speaks of.
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateId> {
        let past = self.superseded.iter().flat_map(|it| [&it.certificate].into_iter().chain(&it.chain));
        let beside = self.chain.iter().chain(&self.bridges).chain(&self.bridged);
        [&self.certificate.id].into_iter().chain(beside).chain(past)
    }
}

/// What a rule says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It stays. Nothing changes before `look_again` unless something happens.
    Keep {
        /// When time alone changes the answer.
        look_again: Timestamp,
    },
    /// It is due, but something comes first.
    Wait(Waiting),
    /// It is to be issued.
    Issue(Reason),
}

/// Names, each once and in order, so that sets can be compared.
pub type HostSet = std::collections::BTreeSet<Host>;
