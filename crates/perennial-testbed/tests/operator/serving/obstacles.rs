//! Obstacles of a Service: they are reported, left unchanged, and cleared when they are gone.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Secret, Service};
use kube_client::api::{DeleteParams, Patch, PatchParams};
use kube_client::{Api, ResourceExt};
use serde_json::json;

use super::shop::{ALPHA, BETA, Running, SHOP, Shop, key};
use crate::cluster::{Cluster, soon};

/// Scenarios 6, 7, 8 and 10 of the original operator: obstacles are reported, left unchanged, and cleared when they are gone.
async fn obstacles_are_reported_and_cleared(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let theirs = |name: &str, uid: Option<(&str, &str)>, kind: &str| {
        let annotations: BTreeMap<String, &str> =
            uid.into_iter().map(|(group, uid)| (key(group, "originating-service-uid"), uid)).collect();
        json!({"metadata": {"name": name, "annotations": annotations}, "type": kind, "stringData": {"note": "theirs"}})
    };
    for object in [
        theirs("a-tls", Some((ALPHA, "somebody")), "Opaque"),
        theirs("b-tls", Some((BETA, "somebody")), "Opaque"),
        theirs("c-tls", None, "Opaque"),
    ] {
        shop.cluster.create::<Secret>(Some(SHOP), object).await;
    }
    let names = ["a", "b", "c"];
    let mut untouched = Vec::new();
    for name in names {
        shop.asks(name, &format!("{name}-tls")).await;
        untouched.push(shop.secrets().get(&format!("{name}-tls")).await.unwrap().resource_version());
    }
    shop.asks("bad", "invalid-${SECRET_NAME}").await;
    // Two that want the same: the first has it.
    shop.asks("first", "same-tls").await;
    shop.once().await;
    shop.asks("second", "same-tls").await;
    shop.once().await;
    let error = |told: &BTreeMap<String, String>| {
        let [one, other] = [BETA, ALPHA].map(|group| told.get(&key(group, "serving-cert-generation-error")).cloned());
        assert_eq!(one, other);
        one.unwrap_or_default()
    };
    for (name, version) in names.iter().zip(&untouched) {
        let told = shop.told(name).await;
        assert_eq!(told[&key(BETA, "serving-cert-generation-error-num")], "2", "{name}: {told:?}");
        assert!(error(&told).contains(&format!("secret shop/{name}-tls does not have corresponding service UID")));
        assert_eq!(shop.secrets().get(&format!("{name}-tls")).await.unwrap().resource_version(), *version);
    }
    assert!(error(&shop.told("bad").await).contains("invalid-${SECRET_NAME}"));
    assert!(error(&shop.told("second").await).contains("it was not made for this Service"));
    assert_eq!(shop.served("same-tls").await.names()[0], "first.shop.svc");
    let events = shop.events("ServingCertificateFailed").await;
    assert!(events.iter().any(|text| text.contains("shop/a-tls")) && events.len() >= 5, "{events:?}");
    // However often it failed.
    let many = json!({"metadata": {"annotations": {key(ALPHA, "serving-cert-generation-error-num"): "10",
        key(BETA, "serving-cert-generation-error-num"): "10"}}});
    for name in ["a", "b"] {
        shop.services().patch(name, &PatchParams::default(), &Patch::Merge(&many)).await.unwrap();
    }
    let running = Running::start(&shop.cluster);
    for name in names {
        shop.secrets().delete(&format!("{name}-tls"), &DeleteParams::default()).await.unwrap();
    }
    shop.services().delete("first", &DeleteParams::default()).await.unwrap();
    // The garbage collector may have been faster.
    _ = shop.secrets().delete("same-tls", &DeleteParams::default()).await;
    for (service, secret) in [("a", "a-tls"), ("b", "b-tls"), ("c", "c-tls"), ("second", "same-tls")] {
        soon(&format!("{service} has its certificate"), || async {
            shop.secrets().get_opt(secret).await.unwrap().is_some()
                && !shop.told(service).await.keys().any(|key| key.contains("error"))
        })
        .await;
        assert_eq!(shop.served(secret).await.names()[0], format!("{service}.shop.svc"));
    }
    running.end().await;
}

/// A rejected write, an immutable Secret, another type, and a Secret of the cluster: each is reported, and cleared.
async fn other_obstacles_are_reported_and_cleared(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let error = |told: &BTreeMap<String, String>| told[&key(ALPHA, "serving-cert-generation-error")].clone();
    // 7
    shop.asks("web", "web-tls").await;
    let refuse = |method: &http::Method, path: &str| {
        let is_it = *method == http::Method::POST && path.ends_with("/shop/secrets");
        is_it.then_some((http::StatusCode::FORBIDDEN, "Forbidden"))
    };
    shop.cluster.runner_through(shop.cluster.way(refuse)).once().await.unwrap();
    let told = shop.told("web").await;
    assert_eq!(
        (error(&told).as_str(), told[&key(BETA, "serving-cert-generation-error-num")].as_str()),
        ("a fault of the test", "1")
    );
    shop.once().await;
    let before = shop.served("web-tls").await;
    assert!(!shop.told("web").await.keys().any(|key| key.contains("error")));
    // Created for a deleted Service of the same name, and not garbage-collected.
    shop.patch_secret("web-tls", json!({"metadata": {"ownerReferences": null}})).await;
    shop.services().delete("web", &DeleteParams::default()).await.unwrap();
    let again = shop.asks("web", "web-tls").await;
    shop.once().await;
    let text = error(&shop.told("web").await);
    assert!(
        text.contains(&format!("service UID {}: it was not made for this Service", again.uid().unwrap())),
        "{text}"
    );
    assert_eq!(shop.served("web-tls").await.leaf(), before.leaf());
    shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    shop.once().await;
    assert!(!shop.told("web").await.keys().any(|key| key.contains("error")));
    let before = shop.served("web-tls").await;
    // Immutable: nothing to do yet; then it should change.
    shop.patch_secret("web-tls", json!({"immutable": true})).await;
    shop.once().await;
    assert!(!shop.told("web").await.keys().any(|key| key.contains("error")));
    shop.later(310);
    shop.once().await;
    assert!(error(&shop.told("web").await).contains("secret shop/web-tls is immutable: delete the Secret"));
    shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    shop.once().await;
    assert_ne!(shop.served("web-tls").await.leaf(), before.leaf());
    // The wrong type, although it was created for this Service.
    let typed = shop.asks("typed", "typed-tls").await;
    let annotations = json!({key(BETA, "originating-service-uid"): typed.uid().unwrap()});
    let object = json!({"metadata": {"name": "typed-tls", "annotations": annotations}, "type": "Opaque"});
    shop.cluster.create::<Secret>(Some(SHOP), object).await;
    shop.once().await;
    assert!(error(&shop.told("typed").await).contains("has type \"Opaque\""));
    // A Secret of the cluster.
    let greedy = json!({"name": "greedy", "annotations": {key(BETA, "serving-cert-secret-name"): "signing-key"}});
    let service = json!({"metadata": greedy, "spec": {"ports": [{"port": 443}]}});
    shop.cluster.create::<Service>(Some("openshift-service-ca"), service).await;
    let ca = shop.cluster.secrets("openshift-service-ca").get("signing-key").await.unwrap();
    shop.once().await;
    let services = Api::<Service>::namespaced(shop.cluster.client.clone(), "openshift-service-ca");
    let told = services.get("greedy").await.unwrap().annotations().clone();
    assert!(error(&told).contains("does not have corresponding service UID") || error(&told).contains("cluster's own"));
    let after = shop.cluster.secrets("openshift-service-ca").get("signing-key").await.unwrap();
    assert_eq!(after.data, ca.data);
}

/// An unreadable Secret, and one that was taken from its Service, delay no other Service.
#[tokio::test]
async fn an_unreadable_or_foreign_secret_delays_no_other_service() {
    let shop = Shop::new(Cluster::embedded().await).await;
    for name in ["a", "web", "z"] {
        shop.asks(name, &format!("{name}-tls")).await;
    }
    shop.once().await;
    let before = shop.served("web-tls").await;
    // The one Secret is unreadable; the other no longer names its Service.
    let uid = key(BETA, "originating-service-uid");
    shop.later(1);
    shop.secrets().delete("z-tls", &DeleteParams::default()).await.unwrap();
    shop.once().await;
    shop.patch_secret("z-tls", json!({"metadata": {"annotations": {uid: null}}})).await;
    let refuse = |method: &http::Method, path: &str| {
        let is_it = *method == http::Method::GET && path.ends_with("/secrets/a-tls");
        is_it.then_some((http::StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    };
    shop.force("a test").await;
    let passed = shop.cluster.runner_through(shop.cluster.way(refuse)).once().await.unwrap();
    assert!(!passed.written.is_empty(), "{:?}", passed.report.waiting);
    assert_ne!(shop.served("web-tls").await.leaf(), before.leaf());
    // And the bundle can be written again.
    let maps = shop.cluster.config_maps("openshift-service-ca");
    maps.delete("signing-cabundle", &DeleteParams::default()).await.unwrap();
    shop.cluster.runner_through(shop.cluster.way(refuse)).once().await.unwrap();
    assert!(maps.get_opt("signing-cabundle").await.unwrap().is_some());
}

/// A tenant who deletes a certificate each time gets a few, and then none for the rest of the hour.
#[tokio::test]
async fn repeated_deletions_of_a_secret_open_the_circuit_breaker() {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.asks("web", "web-tls").await;
    let running = Running::start(&shop.cluster);
    let is_there = || async { shop.secrets().get_opt("web-tls").await.unwrap().is_some() };
    for _ in 0..5 {
        soon("web has a certificate", is_there).await;
        shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    }
    soon("it is told", || async {
        shop.told("web")
            .await
            .get(&key(BETA, "serving-cert-generation-error"))
            .is_some_and(|it| it.contains("circuit breaker"))
    })
    .await;
    assert!(!is_there().await);
    running.end().await;
}

on_both! {
    obstacles_are_reported_and_cleared
    other_obstacles_are_reported_and_cleared
}
