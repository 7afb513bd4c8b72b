//! Requested rotations on the Secret of a Service.

use kube_client::ResourceExt;
use kube_client::api::{Patch, PatchParams};
use perennial_api::annotations::{FORCE, FORCED, ISSUES};
use perennial_core::campaign::LONGEST_REASON;
use perennial_core::catalog::ObjectName;
use perennial_operator::ask;
use serde_json::json;

use super::shop::{BETA, Running, SHOP, Shop, key};
use crate::cluster::{Cluster, soon};

async fn a_service_is_rotated_once_for_each_reason_and_the_others_stay(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("web", "web-tls").await;
    shop.asks("api", "api-tls").await;
    shop.once().await;
    let mut last = shop.served("web-tls").await;
    let other = shop.served("api-tls").await;
    let secret = ObjectName { namespace: SHOP.to_owned(), name: "web-tls".to_owned() };
    for reason in ["the key was copied", "the key was copied again"] {
        ask::rotate(&shop.cluster.client, &secret, reason).await.unwrap();
        shop.once().await;
        let new = shop.served("web-tls").await;
        assert_ne!(new.leaf(), last.leaf(), "{reason}");
        assert_eq!(new.secret.annotations().get(FORCED).map(String::as_str), Some(reason));
        shop.once().await;
        assert_eq!(shop.served("web-tls").await.version(), new.version(), "once for each reason");
        last = new;
    }
    assert_eq!(shop.served("api-tls").await.version(), other.version());
    // A rotation for another reason counts for this reason, too.
    let asked = json!({"metadata": {"annotations": {FORCE: "a third time"}}, "stringData": {"tls.crt": "junk"}});
    shop.patch_secret("web-tls", asked).await;
    shop.once().await;
    let new = shop.served("web-tls").await;
    assert_eq!(new.secret.annotations().get(FORCED).map(String::as_str), Some("a third time"));
    shop.once().await;
    assert_eq!(shop.served("web-tls").await.version(), new.version());
}

async fn a_tenant_who_requests_repeatedly_opens_only_their_own_circuit_breaker(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("web", "web-tls").await;
    shop.once().await;
    let before = shop.served("web-tls").await;
    // A text that is too long, or has several lines, is no reason.
    for reason in ["x".repeat(LONGEST_REASON + 1), "two\nlines".to_owned(), " ".to_owned()] {
        shop.patch_secret("web-tls", json!({"metadata": {"annotations": {FORCE: reason}}})).await;
        shop.once().await;
        assert_eq!(shop.served("web-tls").await.leaf(), before.leaf());
    }
    let running = Running::start(&shop.cluster);
    let error = key(BETA, "serving-cert-generation-error");
    let is_stopped = async || {
        let annotations = shop.services().get("web").await.unwrap().annotations().clone();
        annotations.get(&error).is_some_and(|it| it.contains("circuit breaker"))
    };
    let mut rotations = 0;
    for number in 0..20 {
        let reason = format!("reason {number}");
        // The tenant also removes the record of the issues.
        let asked = json!({"metadata": {"annotations": {FORCE: reason, ISSUES: null}}});
        shop.secrets().patch("web-tls", &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
        let is_done = async || shop.served("web-tls").await.secret.annotations().get(FORCED) == Some(&reason);
        soon("it is rotated or stopped", || async { is_done().await || is_stopped().await }).await;
        if is_stopped().await {
            break;
        }
        rotations += 1;
    }
    assert!((3..=5).contains(&rotations), "{rotations} rotations");
    // Other tenants are not affected.
    shop.asks("api", "api-tls").await;
    soon("another Service is served", || async { shop.secrets().get_opt("api-tls").await.unwrap().is_some() }).await;
    running.end().await;
}

on_both! {
    a_service_is_rotated_once_for_each_reason_and_the_others_stay
    a_tenant_who_requests_repeatedly_opens_only_their_own_circuit_breaker
}
