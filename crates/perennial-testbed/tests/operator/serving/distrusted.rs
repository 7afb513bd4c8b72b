//! Trust that somebody ended stays ended, whatever is deleted.

use jiff::SignedDuration;
use kube_client::api::DeleteParams;
use perennial_x509::{Certificate, read_certificates};

use super::shop::Shop;
use crate::cluster::Cluster;

/// What somebody deletes.
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

/// Until nothing is left to do, and longer than anybody is waited for.
async fn settle(shop: &Shop) {
    for _ in 0..3 {
        shop.once().await;
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(11));
    }
}

/// Deletes one after the other, and nobody who was distrusted is back after any of it.
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

#[tokio::test]
async fn a_distrusted_ca_does_not_come_back_when_the_key_of_the_next_one_is_deleted() {
    for is_done_before in [true, false] {
        check(&[Deleted::SigningKey, Deleted::SigningKey], is_done_before).await;
    }
}

#[tokio::test]
async fn a_distrusted_ca_does_not_come_back_when_the_bundle_is_deleted() {
    for is_done_before in [true, false] {
        check(&[Deleted::Bundle, Deleted::Bundle], is_done_before).await;
    }
}

#[tokio::test]
async fn a_distrusted_ca_does_not_come_back_when_one_is_deleted_after_the_other() {
    for is_done_before in [true, false] {
        check(&[Deleted::SigningKey, Deleted::Bundle], is_done_before).await;
        check(&[Deleted::Bundle, Deleted::SigningKey], is_done_before).await;
    }
}
