//! Trust as data: what certificates say, who signed whom, and whether whoever trusts one accepts another.
//!
//! Nothing here checks a signature: that was done when the facts were taken, and a certificate that a plan would make
//! has none yet. What is decided here is what verifiers decide: that there is a path from what is presented to what is
//! trusted, on which everything fits and is valid at the instant.

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
pub use path::{MAX_LENGTH, Need, Obstacle, best_path};
pub use prove::{Refusal, Write, prove};

use crate::spec::{Host, Validity};

/// Identifies a certificate: the fingerprint of one that exists, a name of its own for one that a plan would make.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CertificateId(pub Arc<str>);

/// Identifies a key pair: a hash of the public key, or a name of its own for one that a plan would generate.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyId(pub Arc<str>);

/// Name and key: what a certificate binds together, and what signs others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Principal {
    /// The subject, compared as it is.
    pub name: Arc<str>,
    /// The key.
    pub key: KeyId,
}

/// What a verifier looks at in a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CertificateFacts {
    /// Which certificate.
    pub id: CertificateId,
    /// Whose it is.
    pub subject: Principal,
    /// Who signed it, as the signature proves; none if nobody who is known did.
    pub signed_by: Option<Principal>,
    /// When it is valid, both ends included.
    pub validity: Validity,
    /// For a CA, how many further CAs may follow below it.
    pub ca: Option<PathLength>,
    /// Whether it may be part of a server's path.
    pub serves: bool,
    /// Whether it may be part of a client's path.
    pub connects: bool,
    /// The names it serves.
    pub hosts: Vec<Host>,
}

/// How many CAs may stand between a CA and the leaf.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PathLength {
    /// Any number.
    Unlimited,
    /// At most this many.
    AtMost(u8),
}

/// Certificates by their ids; written in the order of those.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Certificates(HashMap<CertificateId, Arc<CertificateFacts>>);

/// Who knows certificates by their ids.
pub trait Known: fmt::Debug {
    /// The certificate with this id.
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
    /// The certificate with this id.
    pub fn get(&self, id: &CertificateId) -> Option<&Arc<CertificateFacts>> {
        self.0.get(id)
    }

    /// A certificate that is kept under another's id.
    pub fn misplaced(&self) -> Option<(CertificateId, CertificateId)> {
        let wrong = self.0.iter().filter(|(id, certificate)| **id != certificate.id);
        wrong.map(|(id, certificate)| (id.clone(), certificate.id.clone())).min()
    }

    /// Every one of them.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CertificateFacts>> {
        self.0.values()
    }

    /// Adds a certificate.
    pub fn insert(&mut self, certificate: Arc<CertificateFacts>) {
        self.0.insert(certificate.id.clone(), certificate);
    }

    /// Forgets the certificates that are not asked for any more.
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
    /// Whether it is valid at this instant.
    pub fn is_valid_at(&self, at: Timestamp) -> bool {
        self.validity.contains(at)
    }
}

impl fmt::Display for CertificateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
