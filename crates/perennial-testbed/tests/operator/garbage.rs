//! Objects of a Service are deleted with it: by the collector of the embedded server, and by a real kube-controller-manager.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use kube_client::ResourceExt;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;

const NAMESPACE: &str = "shop";

/// Collection takes a second or two; after this time it does not happen.
const COLLECTED_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn the_secret_of_a_service_is_deleted_with_it_on_the_embedded_server() {
    the_secret_of_a_service_is_deleted_with_it(&Cluster::embedded().await, owned_secret).await;
    the_secret_of_a_service_is_deleted_with_it(&only_services(Cluster::embedded().await), issued_secret).await;
}

#[tokio::test]
async fn the_secret_of_a_service_is_deleted_with_it_on_a_real_server() {
    let cluster = Cluster::real_with(&["garbage-collector-controller"]).await;
    the_secret_of_a_service_is_deleted_with_it(&cluster, owned_secret).await;
}

#[tokio::test]
async fn the_certificate_of_a_service_is_deleted_with_it_on_a_real_server() {
    let cluster = only_services(Cluster::real_with(&["garbage-collector-controller"]).await);
    the_secret_of_a_service_is_deleted_with_it(&cluster, issued_secret).await;
}

/// Creates a Secret for each of three Services. The Secret of the deleted Service is deleted, and that of the Service that
/// is created again with the same name; the Secret of the third stays.
async fn the_secret_of_a_service_is_deleted_with_it(
    cluster: &Cluster,
    secret_for: impl AsyncFn(&Cluster, &Service) -> Secret,
) {
    cluster.create::<Namespace>(None, json!({"metadata": {"name": NAMESPACE}})).await;
    let (kept, gone, again) =
        (service(cluster, "kept").await, service(cluster, "gone").await, service(cluster, "again").await);
    let kept_secret = secret_for(cluster, &kept).await;
    let gone_secret = secret_for(cluster, &gone).await;
    let again_secret = secret_for(cluster, &again).await;

    let services: Api<Service> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    services.delete("gone", &DeleteParams::default()).await.unwrap();
    services.delete("again", &DeleteParams::default()).await.unwrap();
    service(cluster, "again").await;

    cluster.wait_until_gone(&gone_secret, COLLECTED_WITHIN).await;
    cluster.wait_until_gone(&again_secret, COLLECTED_WITHIN).await;
    let left = cluster.secrets(NAMESPACE).get(&kept_secret.name_any()).await.unwrap();
    assert_eq!((left.uid(), left.data), (kept_secret.uid(), kept_secret.data));
}

/// A Service without a request.
async fn service(cluster: &Cluster, name: &str) -> Service {
    let spec = json!({"selector": {"app": name}, "ports": [{"port": 443}]});
    cluster.create(Some(NAMESPACE), json!({"metadata": {"name": name}, "spec": spec})).await
}

/// A Secret with the owner reference of a serving certificate: not a controller, and not blocking a deletion.
async fn owned_secret(cluster: &Cluster, service: &Service) -> Secret {
    let owner =
        json!({"apiVersion": "v1", "kind": "Service", "name": service.name_any(), "uid": service.uid().unwrap()});
    let metadata = json!({"name": format!("{}-tls", service.name_any()), "ownerReferences": [owner]});
    cluster.create(Some(NAMESPACE), json!({"metadata": metadata, "stringData": {"of": service.name_any()}})).await
}

/// Returns settings in which only Services and their CA are managed.
fn only_services(mut cluster: Cluster) -> Cluster {
    let others = ["etcd", "kube-apiserver", "kube-controller-manager"];
    cluster.view.settings.left_alone = others.map(str::to_owned).into();
    cluster
}

/// The Secret that the operator creates for a Service.
async fn issued_secret(cluster: &Cluster, service: &Service) -> Secret {
    let (name, secret) = (service.name_any(), format!("{}-tls", service.name_any()));
    let asks = json!({"metadata": {"annotations": {"service.beta.openshift.io/serving-cert-secret-name": secret}}});
    let services: Api<Service> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    services.patch(&name, &PatchParams::default(), &Patch::Merge(&asks)).await.unwrap();
    cluster.runner().once().await.unwrap();
    cluster.secrets(NAMESPACE).get(&secret).await.unwrap()
}

impl Cluster {
    /// Waits until this very Secret is not there any more; another one may be, under its name.
    async fn wait_until_gone(&self, secret: &Secret, within: Duration) {
        let (namespace, name) = (secret.namespace().unwrap(), secret.name_any());
        let secrets = self.secrets(&namespace);
        let deadline = Instant::now() + within;
        while secrets.get_opt(&name).await.unwrap().is_some_and(|found| found.uid() == secret.uid()) {
            assert!(Instant::now() < deadline, "Secret {namespace}/{name} is still there; {}", self.last_words());
            sleep(Duration::from_millis(50)).await;
        }
    }
}
