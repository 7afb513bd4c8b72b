//! The observed state of Secrets and bundles, as far as decisions depend on it.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Slot;
use crate::trust::{CertificateFacts, CertificateId};

/// The result of an observation. There is no variant for an object that was not looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Observed<T> {
    /// The object does not exist.
    Absent,
    /// The object exists, but its content cannot be used.
    Unreadable {
        /// The error.
        why: String,
    },
    /// The object could not be read, so the planner decides nothing that depends on it.
    Unknown {
        /// The error.
        why: String,
    },
    /// The object exists and can be used.
    Present(T),
}

/// A Secret with a certificate and its key, as far as decisions depend on it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretState {
    /// The certificate, from its bytes.
    pub certificate: Arc<CertificateFacts>,
    /// The recorded time of issue; none for a certificate of another issuer, whose age counts from `not_before`.
    pub issued_at: Option<Timestamp>,
    /// `auth.openshift.io/certificate-not-after`.
    pub not_after: Annotation,
    /// `auth.openshift.io/certificate-not-before`.
    pub not_before: Annotation,
    /// True if `auth.openshift.io/certificate-issuer` is present.
    pub names_issuer: bool,
    /// The reason of the last rotation that an annotation of the Secret requested.
    pub forced: Option<String>,
    /// The reason of the last rotation that a resource requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requested: Option<String>,
    /// The chain that is sent after the certificate.
    pub chain: Vec<CertificateId>,
    /// For a signer that keeps its subject: the subject's bytes.
    pub subject: Option<Vec<u8>>,
    /// For a cross-signed signer: its cross-certificates by earlier signers.
    pub cross_signed_by_earlier: Vec<CertificateId>,
    /// For a cross-signed signer: the cross-certificates of earlier signers by this one.
    pub earlier_cross_signed: Vec<CertificateId>,
    /// Earlier certificates of this place that a process may still hold.
    pub superseded: Vec<Superseded>,
    /// When the last few certificates were issued, the oldest first.
    pub issues: Vec<Timestamp>,
}

/// An earlier certificate of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Superseded {
    /// The certificate.
    pub certificate: CertificateId,
    /// Its chain.
    pub chain: Vec<CertificateId>,
    /// When it was replaced.
    pub at: Timestamp,
    /// The lag of its readers in seconds, if it is shorter than the catalog's because the administrator restarts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_override: Option<u32>,
}

/// An annotation with a time. Decisions use the certificate's bytes, but people remove or garble the annotation to force a rotation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Annotation {
    /// Absent or empty.
    Missing,
    /// Not a time.
    Garbled(String),
    /// A time.
    Readable,
}

/// The observed content of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BundleState {
    /// Every readable certificate, in order.
    pub members: Vec<CertificateId>,
    /// The unreadable parts, each with its error.
    pub damage: Vec<String>,
    /// True if the bundle is written in Perennial's form: each certificate once, sorted by bytes.
    pub is_canonical: bool,
    /// Since when each certificate is in the bundle and from which bundle it came, as far as recorded.
    pub published: BTreeMap<CertificateId, Published>,
}

/// When and from where a certificate was added to a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Published {
    /// When it was added.
    pub at: Timestamp,
    /// The bundle of another writer from which it came: if it is removed there, it is removed here.
    pub from: Option<Slot>,
    /// True if no process can hold the bundle without it: the bundle did not exist before, nor any certificate that it verifies.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub first: bool,
    /// Since when all relays have it, set once this is so long ago that all their readers have it too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Timestamp>,
    /// The lag of the readers in seconds, if it is shorter than the catalog's because the administrator restarts them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lag_override: Option<u32>,
}

impl<T> Observed<T> {
    /// Returns the state, if the object exists and can be used.
    pub fn present(&self) -> Option<&T> {
        match self {
            Observed::Present(found) => Some(found),
            Observed::Absent | Observed::Unreadable { .. } | Observed::Unknown { .. } => None,
        }
    }

    /// Returns true if the object is known to be absent, or present and readable.
    pub fn is_known(&self) -> bool {
        matches!(self, Observed::Absent | Observed::Present(_))
    }

    /// Returns the error, if the object could not be read.
    pub fn unknown(&self) -> Option<&str> {
        match self {
            Observed::Unknown { why } => Some(why),
            Observed::Absent | Observed::Unreadable { .. } | Observed::Present(_) => None,
        }
    }
}

impl<K: Ord + 'static, V: 'static> Observed<BTreeMap<K, V>> {
    /// Returns the list; an empty one if the list is not known.
    pub fn found(&self) -> &BTreeMap<K, V> {
        self.present().unwrap_or(const { &BTreeMap::new() })
    }

    /// Returns the list to be changed. From now on the list is known.
    pub fn found_mut(&mut self) -> &mut BTreeMap<K, V> {
        if !matches!(self, Observed::Present(_)) {
            *self = Observed::Present(BTreeMap::new());
        }
        match self {
            Observed::Present(found) => found,
            _ => unreachable!("it was made present above"),
        }
    }
}

impl SecretState {
    /// Returns the state of a certificate without defects and without history.
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
            cross_signed_by_earlier: Vec::new(),
            earlier_cross_signed: Vec::new(),
            superseded: Vec::new(),
            issues: Vec::new(),
        }
    }

    /// Returns every certificate that the state refers to.
    pub fn certificates(&self) -> impl Iterator<Item = &CertificateId> {
        let past = self.superseded.iter().flat_map(|it| [&it.certificate].into_iter().chain(&it.chain));
        let beside = self.chain.iter().chain(&self.cross_signed_by_earlier).chain(&self.earlier_cross_signed);
        [&self.certificate.id].into_iter().chain(beside).chain(past)
    }
}
