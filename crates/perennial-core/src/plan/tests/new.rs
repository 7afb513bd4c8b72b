//! No process holds a certificate or bundle that never existed; a process may hold one that existed and was deleted.

use super::fixture::{Cluster, SECOND, ca, day};
use crate::plan::Action;
use crate::snapshot::Observed;

const SIGNER: &str = "openshift-kube-apiserver-operator/aggregator-client-signer";
const LEAF: &str = "openshift-kube-apiserver/aggregator-client";
const BUNDLE: &str = "openshift-config-managed/kube-apiserver-aggregator-client-ca";
/// The bundle that an extension API server reads.
const COPY: &str = "openshift-kube-apiserver/aggregator-client-ca";

/// Returns true if no process can hold the bundle in this place without one of its members.
fn is_first(cluster: &Cluster<'_>, bundle: &str) -> bool {
    let state = cluster.snapshot.bundles[&ca(bundle)].present().unwrap();
    let first: Vec<bool> = state.published.values().map(|published| published.first).collect();
    assert!(!first.is_empty() && first.iter().all(|it| *it == first[0]), "{state:?}");
    first[0]
}

#[test]
fn a_new_cluster_has_no_broken_edge_at_any_time() {
    let mut cluster = Cluster::nothing();
    cluster.settle();
    assert_eq!(cluster.now(), day(0));
    // Here the versions in static pods are unknown; all other processes are known to hold nothing older.
    let risks = cluster.plan().risks;
    assert!(risks.iter().all(|risk| risk.broken.bundle.contains(" without ")), "{risks:?}");
    assert!(is_first(&cluster, BUNDLE) && is_first(&cluster, COPY));
    assert!(is_first(&cluster, "openshift-kube-apiserver/client-ca"), "all certificates are new");
}

#[test]
fn a_later_member_is_not_recorded_as_first() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.force("aggregator-client-signer", "test");
    cluster.settle();
    let state = cluster.snapshot.bundles[&ca(COPY)].present().unwrap();
    let first: Vec<bool> = state.members.iter().map(|id| state.published[id].first).collect();
    assert_eq!(first, [true, false], "{state:?}");
}

#[test]
fn processes_may_hold_a_deleted_bundle_if_a_leaf_of_it_exists() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.delete_bundle(BUNDLE);
    cluster.delete_bundle(COPY);
    cluster.settle();
    assert!(!is_first(&cluster, COPY), "its certificate is there, so it was there, too");
    assert!(is_first(&cluster, BUNDLE), "only its copies read it");
}

#[test]
fn processes_may_hold_a_deleted_bundle_if_its_signer_replaced_another() {
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
    assert!(!is_first(&cluster, COPY), "an earlier holder may lack the new CA");
}

/// An upgrade adds a row below a signer that was just rotated.
#[test]
fn a_certificate_that_never_existed_does_not_wait_for_a_new_signer() {
    let rotated = || {
        let mut cluster = Cluster::made();
        cluster.go_to(day(1));
        cluster.force("aggregator-client-signer", "test");
        cluster.settle();
        cluster
    };
    let mut never = rotated();
    never.delete_secret(LEAF);
    never.snapshot.deleted.clear();
    assert!(issues(&never, LEAF), "{:?}", never.plan().waiting);
    // A process may present a damaged or deleted certificate, which the new one would replace.
    let mut damaged = rotated();
    damaged.set_secret(LEAF, Observed::Unreadable { why: "no PEM".to_owned() });
    assert!(!issues(&damaged, LEAF));
    let mut deleted = rotated();
    deleted.delete_secret(LEAF);
    assert!(!issues(&deleted, LEAF));
}

fn issues(cluster: &Cluster<'_>, object: &str) -> bool {
    let mut steps = cluster.plan().steps.into_iter();
    steps.any(|step| step.object == object && matches!(step.action, Action::Issue(_)))
}
