//! The judge of simulated writes: the definition of an edge, written down once more, naively.
//!
//! It shares no code with the planner and the proof. It remembers every version of every object itself, looks at no
//! annotation, and decides acceptance by letting trust spread from the bundle until nothing new is trusted.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{Delivery, Purpose};
use crate::snapshot::Slot;
use crate::spec::Host;
use crate::trust::{CertificateFacts, Principal};

/// What is in a slot, or in the memory of a process: for a certificate, itself first and then its chain.
pub(super) type Content = Arc<[Arc<CertificateFacts>]>;

/// One edge with one certificate of its row.
#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) name: Arc<str>,
    pub(super) trust: Slot,
    pub(super) presented: Slot,
    pub(super) verifier: Delivery,
    pub(super) presenter: Delivery,
    pub(super) purpose: Purpose,
    pub(super) hosts: Arc<[Host]>,
    /// Whether what is presented is any certificate that the one in the slot has signed.
    pub(super) is_class: bool,
    /// The node whose process presents it, where each has its own.
    pub(super) node: Option<Arc<str>>,
}

/// Every version of every slot.
#[derive(Debug, Default)]
pub(super) struct Judge {
    trust: HashMap<Slot, Vec<(Timestamp, Content)>>,
    presented: HashMap<Slot, Vec<(Timestamp, Content)>>,
}

/// What a write did that it must not do.
#[derive(Debug, Clone)]
pub(super) struct Wrong {
    pub(super) edge: Arc<str>,
    pub(super) at: Timestamp,
    pub(super) verifier_holds: String,
    pub(super) presented: String,
    /// When the edge breaks without the write, at the latest by the time that its presenters need to come to another.
    pub(super) breaks_anyway: Option<Timestamp>,
}

/// What processes hold at the moment, for slots whose readers are watched.
pub(super) trait Held {
    fn trusts(&self, slot: &Slot) -> Option<Vec<Content>>;
    fn presents(&self, slot: &Slot, node: Option<&str>) -> Option<Vec<Content>>;
}

/// Which side of an edge a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Side {
    Trust,
    Presented,
}

impl Case {
    /// How long its presenters need to come to a new certificate, with some to spare.
    fn time_to_replace(&self, now: Timestamp, world: &World<'_>) -> SignedDuration {
        let spare = SignedDuration::from_hours(3);
        if self.is_class {
            let leaves = world.leaves();
            let lives = leaves.iter().flat_map(|(content, _)| content.iter());
            let alive = lives.filter(|it| now <= it.validity.not_after);
            let longest = alive.map(|it| it.validity.not_before.duration_until(it.validity.not_after)).max();
            return longest.unwrap_or(spare) / 10 + spare;
        }
        lag(self.presenter).unwrap_or(SignedDuration::ZERO) + spare
    }
}

impl Judge {
    /// Remembers a write.
    pub(super) fn remember(&mut self, side: Side, slot: &Slot, at: Timestamp, content: Content) {
        let history = match side {
            Side::Trust => self.trust.entry(slot.clone()).or_default(),
            Side::Presented => self.presented.entry(slot.clone()).or_default(),
        };
        history.push((at, content));
        // A version that was superseded longer ago than anybody lags is of no more interest, nor is an expired signer.
        let old = at - SignedDuration::from_hours(24 * 400);
        let gone = history.windows(2).take_while(|pair| {
            pair[1].0 < old && pair[0].1.first().is_none_or(|certificate| certificate.validity.not_after < at)
        });
        let gone = gone.count();
        history.drain(..gone);
    }

    /// Whether a write broke an edge that holds without it, now or up to its horizon.
    pub(super) fn judge(
        &self,
        case: &Case,
        side: Side,
        new: &Content,
        held: &dyn Held,
        now: Timestamp,
    ) -> Option<Wrong> {
        let largest = [lag(case.verifier), lag(case.presenter)].into_iter().flatten().max();
        let horizon = later(now, largest.unwrap_or(SignedDuration::ZERO) + SignedDuration::from_mins(10));
        let without = World { judge: self, case, held, write: None, now };
        let with = World { judge: self, case, held, write: Some((side, new)), now };
        let mut instants: BTreeSet<Timestamp> = BTreeSet::from([now]);
        for world in [&without, &with] {
            for (content, until) in world.bundles().into_iter().chain(world.leaves()) {
                instants.extend(until);
                for certificate in content.iter() {
                    instants.insert(certificate.validity.not_before);
                    instants.insert(later(certificate.validity.not_after, SignedDuration::from_secs(1)));
                }
            }
        }
        for at in instants.into_iter().filter(|at| now <= *at && *at <= horizon) {
            if let Some((bundle, leaf)) = with.broken(at)
                && without.broken(at).is_none()
                && !without.leaves().is_empty()
                && !without.bundles().is_empty()
            {
                let name = |content: &Content| {
                    content.iter().map(|certificate| certificate.id.to_string()).collect::<Vec<_>>().join(" + ")
                };
                let (verifier_holds, presented) = (name(&bundle), name(&leaf));
                let breaks_anyway = without.breaks_by(later(now, case.time_to_replace(now, &without)));
                return Some(Wrong { edge: case.name.clone(), at, verifier_holds, presented, breaks_anyway });
            }
        }
        None
    }
}

/// An edge with or without a write.
struct World<'a> {
    judge: &'a Judge,
    case: &'a Case,
    held: &'a dyn Held,
    write: Option<(Side, &'a Content)>,
    now: Timestamp,
}

impl World<'_> {
    /// The versions of the trust, each with the end of its use.
    fn bundles(&self) -> Vec<(Content, Option<Timestamp>)> {
        let history = self.judge.trust.get(&self.case.trust);
        self.versions(Side::Trust, history, self.case.verifier, self.held.trusts(&self.case.trust))
    }

    fn leaves(&self) -> Vec<(Content, Option<Timestamp>)> {
        let history = self.judge.presented.get(&self.case.presented);
        if self.case.is_class {
            // Any certificate of each signer that ever stood there, as long as the signer lives.
            let mut signers: Vec<Content> = history.into_iter().flatten().map(|(_, content)| content.clone()).collect();
            if let Some((Side::Presented, new)) = self.write {
                signers.push(new.clone());
            }
            let of = |signer: Content| {
                let signer = signer.first()?;
                let any = handed_out(signer, signer.validity.not_before, signer.validity.not_after);
                Some((Content::from([Arc::new(any)]), None))
            };
            let alive = |content: &Content| content.first().is_some_and(|it| self.now <= it.validity.not_after);
            return signers.into_iter().filter(alive).filter_map(of).collect();
        }
        let node = self.case.node.as_deref();
        self.versions(Side::Presented, history, self.case.presenter, self.held.presents(&self.case.presented, node))
    }

    fn versions(
        &self,
        side: Side,
        history: Option<&Vec<(Timestamp, Content)>>,
        delivery: Delivery,
        watched: Option<Vec<Content>>,
    ) -> Vec<(Content, Option<Timestamp>)> {
        let past = history.map(Vec::as_slice).unwrap_or_default();
        let new = self.write.filter(|(changed, _)| *changed == side).map(|(_, new)| (self.now, new.clone()));
        let writes = past.iter().chain(&new);
        let mut newer: Option<Timestamp> = None;
        let mut versions = Vec::new();
        // From the newest back, as long as somebody may hold it.
        for (at, content) in writes.rev() {
            match (newer, delivery) {
                (None, _) => versions.push((content.clone(), None)),
                (Some(superseded_at), Delivery::Reloaded { within }) => {
                    let until = later(superseded_at, SignedDuration::from_secs(within.as_seconds()));
                    if until <= self.now {
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

    /// The first instant up to the limit at which it is broken, looking at every hour and a few.
    fn breaks_by(&self, limit: Timestamp) -> Option<Timestamp> {
        let leaves = self.leaves();
        let ends = leaves.iter().flat_map(|(content, _)| content.iter());
        let ends = ends.map(|it| later(it.validity.not_after, SignedDuration::from_secs(1)));
        let ends: BTreeSet<Timestamp> = ends.filter(|at| self.now <= *at && *at <= limit).collect();
        ends.into_iter().find(|at| self.broken(*at).is_some())
    }

    /// A pair in use at `at` that does not fit.
    fn broken(&self, at: Timestamp) -> Option<(Content, Content)> {
        // What is handed out by a class may have any life within its signer's.
        let in_use = |(content, until): &(Content, Option<Timestamp>)| {
            until.is_none_or(|until| at < until)
                && !(self.case.is_class && content.first().is_some_and(|it| it.validity.not_after < at))
        };
        let bundles: Vec<_> = self.bundles().into_iter().filter(in_use_of_trust(at)).collect();
        for (leaf, _) in self.leaves().into_iter().filter(in_use) {
            for (bundle, _) in &bundles {
                if !accepts(bundle, &leaf, self.case.purpose, &self.case.hosts, at) {
                    return Some((bundle.clone(), leaf));
                }
            }
        }
        None
    }
}

fn in_use_of_trust(at: Timestamp) -> impl Fn(&(Content, Option<Timestamp>)) -> bool {
    move |(_, until)| until.is_none_or(|until| at < until)
}

/// A certificate that a signer handed out.
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

/// Whether who trusts these accepts that: trust spreads to whatever a trusted one signed, until nothing is new.
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
    let mut trusted: Vec<&Principal> =
        bundle.iter().filter(|it| usable(it) && it.ca.is_some()).map(|it| &it.subject).collect();
    loop {
        let is_new = |it: &&Arc<CertificateFacts>| {
            usable(it)
                && it.ca.is_some()
                && it.signed_by.as_ref().is_some_and(|by| trusted.contains(&by))
                && !trusted.contains(&&it.subject)
        };
        let Some(more) = chain.iter().find(is_new) else { break };
        trusted.push(&more.subject);
    }
    let named = |host: &Host| purpose == Purpose::Client || leaf.hosts.contains(host);
    usable(leaf) && hosts.iter().all(named) && leaf.signed_by.as_ref().is_some_and(|by| trusted.contains(&by))
}

/// How long a process may hold what was superseded; none where only watching tells.
fn lag(delivery: Delivery) -> Option<SignedDuration> {
    match delivery {
        Delivery::Reloaded { within } | Delivery::Relayed { within } => {
            Some(SignedDuration::from_secs(within.as_seconds()))
        }
        Delivery::Revisioned | Delivery::Never | Delivery::Indirect => None,
    }
}

fn later(at: Timestamp, by: SignedDuration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}
