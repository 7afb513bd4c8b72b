//! Property test: for every row, policy and time, the leaf does not outlive its signer and passes verification.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::{SignedDuration, Timestamp};
use perennial_core::catalog::{Catalog, ClusterFacts, Instance, Row, Scope, TimeScale};
use perennial_core::clocks::Clocks;
use perennial_core::issuance::Circumstances;
use perennial_core::key::KeySpec;
use perennial_core::policy::{Category, Policy, Usage};
use perennial_core::spec::{Host, Validity};
use perennial_x509::verify::{Purpose, Verification, verify};
use perennial_x509::{Certificate, Issuer, KeyPool, PrivateKey, issue, self_signed};
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// For each kind, the keys of a signer, an intermediate and a leaf.
static KEYS: LazyLock<BTreeMap<KeySpec, [PrivateKey; 3]>> = LazyLock::new(|| {
    let specs: Vec<KeySpec> = KeySpec::ALL.iter().flat_map(|&spec| [spec; 3]).collect();
    let pool = KeyPool::new(std::thread::available_parallelism().unwrap()).unwrap();
    let mut keys = pool.generate_all(&specs, |_, _| {}).into_iter().map(|key| key.unwrap().key);
    KeySpec::ALL.iter().map(|&spec| (spec, std::array::from_fn(|_| keys.next().unwrap()))).collect()
});

/// A certificate, its key, and its signers, nearest first.
struct Issued {
    certificate: Certificate,
    key: &'static PrivateKey,
    above: Vec<Certificate>,
    validity: Validity,
}

/// Issues the certificate of a row at `now`. `ages` is the used part of the validity of each signer.
fn issued(row: &Row, circumstances: &Circumstances<'_>, ages: &[f64], depth: usize) -> Issued {
    let instance = match row.scope {
        Scope::Cluster => Instance::Cluster,
        Scope::Node => Instance::Node { name: "n1".to_owned(), addresses: vec!["2001:db8::11".parse().unwrap()] },
        Scope::Service => {
            let [namespace, name, secret] = ["shop", "web", "web-tls"].map(str::to_owned);
            Instance::Service { namespace, name, secret, headless: ages[0] < 0.5, uid: "b6c1".to_owned() }
        }
    };
    let signer = circumstances.catalog.signer_of(row).map(|signer| {
        let life = signer.validity.scaled(circumstances.scale).as_secs_f64();
        // At least one second of the signer's validity is left; otherwise it could not issue.
        let age = SignedDuration::from_secs((life * ages[depth]) as i64 - 1).max(SignedDuration::ZERO);
        let then = Circumstances {
            clocks: Clocks::one(circumstances.clocks.now().checked_sub(age).unwrap()),
            ..*circumstances
        };
        issued(signer, &then, ages, depth + 1)
    });
    let spec = circumstances.issue(row, &instance, signer.as_ref().map(|signer| signer.validity)).unwrap().spec;
    let key = &KEYS[&spec.key][depth];
    let certificate = match &signer {
        None => self_signed(&spec, key),
        Some(signer) => issue(&spec, key.public_key(), &Issuer::new(&signer.certificate, signer.key).unwrap()),
    }
    .unwrap_or_else(|error| panic!("{}: {error}", row.id));
    let above = signer.map_or_else(Vec::new, |signer| [vec![signer.certificate], signer.above].concat());
    Issued { certificate, key, above, validity: spec.validity }
}

/// Returns all purposes of the row, with each name separately.
fn purposes(row: &Row, hosts: &[Host]) -> Vec<Purpose> {
    let mut purposes = Vec::new();
    if row.usage.serves() {
        // A wildcard matches any label; an address as text is not a name.
        let name = |host: &Host| match host {
            Host::Dns(name) => Host::parse(&name.replace('*', "pod-0")),
            Host::Ip(ip) => Host::Ip(*ip),
        };
        purposes.extend(hosts.iter().map(|host| Purpose::Server { name: Some(name(host)) }));
    }
    if row.usage.connects() {
        purposes.push(Purpose::Client);
    }
    if row.usage == Usage::Signer {
        purposes.push(Purpose::Any);
    }
    purposes
}

fn check(row: &Row, policy: &Policy, now: Timestamp, scale: TimeScale, ages: &[f64]) {
    let cluster = ClusterFacts {
        service_domain: "cluster.local".to_owned(),
        api_external: Some(Host::Dns("api.demo.example.com".to_owned())),
        api_internal: Some(Host::Ip("2001:db8::5".parse().unwrap())),
        service_networks: vec!["172.30.0.0/16".parse().unwrap(), "fd02::/112".parse().unwrap()],
        api_vips: vec!["192.0.2.5".parse().unwrap()],
        bootstrap_provisioning: Some("172.22.0.2".parse().unwrap()),
    };
    let catalog = Catalog::builtin();
    let leaf =
        issued(row, &Circumstances { catalog, cluster: &cluster, policy, clocks: Clocks::one(now), scale }, ages, 0);
    let facts = leaf.certificate.facts();
    assert_eq!(facts.public_key.kind().spec(), Some(catalog.key_of(policy, row).key), "{}", row.id);
    if let Some(signer) = leaf.above.first() {
        let signer = signer.facts().validity;
        assert!(signer.not_before <= facts.validity.not_before, "{} begins before its signer", row.id);
        assert!(facts.validity.not_after <= signer.not_after, "{} outlives its signer", row.id);
    }
    let (anchors, intermediates) = match leaf.above.split_last() {
        None => (vec![leaf.certificate.clone()], &[][..]),
        Some((root, between)) => (vec![root.clone()], between),
    };
    let whole_now = Timestamp::from_second(now.as_second()).unwrap();
    let after = facts.validity.not_after.checked_add(SignedDuration::from_secs(1)).unwrap();
    for purpose in purposes(row, &facts.hosts) {
        let accepted = |at| {
            verify(&Verification { leaf: &leaf.certificate, intermediates, anchors: &anchors, at, purpose: &purpose })
        };
        for at in [facts.validity.not_before, whole_now, facts.validity.not_after] {
            accepted(at).unwrap_or_else(|error| panic!("{} at {at} for {purpose:?}: {error}", row.id));
        }
        assert!(accepted(after).is_err(), "{} is accepted after its expiry", row.id);
    }
}

fn key() -> impl Strategy<Value = KeySpec> {
    select(&KeySpec::ALL[..])
}

fn policy() -> impl Strategy<Value = Policy> {
    let names: Vec<&'static str> = Catalog::builtin().well_known_names().collect();
    (
        proptest::option::of(key()),
        proptest::collection::btree_map(select(&Category::ALL[..]), key(), 0..=3),
        proptest::collection::btree_map(select(names).prop_map(str::to_owned), key(), 0..8),
    )
        .prop_map(|(defaults, categories, overrides)| Policy { defaults, categories, overrides })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_leaf_outlives_its_signer_or_fails_verification(
        row in any::<Index>(),
        policy in policy(),
        // From 1990 to 2149: across the change of time formats in 2050.
        now in 631_152_000_i64..5_680_000_000,
        divisor in select(vec![1_u32, 7, 360]),
        ages in proptest::collection::vec(0.0_f64..=1.0, 3),
    ) {
        let scale = TimeScale::divide_by(divisor).unwrap();
        check(row.get(&Catalog::builtin().rows), &policy, Timestamp::from_second(now).unwrap(), scale, &ages);
    }
}
