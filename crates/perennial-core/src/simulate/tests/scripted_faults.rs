//! Faults at chosen times.

use super::*;

fn run(length: i64, script: Vec<Scheduled>) -> Outcome {
    let planner = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| planner.plan(snapshot, scope);
    Simulation::new(Catalog::builtin()).run_with(&days(length), script, &planner)
}

#[test]
fn a_crash_between_any_two_writes_of_a_rotation_breaks_no_edge() {
    for signer in ["etcd-signer", "signing-key", "csr-signer-signer", "loadbalancer-serving-signer"] {
        let calm = run(9, vec![force(5, signer)]);
        for writes in 0..24 {
            let crash = Scheduled { at: day(5), fault: Fault::Crash(writes) };
            let outcome = run(9, vec![crash, force(5, signer)]);
            assert_eq!((outcome.violations, outcome.outages), (Vec::new(), Vec::new()), "{signer} after {writes}");
            assert_eq!(outcome.issued, calm.issued, "{signer} after {writes}: nothing is issued twice for it");
        }
    }
}

#[test]
fn a_write_whose_response_is_lost_is_not_done_twice() {
    let (repeat, forced) = (Scheduled { at: day(5), fault: Fault::RepeatWrite }, force(5, "etcd-signer"));
    let (calm, outcome) = (run(9, vec![forced.clone()]), run(9, vec![repeat.clone(), forced.clone()]));
    assert_eq!((outcome.violations, outcome.outages), (Vec::new(), Vec::new()));
    assert_eq!(outcome.issued, calm.issued);
    // After the rollout, an object with copies of several certificates may be written once for all of them, or more often.
    let at_first = |script: Vec<Scheduled>| {
        let options = Options { length: SignedDuration::from_mins(5 * 24 * 60 + 10), ..days(5) };
        let planner = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| planner.plan(snapshot, scope);
        Simulation::new(Catalog::builtin()).run_with(&options, script, &planner)
    };
    let (calm, outcome) = (at_first(vec![forced.clone()]), at_first(vec![repeat, forced]));
    assert_eq!(outcome.writes, calm.writes);
    assert_eq!(outcome.issued["etcd-signer"], 2);
}

/// A failed or rejected write ends the pass; the next pass does the write, and no write is done twice.
#[test]
fn a_lost_write_is_done_by_the_next_pass() {
    let calm = run(9, vec![force(5, "etcd-signer")]);
    let lost = |seconds: i64, count| Scheduled {
        at: day(5) + SignedDuration::from_secs(seconds),
        fault: Fault::LoseWrites(count),
    };
    // From the signer itself to its bundles and the writes that follow.
    for (seconds, count) in (0..30).map(|seconds| (seconds, 1)).chain([(0, 3), (0, 9)]) {
        let outcome = run(9, vec![lost(seconds, count), force(5, "etcd-signer")]);
        assert_eq!((outcome.violations, outcome.outages), (Vec::new(), Vec::new()), "{count} after {seconds}s");
        assert_eq!(outcome.issued, calm.issued, "{count} after {seconds}s");
    }
}

#[test]
fn a_power_failure_during_a_rollout_breaks_no_edge() {
    for minutes in [1, 3, 6, 10, 15, 25, 40] {
        let off =
            Scheduled { at: day(5) + SignedDuration::from_mins(minutes), fault: Fault::ClusterDown { seconds: 7200 } };
        let outcome = run(9, vec![force(5, "etcd-signer"), off.clone()]);
        assert_eq!((outcome.violations, outcome.outages), (Vec::new(), Vec::new()), "after {minutes} minutes");
        let outcome = run(9, vec![force(5, "service-network-serving-signer"), off]);
        assert_eq!((outcome.violations, outcome.outages), (Vec::new(), Vec::new()), "after {minutes} minutes");
    }
}

#[test]
fn a_cluster_that_was_down_for_months_recovers_within_hours() {
    for off in [30, 60, 90] {
        let back = day(100 + off);
        let outcome = run(300, vec![Scheduled { at: day(100), fault: Fault::ClusterDown { seconds: off * 86_400 } }]);
        assert_eq!(outcome.violations, [], "off for {off} days");
        healed(&outcome, back);
    }
}
