//! The forecast: the time of each rotation, and the latest time.

use std::sync::Arc;

use expect_test::expect;
use jiff::SignedDuration;

use super::fixture::{Cluster, builtin, day};
use super::text::days;
use crate::catalog::Custody;
use crate::forecast::{Forecast, forecast};
use crate::inventory::inventory;
use crate::snapshot::{Observed, Slot};

fn words(forecast: &Forecast) -> String {
    let mut text = String::new();
    for it in &forecast.rotations {
        let latest = it.latest.map(|latest| format!(", at the latest {latest}")).unwrap_or_default();
        let restarts: Vec<&str> = it.restarts.iter().map(String::as_str).collect();
        let restarts = if restarts.is_empty() { String::new() } else { format!(", restarts {}", restarts.join(" ")) };
        let kind = if it.is_signer { "signer " } else { "" };
        text += &format!("{}: {kind}{}: {}{latest}{restarts}\n", it.at, it.slot.object_text(), it.reason);
    }
    forecast.endings.iter().for_each(|it| text += &format!("{} ends on {}\n", it.row, it.at));
    forecast.stuck.iter().for_each(|it| text += &format!("stuck: {it}\n"));
    days(&text)
}

#[test]
fn each_forecast_rotation_has_a_reason_a_latest_time_and_its_restarts() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(5));
    expect![[r#"
        day 15: signer openshift-kube-controller-manager-operator/csr-signer: past its refresh time day 15, at the latest day 30, restarts openshift-kube-apiserver
        day 15: openshift-kube-apiserver/aggregator-client: past its refresh time day 15, at the latest day 30
        day 15: openshift-kube-apiserver/kubelet-client: past its refresh time day 15, at the latest day 30, restarts openshift-kube-apiserver
        day 15: openshift-kube-apiserver/localhost-serving-cert-certkey: past its refresh time day 15, at the latest day 30
        day 15: openshift-kube-apiserver/service-network-serving-certkey: past its refresh time day 15, at the latest day 30
        day 15: openshift-kube-apiserver/external-loadbalancer-serving-certkey: past its refresh time day 15, at the latest day 30
        day 15: openshift-kube-apiserver/internal-loadbalancer-serving-certkey: past its refresh time day 15, at the latest day 30
        day 15: openshift-config-managed/kube-controller-manager-client-cert-key: past its refresh time day 15, at the latest day 30
        day 15: openshift-config-managed/kube-scheduler-client-cert-key: past its refresh time day 15, at the latest day 30
        day 15: openshift-kube-apiserver/control-plane-node-admin-client-cert-key: past its refresh time day 15, at the latest day 30
        day 15: openshift-kube-apiserver/check-endpoints-client-cert-key: past its refresh time day 15, at the latest day 30
        day 30: signer openshift-kube-controller-manager-operator/csr-signer-signer: past its refresh time day 30, at the latest day 60, restarts openshift-kube-apiserver
        day 30: signer openshift-kube-controller-manager-operator/csr-signer: past its refresh time day 30, at the latest day 45, restarts openshift-kube-apiserver
        day 30: openshift-kube-apiserver/aggregator-client: past its refresh time day 30, at the latest day 45
        day 30: openshift-kube-apiserver/kubelet-client: past its refresh time day 30, at the latest day 45, restarts openshift-kube-apiserver
        day 30: openshift-kube-apiserver/localhost-serving-cert-certkey: past its refresh time day 30, at the latest day 45
        day 30: openshift-kube-apiserver/service-network-serving-certkey: past its refresh time day 30, at the latest day 45
        day 30: openshift-kube-apiserver/external-loadbalancer-serving-certkey: past its refresh time day 30, at the latest day 45
        day 30: openshift-kube-apiserver/internal-loadbalancer-serving-certkey: past its refresh time day 30, at the latest day 45
        day 30: openshift-config-managed/kube-controller-manager-client-cert-key: past its refresh time day 30, at the latest day 45
        day 30: openshift-config-managed/kube-scheduler-client-cert-key: past its refresh time day 30, at the latest day 45
        day 30: openshift-kube-apiserver/control-plane-node-admin-client-cert-key: past its refresh time day 30, at the latest day 45
        day 30: openshift-kube-apiserver/check-endpoints-client-cert-key: past its refresh time day 30, at the latest day 45
        day 30: openshift-kube-apiserver-operator/node-system-admin-client: past its refresh time day 30, at the latest day 365
    "#]].assert_eq(&words(&forecast(builtin(), &cluster.snapshot, day(31))));
}

#[test]
fn a_forecast_matches_the_later_rotations() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(280));
    let foreseen = forecast(builtin(), &cluster.snapshot, day(330));
    let foreseen: Vec<(String, &str)> =
        foreseen.rotations.iter().map(|it| (days(&it.at.to_string()), it.slot.object_text())).collect();
    let mut happened = Vec::new();
    cluster.go_watching(day(330), |cluster, report| {
        let issues = super::fixture::issues(&report.steps);
        happened.extend(issues.iter().map(|it| (days(&cluster.now().to_string()), it.slot.object_text().to_owned())));
    });
    let happened: Vec<(String, &str)> = happened.iter().map(|(at, object)| (at.clone(), object.as_str())).collect();
    assert_eq!(foreseen, happened);
    assert!(foreseen.len() > 40, "{}", foreseen.len());
}

#[test]
fn a_forecast_lists_the_expiry_of_installation_certificates_that_are_not_renewed() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    let slot = Slot::file("day1/admin-kubeconfig-client");
    let mut state = cluster.snapshot.secrets[&slot].present().unwrap().clone();
    Arc::make_mut(&mut state.certificate).validity.not_after = day(9);
    cluster.snapshot.secrets.insert(slot, Observed::Present(state));
    let endings = |to| forecast(builtin(), &cluster.snapshot, to).endings.iter().map(|it| it.row).collect::<Vec<_>>();
    assert_eq!(endings(day(8)), [""; 0]);
    assert_eq!(endings(day(9)), ["day1/admin-kubeconfig-client"]);
    // The signers whose keys are outside the cluster.
    let found = forecast(builtin(), &cluster.snapshot, day(3651)).endings;
    let signers: Vec<(&str, Option<Custody>)> =
        found.iter().filter(|it| it.custody.is_some()).map(|it| (it.row, it.custody)).collect();
    assert_eq!(
        signers,
        [
            ("day1/admin-kubeconfig-signer", Some(Custody::Offline)),
            ("day1/kubelet-bootstrap-kubeconfig-signer", Some(Custody::Offline)),
            ("day1/root-ca", Some(Custody::Discarded)),
        ]
    );
}

#[test]
fn a_forecast_lists_what_still_waits_at_its_end() {
    let mut cluster = Cluster::made();
    cluster
        .go_to(day(5))
        .snapshot
        .other_writers
        .insert(super::fixture::tls("openshift-etcd/etcd-signer"), "other-operator".to_owned());
    let forecast = forecast(builtin(), &cluster.snapshot, day(6));
    assert!(!forecast.stuck.is_empty());
    assert!(
        forecast.stuck.iter().all(|it| it.ends_with("other-operator manages openshift-etcd/etcd-signer")),
        "{:?}",
        forecast.stuck
    );
}

/// The next rotation in the inventory is the one that the planner does, also for a certificate that waits.
#[test]
fn the_inventorys_next_rotation_is_the_one_that_happens() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(5));
    // Without the key, no cross-certificate leads from the service CA to the next one: Services wait for their clients.
    for lost in [None, Some("openshift-service-ca/signing-key")] {
        lost.into_iter().for_each(|signer| cluster.delete_secret(signer));
        cluster.settle();
        let report = cluster.plan();
        let to = cluster.now() + SignedDuration::from_hours(24 * 900);
        let forecast = forecast(cluster.planner, &cluster.snapshot, to);
        let (mut compared, mut waiting) = (0, 0);
        for entry in inventory(cluster.planner, &cluster.snapshot, &report) {
            let Some(next) = &entry.next_rotation else { continue };
            let Some(rotation) = forecast.rotations.iter().find(|it| it.slot == entry.slot) else { continue };
            assert_eq!(next.at, rotation.at, "{}: {:?}", entry.slot, entry.waiting);
            compared += 1;
            waiting += usize::from(entry.waiting.is_some());
        }
        assert!(compared > 20 && (lost.is_none() || waiting > 0), "{compared} compared, {waiting} of them waiting");
    }
}
