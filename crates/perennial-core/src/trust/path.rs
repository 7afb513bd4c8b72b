//! Path search: whether a path leads from the presented leaf to a trusted CA, and until when.

use std::borrow::Borrow;

use jiff::Timestamp;
use serde::Serialize;

use super::{CertificateFacts, PathLength, Principal};
use crate::catalog::Purpose;
use crate::spec::Host;

/// The requirements for the leaf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need<'a> {
    /// Server or client.
    pub purpose: Purpose,
    /// For a server: all names to which clients connect.
    pub hosts: &'a [Host],
    /// The time of verification.
    pub at: Timestamp,
}

/// Why there is no path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Obstacle {
    /// The leaf is not valid at that time.
    #[error("the certificate is valid only from {not_before} to {not_after}")]
    NotValid {
        /// The first second of the leaf's validity.
        not_before: Timestamp,
        /// The last second of the leaf's validity.
        not_after: Timestamp,
    },
    /// The leaf has another purpose.
    #[error("the certificate is not for a {purpose}")]
    Purpose {
        /// The required purpose.
        purpose: Purpose,
    },
    /// The leaf lacks a name.
    #[error("the certificate does not have the name {host}")]
    Host {
        /// The missing name.
        host: Host,
    },
    /// No trusted CA signed the leaf, directly or through others.
    #[error("its signer {signer} is not trusted{}", namesake.iter().map(|it| format!("; the bundle has {it}")).collect::<String>())]
    Untrusted {
        /// The missing signer that is nearest to trust, with its key if the bundle has another CA of that name.
        signer: String,
        /// The trusted CA of the same name, with its key.
        #[serde(skip_serializing_if = "Option::is_none")]
        namesake: Option<String>,
    },
    /// The trusted CA is not valid at that time, or may not sign here.
    #[error("its signer {signer} is trusted, but is valid only from {not_before} to {not_after}")]
    SignerNotValid {
        /// The signer.
        signer: String,
        /// The first second of its validity.
        not_before: Timestamp,
        /// The last second of its validity.
        not_after: Timestamp,
    },
}

/// The largest number of certificates on a path, leaf and anchor included. Verifiers have similar limits.
pub const MAX_LENGTH: usize = 8;

/// Returns the last second of the path that is valid longest, from the leaf through the chain to the bundle.
///
/// `chain` is presented after the leaf. Every certificate of `bundle` is an anchor, and anchors expire.
pub fn best_path<C: Borrow<CertificateFacts>>(
    leaf: &CertificateFacts,
    chain: &[C],
    bundle: &[C],
    need: &Need<'_>,
) -> Result<Timestamp, Obstacle> {
    fits_leaf(leaf, need)?;
    // A self-signed leaf that is in the bundle needs no other certificate.
    if leaf.signed_by.as_ref() == Some(&leaf.subject) && bundle.iter().any(|anchor| anchor.borrow().id == leaf.id) {
        return Ok(leaf.validity.not_after);
    }
    let mut search = Search { chain, bundle, need, obstacle: None };
    match search.best_above(&[leaf]) {
        Some(until) => Ok(until.min(leaf.validity.not_after)),
        None => Err(search.obstacle.unwrap_or_else(|| untrusted(leaf, bundle))),
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
    match lacking_host(leaf, need.purpose, need.hosts) {
        Some(host) => Err(Obstacle::Host { host: host.clone() }),
        None => Ok(()),
    }
}

fn lacking_host<'h>(leaf: &CertificateFacts, purpose: Purpose, hosts: &'h [Host]) -> Option<&'h Host> {
    let is_lacking = |host: &&Host| !leaf.hosts.iter().any(|held| covers(held, host));
    hosts.iter().find(is_lacking).filter(|_| purpose == Purpose::Server)
}

/// True if a leaf is for this purpose and has all of these names. Its signer and its validity do not matter.
pub fn is_good_for(leaf: &CertificateFacts, purpose: Purpose, hosts: &[Host]) -> bool {
    allows(leaf, purpose) && lacking_host(leaf, purpose, hosts).is_none()
}

struct Search<'a, C> {
    chain: &'a [C],
    bundle: &'a [C],
    need: &'a Need<'a>,
    /// The obstacle on the longest path.
    obstacle: Option<Obstacle>,
}

impl<C: Borrow<CertificateFacts>> Search<'_, C> {
    /// Returns the best end of a path above `path`, whose last certificate needs an issuer.
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
                    signer: match namesake(&issuer.subject, self.bundle) {
                        Some(_) => issuer.subject.to_string(),
                        None => issuer.subject.name.to_string(),
                    },
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
            self.obstacle = Some(untrusted(child, self.bundle));
        }
        best
    }

    /// Returns true if the certificate may sign here, with `below` CAs between it and the leaf.
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

/// Returns the obstacle for a certificate that no CA of the bundle has signed.
fn untrusted<C: Borrow<CertificateFacts>>(certificate: &CertificateFacts, bundle: &[C]) -> Obstacle {
    let Some(signer) = &certificate.signed_by else {
        return Obstacle::Untrusted { signer: "(unknown)".to_owned(), namesake: None };
    };
    match namesake(signer, bundle) {
        Some(other) => Obstacle::Untrusted { signer: signer.to_string(), namesake: Some(other.to_string()) },
        None => Obstacle::Untrusted { signer: signer.name.to_string(), namesake: None },
    }
}

/// Returns the CA of a bundle that has the same name, but another key.
fn namesake<'b, C: Borrow<CertificateFacts>>(signer: &Principal, bundle: &'b [C]) -> Option<&'b Principal> {
    let subjects = bundle.iter().map(|anchor| &anchor.borrow().subject);
    subjects.into_iter().find(|it| it.name == signer.name && it.key != signer.key)
}

/// Returns true if a name in a certificate matches a host. A wildcard stands for one label.
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
