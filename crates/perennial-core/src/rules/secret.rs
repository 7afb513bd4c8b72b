//! The rotation rules for Secrets: signers and leaves.

use jiff::Timestamp;

use super::reason::BoundaryName;
use super::{HostSet, Reason, Timing, Verdict, Waiting};
use crate::catalog::{Annotations, FollowsSigner, Row, TimeScale};
use crate::clocks::{Clocks, shifted};
use crate::issuance::BACKDATE;
use crate::snapshot::{Annotation, Mode, Observed, SecretState};
use crate::trust::Principal;

/// A signer, and what the rules need to decide about it.
#[derive(Debug, Clone, Copy)]
pub struct SignerCase<'a> {
    /// The row of the signer.
    pub row: &'a Row,
    /// The observed Secret.
    pub found: &'a Observed<SecretState>,
    /// The reason of a forced rotation that an annotation of the Secret requests.
    pub forced: Option<&'a str>,
    /// The reason of a forced rotation that a resource requests.
    pub requested: Option<&'a str>,
    /// All rules, or only those for expired certificates.
    pub mode: Mode,
    /// The current time. A certificate is due only if it is due by both clocks.
    pub clocks: Clocks,
    /// Real lifetimes, or the scaled lifetimes of a rehearsal.
    pub scale: TimeScale,
}

/// A leaf with an existing signer, and what the rules need to decide about it.
#[derive(Debug, Clone, Copy)]
pub struct TargetCase<'a> {
    /// What a leaf and a signer have in common.
    pub common: SignerCase<'a>,
    /// Which of the row's certificates this is.
    pub identity: &'a str,
    /// The names that the certificate should have.
    pub hosts: &'a HostSet,
    /// The signer that would sign it.
    pub signer: &'a Principal,
    /// From when on every verifier of the certificate has that signer.
    pub signer_usable_at: Timestamp,
    /// The signers in the bundle that belongs to the certificate.
    pub bundle: &'a [Principal],
    /// What is wrong with the chain that the server sends after the certificate.
    pub chain: ChainFault,
}

/// What is wrong with the chain that a server sends after a certificate of the current signer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainFault {
    /// The number of missing certificates that lead to an earlier signer, or to any signer.
    pub missing: usize,
    /// The number of certificates that do not belong to its signer.
    pub foreign: usize,
}

type SignerRule = fn(&SignerCase<'_>, &SecretState, &Timing) -> Option<Verdict>;
type TargetRule = fn(&TargetCase<'_>, &SecretState, &Timing) -> Option<Verdict>;

/// The rules for signers, in order; the first verdict decides.
const SIGNER_RULES: &[SignerRule] = &[
    annotations_garbled,
    expired,
    not_yet_valid,
    recovery_looks_no_further,
    forced,
    past_eighty_percent,
    past_refresh,
];

/// The rules for leaves, in order; the first verdict decides.
const TARGET_RULES: &[TargetRule] = &[
    |it, secret, timing| annotations_garbled(&it.common, secret, timing),
    |it, secret, timing| expired(&it.common, secret, timing),
    |it, secret, timing| not_yet_valid(&it.common, secret, timing),
    hosts_differ,
    |it, secret, timing| recovery_looks_no_further(&it.common, secret, timing),
    |it, secret, timing| forced(&it.common, secret, timing),
    |it, secret, timing| past_eighty_percent(&it.common, secret, timing),
    issuer_missing,
    issuer_not_in_bundle,
    signer_changed,
    chain_differs,
    target_past_refresh,
];

/// Returns the decision about a signer.
pub fn decide_signer(case: &SignerCase<'_>) -> Verdict {
    decide(case, case.row.id, |secret, timing| SIGNER_RULES.iter().find_map(|rule| rule(case, secret, timing)))
}

/// Returns the decision about a leaf.
pub fn decide_target(case: &TargetCase<'_>) -> Verdict {
    let rules = |secret: &SecretState, timing: &Timing| TARGET_RULES.iter().find_map(|rule| rule(case, secret, timing));
    decide(&case.common, case.identity, rules)
}

fn decide(case: &SignerCase<'_>, identity: &str, rules: impl Fn(&SecretState, &Timing) -> Option<Verdict>) -> Verdict {
    match case.found {
        Observed::Absent => Verdict::Issue(Reason::Absent),
        Observed::Unreadable { why } => Verdict::Issue(Reason::Unreadable { why: why.clone() }),
        Observed::Unknown { why } => Verdict::Wait(Waiting::Unknown { object: identity.to_owned(), why: why.clone() }),
        Observed::Present(secret) => {
            let timing = Timing::of(case.row, identity, secret, case.scale, case.clocks.now());
            let verdict = rules(secret, &timing).unwrap_or_else(|| keep(case, &timing));
            let begins_at = secret.certificate.validity.not_before;
            match verdict {
                // A clock that was slightly ahead issued the certificate. It stays, but clients reject it until its validity begins.
                Verdict::Keep { .. } if case.clocks.now() < begins_at => Verdict::Wait(Waiting::Validity { begins_at }),
                verdict => verdict,
            }
        }
    }
}

fn keep(case: &SignerCase<'_>, timing: &Timing) -> Verdict {
    let next = timing.next_after(case.clocks.earliest());
    Verdict::Keep { look_again: case.clocks.past_by_both(next) }
}

/// No rule reads these annotations, but people remove or garble one to request a new certificate.
fn annotations_garbled(case: &SignerCase<'_>, secret: &SecretState, _: &Timing) -> Option<Verdict> {
    let end = (&secret.not_after, BoundaryName::NotAfter);
    let annotations = match case.row.annotations {
        Annotations::None => Vec::new(),
        Annotations::CertificateValidity => vec![end, (&secret.not_before, BoundaryName::NotBefore)],
        Annotations::ServiceServing => vec![end],
    };
    annotations.into_iter().find_map(|(annotation, which)| match annotation {
        Annotation::Missing => Some(Verdict::Issue(Reason::AnnotationMissing { which })),
        Annotation::Garbled(value) => Some(Verdict::Issue(Reason::AnnotationGarbled { value: value.clone() })),
        Annotation::Readable => None,
    })
}

fn expired(case: &SignerCase<'_>, _: &SecretState, timing: &Timing) -> Option<Verdict> {
    let not_after = timing.not_after;
    (not_after < case.clocks.earliest()).then_some(Verdict::Issue(Reason::Expired { not_after }))
}

/// A wrong clock issued the certificate. Unless it is re-issued, every client rejects it until that date.
fn not_yet_valid(case: &SignerCase<'_>, secret: &SecretState, _: &Timing) -> Option<Verdict> {
    let not_before = secret.certificate.validity.not_before;
    let soon = shifted(case.clocks.latest(), BACKDATE.scaled(case.scale));
    (soon < not_before).then_some(Verdict::Issue(Reason::NotYetValid { not_before }))
}

fn recovery_looks_no_further(case: &SignerCase<'_>, _: &SecretState, timing: &Timing) -> Option<Verdict> {
    (case.mode == Mode::OnlyWhenExpired).then(|| keep(case, timing))
}

/// Each reason rotates at most once. The annotation of the Secret takes precedence over the resource.
fn forced(case: &SignerCase<'_>, secret: &SecretState, _: &Timing) -> Option<Verdict> {
    let asked = [(case.forced, &secret.forced), (case.requested, &secret.requested)];
    let mut new = asked.into_iter().filter_map(|(reason, done)| new_reason(reason, done.as_deref()));
    Some(Verdict::Issue(Reason::Forced { reason: new.next()?.to_owned() }))
}

/// Returns a reason for which no rotation was done yet.
fn new_reason<'r>(asked: Option<&'r str>, done: Option<&str>) -> Option<&'r str> {
    asked.filter(|reason| !reason.is_empty() && done != Some(reason))
}

fn past_eighty_percent(case: &SignerCase<'_>, _: &SecretState, timing: &Timing) -> Option<Verdict> {
    let since = timing.eighty_percent_at;
    (since <= case.clocks.earliest()).then_some(Verdict::Issue(Reason::PastEightyPercent { since }))
}

fn past_refresh(case: &SignerCase<'_>, _: &SecretState, timing: &Timing) -> Option<Verdict> {
    let since = timing.refresh_at;
    (since <= case.clocks.earliest()).then_some(Verdict::Issue(Reason::PastRefresh { since }))
}

/// The certificate must have exactly the required names: an extra name is as wrong as a missing one.
fn hosts_differ(case: &TargetCase<'_>, secret: &SecretState, _: &Timing) -> Option<Verdict> {
    if !case.common.row.usage.serves() || case.common.row.hosts.is_empty() {
        return None;
    }
    let found = super::canonical_hosts(&secret.certificate.hosts);
    let difference = |one: &HostSet, other: &HostSet| one.difference(other).cloned().collect::<Vec<_>>();
    let (extra, missing) = (difference(&found, case.hosts), difference(case.hosts, &found));
    (!extra.is_empty() || !missing.is_empty()).then_some(Verdict::Issue(Reason::HostsDiffer { extra, missing }))
}

fn issuer_missing(case: &TargetCase<'_>, secret: &SecretState, _: &Timing) -> Option<Verdict> {
    let wanted = case.common.row.annotations == Annotations::CertificateValidity;
    (wanted && !secret.names_issuer).then_some(Verdict::Issue(Reason::IssuerMissing))
}

/// Compares keys, never names.
fn issuer_not_in_bundle(case: &TargetCase<'_>, secret: &SecretState, _: &Timing) -> Option<Verdict> {
    let known = secret.certificate.signed_by.as_ref().is_some_and(|signer| case.bundle.contains(signer));
    (!known).then_some(Verdict::Issue(Reason::IssuerNotInBundle))
}

fn signer_changed(case: &TargetCase<'_>, secret: &SecretState, timing: &Timing) -> Option<Verdict> {
    if case.common.row.follows_signer != FollowsSigner::AtOnce || is_current(case, secret) {
        return None;
    }
    Some(when_usable(case, timing, Reason::SignerChanged))
}

fn chain_differs(case: &TargetCase<'_>, secret: &SecretState, _: &Timing) -> Option<Verdict> {
    let ChainFault { missing, foreign } = case.chain;
    let differs = is_current(case, secret) && case.chain != ChainFault::default();
    differs.then_some(Verdict::Issue(Reason::ChainDiffers { missing, foreign }))
}

fn target_past_refresh(case: &TargetCase<'_>, secret: &SecretState, timing: &Timing) -> Option<Verdict> {
    let since = timing.refresh_at;
    if case.common.clocks.earliest() < since {
        return None;
    }
    // With the same signer there is no wait: a client that trusts the old leaf trusts the new one.
    let reason = Reason::PastRefresh { since };
    Some(if is_current(case, secret) { Verdict::Issue(reason) } else { when_usable(case, timing, reason) })
}

fn is_current(case: &TargetCase<'_>, secret: &SecretState) -> bool {
    secret.certificate.signed_by.as_ref() == Some(case.signer)
}

/// Issues when every verifier has the signer, but at the latest at 80% of the certificate's validity.
fn when_usable(case: &TargetCase<'_>, timing: &Timing, reason: Reason) -> Verdict {
    let until = case.signer_usable_at.min(timing.eighty_percent_at);
    if case.common.clocks.earliest() < until {
        Verdict::Wait(Waiting::SignerTooYoung { until })
    } else {
        Verdict::Issue(reason)
    }
}
