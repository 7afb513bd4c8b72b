//! Errors around a Service that its owner does not cause: they are retried, and not reported on the Service.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::{Namespace, Service};
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use super::shop::{BETA, Running, SHOP, Shop, key};
use crate::cluster::{Cluster, answer, soon};
use crate::reports::condition;

/// A watch that fails after it worked is a condition until it works again, even if nothing happens in the meantime.
#[tokio::test(start_paused = true)]
async fn a_watch_that_fails_later_is_reported_until_it_works_again() {
    for (list, what) in [("/api/v1/services", "Services"), ("/api/v1/secrets", "Secrets")] {
        let shop = Shop::new(Cluster::embedded().await).await;
        shop.asks("web", "web-tls").await;
        let is_refused = Arc::new(AtomicBool::new(false));
        let refuses = is_refused.clone();
        let way = shop.cluster.way(move |_, path| {
            let is_refused = path == list && refuses.load(Ordering::SeqCst);
            is_refused.then_some((StatusCode::FORBIDDEN, "Forbidden"))
        });
        let running = Running::through(&shop.cluster, way);
        let degraded = async || {
            let (status, message, _) = condition(&shop.cluster, "service-ca", "Degraded").await;
            (status, message)
        };
        soon("web is served", || async { shop.told("web").await.len() == 2 }).await;
        in_minutes("nothing is the matter", || async { degraded().await.0 == "False" }).await;
        is_refused.store(true, Ordering::SeqCst);
        let text = format!("{what} cannot be watched: ");
        in_minutes("it is told", || async { degraded().await.1.contains(&text) }).await;
        assert_eq!(degraded().await.0, "True");
        // The condition stays while nothing changes.
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(degraded().await.1.contains(&text));
        is_refused.store(false, Ordering::SeqCst);
        in_minutes("it is over", || async { degraded().await.0 == "False" }).await;
        running.end().await;
    }
}

/// A list that never succeeded is a condition all the time, also during a retry.
#[tokio::test(start_paused = true)]
async fn a_slowly_rejected_list_is_reported_all_the_time() {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.once().await;
    let way = shop.cluster.way_of(|client, request| async move {
        if request.uri().path() == "/api/v1/secrets" {
            tokio::time::sleep(Duration::from_secs(30)).await;
            return Ok(answer(StatusCode::FORBIDDEN, "Forbidden"));
        }
        client.send(request).await
    });
    let running = Running::through(&shop.cluster, way);
    // Before that the state is unknown.
    tokio::time::sleep(Duration::from_secs(120)).await;
    for second in 0..600 {
        let (status, message, _) = condition(&shop.cluster, "service-ca", "Degraded").await;
        assert_eq!(status, "True", "after {second} seconds");
        assert!(message.contains("Secrets cannot be watched: "), "{message}");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    running.end().await;
}

/// Waits until a condition is true, on a clock that jumps to the next timer.
async fn in_minutes<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    for _ in 0..600 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    panic!("not after ten minutes: {what}");
}

/// An expired token and a timeout: each is retried, and is no error of the Service.
#[tokio::test]
async fn a_transient_error_is_retried_and_not_reported_on_the_service() {
    for code in [StatusCode::UNAUTHORIZED, StatusCode::REQUEST_TIMEOUT] {
        let shop = Shop::new(Cluster::embedded().await).await;
        shop.asks("web", "web-tls").await;
        let refused = Arc::new(AtomicUsize::new(0));
        let count = refused.clone();
        let way = shop.cluster.way(move |method, path| {
            let is_it = *method == Method::POST && path.ends_with("/shop/secrets");
            (is_it && count.fetch_add(1, Ordering::SeqCst) < 2).then_some((code, "a test"))
        });
        let running = Running::through(&shop.cluster, way);
        soon("it was refused", || async { refused.load(Ordering::SeqCst) >= 1 }).await;
        soon("web is served", || async { shop.told("web").await.len() == 2 }).await;
        running.end().await;
        assert!(refused.load(Ordering::SeqCst) >= 3);
        shop.served("web-tls").await;
        assert_eq!(shop.events("ServingCertificateFailed").await, [""; 0], "{code}");
    }
}

/// In a namespace that is being deleted nothing can be created, and nothing is reported.
async fn a_deleted_namespace_is_no_error(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.once().await;
    let web = shop.asks("web", "web-tls").await;
    // A finalizer keeps it.
    let finalizer = json!({"metadata": {"finalizers": ["perennial.test/stays"]}});
    let namespaces = Api::<Namespace>::all(shop.cluster.client.clone());
    namespaces.patch(SHOP, &PatchParams::default(), &Patch::Merge(&finalizer)).await.unwrap();
    let services = Api::<Service>::namespaced(shop.cluster.client.clone(), SHOP);
    services.patch("web", &PatchParams::default(), &Patch::Merge(&finalizer)).await.unwrap();
    namespaces.delete(SHOP, &DeleteParams::default()).await.unwrap();
    assert!(namespaces.get(SHOP).await.unwrap().metadata.deletion_timestamp.is_some());
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let way = shop.cluster.way(move |method, path| {
        let is_it = *method == Method::POST && path.ends_with("/shop/secrets");
        count.fetch_add(usize::from(is_it), Ordering::SeqCst);
        None
    });
    let passed = shop.cluster.runner_through(way).once().await.unwrap();
    assert!(passed.failed.is_empty() && passed.observation.problems.is_empty(), "{:?}", passed.observation.problems);
    assert_eq!(asked.load(Ordering::SeqCst), 1, "it was tried once");
    assert!(shop.secrets().get_opt("web-tls").await.unwrap().is_none());
    assert_eq!(services.get("web").await.unwrap().metadata.annotations, web.metadata.annotations);
    let (status, message, _) = condition(&shop.cluster, "service-ca", "Degraded").await;
    assert_eq!(status, "False", "{message}");
}

/// Issues count even if the Service could not be annotated: a tenant who deletes each certificate gets a few.
#[tokio::test]
async fn issues_count_for_the_circuit_breaker_even_if_the_service_cannot_be_annotated() {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.asks("web", "web-tls").await;
    let way = shop.cluster.way(|method, path| {
        let is_it = *method == Method::PATCH && path.ends_with("/services/web");
        is_it.then_some((StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    });
    let running = Running::through(&shop.cluster, way);
    let is_there = || async { shop.secrets().get_opt("web-tls").await.unwrap().is_some() };
    for _ in 0..5 {
        soon("web has a certificate", is_there).await;
        shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    }
    soon("it is told", || async {
        shop.events("ServingCertificateFailed").await.iter().any(|text| text.contains("circuit breaker"))
    })
    .await;
    assert!(!is_there().await);
    let told = shop.told("web").await;
    assert!(!told.contains_key(&key(BETA, "serving-cert-signed-by")), "nothing could be written there: {told:?}");
    running.end().await;
}

on_both! {
    a_deleted_namespace_is_no_error
}
