//! etcd rotates in two phases: first all members trust the new signer, then they get its leaves.

use expect_test::expect;

use super::fixture::{Cluster, HOUR, day, issues, slot};
use super::text::{days, steps, text, waiting};
use crate::plan::Action;
use crate::rules::Waiting;

/// Returns a cluster with a started rotation of `etcd-signer`, before any restart of a static pod.
fn begun() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10)).restarts = false;
    cluster.force("etcd-signer", "test");
    cluster.settle();
    cluster
}

#[test]
fn a_new_signer_is_published_first_and_alone() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10)).force("etcd-signer", "test");
    let report = cluster.plan();
    expect![[r#"
        issue openshift-etcd/etcd-signer: forced rotation: test
        publish openshift-etcd/etcd-ca-bundle: signer update: added [openshift-etcd/etcd-signer@day 10], removed []
        copy openshift-etcd/etcd-ca-bundle to openshift-etcd-operator/etcd-ca-bundle
        copy openshift-etcd/etcd-ca-bundle to openshift-config/etcd-serving-ca
        copy openshift-etcd/etcd-ca-bundle to openshift-config/etcd-ca-bundle
        copy openshift-etcd/etcd-ca-bundle to openshift-kube-apiserver/etcd-serving-ca (restarts openshift-kube-apiserver)
        publish openshift-etcd/etcd-all-bundles: signer update: added [openshift-etcd/etcd-signer@day 10], removed [] (restarts openshift-etcd)
        wait openshift-etcd/etcd-peer-m0 (cert not signed by most recent signer): rollout of openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m0 at revision 1, openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m1 at revision 1 and openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m2 at revision 1; at most until day 1094+22:00
        wait openshift-etcd/etcd-peer-m1 (cert not signed by most recent signer): rollout of openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m0 at revision 1, openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m1 at revision 1 and openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m2 at revision 1; at most until day 1094+22:00
        wait openshift-etcd/etcd-peer-m2 (cert not signed by most recent signer): rollout of openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m0 at revision 1, openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m1 at revision 1 and openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m2 at revision 1; at most until day 1094+22:00
        wait openshift-etcd/etcd-serving-m0 (cert not signed by most recent signer): rollout of openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m0 at revision 1, openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m1 at revision 1 and openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m2 at revision 1; at most until day 1094+22:00
        wait openshift-etcd/etcd-serving-m1 (cert not signed by most recent signer): rollout of openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m0 at revision 1, openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m1 at revision 1 and openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m2 at revision 1; at most until day 1094+22:00
        wait openshift-etcd/etcd-serving-m2 (cert not signed by most recent signer): rollout of openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m0 at revision 1, openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m1 at revision 1 and openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt of m2 at revision 1; at most until day 1094+22:00
        wait openshift-etcd/etcd-client (cert not signed by most recent signer): rollout of openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m0 at revision 1, openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m1 at revision 1 and openshift-etcd/etcd-all-bundles:server-ca-bundle.crt of m2 at revision 1; at most until day 1094+22:00
        look again day 15
    "#]].assert_eq(&text(&report));
}

#[test]
fn leaves_wait_until_the_running_revision_of_every_node_has_the_new_signer() {
    let mut cluster = begun();
    let etcd_waits = |cluster: &Cluster<'_>| {
        let report = cluster.plan();
        assert_eq!(steps(&report.steps), "");
        assert!(report.waiting.iter().all(|it| matches!(it.waiting, Waiting::Rollout { .. } | Waiting::Trust { .. })));
        report.waiting.iter().filter(|it| it.name.starts_with("etcd")).count()
    };
    let all = etcd_waits(&cluster);
    assert_eq!(all, 7, "{}", waiting(&cluster.plan())); // two for each node, and the client
    // Time alone does not end the wait.
    cluster.go_to(day(14));
    assert_eq!(etcd_waits(&cluster), all);
    for node in ["m0", "m1"] {
        cluster.roll_node(node);
        cluster.pass_to(cluster.now() + HOUR);
        assert_eq!(etcd_waits(&cluster), all, "{node}");
    }
    cluster.roll_node("m2");
    let done = cluster.settle();
    expect![[r#"
        issue openshift-etcd/etcd-peer-m0: cert not signed by most recent signer
        issue openshift-etcd/etcd-peer-m1: cert not signed by most recent signer
        issue openshift-etcd/etcd-peer-m2: cert not signed by most recent signer
        issue openshift-etcd/etcd-serving-m0: cert not signed by most recent signer
        issue openshift-etcd/etcd-serving-m1: cert not signed by most recent signer
        issue openshift-etcd/etcd-serving-m2: cert not signed by most recent signer
        issue openshift-etcd/etcd-client: cert not signed by most recent signer
        copy openshift-etcd/etcd-peer-m0, openshift-etcd/etcd-peer-m1, openshift-etcd/etcd-peer-m2, openshift-etcd/etcd-serving-m0, openshift-etcd/etcd-serving-m1, openshift-etcd/etcd-serving-m2 to openshift-etcd/etcd-all-certs (restarts openshift-etcd)
        copy openshift-etcd/etcd-client to openshift-etcd-operator/etcd-client
        copy openshift-etcd/etcd-client to openshift-config/etcd-client
        copy openshift-etcd/etcd-client to openshift-kube-apiserver/etcd-client (restarts openshift-kube-apiserver)
    "#]].assert_eq(&steps(&done));
    assert_eq!(cluster.broken(), Vec::<String>::new());
    assert_eq!(cluster.ended, Vec::<String>::new());
}

#[test]
fn a_restart_with_another_revision_of_the_old_bundle_does_not_end_the_wait() {
    let mut cluster = begun();
    // A revision for another reason, created before the bundle changed.
    for held in cluster.snapshot.held_bundles.values_mut().flatten() {
        held.revision = held.revision.map(|revision| revision + 5);
        held.since = Some(day(11));
    }
    cluster.pass_to(day(12));
    let report = cluster.plan();
    assert_eq!(steps(&report.steps), "");
    assert!(report.waiting.iter().any(|it| matches!(it.waiting, Waiting::Rollout { .. })));
}

#[test]
fn a_node_that_joins_in_between_gets_only_its_own_certificates() {
    let mut cluster = begun();
    cluster.pass_to(day(10) + HOUR);
    cluster.join("m3", "10.0.0.9");
    let done = cluster.settle();
    expect![[r#"
        issue openshift-etcd/etcd-peer-m3: secret doesn't exist
        issue openshift-etcd/etcd-serving-m3: secret doesn't exist
        issue openshift-etcd/etcd-serving-metrics-m3: secret doesn't exist
        copy openshift-etcd/etcd-peer-m3, openshift-etcd/etcd-serving-m3, openshift-etcd/etcd-serving-metrics-m3 to openshift-etcd/etcd-all-certs (restarts openshift-etcd)
    "#]].assert_eq(&steps(&done));
}

#[test]
fn all_certificates_of_all_nodes_are_one_write() {
    let mut cluster = begun();
    cluster.pass_to(day(10) + HOUR);
    cluster.roll();
    let done = cluster.settle();
    let gathering: Vec<_> = done.iter().filter(|step| step.object == "openshift-etcd/etcd-all-certs").collect();
    let [step] = gathering.as_slice() else { panic!("{}", steps(&done)) };
    let Action::CopySecret(items) = &step.action else { panic!("{step}") };
    assert_eq!(items.len(), 6); // peer and serving of three nodes; metrics have another signer
    let last = done.iter().rposition(|step| matches!(step.action, Action::Issue(_))).unwrap();
    assert!(last < done.iter().position(|step| step.object == "openshift-etcd/etcd-all-certs").unwrap());
}

#[test]
fn copies_of_a_removed_node_are_removed() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10));
    let of_m2 = slot("openshift-etcd/etcd-all-certs:etcd-peer-m2.crt");
    assert!(cluster.snapshot.secrets[&of_m2].present().is_some());
    cluster.leave("m2");
    let done = cluster.settle();
    assert_eq!(issues(&done).len(), 0);
    expect![[r#"
        remove etcd-peer-m2.crt, etcd-serving-m2.crt, etcd-serving-metrics-m2.crt from openshift-etcd/etcd-all-certs (restarts openshift-etcd)
    "#]].assert_eq(&steps(&done));
    assert!(cluster.snapshot.secrets[&of_m2].present().is_none());
    assert_eq!(cluster.plan().steps, Vec::new());
}

#[test]
fn a_member_that_never_restarts_does_not_let_the_other_certificates_expire() {
    let mut cluster = begun();
    cluster.roll_node("m0");
    cluster.roll_node("m1");
    // m2 keeps the old bundle, and all leaves expire on day 1095.
    cluster.go_to(day(12)).pass_to(day(1094));
    let mut issued = None;
    cluster.go_watching(day(1096), |cluster, report| {
        let step = report.steps.iter().find(|step| step.object == "openshift-etcd/etcd-peer-m0");
        if let Some(step) = step {
            assert!(
                step.risks.iter().any(|risk| risk.edge == "etcd accepts etcd-peer-m0 of etcd as a server"),
                "{step:?}"
            );
            issued.get_or_insert(days(&cluster.now().to_string()));
        }
    });
    // Two hours are reserved for a rollout: members with the new bundle are re-issued by then.
    assert_eq!(issued.as_deref(), Some("day 1094+22:00"));
}

#[test]
fn added_and_removed_copies_are_one_write() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10)).leave("m2");
    cluster.join("m3", "10.0.0.9");
    let done = cluster.settle();
    let step = done.iter().find(|step| step.object == "openshift-etcd/etcd-all-certs").unwrap();
    assert_eq!(
        step.to_string(),
        "copy openshift-etcd/etcd-peer-m3, openshift-etcd/etcd-serving-m3, openshift-etcd/etcd-serving-metrics-m3 \
         to openshift-etcd/etcd-all-certs, and remove etcd-peer-m2.crt, etcd-serving-m2.crt, \
         etcd-serving-metrics-m2.crt from it"
    );
}

#[test]
fn bundles_of_one_config_map_are_one_write() {
    let plan = Cluster::nothing().plan();
    let all = plan.steps.iter().filter(|step| step.object == "openshift-etcd/etcd-all-bundles").collect::<Vec<_>>();
    let [step] = all[..] else { panic!("{}", steps(&plan.steps)) };
    let Action::Publish(bundles) = &step.action else { panic!("{step}") };
    let ids: Vec<&str> = bundles.iter().map(|bundle| bundle.bundle).collect();
    assert_eq!(ids, ["etcd-all-bundles/server", "etcd-all-bundles/metrics"]);
}

#[test]
fn consent_may_name_one_member_or_all() {
    // The members that are re-issued although others lack the new signer, without a wait for their restart.
    let issued = |member: &str| {
        let mut cluster = begun();
        let purposes = ["server", "client"];
        let consent = purposes.map(|purpose| format!("etcd accepts etcd-peer-{member} of etcd as a {purpose}"));
        cluster.snapshot.settings.consent.extend(consent);
        assert_eq!(cluster.snapshot.check(cluster.planner.wiring()), Ok(()));
        let plan = cluster.plan();
        issues(&plan.steps).iter().map(|issue| issue.slot.object_text().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(issued("m1"), ["openshift-etcd/etcd-peer-m1"]);
    assert_eq!(issued("<node>"), ["m0", "m1", "m2"].map(|node| format!("openshift-etcd/etcd-peer-{node}")));
}
