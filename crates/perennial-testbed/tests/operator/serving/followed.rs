//! Changes that affect a Service: its Secret, its request, the CA, the key policy.

use std::sync::atomic::{AtomicUsize, Ordering};

use jiff::SignedDuration;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube_client::ResourceExt;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_api::operator::ServiceCA;
use perennial_core::policy::{Category, Policy};
use perennial_x509::{PrivateKey, read_certificates};
use serde_json::json;

use super::shop::{BETA, Running, Served, Shop, key};
use crate::cluster::{Cluster, soon};

/// Any change of Services and Secrets is corrected within seconds.
async fn certificate_follows_changes_of_service_and_secret(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let running = Running::start(&shop.cluster);
    // 37
    shop.asks("web", "web-tls").await;
    let is_there = |name: &'static str| {
        let api = shop.secrets();
        move || {
            let api = api.clone();
            async move { api.get_opt(name).await.unwrap().is_some_and(|found| found.data.is_some_and(|it| it.len() == 2)) }
        }
    };
    soon("web has its certificate", is_there("web-tls")).await;
    let first = shop.served("web-tls").await;
    // 40: deleted, and made again.
    shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    soon("web has another one", is_there("web-tls")).await;
    assert_ne!(shop.served("web-tls").await.leaf(), first.leaf());
    // 38: overwritten.
    shop.patch_secret("web-tls", json!({"stringData": {"tls.crt": "junk"}})).await;
    let is_readable = |name: &'static str| {
        let api = shop.secrets();
        move || {
            let api = api.clone();
            async move {
                let data = api.get(name).await.unwrap().data.unwrap_or_default();
                data.get("tls.crt").is_some_and(|text: &ByteString| read_certificates(&text.0).is_ok())
            }
        }
    };
    soon("web has a certificate again", is_readable("web-tls")).await;
    // Another Secret: the old one stays.
    let other = json!({"metadata": {"annotations": {key(BETA, "serving-cert-secret-name"): "new-tls"}}});
    shop.services().patch("web", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    soon("web has it in another Secret", is_there("new-tls")).await;
    assert!(shop.secrets().get_opt("web-tls").await.unwrap().is_some());
    // A Service that no longer asks keeps its Secret.
    let nothing = json!({"metadata": {"annotations": {key(BETA, "serving-cert-secret-name"): null}}});
    shop.services().patch("web", &PatchParams::default(), &Patch::Merge(&nothing)).await.unwrap();
    shop.asks("after", "after-tls").await;
    soon("another one is served", is_there("after-tls")).await;
    shop.secrets().delete("new-tls", &DeleteParams::default()).await.unwrap();
    // 46: without its key the CA is another one.
    let signers = shop.cluster.secrets("openshift-service-ca");
    let ca = |secret: Secret| read_certificates(&secret.data.unwrap()["tls.crt"].0).unwrap().remove(0);
    let old = ca(signers.get("signing-key").await.unwrap());
    signers.delete("signing-key", &DeleteParams::default()).await.unwrap();
    soon("there is another CA", || async {
        signers.get_opt("signing-key").await.unwrap().is_some_and(|found| ca(found) != old)
    })
    .await;
    assert!(shop.secrets().get_opt("new-tls").await.unwrap().is_none());
    running.end().await;
}

/// A rotation of the CA reaches every Service, and old and new certificates work together.
async fn rotation_of_the_ca_reaches_every_service(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    for number in 0..5 {
        shop.service(
            &format!("web-{number}"),
            &[(&key(BETA, "serving-cert-secret-name"), &format!("web-{number}-tls"))],
            number == 0,
        )
        .await;
    }
    shop.once().await;
    let mut before = Vec::new();
    for number in 0..5 {
        before.push(shop.served(&format!("web-{number}-tls")).await);
    }
    let theirs = json!({"metadata": {"labels": {"team": "shop"}, "annotations": {"note": "ours"}}});
    shop.patch_secret("web-1-tls", theirs).await;
    shop.later(10);
    shop.force("a test").await;
    let signers = shop.cluster.secrets("openshift-service-ca");
    shop.once().await;
    let ca = signers.get("signing-key").await.unwrap().data.unwrap();
    let ca = read_certificates(&ca["tls.crt"].0).unwrap().remove(0);
    for (number, old) in before.iter().enumerate() {
        let new = shop.served(&format!("web-{number}-tls")).await;
        let signer = ca.facts().subject_key_id.clone();
        assert_eq!(new.leaf().facts().authority_key_id, signer, "{number}");
        assert_ne!(new.leaf().facts().authority_key_id, old.leaf().facts().authority_key_id, "{number}");
        assert_eq!(new.names(), old.names());
        let is_kept = new.secret.labels().contains_key("team") && new.secret.annotations().contains_key("note");
        assert_eq!(is_kept, number == 1, "what others put there stays");
        assert_ne!(new.secret.data.as_ref().unwrap()["tls.key"], old.secret.data.as_ref().unwrap()["tls.key"]);
    }
}

/// Scenario 46 of the original operator: without its key, no cross-certificate leads from the old CA to the new one. Services keep
/// their certificates until all clients have the new bundle, and then get a new certificate and a new key.
async fn after_a_lost_key_services_follow_when_all_clients_have_reloaded(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("web", "web-tls").await;
    shop.service("db", &[(&key(BETA, "serving-cert-secret-name"), "db-tls")], true).await;
    shop.once().await;
    let before = [shop.served("web-tls").await, shop.served("db-tls").await];
    let signers = shop.cluster.secrets("openshift-service-ca");
    signers.delete("signing-key", &DeleteParams::default()).await.unwrap();
    shop.once().await;
    assert_eq!(shop.served("web-tls").await.version(), before[0].version());
    shop.later(395);
    shop.once().await;
    let ca = signers.get("signing-key").await.unwrap().data.unwrap();
    let ca = read_certificates(&ca["tls.crt"].0).unwrap().remove(0);
    for (name, before) in ["web-tls", "db-tls"].into_iter().zip(&before) {
        let after = shop.served(name).await;
        assert_eq!(after.leaf().facts().authority_key_id, ca.facts().subject_key_id, "{name}");
        let key = |served: &Served| served.secret.data.as_ref().unwrap()["tls.key"].clone();
        assert!(after.leaf() != before.leaf() && key(&after) != key(before), "{name}");
    }
}

/// The same for a CA with a short validity, also for new Services.
async fn services_follow_an_emergency_rotation_at_once(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("web", "web-tls").await;
    shop.once().await;
    let before = shop.served("web-tls").await;
    shop.later(2);
    let life = json!({"validityDurationForTesting": 30 * 24 * 3_600_000_000_000_i64, "emergency": true});
    let overrides = json!({"forceRotation": {"reason": "leaked"}, "caConfig": life});
    let spec = json!({"managementState": "Managed", "unsupportedConfigOverrides": overrides});
    shop.cluster.create::<ServiceCA>(None, json!({"metadata": {"name": "cluster"}, "spec": spec})).await;
    shop.once().await;
    shop.asks("later", "later-tls").await;
    shop.once().await;
    let end = shop.cluster.now() + SignedDuration::from_hours(30 * 24);
    for secret in ["web-tls", "later-tls"] {
        let after = shop.served(secret).await;
        assert_ne!(after.leaf().facts().authority_key_id, before.leaf().facts().authority_key_id, "{secret}");
        assert_eq!(after.leaf().facts().validity.not_after, end, "{secret}");
    }
}

/// Keys of Services follow the category of serving certificates, never a name.
async fn keys_of_services_follow_the_policy_category(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let key = |text: &str| text.parse().unwrap();
    let mut policy = Policy { defaults: Some(key("ECDSA P256")), ..Policy::default() };
    policy.categories.insert(Category::Serving, key("ECDSA P384"));
    policy.categories.insert(Category::Signer, key("ECDSA P521"));
    policy.overrides.insert("service-ca".to_owned(), key("RSA 3072"));
    shop.cluster.put_policy(&policy).await;
    shop.asks("web", "web-tls").await;
    shop.once().await;
    let web = shop.served("web-tls").await;
    let kind = |secret: Secret| PrivateKey::from_pem(&secret.data.unwrap()["tls.key"].0).unwrap().spec().unwrap();
    assert_eq!(kind(web.secret), key("ECDSA P384"));
    let signers = shop.cluster.secrets("openshift-service-ca");
    assert_eq!(kind(signers.get("signing-key").await.unwrap()), key("RSA 3072"));
    let pem = signers.get("signing-key").await.unwrap().data.unwrap()["tls.key"].0.clone();
    assert!(pem.starts_with(b"-----BEGIN RSA PRIVATE KEY-----"), "PKCS#1, and not PKCS#8");
    // A new policy re-issues nothing; without the override, the next CA is of its category.
    policy.overrides.clear();
    policy.categories.remove(&Category::Serving);
    shop.cluster.put_policy(&policy).await;
    assert!(shop.once().await.written.is_empty());
    let before = shop.served("web-tls").await;
    shop.force("other keys").await;
    shop.once().await;
    let after = shop.served("web-tls").await;
    assert_ne!(after.leaf(), before.leaf());
    assert_eq!(kind(after.secret), key("ECDSA P256"));
    assert_eq!(kind(signers.get("signing-key").await.unwrap()), key("ECDSA P521"));
}

/// A changed policy applies to new Services without a restart, and re-issues nothing.
#[tokio::test]
async fn a_changed_policy_applies_to_new_services() {
    let shop = Shop::new(Cluster::embedded().await).await;
    let kind = |secret: Secret| PrivateKey::from_pem(&secret.data.unwrap()["tls.key"].0).unwrap().spec().unwrap();
    shop.asks("web", "web-tls").await;
    let running = Running::start(&shop.cluster);
    soon("web is served", || async { shop.secrets().get_opt("web-tls").await.unwrap().is_some() }).await;
    let first = shop.served("web-tls").await;
    assert_eq!(kind(first.secret.clone()), "ECDSA P256".parse().unwrap());
    shop.cluster.set_policy("ECDSA P384").await;
    let count = AtomicUsize::new(0);
    soon("a Service has another kind of key", || async {
        let name = format!("later-{}", count.fetch_add(1, Ordering::SeqCst));
        shop.asks(&name, &name).await;
        soon("it is served", || async { shop.secrets().get_opt(&name).await.unwrap().is_some() }).await;
        kind(shop.served(&name).await.secret) == "ECDSA P384".parse().unwrap()
    })
    .await;
    assert_eq!(shop.served("web-tls").await.version(), first.version());
    running.end().await;
}

on_both! {
    certificate_follows_changes_of_service_and_secret
    rotation_of_the_ca_reaches_every_service
    after_a_lost_key_services_follow_when_all_clients_have_reloaded
    services_follow_an_emergency_rotation_at_once
    keys_of_services_follow_the_policy_category
}
