//! What people and accidents do to objects.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;

use crate::cluster::Cluster;

const KASO: &str = "openshift-kube-apiserver-operator";
const SIGNER: &str = "loadbalancer-serving-signer";

/// A Secret as somebody made it by hand: the same content, another type.
async fn mistype(cluster: &Cluster) -> Secret {
    let secrets = cluster.secrets(KASO);
    let found = secrets.get(SIGNER).await.unwrap();
    secrets.delete(SIGNER, &DeleteParams::default()).await.unwrap();
    let labels = json!({"team": "blue"});
    let annotations = found.metadata.annotations.clone();
    let metadata = json!({"name": SIGNER, "annotations": annotations, "labels": labels});
    let object = json!({"metadata": metadata, "type": "Opaque", "data": found.data});
    cluster.create::<Secret>(Some(KASO), object).await;
    found
}

async fn wrong_type(cluster: &Cluster) {
    cluster.pass().await;
    let before = mistype(cluster).await;
    let (_, text) = cluster.pass().await;
    assert_eq!(text, "", "nothing is issued");
    let after = cluster.secrets(KASO).get(SIGNER).await.unwrap();
    assert_eq!(after.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(after.data, before.data);
    assert_eq!(after.metadata.labels.unwrap()["team"], "blue");
    let left = cluster.secrets(KASO).get_opt(&format!("{SIGNER}-staged")).await.unwrap();
    assert!(left.is_none());
}

#[tokio::test]
async fn o03_a_secret_of_another_type_is_replaced_with_its_content() {
    wrong_type(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn o03_a_secret_of_another_type_is_replaced_on_a_real_server_too() {
    wrong_type(&Cluster::real().await).await;
}

#[tokio::test]
async fn what_others_put_on_an_object_stays() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let secrets = cluster.secrets("openshift-kube-apiserver");
    let owner = json!({"metadata": {"name": "owner"}});
    let owner: ConfigMap = cluster.create(Some("openshift-kube-apiserver"), owner).await;
    let theirs = json!({
        "metadata": {
            "labels": {"team": "blue"},
            "annotations": {"example.com/note": "ours", "auth.openshift.io/certificate-not-after": null},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner.metadata.uid}],
        },
        "data": {"extra": "ZXh0cmE="},
    });
    secrets.patch("aggregator-client", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let (_, text) = cluster.pass().await;
    assert_eq!(text, "issue openshift-kube-apiserver/aggregator-client: missing notAfter\n");
    let after = secrets.get("aggregator-client").await.unwrap();
    assert_eq!(after.metadata.labels.unwrap()["team"], "blue");
    assert_eq!(after.metadata.annotations.unwrap()["example.com/note"], "ours");
    assert_eq!(after.metadata.owner_references.unwrap()[0].name, "owner");
    assert_eq!(after.data.unwrap()["extra"].0, b"extra");
}
