//! A plan names every broken edge: certificates that are not valid yet, and edges that no write can repair.

use std::collections::BTreeSet;
use std::sync::Arc;

use expect_test::expect;

use super::fixture::{Cluster, HOUR, MINUTE, SECOND, ca, day, living};
use super::text::{days, text};
use crate::plan::Report;
use crate::snapshot::{Mode, Observed, Slot};

const LEAF: &str = "openshift-kube-apiserver/aggregator-client";
const SIGNER: &str = "openshift-kube-apiserver-operator/aggregator-client-signer";

fn settled() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    cluster
}

/// Returns every edge that a plan reports as broken now.
fn broken_now(report: &Report) -> BTreeSet<String> {
    let risks = report.steps.iter().flat_map(|step| &step.risks).chain(&report.risks);
    risks.filter(|risk| risk.at <= report.at).map(|risk| risk.edge.clone()).collect()
}

/// The issuer's clock was slightly ahead, and is right again.
#[test]
fn a_certificate_that_becomes_valid_within_the_clock_allowance_is_kept_and_reported_until_then() {
    for mode in [Mode::Normal, Mode::OnlyWhenExpired] {
        let mut cluster = settled();
        cluster.snapshot.settings.mode = mode;
        let begins_at = cluster.now() + SECOND * 300;
        cluster.change_secret(LEAF, |state| *state = living(state, begins_at, day(33)));
        expect![[r#"
            wait openshift-kube-apiserver/aggregator-client: the start of its validity at day 3+00:05
            risk: extension API server accepts aggregator-client of kube-apiserver
            risk: kube-controller-manager accepts aggregator-client of kube-apiserver
            look again day 3+00:05
        "#]]
        .assert_eq(&text(&cluster.plan()));
        let before = cluster.plan_at(begins_at - SECOND);
        assert_eq!((before.waiting.len(), before.risks.len()), (1, 2), "{}", text(&before));
        let then = cluster.plan_at(begins_at);
        assert_eq!((then.waiting.len(), then.risks.len()), (0, 0), "{}", text(&then));
    }
}

/// The same for a signer: it signs nothing, and clients reject its leaves.
#[test]
fn a_signer_that_becomes_valid_within_the_clock_allowance_is_kept_and_reported_until_then() {
    let mut cluster = settled();
    let begins_at = cluster.now() + SECOND * 300;
    cluster.change_secret(SIGNER, |state| *state = living(state, begins_at, day(300)));
    let report = cluster.plan();
    let waits: Vec<String> = report.waiting.iter().map(|it| format!("{}: {}", it.name, it.waiting)).collect();
    assert_eq!(waits, [format!("aggregator-client-signer: the start of its validity at {begins_at}")]);
    assert_eq!(report.next_look.min(begins_at), report.next_look);
}

#[test]
fn a_due_certificate_does_not_wait_for_its_own_validity() {
    let mut cluster = settled();
    cluster.change_secret(LEAF, |state| *state = living(state, day(5), day(33)));
    cluster.force("aggregator-client", "clock");
    let report = cluster.plan();
    assert!(super::fixture::issue_of(&report.steps, LEAF).is_some(), "{}", text(&report));
    assert_eq!(report.waiting, Vec::new());
}

#[test]
fn an_expired_certificate_that_cannot_be_renewed_is_reported() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    let slot = Slot::file("day1/admin-kubeconfig-client");
    let mut state = cluster.snapshot.secrets[&slot].present().unwrap().clone();
    Arc::make_mut(&mut state.certificate).validity.not_after = day(5) + HOUR;
    cluster.snapshot.certificates.insert(state.certificate.clone());
    cluster.snapshot.secrets.insert(slot, Observed::Present(state));
    let report = cluster.plan();
    assert_eq!((report.steps.len(), report.risks.len()), (0, 0), "{}", text(&report));
    // Its expiry is the next event.
    assert_eq!(days(&report.next_look.to_string()), "day 5+01:00:01");
    let report = cluster.plan_at(report.next_look);
    let risks: Vec<String> = report.risks.iter().map(|risk| days(&risk.to_string())).collect();
    expect!["kube-apiserver rejects day1/admin-kubeconfig-client of kubectl from day 5+01:00:01 on: a process that holds openshift-kube-apiserver/client-ca:ca-bundle.crt rejects file:day1/admin-kubeconfig-client: the certificate is valid only from day -1+23:55 to day 5+01:00"].assert_eq(&risks.join("\n"));
}

#[test]
fn a_plan_reports_the_same_broken_edges_as_the_trust_matrix() {
    // Another operator writes the component, so nothing is written; the broken edges are still reported.
    let mut cluster = settled();
    cluster.snapshot.other_writers.insert(ca("openshift-kube-apiserver/client-ca"), "other-operator".to_owned());
    let Some(Observed::Present(state)) = cluster.snapshot.bundles.get_mut(&ca("openshift-kube-apiserver/client-ca"))
    else {
        panic!("it is there")
    };
    state.members.truncate(1);
    let report = cluster.plan();
    assert_eq!(report.steps, Vec::new(), "{}", text(&report));
    let matrix: BTreeSet<String> = cluster.broken().iter().map(|it| it.split(':').next().unwrap().to_owned()).collect();
    assert!(matrix.len() > 3, "{matrix:?}");
    assert_eq!(broken_now(&report), matrix);
}

#[test]
fn an_edge_that_a_step_repairs_is_no_risk_and_one_that_it_cannot_repair_at_once_is_reported_once() {
    let mut cluster = settled();
    cluster.pass_to(day(30) + MINUTE);
    let of = |report: &Report, verifier: &str| {
        let risks = report.steps.iter().flat_map(|step| &step.risks).chain(&report.risks);
        risks.filter(|risk| risk.edge.starts_with(verifier)).count()
    };
    let report = cluster.plan();
    assert_eq!(of(&report, "extension API server"), 0, "{}", text(&report));
    // The API server presents the new certificate only after its restart.
    assert_eq!(of(&report, "kubelet accepts"), 1, "{}", text(&report));
    cluster.carry_out(&report.steps);
    cluster.settle();
    assert_eq!(of(&cluster.plan(), "kubelet accepts"), 1, "{}", text(&cluster.plan()));
    cluster.go_to(cluster.now() + HOUR);
    assert_eq!(of(&cluster.plan(), "kubelet accepts"), 0, "{}", text(&cluster.plan()));
}

#[test]
fn without_faults_no_edge_is_reported_as_broken() {
    for mut cluster in [Cluster::installed(), Cluster::made()] {
        // On the first day everything is new, and may not be loaded yet.
        cluster.go_to(day(0) + HOUR);
        cluster.go_watching(day(430), |_, report| {
            // Readers behind a relay are not observed: after the relay's restart they count as lacking any certificate.
            let is_seen = |edge: &String| !edge.starts_with("pod accepts");
            let broken: Vec<String> = broken_now(report).into_iter().filter(is_seen).collect();
            assert_eq!(broken, Vec::<String>::new(), "{}", text(report));
        });
    }
}
