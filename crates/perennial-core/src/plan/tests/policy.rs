//! Which key the plan asks for, and what a policy that changes, goes or cannot be read does to what exists.

use super::fixture::{Cluster, day, issue_of, issues};
use super::text::{days, short, text};
use crate::policy::{Category, Policy};
use crate::rules::{Observed, Reason, Waiting};

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

/// The key of a certificate that is made under a policy.
fn check(policy: Observed<Policy>, object: &str, expected: &str) {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.policy = policy;
    let report = cluster.plan();
    let issue = issue_of(&report.steps, object).unwrap();
    assert_eq!(format!("{} from {}", issue.spec.key, issue.key_source), expected, "{object}");
}

/// S07, S08, P01, P03, P09, P10: there is no mode here; an empty policy and none at all mean the platform's default.
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
fn the_certificate_is_named_and_not_its_secret() {
    let named = || policy("kube-apiserver-to-kubelet-client ECDSA P384; kubelet-client RSA 4096");
    check(named(), "openshift-kube-apiserver/kubelet-client", "ECDSA P384 from override");
    // What has no well-known name cannot be overridden.
    check(policy("service-serving RSA 4096"), "shop/web-tls", "RSA 2048 from platform");
}

/// P08.
#[test]
fn a_dual_use_certificate_gets_the_key_of_its_listed_category() {
    let both = || policy("ServingCertificate RSA 2048; ClientCertificate ECDSA P256");
    check(both(), "openshift-etcd/etcd-peer-m0", "RSA 2048 from category");
    check(both(), "shop/web-tls", "RSA 2048 from category");
}

#[test]
fn a_changed_policy_re_issues_nothing_and_holds_from_the_next_rotation_on() {
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

/// X08: a certificate by a signer with another kind of key is made all the same.
#[test]
fn what_a_policy_that_is_gone_asked_for_stays_until_its_next_rotation() {
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

/// P04, P05, P06, X09: the original falls back to its default; here what cannot be read changes nothing, and the cause is told.
#[test]
fn while_the_policy_cannot_be_read_what_exists_is_kept_for_four_fifths_of_its_life() {
    let leaf = "openshift-kube-apiserver/aggregator-client";
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).snapshot.policy = unreadable();
    assert_eq!(cluster.plan().waiting, Vec::new());
    let report = cluster.plan_at(day(15));
    assert_eq!(issues(&report.steps).len(), 0, "{}", text(&report));
    let waits = report.waiting.iter().find(|it| it.slot.object_text() == leaf).unwrap();
    assert_eq!(days(&short(&waits.waiting)), "the PKI resource cannot be read (forbidden); left as it is until day 24");
    assert_eq!(waits.reason, Some(Reason::PastRefresh { since: day(15) }));
    assert_eq!(report.next_look, day(24));
    let report = cluster.plan_at(day(24));
    let issue = issue_of(&report.steps, leaf).unwrap();
    assert_eq!(
        (&issue.reason, issue.spec.key.to_string()),
        (&Reason::PastEightyPercent { since: day(24) }, "RSA 2048".to_owned())
    );
    // What is read again goes on at once.
    cluster.snapshot.policy = policy("defaults RSA 4096");
    assert_eq!(issue_of(&cluster.plan_at(day(16)).steps, leaf).unwrap().spec.key.to_string(), "RSA 4096");
}

/// P05, X09.
#[test]
fn while_the_policy_cannot_be_read_what_is_absent_or_unusable_is_made_with_the_default() {
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
