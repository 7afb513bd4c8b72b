//! The RBAC for serving certificates.

use k8s_openapi::api::core::v1::Secret;
use kube_client::Api;
use kube_client::api::DeleteParams;
use perennial_core::catalog::{Catalog, Component};
use perennial_operator::rbac;
use tokio::sync::oneshot;

use super::shop::{SHOP, Shop};
use crate::cluster::{Cluster, soon};
use crate::rights;

/// With the RBAC of the manifests for the service CA alone, of which no rule is unused.
#[tokio::test]
async fn the_rbac_for_the_service_ca_grants_exactly_what_the_operator_uses() {
    let shop = Shop::new(Cluster::real().await).await;
    let account = "openshift-service-ca";
    let objects = rbac::objects_for(Catalog::builtin(), account, &[Component::ServiceCa]);
    shop.cluster.apply(&objects).await;
    let (client, asked) = rights::recorded(shop.cluster.client_as_account(account, rbac::NAME).await);
    let runner = shop.cluster.runner_through(client.clone());
    shop.asks("web", "web-tls").await;
    shop.asks("bad", "Bad").await;
    let passed = runner.once().await.unwrap();
    assert!(passed.failed.is_empty() && passed.observation.problems.is_empty(), "{:?}", passed.observation.problems);
    shop.served("web-tls").await;
    // A rotation updates existing objects, and a running operator watches.
    shop.force("a test").await;
    let before = shop.served("web-tls").await;
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move { runner.run(|_| {}, async { drop(stopped.await) }).await });
    soon("web has another certificate", || async { shop.served("web-tls").await.leaf() != before.leaf() }).await;
    soon("everything is watched", || async {
        rights::kinds(&asked.lock().unwrap()).contains("operator.openshift.io/servicecas watch")
    })
    .await;
    // After trust in a CA has ended, the operator looks whether pods have reloaded.
    shop.distrust("a test").await;
    soon("pods are listed", || async { rights::kinds(&asked.lock().unwrap()).contains("/pods list") }).await;
    stop.send(()).unwrap();
    task.await.unwrap();
    let granted = rights::granted(&objects);
    let is_granted = |line: &&String| {
        let everywhere = format!(" {}", line.split_once(' ').unwrap().1);
        granted.contains(*line) || granted.contains(&everywhere)
    };
    let asked = asked.lock().unwrap().clone();
    let beyond: Vec<&String> = asked.iter().filter(|line| !is_granted(line)).collect();
    assert!(beyond.is_empty(), "asked for and not granted: {beyond:?}");
    // Other objects are read now and then, and another test covers leases and reviews.
    let serving: Vec<_> = objects.iter().filter(|it| it["metadata"]["name"] == "perennial-serving").cloned().collect();
    let idle: Vec<String> =
        rights::kinds(&rights::granted(&serving)).difference(&rights::kinds(&asked)).cloned().collect();
    assert!(idle.is_empty(), "granted and never used: {idle:?}");
    let deleted = Api::<Secret>::namespaced(client, SHOP).delete("web-tls", &DeleteParams::default()).await;
    assert!(matches!(deleted, Err(kube_client::Error::Api(status)) if status.is_forbidden()));
}
