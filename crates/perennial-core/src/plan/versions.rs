//! The versions of a bundle or certificate that processes may hold: the current one, and earlier ones.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::draft::Draft;
use super::reverted::reverted;
use crate::catalog::index::{EdgeWiring, presented_slot};
use crate::catalog::{Delivery, Instance, Leaf, Row, Scope, Span};
use crate::issuance::BACKDATE;
use crate::snapshot::{BundleState, Held, SecretState, Slot};
use crate::spec::{Host, Validity};
use crate::trust::{CertificateFacts, CertificateId, EdgeState, Evidence, InUse, KeyId, Known, Principal, Version};

impl Draft<'_> {
    /// Returns the state of an edge with the certificate of one instance of its row, for these host names.
    pub(crate) fn edge_state(
        &self,
        edge: &EdgeWiring<'_>,
        row: &Row,
        instance: &Instance,
        hosts: &Arc<[Host]>,
    ) -> EdgeState {
        let slot = presented_slot(row, edge.presents, instance);
        let reloaded_at = self.reloaded_at().filter(|_| row.scope == Scope::Service);
        let presenter = edge.edge.presenter.delivery;
        let (leaves, hosts) = match edge.edge.leaf {
            Leaf::Row(_) => (self.leaf_versions(&slot, presenter, reloaded_at), hosts.clone()),
            Leaf::AnyBy(_) => (self.class_versions(&slot), [].into()),
        };
        let name = edge.name_of(instance);
        let bundles = self.bundle_versions(&edge.trust, edge.edge.verifier.delivery, reloaded_at);
        EdgeState { name, bundles, leaves, purpose: edge.edge.purpose, hosts }
    }

    /// Returns how long after a change a process may hold the previous version, with an allowance for different clocks.
    pub(crate) fn lag(&self, within: Span) -> SignedDuration {
        within.scaled(self.snapshot().time_scale()) + self.clock_allowance()
    }

    /// Returns the same, limited by a lag override.
    fn lag_in(&self, within: Span, lag_override: Option<u32>) -> SignedDuration {
        let lag_override =
            lag_override.map(|seconds| SignedDuration::from_secs(i64::from(seconds)) + self.clock_allowance());
        lag_override.map_or(self.lag(within), |lag_override| lag_override.min(self.lag(within)))
    }

    /// Returns the same for processes that use a leaf of this signer.
    pub(crate) fn lag_with(&self, within: Span, signer: Option<&SecretState>) -> SignedDuration {
        match signer.and_then(|signer| self.lag_override(within, signer)) {
            Some(lag_override) => lag_override + self.clock_allowance(),
            None => self.lag(within),
        }
    }

    /// Returns the lag of readers if the signer is replaced sooner than its readers normally reload. The administrator who set
    /// this validity makes sure that they reload within half of that time.
    pub(crate) fn lag_override(&self, within: Span, signer: &SecretState) -> Option<SignedDuration> {
        // A signer of another issuer makes no such promise.
        let life = signer.issued_at?.min(self.now()).duration_until(signer.certificate.validity.not_after);
        (life / 2 < within.scaled(self.snapshot().time_scale())).then_some(life / 4)
    }

    /// Returns how far clocks may differ: as much as certificates are backdated.
    pub(crate) fn clock_allowance(&self) -> SignedDuration {
        BACKDATE.scaled(self.snapshot().time_scale())
    }

    fn now(&self) -> Timestamp {
        self.snapshot().taken_at
    }

    /// Returns the versions of a bundle, the newest last. Processes that reload hold no version from before `reloaded_at`.
    pub(crate) fn bundle_versions(
        &self,
        slot: &Slot,
        delivery: Delivery,
        reloaded_at: Option<Timestamp>,
    ) -> Vec<Version> {
        let Some(state) = self.bundle(slot).present() else { return Vec::new() };
        let mut versions = Versions { list: Vec::new() };
        match (self.snapshot().held_bundles.get(slot), delivery) {
            (Some(held), _) => {
                for held in held {
                    versions.add(self.held(slot, held));
                }
                if let Delivery::Relayed { within } = delivery {
                    // A process that has just started may have passed on a version with all of it before, or one without.
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
                    let (at, lag_override) = match state.published.get(id) {
                        Some(published) if published.first => (Timestamp::MIN, None),
                        Some(published) => (published.at, published.lag_override),
                        None => (self.now(), None),
                    };
                    // A recorded publication in the future counts as now.
                    match at.min(self.now()) {
                        at if reloaded_at.is_some_and(|reloaded_at| at <= reloaded_at) => Timestamp::MIN,
                        at => after(at, self.lag_in(within, lag_override)),
                    }
                });
            }
            (None, Delivery::Revisioned | Delivery::Relayed { .. }) => {
                for missing in &state.members {
                    let members = state.members.iter().filter(|id| *id != missing);
                    let name = format!("{slot} without {}", self.called(missing));
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
            let name = || format!("{slot} without {}", self.called(missing));
            versions.add(self.version(name(), earlier, in_use, Evidence::Assumed));
            versions.add(self.version(name(), others, in_use, Evidence::Assumed));
        }
    }

    /// Returns true if `id` is a cross-certificate that the CA `by` has signed: the bundle also has the CA whose key it certifies. An
    /// intermediate CA is not a cross-certificate: it is added after its signer.
    fn is_cross_signed_by(&self, state: &BundleState, id: &CertificateId, by: &CertificateId) -> bool {
        let (Some(it), Some(by), false) = (self.get(id), self.get(by), reverted().cross_certificates) else {
            return false;
        };
        let is_signed = it.ca.is_some() && it.subject != by.subject && it.signed_by.as_ref() == Some(&by.subject);
        let others = state.members.iter().filter(|other| *other != id).filter_map(|other| self.get(other));
        is_signed && others.into_iter().any(|other| other.subject == it.subject)
    }

    /// Returns the versions of a certificate with its chain, the newest last. Processes that reload hold no version from before
    /// `reloaded_at`.
    pub(crate) fn leaf_versions(
        &self,
        slot: &Slot,
        delivery: Delivery,
        reloaded_at: Option<Timestamp>,
    ) -> Vec<Version> {
        let Some(state) = self.secret(slot).present() else { return Vec::new() };
        let mut versions = Versions { list: Vec::new() };
        if let Some(held) = self.snapshot().held_secrets.get(slot) {
            for held in held {
                versions.add(self.held(slot, held));
            }
        } else {
            for past in &state.superseded {
                let (in_use, evidence) = match delivery {
                    Delivery::Reloaded { .. } if reloaded_at.is_some_and(|reloaded_at| past.at <= reloaded_at) => {
                        continue;
                    }
                    Delivery::Reloaded { within } => {
                        // A recorded replacement in the future counts as now.
                        (
                            InUse::Until(after(past.at.min(self.now()), self.lag_in(within, past.lag_override))),
                            Evidence::Assumed,
                        )
                    }
                    Delivery::Revisioned | Delivery::Relayed { .. } => (InUse::Always, Evidence::Unknown),
                    Delivery::Never => (InUse::Always, Evidence::Never),
                    Delivery::Indirect => continue,
                };
                let name = format!("{slot} as it was until {}", past.at);
                let members = [&past.certificate].into_iter().chain(&past.chain);
                if in_use.contains(self.now()) {
                    versions.add(self.version(name, members, in_use, evidence));
                }
            }
        }
        let evidence = evidence(delivery, self.snapshot().held_secrets.contains_key(slot));
        versions.finish(self.served(slot, state, evidence))
    }

    /// Returns the processes that were observed to hold this version of a bundle; or else the name of the version.
    pub(crate) fn holders(&self, slot: &Slot, version: &Version) -> Vec<String> {
        let held = self.snapshot().held_bundles.get(slot).into_iter().flatten().map(|held| self.held(slot, held));
        let names: Vec<String> = held.filter(|held| same_set(held, version)).map(|held| held.name).collect();
        if names.is_empty() { vec![version.name.clone()] } else { names }
    }

    /// Returns the versions of a certificate that processes were observed to hold.
    pub(crate) fn held_leaves(&self, slot: &Slot) -> Vec<Version> {
        let held = self.snapshot().held_secrets.get(slot).into_iter().flatten();
        held.map(|held| self.held(slot, held)).filter(|version| !version.members.is_empty()).collect()
    }

    /// Returns a stand-in for any certificate of a place that the signer may have signed, for all its names.
    pub(crate) fn any_leaf_by(&self, signer: &CertificateFacts, slot: &Slot, hosts: &[Host]) -> Version {
        let leaf = CertificateFacts { hosts: hosts.to_vec(), ..any_by(signer) };
        let (name, members) = (format!("{slot} by {}", signer.id), vec![Arc::new(leaf)]);
        Version { name, members, in_use: InUse::Always, evidence: Evidence::Assumed }
    }

    fn served(&self, slot: &Slot, state: &SecretState, evidence: Evidence) -> Version {
        let members = [&state.certificate.id].into_iter().chain(&state.chain);
        self.version(slot.to_string(), members, InUse::Always, evidence)
    }

    /// Returns the versions of "any certificate of this signer", the newest signer last: each in use until the signer expires.
    fn class_versions(&self, slot: &Slot) -> Vec<Version> {
        let Some(state) = self.secret(slot).present() else { return Vec::new() };
        let class = |signer: &CertificateFacts, in_use| Version {
            name: format!("certificates by {}", self.called(&signer.id)),
            members: vec![Arc::new(any_by(signer))],
            in_use,
            evidence: Evidence::Assumed,
        };
        let end = |signer: &CertificateFacts| signer.validity.first_after().unwrap_or(Timestamp::MAX);
        // A wrong clock issued a signer whose validity has not begun: no client has ever accepted its certificates.
        let begun = after(self.now(), self.clock_allowance());
        let past = state.superseded.iter().filter_map(|past| self.get(&past.certificate));
        let past = past.filter(|signer| signer.validity.not_before <= begun);
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

    /// Returns a readable name of a certificate: its subject and key instead of a fingerprint.
    fn called(&self, id: &CertificateId) -> String {
        match self.get(id) {
            Some(it) if id.is_fingerprint() => it.subject.to_string(),
            _ => id.to_string(),
        }
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

/// Returns the evidence for the newest version. Reading an object back proves only that it was published.
fn evidence(delivery: Delivery, is_watched: bool) -> Evidence {
    match delivery {
        _ if is_watched => Evidence::Observed,
        Delivery::Reloaded { .. } | Delivery::Indirect => Evidence::Assumed,
        Delivery::Revisioned | Delivery::Relayed { .. } => Evidence::Unknown,
        Delivery::Never => Evidence::Never,
    }
}

/// A list of different versions.
struct Versions {
    list: Vec<Version>,
}

impl Versions {
    /// Adds a version. A process with an empty version trusts and presents nothing, so the version is left out.
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

/// Returns a stand-in for any certificate of a signer, for any purpose and with the signer's validity.
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

pub(crate) fn after(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_add(span).unwrap_or(Timestamp::MAX)
}
