//! Whether a path leads from what is presented to what is trusted, and until when.

use std::borrow::Borrow;

use jiff::Timestamp;
use serde::Serialize;

use super::{CertificateFacts, PathLength};
use crate::catalog::Purpose;
use crate::spec::Host;

/// What the leaf must be good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need<'a> {
    /// Server or client.
    pub purpose: Purpose,
    /// For a server, every name under which it is dialled.
    pub hosts: &'a [Host],
    /// The instant.
    pub at: Timestamp,
}

/// Why there is no path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Obstacle {
    /// The leaf is not valid at the instant.
    #[error("it is valid from {not_before} to {not_after}")]
    NotValid {
        /// The leaf's first second.
        not_before: Timestamp,
        /// The leaf's last second.
        not_after: Timestamp,
    },
    /// The leaf is not for this purpose.
    #[error("it is not for a {purpose}")]
    Purpose {
        /// What was needed.
        purpose: Purpose,
    },
    /// The leaf lacks a name.
    #[error("it is not for the name {host}")]
    Host {
        /// The name that it lacks.
        host: Host,
    },
    /// Nobody who is trusted signed it, directly or through others.
    #[error("its signer {signer} is not trusted")]
    Untrusted {
        /// The signer nearest to trust that is missing.
        signer: String,
    },
    /// Who would be trusted is not valid at the instant, or may not sign here.
    #[error("its signer {signer} is trusted, but is valid only from {not_before} to {not_after}")]
    SignerNotValid {
        /// The signer.
        signer: String,
        /// Its first second.
        not_before: Timestamp,
        /// Its last second.
        not_after: Timestamp,
    },
}

/// Certificates of a path, leaf and anchor included. Verifiers have limits like this one.
pub const MAX_LENGTH: usize = 8;

/// The last second of the path that is good for longest, from the leaf over the served chain to the bundle.
///
/// `chain` is what is presented beside the leaf. Every member of `bundle` is an anchor, and anchors expire.
pub fn best_path<C: Borrow<CertificateFacts>>(
    leaf: &CertificateFacts,
    chain: &[C],
    bundle: &[C],
    need: &Need<'_>,
) -> Result<Timestamp, Obstacle> {
    fits_leaf(leaf, need)?;
    // A leaf that is trusted itself needs nobody else, if nobody else signed it.
    if leaf.signed_by.as_ref() == Some(&leaf.subject) && bundle.iter().any(|anchor| anchor.borrow().id == leaf.id) {
        return Ok(leaf.validity.not_after);
    }
    let mut search = Search { chain, bundle, need, obstacle: None };
    match search.best_above(&[leaf]) {
        Some(until) => Ok(until.min(leaf.validity.not_after)),
        None => Err(search.obstacle.unwrap_or_else(|| Obstacle::Untrusted { signer: signer_name(leaf) })),
    }
}

fn fits_leaf(leaf: &CertificateFacts, need: &Need<'_>) -> Result<(), Obstacle> {
    if !leaf.is_valid_at(need.at) {
        let (not_before, not_after) = (leaf.validity.not_before, leaf.validity.not_after);
        return Err(Obstacle::NotValid { not_before, not_after });
    }
    if !allows(leaf, need.purpose) {
        return Err(Obstacle::Purpose { purpose: need.purpose });
    }
    match need.hosts.iter().find(|host| !leaf.hosts.iter().any(|held| covers(held, host))) {
        Some(host) if need.purpose == Purpose::Server => Err(Obstacle::Host { host: host.clone() }),
        _ => Ok(()),
    }
}

struct Search<'a, C> {
    chain: &'a [C],
    bundle: &'a [C],
    need: &'a Need<'a>,
    /// What stood in the way, where the way was longest.
    obstacle: Option<Obstacle>,
}

impl<C: Borrow<CertificateFacts>> Search<'_, C> {
    /// The best end of a path above `path`, whose last member still needs an issuer.
    fn best_above(&mut self, path: &[&CertificateFacts]) -> Option<Timestamp> {
        let child = path.last()?;
        if path.len() >= MAX_LENGTH {
            return None;
        }
        let anchors = self.bundle.iter().map(|anchor| (anchor.borrow(), true));
        let candidates = anchors.chain(self.chain.iter().map(|other| (other.borrow(), false)));
        let mut best: Option<Timestamp> = None;
        let mut found = false;
        for (issuer, is_anchor) in candidates {
            let signed = child.signed_by.as_ref() == Some(&issuer.subject);
            let on_path = path.iter().any(|other| other.subject == issuer.subject);
            if !signed || on_path || !self.may_issue(issuer, path.len() - 1) {
                continue;
            }
            found = true;
            if !issuer.is_valid_at(self.need.at) {
                self.obstacle = Some(Obstacle::SignerNotValid {
                    signer: issuer.subject.name.to_string(),
                    not_before: issuer.validity.not_before,
                    not_after: issuer.validity.not_after,
                });
                continue;
            }
            let end = if is_anchor {
                Some(issuer.validity.not_after)
            } else {
                self.best_above(&[path, &[issuer]].concat()).map(|above| above.min(issuer.validity.not_after))
            };
            best = best.max(end);
        }
        if !found {
            self.obstacle = Some(Obstacle::Untrusted { signer: signer_name(child) });
        }
        best
    }

    /// Whether the certificate may sign here, with `below` CAs between it and the leaf.
    fn may_issue(&self, issuer: &CertificateFacts, below: usize) -> bool {
        let long_enough = match issuer.ca {
            None => false,
            Some(PathLength::Unlimited) => true,
            Some(PathLength::AtMost(limit)) => below <= usize::from(limit),
        };
        long_enough && allows(issuer, self.need.purpose)
    }
}

fn allows(certificate: &CertificateFacts, purpose: Purpose) -> bool {
    match purpose {
        Purpose::Server => certificate.serves,
        Purpose::Client => certificate.connects,
    }
}

fn signer_name(certificate: &CertificateFacts) -> String {
    certificate.signed_by.as_ref().map_or_else(|| "(unknown)".to_owned(), |signer| signer.name.to_string())
}

/// Whether a name in a certificate is good for a name that is dialled. A wildcard stands for one label.
fn covers(held: &Host, dialled: &Host) -> bool {
    match (held, dialled) {
        (Host::Ip(held), Host::Ip(dialled)) => held == dialled,
        (Host::Dns(held), Host::Dns(dialled)) => {
            let same = |one: &str, other: &str| one.eq_ignore_ascii_case(other);
            match (held.strip_prefix("*."), dialled.split_once('.')) {
                (Some(held), Some((_, dialled))) => same(held, dialled),
                _ => same(held, dialled),
            }
        }
        _ => false,
    }
}
