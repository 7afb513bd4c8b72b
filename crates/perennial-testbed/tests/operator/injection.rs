//! The CA bundle of Services, given to those who ask for it. Numbers are those of the original's scenarios.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_client::{Api, Client};
use perennial_core::injection::{INJECT, INJECT_ALPHA, INJECT_LEGACY, KEY, LEGACY_NAME};
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Subject, SubjectSpec, Validity};
use perennial_operator::inject::Injector;
use perennial_operator::rbac;
use perennial_x509::{PrivateKey, self_signed};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::cluster::{Cluster, soon};
use crate::rights;

const SHOP: &str = "shop";
/// Servers look into some of them, so they are what they say.
static FIRST: LazyLock<String> = LazyLock::new(|| authority("first"));
static SECOND: LazyLock<String> = LazyLock::new(|| authority("second"));

fn authority(name: &str) -> String {
    let instant = |text: &str| text.parse().unwrap();
    let spec = CertificateSpec {
        subject: SubjectSpec::New(Subject { common_name: name.to_owned(), ..Subject::default() }),
        usage: Usage::Signer,
        hosts: Vec::new(),
        validity: Validity { not_before: instant("2026-01-01T00:00:00Z"), not_after: instant("2046-01-01T00:00:00Z") },
        key: "ECDSA P256".parse().unwrap(),
        extensions: Vec::new(),
    };
    self_signed(&spec, &PrivateKey::generate(spec.key).unwrap()).unwrap().to_pem()
}

/// A cluster with a namespace, a bundle and somebody who gives it out.
struct Lab {
    cluster: Cluster,
    stop: Option<oneshot::Sender<()>>,
    running: tokio::task::JoinHandle<()>,
}

impl Lab {
    async fn new(cluster: Cluster) -> Lab {
        let client = cluster.client.clone();
        Lab::with(cluster, client).await
    }

    async fn with(cluster: Cluster, client: Client) -> Lab {
        cluster.create::<Namespace>(None, json!({"metadata": {"name": SHOP}})).await;
        let (stop, stopped) = oneshot::channel();
        let injector = Injector::new(client, cluster.clock());
        let running = tokio::spawn(async move { injector.run(async { drop(stopped.await) }).await });
        Lab { cluster, stop: Some(stop), running }
    }

    async fn end(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        self.running.await.unwrap();
    }

    async fn set_bundle(&self, text: &str) {
        let api = self.cluster.config_maps("openshift-service-ca");
        let data = json!({"data": {"ca-bundle.crt": text}});
        if api.get_opt("signing-cabundle").await.unwrap().is_some() {
            api.patch("signing-cabundle", &PatchParams::default(), &Patch::Merge(&data)).await.unwrap();
        } else {
            let mut map = data;
            map["metadata"] = json!({"name": "signing-cabundle"});
            self.cluster.create::<ConfigMap>(Some("openshift-service-ca"), map).await;
        }
    }

    async fn ask(&self, name: &str, annotation: (&str, &str), data: Value) {
        let metadata = json!({"name": name, "annotations": {annotation.0: annotation.1}});
        self.cluster.create::<ConfigMap>(Some(SHOP), json!({"metadata": metadata, "data": data})).await;
    }

    async fn data(&self, name: &str) -> Value {
        let found = self.cluster.config_maps(SHOP).get(name).await.unwrap();
        serde_json::to_value(found.data.unwrap_or_default()).unwrap()
    }

    async fn map_becomes(&self, name: &str, data: Value) {
        soon(&format!("{name} is {data}"), || async { self.data(name).await == data }).await;
    }
}

fn annotated(name: &str) -> Value {
    json!({"name": name, "annotations": {INJECT: "true"}})
}

fn hook(name: &str) -> Value {
    json!({
        "name": format!("{name}.shop.example.com"), "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"service": {"name": "web", "namespace": SHOP}}, "failurePolicy": "Ignore",
    })
}

fn definition() -> Value {
    let version = |name: &str, is_stored: bool| json!({"name": name, "served": true, "storage": is_stored, "schema": {"openAPIV3Schema": {"type": "object"}}});
    let client = json!({"service": {"name": "web", "namespace": SHOP}});
    json!({
        "metadata": annotated("carts.shop.example.com"),
        "spec": {
            "group": "shop.example.com", "scope": "Namespaced", "names": {"kind": "Cart", "plural": "carts"},
            "versions": [version("v1", true), version("v2", false)],
            "conversion": {
                "strategy": "Webhook",
                "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]},
            },
        },
    })
}

/// 42, 43: ConfigMaps.
async fn config_maps(lab: &Lab) {
    lab.ask("one", (INJECT, "true"), json!({"mine": "x"})).await;
    lab.ask("two", (INJECT_ALPHA, "True"), json!({})).await;
    lab.ask("none", (INJECT, "no"), json!({"mine": "x"})).await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(lab.data("one").await, json!({"mine": "x"}), "without a bundle, nothing is taken away");
    lab.set_bundle(&FIRST).await;
    lab.map_becomes("one", json!({KEY: *FIRST})).await;
    lab.map_becomes("two", json!({KEY: *FIRST})).await;
    // Whatever somebody adds goes again.
    let api = lab.cluster.config_maps(SHOP);
    let more = json!({"data": {"mine": "again"}});
    api.patch("one", &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    lab.map_becomes("one", json!({KEY: *FIRST})).await;
    assert_eq!(lab.data("none").await, json!({"mine": "x"}));

    // What service accounts trust comes behind it, in one ConfigMap alone.
    let roots = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "roots"}});
    lab.cluster.create::<ConfigMap>(Some(SHOP), roots).await;
    lab.ask(LEGACY_NAME, (INJECT_LEGACY, "true"), json!({})).await;
    lab.ask("other", (INJECT_LEGACY, "true"), json!({"mine": "x"})).await;
    lab.map_becomes(LEGACY_NAME, json!({KEY: format!("{}roots\n", *FIRST)})).await;
    let other_roots = json!({"data": {"ca.crt": "other roots"}});
    api.patch("kube-root-ca.crt", &PatchParams::default(), &Patch::Merge(&other_roots)).await.unwrap();
    lab.map_becomes(LEGACY_NAME, json!({KEY: format!("{}other roots\n", *FIRST)})).await;
    let strict = json!({"metadata": {"annotations": {INJECT: "true"}}});
    api.patch(LEGACY_NAME, &PatchParams::default(), &Patch::Merge(&strict)).await.unwrap();
    lab.map_becomes(LEGACY_NAME, json!({KEY: *FIRST})).await;
    assert_eq!(lab.data("other").await, json!({"mine": "x"}));
}

/// The bundle in each object of the whole cluster, decoded: one for each place that has one.
async fn in_cluster(lab: &Lab) -> Vec<String> {
    let client = &lab.cluster.client;
    let text = |bundle: Option<k8s_openapi::ByteString>| String::from_utf8(bundle.unwrap_or_default().0).unwrap();
    let mut found = Vec::new();
    let service = Api::<APIService>::all(client.clone()).get("v1.shop.example.com").await.unwrap();
    found.push(text(service.spec.unwrap().ca_bundle));
    let definition = Api::<CustomResourceDefinition>::all(client.clone()).get("carts.shop.example.com").await.unwrap();
    let webhook = definition.spec.conversion.unwrap().webhook.unwrap();
    found.push(text(webhook.client_config.unwrap().ca_bundle));
    let mutating = Api::<MutatingWebhookConfiguration>::all(client.clone()).get("changes").await.unwrap();
    found.extend(mutating.webhooks.unwrap().into_iter().map(|it| text(it.client_config.ca_bundle)));
    let validating = Api::<ValidatingWebhookConfiguration>::all(client.clone()).get("checks").await.unwrap();
    found.extend(validating.webhooks.unwrap().into_iter().map(|it| text(it.client_config.ca_bundle)));
    found
}

/// 34, 44: what belongs to the whole cluster, and a new bundle for all of them.
async fn whole_cluster(lab: &Lab) {
    let client = &lab.cluster.client;
    lab.set_bundle(&FIRST).await;
    let service = json!({"name": "web", "namespace": SHOP});
    let spec = json!({
        "group": "shop.example.com", "version": "v1", "service": service, "groupPriorityMinimum": 1000, "versionPriority": 10,
    });
    let api_service = json!({"metadata": annotated("v1.shop.example.com"), "spec": spec});
    lab.cluster.create::<APIService>(None, api_service).await;
    lab.cluster.create::<CustomResourceDefinition>(None, definition()).await;
    let hooks = json!([hook("one"), hook("two")]);
    let mutating = json!({"metadata": annotated("changes"), "webhooks": hooks});
    lab.cluster.create::<MutatingWebhookConfiguration>(None, mutating).await;
    let validating = json!({"metadata": annotated("checks"), "webhooks": hooks});
    lab.cluster.create::<ValidatingWebhookConfiguration>(None, validating).await;
    let all = |count: usize, bundle: &'static LazyLock<String>| {
        soon("all have the bundle", move || async move { in_cluster(lab).await == vec![bundle.to_string(); count] })
    };
    all(6, &FIRST).await;

    // Somebody changes one of them, and adds another.
    let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let mut found = api.get("checks").await.unwrap();
    let webhooks = found.webhooks.as_mut().unwrap();
    webhooks[1].client_config.ca_bundle = Some(k8s_openapi::ByteString(b"theirs".to_vec()));
    webhooks.push(serde_json::from_value(hook("three")).unwrap());
    api.replace("checks", &PostParams::default(), &found).await.unwrap();
    all(7, &FIRST).await;
    let fields = api.get("checks").await.unwrap().metadata.managed_fields.unwrap_or_default();
    let ours = fields.iter().find(|it| it.manager.as_deref() == Some("perennial-ca-injection")).unwrap();
    assert_eq!(ours.operation.as_deref(), Some("Apply"));
    assert!(!serde_json::to_string(&ours.fields_v1).unwrap().contains("failurePolicy"), "only the field is ours");

    lab.ask("late", (INJECT, "true"), json!({})).await;
    lab.map_becomes("late", json!({KEY: *FIRST})).await;
    lab.set_bundle(&SECOND).await;
    all(7, &SECOND).await;
    lab.map_becomes("late", json!({KEY: *SECOND})).await;
    // A bundle that vanishes is taken from nobody.
    let bundles = lab.cluster.config_maps("openshift-service-ca");
    bundles.delete("signing-cabundle", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await;
    all(7, &SECOND).await;
}

#[tokio::test]
async fn who_asks_is_given_the_bundle() {
    let lab = Lab::new(Cluster::embedded().await).await;
    config_maps(&lab).await;
    whole_cluster(&lab).await;
    lab.end().await;
}

#[tokio::test]
async fn who_asks_is_given_the_bundle_on_a_real_server_too() {
    // With the rights that it needs, and no others.
    let cluster = Cluster::real().await;
    let objects = rbac::injection("default");
    cluster.apply(&objects).await;
    let (client, asked) = rights::recorded(cluster.client_as_account("default", rbac::NAME).await);
    let lab = Lab::with(cluster, client).await;
    config_maps(&lab).await;
    whole_cluster(&lab).await;

    // What a server does not take is said, and given as soon as it does.
    let spec = json!({
        "group": "late.example.com", "version": "v1", "insecureSkipTLSVerify": true,
        "service": {"name": "web", "namespace": SHOP}, "groupPriorityMinimum": 1000, "versionPriority": 10,
    });
    lab.set_bundle(&FIRST).await;
    let metadata = annotated("v1.late.example.com");
    lab.cluster.create::<APIService>(None, json!({"metadata": metadata, "spec": spec})).await;
    let events = Api::<Event>::namespaced(lab.cluster.client.clone(), "default");
    soon("it is said", || async {
        let all = events.list(&ListParams::default()).await.unwrap();
        all.into_iter().any(|it| {
            it.reason.as_deref() == Some("CABundleInjectionFailed")
                && it.involved_object.name.as_deref() == Some("v1.late.example.com")
        })
    })
    .await;
    let api = Api::<APIService>::all(lab.cluster.client.clone());
    let secure = json!({"spec": {"insecureSkipTLSVerify": false}});
    api.patch("v1.late.example.com", &PatchParams::default(), &Patch::Merge(&secure)).await.unwrap();
    let wanted = BASE64_STANDARD.encode(FIRST.as_bytes());
    let api = Arc::new(api);
    soon("it is given", || {
        let (api, wanted) = (api.clone(), wanted.clone());
        async move {
            let found = serde_json::to_value(api.get("v1.late.example.com").await.unwrap()).unwrap();
            found["spec"]["caBundle"] == json!(wanted)
        }
    })
    .await;
    lab.end().await;
    let asked = rights::kinds(&asked.lock().unwrap());
    assert_eq!(asked, rights::kinds(&rights::granted(&objects)), "asked for, and granted");
}
