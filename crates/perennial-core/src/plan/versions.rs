//! Which versions of a bundle or certificate processes may hold: what is there now, and what was there before.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::draft::Draft;
use crate::catalog::{Delivery, Instance, Leaf, Row, Span};
use crate::issuance::BACKDATE;
use crate::rules::{BundleState, SecretState};
use crate::snapshot::{Held, Slot};
use crate::spec::{Host, Validity};
use crate::trust::{CertificateFacts, CertificateId, EdgeState, Evidence, InUse, KeyId, Known, Principal, Version};
use crate::wiring::{EdgeWiring, presented_slot};

impl Draft<'_> {
    /// The edge with the certificate of one instance of its row, dialled under these names.
    pub(crate) fn edge_state(
        &self,
        edge: &EdgeWiring<'_>,
        row: &Row,
        instance: &Instance,
        hosts: &Arc<[Host]>,
    ) -> EdgeState {
        let slot = presented_slot(row, edge.presents, instance);
        let presenter = edge.edge.presenter.delivery;
        let (leaves, hosts) = match edge.edge.leaf {
            Leaf::Row(_) => (self.leaf_versions(&slot, presenter), hosts.clone()),
            Leaf::AnyBy(_) => (self.class_versions(&slot), [].into()),
        };
        let name = edge.name_of(instance);
        let bundles = self.bundle_versions(&edge.trust, edge.edge.verifier.delivery);
        EdgeState { name, bundles, leaves, purpose: edge.edge.purpose, hosts }
    }

    /// How long after a change a process may still hold what was before, with an allowance for clocks that differ.
    pub(crate) fn lag(&self, within: Span) -> SignedDuration {
        within.scaled(self.snapshot().settings.time_scale) + self.clock_allowance()
    }

    /// The same, but for this many seconds at most where somebody saw to it.
    fn lag_in(&self, within: Span, hurry: Option<u32>) -> SignedDuration {
        let hurry = hurry.map(|seconds| SignedDuration::from_secs(i64::from(seconds)) + self.clock_allowance());
        hurry.map_or(self.lag(within), |hurry| hurry.min(self.lag(within)))
    }

    /// The same for who reads what this signer signs.
    pub(crate) fn lag_with(&self, within: Span, signer: Option<&SecretState>) -> SignedDuration {
        match signer.and_then(|signer| self.hurry(within, signer)) {
            Some(hurry) => hurry + self.clock_allowance(),
            None => self.lag(within),
        }
    }

    /// How long its readers are given where somebody has made a signer that is replaced sooner than they read again: whoever did so
    /// sees to it that they read within half of that time.
    pub(crate) fn hurry(&self, within: Span, signer: &SecretState) -> Option<SignedDuration> {
        // Who has taken over somebody else's was promised nothing.
        let life = signer.issued_at?.duration_until(signer.certificate.validity.not_after);
        (life / 2 < within.scaled(self.snapshot().settings.time_scale)).then_some(life / 4)
    }

    /// How much clocks may differ: as much as certificates are backdated.
    pub(crate) fn clock_allowance(&self) -> SignedDuration {
        BACKDATE.scaled(self.snapshot().settings.time_scale)
    }

    fn now(&self) -> Timestamp {
        self.snapshot().taken_at
    }

    /// Versions of a bundle, the newest last.
    pub(crate) fn bundle_versions(&self, slot: &Slot, delivery: Delivery) -> Vec<Version> {
        let Some(state) = self.bundle(slot).present() else { return Vec::new() };
        let mut versions = Versions { list: Vec::new() };
        match (self.snapshot().held_bundles.get(slot), delivery) {
            (Some(held), _) => {
                for held in held {
                    versions.add(self.held(slot, held));
                }
                if let Delivery::Relayed { within } = delivery {
                    // Who has just started may have followed one that had all of it, or one that had not.
                    let starts = held.iter().map(|held| held.since.unwrap_or(self.now()));
                    let started = starts.max().unwrap_or(Timestamp::MIN);
                    self.add_lacking(&mut versions, slot, state, |id| {
                        let at = match state.published.get(id) {
                            Some(published) if published.first => Timestamp::MIN,
                            Some(published) => published.reached.unwrap_or(started),
                            None => started,
                        };
                        after(at.min(started), self.lag(within))
                    });
                }
            }
            (None, Delivery::Reloaded { within }) => {
                self.add_lacking(&mut versions, slot, state, |id| {
                    let (at, hurry) = match state.published.get(id) {
                        Some(published) if published.first => (Timestamp::MIN, None),
                        Some(published) => (published.at, published.hurry),
                        None => (self.now(), None),
                    };
                    // Nothing was published in the future, whatever is written there.
                    after(at.min(self.now()), self.lag_in(within, hurry))
                });
            }
            (None, Delivery::Revisioned | Delivery::Relayed { .. }) => {
                for missing in &state.members {
                    let members = state.members.iter().filter(|id| *id != missing);
                    let name = format!("{slot} without {missing}");
                    versions.add(self.version(name, members, InUse::Always, Evidence::Unknown));
                }
            }
            (None, Delivery::Never | Delivery::Indirect) => {}
        }
        let evidence = evidence(delivery, self.snapshot().held_bundles.contains_key(slot));
        versions.finish(self.version(slot.to_string(), &state.members, InUse::Always, evidence))
    }

    /// Adds the versions that a process may hold that has not read the newest additions: the bundle without all
    /// members that were added then or later, and without each of them alone, because several additions may have been
    /// written in an order that no object records.
    ///
    /// One order is known: a cross-certificate is added by the same write as the CA that signed it. So no process holds the
    /// cross-certificate without that CA. Without this, a bundle that never existed would accept the leaves of an
    /// expired CA by its cross-certificate, reject those of the new CA, and delay their re-issue until both have expired.
    fn add_lacking(
        &self,
        versions: &mut Versions,
        slot: &Slot,
        state: &BundleState,
        held_until: impl Fn(&CertificateId) -> Timestamp,
    ) {
        for missing in &state.members {
            let until = held_until(missing);
            if until <= self.now() {
                continue;
            }
            let earlier = state.members.iter().filter(|id| held_until(id) < until);
            let others = state
                .members
                .iter()
                .filter(|id| *id != missing && !self.is_cross_signed_by(state, id, missing) && held_until(id) <= until);
            let in_use = InUse::Until(until);
            let name = || format!("{slot} as it was before {missing}");
            versions.add(self.version(name(), earlier, in_use, Evidence::Assumed));
            versions.add(self.version(name(), others, in_use, Evidence::Assumed));
        }
    }

    /// Whether `id` is a cross-certificate that the CA `by` has signed: the bundle also has the CA whose key it certifies. An
    /// intermediate CA is none: it is added after its signer.
    fn is_cross_signed_by(&self, state: &BundleState, id: &CertificateId, by: &CertificateId) -> bool {
        let (Some(it), Some(by)) = (self.get(id), self.get(by)) else { return false };
        let is_signed = it.ca.is_some() && it.subject != by.subject && it.signed_by.as_ref() == Some(&by.subject);
        let others = state.members.iter().filter(|other| *other != id).filter_map(|other| self.get(other));
        is_signed && others.into_iter().any(|other| other.subject == it.subject)
    }

    /// Versions of a certificate with its chain, the newest last.
    pub(crate) fn leaf_versions(&self, slot: &Slot, delivery: Delivery) -> Vec<Version> {
        let Some(state) = self.secret(slot).present() else { return Vec::new() };
        let mut versions = Versions { list: Vec::new() };
        if let Some(held) = self.snapshot().held_secrets.get(slot) {
            for held in held {
                versions.add(self.held(slot, held));
            }
        } else {
            for past in &state.superseded {
                let (in_use, evidence) = match delivery {
                    Delivery::Reloaded { within } => {
                        (InUse::Until(after(past.at, self.lag_in(within, past.hurry))), Evidence::Assumed)
                    }
                    Delivery::Revisioned | Delivery::Relayed { .. } => (InUse::Always, Evidence::Unknown),
                    Delivery::Never => (InUse::Always, Evidence::Never),
                    Delivery::Indirect => continue,
                };
                let name = format!("{slot} until {}", past.at);
                let members = [&past.certificate].into_iter().chain(&past.chain);
                if in_use.contains(self.now()) {
                    versions.add(self.version(name, members, in_use, evidence));
                }
            }
        }
        let evidence = evidence(delivery, self.snapshot().held_secrets.contains_key(slot));
        versions.finish(self.served(slot, state, evidence))
    }

    /// Everybody who was seen to hold this version of a bundle; or else the version itself.
    pub(crate) fn holders(&self, slot: &Slot, version: &Version) -> Vec<String> {
        let held = self.snapshot().held_bundles.get(slot).into_iter().flatten().map(|held| self.held(slot, held));
        let names: Vec<String> = held.filter(|held| same_set(held, version)).map(|held| held.name).collect();
        if names.is_empty() { vec![version.name.clone()] } else { names }
    }

    /// What processes were seen to hold of a certificate.
    pub(crate) fn held_leaves(&self, slot: &Slot) -> Vec<Version> {
        let held = self.snapshot().held_secrets.get(slot).into_iter().flatten();
        held.map(|held| self.held(slot, held)).filter(|version| !version.members.is_empty()).collect()
    }

    /// Whatever certificate of a place a signer may have signed, under all its names.
    pub(crate) fn any_leaf_by(&self, signer: &CertificateFacts, slot: &Slot, hosts: &[Host]) -> Version {
        let leaf = CertificateFacts { hosts: hosts.to_vec(), ..any_by(signer) };
        let (name, members) = (format!("{slot} by {}", signer.id), vec![Arc::new(leaf)]);
        Version { name, members, in_use: InUse::Always, evidence: Evidence::Assumed }
    }

    fn served(&self, slot: &Slot, state: &SecretState, evidence: Evidence) -> Version {
        let members = [&state.certificate.id].into_iter().chain(&state.chain);
        self.version(slot.to_string(), members, InUse::Always, evidence)
    }

    /// Versions of "any certificate that this signer issued", the newest signer last: each until the signer's end.
    fn class_versions(&self, slot: &Slot) -> Vec<Version> {
        let Some(state) = self.secret(slot).present() else { return Vec::new() };
        let class = |signer: &CertificateFacts, in_use| Version {
            name: format!("certificates by {}", signer.id),
            members: vec![Arc::new(any_by(signer))],
            in_use,
            evidence: Evidence::Assumed,
        };
        let end = |signer: &CertificateFacts| signer.validity.first_after().unwrap_or(Timestamp::MAX);
        let past = state.superseded.iter().filter_map(|past| self.get(&past.certificate));
        let past =
            past.map(|signer| class(signer, InUse::Until(end(signer)))).filter(|it| it.in_use.contains(self.now()));
        past.chain([class(&state.certificate, InUse::Always)]).collect()
    }

    fn held(&self, slot: &Slot, held: &Held) -> Version {
        let name = match held.revision {
            Some(revision) => format!("{slot} of {} at revision {revision}", held.by),
            None => format!("{slot} of {}", held.by),
        };
        self.version(name, &held.members, InUse::Always, Evidence::Observed)
    }

    fn version<'i>(
        &self,
        name: String,
        members: impl IntoIterator<Item = &'i CertificateId>,
        in_use: InUse,
        evidence: Evidence,
    ) -> Version {
        let members = members.into_iter().filter_map(|id| self.get(id)).cloned().collect();
        Version { name, members, in_use, evidence }
    }
}

/// How it is known who holds the newest version: to read an object back proves that it was published, no more.
fn evidence(delivery: Delivery, is_watched: bool) -> Evidence {
    match delivery {
        _ if is_watched => Evidence::Observed,
        Delivery::Reloaded { .. } | Delivery::Indirect => Evidence::Assumed,
        Delivery::Revisioned | Delivery::Relayed { .. } => Evidence::Unknown,
        Delivery::Never => Evidence::Never,
    }
}

/// Versions that differ.
struct Versions {
    list: Vec<Version>,
}

impl Versions {
    /// A process that holds nothing trusts nobody, and presents nothing: there is nothing to keep.
    fn add(&mut self, version: Version) {
        if version.members.is_empty() {
            return;
        }
        match self.list.iter_mut().find(|known| same_set(known, &version)) {
            Some(known) => known.in_use = longer(known.in_use, version.in_use),
            None => self.list.push(version),
        }
    }

    fn finish(mut self, newest: Version) -> Vec<Version> {
        self.list.retain(|version| !same_set(version, &newest));
        self.list.push(newest);
        self.list
    }
}

fn same_set(one: &Version, other: &Version) -> bool {
    let ids = |version: &Version| version.members.iter().map(|it| it.id.clone()).collect::<BTreeSet<_>>();
    one.is_same(other) || (one.members.len() == other.members.len() && ids(one) == ids(other))
}

fn longer(one: InUse, other: InUse) -> InUse {
    match (one, other) {
        (InUse::Until(one), InUse::Until(other)) => InUse::Until(one.max(other)),
        _ => InUse::Always,
    }
}

/// Any certificate that a signer handed out, for any purpose and as long as the signer lives.
fn any_by(signer: &CertificateFacts) -> CertificateFacts {
    let id: Arc<str> = format!("any by {}", signer.id).into();
    CertificateFacts {
        id: CertificateId(id.clone()),
        subject: Principal { name: id.clone(), key: KeyId(id) },
        signed_by: Some(signer.subject.clone()),
        validity: Validity { ..signer.validity },
        ca: None,
        serves: true,
        connects: true,
        hosts: Vec::new(),
    }
}

pub(super) fn after(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
