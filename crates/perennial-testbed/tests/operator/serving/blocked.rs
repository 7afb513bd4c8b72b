//! Services that cannot get a certificate: reported for all of them together, as long as they are blocked.

use k8s_openapi::api::core::v1::Secret;
use kube_client::api::DeleteParams;
use perennial_testbed::check::promtool_check_metrics;
use serde_json::json;

use super::shop::{SHOP, Shop};
use crate::cluster::{Cluster, soon};
use crate::reports::condition;

const CONDITION: &str = "ServingCertificatesBlocked";

/// Returns how many Services ask, and how many of them are blocked.
fn counted(text: &str) -> (u32, u32) {
    let value = |name: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")).map(str::to_owned));
        found.unwrap().parse().unwrap()
    };
    (value("perennial_serving_services"), value("perennial_serving_services_blocked"))
}

async fn blocked_services_are_counted_and_named_until_they_are_served(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("well", "well-tls").await;
    let said = async |type_: &str| {
        let (status, message, _) = condition(&shop.cluster, "service-ca", type_).await;
        (status, message)
    };
    shop.once().await;
    assert_eq!(said(CONDITION).await, ("False".to_owned(), String::new()));
    let names: Vec<String> = (1..=11).map(|number| format!("shut-{number}")).collect();
    for name in &names {
        let theirs = json!({"metadata": {"name": name}, "stringData": {"note": "theirs"}});
        shop.cluster.create::<Secret>(Some(SHOP), theirs).await;
        shop.asks(name, name).await;
    }
    let runner = shop.cluster.runner();
    assert_eq!(counted(&runner.metrics().text().unwrap()), (0, 0), "nothing is known yet");
    runner.once().await.unwrap();
    let (status, message) = said(CONDITION).await;
    assert_eq!(status, "True");
    assert!(message.starts_with("no certificate could be issued for 11 of 12 Services: shop/shut-1: "), "{message}");
    assert!(message.contains("; shop/shut-5: ") && message.ends_with("; and 1 more"), "{message}");
    // The owner must remove it; no other Service is affected.
    for (type_, status) in
        [("Degraded", "False"), ("Available", "True"), ("Progressing", "False"), ("Upgradeable", "True")]
    {
        assert_eq!(said(type_).await.0, status, "{type_}");
    }
    let text = runner.metrics().text().unwrap();
    assert_eq!(counted(&text), (12, 11));
    promtool_check_metrics(&text).unwrap();

    // The count follows at once, and the condition with the next pass.
    let stop = async {
        shop.secrets().delete("shut-1", &DeleteParams::default()).await.unwrap();
        shop.services().delete("shut-2", &DeleteParams::default()).await.unwrap();
        soon("two are gone", || async { counted(&runner.metrics().text().unwrap()) == (11, 9) }).await;
    };
    runner.run(|_| {}, stop).await;
    shop.served("shut-1").await;
    for name in &names[2..] {
        shop.secrets().delete(name, &DeleteParams::default()).await.unwrap();
    }
    let runner = shop.cluster.runner();
    runner.once().await.unwrap();
    assert_eq!(counted(&runner.metrics().text().unwrap()), (11, 0));
    assert_eq!(said(CONDITION).await, ("False".to_owned(), String::new()));
}

on_both! {
    blocked_services_are_counted_and_named_until_they_are_served
}
