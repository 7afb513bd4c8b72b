//! An edge at an instant: which versions of trust and certificate are in use, and whether each pair of them holds.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{CertificateFacts, CertificateId, Certificates, Need, Obstacle, best_path};
use crate::catalog::Purpose;
use crate::spec::Host;

/// An edge with every version that a process may still hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EdgeState {
    /// What people call it: `kubelet accepts kubelet-client of kube-apiserver`.
    pub name: String,
    /// Versions of what the verifier trusts.
    pub bundles: Vec<Version>,
    /// Versions of what is presented: the leaf first, then what is served beside it.
    pub leaves: Vec<Version>,
    /// What the leaf is presented for.
    pub purpose: Purpose,
    /// For a server, the names under which it is dialled.
    pub hosts: Vec<Host>,
}

/// A version of a bundle or of a leaf with its chain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Version {
    /// What people call it: the object, and when it was published.
    pub name: String,
    /// The certificates in it.
    pub members: Vec<CertificateId>,
    /// Until when a process may hold it.
    pub in_use: InUse,
}

/// Until when a process may hold a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InUse {
    /// It is the newest, or nothing ever brings a newer one to its holder.
    Always,
    /// It was superseded, and its last holder has a newer one from this instant on.
    Until(Timestamp),
}

/// A pair of versions in use that does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Broken {
    /// The version of the trust.
    pub bundle: String,
    /// The version of what is presented.
    pub leaf: String,
    /// Why not.
    pub obstacle: Obstacle,
}

impl EdgeState {
    /// Whether every pair of versions in use at `at` holds, and then until when that path is good.
    pub fn holds(&self, certificates: &Certificates, at: Timestamp) -> Result<Timestamp, Broken> {
        let need = Need { purpose: self.purpose, hosts: &self.hosts, at };
        let mut until = Timestamp::MAX;
        for bundle in self.bundles.iter().filter(|version| version.in_use.contains(at)) {
            let anchors = resolve(certificates, &bundle.members);
            for version in self.leaves.iter().filter(|version| version.in_use.contains(at)) {
                let presented = resolve(certificates, &version.members);
                let outcome = match presented.split_first() {
                    None => Err(Obstacle::Untrusted { signer: "(nothing is presented)".to_owned() }),
                    Some((leaf, chain)) => best_path(leaf, chain, &anchors, &need),
                };
                let broken = |obstacle| Broken { bundle: bundle.name.clone(), leaf: version.name.clone(), obstacle };
                until = until.min(outcome.map_err(broken)?);
            }
        }
        Ok(until)
    }

    /// The instants at which whether it holds may change: each beginning, and the second after each end.
    pub(super) fn instants(&self, certificates: &Certificates) -> Vec<Timestamp> {
        let versions = self.bundles.iter().chain(&self.leaves);
        let mut instants = Vec::new();
        for version in versions {
            if let InUse::Until(end) = version.in_use {
                instants.push(end);
            }
            for certificate in resolve(certificates, &version.members) {
                instants.push(certificate.validity.not_before);
                instants.extend(certificate.validity.not_after.checked_add(jiff::SignedDuration::from_secs(1)));
            }
        }
        instants
    }
}

fn resolve<'a>(certificates: &'a Certificates, ids: &[CertificateId]) -> Vec<&'a CertificateFacts> {
    ids.iter().filter_map(|id| certificates.get(id)).collect()
}

impl InUse {
    /// Whether some process may hold it at this instant.
    pub fn contains(self, at: Timestamp) -> bool {
        match self {
            InUse::Always => true,
            InUse::Until(end) => at < end,
        }
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "whoever reads {} refuses {}: {}", self.bundle, self.leaf, self.obstacle)
    }
}
