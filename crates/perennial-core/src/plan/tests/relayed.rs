//! Relayed bundles: which readers behind a static pod have which certificates, across restarts.

use expect_test::expect;
use jiff::Timestamp;

use super::fixture::{Cluster, HOUR, MINUTE, ca, day, tls};
use super::text::{days, steps};
use crate::snapshot::{Held, Published};
use crate::trust::CertificateId;

const BUNDLE: &str = "openshift-kube-controller-manager/serviceaccount-ca";
const SIGNER: &str = "openshift-kube-apiserver-operator/service-network-serving-signer";
const LEAF: &str = "openshift-kube-apiserver/service-network-serving-certkey";

/// Returns a cluster whose signer was forced to rotate on day 2, and whose static pods have the bundle half an hour later.
fn rotating() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).force("service-network-serving-signer", "test");
    cluster.force("service-network-serving-certkey", "test");
    cluster.go_to(day(2) + 30 * MINUTE);
    cluster
}

fn newest(cluster: &Cluster<'_>) -> CertificateId {
    cluster.secret(SIGNER).certificate.id.clone()
}

fn published(cluster: &Cluster<'_>) -> Published {
    cluster.bundle(BUNDLE).published[&newest(cluster)].clone()
}

fn holders<'c>(cluster: &'c mut Cluster<'_>) -> &'c mut Vec<Held> {
    cluster.snapshot.held_bundles.get_mut(&ca(BUNDLE)).unwrap()
}

/// Returns when the leaf of the new signer is issued, if no static pod restarts again.
fn follows_at(cluster: &mut Cluster<'_>) -> String {
    cluster.restarts = false;
    cluster.go_to(day(3));
    let leaf = &cluster.snapshot.secrets[&tls(LEAF)].present().unwrap();
    let issued = if cluster.is_by(LEAF, SIGNER) { leaf.issued_at.map(|at| at.to_string()) } else { None };
    days(&issued.unwrap_or_else(|| "never".to_owned()))
}

#[test]
fn a_restart_of_a_relay_does_not_reset_its_readers() {
    let mut cluster = rotating();
    cluster.go_to(day(3));
    assert!(cluster.is_by(LEAF, SIGNER));
    // A restart for another reason, with the same content.
    cluster.roll();
    assert_eq!((cluster.broken(), cluster.plan().risks), (vec![], vec![]));
    // A restart with other content, which must not delay the leaf again.
    cluster.force("service-network-serving-signer", "again");
    cluster.force("service-network-serving-certkey", "again");
    let mut risks = Vec::new();
    cluster.go_watching(day(4), |_, report| risks.extend(report.risks.clone()));
    assert_eq!((&cluster.ended, cluster.broken(), risks), (&vec![], vec![], vec![]));
    assert!(cluster.is_by(LEAF, SIGNER));
}

#[test]
fn a_new_revision_has_reached_all_readers_a_quarter_of_an_hour_after_the_last_start() {
    let mut cluster = rotating();
    cluster.roll();
    assert_eq!(published(&cluster).reached, None);
    assert_eq!(follows_at(&mut cluster), "day 2+00:45");
    assert_eq!(published(&cluster).reached, Some(day(2) + 30 * MINUTE));
    // The last of three counts.
    let mut cluster = rotating();
    cluster.snapshot.taken_at = day(2) + 40 * MINUTE;
    cluster.roll_node("m1");
    assert_eq!(follows_at(&mut cluster), "day 2+00:55");
}

#[test]
fn the_record_of_reached_members_is_written_once_and_restarts_nothing() {
    let mut cluster = rotating();
    let mut written = String::new();
    cluster.go_watching(day(3), |cluster, report| {
        let of = report.steps.iter().filter(|step| step.object == BUNDLE);
        of.clone().for_each(|step| assert_eq!(step.restarts.len(), 0));
        let text = of.map(|step| format!("{} {step}\n", cluster.now())).collect::<String>();
        written.push_str(&days(&text));
    });
    expect![[r#"
        day 2+00:45 publish openshift-kube-controller-manager/serviceaccount-ca: the annotation does not record which of its certificates have reached all readers
    "#]].assert_eq(&written);
    assert_eq!(cluster.plan().steps, vec![]);
}

#[test]
fn an_unobserved_start_counts_as_now() {
    let mut cluster = rotating();
    holders(&mut cluster)[1].since = None;
    assert_eq!(follows_at(&mut cluster), "never");
    assert_eq!(published(&cluster).reached, None);
    // A recorded time needs no observed start.
    let mut cluster = rotating();
    cluster.go_to(day(3));
    holders(&mut cluster).iter_mut().for_each(|held| held.since = None);
    assert_eq!((cluster.broken(), steps(&cluster.plan().steps)), (vec![], String::new()));
}

#[test]
fn a_relay_that_is_observed_without_a_member_resets_its_readers() {
    let mut cluster = rotating();
    cluster.restarts = false;
    cluster.go_to(day(2) + 50 * MINUTE);
    assert!(published(&cluster).reached.is_some());
    let (new, at): (_, Timestamp) = (newest(&cluster), day(2) + HOUR);
    cluster.snapshot.taken_at = at;
    holders(&mut cluster)[2].members.retain(|id| *id != new);
    cluster.settle();
    assert_eq!(published(&cluster).reached, None);
    cluster.snapshot.taken_at = at + 5 * MINUTE;
    cluster.roll_node("m2");
    assert_eq!(cluster.broken().len(), 1, "{:?}", cluster.broken());
    cluster.go_to(at + 20 * MINUTE);
    assert_eq!(cluster.broken(), [""; 0]);
    assert_eq!(published(&cluster).reached, Some(at + 5 * MINUTE));
}
