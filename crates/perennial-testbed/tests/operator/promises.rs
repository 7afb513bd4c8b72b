//! Guarantees of the writing code: a write has the resource version of its proof, and metrics count failures as failures.

use http::{Method, StatusCode};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::ResourceExt;
use kube_client::api::{Patch, PatchParams};
use perennial_api::annotations::FORCE;
use perennial_core::plan::{Action, Step};
use perennial_operator::act::ActError;
use serde_json::json;

use crate::cluster::Cluster;
use crate::serving::Shop;

const KAS: &str = "openshift-kube-apiserver";
const LEAF: &str = "aggregator-client";

/// Requests the rotation of a certificate an hour later.
async fn force(cluster: &Cluster) {
    cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
    let asked = json!({"metadata": {"annotations": {FORCE: "a test"}}});
    cluster.secrets(KAS).patch(LEAF, &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
}

/// Plans, lets another writer change the object of the first matching step, and carries that step out.
async fn overtaken(cluster: &Cluster, is_meant: impl Fn(&Step) -> bool, is_secret: bool) -> (ActError, bool) {
    let (mut observation, report) = cluster.reconciler().plan().await.unwrap();
    let step = report.steps.iter().find(|step| is_meant(step)).expect("the step is planned");
    let (namespace, name) = step.object.split_once('/').unwrap();
    let note = json!({"metadata": {"annotations": {"example.com/note": "written meanwhile"}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(&note));
    let data = async || match is_secret {
        true => {
            let found: Secret = cluster.secrets(namespace).get(name).await.unwrap();
            (format!("{:?}", found.data), found.resource_version())
        }
        false => {
            let found: ConfigMap = cluster.config_maps(namespace).get(name).await.unwrap();
            (format!("{:?}", found.data), found.resource_version())
        }
    };
    match is_secret {
        true => drop(cluster.secrets(namespace).patch(name, &params, &patch).await.unwrap()),
        false => drop(cluster.config_maps(namespace).patch(name, &params, &patch).await.unwrap()),
    }
    let before = data().await;
    let acted = cluster.actor().act(&mut observation, step, None).await;
    (acted.expect_err("what was proved is about another version"), before == data().await)
}

async fn secret_that_changed_since_the_plan_is_not_written(cluster: Cluster) {
    cluster.pass().await;
    force(&cluster).await;
    let is_meant = |step: &Step| matches!(&step.action, Action::Issue(issue) if issue.slot.object().name == LEAF);
    let (error, is_untouched) = overtaken(&cluster, is_meant, true).await;
    assert!(matches!(error, ActError::Changed { .. }), "{error}");
    assert!(is_untouched);
}

async fn bundle_that_changed_since_the_plan_is_not_written(cluster: Cluster) {
    cluster.pass().await;
    let bundle = ("openshift-config-managed", "kube-apiserver-aggregator-client-ca");
    let damage = json!({"data": {"ca-bundle.crt": "nothing"}});
    let maps = cluster.config_maps(bundle.0);
    maps.patch(bundle.1, &PatchParams::default(), &Patch::Merge(&damage)).await.unwrap();
    let is_meant = |step: &Step| step.object == format!("{}/{}", bundle.0, bundle.1);
    let (error, is_untouched) = overtaken(&cluster, is_meant, false).await;
    assert!(matches!(error, ActError::Changed { .. }), "{error}");
    assert!(is_untouched);
}

/// Returns the count of certificates with this name and result.
fn counted(text: &str, name: &str, result: &str) -> u32 {
    let start = format!("openshift_pki_certificate_generated_total{{certificate_name=\"{name}\"");
    let lines = text.lines().filter(|line| line.starts_with(&start) && line.contains(&format!("result=\"{result}\"")));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap()).sum()
}

#[tokio::test]
async fn failed_write_of_a_serving_certificate_is_counted_as_a_failure() {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.asks("web", "web-tls").await;
    let refuse = |method: &Method, path: &str| {
        let is_meant = method == Method::POST && path == "/api/v1/namespaces/shop/secrets";
        is_meant.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    };
    let runner = shop.cluster.runner_through(shop.cluster.way(refuse));
    runner.once().await.unwrap();
    let text = runner.metrics().text().unwrap();
    let (made, failed) = (counted(&text, "service-serving", "success"), counted(&text, "service-serving", "failure"));
    assert!(made == 0 && failed > 0, "{made} made, {failed} failed\n{text}");
}

on_both! {
    secret_that_changed_since_the_plan_is_not_written
    bundle_that_changed_since_the_plan_is_not_written
}
