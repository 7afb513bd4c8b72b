//! What was never there is held by nobody; what was there and is gone may be.

use super::fixture::{Cluster, SECOND, ca, day};

const SIGNER: &str = "openshift-kube-apiserver-operator/aggregator-client-signer";
const LEAF: &str = "openshift-kube-apiserver/aggregator-client";
const BUNDLE: &str = "openshift-config-managed/kube-apiserver-aggregator-client-ca";
/// What an extension API server reads.
const COPY: &str = "openshift-kube-apiserver/aggregator-client-ca";

/// Whether nobody can hold the bundle in this place without one of its members.
fn is_first(cluster: &Cluster<'_>, bundle: &str) -> bool {
    let state = cluster.snapshot.bundles[&ca(bundle)].present().unwrap();
    let first: Vec<bool> = state.published.values().map(|published| published.first).collect();
    assert!(!first.is_empty() && first.iter().all(|it| *it == first[0]), "{state:?}");
    first[0]
}

#[test]
fn a_new_cluster_is_not_broken_for_a_moment() {
    let mut cluster = Cluster::nothing();
    cluster.settle();
    assert_eq!(cluster.now(), day(0));
    // What static pods run with is not known here; of everybody else it is known that they have nothing older.
    let risks = cluster.plan().risks;
    assert!(risks.iter().all(|risk| risk.broken.bundle.contains(" without ")), "{risks:?}");
    assert!(is_first(&cluster, BUNDLE) && is_first(&cluster, COPY));
    assert!(is_first(&cluster, "openshift-kube-apiserver/client-ca"), "whoever presents something does so only now");
}

#[test]
fn what_comes_later_is_not_there_from_the_first() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.force("aggregator-client-signer", "test");
    cluster.settle();
    let state = cluster.snapshot.bundles[&ca(COPY)].present().unwrap();
    let first: Vec<bool> = state.members.iter().map(|id| state.published[id].first).collect();
    assert_eq!(first, [true, false], "{state:?}");
}

#[test]
fn a_bundle_that_was_deleted_may_be_held_by_whoever_it_serves() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.delete_bundle(BUNDLE);
    cluster.delete_bundle(COPY);
    cluster.settle();
    assert!(!is_first(&cluster, COPY), "its certificate is there, so it was there, too");
    assert!(is_first(&cluster, BUNDLE), "nobody reads it but who copies it");
}

#[test]
fn a_bundle_that_was_deleted_with_its_certificate_may_be_held_if_its_signer_followed_another() {
    let delete = |cluster: &mut Cluster<'_>| {
        cluster.delete_secret(LEAF);
        cluster.delete_bundle(COPY);
        cluster.go_to(cluster.now() + SECOND);
    };
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    delete(&mut cluster);
    assert!(is_first(&cluster, COPY), "whatever was held has the signer in it");
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.force("aggregator-client-signer", "test");
    cluster.settle();
    assert!(!cluster.secret(SIGNER).superseded.is_empty());
    delete(&mut cluster);
    assert!(!is_first(&cluster, COPY), "whoever held it before may lack the new one");
}
