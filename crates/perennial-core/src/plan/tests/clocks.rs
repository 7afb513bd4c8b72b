//! Clocks that are wrong, and clocks that differ.

use jiff::{SignedDuration, Timestamp};

use super::fixture::{Cluster, HOUR, MINUTE, ca, day, issue_of, issues, tls};
use super::text::text;
use crate::rules::{BundleReason, Reason, Waiting};
use crate::snapshot::{Observed, Snapshot};
use crate::trust::CertificateId;

const DAY_SECONDS: i64 = 86_400;

/// Returns a cluster with one pass at a wrong time. Its clock is right again on day 1.
fn confused(wrong: i64) -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.snapshot.taken_at = day(1 + wrong);
    cluster.settle();
    cluster.roll();
    // An hour later the clock is corrected.
    cluster.snapshot.taken_at = day(1) + HOUR;
    cluster
}

/// Returns the certificates that are not valid at this instant.
fn invalid(cluster: &Cluster<'_>) -> Vec<String> {
    let present = cluster.snapshot.secrets.iter().filter_map(|(slot, found)| Some((slot, found.present()?)));
    let invalid = present.filter(|(_, state)| !state.certificate.is_valid_at(cluster.now()));
    invalid.map(|(slot, _)| slot.to_string()).collect()
}

/// Returns the broken edges, except those of pods that loaded an invalid certificate and present it until they reload.
fn broken(cluster: &Cluster<'_>) -> Vec<String> {
    cluster.broken().into_iter().filter(|it| !it.contains("pod of the Service")).collect()
}

#[test]
fn a_certificate_issued_by_a_wrong_clock_is_reissued_at_once_when_the_clock_is_right() {
    for wrong in [20, 400, 4000, -400] {
        let mut cluster = confused(wrong);
        let made = cluster.settle();
        let invalid = invalid(&cluster);
        let report = cluster.plan();
        assert_eq!(invalid, Vec::<String>::new(), "{wrong} days, made {}: {}", issues(&made).len(), text(&report));
        cluster.roll();
        cluster.go_to(day(10));
        assert_eq!(broken(&cluster), Vec::<String>::new(), "{wrong} days");
        let report = cluster.plan();
        assert_eq!((report.steps.len(), report.waiting.len()), (0, 0), "{wrong} days: {}", text(&report));
        // From here on the cluster behaves like any other.
        cluster.ended.clear();
        cluster.go_to(day(80));
        assert_eq!((broken(&cluster), cluster.ended.clone()), (Vec::new(), Vec::new()), "{wrong} days");
    }
}

#[test]
fn the_planner_waits_for_a_certificate_that_becomes_valid_within_the_clock_allowance() {
    let begins = |minutes: i64| {
        let mut cluster = Cluster::made();
        cluster.go_to(day(1));
        let at = cluster.now() + MINUTE * i32::try_from(minutes).unwrap();
        cluster.change_secret("openshift-kube-apiserver/aggregator-client", |state| {
            let mut certificate = state.certificate.as_ref().clone();
            certificate.id = CertificateId("from the future".into());
            certificate.validity.not_before = at;
            state.certificate = certificate.into();
            state.issued_at = Some(at);
        });
        (cluster.plan(), at)
    };
    let (report, at) = begins(5);
    assert!(report.waiting.iter().any(|it| it.waiting == Waiting::Validity { begins_at: at }), "{}", text(&report));
    assert_eq!(issues(&report.steps), Vec::<&crate::plan::Issue>::new());
    let (report, at) = begins(6);
    let issue = issue_of(&report.steps, "openshift-kube-apiserver/aggregator-client").unwrap();
    assert_eq!(issue.reason, Reason::NotYetValid { not_before: at });
}

/// The certificate is due by one clock and not by the other.
#[test]
fn a_certificate_is_reissued_only_when_it_is_due_by_both_clocks() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    for (server, skew) in [(day(1), 20), (day(1), 400), (day(1), -400), (day(21), -20), (day(401), -400)] {
        let snapshot =
            Snapshot { taken_at: server, clock_skew_seconds: skew * DAY_SECONDS, ..cluster.snapshot.clone() };
        let report = cluster.planner.plan(&snapshot, &crate::plan::Scope::All);
        assert_eq!(report.steps, Vec::new(), "{server}, {skew}: {}", text(&report));
        assert!(server < report.next_look, "{server}, {skew}");
    }
    // The observer's clock is twenty days behind the server's: a certificate that is due by the server's on day 15 waits.
    let due = |server: Timestamp| {
        let snapshot = Snapshot { taken_at: server, clock_skew_seconds: -20 * DAY_SECONDS, ..cluster.snapshot.clone() };
        cluster.planner.plan(&snapshot, &crate::plan::Scope::All)
    };
    let (early, late) = (due(day(34)), due(day(36)));
    let object = "openshift-kube-apiserver/kubelet-client";
    assert!(issue_of(&early.steps, object).is_none(), "{}", text(&early));
    assert!(early.next_look <= day(35), "{}", early.next_look);
    assert!(issue_of(&late.steps, object).is_some(), "{}", text(&late));
}

#[test]
fn an_absent_certificate_is_issued_valid_by_both_clocks_if_its_signer_is() {
    let object = "openshift-kube-apiserver/kubelet-client";
    for skew in [20_i64, -20, 400, -400] {
        let mut cluster = Cluster::made();
        cluster.go_to(day(1));
        cluster.delete_secret(object);
        cluster.snapshot.clock_skew_seconds = skew * DAY_SECONDS;
        let report = cluster.plan();
        let made = issue_of(&report.steps, object).unwrap_or_else(|| panic!("{}", text(&report))).spec.validity;
        let signer = cluster.secret("openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-signer");
        let other = cluster.snapshot.clocks();
        let other = if 0 < skew { other.latest() } else { other.earliest() };
        assert!(made.contains(cluster.now()), "{skew}: {made:?}");
        assert_eq!(made.contains(other), signer.certificate.validity.contains(other), "{skew}: {made:?}");
    }
}

#[test]
fn a_bundle_drops_a_ca_only_when_it_has_expired_by_both_clocks() {
    let bundle = "openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-client-ca";
    let mut cluster = Cluster::made();
    cluster.go_to(day(300));
    let old = cluster.bundle(bundle).members.len();
    assert_eq!(old, 2, "the previous signer is trusted until its end");
    cluster.snapshot.taken_at = day(400);
    let members = |cluster: &Cluster<'_>| {
        let mut cluster = cluster.clone();
        cluster.settle();
        cluster.bundle(bundle).members.len()
    };
    assert_eq!(members(&cluster), 1);
    let skewed = |cluster: &Cluster<'_>| {
        let mut cluster = cluster.clone();
        cluster.snapshot.clock_skew_seconds = -99 * DAY_SECONDS;
        members(&cluster)
    };
    assert_eq!(skewed(&cluster), 2);
    cluster.snapshot.not_earlier_than = Some(day(301));
    // The bundle also has the new signer, which is due by the only clock.
    assert!(2 <= members(&cluster), "{}", members(&cluster));
}

#[test]
fn a_recorded_time_in_the_future_counts_as_now() {
    let bundle = "openshift-config-managed/kube-apiserver-aggregator-client-ca";
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    let slot = ca(bundle);
    let Some(Observed::Present(state)) = cluster.snapshot.bundles.get_mut(&slot) else { panic!("it is there") };
    let future = day(500);
    state.published.values_mut().for_each(|it| (it.at, it.first) = (future, false));
    let report = cluster.plan();
    let rewritten =
        report.steps.iter().find(|step| step.object == bundle).unwrap_or_else(|| panic!("{}", text(&report)));
    let crate::plan::Action::Publish(publications) = &rewritten.action else { panic!("{rewritten}") };
    assert_eq!(publications[0].reason, BundleReason::DatedAhead);
    assert!(rewritten.restarts.is_empty(), "nothing restarts because of a note");
    cluster.settle();
    let state = cluster.bundle(bundle);
    assert!(state.published.values().all(|it| it.at == day(1)), "{:?}", state.published);

    // The circuit breaker does not stay open until that date, and the certificate is not valid for longer.
    let object = "openshift-kube-apiserver/aggregator-client";
    cluster.change_secret(object, |state| {
        state.issues = vec![future; 5];
        state.issued_at = Some(day(25));
        state.superseded.iter_mut().for_each(|past| past.at = future);
    });
    cluster.pass_to(day(16));
    let report = cluster.plan();
    assert!(issue_of(&report.steps, object).is_some(), "{}", text(&report));
    cluster.carry_out(&report.steps);
    let state = cluster.secret(object);
    assert_eq!((state.issues.clone(), state.issued_at), (vec![day(16)], Some(day(16))));
    assert!(state.superseded.iter().all(|past| past.at <= day(16)));
    assert!(cluster.snapshot.secrets[&tls(object)].present().is_some());
}

/// The first and last instants of the calendar are not special.
#[test]
fn nothing_panics_at_the_ends_of_the_calendar() {
    let ends = [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX - SignedDuration::from_secs(1), Timestamp::MAX];
    for now in ends {
        for skew in [i64::MIN, -1, 0, i64::MAX] {
            let mut cluster = Cluster::made();
            cluster.snapshot.taken_at = now;
            cluster.snapshot.clock_skew_seconds = skew;
            cluster.snapshot.not_earlier_than = Some(Timestamp::MIN);
            for at in ends {
                for found in cluster.snapshot.secrets.values_mut() {
                    let Observed::Present(state) = found else { continue };
                    state.issued_at = Some(at);
                    state.issues = vec![at; 5];
                }
                let bundles = cluster.snapshot.bundles.values_mut();
                for found in bundles {
                    let Observed::Present(state) = found else { continue };
                    state.published.values_mut().for_each(|it| it.at = at);
                }
                let report = cluster.plan();
                report.steps.iter().for_each(|step| cluster.snapshot.apply(step));
            }
        }
    }
}
