//! What delays a due write, except trust: maintenance windows, other operators, consent, the circuit breaker.

use expect_test::expect;

use super::fixture::{Cluster, HOUR, MINUTE, SECOND, day, issue_of, issues, living, tls};
use super::text::{days, pending, steps, text, waiting};
use crate::catalog::Day;
use crate::rules::{Reason, Waiting};
use crate::snapshot::{Observed, Window};

const KUBELET_CLIENT: &str = "openshift-kube-apiserver/kubelet-client";
const AGGREGATOR_CLIENT: &str = "openshift-kube-apiserver/aggregator-client";

#[test]
fn a_rotation_is_forced_at_most_once_for_each_reason() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    let mut force = |reason: &str| {
        cluster.force("kubelet-client", reason);
        cluster.pass_to(cluster.now() + 20 * MINUTE);
        let done = cluster.settle();
        issues(&done).iter().map(|issue| issue.reason.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(force("leaked"), ["forced rotation: leaked"]);
    assert_eq!(force("leaked"), [""; 0]);
    assert_eq!(force("again"), ["forced rotation: again"]);
    assert_eq!(force("again"), [""; 0]);
    assert_eq!(force(""), [""; 0]);
}

#[test]
fn a_reason_is_remembered_through_later_rotations() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).force("kubelet-client", "leaked");
    cluster.settle();
    cluster.snapshot.settings.forced.clear();
    cluster.go_to(day(20)); // it was refreshed on day 17
    assert_eq!(cluster.secret(KUBELET_CLIENT).issued_at, Some(day(17)));
    cluster.force("kubelet-client", "leaked");
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn a_forced_rotation_of_any_row_breaks_no_edge() {
    let mut settled = Cluster::made();
    settled.go_to(day(10));
    let rows: Vec<&str> =
        settled.planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two).map(|row| row.id).collect();
    for row in &rows {
        let mut cluster = settled.clone();
        cluster.force(row, "test");
        cluster.go_to(day(11));
        assert_eq!((&cluster.ended, &cluster.broken()), (&Vec::new(), &Vec::new()), "{row}");
    }
    let mut cluster = settled;
    for reason in ["first", "second"] {
        rows.iter().for_each(|row| cluster.force(row, reason));
        cluster.go_to(cluster.now() + 5 * MINUTE);
    }
    cluster.go_to(day(11));
    assert_eq!((&cluster.ended, &cluster.broken()), (&Vec::new(), &Vec::new()));
}

/// Returns a cluster whose maintenance window opens on Sunday 22:00 for two hours. Day 0 is a Thursday.
fn with_window() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1)).snapshot.settings.windows.push(Window { from_minute: (6 * 24 + 22) * 60, minutes: 120 });
    cluster
}

#[test]
fn only_a_write_that_restarts_static_pods_waits_for_the_window() {
    let cluster = with_window();
    let report = cluster.plan_at(day(15)); // a Friday
    let waits = report.waiting.iter().find(|it| it.slot == tls(KUBELET_CLIENT)).unwrap();
    assert_eq!(
        pending(waits),
        "wait openshift-kube-apiserver/kubelet-client (past its refresh time day 15): \
         maintenance window opens at day 17+10:00"
    );
    assert!(issue_of(&report.steps, KUBELET_CLIENT).is_none());
    assert!(issue_of(&report.steps, AGGREGATOR_CLIENT).is_some());
    let opens_at = day(17) + 10 * HOUR;
    assert!(report.next_look <= opens_at);
    assert!(issue_of(&cluster.plan_at(opens_at - SECOND).steps, KUBELET_CLIENT).is_none());
    assert!(issue_of(&cluster.plan_at(opens_at).steps, KUBELET_CLIENT).is_some());
}

#[test]
fn an_urgent_write_does_not_wait_for_the_window() {
    let cluster = with_window();
    // The next window after 80% of the validity is too late.
    let reason =
        |cluster: &Cluster<'_>, at| issue_of(&cluster.plan_at(at).steps, KUBELET_CLIENT).map(|it| it.reason.clone());
    assert_eq!(reason(&cluster, day(23)), Some(Reason::PastRefresh { since: day(15) }));
    let mut lost = cluster.clone();
    lost.delete_secret(KUBELET_CLIENT);
    assert_eq!(reason(&lost, day(2)), Some(Reason::Absent));
    let mut forced = cluster;
    forced.force("kubelet-client", "planned");
    assert_eq!(reason(&forced, day(2)), None);
}

#[test]
fn a_window_at_eighty_percent_of_the_validity_is_too_late() {
    let mut cluster = Cluster::made();
    // It opens on Sundays at noon, the instant at which four fifths of the month have passed on day 24.
    cluster.go_to(day(1)).snapshot.settings.windows.push(Window { from_minute: (6 * 24 + 12) * 60, minutes: 60 });
    let is_issued = |at| issue_of(&cluster.plan_at(at).steps, KUBELET_CLIENT).is_some();
    assert_eq!([day(16), day(17), day(18)].map(is_issued), [false, true, true]);
}

#[test]
fn a_component_of_another_operator_is_not_written() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    cluster.snapshot.other_writers.insert(tls("openshift-etcd/etcd-signer"), "etcd-operator".to_owned());
    cluster.delete_secret("openshift-etcd/etcd-peer-m0");
    cluster.delete_bundle("openshift-etcd/etcd-ca-bundle");
    cluster.delete_secret(KUBELET_CLIENT);
    let report = cluster.plan();
    // Another component continues.
    let [issue] = issues(&report.steps)[..] else { panic!("{}", text(&report)) };
    assert_eq!(issue.row, "kubelet-client");
    assert!(report.steps.iter().all(|step| !step.object.starts_with("openshift-etcd")), "{}", text(&report));
    let expected =
        Waiting::OtherWriter { object: "openshift-etcd/etcd-signer".to_owned(), writer: "etcd-operator".to_owned() };
    assert!(report.waiting.iter().all(|it| it.waiting == expected), "{}", waiting(&report));
    let waits = |object: &str| report.waiting.iter().any(|it| it.slot.object_text() == object);
    assert!(waits("openshift-etcd/etcd-peer-m0") && waits("openshift-etcd/etcd-ca-bundle"), "{}", waiting(&report));
    // After it is taken over, Perennial manages it.
    cluster.snapshot.settings.taken_over.insert("etcd".to_owned());
    let report = cluster.plan();
    assert_eq!(report.waiting, Vec::new());
    assert!(issue_of(&report.steps, "openshift-etcd/etcd-peer-m0").is_some());
    // The same after the other operator stops writing.
    cluster.snapshot.settings.taken_over.clear();
    cluster.snapshot.other_writers.clear();
    assert_eq!(cluster.plan().steps, report.steps);
}

#[test]
fn components_of_several_other_operators_are_not_written() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    for object in ["openshift-etcd/etcd-signer", "openshift-service-ca/signing-key"] {
        cluster.snapshot.other_writers.insert(tls(object), "other-operator".to_owned());
    }
    cluster.delete_secret("openshift-etcd/etcd-peer-m0");
    cluster.delete_secret("shop/web-tls");
    assert_eq!(steps(&cluster.plan().steps), "");
}

const LB_SIGNER: &str = "openshift-kube-apiserver-operator/loadbalancer-serving-signer";
const LB: &str = "openshift-kube-apiserver/external-loadbalancer-serving-certkey";

/// Returns a cluster in which the key of the signer in users' kubeconfigs is lost.
fn without_the_lb_key() -> Cluster<'static> {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    cluster.delete_secret(LB_SIGNER);
    cluster.go_to(day(6));
    cluster.ended.clear();
    cluster
}

#[test]
fn a_rotation_waits_as_long_as_possible_for_a_verifier_that_never_reloads() {
    let mut cluster = without_the_lb_key();
    cluster.go_to(day(20));
    let report = cluster.plan();
    expect![[r#"
        wait openshift-kube-apiserver/external-loadbalancer-serving-certkey (past its refresh time day 15): until day 26+23:59:30, because it would break: kubectl accepts external-loadbalancer-serving-certkey of kube-apiserver
        wait openshift-kube-apiserver/internal-loadbalancer-serving-certkey (past its refresh time day 15): until day 26+23:59:30, because it would break: new node accepts internal-loadbalancer-serving-certkey of kube-apiserver
    "#]].assert_eq(&waiting(&report));
    let mut issued = None;
    let end = cluster.secret(LB).certificate.validity.not_after;
    cluster.go_watching(end, |cluster, report| {
        if let Some(step) = report.steps.iter().find(|step| step.object == LB) {
            let named = step.risks.iter().filter(|risk| risk.edge.starts_with("kubectl accepts"));
            assert_eq!(named.count(), 1, "{step:?}");
            issued.get_or_insert(cluster.now());
        }
    });
    // The last tenth of its validity is the reserve.
    let left = issued.unwrap().duration_until(end);
    assert_eq!(left.as_hours(), 72, "{}", days(&issued.unwrap().to_string()));
}

#[test]
fn with_consent_a_rotation_does_not_wait_for_a_verifier_that_never_reloads() {
    let mut cluster = without_the_lb_key();
    let consent = "kubectl accepts external-loadbalancer-serving-certkey of kube-apiserver";
    cluster.snapshot.settings.consent.insert(consent.to_owned());
    let mut named = Vec::new();
    cluster.go_watching(day(20), |_, report| {
        let steps = report.steps.iter().filter(|step| step.object == LB);
        named.extend(steps.map(|step| (step.consented.clone(), step.risks.clone())));
    });
    assert!(cluster.is_by(LB, LB_SIGNER));
    // The step that breaks the edge names it with the reason; an edge that stays broken is not named again.
    let [(consented, risks)] = &named[..] else { panic!("{named:?}") };
    assert_eq!(consented.iter().collect::<Vec<_>>(), [consent]);
    let [risk] = &risks[..] else { panic!("{risks:?}") };
    assert_eq!((risk.edge.as_str(), days(&risk.at.to_string()).as_str()), (consent, "day 15"));
    cluster.go_watching(day(40), |_, report| {
        let lb = report.steps.iter().filter(|step| step.object == LB);
        lb.for_each(|step| assert_eq!((step.consented.len(), step.risks.len()), (0, 1), "{step:?}"));
    });
}

#[test]
fn a_write_waits_for_a_rollout_as_long_as_the_new_certificate_can_be_loaded_in_time() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10)).restarts = false;
    cluster.force("localhost-serving-signer", "test");
    cluster.go_to(day(15));
    let report = cluster.plan();
    let waits = report.waiting.iter().find(|it| it.name == "localhost-serving-cert-certkey").unwrap();
    assert!(matches!(waits.waiting, Waiting::Rollout { .. }), "{}", text(&report));
    // It expires on day 30. Ten minutes are for its reader, five for different clocks, and ten for the next pass.
    assert_eq!(waits.waiting.until(), Some(day(30) - 25 * MINUTE));
}

#[test]
fn a_write_at_its_deadline_reports_every_edge_that_it_breaks_later() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3)).force("aggregator-client-signer", "test");
    cluster.settle();
    cluster.pass_to(day(28)); // the last tenth of the certificate's life
    // The new signer expires in ten minutes, and the circuit breaker prevents its re-issue.
    cluster.change_secret("openshift-kube-apiserver-operator/aggregator-client-signer", |state| {
        *state = living(state, day(3), day(28) + 10 * MINUTE);
        state.issues = vec![day(28) - MINUTE; 5];
    });
    let report = cluster.plan();
    let step = report.steps.iter().find(|step| step.object == AGGREGATOR_CLIENT).unwrap();
    let risks: Vec<String> = step.risks.iter().map(|risk| days(&format!("{}: {}", risk.at, risk.edge))).collect();
    assert_eq!(
        risks,
        [
            "day 28+00:10:01: extension API server accepts aggregator-client of kube-apiserver",
            "day 28+00:10:01: kube-controller-manager accepts aggregator-client of kube-apiserver"
        ]
    );
}

#[test]
fn consent_that_is_not_needed_breaks_nothing() {
    let mut cluster = Cluster::made();
    let edges = cluster.planner.wiring().edges();
    cluster.snapshot.settings.consent = edges.iter().map(|edge| edge.name.to_string()).collect();
    cluster.go_to(day(2)).force("kubelet-client", "test");
    let report = cluster.plan();
    assert!(issue_of(&report.steps, KUBELET_CLIENT).is_some());
    assert!(report.steps.iter().all(|step| step.consented.is_empty()), "{}", text(&report));
}

#[test]
fn the_circuit_breaker_opens_after_five_issues_in_an_hour_and_retries_later() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    let spoil = |cluster: &mut Cluster<'_>| {
        cluster.change_secret(AGGREGATOR_CLIENT, |state| state.names_issuer = false);
        issues(&cluster.settle()).len()
    };
    for number in 0..5 {
        cluster.pass_to(day(2) + number * MINUTE);
        assert_eq!(spoil(&mut cluster), 1, "{number}");
    }
    cluster.pass_to(day(2) + 5 * MINUTE);
    assert_eq!(spoil(&mut cluster), 0);
    let report = cluster.plan();
    expect![[r#"
        wait openshift-kube-apiserver/aggregator-client (missing issuer name): circuit breaker: issued 5 times since day 2, not again before day 2+01:00
        look again day 2+01:00
    "#]].assert_eq(&text(&report));
    // Others are not delayed.
    let mut other = cluster.clone();
    other.delete_secret(KUBELET_CLIENT);
    assert_eq!(issues(&other.settle()).len(), 1);
    cluster.pass_to(report.next_look - SECOND);
    assert_eq!(issues(&cluster.settle()).len(), 0);
    cluster.pass_to(report.next_look);
    assert_eq!(issues(&cluster.settle()).len(), 1);
}

#[test]
fn at_most_the_allowed_number_of_certificates_is_in_rotation() {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.settings.in_flight = 7;
    let mut passes = 0;
    loop {
        let report = cluster.plan();
        let issued = issues(&report.steps).len();
        assert!(issued <= 7);
        if report.steps.is_empty() {
            break;
        }
        if issued == 7 {
            assert!(report.waiting.iter().any(|it| it.waiting == Waiting::Pace { in_flight: 7 }) || passes == 5);
        }
        cluster.carry_out(&report.steps);
        passes += 1;
    }
    assert_eq!(passes, 6); // 38 certificates
    assert!(cluster.snapshot.secrets.iter().all(|(slot, found)| slot.is_file() || *found != Observed::Absent));
}

#[test]
fn without_a_signer_no_bundle_is_written() {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.settings.in_flight = 0;
    assert_eq!(steps(&cluster.plan().steps), "");
}

#[test]
fn the_circuit_breaker_counts_issues_of_a_deleted_secret() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    let delete = |cluster: &mut Cluster<'_>| {
        let (issued, place) = (cluster.secret(AGGREGATOR_CLIENT).issues.clone(), tls(AGGREGATOR_CLIENT));
        cluster.delete_secret(AGGREGATOR_CLIENT);
        // The operator has recorded when it was issued.
        cluster.snapshot.lost_issues.insert(place, issued);
        issues(&cluster.settle()).len()
    };
    // The first one was issued on day 0.
    for number in 0..5 {
        cluster.pass_to(day(2) + number * MINUTE);
        assert_eq!(delete(&mut cluster), 1, "{number}");
    }
    cluster.pass_to(day(2) + 5 * MINUTE);
    assert_eq!(delete(&mut cluster), 0);
    cluster.pass_to(day(2) + 60 * MINUTE);
    assert_eq!(issues(&cluster.settle()).len(), 1);
}
