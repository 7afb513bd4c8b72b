//! Changes over time: a changed policy, a cluster that was down, and another operator with the same objects.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube_client::Api;
use kube_client::api::{ListParams, Patch, PatchParams};
use perennial_api::config::ClusterOperator;
use perennial_core::catalog::{Catalog, Day, Scope};
use perennial_core::plan::Report;
use perennial_core::verify::{self, State};
use perennial_operator::observe::Observation;
use perennial_operator::status::NOT_MANAGED;
use serde_json::json;

use crate::cluster::{Cluster, PLANNER};

const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Returns the kind of key of every managed certificate, by its row.
fn keys(observation: &Observation) -> BTreeMap<&'static str, String> {
    let rows = Catalog::builtin().rows.iter().filter(|row| row.day == Day::Two && row.component.row().is_managed);
    let rows = rows.filter(|row| row.scope == Scope::Cluster);
    let key = |row: &perennial_core::catalog::Row| {
        let slot = PLANNER.wiring().home(row, &perennial_core::catalog::Instance::Cluster);
        let state = observation.snapshot.secrets[&slot].present().unwrap();
        let certificate = observation.library.get(&state.certificate.id).unwrap();
        certificate.facts().public_key.kind().spec().unwrap().to_string()
    };
    rows.map(|row| (row.id, key(row))).collect()
}

fn assert_whole(observation: &Observation, report: &Report) {
    assert_eq!(report.risks, []);
    for edge in verify::verify(&PLANNER, &observation.snapshot) {
        assert!(!matches!(edge.state, State::Broken(_)), "{edge:?}");
    }
}

/// Runs passes at the operator's intervals until this time has passed.
async fn live(cluster: &Cluster, span: SignedDuration) -> Vec<String> {
    let end = cluster.now() + span;
    let mut written = Vec::new();
    while cluster.now() < end {
        let (passed, text) = cluster.pass().await;
        assert_whole(&passed.observation, &passed.report);
        written.extend(text.lines().map(str::to_owned));
        cluster.set_now(passed.report.next_look.min(end).max(cluster.now() + SignedDuration::from_secs(1)));
    }
    written
}

#[tokio::test]
async fn a_changed_policy_reissues_nothing_and_applies_from_the_next_rotation_on() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    cluster.set_policy("ECDSA P384").await;
    let (passed, text) = cluster.pass().await;
    assert_eq!(text, "");
    assert_eq!(keys(&passed.observation).into_values().collect::<BTreeSet<_>>(), BTreeSet::from(["ECDSA P256".into()]));
    live(&cluster, DAY * 16).await;
    let (passed, _) = cluster.pass().await;
    let found = keys(&passed.observation);
    assert_eq!(found["aggregator-client"], "ECDSA P384", "a leaf of a month is refreshed after half of it");
    assert_eq!(found["aggregator-client-signer"], "ECDSA P256", "its signer lives for a year");
    // All signers and leaves, under signers of another kind or not.
    live(&cluster, DAY * 310).await;
    let (passed, _) = cluster.pass().await;
    let longer = ["localhost-", "service-network-", "loadbalancer-", "signing-key"];
    let yearly = |id: &str| !longer.iter().any(|it| id.starts_with(it));
    for (id, key) in keys(&passed.observation).into_iter().filter(|(id, _)| yearly(id)) {
        assert_eq!(key, "ECDSA P384", "{id}");
    }
}

#[tokio::test]
async fn a_cluster_that_was_down_until_everything_expired_recovers_by_itself() {
    for years in [1, 3, 11] {
        let cluster = Cluster::embedded().await;
        cluster.pass().await;
        cluster.set_now(cluster.now() + DAY * 365 * years);
        let (passed, _) = cluster.pass().await;
        // The certificates that processes still hold have expired, and no write helps before they reload.
        cluster.set_now(cluster.now() + SignedDuration::from_mins(20));
        let (again, _) = cluster.pass().await;
        assert_whole(&again.observation, &again.report);
        assert!(!passed.written.is_empty(), "{years} years");
        let now = cluster.now();
        for (slot, found) in &again.observation.snapshot.secrets {
            assert!(
                found.present().is_none_or(|state| state.certificate.is_valid_at(now)),
                "{slot} after {years} years"
            );
        }
    }
}

#[tokio::test]
async fn components_of_another_operator_are_not_written() {
    let cluster = Cluster::embedded().await;
    cluster.runner().once().await.unwrap();
    let secrets = cluster.secrets("openshift-kube-apiserver-operator");
    let signer = secrets.get("aggregator-client-signer").await.unwrap();
    let theirs = Secret { metadata: Default::default(), ..signer.clone() };
    let content = json!({"data": {"tls.crt": theirs.data.unwrap()["tls.crt"], "note": "aGk="}});
    let as_them =
        PatchParams { field_manager: Some("cluster-kube-apiserver-operator".to_owned()), ..PatchParams::default() };
    secrets.patch("aggregator-client-signer", &as_them, &Patch::Merge(&content)).await.unwrap();
    cluster.secrets("openshift-kube-apiserver").delete("aggregator-client", &Default::default()).await.unwrap();
    cluster.secrets("openshift-kube-controller-manager").delete("csr-signer", &Default::default()).await.unwrap();
    let operators = Api::<ClusterOperator>::all(cluster.client.clone());
    let before = operators.get("kube-apiserver").await.unwrap();
    let passed = cluster.runner().once().await.unwrap();
    let written: Vec<String> = passed.written.iter().map(|(step, _)| step.to_string()).collect();
    assert_eq!(
        written,
        ["copy openshift-kube-controller-manager-operator/csr-signer to openshift-kube-controller-manager/csr-signer"]
    );
    // The other operator reports the state. Perennial reports that it does not manage the component, and why.
    let mut after = operators.get("kube-apiserver").await.unwrap().status.unwrap();
    let not_managed = after.conditions.iter().position(|it| it.type_ == NOT_MANAGED).unwrap();
    let not_managed = after.conditions.remove(not_managed);
    assert!(not_managed.message.unwrap().starts_with("cluster-kube-apiserver-operator manages "));
    assert_eq!(after, before.status.unwrap());
    let events = Api::<Event>::namespaced(cluster.client.clone(), "openshift-kube-apiserver-operator");
    let told = events.list(&ListParams::default()).await.unwrap();
    let told: Vec<_> = told.into_iter().filter(|it| it.reason.as_deref() == Some("OtherWriter")).collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].message.as_ref().unwrap().contains("cluster-kube-apiserver-operator"));
    let waiting = passed.report.waiting.iter().find(|it| it.name == "aggregator-client").unwrap();
    assert!(waiting.waiting.to_string().contains("cluster-kube-apiserver-operator"), "{}", waiting.waiting);
    // Taken over.
    let mut cluster = cluster;
    cluster.view.settings.taken_over = ["kube-apiserver".to_owned()].into();
    let passed = cluster.runner().once().await.unwrap();
    let written: Vec<String> = passed.written.iter().map(|(step, _)| step.to_string()).collect();
    let made = "issue openshift-kube-apiserver/aggregator-client: secret doesn't exist".to_owned();
    assert!(written.contains(&made), "{written:?}");
    let after = operators.get("kube-apiserver").await.unwrap().status.unwrap();
    assert!(!after.conditions.iter().any(|it| it.type_ == NOT_MANAGED));
}

#[tokio::test]
async fn deleted_and_damaged_objects_are_repaired() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    live(&cluster, DAY * 20).await;
    let kaso = "openshift-kube-apiserver-operator";
    // A signer's key is lost, a bundle is lost, and another is damaged.
    cluster.secrets(kaso).delete("kube-control-plane-signer", &Default::default()).await.unwrap();
    cluster.config_maps(kaso).delete("loadbalancer-serving-ca", &Default::default()).await.unwrap();
    let damaged = json!({"data": {"ca-bundle.crt": "nonsense"}});
    let maps = cluster.config_maps("openshift-config-managed");
    maps.patch("kube-apiserver-aggregator-client-ca", &PatchParams::default(), &Patch::Merge(&damaged)).await.unwrap();
    let garbled = json!({"data": {"tls.key": "bm9uc2Vuc2U="}});
    let secrets = cluster.secrets("openshift-kube-apiserver");
    secrets.patch("check-endpoints-client-cert-key", &PatchParams::default(), &Patch::Merge(&garbled)).await.unwrap();
    let (passed, text) = cluster.pass().await;
    for told in [
        "issue openshift-kube-apiserver-operator/kube-control-plane-signer: secret doesn't exist",
        "publish openshift-kube-apiserver-operator/loadbalancer-serving-ca: configmap doesn't exist",
        "publish openshift-config-managed/kube-apiserver-aggregator-client-ca: damaged: ",
    ] {
        assert!(text.contains(told), "{told} is not in\n{text}");
    }
    let client_ca =
        &passed.observation.snapshot.bundles[&"openshift-kube-apiserver/client-ca:ca-bundle.crt".parse().unwrap()];
    assert!(client_ca.present().unwrap().members.len() > 5, "the certificate of the lost signer stays");
    live(&cluster, DAY * 2).await;
    let (passed, text) = cluster.pass().await;
    assert_eq!((text.as_str(), passed.report.waiting.len()), ("", 0));
}
