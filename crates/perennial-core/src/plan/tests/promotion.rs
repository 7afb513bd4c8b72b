//! csr-signer is promoted to its signing place when all verifiers have the bundle with it: by proof, not by age.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::fixture::{Cluster, HOUR, MINUTE, day, issue_of, living, tls};
use super::text::{days, text};
use crate::plan::{Action, Report};
use crate::rules::Waiting;
use crate::snapshot::{Observed, SecretState};
use crate::trust::CertificateId;

const SOURCE: &str = "openshift-kube-controller-manager-operator/csr-signer";
const TARGET: &str = "openshift-kube-controller-manager/csr-signer";

fn settled() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    cluster
}

fn promotes(report: &Report) -> bool {
    report.steps.iter().any(|step| step.object == TARGET && matches!(step.action, Action::CopySecret(_)))
}

/// Returns when it is promoted, if static pods restart half an hour after a change.
fn promoted_at(mut cluster: Cluster<'_>) -> String {
    let mut at: Option<Timestamp> = None;
    cluster.go_watching(day(4), |cluster, report| {
        if promotes(report) {
            at.get_or_insert(cluster.now());
        }
    });
    assert_eq!(cluster.secret(TARGET).certificate.id, cluster.secret(SOURCE).certificate.id);
    assert_eq!(cluster.ended, Vec::<String>::new());
    at.map_or("never".to_owned(), |at| days(&at.to_string()))
}

fn expired(state: &SecretState) -> Observed<SecretState> {
    Observed::Present(living(state, day(0), day(1)))
}

#[test]
fn an_equal_target_is_not_written() {
    assert_eq!(promoted_at(settled()), "never");
}

#[test]
fn a_missing_incomplete_or_unreadable_target_is_written_at_once() {
    for found in [Observed::Absent, Observed::Unreadable { why: "tls.key is missing".to_owned() }] {
        let mut cluster = settled();
        cluster.set_secret(TARGET, found.clone());
        assert!(promotes(&cluster.plan()));
        // A new signer waits nevertheless, unlike in the original operator: kubelets hold leaves of the old one, and the leaves that
        // kubelets request in the next minutes would be rejected.
        cluster.force("csr-signer", "test");
        assert_eq!(promoted_at(cluster), "day 2+00:30");
    }
}

#[test]
fn a_new_signer_is_promoted_when_all_verifiers_have_the_bundle() {
    // The original operator waits five minutes. Here the API server's static pods must run the bundle and reload within 15 minutes.
    let mut cluster = settled();
    cluster.force("csr-signer", "test");
    assert_eq!(promoted_at(cluster.clone()), "day 2+00:30");
    cluster.settle();
    cluster.roll();
    assert_eq!(promoted_at(cluster), "day 2+00:15");
}

#[test]
fn a_new_signer_is_not_promoted_while_a_static_pod_lacks_it() {
    let mut cluster = settled();
    cluster.restarts = false;
    cluster.force("csr-signer", "test");
    cluster.settle();
    cluster.roll_node("m0");
    cluster.roll_node("m2");
    cluster.go_watching(day(3), |_, report| assert!(!promotes(report), "{}", text(report)));
    cluster.roll_node("m1");
    assert!(promotes(&cluster.plan()));
}

#[test]
fn every_static_pod_without_the_new_signer_is_named() {
    let mut cluster = settled();
    cluster.restarts = false;
    cluster.force("csr-signer", "test");
    cluster.settle();
    cluster.pass_to(day(2) + HOUR);
    let lacking = |cluster: &Cluster<'_>| {
        let report = cluster.plan();
        let mut waiting = report.waiting.iter().filter(|it| it.slot == tls(TARGET));
        let Some(Waiting::Rollout { lacking, .. }) = waiting.next().map(|it| it.waiting.clone()) else {
            panic!("{}", text(&report))
        };
        lacking
    };
    let of = |node: &str| format!("openshift-kube-apiserver/kubelet-serving-ca:ca-bundle.crt of {node} at revision 1");
    assert_eq!(lacking(&cluster), ["m0", "m1", "m2"].map(of));
    cluster.roll_node("m1");
    assert_eq!(lacking(&cluster), ["m0", "m2"].map(of));
}

#[test]
fn a_signer_that_is_not_valid_yet_is_reissued_and_promoted_when_every_pod_has_it() {
    // The original operator waits for it; Perennial issues another one at once.
    let mut cluster = settled();
    cluster.change_secret(SOURCE, |state| *state = living(state, day(2) + HOUR, day(25)));
    assert_eq!(promoted_at(cluster), "day 2+00:30");
}

#[test]
fn an_expired_target_is_replaced_at_once_even_by_a_signer_that_is_not_valid_yet() {
    let mut cluster = settled();
    let old = cluster.secret(TARGET).clone();
    cluster.set_secret(TARGET, expired(&old));
    cluster.snapshot.certificates.insert(cluster.secret(TARGET).certificate.clone());
    let report = cluster.plan();
    assert!(promotes(&report), "{}", text(&report));
    cluster.change_secret(SOURCE, |state| *state = living(state, day(2) + HOUR, day(25)));
    let report = cluster.plan();
    assert!(promotes(&report), "{}", text(&report));
}

#[test]
fn if_source_and_target_have_expired_a_new_signer_is_issued_and_promoted() {
    // The original operator keeps both; Perennial also manages the source.
    let mut cluster = settled();
    cluster.change_secret(SOURCE, |state| *state = living(state, day(0), day(1)));
    let state = cluster.secret(SOURCE).clone();
    // If the place is empty, the bundle shows which signers' leaves kubelets may hold; that signer is valid.
    for (target, at_once) in [(Observed::Present(state), true), (Observed::Absent, false)] {
        let mut cluster = cluster.clone();
        cluster.set_secret(TARGET, target);
        let report = cluster.plan();
        assert!(issue_of(&report.steps, SOURCE).is_some(), "{}", text(&report));
        assert_eq!(promotes(&report), at_once, "{}", text(&report));
    }
}

#[test]
fn an_unreadable_source_is_reissued_while_the_target_continues_to_sign() {
    // The original operator stops with an error.
    let mut cluster = settled();
    cluster.snapshot.secrets.insert(tls(SOURCE), Observed::Unreadable { why: "no PEM".to_owned() });
    let report = cluster.plan();
    assert!(issue_of(&report.steps, SOURCE).is_some() && !promotes(&report), "{}", text(&report));
    assert_eq!(promoted_at(cluster), "day 2+00:30");
}

#[test]
fn leaves_of_an_earlier_signer_are_accepted_until_they_expire() {
    let mut cluster = settled();
    let old = cluster.secret(TARGET).certificate.clone();
    cluster.force("csr-signer", "test");
    cluster.go_to(day(29));
    assert!(cluster.bundle("openshift-kube-apiserver/client-ca").members.contains(&old.id));
    cluster.go_to(day(30) + 30 * MINUTE);
    assert!(!cluster.bundle("openshift-kube-apiserver/client-ca").members.contains(&old.id));
}

#[test]
fn a_promoted_signer_has_no_chain() {
    let cluster = settled();
    assert_eq!((cluster.secret(SOURCE).chain.len(), cluster.secret(TARGET).chain.len()), (1, 0));
}

#[test]
fn the_previous_target_is_recorded_with_the_time_of_its_replacement() {
    let mut cluster = settled();
    let old = cluster.secret(TARGET).certificate.id.clone();
    cluster.force("csr-signer", "test");
    cluster.go_to(day(3));
    let past = |object: &str| -> Vec<(CertificateId, String)> {
        let past = cluster.secret(object).superseded.iter();
        past.map(|it| (it.certificate.clone(), days(&it.at.to_string()))).collect()
    };
    assert_eq!(past(SOURCE), [(old.clone(), "day 2".to_owned())]);
    assert_eq!(past(TARGET), [(old, "day 2+00:30".to_owned())]);
    // And no issue is recorded there.
    assert_eq!((cluster.secret(SOURCE).issues.len(), cluster.secret(TARGET).issues.len()), (2, 0));
}

#[test]
fn with_consent_a_new_signer_is_promoted_at_once_and_broken_edges_are_named() {
    let mut cluster = settled();
    cluster.force("csr-signer", "test");
    let edges = cluster.planner.wiring().edges().iter().filter(|edge| edge.row == "csr-signer");
    let consent: BTreeSet<String> = edges.map(|edge| edge.name.to_string()).collect();
    assert!(!promotes(&cluster.plan()));
    cluster.snapshot.settings.consent = consent.clone();
    let report = cluster.plan();
    let step = report.steps.iter().find(|step| step.object == TARGET).unwrap_or_else(|| panic!("{}", text(&report)));
    assert_eq!(step.consented, consent);
}
