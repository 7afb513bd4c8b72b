//! Trust as data: the facts of certificates, the signer of each, and whether a verifier with a bundle accepts a certificate.
//!
//! This module checks no signatures. Signatures are checked when the facts are read, and a planned certificate has
//! none yet. The module decides as a verifier does: it looks for a path from the presented certificate to a trusted
//! one on which every certificate fits and is valid.

mod edge;
#[cfg(test)]
pub(crate) mod fixtures;
mod path;
mod prove;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize, Serializer};

pub use edge::{Broken, EdgeState, Evidence, InUse, Version};
pub use path::{MAX_LENGTH, Need, Obstacle, best_path, is_good_for};
pub use prove::{Refusal, Write, prove};

use crate::spec::{Host, Validity};

/// The id of a certificate: the fingerprint of an existing one, a unique name for a planned one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CertificateId(pub Arc<str>);

/// The id of a key pair: a hash of the public key, or a unique name for a planned key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(pub Arc<str>);

/// A name and a key: what a certificate binds together, and what signs other certificates.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Principal {
    /// The subject, compared exactly.
    pub name: Arc<str>,
    /// The key.
    pub key: KeyId,
}

/// The facts of a certificate that a verifier looks at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateFacts {
    /// The id.
    pub id: CertificateId,
    /// The subject and its key.
    pub subject: Principal,
    /// The signer, as the signature proves; none if no known key signed it.
    pub signed_by: Option<Principal>,
    /// The validity, both ends included.
    pub validity: Validity,
    /// For a CA: how many further CAs may follow below it.
    pub ca: Option<PathLength>,
    /// True if it may be on the path of a server certificate.
    pub serves: bool,
    /// True if it may be on the path of a client certificate.
    pub connects: bool,
    /// The names that it serves.
    pub hosts: Vec<Host>,
}

/// How many CAs may be between a CA and the leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PathLength {
    /// Any number.
    Unlimited,
    /// At most this many.
    AtMost(u8),
}

/// Certificates by id; serialized in the order of the ids.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Certificates(HashMap<CertificateId, Arc<CertificateFacts>>);

/// A collection of certificates by id.
pub trait Known: fmt::Debug {
    /// Returns the certificate with this id.
    fn get(&self, id: &CertificateId) -> Option<&Arc<CertificateFacts>>;
}

impl Known for Certificates {
    fn get(&self, id: &CertificateId) -> Option<&Arc<CertificateFacts>> {
        self.0.get(id)
    }
}

impl Serialize for Certificates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().collect::<BTreeMap<_, _>>())
    }
}

impl Certificates {
    /// Returns the certificate with this id.
    pub fn get(&self, id: &CertificateId) -> Option<&Arc<CertificateFacts>> {
        self.0.get(id)
    }

    /// Returns a certificate that is stored under the id of another one.
    pub fn misplaced(&self) -> Option<(CertificateId, CertificateId)> {
        let wrong = self.0.iter().filter(|(id, certificate)| **id != certificate.id);
        wrong.map(|(id, certificate)| (id.clone(), certificate.id.clone())).min()
    }

    /// Returns all certificates.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CertificateFacts>> {
        self.0.values()
    }

    /// Adds a certificate.
    pub fn insert(&mut self, certificate: Arc<CertificateFacts>) {
        self.0.insert(certificate.id.clone(), certificate);
    }

    /// Keeps only the wanted certificates.
    pub fn retain(&mut self, wanted: impl Fn(&CertificateFacts) -> bool) {
        self.0.retain(|_, certificate| wanted(certificate));
    }
}

impl FromIterator<CertificateFacts> for Certificates {
    fn from_iter<I: IntoIterator<Item = CertificateFacts>>(certificates: I) -> Certificates {
        Certificates(certificates.into_iter().map(|it| (it.id.clone(), Arc::new(it))).collect())
    }
}

impl CertificateFacts {
    /// Returns true if it is valid at this instant.
    pub fn is_valid_at(&self, at: Timestamp) -> bool {
        self.validity.contains(at)
    }
}

impl CertificateId {
    /// Returns true for the fingerprint of an existing certificate.
    pub fn is_fingerprint(&self) -> bool {
        self.0.len() == 64 && self.0.bytes().all(|it| it.is_ascii_hexdigit())
    }
}

impl KeyId {
    /// Returns the first digits of a hash, enough to distinguish two keys; for a planned key its whole name.
    pub fn short(&self) -> &str {
        let is_hash = SHORT < self.0.len() && self.0.bytes().all(|it| it.is_ascii_hexdigit());
        if is_hash { &self.0[..SHORT] } else { &self.0 }
    }
}

/// The number of digits of a hash in messages.
const SHORT: usize = 8;

/// Shows the start of the key too: two CAs may have the same name.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (key {})", self.name, self.key.short())
    }
}

impl fmt::Display for CertificateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
