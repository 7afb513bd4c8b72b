//! The Services that represent all others in a proof.
//!
//! Two certificates are in one [`Class`] if every client judges them equally, apart from their expiry. The proof of a write to the
//! service CA or its bundle checks only the certificate of each class that expires last: as long as processes present any valid
//! certificate of a class, they also present that one, and it is valid. So a write that breaks any certificate of the class breaks
//! that one. The proof over the representatives rejects exactly the writes that the proof over all Services rejects.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::catalog::SERVING_ROW;
use crate::key::KeySpec;
use crate::plan::{Draft, Planner};
use crate::snapshot::{Slot, Snapshot};
use crate::spec::Host;
use crate::trust::{CertificateFacts, CertificateId, EdgeState, InUse, Principal, Version, is_good_for};

/// A class of certificates of Services that every client judges equally, apart from their expiry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Class {
    /// The principal that signed the certificate.
    pub signed_by: Option<Principal>,
    /// The certificate itself, if it is self-signed: a bundle may contain the certificate as an anchor.
    pub own: Option<CertificateId>,
    /// The certificates that are served with it, without expired ones, which help no client.
    pub chain: Vec<CertificateId>,
    /// True if the certificate is for a server with the names of its Service. Clients reject all others, regardless of the signer.
    pub is_for_service: bool,
    /// The start of the validity, if that is in the future.
    pub begins_at: Option<Timestamp>,
    /// The kind of key; none for a kind that no policy can ask for. Clients do not distinguish kinds, but certificates are counted
    /// by kind.
    pub key: Option<KeySpec>,
}

/// A certificate that processes of a Service may present.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Presented {
    /// The class of the certificate.
    pub class: Class,
    /// The last instant at which a process presents the certificate and the certificate is valid.
    pub until: Timestamp,
}

/// Returns the certificates that processes of the Service with this slot may present.
///
/// The certificate in the Secret is the first, then earlier ones that may still be in use. The result is empty if the Secret has no
/// readable certificate.
pub fn presented(planner: &Planner<'_>, snapshot: &Snapshot, slot: &Slot, key: Option<KeySpec>) -> Vec<Presented> {
    let wiring = planner.wiring();
    let (Some(instance), Some(wired)) = (snapshot.service(slot), wiring.row(SERVING_ROW)) else { return Vec::new() };
    let draft = Draft::new(snapshot);
    let hosts: Arc<[Host]> =
        wired.row.resolve_hosts(&snapshot.cluster, &instance).map(Arc::from).unwrap_or_else(|_| Arc::from([]));
    let edges = wired.edges.iter().map(|edge| &wiring.edges()[*edge]);
    let states = edges.map(|edge| draft.edge_state(edge, wired.row, &instance, &hosts));
    let mut found: Vec<Presented> = Vec::new();
    for state in states {
        let newest = state.leaves.len().saturating_sub(1);
        for (number, version) in state.leaves.iter().enumerate().rev() {
            let key = key.filter(|_| number == newest);
            let Some(new) = Presented::of(&state, version, key, snapshot.taken_at) else { continue };
            match found.iter_mut().find(|it| it.class == new.class) {
                Some(known) => known.until = known.until.max(new.until),
                None => found.push(new),
            }
        }
    }
    found
}

/// Returns, for each class, the Service with the certificate that expires last; the first one if several expire together.
pub fn representatives<'c, T>(presented: impl IntoIterator<Item = (&'c Class, Timestamp, T)>) -> Vec<T> {
    let mut last: BTreeMap<&Class, (Timestamp, T)> = BTreeMap::new();
    for (class, until, service) in presented {
        match last.get(class) {
            Some((best, _)) if until <= *best => {}
            _ => drop(last.insert(class, (until, service))),
        }
    }
    last.into_values().map(|(_, service)| service).collect()
}

impl Presented {
    fn of(edge: &EdgeState, version: &Version, key: Option<KeySpec>, now: Timestamp) -> Option<Presented> {
        let (leaf, chain) = version.members.split_first()?;
        let is_alive = |it: &&Arc<CertificateFacts>| now <= it.validity.not_after;
        let class = Class {
            signed_by: leaf.signed_by.clone(),
            own: (leaf.signed_by.as_ref() == Some(&leaf.subject)).then(|| leaf.id.clone()),
            chain: chain.iter().filter(is_alive).map(|it| it.id.clone()).collect(),
            is_for_service: is_good_for(leaf, edge.purpose, &edge.hosts),
            begins_at: Some(leaf.validity.not_before).filter(|at| now < *at),
            key,
        };
        let in_use = match version.in_use {
            InUse::Always => Timestamp::MAX,
            InUse::Until(end) => end.checked_sub(SignedDuration::from_nanos(1)).unwrap_or(end),
        };
        Some(Presented { class, until: leaf.validity.not_after.min(in_use) })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeSet, HashMap};

    use proptest::prelude::*;

    use super::*;
    use crate::catalog::index::Wiring;
    use crate::catalog::{Catalog, ClusterFacts, ObjectName, SERVICE_CA_BUNDLE};
    use crate::plan::{after, every_edge, states};
    use crate::snapshot::{BundleState, Observed, Published, SecretState, Service, Superseded};
    use crate::spec::Validity;
    use crate::trust::fixtures::{day, world};
    use crate::trust::{Write, prove};

    /// The day of the write.
    const NOW: i64 = 100;

    /// The CAs and their cross-certificates. Some cross-certificates have expired, and some are not valid yet.
    const CAS: &str = "
        ca a days 0 to 130
        ca b days 40 to 500
        ca c days 80 to 900
        ca b by a days 40 to 130
        ca c by b days 80 to 500
        ca a by b days 40 to 90
        ca b by c days 110 to 500";

    /// A certificate that a Service presents now, or presented earlier.
    #[derive(Debug, Clone)]
    struct Leaf {
        signer: usize,
        chain: BTreeSet<usize>,
        begins: i64,
        ends: i64,
        is_for_service: bool,
        /// The number of days since the certificate was superseded.
        superseded: i64,
    }

    /// A write of the bundle: the members before, each with the day of its publication, and the members after.
    #[derive(Debug, Clone)]
    struct Change {
        before: BTreeMap<usize, i64>,
        after: BTreeSet<usize>,
    }

    fn any_leaf() -> impl Strategy<Value = Leaf> {
        let chain = prop::collection::btree_set(3..7_usize, 0..3);
        // Most leaves are alike, so that classes have several members.
        let begins = prop_oneof![4 => Just(60_i64), 1 => Just(NOW + 5)];
        let ends = 95..160_i64;
        let fields = (0..4_usize, chain, begins, ends, prop::bool::weighted(0.9), 0..900_i64);
        fields.prop_map(|(signer, chain, begins, ends, is_for_service, superseded)| Leaf {
            signer,
            chain,
            begins,
            ends,
            is_for_service,
            superseded,
        })
    }

    fn any_change() -> impl Strategy<Value = Change> {
        let before = prop::collection::btree_map(0..7_usize, 0..NOW, 1..6);
        let after = prop::collection::btree_set(0..7_usize, 1..6);
        (before, after).prop_map(|(before, after)| Change { before, after })
    }

    struct Scene {
        planner: Planner<'static>,
        cas: Vec<Arc<CertificateFacts>>,
        snapshot: Snapshot,
    }

    impl Scene {
        fn new(services: &[Vec<Leaf>], change: &Change) -> Scene {
            let planner = Planner::new(Catalog::builtin());
            let cluster = ClusterFacts {
                service_domain: "cluster.local".to_owned(),
                api_external: None,
                api_internal: None,
                service_networks: Vec::new(),
                api_vips: Vec::new(),
                bootstrap_provisioning: None,
            };
            let known = world(CAS);
            let names = CAS.lines().map(str::trim).filter(|line| !line.is_empty());
            let cas = names.map(|line| {
                let id = line.trim_start_matches("ca ").split(" days").next().unwrap();
                known.get(&CertificateId(id.into())).unwrap().clone()
            });
            let cas: Vec<Arc<CertificateFacts>> = cas.collect();
            let mut snapshot = Snapshot::empty(planner.wiring(), cluster, day(NOW));
            cas.iter().for_each(|it| snapshot.certificates.insert(it.clone()));
            let mut scene = Scene { planner, cas, snapshot };
            for (number, leaves) in services.iter().enumerate() {
                scene.serve(number, leaves);
            }
            scene.publish(&change.before.keys().copied().collect(), &change.before);
            scene
        }

        /// Adds a Service with these certificates. The first certificate is in its Secret.
        fn serve(&mut self, number: usize, leaves: &[Leaf]) {
            let (service, secret) = (format!("web-{number}"), format!("web-{number}-tls"));
            let slot = Slot::tls(&ObjectName { namespace: "shop".to_owned(), name: secret });
            let service = Service { name: service, ..Service::default() };
            self.snapshot.services.found_mut().insert(slot.clone(), service);
            let instance = self.snapshot.service(&slot).unwrap();
            let row = Catalog::builtin().row(SERVING_ROW).unwrap();
            let hosts = row.resolve_hosts(&self.snapshot.cluster, &instance).unwrap();
            let mut versions = leaves.iter().enumerate().map(|(version, leaf)| {
                let id = format!("{slot} {version}");
                let facts = CertificateFacts {
                    id: CertificateId(id.clone().into()),
                    subject: Principal { name: id.clone().into(), key: crate::trust::KeyId(id.into()) },
                    // The last number stands for an unknown signer.
                    signed_by: self.cas[..3].get(leaf.signer).map(|it| it.subject.clone()),
                    validity: Validity { not_before: day(leaf.begins), not_after: day(leaf.ends) },
                    ca: None,
                    serves: true,
                    connects: false,
                    hosts: if leaf.is_for_service { hosts.clone() } else { Vec::new() },
                };
                let chain: Vec<CertificateId> = leaf.chain.iter().map(|it| self.cas[*it].id.clone()).collect();
                (Arc::new(facts), chain, day(NOW - leaf.superseded))
            });
            let (current, chain, _) = versions.next().unwrap();
            let past: Vec<_> = versions.collect();
            let superseded = past.iter().map(|(facts, chain, at)| Superseded {
                certificate: facts.id.clone(),
                chain: chain.clone(),
                at: *at,
                lag_override: None,
            });
            let state =
                SecretState { chain, superseded: superseded.collect(), ..SecretState::new(current.clone(), None) };
            past.iter().for_each(|(facts, ..)| self.snapshot.certificates.insert(facts.clone()));
            self.snapshot.certificates.insert(current);
            self.snapshot.secrets.insert(slot, Observed::Present(state));
        }

        /// Writes the bundle and its copies.
        fn publish(&mut self, members: &BTreeSet<usize>, since: &BTreeMap<usize, i64>) {
            let state = BundleState {
                members: members.iter().map(|it| self.cas[*it].id.clone()).collect(),
                damage: Vec::new(),
                is_canonical: true,
                published: members
                    .iter()
                    .map(|it| {
                        let at = day(since.get(it).copied().unwrap_or(NOW));
                        let published = Published { at, from: None, first: false, reached: None, lag_override: None };
                        (self.cas[*it].id.clone(), published)
                    })
                    .collect(),
            };
            let wired = self.planner.wiring().bundle(SERVICE_CA_BUNDLE).unwrap();
            let slots = [&wired.home].into_iter().chain(wired.copies.iter().map(|(slot, _)| slot));
            let slots: Vec<Slot> = slots.cloned().collect();
            slots
                .into_iter()
                .for_each(|slot| drop(self.snapshot.bundles.insert(slot, Observed::Present(state.clone()))));
        }

        /// True if the proof over these Services permits the write.
        fn permits(&self, change: &Change, services: &BTreeSet<Slot>) -> bool {
            let mut before = self.snapshot.clone();
            before.services.found_mut().retain(|slot, _| services.contains(slot));
            let mut scene =
                Scene { planner: Planner::new(Catalog::builtin()), cas: self.cas.clone(), snapshot: before };
            let wiring = Wiring::new(Catalog::builtin());
            let edges = |snapshot: &Snapshot| {
                let draft = Draft::new(snapshot);
                let mut edges = every_edge(&wiring, &draft);
                edges.retain(|it| wiring.edges()[it.edge].row == SERVING_ROW);
                states(&wiring, &draft, &edges)
            };
            let before = edges(&scene.snapshot);
            scene.publish(&change.after, &change.before);
            let (now, horizon) = (day(NOW), after(day(NOW), SignedDuration::from_hours(24 * 400)));
            prove(&Write { before: &before, after: &edges(&scene.snapshot), now, horizon }).is_ok()
        }

        fn all(&self) -> BTreeSet<Slot> {
            self.snapshot.services.found().keys().cloned().collect()
        }

        fn representatives(&self) -> BTreeSet<Slot> {
            let all = self.all();
            let found: HashMap<&Slot, Vec<Presented>> =
                all.iter().map(|slot| (slot, presented(&self.planner, &self.snapshot, slot, None))).collect();
            let found =
                found.iter().flat_map(|(slot, all)| all.iter().map(|it| (&it.class, it.until, (*slot).clone())));
            representatives(found).into_iter().collect()
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 3000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_proof_over_representatives_permits_what_the_proof_over_all_services_permits(
            services in prop::collection::vec(prop::collection::vec(any_leaf(), 1..4), 1..9),
            change in any_change(),
        ) {
            let scene = Scene::new(&services, &change);
            let (all, few) = (scene.all(), scene.representatives());
            prop_assert!(few.is_subset(&all));
            prop_assert_eq!(scene.permits(&change, &few), scene.permits(&change, &all), "of {:?}, {:?} stand for all", all, few);
        }
    }

    fn leaf(signer: usize, ends: i64) -> Leaf {
        Leaf { signer, chain: BTreeSet::new(), begins: 60, ends, is_for_service: true, superseded: 0 }
    }

    #[test]
    fn one_service_stands_for_all_of_its_class() {
        let change = Change { before: [(0, 0), (1, 40)].into(), after: [1].into() };
        let same: Vec<Vec<Leaf>> = (0..8).map(|number| vec![leaf(1, 110 + number)]).collect();
        let scene = Scene::new(&same, &change);
        assert_eq!(scene.representatives().len(), 1);
        assert!(scene.permits(&change, &scene.all()));
        // A certificate of another signer needs the CA that the write removes.
        let scene = Scene::new(&[same, vec![vec![leaf(0, 120)]]].concat(), &change);
        assert_eq!(scene.representatives().len(), 2);
        assert!(!scene.permits(&change, &scene.representatives()));
    }

    #[test]
    fn a_service_whose_pods_may_present_an_earlier_certificate_stands_for_those_too() {
        let change = Change { before: [(0, 0), (1, 40)].into(), after: [1].into() };
        let scene = Scene::new(&[vec![leaf(1, 150)], vec![leaf(1, 140), leaf(0, 120)]], &change);
        assert_eq!(scene.representatives().len(), 2);
        assert!(!scene.permits(&change, &scene.representatives()));
    }

    #[test]
    fn a_certificate_that_clients_reject_anyway_stands_for_no_other() {
        let change = Change { before: [(0, 0), (1, 40)].into(), after: [1].into() };
        let wrong = Leaf { is_for_service: false, ..leaf(0, 150) };
        let later = Leaf { begins: NOW + 50, ..leaf(0, 155) };
        let scene = Scene::new(&[vec![wrong], vec![later], vec![leaf(0, 120)]], &change);
        assert_eq!(scene.representatives().len(), 3);
        assert!(!scene.permits(&change, &scene.representatives()));
    }
}
