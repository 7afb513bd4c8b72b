//! The path search: depth first over all candidate issuers, anchors before intermediates.

use std::collections::HashMap;

use super::error::{Problem, VerifyError};
use super::{Path, Purpose, Verification, host};
use crate::asn1;
use crate::certificate::Certificate;
use crate::facts::{Facts, KeyUsages};

/// A running search.
pub(crate) struct Search<'q, 'a> {
    question: &'q Verification<'a>,
    /// The results of signature checks, by the fingerprints of child and issuer: a path is tried in many combinations.
    verdicts: HashMap<([u8; 32], [u8; 32]), bool>,
    steps: usize,
    /// The rejected path that came closest.
    closest: Option<VerifyError>,
}

impl<'q, 'a> Search<'q, 'a> {
    pub(crate) fn new(question: &'q Verification<'a>) -> Search<'q, 'a> {
        Search { question, verdicts: HashMap::new(), steps: 0, closest: None }
    }

    pub(crate) fn run(mut self) -> Result<Path<'a>, VerifyError> {
        let leaf = self.question.leaf;
        if let Some(problem) = self.problem_of_leaf(leaf.facts()) {
            return Err(VerifyError::new(leaf, 0, problem));
        }
        let mut certificates = vec![leaf];
        let is_own_anchor = self.question.anchors.contains(leaf) && leaf.facts().is_self_issued();
        let is_own_anchor = is_own_anchor && leaf.is_signed_with_key_of(leaf);
        let irregularities = &leaf.facts().irregularities;
        if let Some(&found) = irregularities.iter().find(|it| !is_own_anchor || !it.is_ignored_in_self_signed_anchor())
        {
            return Err(VerifyError::new(leaf, 0, found.into()));
        }
        if is_own_anchor || self.extend(&mut certificates) {
            return Ok(Path { certificates });
        }
        Err(self.closest.unwrap_or_else(|| VerifyError::new(leaf, 0, no_issuer(leaf.facts()))))
    }

    /// Extends `path` to an anchor, if possible. Returns whether it was.
    fn extend(&mut self, path: &mut Vec<&'a Certificate>) -> bool {
        let question = self.question;
        let (depth, child) = (path.len() - 1, path[path.len() - 1]);
        self.note(VerifyError::new(child, depth, no_issuer(child.facts())));
        let candidates = question.anchors.iter().map(|anchor| (anchor, true));
        let candidates = candidates.chain(question.intermediates.iter().map(|other| (other, false)));
        for (candidate, is_anchor) in candidates {
            if candidate.facts().subject != child.facts().issuer || path.iter().any(|on| is_same_ca(on, candidate)) {
                continue;
            }
            self.steps += 1;
            if self.steps > MAX_STEPS || self.verdicts.len() >= MAX_SIGNATURES {
                self.note(VerifyError::new(path[0], 0, Problem::TooComplex { limit: MAX_SIGNATURES }));
                return false;
            }
            // A mismatch of the authority key identifier is the child's problem, the rest is the candidate's.
            if let Some(problem) = self.problem_between(child, candidate) {
                self.note(VerifyError::new(child, depth, problem));
                continue;
            }
            if let Some(problem) = self.problem_of_issuer(candidate.facts(), &path[1..]) {
                self.note(VerifyError::new(candidate, depth + 1, problem));
                continue;
            }
            path.push(candidate);
            if is_anchor || self.extend(path) {
                return true;
            }
            path.pop();
        }
        false
    }

    fn problem_between(&mut self, child: &Certificate, issuer: &Certificate) -> Option<Problem> {
        let facts = child.facts();
        if !key_ids_agree(child, issuer) {
            let hex = |id: &Option<Vec<u8>>| id.as_deref().map(asn1::hex).unwrap_or_default().into_boxed_str();
            return Some(Problem::OtherIssuerKey {
                issuer: facts.issuer.clone(),
                authority_key_id: hex(&facts.authority_key_id),
                found: hex(&issuer.facts().subject_key_id),
            });
        }
        let pair = (facts.fingerprint, issuer.facts().fingerprint);
        let is_signed = *self.verdicts.entry(pair).or_insert_with(|| child.is_signed_with_key_of(issuer));
        if !is_signed {
            let algorithm = facts.signature_algorithm.to_string();
            return Some(Problem::Signature { issuer: facts.issuer.clone(), algorithm });
        }
        facts.authority_key_id.is_none().then_some(Problem::NoAuthorityKeyId)
    }

    fn problem_of_leaf(&self, leaf: &Facts) -> Option<Problem> {
        self.problem_of_any(leaf).or_else(|| {
            let may_shake_hands = leaf.key_usage.is_none_or(|usage| usage.contains(KeyUsages::DigitalSignature));
            match self.question.purpose {
                Purpose::Any => None,
                _ if leaf.is_ca => Some(Problem::CaAsLeaf),
                _ if !may_shake_hands => Some(Problem::KeyUsage),
                Purpose::Server { name: Some(wanted) } if !host::covers(&leaf.hosts, wanted) => {
                    Some(Problem::Name { wanted: wanted.clone(), found: leaf.hosts.clone() })
                }
                Purpose::Server { .. } | Purpose::Client => None,
            }
        })
    }

    /// `below` are the CAs between the issuer and the leaf.
    fn problem_of_issuer(&self, issuer: &Facts, below: &[&Certificate]) -> Option<Problem> {
        if !issuer.is_ca {
            return Some(Problem::NotCa);
        }
        if !issuer.may_sign() {
            return Some(Problem::NoKeyCertSign);
        }
        if below.len() + 2 > MAX_LENGTH {
            return Some(Problem::TooLong { limit: MAX_LENGTH });
        }
        // RFC 5280 leaves out self-issued CAs, but Go and GnuTLS do not.
        let found = below.len();
        match issuer.path_len {
            Some(allowed) if found > usize::from(allowed) => Some(Problem::PathLength { allowed, found }),
            _ => {
                let irregularity = issuer.irregularities.first();
                irregularity.map(|&it| it.into()).or_else(|| self.problem_of_any(issuer))
            }
        }
    }

    fn problem_of_any(&self, facts: &Facts) -> Option<Problem> {
        let at = self.question.at;
        if let Some(oid) = facts.unknown_critical.first() {
            return Some(Problem::UnknownCritical { oid: oid.clone() });
        }
        if let Some(&by) = facts.restrictions.first() {
            return Some(Problem::Restricted { by });
        }
        if facts.version != 3 {
            return Some(Problem::Version { version: facts.version });
        }
        if let Some(found) = facts.public_key.unacceptable() {
            return Some(Problem::Key { found });
        }
        match self.question.purpose {
            Purpose::Server { .. } if !facts.allows_server_auth() => {
                return Some(Problem::ExtendedKeyUsage { wanted: "serverAuth" });
            }
            Purpose::Client if !facts.allows_client_auth() => {
                return Some(Problem::ExtendedKeyUsage { wanted: "clientAuth" });
            }
            _ => {}
        }
        if at < facts.validity.not_before {
            return Some(Problem::NotYetValid { not_before: facts.validity.not_before, at });
        }
        // A fraction of a second later counts as expired, as in Go.
        (facts.validity.not_after < at).then_some(Problem::Expired { not_after: facts.validity.not_after, at })
    }

    fn note(&mut self, error: VerifyError) {
        if self.closest.as_ref().is_none_or(|closest| error.is_closer_than(closest)) {
            self.closest = Some(error);
        }
    }
}

/// If the child names a key or a serial number of its issuer, the candidate must have the same.
pub(crate) fn key_ids_agree(child: &Certificate, issuer: &Certificate) -> bool {
    let (child, issuer) = (child.facts(), issuer.facts());
    let same_key = match (&child.authority_key_id, &issuer.subject_key_id) {
        (Some(authority), Some(subject)) => authority == subject,
        _ => true,
    };
    same_key && child.authority_serial.as_ref().is_none_or(|serial| *serial == issuer.serial)
}

/// The same name and key on a path are a loop, also with another certificate.
fn is_same_ca(one: &Certificate, other: &Certificate) -> bool {
    one.facts().subject == other.facts().subject && one.facts().public_key.is_same_key(&other.facts().public_key)
}

fn no_issuer(facts: &Facts) -> Problem {
    Problem::NoIssuer {
        issuer: facts.issuer.clone(),
        authority_key_id: facts.authority_key_id.as_deref().map(asn1::hex),
    }
}

/// Certificates of a path, leaf and anchor included: Java and webpki allow at most six CAs between them.
const MAX_LENGTH: usize = 8;

/// Signature checks per verification: about 70 ms at worst. A bundle has a handful of CAs per name.
const MAX_SIGNATURES: usize = 200;

/// Candidates per verification; with cached signature checks, each is cheap.
const MAX_STEPS: usize = 10_000;
