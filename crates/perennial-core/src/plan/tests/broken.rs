//! What nobody accepts is named, whatever the plan does about it: what has not begun, and what is broken anyway.

use std::collections::BTreeSet;
use std::sync::Arc;

use expect_test::expect;

use super::fixture::{Cluster, HOUR, MINUTE, SECOND, ca, day, living};
use super::text::{days, text};
use crate::plan::Report;
use crate::rules::{Mode, Observed};
use crate::snapshot::Slot;

const LEAF: &str = "openshift-kube-apiserver/aggregator-client";
const SIGNER: &str = "openshift-kube-apiserver-operator/aggregator-client-signer";

fn settled() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    cluster
}

/// Every edge that a plan calls broken now.
fn broken_now(report: &Report) -> BTreeSet<String> {
    let risks = report.steps.iter().flat_map(|step| &step.risks).chain(&report.risks);
    risks.filter(|risk| risk.at <= report.at).map(|risk| risk.edge.clone()).collect()
}

/// X12: somebody's clock was ahead when it was made, and is right again.
#[test]
fn a_certificate_that_has_not_begun_is_kept_and_named_until_it_has() {
    for mode in [Mode::Normal, Mode::OnlyWhenExpired] {
        let mut cluster = settled();
        cluster.snapshot.settings.mode = mode;
        cluster.change_secret(LEAF, |state| *state = living(state, day(5), day(33)));
        expect![[r#"
            wait openshift-kube-apiserver/aggregator-client: its own validity, which begins at day 5
            risk: extension API server accepts aggregator-client of kube-apiserver
            risk: kube-controller-manager accepts aggregator-client of kube-apiserver
            look again day 5
        "#]]
        .assert_eq(&text(&cluster.plan()));
        let before = cluster.plan_at(day(5) - SECOND);
        assert_eq!((before.waiting.len(), before.risks.len()), (1, 2), "{}", text(&before));
        let then = cluster.plan_at(day(5));
        assert_eq!((then.waiting.len(), then.risks.len()), (0, 0), "{}", text(&then));
    }
}

/// X12, of a signer: nothing is signed by it, and what it has signed is not accepted.
#[test]
fn a_signer_that_has_not_begun_is_kept_and_named_until_it_has() {
    let mut cluster = settled();
    cluster.change_secret(SIGNER, |state| *state = living(state, day(5), day(300)));
    let report = cluster.plan();
    let waits: Vec<String> = report.waiting.iter().map(|it| days(&format!("{}: {}", it.name, it.waiting))).collect();
    assert_eq!(waits, ["aggregator-client-signer: its own validity, which begins at day 5"]);
    assert_eq!(report.next_look.min(day(5)), report.next_look);
}

#[test]
fn what_is_due_for_another_reason_does_not_wait_for_its_beginning() {
    let mut cluster = settled();
    cluster.change_secret(LEAF, |state| *state = living(state, day(5), day(33)));
    cluster.force("aggregator-client", "clock");
    let report = cluster.plan();
    assert!(super::fixture::issue_of(&report.steps, LEAF).is_some(), "{}", text(&report));
    assert_eq!(report.waiting, Vec::new());
}

#[test]
fn what_nobody_here_can_renew_is_named_when_it_has_ended() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    let slot = Slot::file("day1/admin-kubeconfig-client");
    let mut state = cluster.snapshot.secrets[&slot].present().unwrap().clone();
    Arc::make_mut(&mut state.certificate).validity.not_after = day(5) + HOUR;
    cluster.snapshot.certificates.insert(state.certificate.clone());
    cluster.snapshot.secrets.insert(slot, Observed::Present(state));
    let report = cluster.plan();
    assert_eq!((report.steps.len(), report.risks.len()), (0, 0), "{}", text(&report));
    // Its end is the next thing that happens.
    assert_eq!(days(&report.next_look.to_string()), "day 5+01:00:01");
    let report = cluster.plan_at(report.next_look);
    let risks: Vec<String> = report.risks.iter().map(|risk| days(&risk.to_string())).collect();
    expect![[r#"kube-apiserver accepts day1/admin-kubeconfig-client of kubectl is broken from day 5+01:00:01 on: whoever reads openshift-kube-apiserver/client-ca:ca-bundle.crt refuses file:day1/admin-kubeconfig-client: it is valid from day -1+23:55 to day 5+01:00"#]].assert_eq(&risks.join("\n"));
}

#[test]
fn what_is_broken_is_what_the_matrix_says() {
    // Nothing is written, because somebody else does that; all the more it is said what is broken.
    let mut cluster = settled();
    cluster.snapshot.other_writers.insert(ca("openshift-kube-apiserver/client-ca"), "somebody".to_owned());
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
fn what_a_step_mends_is_no_risk_and_what_it_cannot_mend_at_once_is_named_once() {
    let mut cluster = settled();
    cluster.pass_to(day(30) + MINUTE);
    let of = |report: &Report, verifier: &str| {
        let risks = report.steps.iter().flat_map(|step| &step.risks).chain(&report.risks);
        risks.filter(|risk| risk.edge.starts_with(verifier)).count()
    };
    let report = cluster.plan();
    assert_eq!(of(&report, "extension API server"), 0, "{}", text(&report));
    // The API server presents another one only after its restart.
    assert_eq!(of(&report, "kubelet accepts"), 1, "{}", text(&report));
    cluster.carry_out(&report.steps);
    cluster.settle();
    assert_eq!(of(&cluster.plan(), "kubelet accepts"), 1, "{}", text(&cluster.plan()));
    cluster.go_to(cluster.now() + HOUR);
    assert_eq!(of(&cluster.plan(), "kubelet accepts"), 0, "{}", text(&cluster.plan()));
}

#[test]
fn in_ordinary_life_nothing_is_broken() {
    for mut cluster in [Cluster::installed(), Cluster::made()] {
        // On the first day everything is new, and may be lacking.
        cluster.go_to(day(0) + HOUR);
        cluster.go_watching(day(430), |_, report| {
            // Who reads what a static pod hands on is not seen: after its restart it counts as lacking any of it.
            let is_seen = |edge: &String| !edge.starts_with("pod accepts");
            let broken: Vec<String> = broken_now(report).into_iter().filter(is_seen).collect();
            assert_eq!(broken, Vec::<String>::new(), "{}", text(report));
        });
    }
}
