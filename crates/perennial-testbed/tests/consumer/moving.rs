//! Moves a cluster from the embedded server to the real one.

use std::sync::Arc;

use base64::{Engine, engine::general_purpose::STANDARD};
use http::{Request, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{ListParams, PostParams};
use kube_client::client::Body;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use perennial_operator::{FIELD_MANAGER, rbac};
use serde_json::json;
use tokio::sync::Mutex;

use crate::cluster::{Cluster, namespaces};
use crate::objects::{Key, Material, Objects, When, data_of_map, data_of_secret};
use crate::world::World;

/// Returns all objects of a cluster.
pub(crate) async fn note_all(objects: &Objects, cluster: &Cluster, at: Timestamp) {
    for namespace in namespaces() {
        for secret in cluster.secrets(namespace).list(&ListParams::default()).await.unwrap() {
            let name = secret.metadata.name.clone().unwrap();
            objects.note(Key::secret(namespace, &name), data_of_secret(&secret), at);
        }
        for map in cluster.config_maps(namespace).list(&ListParams::default()).await.unwrap() {
            let name = map.metadata.name.clone().unwrap();
            objects.note(Key::map(namespace, &name), data_of_map(&map), at);
        }
    }
}

/// Creates all objects in another cluster.
pub(crate) async fn move_objects(from: &Cluster, to: &Cluster) {
    let as_us = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let moved = |old: ObjectMeta| ObjectMeta {
        name: old.name,
        annotations: old.annotations,
        labels: old.labels,
        ..ObjectMeta::default()
    };
    for namespace in namespaces() {
        for secret in from.secrets(namespace).list(&ListParams::default()).await.unwrap() {
            let secret = Secret { metadata: moved(secret.metadata), ..secret };
            to.secrets(namespace).create(&as_us, &secret).await.unwrap();
        }
        for map in from.config_maps(namespace).list(&ListParams::default()).await.unwrap() {
            let map = ConfigMap { metadata: moved(map.metadata), ..map };
            to.config_maps(namespace).create(&as_us, &map).await.unwrap();
        }
    }
}

/// Returns a client that always has the newest certificate of the administrator on a node, and the newest bundle.
pub(crate) fn administrator(world: Arc<World>) -> Client {
    connected(world, None)
}

/// Returns the same with only the account of the manifests. Any forbidden request is a failure.
pub(crate) fn operator(world: Arc<World>, namespace: &'static str) -> Client {
    let client = connected(world.clone(), Some(namespace));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, world) = (client.clone(), world.clone());
        let what = format!("{} {}", request.method(), request.uri());
        async move {
            let answer = client.send(request).await?;
            if answer.status() == StatusCode::FORBIDDEN {
                world.fail(&format!("the operator may not {what}"));
            }
            Ok::<_, kube_client::Error>(answer)
        }
    });
    Client::new(service, "default")
}

/// The identity: its own, or the operator in a namespace.
fn connected(world: Arc<World>, operator_in: Option<&'static str>) -> Client {
    let identity = Key::secret("openshift-kube-apiserver-operator", "node-system-admin-client");
    let trust = Key::map("openshift-config-managed", "kube-apiserver-server-ca");
    let made: Arc<Mutex<Option<(String, Client)>>> = Arc::default();
    let service = tower::service_fn(move |request| {
        let [identity, trust] = [&identity, &trust].map(|key| world.objects.held(key, When::AtOnce));
        let (trust, port, made) = (trust.bundle(), world.port, made.clone());
        let identity = Material::from(identity);
        async move {
            let mut made = made.lock().await;
            let version = format!("{}{trust}", identity.chain);
            let client = match made.as_ref().filter(|(known, _)| *known == version) {
                Some((_, client)) => client.clone(),
                None => {
                    let client = with(&identity, &trust, port, operator_in).await;
                    *made = Some((version, client.clone()));
                    client
                }
            };
            drop(made);
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

async fn with(identity: &Material, trust: &str, port: u16, operator_in: Option<&str>) -> Client {
    let mut user = json!({
        "client-certificate-data": STANDARD.encode(&identity.chain),
        "client-key-data": STANDARD.encode(&identity.key),
    });
    if let Some(namespace) = operator_in {
        user["as"] = json!(format!("system:serviceaccount:{namespace}:{}", rbac::NAME));
        let ours = format!("system:serviceaccounts:{namespace}");
        user["as-groups"] = json!(["system:serviceaccounts", ours, "system:authenticated"]);
    }
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "tls-server-name": "api-int.shop.example.com",
            "certificate-authority-data": STANDARD.encode(trust),
        }}],
        "users": [{"name": "it", "user": user}],
    });
    let config = Kubeconfig::from_yaml(&config.to_string()).unwrap();
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    config.proxy_url = None;
    Client::try_from(config).unwrap()
}
