//! Bundles of other writers, and nodes and Services that are added and removed.

use std::collections::BTreeMap;
use std::sync::Arc;

use expect_test::expect;
use jiff::Timestamp;

use super::fixture::{Cluster, ca, day, issues, living, service, tls};
use super::text::{days, steps, text, waiting};
use crate::snapshot::{BundleState, Mode, Observed};
use crate::spec::Validity;
use crate::trust::{CertificateFacts, CertificateId, KeyId, PathLength, Principal};

const THEIRS: &str = "openshift-kube-apiserver/user-client-ca";
const OURS: &str = "openshift-kube-apiserver/client-ca";

/// Writes an administrator's own client CAs to their ConfigMap.
fn bring(cluster: &mut Cluster<'_>, names: &[&str]) {
    let mut members = Vec::new();
    for name in names {
        let subject = Principal { name: (*name).into(), key: KeyId((*name).into()) };
        let certificate = CertificateFacts {
            id: CertificateId((*name).into()),
            signed_by: Some(subject.clone()),
            subject,
            validity: Validity { not_before: day(0), not_after: day(50) },
            ca: Some(PathLength::Unlimited),
            serves: true,
            connects: true,
            hosts: Vec::new(),
        };
        members.push(certificate.id.clone());
        cluster.snapshot.certificates.insert(Arc::new(certificate));
    }
    let state = BundleState { members, damage: Vec::new(), is_canonical: false, published: BTreeMap::new() };
    cluster.snapshot.bundles.insert(ca(THEIRS), Observed::Present(state));
}

fn theirs(cluster: &Cluster<'_>) -> Vec<String> {
    let members = cluster.bundle(OURS).members.iter().map(ToString::to_string);
    members.filter(|id| !id.contains('@')).collect()
}

#[test]
fn a_foreign_ca_is_trusted_while_its_bundle_contains_it() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    bring(&mut cluster, &["acme", "initech"]);
    cluster.settle();
    assert_eq!(theirs(&cluster), ["acme", "initech"]);
    cluster.go_to(day(3));
    bring(&mut cluster, &["acme"]);
    let done = cluster.settle();
    assert_eq!(theirs(&cluster), ["acme"], "{}", steps(&done));
    assert_eq!(issues(&done).len(), 0);
}

#[test]
fn an_unreadable_foreign_bundle_removes_no_ca() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    bring(&mut cluster, &["acme", "initech"]);
    cluster.settle();
    bring(&mut cluster, &["acme"]);
    let Some(Observed::Present(state)) = cluster.snapshot.bundles.get_mut(&ca(THEIRS)) else { panic!("it is there") };
    state.damage.push("block 2 is no certificate".to_owned());
    cluster.settle();
    assert_eq!(theirs(&cluster), ["acme", "initech"]);
}

#[test]
fn a_service_cannot_ask_for_a_secret_of_the_cluster() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    let signer = "openshift-etcd/etcd-signer";
    let before = cluster.secret(signer).certificate.id.clone();
    let wanted = crate::snapshot::Service { name: "greedy".to_owned(), ..crate::snapshot::Service::default() };
    cluster.snapshot.services.found_mut().insert(tls(signer), wanted);
    let report = cluster.plan();
    assert_eq!(issues(&report.steps).len(), 0);
    assert!(waiting(&report).contains("etcd-signer manages openshift-etcd/etcd-signer"), "{}", waiting(&report));
    cluster.settle();
    assert_eq!(cluster.secret(signer).certificate.id, before);
}

/// Returns a cluster in which an administrator has replaced a certificate by one of another CA and has then removed that CA. Recovery
/// leaves the certificate until it expires.
fn taken_back(certificate_until: Timestamp, ca_until: Timestamp) -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    bring(&mut cluster, &["acme"]);
    let mut acme = cluster.snapshot.certificates.get(&CertificateId("acme".into())).unwrap().as_ref().clone();
    acme.validity.not_after = ca_until;
    let signer = acme.subject.clone();
    cluster.snapshot.certificates.insert(Arc::new(acme));
    cluster.go_to(day(3)).snapshot.settings.mode = Mode::OnlyWhenExpired;
    cluster.change_secret("openshift-kube-apiserver/check-endpoints-client-cert-key", |state| {
        *state = living(state, day(0), certificate_until);
        Arc::make_mut(&mut state.certificate).signed_by = Some(signer);
    });
    bring(&mut cluster, &[]);
    cluster
}

#[test]
fn a_removed_foreign_ca_stays_while_a_certificate_needs_it() {
    let mut cluster = taken_back(day(10), day(50));
    let report = cluster.plan();
    assert_eq!(steps(&report.steps), "");
    expect![[r#"
        wait openshift-kube-apiserver/client-ca: until day 10+00:00:01, because it would break: kube-apiserver accepts check-endpoints-client-cert-key of check-endpoints
    "#]].assert_eq(&waiting(&report));
    // Shortly before the certificate expires, the edge becomes a risk, and the planner runs then.
    super::next_look::check_looks(&mut cluster.clone(), day(11), false);
    cluster.go_to(day(10));
    let report = cluster.plan();
    let [risk] = &report.risks[..] else { panic!("{}", text(&report)) };
    assert!(risk.edge.starts_with("kube-apiserver accepts check-endpoints-client-cert-key"), "{risk}");
    assert_eq!(days(&risk.at.to_string()), "day 10+00:00:01");
    assert_eq!(theirs(&cluster), ["acme"]);
    cluster.go_to(day(11));
    assert_eq!(theirs(&cluster), [""; 0]);
}

#[test]
fn a_removed_foreign_ca_that_a_certificate_needs_without_end_stays_until_a_change() {
    let report = taken_back(Timestamp::MAX, Timestamp::MAX).plan();
    expect![[r#"
        wait openshift-kube-apiserver/client-ca: until something changes, because it would break: kube-apiserver accepts check-endpoints-client-cert-key of check-endpoints
    "#]].assert_eq(&waiting(&report));
}

#[test]
fn a_deleted_foreign_bundle_removes_no_ca() {
    for found in [Observed::Absent, Observed::Unreadable { why: "no PEM".to_owned() }] {
        let mut cluster = Cluster::made();
        cluster.go_to(day(2));
        bring(&mut cluster, &["acme"]);
        cluster.settle();
        cluster.snapshot.bundles.insert(ca(THEIRS), found);
        assert_eq!(cluster.plan().steps, Vec::new());
        assert_eq!(theirs(&cluster), ["acme"]);
    }
}

#[test]
fn an_expired_foreign_ca_is_removed() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    bring(&mut cluster, &["acme"]);
    cluster.go_to(day(50));
    assert_eq!(theirs(&cluster), ["acme"]);
    assert_eq!(days(&cluster.plan().next_look.to_string()), "day 50+00:05:01");
    cluster.go_to(day(51));
    assert_eq!(theirs(&cluster), [""; 0]);
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn a_new_service_gets_a_certificate_and_a_deleted_service_affects_no_other() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).snapshot.services.found_mut().insert(tls("shop/new-tls"), service("new", false));
    cluster.snapshot.complete(cluster.planner.wiring());
    let done = cluster.settle();
    assert_eq!(issues(&done).iter().map(|issue| issue.slot.object_text()).collect::<Vec<_>>(), ["shop/new-tls"]);
    assert_eq!(done.len(), 1);
    cluster.snapshot.services.found_mut().remove(&tls("shop/web-tls"));
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn a_node_whose_address_changes_gets_other_certificates() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).snapshot.nodes.found_mut().insert("m1".to_owned(), vec!["10.0.9.9".parse().unwrap()]);
    let done = cluster.settle();
    let objects: Vec<&str> = issues(&done).iter().map(|issue| issue.slot.object_text()).collect();
    assert_eq!(
        objects,
        ["openshift-etcd/etcd-peer-m1", "openshift-etcd/etcd-serving-m1", "openshift-etcd/etcd-serving-metrics-m1"]
    );
}
