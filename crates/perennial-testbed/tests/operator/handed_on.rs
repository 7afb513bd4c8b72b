//! The bundle that the controller manager passes on to every pod, while its static pod restarts.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams};
use perennial_api::annotations::FORCE;
use perennial_api::operator::KubeControllerManager;
use perennial_core::verify::{self, State};
use serde_json::json;

use crate::cluster::{Cluster, PLANNER};
use crate::reports::condition;

const KCM: &str = "openshift-kube-controller-manager";
const KAS: &str = "openshift-kube-apiserver";
const KASO: &str = "openshift-kube-apiserver-operator";
const POD: &str = "kube-controller-manager-m0";

fn minutes(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

fn pods(cluster: &Cluster) -> Api<Pod> {
    Api::namespaced(cluster.client.clone(), KCM)
}

/// Restarts the static pod with a revision of the current content.
async fn restart(cluster: &Cluster, revision: u64) {
    let is_copy = |name: &str| name.rsplit('-').next().is_some_and(|end| end.parse::<u64>().is_ok());
    for map in cluster.config_maps(KCM).list(&ListParams::default()).await.unwrap() {
        let name = map.metadata.name.unwrap();
        if !is_copy(&name) {
            let copy = json!({"metadata": {"name": format!("{name}-{revision}")}, "data": map.data});
            cluster.create::<ConfigMap>(Some(KCM), copy).await;
        }
    }
    for secret in cluster.secrets(KCM).list(&ListParams::default()).await.unwrap() {
        let name = secret.metadata.name.unwrap();
        if !is_copy(&name) {
            let metadata = json!({"name": format!("{name}-{revision}")});
            let copy = json!({"metadata": metadata, "data": secret.data, "type": secret.type_});
            cluster.create::<Secret>(Some(KCM), copy).await;
        }
    }
    let params = PatchParams::default();
    let node = json!({"nodeName": "m0", "currentRevision": revision});
    let status = json!({"status": {"nodeStatuses": [node]}});
    let operators = Api::<KubeControllerManager>::all(cluster.client.clone());
    if operators.get_opt("cluster").await.unwrap().is_none() {
        let metadata = json!({"metadata": {"name": "cluster"}, "spec": {}});
        cluster.create::<KubeControllerManager>(None, metadata).await;
    }
    operators.patch_status("cluster", &params, &Patch::Merge(&status)).await.unwrap();
    if pods(cluster).get_opt(POD).await.unwrap().is_none() {
        let containers = json!([{"name": "kube-controller-manager", "image": "none"}]);
        let pod = json!({"metadata": {"name": POD}, "spec": {"nodeName": "m0", "containers": containers}});
        cluster.create::<Pod>(Some(KCM), pod).await;
    }
    let started = json!({"status": {"startTime": cluster.now().to_string()}});
    pods(cluster).patch_status(POD, &params, &Patch::Merge(&started)).await.unwrap();
}

async fn force(cluster: &Cluster, reason: &str) {
    let asked = Patch::Merge(json!({"metadata": {"annotations": {FORCE: reason}}}));
    for (namespace, name) in [(KASO, "service-network-serving-signer"), (KAS, "service-network-serving-certkey")] {
        cluster.secrets(namespace).patch(name, &PatchParams::default(), &asked).await.unwrap();
    }
}

/// Returns the writes some minutes later, with a check that no edge is broken or reported.
async fn later(cluster: &Cluster, after: i64) -> String {
    cluster.set_now(cluster.now() + minutes(after));
    let passed = cluster.runner().once().await.unwrap();
    assert_eq!(passed.report.risks, []);
    for edge in verify::verify(&PLANNER, &passed.observation.snapshot) {
        assert!(!matches!(edge.state, State::Broken(_)), "{edge:?}");
    }
    for operator in ["kube-apiserver", "kube-controller-manager"] {
        let (status, message, _) = condition(cluster, operator, "Available").await;
        assert_eq!(status, "True", "{operator}: {message}");
    }
    passed.written.iter().map(|(step, _)| format!("{}\n", step.object)).collect()
}

/// Returns a cluster whose static pod has run with all certificates for an hour.
async fn running() -> Cluster {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    restart(&cluster, 1).await;
    assert_eq!(later(&cluster, 60).await, "");
    cluster
}

const SERVING: &str = "openshift-kube-apiserver/service-network-serving-certkey\n";
const HANDED_ON: &str = "openshift-kube-controller-manager/serviceaccount-ca\n";

#[tokio::test]
async fn a_restart_of_the_relay_does_not_reset_its_readers() {
    let cluster = running().await;
    let mut revision = 1;
    for reason in ["first", "second"] {
        force(&cluster, reason).await;
        assert!(later(&cluster, 0).await.contains(HANDED_ON));
        revision += 1;
        restart(&cluster, revision).await;
        assert_eq!(later(&cluster, 1).await, "", "pods may not have it yet");
        // When the pods have the signer, its certificates follow, and the operator records that the pods have it.
        assert_eq!(later(&cluster, 14).await, format!("{HANDED_ON}{SERVING}"));
        // Other restarts do not change the result either.
        revision += 1;
        restart(&cluster, revision).await;
        assert_eq!(later(&cluster, 1).await, "");
    }
}

#[tokio::test]
async fn a_static_pod_without_a_mirror_pod_may_have_started_now() {
    let cluster = running().await;
    force(&cluster, "a rehearsal").await;
    later(&cluster, 0).await;
    restart(&cluster, 2).await;
    pods(&cluster).delete(POD, &DeleteParams::default()).await.unwrap();
    assert_eq!(later(&cluster, 60).await, "");
    restart(&cluster, 3).await;
    assert_eq!(later(&cluster, 15).await, format!("{HANDED_ON}{SERVING}"));
}
