//! After the service CA was distrusted, the component is healthy again when every pod has started since, or when an administrator
//! acknowledges it.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube_client::api::{DeleteParams, Patch, PatchParams};
use kube_client::{Api, Client};
use perennial_core::catalog::{Catalog, Component, ObjectName};
use perennial_core::injection::INJECT;
use perennial_core::reloads::Acknowledged;
use perennial_operator::{ask, rbac};
use serde_json::json;

use super::shop::{SHOP, Shop};
use crate::cluster::Cluster;
use crate::reports::condition;

const CA: &str = "openshift-service-ca";
/// Times before and after all writes of the test, by the server's clock.
const BEFORE: &str = "2020-01-01T00:00:00Z";
const AFTER: &str = "2090-01-01T00:00:00Z";

/// A pod that serves the certificate of `web`, trusts the injected bundle, and started at that time.
async fn runs(shop: &Shop, name: &str, began: &str) {
    let volumes = json!([
        {"name": "tls", "secret": {"secretName": "web-tls"}}, {"name": "trust", "configMap": {"name": "trust"}},
    ]);
    let mounts = json!([{"name": "tls", "mountPath": "/tls"}, {"name": "trust", "mountPath": "/trust"}]);
    let main = json!({"name": "main", "image": "registry.example.com/web:1", "volumeMounts": mounts});
    let spec = json!({"automountServiceAccountToken": false, "containers": [main], "volumes": volumes});
    shop.cluster.create::<Pod>(Some(SHOP), json!({"metadata": {"name": name}, "spec": spec})).await;
    let status = json!({"status": {
        "phase": "Running", "startTime": began, "conditions": [{"type": "Ready", "status": "True"}],
        "containerStatuses": [{
            "name": "main", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": began}},
        }],
    }});
    pods(shop).patch_status(name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

fn pods(shop: &Shop) -> Api<Pod> {
    Api::namespaced(shop.cluster.client.clone(), SHOP)
}

/// A shop with a pod that started long before its CA was distrusted.
async fn distrusted(cluster: Cluster) -> (Shop, Client) {
    let (shop, client) = prepared(cluster).await;
    shop.distrust("leaked").await;
    for _ in 0..3 {
        once(&shop, &client).await;
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(11));
    }
    (shop, client)
}

/// A shop with a pod that has run for long.
async fn prepared(cluster: Cluster) -> (Shop, Client) {
    let shop = Shop::new(cluster).await;
    // The embedded server has no rights to give.
    let client = match shop.cluster.real.is_some() {
        true => {
            shop.cluster.apply(&rbac::objects_for(Catalog::builtin(), CA, &[Component::ServiceCa])).await;
            shop.cluster.client_as_account(CA, rbac::NAME).await
        }
        false => shop.cluster.client.clone(),
    };
    shop.cluster.create::<ServiceAccount>(Some(SHOP), json!({"metadata": {"name": "default"}})).await;
    let trust = json!({"metadata": {"name": "trust", "annotations": {INJECT: "true"}}});
    shop.cluster.create::<ConfigMap>(Some(SHOP), trust).await;
    shop.asks("web", "web-tls").await;
    once(&shop, &client).await;
    runs(&shop, "web-1", BEFORE).await;
    shop.later(10);
    (shop, client)
}

async fn once(shop: &Shop, client: &Client) {
    let passed = shop.cluster.runner_through(client.clone()).once().await.unwrap();
    assert!(passed.failed.is_empty(), "{:?}", passed.failed);
}

async fn told(shop: &Shop, type_: &str) -> (String, String) {
    let (status, message, _) = condition(&shop.cluster, "service-ca", type_).await;
    (status, message)
}

async fn is_healthy_when_every_pod_has_started_since(cluster: Cluster) {
    let (shop, client) = distrusted(cluster).await;
    let (status, message) = told(&shop, "Degraded").await;
    assert_eq!(status, "True", "{message}");
    assert!(message.contains("1 pod started before the last change: shop/web-1. "), "{message}");
    assert!(message.contains("still trust a distrusted CA"), "{message}");
    // Services are served all the same.
    assert_eq!(told(&shop, "Available").await.0, "True");
    runs(&shop, "web-2", AFTER).await;
    once(&shop, &client).await;
    assert_eq!(told(&shop, "Degraded").await.0, "True", "the earlier pod still runs");
    pods(&shop).delete("web-1", &DeleteParams::default().grace_period(0)).await.unwrap();
    // The first pass lists the pods and records the reload; the second one reports it.
    once(&shop, &client).await;
    once(&shop, &client).await;
    assert_eq!(told(&shop, "Degraded").await, ("False".to_owned(), "nothing needs attention".to_owned()));
    let (status, message) = told(&shop, "PreviousServiceCAInUse").await;
    assert!(status == "True" && message.contains("only clients outside the cluster are affected"), "{message}");
    // It is recorded on both objects, and restored if one of them is created again.
    shop.cluster.config_maps(CA).delete("signing-cabundle", &DeleteParams::default()).await.unwrap();
    once(&shop, &client).await;
    once(&shop, &client).await;
    assert!(ask::reloads(&annotations(&shop).await).observed.is_some());
}

async fn annotations(shop: &Shop) -> std::collections::BTreeMap<String, String> {
    shop.cluster.config_maps(CA).get("signing-cabundle").await.unwrap().metadata.annotations.unwrap()
}

async fn is_healthy_when_a_person_acknowledges(cluster: Cluster) {
    let (shop, client) = distrusted(cluster).await;
    assert_eq!(told(&shop, "Degraded").await.0, "True");
    let name = |name: &str| ObjectName { namespace: CA.to_owned(), name: name.to_owned() };
    let acknowledged = Acknowledged { at: shop.cluster.now(), reason: "all of them".to_owned() };
    let objects = (&name("signing-key"), &name("signing-cabundle"));
    ask::acknowledge(&shop.cluster.client, objects, &acknowledged).await.unwrap();
    once(&shop, &client).await;
    assert_eq!(told(&shop, "Degraded").await.0, "False");
    let (status, message) = told(&shop, "PreviousServiceCAInUse").await;
    assert!(status == "False" && message.ends_with(": all of them"), "{message}");
    // It counts for earlier changes, not for later ones.
    shop.later(1);
    shop.distrust("leaked again").await;
    for _ in 0..3 {
        once(&shop, &client).await;
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(11));
    }
    assert_eq!(told(&shop, "Degraded").await.0, "True");
}

/// After the key of the CA was lost, existing Services wait for their clients. The restart of pods is observed nevertheless.
async fn is_healthy_after_a_lost_key_when_every_pod_has_started_since(cluster: Cluster) {
    let (shop, client) = prepared(cluster).await;
    shop.cluster.secrets(CA).delete("signing-key", &DeleteParams::default()).await.unwrap();
    once(&shop, &client).await;
    once(&shop, &client).await;
    let (status, message) = told(&shop, "Degraded").await;
    assert!(status == "True" && message.contains("1 pod started before the last change: shop/web-1. "), "{message}");
    pods(&shop).delete("web-1", &DeleteParams::default().grace_period(0)).await.unwrap();
    once(&shop, &client).await;
    once(&shop, &client).await;
    assert_eq!(told(&shop, "Degraded").await, ("False".to_owned(), "nothing needs attention".to_owned()));
    let (status, message) = told(&shop, "Progressing").await;
    assert!(status == "True" && message.contains("1 of 1 Services wait"), "{message}");
}

#[tokio::test]
async fn the_component_is_healthy_after_a_lost_key_when_every_pod_has_started_since() {
    is_healthy_after_a_lost_key_when_every_pod_has_started_since(Cluster::embedded().await).await;
}

#[tokio::test]
async fn the_component_is_healthy_when_every_pod_has_started_since_on_the_embedded_server() {
    is_healthy_when_every_pod_has_started_since(Cluster::embedded().await).await;
}

#[tokio::test]
async fn the_component_is_healthy_when_a_person_acknowledges_on_the_embedded_server() {
    is_healthy_when_a_person_acknowledges(Cluster::embedded().await).await;
}

mod real {
    use super::*;

    #[tokio::test]
    async fn the_component_is_healthy_when_every_pod_has_started_since_on_a_real_server() {
        is_healthy_when_every_pod_has_started_since(Cluster::real().await).await;
    }

    #[tokio::test]
    async fn the_component_is_healthy_when_a_person_acknowledges_on_a_real_server() {
        is_healthy_when_a_person_acknowledges(Cluster::real().await).await;
    }

    /// Without the right to list pods, the condition names the missing right.
    #[tokio::test]
    async fn pods_that_cannot_be_listed_are_reported() {
        let (shop, client) = distrusted(Cluster::real().await).await;
        let role = json!({"rules": [{"apiGroups": [""], "resources": ["services"], "verbs": ["list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "list", "watch", "create", "update"]},
            {"apiGroups": [""], "resources": ["events"], "verbs": ["create"]}]});
        let roles = Api::<k8s_openapi::api::rbac::v1::ClusterRole>::all(shop.cluster.client.clone());
        roles.patch("perennial-serving", &PatchParams::default(), &Patch::Merge(&role)).await.unwrap();
        once(&shop, &client).await;
        let (status, message) = told(&shop, "Degraded").await;
        assert!(status == "True" && message.contains("failed to list the pods that use the service CA"), "{message}");
    }
}
