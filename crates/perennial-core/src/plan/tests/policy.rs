//! The key that the plan asks for, and the effect of a policy that changes, is deleted or cannot be read.

use super::fixture::{Cluster, day, issue_of, issues};
use super::text::{days, short, text};
use crate::policy::{Category, Policy};
use crate::rules::{Reason, Waiting};
use crate::snapshot::Observed;

/// A policy in words: `defaults RSA 3072; SignerCertificate RSA 4096; etcd-signer ECDSA P521`.
fn policy(words: &str) -> Observed<Policy> {
    let mut policy = Policy::default();
    for entry in words.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (level, key) = entry.split_once(' ').unwrap();
        let key = key.parse().unwrap();
        match Category::from_name(level) {
            _ if level == "defaults" => policy.defaults = Some(key),
            Some(category) => drop(policy.categories.insert(category, key)),
            None => drop(policy.overrides.insert(level.to_owned(), key)),
        }
    }
    Observed::Present(policy)
}

fn unreadable() -> Observed<Policy> {
    Observed::Unreadable { why: "forbidden".to_owned() }
}

/// Checks the key of a certificate that is issued with a policy.
fn check(policy: Observed<Policy>, object: &str, expected: &str) {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.policy = policy;
    let report = cluster.plan();
    let issue = issue_of(&report.steps, object).unwrap();
    assert_eq!(format!("{} from {}", issue.spec.key, issue.key_source), expected, "{object}");
}

/// There is no mode: an empty policy and an absent one both mean the platform's default.
#[test]
fn the_most_specific_level_of_the_policy_decides() {
    let all = || policy("defaults RSA 3072; SignerCertificate RSA 4096; etcd-signer ECDSA P521");
    check(all(), "openshift-etcd/etcd-signer", "ECDSA P521 from override");
    check(all(), "openshift-service-ca/signing-key", "RSA 4096 from category");
    check(all(), "openshift-kube-apiserver/aggregator-client", "RSA 3072 from defaults");
    check(policy(""), "openshift-kube-apiserver/aggregator-client", "RSA 2048 from platform");
    check(Observed::Absent, "openshift-kube-apiserver/aggregator-client", "RSA 2048 from platform");
    check(unreadable(), "openshift-kube-apiserver/aggregator-client", "RSA 2048 from platform");
}

#[test]
fn an_override_names_the_certificate_and_not_its_secret() {
    let named = || policy("kube-apiserver-to-kubelet-client ECDSA P384; kubelet-client RSA 4096");
    check(named(), "openshift-kube-apiserver/kubelet-client", "ECDSA P384 from override");
    // A certificate without a well-known name cannot be overridden.
    check(policy("service-serving RSA 4096"), "shop/web-tls", "RSA 2048 from platform");
}

#[test]
fn a_dual_use_certificate_gets_the_key_of_its_listed_category() {
    let both = || policy("ServingCertificate RSA 2048; ClientCertificate ECDSA P256");
    check(both(), "openshift-etcd/etcd-peer-m0", "RSA 2048 from category");
    check(both(), "shop/web-tls", "RSA 2048 from category");
}

#[test]
fn a_changed_policy_reissues_nothing_and_applies_from_the_next_rotation_on() {
    let leaf = "openshift-kube-apiserver/aggregator-client";
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).snapshot.policy = policy("defaults ECDSA P384; etcd-signer ECDSA P521");
    assert_eq!(cluster.plan().steps, Vec::new());
    let natural = cluster.plan_at(day(15));
    assert_eq!(issue_of(&natural.steps, leaf).unwrap().spec.key.to_string(), "ECDSA P384");
    cluster.force("etcd-signer", "stronger key");
    let forced = cluster.plan();
    let [issue] = issues(&forced.steps)[..] else { panic!("{}", text(&forced)) };
    assert_eq!((issue.row, issue.spec.key.to_string().as_str()), ("etcd-signer", "ECDSA P521"));
}

/// A leaf is issued even if its signer has another kind of key.
#[test]
fn a_deleted_policy_has_no_effect_until_the_next_rotation() {
    let leaf = "openshift-kube-apiserver/aggregator-client";
    let mut cluster = Cluster::nothing();
    cluster.snapshot.policy = policy("defaults ECDSA P384");
    cluster.settle();
    cluster.roll();
    cluster.go_to(day(2)).snapshot.policy = Observed::Absent;
    assert_eq!(cluster.plan().steps, Vec::new());
    let report = cluster.plan_at(day(15));
    let issue = issue_of(&report.steps, leaf).unwrap();
    let (signer, _) = issue.signer.clone().unwrap();
    assert_eq!((issue.spec.key.to_string().as_str(), cluster.is_by(leaf, signer.object_text())), ("RSA 2048", true));
}

/// The original operator falls back to its default. Perennial changes nothing while the policy is unreadable, and reports the error.
#[test]
fn existing_certificates_are_kept_until_eighty_percent_of_their_validity_while_the_policy_is_unreadable() {
    let leaf = "openshift-kube-apiserver/aggregator-client";
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).snapshot.policy = unreadable();
    assert_eq!(cluster.plan().waiting, Vec::new());
    let report = cluster.plan_at(day(15));
    assert_eq!(issues(&report.steps).len(), 0, "{}", text(&report));
    let waits = report.waiting.iter().find(|it| it.slot.object_text() == leaf).unwrap();
    assert_eq!(
        days(&short(&waits.waiting)),
        "the PKI resource cannot be read (forbidden); the existing certificate stays until day 24"
    );
    assert_eq!(waits.reason, Some(Reason::PastRefresh { since: day(15) }));
    assert_eq!(report.next_look, day(24));
    let report = cluster.plan_at(day(24));
    let issue = issue_of(&report.steps, leaf).unwrap();
    assert_eq!(
        (&issue.reason, issue.spec.key.to_string()),
        (&Reason::PastEightyPercent { since: day(24) }, "RSA 2048".to_owned())
    );
    // When the policy can be read again, the rotation continues at once.
    cluster.snapshot.policy = policy("defaults RSA 4096");
    assert_eq!(issue_of(&cluster.plan_at(day(16)).steps, leaf).unwrap().spec.key.to_string(), "RSA 4096");
}

#[test]
fn absent_or_unusable_certificates_get_the_default_key_while_the_policy_is_unreadable() {
    let leaf = "openshift-kube-apiserver/aggregator-client";
    for found in [Observed::Absent, Observed::Unreadable { why: "no PEM".to_owned() }] {
        let mut cluster = Cluster::made();
        cluster.go_to(day(2)).snapshot.policy = unreadable();
        cluster.set_secret(leaf, found);
        let report = cluster.plan();
        assert_eq!(issue_of(&report.steps, leaf).unwrap().spec.key.to_string(), "RSA 2048");
        assert!(!report.waiting.iter().any(|it| matches!(it.waiting, Waiting::Policy { .. })));
    }
}
