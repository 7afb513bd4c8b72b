//! The state of an edge at an instant: the versions of bundle and certificate in use, and whether each pair holds.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CertificateFacts, Need, Obstacle, best_path};
use crate::catalog::Purpose;
use crate::spec::Host;

/// An edge with every version that a process may hold, the newest last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeState {
    /// The name: `kubelet accepts kubelet-client of kube-apiserver`.
    pub name: Arc<str>,
    /// The versions of the verifier's bundle.
    pub bundles: Vec<Version>,
    /// The versions of the presented certificate: the leaf first, then its chain.
    pub leaves: Vec<Version>,
    /// The purpose of the leaf.
    pub purpose: Purpose,
    /// For a server: the names to which clients connect.
    pub hosts: Arc<[Host]>,
}

/// A version of a bundle or of a leaf with its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The name: the object, and when it was published.
    pub name: String,
    /// The certificates.
    pub members: Vec<Arc<CertificateFacts>>,
    /// Until when a process may hold it.
    pub in_use: InUse,
    /// How Perennial knows that.
    pub evidence: Evidence,
}

/// How Perennial knows what a process holds, the strongest evidence first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Evidence {
    /// The operator observed what the process holds.
    Observed,
    /// The process reads again within a time that the catalog states.
    Assumed,
    /// The process reads at a restart, and the version at its start was not observed.
    Unknown,
    /// The process never reads again.
    Never,
}

/// Until when a process may hold a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InUse {
    /// It is the newest version, or no newer version reaches its holder.
    Always,
    /// It was superseded, and from this instant on all processes hold a newer version.
    Until(Timestamp),
}

/// A pair of versions in use of which the bundle rejects the certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Broken {
    /// The version of the bundle.
    pub bundle: String,
    /// The version of the certificate.
    pub leaf: String,
    /// Why the bundle rejects it.
    pub obstacle: Obstacle,
}

impl EdgeState {
    /// Returns until when all pairs of versions in use at `at` hold, or a pair that does not hold.
    pub fn holds(&self, at: Timestamp) -> Result<Timestamp, Broken> {
        let mut until = Timestamp::MAX;
        for bundle in self.bundles.iter().filter(|version| version.in_use.contains(at)) {
            for leaf in self.leaves.iter().filter(|version| version.in_use.contains(at)) {
                until = until.min(self.fits(bundle, leaf, at)?);
            }
        }
        Ok(until)
    }

    /// Returns until when a process with this bundle accepts this leaf, or why it rejects the leaf.
    pub fn fits(&self, bundle: &Version, leaf: &Version, at: Timestamp) -> Result<Timestamp, Broken> {
        let need = Need { purpose: self.purpose, hosts: &self.hosts, at };
        let outcome = match leaf.members.split_first() {
            None => Err(Obstacle::Untrusted { signer: "(nothing is presented)".to_owned(), namesake: None }),
            Some((presented, chain)) => best_path(presented, chain, &bundle.members, &need),
        };
        outcome.map_err(|obstacle| Broken { bundle: bundle.name.clone(), leaf: leaf.name.clone(), obstacle })
    }

    /// Returns true if there is no bundle or no certificate.
    pub fn is_idle(&self) -> bool {
        self.bundles.is_empty() || self.leaves.is_empty()
    }

    /// Returns the instants at which the result may change: each start of a validity, and the second after each end.
    pub fn instants(&self) -> impl Iterator<Item = Timestamp> {
        self.bundles.iter().chain(&self.leaves).flat_map(Version::instants)
    }
}

impl Version {
    /// Returns true if both hold the same certificates in the same order.
    pub fn is_same(&self, other: &Version) -> bool {
        let same = |(one, other): (&Arc<CertificateFacts>, &Arc<CertificateFacts>)| one.id == other.id;
        self.members.len() == other.members.len() && self.members.iter().zip(&other.members).all(same)
    }

    /// Returns true if it contains every certificate of the other that is valid at `now` or later. Its readers then accept no less.
    pub fn has_all_of(&self, other: &Version, now: Timestamp) -> bool {
        let needed = other.members.iter().filter(|it| now <= it.validity.not_after);
        needed.into_iter().all(|it| self.members.iter().any(|own| own.id == it.id))
    }

    fn instants(&self) -> impl Iterator<Item = Timestamp> {
        let end_of_use = match self.in_use {
            InUse::Always => None,
            InUse::Until(end) => Some(end),
        };
        let of = |certificate: &Arc<CertificateFacts>| {
            [Some(certificate.validity.not_before), certificate.validity.first_after()].into_iter().flatten()
        };
        end_of_use.into_iter().chain(self.members.iter().flat_map(of))
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Evidence::Observed => "observed",
            Evidence::Assumed => "assumed",
            Evidence::Unknown => "unknown",
            Evidence::Never => "never read again",
        })
    }
}

impl InUse {
    /// Returns true if a process may hold it at this instant.
    pub fn contains(self, at: Timestamp) -> bool {
        match self {
            InUse::Always => true,
            InUse::Until(end) => at < end,
        }
    }
}

impl crate::spec::Validity {
    /// Returns the first second after the validity, within the calendar.
    pub fn first_after(&self) -> Option<Timestamp> {
        self.not_after.checked_add(SignedDuration::from_secs(1)).ok()
    }

    /// Returns true if it has expired by every clock that differs by at most `allowance`.
    pub fn is_long_over(&self, now: Timestamp, allowance: SignedDuration) -> bool {
        self.not_after.checked_add(allowance).is_ok_and(|end| end < now)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a process that holds {} rejects {}: {}", self.bundle, self.leaf, self.obstacle)
    }
}
