//! Recovery next to a running operator: only absent, unusable and expired certificates, and changed names.

use super::fixture::{Cluster, day, issues, tls};
use super::text::text;
use crate::snapshot::{Mode, Observed};
use crate::spec::Host;

fn recovering(at: i64) -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    cluster.snapshot.settings.mode = Mode::OnlyWhenExpired;
    cluster.pass_to(day(at));
    cluster
}

#[test]
fn recovery_ignores_a_due_refresh_and_eighty_percent_of_the_validity() {
    for at in [1, 15, 20, 24, 29] {
        let report = recovering(at).plan();
        assert_eq!((report.steps.len(), report.waiting.len()), (0, 0), "day {at}: {}", text(&report));
    }
}

#[test]
fn recovery_ignores_requests_and_missing_issuers() {
    let mut cluster = recovering(3);
    cluster.force("etcd-signer", "test");
    cluster.change_secret("openshift-kube-apiserver/kubelet-client", |state| state.names_issuer = false);
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn recovery_issues_absent_and_expired_certificates_and_changed_names() {
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
    // A month later all monthly certificates have expired, and nothing else is re-issued.
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
fn recovery_updates_bundles() {
    let mut cluster = recovering(3);
    cluster.delete_bundle("openshift-kube-apiserver/client-ca");
    let done = cluster.settle();
    assert_eq!(done.len(), 1);
    assert_eq!(issues(&done).len(), 0);
}
