//! The conditions and decisions after a distrust or a lost key of the service CA, until its clients have reloaded.

use super::fixture::{Cluster, HOUR, day, tls};
use crate::catalog::{Catalog, Component};
use crate::conditions::{Circumstances, Claim, Services, claims};
use crate::plan::Planner;
use crate::service_ca;
use crate::service_ca::reloads::Acknowledged;
use crate::snapshot::Observed;

const SIGNER: &str = "openshift-service-ca/signing-key";

fn settled() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10));
    cluster
}

/// Distrusts the current CA, and advances by an hour.
fn distrust(cluster: &mut Cluster<'_>) {
    let (key, now) = (cluster.secret(SIGNER).certificate.subject.key.clone(), cluster.now());
    cluster.snapshot.distrusted.insert(key, now);
    cluster.settle();
    cluster.pass_to(cluster.now() + HOUR);
}

/// Returns the conditions of the service CA that report a problem.
fn complaints(cluster: &Cluster<'_>) -> Vec<String> {
    let planner = Planner::new(Catalog::builtin());
    let report = cluster.plan();
    let circumstances = Circumstances {
        snapshot: &cluster.snapshot,
        report: &report,
        failed: &[],
        problems: &[],
        services: &Services::default(),
        stale_pods: None,
        rotation_base: None,
    };
    let claims = claims(&planner, Component::ServiceCa, &circumstances).unwrap();
    let is_complaint = |it: &&Claim| it.is_true != ["Available", "Upgradeable"].contains(&it.type_.as_str());
    claims.iter().filter(is_complaint).map(|it| it.type_.clone()).collect()
}

#[test]
fn the_component_is_degraded_until_clients_and_servers_have_reloaded() {
    let distrusted = || {
        let mut cluster = settled();
        distrust(&mut cluster);
        cluster
    };
    let mut cluster = distrusted();
    let degraded = ["Degraded", "PreviousServiceCAInUse", "CertRotation_SigningKey_Degraded"];
    assert_eq!(complaints(&cluster), degraded);
    assert!(!cluster.broken().is_empty() && !cluster.plan().risks.is_empty());
    // An observation from before the distrust does not count.
    let now = cluster.now();
    cluster.snapshot.reloads.observed = Some(now - 3 * HOUR);
    assert_eq!(complaints(&cluster), degraded);
    // All pods have started since: only clients outside the cluster may be affected, and the proof is unchanged.
    cluster.snapshot.reloads.observed = Some(now);
    assert_eq!(complaints(&cluster), ["PreviousServiceCAInUse"]);
    assert_eq!(cluster.broken(), [""; 0]);
    assert_eq!(cluster.plan().risks, []);
    // An administrator acknowledges the reload.
    let mut cluster = distrusted();
    cluster.snapshot.reloads.acknowledged = Some(Acknowledged { at: now, reason: "restarted".to_owned() });
    assert_eq!(complaints(&cluster), [""; 0]);
    assert_eq!(cluster.broken(), [""; 0]);
    // The next distrust needs another acknowledgement.
    cluster.pass_to(now + HOUR);
    distrust(&mut cluster);
    assert_eq!(complaints(&cluster), degraded);
}

/// The edges that an earlier distrust broke are not reported for a later rotation, also after all pods have started since.
#[test]
fn a_rotation_after_a_distrust_does_not_report_edges_that_the_distrust_broke() {
    let consequences = |cluster: &Cluster<'_>| {
        let planner = Planner::new(Catalog::builtin());
        let report = planner.consequences(&cluster.snapshot, [(tls(SIGNER), "again".to_owned())].into());
        assert!(report.steps.iter().any(|step| step.object == SIGNER), "{report:?}");
        let edges: Vec<String> = report.all_risks().map(|risk| risk.edge.clone()).collect();
        edges
    };
    let mut cluster = settled();
    assert_eq!(consequences(&cluster), [""; 0]);
    distrust(&mut cluster);
    assert_eq!(consequences(&cluster), [""; 0]);
    cluster.snapshot.reloads.observed = Some(cluster.now());
    assert_eq!(consequences(&cluster), [""; 0]);
}

/// After the key is lost, existing Services wait for their clients. An acknowledgement ends that wait, an observation does not.
#[test]
fn services_follow_a_new_ca_after_an_administrator_acknowledges_the_reload() {
    let mut cluster = settled();
    cluster.delete_secret(SIGNER);
    cluster.settle();
    cluster.pass_to(cluster.now() + HOUR);
    let waiting =
        |cluster: &Cluster<'_>| cluster.plan().waiting.iter().filter(|it| it.name == service_ca::SERVING_ROW).count();
    assert_eq!(waiting(&cluster), 2);
    let now = cluster.now();
    cluster.snapshot.reloads.observed = Some(now);
    assert_eq!(waiting(&cluster), 2);
    cluster.snapshot.reloads.acknowledged = Some(Acknowledged { at: now, reason: "restarted".to_owned() });
    assert_eq!(waiting(&cluster), 0);
    cluster.settle();
    assert_eq!(cluster.broken(), [""; 0]);
}

/// A tenant's change to a Secret does not affect the component's health.
#[test]
fn no_service_makes_the_component_unavailable_or_degraded() {
    for found in [Observed::Absent, Observed::Unreadable { why: "tls.crt is no certificate".to_owned() }] {
        let mut cluster = settled();
        cluster.set_secret("shop/web-tls", found.clone());
        let place = tls("shop/web-tls");
        let now = cluster.now();
        cluster.snapshot.lost_issues.insert(place, vec![now; 5]);
        assert_eq!(complaints(&cluster), [""; 0], "{found:?}");
    }
}
