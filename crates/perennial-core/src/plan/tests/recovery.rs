//! Recovery beside a running operator: only what is absent, unusable or expired, and names that changed.

use super::fixture::{Cluster, day, issues, tls};
use super::text::text;
use crate::rules::{Mode, Observed};
use crate::spec::Host;

fn recovering(at: i64) -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.snapshot.settings.mode = Mode::OnlyWhenExpired;
    cluster.pass_to(day(at));
    cluster
}

#[test]
fn what_is_past_its_refresh_or_most_of_its_life_is_left_alone() {
    for at in [1, 15, 20, 24, 29] {
        let report = recovering(at).plan();
        assert_eq!((report.steps.len(), report.waiting.len()), (0, 0), "day {at}: {}", text(&report));
    }
}

#[test]
fn what_was_asked_for_or_has_no_issuer_is_left_alone() {
    let mut cluster = recovering(3);
    cluster.force("etcd-signer", "test");
    cluster.change_secret("openshift-kube-apiserver/kubelet-client", |state| state.names_issuer = false);
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn what_is_absent_expired_or_has_other_names_is_made() {
    let issued = |cluster: &Cluster<'_>| {
        let mut rows: Vec<&str> = issues(&cluster.plan().steps).iter().map(|issue| issue.row).collect();
        rows.sort_unstable();
        rows
    };
    let mut cluster = recovering(3);
    cluster.snapshot.secrets.insert(tls("openshift-kube-apiserver/kubelet-client"), Observed::Absent);
    assert_eq!(issued(&cluster), ["kubelet-client"]);
    let mut cluster = recovering(3);
    cluster.snapshot.cluster.api_internal = Some(Host::parse("other.test"));
    assert_eq!(issued(&cluster), ["internal-loadbalancer-serving-certkey"]);
    // A month later all that lives a month has expired, and nothing else is touched.
    let cluster = recovering(31);
    let month: Vec<&str> = {
        let rows = cluster.planner.wiring().catalog.rows.iter();
        let mut of = rows
            .filter(|row| row.day == crate::catalog::Day::Two && row.validity.as_seconds() == 30 * 86_400)
            .map(|row| row.id)
            .collect::<Vec<_>>();
        of.sort_unstable();
        of
    };
    assert_eq!(issued(&cluster), month);
}

#[test]
fn a_bundle_is_kept_up_all_the_same() {
    let mut cluster = recovering(3);
    cluster.delete_bundle("openshift-kube-apiserver/client-ca");
    let done = cluster.settle();
    assert_eq!(done.len(), 1);
    assert_eq!(issues(&done).len(), 0);
}
