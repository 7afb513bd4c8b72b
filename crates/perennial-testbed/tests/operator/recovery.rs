//! Changes to objects by people and accidents.

use http::{Method, StatusCode};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::Cluster;
use crate::faults::{FAULTS, way};

const KASO: &str = "openshift-kube-apiserver-operator";
const SIGNER: &str = "loadbalancer-serving-signer";

/// A Secret as a person created it: the same content, another type.
async fn mistype(cluster: &Cluster) -> Secret {
    let secrets = cluster.secrets(KASO);
    let found = secrets.get(SIGNER).await.unwrap();
    secrets.delete(SIGNER, &DeleteParams::default()).await.unwrap();
    let labels = json!({"team": "blue"});
    let annotations = found.metadata.annotations.clone();
    let metadata = json!({"name": SIGNER, "annotations": annotations, "labels": labels});
    let object = json!({"metadata": metadata, "type": "Opaque", "data": found.data});
    cluster.create::<Secret>(Some(KASO), object).await;
    found
}

async fn wrong_type(cluster: &Cluster) {
    cluster.pass().await;
    let before = mistype(cluster).await;
    let (_, text) = cluster.pass().await;
    assert_eq!(text, format!("replace {KASO}/{SIGNER}, because its type is wrong\n"), "nothing is issued");
    let after = cluster.secrets(KASO).get(SIGNER).await.unwrap();
    assert_eq!(after.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(after.data, before.data);
    let labels = after.metadata.labels.unwrap();
    assert_eq!(labels["team"], "blue");
    assert_eq!(labels["auth.openshift.io/managed-certificate-type"], "signer", "it is described in the same write");
    let left = cluster.secrets(KASO).get_opt(&format!("{SIGNER}-staged")).await.unwrap();
    assert!(left.is_none());
}

#[tokio::test]
async fn a_secret_of_the_wrong_type_is_replaced_with_its_content() {
    wrong_type(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn a_secret_of_the_wrong_type_is_replaced_on_a_real_server() {
    wrong_type(&Cluster::real().await).await;
}

#[tokio::test]
async fn fields_of_other_writers_stay() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let secrets = cluster.secrets("openshift-kube-apiserver");
    let owner = json!({"metadata": {"name": "owner"}});
    let owner: ConfigMap = cluster.create(Some("openshift-kube-apiserver"), owner).await;
    let theirs = json!({
        "metadata": {
            "labels": {"team": "blue"},
            "annotations": {"example.com/note": "ours", "auth.openshift.io/certificate-not-after": null},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}],
        },
        "data": {"extra": "ZXh0cmE="},
    });
    secrets.patch("aggregator-client", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let (_, text) = cluster.pass().await;
    assert_eq!(text, "issue openshift-kube-apiserver/aggregator-client: missing notAfter\n");
    let after = secrets.get("aggregator-client").await.unwrap();
    assert_eq!(after.metadata.labels.unwrap()["team"], "blue");
    assert_eq!(after.metadata.annotations.unwrap()["example.com/note"], "ours");
    assert_eq!(after.metadata.owner_references.unwrap()[0].name, "owner");
    assert_eq!(after.data.unwrap()["extra"].0, b"extra");
}

#[tokio::test]
async fn a_foreign_secret_of_the_wrong_type_stays() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let found = cluster.secrets(KASO).get(SIGNER).await.unwrap();
    let object = json!({"metadata": {"name": "etcd-signer"}, "type": "Opaque", "data": found.data});
    let before = cluster.create::<Secret>(Some("openshift-etcd"), object).await;
    let (_, text) = cluster.pass().await;
    assert_eq!(text, "");
    let after = cluster.secrets("openshift-etcd").get("etcd-signer").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
}

#[tokio::test]
async fn a_secret_that_cannot_be_replaced_keeps_its_content() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    mistype(&cluster).await;
    let held = json!({"metadata": {"finalizers": ["example.com/hold"]}});
    cluster.secrets(KASO).patch(SIGNER, &PatchParams::default(), &Patch::Merge(&held)).await.unwrap();
    let passed = cluster.reconciler().pass(&[]).await.unwrap();
    assert_eq!(passed.failed.len(), 1);
    assert!(passed.failed[0].1.to_string().contains("cannot be replaced"), "{}", passed.failed[0].1);
    assert!(cluster.secrets(KASO).get(SIGNER).await.unwrap().metadata.deletion_timestamp.is_none());
    assert!(cluster.secrets(KASO).get_opt(&format!("{SIGNER}-staged")).await.unwrap().is_none());
}

#[tokio::test]
async fn an_interrupted_replacement_is_completed_with_the_same_key() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let signer = cluster.secrets(KASO).get(SIGNER).await.unwrap();
    // The state right after the deletion.
    let metadata = json!({
        "name": format!("{SIGNER}-staged"),
        "labels": {"perennial.dev/staged": "true"},
        "annotations": {"perennial.dev/staged-for": SIGNER},
    });
    let mut staged = json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": signer.data});
    for (name, value) in signer.metadata.labels.clone().unwrap() {
        staged["metadata"]["labels"][name] = json!(value);
    }
    for (name, value) in signer.metadata.annotations.clone().unwrap() {
        staged["metadata"]["annotations"][name] = json!(value);
    }
    cluster.create::<Secret>(Some(KASO), staged).await;
    cluster.secrets(KASO).delete(SIGNER, &DeleteParams::default()).await.unwrap();
    let (_, text) = cluster.pass().await;
    assert_eq!(text, "", "nothing is issued");
    let after = cluster.secrets(KASO).get(SIGNER).await.unwrap();
    assert_eq!(after.data, signer.data);
    assert!(!after.metadata.annotations.unwrap().contains_key("perennial.dev/staged-for"));
    assert!(cluster.secrets(KASO).get_opt(&format!("{SIGNER}-staged")).await.unwrap().is_none());
}

#[tokio::test]
async fn a_replacement_keeps_the_key_after_any_fault_at_any_write() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    // The Secret is staged, deleted and created again, and the staged copy is deleted.
    for (unlucky, fault) in (1..=4).flat_map(|unlucky| FAULTS.map(|fault| (unlucky, fault))) {
        let before = mistype(&cluster).await;
        // The result of a killed operator does not matter.
        let _ = cluster.reconciler_through(way(&cluster, unlucky, fault, None).client).pass(&[]).await;
        cluster.pass().await;
        let after = cluster.secrets(KASO).get(SIGNER).await.unwrap();
        assert_eq!(after.type_.as_deref(), Some("kubernetes.io/tls"), "{fault:?} at write {unlucky}");
        assert_eq!(after.data, before.data, "{fault:?} at write {unlucky}");
        let left = cluster.secrets(KASO).get_opt(&format!("{SIGNER}-staged")).await.unwrap();
        assert!(left.is_none(), "{fault:?} at write {unlucky}");
    }
}

/// Deletes the signer as an administrator does after a key leaked: the next signer has another key.
async fn destroy(cluster: &Cluster) {
    let leaked = cluster.secrets(KASO).get(SIGNER).await.unwrap();
    cluster.secrets(KASO).delete(SIGNER, &DeleteParams::default()).await.unwrap();
    cluster.pass().await;
    let after = cluster.secrets(KASO).get(SIGNER).await.unwrap();
    assert_ne!(after.data.unwrap()["tls.key"], leaked.data.unwrap()["tls.key"]);
}

#[tokio::test]
async fn a_key_deleted_after_a_rejected_replacement_is_not_restored() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    mistype(&cluster).await;
    for refusal in [(StatusCode::FORBIDDEN, "Forbidden"), (StatusCode::NOT_FOUND, "NotFound")] {
        let path = format!("/api/v1/namespaces/{KASO}/secrets/{SIGNER}");
        let way = cluster.way(move |method, at| (*method == Method::DELETE && at == path).then_some(refusal));
        let passed = cluster.reconciler_through(way).pass(&[]).await.unwrap();
        assert_eq!(passed.failed.len(), 1, "{:?}", passed.failed);
        let left = cluster.secrets(KASO).get_opt(&format!("{SIGNER}-staged")).await.unwrap();
        assert!(left.is_none(), "{refusal:?}");
    }
    destroy(&cluster).await;
}

#[tokio::test]
async fn an_unneeded_staged_key_is_deleted_within_minutes() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let signer = cluster.secrets(KASO).get(SIGNER).await.unwrap();
    // The operator stopped before the deletion.
    let staged = json!({
        "metadata": {
            "name": format!("{SIGNER}-staged"),
            "labels": {"perennial.dev/staged": "true"},
            "annotations": {"perennial.dev/staged-for": SIGNER, "perennial.dev/staged-uid": signer.metadata.uid},
        },
        "type": "kubernetes.io/tls",
        "data": signer.data,
    });
    cluster.create::<Secret>(Some(KASO), staged).await;
    let reconciler = cluster.reconciler();
    let is_there = async || cluster.secrets(KASO).get_opt(&format!("{SIGNER}-staged")).await.unwrap().is_some();
    for (minute, expected) in [(0, true), (4, true), (5, false)] {
        let began = cluster.now();
        cluster.set_now(began + SignedDuration::from_mins(minute));
        let passed = reconciler.pass(&[]).await.unwrap();
        assert_eq!(passed.observation.problems, [], "nothing is wrong");
        assert_eq!(is_there().await, expected, "after {minute} minutes");
        cluster.set_now(began);
    }
    destroy(&cluster).await;
}

#[tokio::test]
async fn the_staged_secret_of_an_interrupted_replacement_is_removed() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let (namespace, copy) = ("openshift-kube-controller-manager", "kube-controller-manager-client-cert-key");
    let secrets = cluster.secrets(namespace);
    let found = secrets.get(copy).await.unwrap();
    let metadata = json!({
        "name": format!("{copy}-staged"),
        "labels": {"perennial.dev/staged": "true"},
        "annotations": {"perennial.dev/staged-for": copy},
    });
    let staged = json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": found.data});
    cluster.create::<Secret>(Some(namespace), staged).await;
    cluster.pass().await;
    assert!(secrets.get_opt(&format!("{copy}-staged")).await.unwrap().is_none());
    assert_eq!(secrets.get(copy).await.unwrap().metadata.resource_version, found.metadata.resource_version);
}

#[tokio::test]
async fn repeated_deletions_of_a_signer_open_the_circuit_breaker() {
    let cluster = Cluster::embedded().await;
    let reconciler = cluster.reconciler();
    reconciler.pass(&[]).await.unwrap();
    let mut issued = 0;
    for _ in 0..8 {
        cluster.set_now(cluster.now() + SignedDuration::from_secs(1));
        let _ = cluster.secrets(KASO).delete(SIGNER, &DeleteParams::default()).await;
        let passed = reconciler.pass(&[]).await.unwrap();
        issued += passed.written.iter().filter(|(step, _)| step.object == format!("{KASO}/{SIGNER}")).count();
    }
    assert_eq!(issued, 4, "five in an hour, with the first");
}

/// A row whose signer has just been rotated and whose Secret is absent. An operator that has seen the Secret waits, because a process may
/// present its content; an operator that never saw it issues at once.
async fn a_deleted_certificate_waits_and_one_that_never_existed_does_not(cluster: Cluster) {
    let (namespace, name) = ("openshift-kube-apiserver", "aggregator-client");
    cluster.pass().await;
    cluster.set_now(cluster.now() + SignedDuration::from_hours(24));
    // This operator has issued nothing, so it knows only what it has observed.
    let witness = cluster.reconciler();
    witness.plan().await.unwrap();
    let ask = json!({"metadata": {"annotations": {perennial_api::annotations::FORCE: "a test"}}});
    let signers = cluster.secrets(KASO);
    signers.patch("aggregator-client-signer", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    cluster.secrets(namespace).delete(name, &DeleteParams::default()).await.unwrap();
    let is_there = async || cluster.secrets(namespace).get_opt(name).await.unwrap().is_some();
    for _ in 0..2 {
        let passed = witness.pass(&[]).await.unwrap();
        let waits = passed.report.waiting.iter().any(|it| it.slot.object_text() == format!("{namespace}/{name}"));
        assert!(waits && passed.failed.is_empty() && !is_there().await, "{:?}", passed.report.waiting);
    }
    let passed = cluster.reconciler().pass(&[]).await.unwrap();
    assert!(is_there().await, "{:?}", passed.report.waiting);
}

on_both! {
    a_deleted_certificate_waits_and_one_that_never_existed_does_not
}
