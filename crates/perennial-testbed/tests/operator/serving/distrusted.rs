//! A distrusted CA stays distrusted after any deletion.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use kube_client::ResourceExt;
use kube_client::api::DeleteParams;
use perennial_api::annotations;
use perennial_x509::{Certificate, read_certificates};
use serde_json::Value;

use super::shop::Shop;
use crate::cluster::Cluster;

/// A deleted object.
#[derive(Debug, Clone, Copy)]
enum Deleted {
    SigningKey,
    Bundle,
}

const NAMESPACE: &str = "openshift-service-ca";

async fn bundle(shop: &Shop) -> Vec<Certificate> {
    let found = shop.cluster.config_maps(NAMESPACE).get("signing-cabundle").await.unwrap();
    read_certificates(found.data.unwrap()["ca-bundle.crt"].as_bytes()).unwrap()
}

async fn delete(shop: &Shop, what: Deleted) {
    let params = DeleteParams::default();
    match what {
        Deleted::SigningKey => {
            shop.cluster.secrets(NAMESPACE).delete("signing-key", &params).await.unwrap();
        }
        Deleted::Bundle => {
            shop.cluster.config_maps(NAMESPACE).delete("signing-cabundle", &params).await.unwrap();
        }
    }
}

/// Runs until no write is left, and longer than any wait.
async fn settle(shop: &Shop) {
    for _ in 0..3 {
        shop.once().await;
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(11));
    }
}

/// Deletes the objects one after the other, and checks that no distrusted CA is back after each.
async fn check(deleted: &[Deleted], is_done_before: bool) {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.asks("web", "web-tls").await;
    shop.once().await;
    shop.later(10);
    shop.force("a test").await;
    shop.once().await;
    let old = bundle(&shop).await;
    let keys: Vec<_> = old.iter().map(|it| it.facts().subject_key_id.clone()).collect();
    shop.distrust("leaked").await;
    if is_done_before {
        settle(&shop).await;
        assert!(bundle(&shop).await.iter().all(|it| !keys.contains(&it.facts().subject_key_id)));
    }
    for (number, what) in deleted.iter().enumerate() {
        delete(&shop, *what).await;
        settle(&shop).await;
        let found = bundle(&shop).await;
        let back = found.iter().filter(|it| keys.contains(&it.facts().subject_key_id)).count();
        let done = (&deleted[..=number], is_done_before);
        assert!(!found.is_empty() && back == 0, "{done:?}: {back} of {} are back", found.len());
        let web = shop.served("web-tls").await;
        assert!(found.iter().any(|it| it.facts().subject_key_id == web.leaf().facts().authority_key_id), "{done:?}");
    }
}

/// Returns the times of the recorded distrusts of both objects.
async fn recorded(shop: &Shop) -> Vec<Timestamp> {
    let secret = shop.cluster.secrets(NAMESPACE).get("signing-key").await.unwrap();
    let map = shop.cluster.config_maps(NAMESPACE).get("signing-cabundle").await.unwrap();
    let all = [secret.annotations(), map.annotations()].map(|it| {
        let records: BTreeMap<String, Value> = serde_json::from_str(&it[annotations::DISTRUSTED]).unwrap();
        records.into_values().map(|it| it["since"].as_str().unwrap().parse().unwrap()).collect::<Vec<_>>()
    });
    all.concat()
}

#[tokio::test]
async fn distrust_that_a_wrong_clock_dated_in_the_future_counts_from_now() {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.asks("web", "web-tls").await;
    shop.once().await;
    let old: Vec<_> = bundle(&shop).await.iter().map(|it| it.facts().subject_key_id.clone()).collect();
    let now = shop.cluster.now();
    shop.cluster.set_now(now + SignedDuration::from_hours(500 * 24));
    shop.distrust("leaked").await;
    shop.cluster.set_now(now);
    assert!(recorded(&shop).await.iter().all(|since| now < *since));
    shop.once().await;
    let since = recorded(&shop).await;
    assert!(since.len() == 2 && since.iter().all(|since| *since <= now), "{since:?}");
    settle(&shop).await;
    assert!(bundle(&shop).await.iter().all(|it| !old.contains(&it.facts().subject_key_id)));
    assert!(recorded(&shop).await.iter().all(|since| *since <= now), "the time does not move on with each pass");
}

#[tokio::test]
async fn distrusted_ca_stays_out_when_the_next_key_is_deleted() {
    for is_done_before in [true, false] {
        check(&[Deleted::SigningKey, Deleted::SigningKey], is_done_before).await;
    }
}

#[tokio::test]
async fn distrusted_ca_stays_out_when_the_bundle_is_deleted() {
    for is_done_before in [true, false] {
        check(&[Deleted::Bundle, Deleted::Bundle], is_done_before).await;
    }
}

#[tokio::test]
async fn a_distrusted_ca_does_not_come_back_after_repeated_deletions() {
    for is_done_before in [true, false] {
        check(&[Deleted::SigningKey, Deleted::Bundle], is_done_before).await;
        check(&[Deleted::Bundle, Deleted::SigningKey], is_done_before).await;
    }
}
