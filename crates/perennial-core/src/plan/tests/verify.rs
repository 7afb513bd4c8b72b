//! The trust matrix: until when each edge holds, on which evidence, and why it is broken.

use std::collections::BTreeMap;

use super::fixture::{Cluster, MINUTE, day, living};
use super::text::days;
use crate::trust::Evidence;
use crate::verify::{Checked, State};

const AGGREGATION: &str = "extension API server accepts aggregator-client of kube-apiserver";
const SIGNER: &str = "openshift-kube-apiserver-operator/aggregator-client-signer";

fn settled() -> Cluster<'static> {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    cluster
}

fn checked(cluster: &Cluster<'_>, edge: &str) -> Checked {
    let found = cluster.verify().into_iter().find(|it| it.edge == edge);
    found.unwrap_or_else(|| {
        panic!("{edge} is none of {:#?}", cluster.verify().iter().map(|it| it.edge.clone()).collect::<Vec<_>>())
    })
}

fn state(cluster: &Cluster<'_>, edge: &str) -> String {
    days(&match checked(cluster, edge).state {
        State::Holds { until, limited_by } => {
            format!("until {until} by {}", limited_by.map(|id| id.to_string()).unwrap_or_default())
        }
        State::Broken(broken) => format!("broken: {broken}"),
        State::Nothing => "nothing".to_owned(),
        State::Unknown { .. } => "unknown".to_owned(),
    })
}

#[test]
fn every_edge_of_a_settled_cluster_holds() {
    let cluster = settled();
    let verified = cluster.verify();
    assert!(verified.iter().all(|it| matches!(it.state, State::Holds { .. })), "{:#?}", cluster.broken());
    // Every edge of the catalog except those of the bootstrap control plane, for every node and Service.
    let edges = cluster.planner.wiring().edges().len();
    let several = verified.iter().filter(|it| it.row.contains("<node>") || it.row == "service-serving").count();
    let rows = cluster.planner.wiring().edges().iter().filter(|it| it.row.contains("<node>")).count();
    assert_eq!(several, 3 * rows + 2);
    assert_eq!(verified.len() - several, edges - rows - 1);
}

#[test]
fn an_edge_holds_as_long_as_its_best_path() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    assert_eq!(state(&cluster, AGGREGATION), "until day 30 by openshift-kube-apiserver/aggregator-client@day 0");
    // An anchor that expires earlier than the leaf limits the path.
    let signer = cluster.secret(SIGNER).certificate.clone();
    let mut shorter = signer.as_ref().clone();
    shorter.validity.not_after = day(20);
    cluster.snapshot.certificates.insert(shorter.into());
    assert_eq!(
        state(&cluster, AGGREGATION),
        "until day 20 by openshift-kube-apiserver-operator/aggregator-client-signer@day 0"
    );
    // A second anchor with the same key gives a longer path.
    cluster.change_secret(SIGNER, |state| *state = living(state, day(0), day(300)));
    cluster.settle();
    cluster.pass_to(day(3) + 15 * MINUTE);
    assert_eq!(state(&cluster, AGGREGATION), "until day 30 by openshift-kube-apiserver/aggregator-client@day 0");
}

#[test]
fn a_broken_edge_names_the_verifier_the_certificate_and_the_reason() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    assert_eq!(cluster.broken(), Vec::<String>::new());
    cluster.pass_to(day(30) + MINUTE);
    assert_eq!(
        state(&cluster, AGGREGATION),
        "broken: a process that holds openshift-kube-apiserver/aggregator-client-ca:ca-bundle.crt rejects \
         openshift-kube-apiserver/aggregator-client:tls.crt: the certificate is valid only from day -1+23:55 to day 30"
    );
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    cluster.change_secret(SIGNER, |state| *state = living(state, day(0), day(300)));
    let other = cluster.secret("openshift-kube-apiserver-operator/node-system-admin-signer").certificate.id.clone();
    let slot = super::fixture::ca("openshift-kube-apiserver/aggregator-client-ca");
    let mut bundle = cluster.snapshot.bundles[&slot].present().unwrap().clone();
    bundle.members = vec![other];
    cluster.snapshot.bundles.insert(slot, crate::snapshot::Observed::Present(bundle));
    assert!(state(&cluster, AGGREGATION).ends_with("is not trusted"), "{}", state(&cluster, AGGREGATION));
}

#[test]
fn an_edge_without_a_certificate_is_not_judged() {
    let cluster = Cluster::nothing();
    assert!(cluster.verify().iter().all(|it| it.state == State::Nothing));
}

#[test]
fn every_edge_has_its_weakest_evidence() {
    let evidence = |cluster: &Cluster<'_>, edge: &str| checked(cluster, edge).evidence;
    let mut cluster = settled();
    let peers = "etcd accepts etcd-peer-m0 of etcd as a server";
    assert_eq!(evidence(&cluster, AGGREGATION), Evidence::Assumed);
    assert_eq!(evidence(&cluster, peers), Evidence::Observed);
    assert_eq!(evidence(&cluster, "kubelet accepts kubelet-client of kube-apiserver"), Evidence::Assumed);
    assert_eq!(
        evidence(&cluster, "kubectl accepts external-loadbalancer-serving-certkey of kube-apiserver"),
        Evidence::Never
    );
    // A version that was not observed is unknown.
    cluster.snapshot.held_bundles.clear();
    assert_eq!(evidence(&cluster, peers), Evidence::Unknown);
}

#[test]
fn versions_that_processes_may_hold_are_counted() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3)).restarts = false;
    let peers = "etcd accepts etcd-peer-m0 of etcd as a server";
    assert_eq!(checked(&cluster, peers).versions, (1, 1));
    cluster.force("etcd-signer", "test");
    cluster.settle();
    assert_eq!(checked(&cluster, peers).versions, (2, 1)); // what runs, and what is written
    let edges: BTreeMap<String, (usize, usize)> =
        cluster.verify().into_iter().map(|it| (it.edge, it.versions)).collect();
    assert_eq!(edges[AGGREGATION], (1, 1));
}

#[test]
fn another_order_of_a_bundle_is_the_same_version() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3)).force("etcd-signer", "test");
    cluster.go_to(day(4));
    let held = cluster.snapshot.held_bundles.values_mut().flatten();
    held.for_each(|held| held.members.reverse());
    assert_eq!(checked(&cluster, "etcd accepts etcd-peer-m0 of etcd as a server").versions, (1, 1));
}
