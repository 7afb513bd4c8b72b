//! The ConfigMap that requests the service CA bundle, in every namespace of a cluster in which no other writer creates it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, Request, StatusCode};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use kube_client::api::{DeleteParams, ListParams};
use kube_client::client::Body;
use kube_client::{Api, Client};
use perennial_core::injection::{INJECT, INJECT_LEGACY, KEY, LEGACY_NAME};
use perennial_operator::inject;
use perennial_operator::rbac;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tower::service_fn;

use crate::cluster::{Cluster, soon};
use crate::rights;

/// A cluster with a bundle, and the controllers that create and fill ConfigMaps.
struct Lab {
    cluster: Cluster,
    bundle: String,
    stop: watch::Sender<bool>,
    running: Vec<JoinHandle<()>>,
}

impl Lab {
    async fn new(mut cluster: Cluster) -> Lab {
        let others = ["etcd", "kube-apiserver", "kube-controller-manager"];
        cluster.view.settings.left_alone = others.map(str::to_owned).into();
        cluster.runner().once().await.unwrap();
        let map = cluster.config_maps("openshift-service-ca").get("signing-cabundle").await.unwrap();
        let bundle = map.data.unwrap().remove("ca-bundle.crt").unwrap();
        Lab { cluster, bundle, stop: watch::Sender::new(false), running: Vec::new() }
    }

    fn publish(&mut self, client: Client) {
        let (clock, mut stopped) = (self.cluster.clock(), self.stop.subscribe());
        let run = async move { inject::publish(client, clock, async { drop(stopped.wait_for(|it| *it).await) }).await };
        self.running.push(tokio::spawn(run));
    }

    fn inject(&mut self) {
        let (runner, mut stopped) = (self.cluster.runner(), self.stop.subscribe());
        let run = async move { runner.run(|_| {}, async { drop(stopped.wait_for(|it| *it).await) }).await };
        self.running.push(tokio::spawn(run));
    }

    async fn end(self) -> Cluster {
        self.stop.send(true).unwrap();
        for running in self.running {
            running.await.unwrap();
        }
        self.cluster
    }

    async fn make_namespace(&self, name: &str) {
        self.cluster.create::<Namespace>(None, json!({"metadata": {"name": name}})).await;
    }

    async fn delete_namespace(&self, name: &str) {
        let api = Api::<Namespace>::all(self.cluster.client.clone());
        api.delete(name, &DeleteParams::default()).await.unwrap();
    }

    async fn map(&self, namespace: &str) -> Option<ConfigMap> {
        self.cluster.config_maps(namespace).get_opt(LEGACY_NAME).await.unwrap()
    }

    async fn has_bundle(&self, namespace: &str) {
        soon(&format!("{namespace} has the bundle"), || async {
            let data = self.map(namespace).await.and_then(|it| it.data).unwrap_or_default();
            serde_json::to_value(data).unwrap() == json!({KEY: self.bundle})
        })
        .await;
    }
}

fn annotations(map: &ConfigMap) -> Value {
    let all = map.metadata.annotations.clone().unwrap_or_default();
    all.into_iter().filter(|(key, _)| key.starts_with("service.")).collect()
}

async fn every_namespace_gets_the_config_map(lab: &Lab) {
    lab.has_bundle("early").await;
    let map = lab.map("early").await.unwrap();
    assert_eq!(annotations(&map), json!({INJECT: "true"}));
    let all = Api::<Namespace>::all(lab.cluster.client.clone()).list(&ListParams::default()).await.unwrap();
    let all: BTreeSet<String> = all.into_iter().map(|it| it.metadata.name.unwrap()).collect();
    assert!(all.contains("openshift-service-ca"));
    for namespace in all.iter().filter(|it| !["chosen", "ending"].contains(&it.as_str())) {
        lab.has_bundle(namespace).await;
    }
    lab.make_namespace("late").await;
    lab.has_bundle("late").await;
    // A deleted ConfigMap is created again.
    lab.cluster.config_maps("early").delete(LEGACY_NAME, &DeleteParams::default()).await.unwrap();
    soon("another is there", || async {
        let found = lab.map("early").await;
        found.is_some_and(|found| found.metadata.uid != map.metadata.uid)
    })
    .await;
    lab.has_bundle("early").await;
    // A ConfigMap of another writer stays unchanged.
    let theirs = lab.map("chosen").await.unwrap();
    assert_eq!(annotations(&theirs), json!({INJECT_LEGACY: "true"}));
    let both = [(KEY.to_owned(), format!("{}roots\n", lab.bundle))].into();
    soon("it has both", || async { lab.map("chosen").await.unwrap().data.as_ref() == Some(&both) }).await;
}

/// The objects before any ConfigMap is created.
async fn prepare(lab: &Lab) {
    lab.make_namespace("early").await;
    lab.make_namespace("chosen").await;
    let roots = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "roots"}});
    lab.cluster.create::<ConfigMap>(Some("chosen"), roots).await;
    let legacy = json!({"metadata": {"name": LEGACY_NAME, "annotations": {INJECT_LEGACY: "true"}}});
    lab.cluster.create::<ConfigMap>(Some("chosen"), legacy).await;
}

#[tokio::test]
async fn every_namespace_gets_the_config_map_with_the_bundle() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    prepare(&lab).await;
    lab.publish(lab.cluster.client.clone());
    lab.inject();
    every_namespace_gets_the_config_map(&lab).await;
    // A stopped controller deletes nothing.
    let bundle = lab.bundle.clone();
    let cluster = lab.end().await;
    let map = cluster.config_maps("early").get(LEGACY_NAME).await.unwrap();
    assert_eq!(map.data.unwrap(), [(KEY.to_owned(), bundle)].into());
}

#[tokio::test]
async fn every_namespace_gets_the_config_map_on_a_real_server() {
    let mut lab = Lab::new(Cluster::real().await).await;
    prepare(&lab).await;
    // A namespace that is being deleted: no controller removes it here, so it stays during the test.
    lab.make_namespace("ending").await;
    lab.delete_namespace("ending").await;
    // With the rights that it needs, and no others.
    let objects = rbac::publication("default");
    lab.cluster.apply(&objects).await;
    let (client, asked) = rights::recorded(lab.cluster.client_as_account("default", rbac::NAME).await);
    lab.inject();
    lab.publish(client);
    every_namespace_gets_the_config_map(&lab).await;
    // It is deleted after it had a ConfigMap.
    lab.delete_namespace("late").await;
    lab.cluster.config_maps("late").delete(LEGACY_NAME, &DeleteParams::default()).await.unwrap();
    // By then everything possible was created.
    lab.make_namespace("last").await;
    lab.has_bundle("last").await;
    assert!(lab.map("ending").await.is_none() && lab.map("late").await.is_none());
    // A namespace that is being deleted is not reported.
    let events = Api::<Event>::namespaced(lab.cluster.client.clone(), "default");
    let told = events.list(&ListParams::default()).await.unwrap();
    let is_ours = |it: &Event| it.reason.as_deref() == Some("ServiceCAPublicationFailed");
    assert!(!told.into_iter().any(|it| is_ours(&it)));

    // An admission policy rejects the ConfigMap.
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "none"},
        "spec": {
            "matchConstraints": {"resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]},
            ]},
            "validations": [{"expression": format!("object.metadata.name != '{LEGACY_NAME}'"), "message": "not wanted"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "none"}, "spec": {"policyName": "none", "validationActions": ["Deny"]},
    });
    let path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic";
    for (suffix, object) in [("ies", policy), ("ybindings", binding)] {
        let request = Request::post(format!("{path}{suffix}")).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(&object).unwrap()).unwrap();
        lab.cluster.client.request::<Value>(request).await.unwrap();
    }
    let probe = json!({"metadata": {"name": LEGACY_NAME}});
    soon("it is refused", || async {
        let api = lab.cluster.config_maps("default");
        let map: ConfigMap = serde_json::from_value(probe.clone()).unwrap();
        let refused = api.create(&kube_client::api::PostParams::default(), &map).await.unwrap_err();
        refused.to_string().contains("not wanted")
    })
    .await;
    lab.make_namespace("refused").await;
    soon("it is said", || async {
        let told = events.list(&ListParams::default()).await.unwrap();
        told.into_iter().any(|it| {
            is_ours(&it)
                && it.involved_object.name.as_deref() == Some("refused")
                && it.message.as_deref().unwrap_or_default().contains("not wanted")
        })
    })
    .await;
    let request = Request::delete(format!("{path}ybindings/none")).body(Vec::new()).unwrap();
    lab.cluster.client.request::<Value>(request).await.unwrap();
    lab.has_bundle("refused").await;
    lab.end().await;
    let asked = rights::kinds(&asked.lock().unwrap());
    assert_eq!(asked, rights::kinds(&rights::granted(&objects)), "asked for, and granted");
}

#[tokio::test]
async fn a_namespace_that_is_being_deleted_is_no_error() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    // The namespace is deleted just before a create in it, and a finalizer keeps it.
    let client = lab.cluster.client.clone();
    let service = service_fn(move |request: Request<Body>| {
        let client = client.clone();
        async move {
            if *request.method() == Method::POST && request.uri().path() == "/api/v1/namespaces/shop/configmaps" {
                let api = Api::<Namespace>::all(client.clone());
                api.delete("shop", &DeleteParams::default()).await.unwrap();
            }
            client.send(request).await
        }
    });
    lab.make_namespace("shop").await;
    let held = json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    lab.cluster.create::<ConfigMap>(Some("shop"), held).await;
    lab.publish(Client::new(service, "default"));
    let namespaces = Api::<Namespace>::all(lab.cluster.client.clone());
    soon("it is ending", || async { namespaces.get("shop").await.unwrap().metadata.deletion_timestamp.is_some() })
        .await;
    lab.make_namespace("last").await;
    soon("another has one", || async { lab.map("last").await.is_some() }).await;
    assert!(lab.map("shop").await.is_none());
    let told = Api::<Event>::all(lab.cluster.client.clone()).list(&ListParams::default()).await.unwrap();
    let failed = told.into_iter().filter(|it| it.reason.as_deref() == Some("ServiceCAPublicationFailed"));
    assert_eq!(failed.map(|it| it.message).collect::<Vec<_>>(), []);
    lab.end().await;
}

#[tokio::test]
async fn a_deleted_namespace_is_not_retried() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    // The watch has not reported the deletion yet: the server rejects the create.
    let (is_gone, tries) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (gone, tried) = (is_gone.clone(), tries.clone());
    let way = lab.cluster.way(move |method, path| {
        let is_it = *method == Method::POST && path == "/api/v1/namespaces/shop/configmaps";
        if !is_it {
            return None;
        }
        tried.fetch_add(1, Ordering::Relaxed);
        gone.load(Ordering::Relaxed).then_some((StatusCode::NOT_FOUND, "NotFound"))
    });
    lab.publish(way);
    lab.make_namespace("shop").await;
    soon("it is tried", || async { tries.load(Ordering::Relaxed) == 1 }).await;
    // Longer than the back-off after another failure.
    tokio::time::sleep(Duration::from_millis(2500)).await;
    assert_eq!(tries.load(Ordering::Relaxed), 1);
    // A namespace that is created again with the same name is another one.
    is_gone.store(false, Ordering::Relaxed);
    lab.delete_namespace("shop").await;
    let namespaces = Api::<Namespace>::all(lab.cluster.client.clone());
    soon("it is gone", || async { namespaces.get_opt("shop").await.unwrap().is_none() }).await;
    lab.make_namespace("shop").await;
    soon("it has one", || async { lab.map("shop").await.is_some() }).await;
    lab.end().await;
}
