//! An edge at an instant: which versions of trust and certificate are in use, and whether each pair of them holds.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{CertificateFacts, Need, Obstacle, best_path};
use crate::catalog::Purpose;
use crate::spec::Host;

/// An edge with every version that a process may still hold, the newest last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EdgeState {
    /// What people call it: `kubelet accepts kubelet-client of kube-apiserver`.
    pub name: Arc<str>,
    /// Versions of what the verifier trusts.
    pub bundles: Vec<Version>,
    /// Versions of what is presented: the leaf first, then what is served beside it.
    pub leaves: Vec<Version>,
    /// What the leaf is presented for.
    pub purpose: Purpose,
    /// For a server, the names under which it is dialled.
    pub hosts: Arc<[Host]>,
}

/// A version of a bundle or of a leaf with its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// What people call it: the object, and when it was published.
    pub name: String,
    /// The certificates in it.
    pub members: Vec<Arc<CertificateFacts>>,
    /// Until when a process may hold it.
    pub in_use: InUse,
    /// How that is known.
    pub evidence: Evidence,
}

/// How it is known what a process holds, the strongest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Evidence {
    /// Somebody saw what the process holds.
    Observed,
    /// It reads again within a time that the catalog states.
    Assumed,
    /// It reads at a restart, and nobody saw which version it started with.
    Unknown,
    /// It never reads again.
    Never,
}

/// Until when a process may hold a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum InUse {
    /// It is the newest, or nothing is known to bring a newer one to its holder.
    Always,
    /// It was superseded, and its last holder has a newer one from this instant on.
    Until(Timestamp),
}

/// A pair of versions in use that does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
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
    pub fn holds(&self, at: Timestamp) -> Result<Timestamp, Broken> {
        let mut until = Timestamp::MAX;
        for bundle in self.bundles.iter().filter(|version| version.in_use.contains(at)) {
            for leaf in self.leaves.iter().filter(|version| version.in_use.contains(at)) {
                until = until.min(self.fits(bundle, leaf, at)?);
            }
        }
        Ok(until)
    }

    /// Whether who holds the one accepts the other, and then until when that path is good.
    pub fn fits(&self, bundle: &Version, leaf: &Version, at: Timestamp) -> Result<Timestamp, Broken> {
        let need = Need { purpose: self.purpose, hosts: &self.hosts, at };
        let outcome = match leaf.members.split_first() {
            None => Err(Obstacle::Untrusted { signer: "(nothing is presented)".to_owned() }),
            Some((presented, chain)) => best_path(presented, chain, &bundle.members, &need),
        };
        outcome.map_err(|obstacle| Broken { bundle: bundle.name.clone(), leaf: leaf.name.clone(), obstacle })
    }

    /// Whether there is nothing to trust or nothing to present.
    pub fn is_idle(&self) -> bool {
        self.bundles.is_empty() || self.leaves.is_empty()
    }

    /// The instants at which whether it holds may change: each beginning, and the second after each end.
    pub fn instants(&self) -> impl Iterator<Item = Timestamp> {
        self.bundles.iter().chain(&self.leaves).flat_map(Version::instants)
    }
}

impl Version {
    /// Whether it holds the same certificates in the same order.
    pub fn is_same(&self, other: &Version) -> bool {
        let same = |(one, other): (&Arc<CertificateFacts>, &Arc<CertificateFacts>)| one.id == other.id;
        self.members.len() == other.members.len() && self.members.iter().zip(&other.members).all(same)
    }

    /// Whether it holds everything of the other that is of use at `now` or later: who reads it accepts no less.
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
    /// Whether some process may hold it at this instant.
    pub fn contains(self, at: Timestamp) -> bool {
        match self {
            InUse::Always => true,
            InUse::Until(end) => at < end,
        }
    }
}

impl crate::spec::Validity {
    /// The first second at which it is over, if time goes that far.
    pub fn first_after(&self) -> Option<Timestamp> {
        self.not_after.checked_add(SignedDuration::from_secs(1)).ok()
    }

    /// Whether it is over by any clock that differs by no more than this.
    pub fn is_long_over(&self, now: Timestamp, allowance: SignedDuration) -> bool {
        self.not_after.checked_add(allowance).is_ok_and(|end| end < now)
    }
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "whoever reads {} refuses {}: {}", self.bundle, self.leaf, self.obstacle)
    }
}
