//! The rules for Secrets: signers, and what they sign.

use jiff::Timestamp;

use super::reason::BoundaryName;
use super::{Annotation, HostSet, Mode, Observed, Reason, SecretState, Timing, Verdict, Waiting};
use crate::catalog::{Annotations, FollowsSigner, Row, TimeScale};
use crate::trust::Principal;

/// A signer to decide about.
#[derive(Debug, Clone, Copy)]
pub struct SignerCase<'a> {
    /// Its row.
    pub row: &'a Row,
    /// What was found.
    pub found: &'a Observed<SecretState>,
    /// The reason of a forced rotation that an annotation of the Secret asks for.
    pub forced: Option<&'a str>,
    /// The reason of a forced rotation that a resource asks for.
    pub requested: Option<&'a str>,
    /// By which rules.
    pub mode: Mode,
    /// The instant.
    pub now: Timestamp,
    /// Real lifetimes, or a rehearsal's.
    pub scale: TimeScale,
}

/// A certificate to decide about, under a signer that exists.
#[derive(Debug, Clone, Copy)]
pub struct TargetCase<'a> {
    /// What it shares with a signer.
    pub common: SignerCase<'a>,
    /// Which of the row's certificates it is.
    pub identity: &'a str,
    /// The names it should have.
    pub hosts: &'a HostSet,
    /// The signer that would sign it.
    pub signer: &'a Principal,
    /// From when on whoever verifies it has that signer.
    pub signer_usable_at: Timestamp,
    /// The signers in the bundle that goes with it.
    pub bundle: &'a [Principal],
    /// What is wrong with what is served beside it.
    pub chain: ChainFault,
}

/// What is wrong with what is served beside a certificate of the current signer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChainFault {
    /// How many are missing that lead to an earlier signer, or to any.
    pub missing: usize,
    /// How many have nothing to do with its signer.
    pub foreign: usize,
}

type SignerRule = fn(&SignerCase<'_>, &SecretState, &Timing) -> Option<Verdict>;
type TargetRule = fn(&TargetCase<'_>, &SecretState, &Timing) -> Option<Verdict>;

/// In this order; the first that has something to say decides.
const SIGNER_RULES: &[SignerRule] =
    &[annotations_garbled, expired, recovery_looks_no_further, forced, past_eighty_percent, past_refresh];

/// In this order; the first that has something to say decides.
const TARGET_RULES: &[TargetRule] = &[
    |it, secret, timing| annotations_garbled(&it.common, secret, timing),
    |it, secret, timing| expired(&it.common, secret, timing),
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

/// What is to be done about a signer.
pub fn decide_signer(case: &SignerCase<'_>) -> Verdict {
    decide(case, case.row.id, |secret, timing| SIGNER_RULES.iter().find_map(|rule| rule(case, secret, timing)))
}

/// What is to be done about a certificate.
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
            let timing = Timing::of(case.row, identity, secret, case.scale);
            let verdict = rules(secret, &timing).unwrap_or(Verdict::Keep { look_again: timing.next_after(case.now) });
            let begins_at = secret.certificate.validity.not_before;
            match verdict {
                // It was made by a clock that was ahead. It stays, but nobody accepts it yet.
                Verdict::Keep { .. } if case.now < begins_at => Verdict::Wait(Waiting::Validity { begins_at }),
                verdict => verdict,
            }
        }
    }
}

/// Nothing depends on them, but removing or garbling one is how people ask for a new certificate.
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
    (not_after < case.now).then_some(Verdict::Issue(Reason::Expired { not_after }))
}

fn recovery_looks_no_further(case: &SignerCase<'_>, _: &SecretState, timing: &Timing) -> Option<Verdict> {
    (case.mode == Mode::OnlyWhenExpired).then(|| Verdict::Keep { look_again: timing.next_after(case.now) })
}

/// At most once for each reason. The annotation of the Secret comes before the resource.
fn forced(case: &SignerCase<'_>, secret: &SecretState, _: &Timing) -> Option<Verdict> {
    let asked = [(case.forced, &secret.forced), (case.requested, &secret.requested)];
    let mut new = asked.into_iter().filter_map(|(reason, done)| new_reason(reason, done.as_deref()));
    Some(Verdict::Issue(Reason::Forced { reason: new.next()?.to_owned() }))
}

/// A reason for which nothing was done yet.
fn new_reason<'r>(asked: Option<&'r str>, done: Option<&str>) -> Option<&'r str> {
    asked.filter(|reason| !reason.is_empty() && done != Some(reason))
}

fn past_eighty_percent(case: &SignerCase<'_>, _: &SecretState, timing: &Timing) -> Option<Verdict> {
    let since = timing.eighty_percent_at;
    (since <= case.now).then_some(Verdict::Issue(Reason::PastEightyPercent { since }))
}

fn past_refresh(case: &SignerCase<'_>, _: &SecretState, timing: &Timing) -> Option<Verdict> {
    let since = timing.refresh_at;
    (since <= case.now).then_some(Verdict::Issue(Reason::PastRefresh { since }))
}

/// Exactly the names that it should have: one too many is as wrong as one too few.
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

/// By signature, never by name.
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
    if case.common.now < since {
        return None;
    }
    // Under the same signer there is nothing to wait for: who trusts the old one trusts the new one.
    let reason = Reason::PastRefresh { since };
    Some(if is_current(case, secret) { Verdict::Issue(reason) } else { when_usable(case, timing, reason) })
}

fn is_current(case: &TargetCase<'_>, secret: &SecretState) -> bool {
    secret.certificate.signed_by.as_ref() == Some(case.signer)
}

/// At the latest when four fifths of its life are over: then nothing is waited for.
fn when_usable(case: &TargetCase<'_>, timing: &Timing, reason: Reason) -> Verdict {
    let until = case.signer_usable_at.min(timing.eighty_percent_at);
    if case.common.now < until { Verdict::Wait(Waiting::SignerTooYoung { until }) } else { Verdict::Issue(reason) }
}
