//! The judge of simulated writes: a second, naive implementation of the definition of an edge.
//!
//! The judge shares no code with the planner and the proof. It records every version of every object itself, reads no
//! annotation, and decides acceptance by spreading trust from the bundle until no new CA is trusted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{Delivery, Purpose};
use crate::snapshot::Slot;
use crate::spec::Host;
use crate::trust::{CertificateFacts, PathLength, Principal};

/// The content of a slot, or of a process's memory: for a certificate, the leaf first and then its chain.
pub(super) type Content = Arc<[Arc<CertificateFacts>]>;

/// One edge with one certificate of its row.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: Arc<str>,
    /// The row of the presented certificate.
    pub(super) row: &'static str,
    pub(super) trust: Slot,
    pub(super) presented: Slot,
    pub(super) verifier: Delivery,
    pub(super) presenter: Delivery,
    pub(super) purpose: Purpose,
    pub(super) hosts: Arc<[Host]>,
    /// True if the presented certificate is any certificate that the one in the slot has signed.
    pub(super) is_class: bool,
    /// The node whose process presents it, if each node has its own.
    pub(super) node: Option<Arc<str>>,
}

/// The record of every version of every slot.
#[derive(Debug, Default)]
pub(super) struct Judge {
    trust: HashMap<Slot, History>,
    presented: HashMap<Slot, History>,
}

/// An edge that a write broke.
#[derive(Debug, Clone)]
pub(super) struct Wrong {
    pub(super) edge: Arc<str>,
    /// The first instant at which a verifier rejects a presenter.
    pub(super) at: Timestamp,
    pub(super) verifier_holds: Content,
    pub(super) presented: Content,
    /// When the edge breaks without the write, up to the time that its presenters need to load another certificate.
    pub(super) breaks_anyway: Option<Timestamp>,
    /// The start of the validity of the certificate that was presented last.
    pub(super) replaced_from: Option<Timestamp>,
}

/// The versions that processes hold now, for slots whose readers are observed.
pub(super) trait Held {
    fn trusts(&self, slot: &Slot) -> Option<Vec<Content>>;
    fn presents(&self, slot: &Slot) -> Option<Vec<Content>>;
}

/// Which side of an edge a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Trust,
    Presented,
}

impl Judge {
    /// Records a write.
    pub(super) fn remember(&mut self, side: Side, slot: &Slot, at: Timestamp, content: Content) {
        let history = match side {
            Side::Trust => self.trust.entry(slot.clone()).or_default(),
            Side::Presented => self.presented.entry(slot.clone()).or_default(),
        };
        history.push((at, content));
        // A version that was superseded longer ago than any lag does not matter, nor does an expired signer.
        let old = at - SignedDuration::from_hours(24 * 400);
        let gone = history.windows(2).take_while(|pair| {
            pair[1].0 < old && pair[0].1.first().is_none_or(|certificate| certificate.validity.not_after < at)
        });
        let gone = gone.count();
        history.drain(..gone);
    }

    /// Returns the edges that a write breaks, now or up to its horizon, and that hold without it.
    pub(super) fn judge(
        &self,
        case: &Case,
        side: Side,
        new: &Content,
        held: &dyn Held,
        now: Timestamp,
    ) -> Option<Wrong> {
        let without = self.view(case, None, held, now);
        if without.bundles.is_empty() || without.leaves.is_empty() {
            return None;
        }
        let with = self.view(case, Some((side, new)), held, now);
        let largest = [lag(case.verifier), lag(case.presenter)].into_iter().flatten().max();
        let horizon = later(now, largest.unwrap_or(SignedDuration::ZERO) + SignedDuration::from_mins(10));
        let instants: BTreeSet<Timestamp> =
            [now].into_iter().chain(without.instants()).chain(with.instants()).collect();
        for at in instants.into_iter().filter(|at| now <= *at && *at <= horizon) {
            if let Some((verifier_holds, presented)) = with.broken(at)
                && without.broken(at).is_none()
            {
                let breaks_anyway = without.breaks_by(now, later(now, without.time_to_replace(now)));
                // The newest is the first of them.
                let replaced = without.leaves.first().and_then(|(content, _)| content.first());
                let replaced_from = replaced.map(|leaf| leaf.validity.not_before);
                let edge = case.name.clone();
                return Some(Wrong { edge, at, verifier_holds, presented, breaks_anyway, replaced_from });
            }
        }
        None
    }

    /// Returns the versions that processes on an edge may hold, optionally after a write.
    fn view<'c>(&self, case: &'c Case, write: Option<(Side, &Content)>, held: &dyn Held, now: Timestamp) -> View<'c> {
        let new = |side| write.filter(|(changed, _)| *changed == side).map(|(_, new)| (now, new.clone()));
        let (trust, presented) = (self.trust.get(&case.trust), self.presented.get(&case.presented));
        let bundles = versions(trust, new(Side::Trust).as_ref(), case.verifier, held.trusts(&case.trust), now);
        let leaves = if case.is_class {
            class(presented, new(Side::Presented).as_ref(), now)
        } else {
            let held = held.presents(&case.presented);
            versions(presented, new(Side::Presented).as_ref(), case.presenter, held, now)
        };
        View { case, bundles, leaves }
    }
}

/// A version, and the end of its use.
type Version = (Content, Option<Timestamp>);
type History = Vec<(Timestamp, Content)>;

/// Returns the versions that processes may hold: the newest, and those superseded less than a lag ago; or the observed ones.
fn versions(
    history: Option<&History>,
    new: Option<&(Timestamp, Content)>,
    delivery: Delivery,
    watched: Option<Vec<Content>>,
    now: Timestamp,
) -> Vec<Version> {
    let past = history.map(Vec::as_slice).unwrap_or_default();
    let mut newer: Option<Timestamp> = None;
    let mut versions = Vec::new();
    // From the newest back, as long as a process may hold the version.
    for (at, content) in past.iter().chain(new).rev() {
        match (newer, delivery) {
            (None, _) => versions.push((content.clone(), None)),
            (Some(superseded_at), Delivery::Reloaded { within }) => {
                let until = later(superseded_at, SignedDuration::from_secs(within.as_seconds()));
                if until <= now {
                    break;
                }
                versions.push((content.clone(), Some(until)));
            }
            (Some(_), _) => break,
        }
        newer = Some(*at);
    }
    if let (Delivery::Revisioned | Delivery::Relayed { .. }, Some(held), false) =
        (delivery, watched, versions.is_empty())
    {
        versions.extend(held.into_iter().filter(|content| !content.is_empty()).map(|content| (content, None)));
    }
    versions
}

/// Returns any certificate of each signer that was ever in the slot, until the signer expires.
fn class(history: Option<&History>, new: Option<&(Timestamp, Content)>, now: Timestamp) -> Vec<Version> {
    let signers = history.into_iter().flatten().chain(new).filter_map(|(_, content)| content.first());
    let alive = signers.filter(|signer| now <= signer.validity.not_after);
    let any = |signer: &Arc<CertificateFacts>| {
        let any = handed_out(signer, signer.validity.not_before, signer.validity.not_after);
        (Content::from([Arc::new(any)]), None)
    };
    alive.map(any).collect()
}

/// An edge with all versions that its processes may hold.
struct View<'c> {
    case: &'c Case,
    bundles: Vec<Version>,
    leaves: Vec<Version>,
}

impl View<'_> {
    /// Returns the instants at which a version or a validity begins or ends.
    fn instants(&self) -> impl Iterator<Item = Timestamp> {
        self.bundles.iter().chain(&self.leaves).flat_map(|(content, until)| {
            let lives = content.iter().flat_map(|it| [it.validity.not_before, second_after(it.validity.not_after)]);
            until.iter().copied().chain(lives)
        })
    }

    /// Returns a pair in use at `at` that does not fit.
    fn broken(&self, at: Timestamp) -> Option<(Content, Content)> {
        let in_use = |(_, until): &&Version| until.is_none_or(|until| at < until);
        // A certificate that was issued on request may have any validity within its signer's.
        let is_over =
            |(leaf, _): &&Version| self.case.is_class && leaf.first().is_some_and(|it| it.validity.not_after < at);
        for (leaf, _) in self.leaves.iter().filter(in_use).filter(|leaf| !is_over(leaf)) {
            for (bundle, _) in self.bundles.iter().filter(in_use) {
                if !accepts(bundle, leaf, self.case.purpose, &self.case.hosts, at) {
                    return Some((bundle.clone(), leaf.clone()));
                }
            }
        }
        None
    }

    /// Returns the first end of a validity up to the limit at which the edge is broken.
    fn breaks_by(&self, now: Timestamp, limit: Timestamp) -> Option<Timestamp> {
        let ends = self.leaves.iter().flat_map(|(content, _)| content.iter());
        let ends: BTreeSet<Timestamp> = ends.map(|it| second_after(it.validity.not_after)).collect();
        ends.into_iter().filter(|at| now <= *at && *at <= limit).find(|at| self.broken(*at).is_some())
    }

    /// Returns the time that its presenters need to load a new certificate, with a reserve.
    fn time_to_replace(&self, now: Timestamp) -> SignedDuration {
        let spare = SignedDuration::from_hours(3);
        if !self.case.is_class {
            return lag(self.case.presenter).unwrap_or(SignedDuration::ZERO) + spare;
        }
        let lives = self.leaves.iter().flat_map(|(content, _)| content.iter().map(|it| it.validity));
        let alive = lives.filter(|life| now <= life.not_after);
        let longest = alive.map(|life| life.not_before.duration_until(life.not_after)).max();
        longest.unwrap_or(spare) / 10 + spare
    }
}

/// Returns a certificate that a signer issued on request.
pub(super) fn handed_out(signer: &CertificateFacts, from: Timestamp, to: Timestamp) -> CertificateFacts {
    let name: Arc<str> = format!("a certificate by {}", signer.id).into();
    CertificateFacts {
        id: crate::trust::CertificateId(name.clone()),
        subject: Principal { name: name.clone(), key: crate::trust::KeyId(name) },
        signed_by: Some(signer.subject.clone()),
        validity: crate::spec::Validity { not_before: from, not_after: to },
        ca: None,
        serves: true,
        connects: true,
        hosts: Vec::new(),
    }
}

/// Returns true if a verifier with this bundle accepts the certificate: trust spreads to each CA that a trusted one signed.
pub(super) fn accepts(
    bundle: &[Arc<CertificateFacts>],
    presented: &[Arc<CertificateFacts>],
    purpose: Purpose,
    hosts: &[Host],
    at: Timestamp,
) -> bool {
    let Some((leaf, chain)) = presented.split_first() else { return false };
    let usable = |it: &CertificateFacts| {
        let fits = if purpose == Purpose::Server { it.serves } else { it.connects };
        it.validity.not_before <= at && at <= it.validity.not_after && fits
    };
    // The trusted CAs, and how many further CAs may be below each.
    let mut trusted: Vec<(&Principal, u8)> =
        bundle.iter().filter(|it| usable(it)).filter_map(|it| Some((&it.subject, depth(it.ca?)))).collect();
    let vouched = |trusted: &[(&Principal, u8)], it: &CertificateFacts| {
        let vouches = |(signer, _): &&(&Principal, u8)| it.signed_by.as_ref() == Some(signer);
        trusted.iter().filter(vouches).map(|(_, below)| *below).max()
    };
    loop {
        let more = chain.iter().filter(|it| usable(it)).find_map(|it| {
            let below = vouched(&trusted, it)?.checked_sub(1)?.min(depth(it.ca?));
            let is_new = !trusted.iter().any(|(subject, known)| *subject == &it.subject && below <= *known);
            is_new.then_some((&it.subject, below))
        });
        match more {
            Some(more) => trusted.push(more),
            None => break,
        }
    }
    let named = |host: &Host| purpose == Purpose::Client || leaf.hosts.iter().any(|held| is_same_host(held, host));
    usable(leaf) && hosts.iter().all(named) && vouched(&trusted, leaf).is_some()
}

fn depth(ca: PathLength) -> u8 {
    match ca {
        PathLength::Unlimited => u8::MAX,
        PathLength::AtMost(below) => below,
    }
}

/// Compares addresses as numbers, not as text.
fn is_same_host(one: &Host, other: &Host) -> bool {
    match (one, other) {
        (Host::Ip(one), Host::Ip(other)) => one.to_canonical() == other.to_canonical(),
        _ => one == other,
    }
}

/// Returns how long a process may hold a superseded version; none if only observation tells.
fn lag(delivery: Delivery) -> Option<SignedDuration> {
    match delivery {
        Delivery::Reloaded { within } | Delivery::Relayed { within } => {
            Some(SignedDuration::from_secs(within.as_seconds()))
        }
        Delivery::Revisioned | Delivery::Never | Delivery::Indirect => None,
    }
}

fn second_after(at: Timestamp) -> Timestamp {
    later(at, SignedDuration::from_secs(1))
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
