//! `next_look` is exact: before it time alone changes nothing, and at it something changes. Risks count too.

use std::collections::BTreeSet;

use jiff::Timestamp;

use super::fixture::{Cluster, MINUTE, SECOND, day};
use super::text::{days, short, text};
use crate::catalog::TimeScale;
use crate::plan::Report;
use crate::snapshot::{Mode, Observed, Window};

/// Returns the waits and the risks without their times: what waits and for what, and the edges that are broken now or
/// later.
fn waits(report: &Report) -> BTreeSet<String> {
    let waiting = report.waiting.iter().map(|it| format!("{}: {}", it.slot, short(&it.waiting)));
    let risks = report.risks.iter().map(|risk| {
        let at = if risk.at <= report.at { "now".to_owned() } else { risk.at.to_string() };
        format!("{} breaks: {at}", risk.edge)
    });
    waiting.chain(risks).collect()
}

fn between(from: Timestamp, to: Timestamp) -> BTreeSet<Timestamp> {
    let to = to.min(from + day(0).duration_until(day(200)));
    let length = from.duration_until(to).as_secs();
    let at = |seconds: i64| from + SECOND * i32::try_from(seconds).unwrap();
    [1, 901, length / 3, length / 2, length - 1].into_iter().map(at).filter(|it| from < *it && *it < to).collect()
}

/// Advances from one `next_look` to the next, checks each, and returns their number.
fn check(cluster: &mut Cluster<'_>, to: Timestamp) -> usize {
    check_looks(cluster, to, true)
}

/// Checks that nothing changes before each `next_look`; with `never_for_nothing` also that something changes at it.
pub(super) fn check_looks(cluster: &mut Cluster<'_>, to: Timestamp, never_for_nothing: bool) -> usize {
    let mut looks = 0;
    while cluster.now() < to {
        cluster.settle();
        let report = cluster.plan();
        let next = report.next_look.min(cluster.rolls_at().unwrap_or(Timestamp::MAX));
        for at in between(cluster.now(), next) {
            let meanwhile = cluster.plan_at(at);
            let same = meanwhile.steps.is_empty() && waits(&meanwhile) == waits(&report);
            let (was, is) = (text(&report), text(&meanwhile));
            assert!(same, "{} says:\n{was}but {} says:\n{is}", days(&report.at.to_string()), days(&at.to_string()));
        }
        let by_time_alone = cluster.rolls_at().is_none_or(|rolls_at| report.next_look < rolls_at);
        cluster.pass_to(next.min(to));
        if never_for_nothing && by_time_alone && next <= to {
            let (then, soon) = (cluster.plan(), cluster.plan_at(next + SECOND));
            let differs = |it: &Report| !it.steps.is_empty() || waits(it) != waits(&report);
            let was = text(&report);
            assert!(differs(&then) || differs(&soon), "for nothing: {}{was}", days(&report.at.to_string()));
        }
        looks += 1;
    }
    looks
}

#[test]
fn nothing_changes_before_next_look_and_something_changes_at_it() {
    for mut cluster in [Cluster::installed(), Cluster::made()] {
        let looks = check(&mut cluster, day(430));
        assert!(looks > 50, "{looks}");
    }
}

#[test]
fn next_look_is_exact_while_rotations_wait_for_static_pods() {
    let mut cluster = Cluster::made();
    check(&mut cluster, day(3));
    cluster.restarts = false;
    for row in ["etcd-signer", "etcd-metric-signer", "csr-signer-signer", "localhost-serving-signer", "signing-key"] {
        cluster.force(row, "test");
    }
    check(&mut cluster, day(70));
}

#[test]
fn next_look_is_exact_while_a_rotation_waits_for_a_verifier_that_never_reloads() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    cluster.delete_secret("openshift-kube-apiserver-operator/loadbalancer-serving-signer");
    cluster.delete_secret("openshift-service-ca/signing-key");
    check(&mut cluster, day(70));
}

#[test]
fn next_look_is_exact_with_windows_and_without_a_policy() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.snapshot.settings.windows.push(Window { from_minute: 300, minutes: 60 });
    check(&mut cluster.clone(), day(70));
    cluster.snapshot.policy = Observed::Unreadable { why: "forbidden".to_owned() };
    check(&mut cluster, day(70));
}

#[test]
fn nothing_changes_before_next_look_in_a_recovery() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1)).snapshot.settings.mode = Mode::OnlyWhenExpired;
    check_looks(&mut cluster, day(70), false);
}

#[test]
fn next_look_is_exact_in_a_rehearsal() {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.settings.time_scale = TimeScale::SHORT;
    cluster.settle();
    cluster.roll();
    let looks = check(&mut cluster, day(1));
    assert!(looks > 50, "{looks}");
    assert_eq!(cluster.ended, Vec::<String>::new());
}

#[test]
fn next_look_is_never_now() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1)).snapshot.settings.in_flight = 0;
    // The second at which the bundle drops an expired signer of a year; but no other signer can be issued.
    cluster.pass_to(day(365) + 5 * MINUTE + SECOND);
    let report = cluster.plan();
    assert!(report.at < report.next_look, "{}", text(&report));
}
