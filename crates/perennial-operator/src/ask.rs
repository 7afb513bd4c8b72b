//! What people ask of whoever keeps a cluster, written where it is found.

use k8s_openapi::api::core::v1::Secret;
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Client, Error};
use perennial_api::annotations::FORCE;
use perennial_core::catalog::ObjectName;
use serde_json::json;

/// Asks for a new certificate in a Secret, for a reason that counts once.
pub async fn rotate(client: &Client, secret: &ObjectName, reason: &str) -> Result<(), Error> {
    let api = Api::<Secret>::namespaced(client.clone(), &secret.namespace);
    let asked = json!({"metadata": {"annotations": {FORCE: reason}}});
    api.patch(&secret.name, &PatchParams::default(), &Patch::Merge(&asked)).await.map(drop)
}
