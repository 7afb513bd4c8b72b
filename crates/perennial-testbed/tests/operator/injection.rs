//! Injection of the service CA bundle. Numbers are those of the original operator's scenarios.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use http::{Method, Request, StatusCode};
use jiff::SignedDuration;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube_client::client::Body;
use kube_client::{Api, Client};
use perennial_api::annotations::FORCE;
use perennial_core::catalog::{Catalog, Component};
use perennial_core::injection::{INJECT, INJECT_ALPHA, INJECT_LEGACY, KEY, LEGACY_NAME};
use perennial_operator::rbac;
use perennial_operator::run::Runner;
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tower::service_fn;

use crate::cluster::{Cluster, answer, soon};
use crate::mint::Minted;
use crate::reports::condition;
use crate::rights;

const SHOP: &str = "shop";
const NAMESPACE: &str = "openshift-service-ca";
const BUNDLE: &str = "signing-cabundle";
const KAS: &str = "openshift-kube-apiserver";

/// A cluster with a namespace, in which only the service CA is managed, and the operator's client.
struct Lab {
    cluster: Cluster,
    client: Client,
    running: Option<(oneshot::Sender<()>, tokio::task::JoinHandle<()>)>,
}

impl Lab {
    async fn new(cluster: Cluster) -> Lab {
        let client = cluster.client.clone();
        Lab::with(cluster, client).await
    }

    async fn with(mut cluster: Cluster, client: Client) -> Lab {
        let others = ["etcd", "kube-apiserver", "kube-controller-manager"];
        cluster.view.settings.left_alone = others.map(str::to_owned).into();
        cluster.create::<Namespace>(None, json!({"metadata": {"name": SHOP}})).await;
        Lab { cluster, client, running: None }
    }

    fn runner(&self) -> Runner<'static> {
        self.cluster.runner_through(self.client.clone())
    }

    fn start(&mut self) {
        let (runner, (stop, stopped)) = (self.runner(), oneshot::channel());
        let task = tokio::spawn(async move { runner.run(|_| {}, async { drop(stopped.await) }).await });
        self.running = Some((stop, task));
    }

    async fn end(&mut self) {
        let (stop, task) = self.running.take().unwrap();
        stop.send(()).unwrap();
        task.await.unwrap();
    }

    /// Makes every write that is possible now.
    async fn once(&self) {
        let passed = self.runner().once().await.unwrap();
        assert!(passed.failed.is_empty(), "{:?}", passed.failed);
    }

    /// The bundle, as it stands there.
    async fn bundle(&self) -> Option<String> {
        self.cluster.config_maps(NAMESPACE).get_opt(BUNDLE).await.unwrap()?.data?.remove("ca-bundle.crt")
    }

    async fn set_bundle(&self, text: &str) {
        let data = json!({"data": {"ca-bundle.crt": text}});
        self.cluster.config_maps(NAMESPACE).patch(BUNDLE, &PatchParams::default(), &Patch::Merge(&data)).await.unwrap();
    }

    /// Rotates the CA, and returns the new bundle.
    async fn rotate(&self, reason: &str) -> String {
        let before = self.bundle().await;
        let ask = json!({"metadata": {"annotations": {FORCE: reason}}});
        let api = self.cluster.secrets(NAMESPACE);
        api.patch("signing-key", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
        soon("the bundle is another", || async { self.bundle().await != before }).await;
        self.bundle().await.unwrap()
    }

    async fn ask(&self, name: &str, annotation: (&str, &str), data: Value) {
        let metadata = json!({"name": name, "annotations": {annotation.0: annotation.1}});
        self.cluster.create::<ConfigMap>(Some(SHOP), json!({"metadata": metadata, "data": data})).await;
    }

    async fn data(&self, name: &str) -> Value {
        let found = self.cluster.config_maps(SHOP).get(name).await.unwrap();
        serde_json::to_value(found.data.unwrap_or_default()).unwrap()
    }

    /// Returns the Events about a ConfigMap into which the bundle could not be injected.
    async fn complaints(&self, namespace: &str, name: &str) -> Vec<String> {
        let events = Api::<Event>::namespaced(self.cluster.client.clone(), namespace);
        let all = events.list(&ListParams::default()).await.unwrap().into_iter();
        let of_it = all.filter(|it| it.involved_object.name.as_deref() == Some(name));
        let failed = of_it.filter(|it| it.reason.as_deref() == Some("CABundleInjectionFailed"));
        failed.filter_map(|it| it.message).collect()
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

/// Scenarios 42 and 43 of the original operator: ConfigMaps.
async fn config_maps(lab: &mut Lab) {
    lab.ask("one", (INJECT, "true"), json!({"mine": "x"})).await;
    lab.ask("two", (INJECT_ALPHA, "True"), json!({})).await;
    lab.ask("none", (INJECT, "no"), json!({"mine": "x"})).await;
    lab.once().await;
    // After one complete run, every object that asks has the bundle.
    let first = lab.bundle().await.unwrap();
    assert_eq!(lab.data("one").await, json!({KEY: first}));
    assert_eq!(lab.data("two").await, json!({KEY: first}));
    lab.start();
    // Added keys are removed again.
    let api = lab.cluster.config_maps(SHOP);
    let more = json!({"data": {"mine": "again"}});
    api.patch("one", &PatchParams::default(), &Patch::Merge(&more)).await.unwrap();
    lab.map_becomes("one", json!({KEY: first})).await;
    assert_eq!(lab.data("none").await, json!({"mine": "x"}));

    // Only this ConfigMap also gets the CAs that service accounts trust, after the bundle.
    let roots = json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "roots"}});
    lab.cluster.create::<ConfigMap>(Some(SHOP), roots).await;
    lab.ask(LEGACY_NAME, (INJECT_LEGACY, "true"), json!({})).await;
    lab.ask("other", (INJECT_LEGACY, "true"), json!({"mine": "x"})).await;
    lab.map_becomes(LEGACY_NAME, json!({KEY: format!("{first}roots\n")})).await;
    let other_roots = json!({"data": {"ca.crt": "other roots"}});
    api.patch("kube-root-ca.crt", &PatchParams::default(), &Patch::Merge(&other_roots)).await.unwrap();
    lab.map_becomes(LEGACY_NAME, json!({KEY: format!("{first}other roots\n")})).await;
    let strict = json!({"metadata": {"annotations": {INJECT: "true"}}});
    api.patch(LEGACY_NAME, &PatchParams::default(), &Patch::Merge(&strict)).await.unwrap();
    lab.map_becomes(LEGACY_NAME, json!({KEY: first})).await;
    assert_eq!(lab.data("other").await, json!({"mine": "x"}));
}

/// Returns the decoded bundles in all cluster-scoped objects.
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

/// Scenarios 34 and 44 of the original operator: cluster-scoped objects, and a new bundle for all of them.
async fn whole_cluster(lab: &Lab) {
    let client = &lab.cluster.client;
    let first = lab.bundle().await.unwrap();
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
    let all = async |count: usize, bundle: &str| {
        soon("all have the bundle", || async { in_cluster(lab).await == vec![bundle; count] }).await;
    };
    all(6, &first).await;

    // A client changes one of the webhooks, and adds another.
    let api = Api::<ValidatingWebhookConfiguration>::all(client.clone());
    let mut found = api.get("checks").await.unwrap();
    let webhooks = found.webhooks.as_mut().unwrap();
    webhooks[1].client_config.ca_bundle = Some(k8s_openapi::ByteString(b"theirs".to_vec()));
    webhooks.push(serde_json::from_value(hook("three")).unwrap());
    api.replace("checks", &PostParams::default(), &found).await.unwrap();
    all(7, &first).await;
    let fields = api.get("checks").await.unwrap().metadata.managed_fields.unwrap_or_default();
    let ours = fields.iter().find(|it| it.manager.as_deref() == Some("perennial-ca-injection")).unwrap();
    assert_eq!(ours.operation.as_deref(), Some("Apply"));
    assert!(!serde_json::to_string(&ours.fields_v1).unwrap().contains("failurePolicy"), "only the field is ours");

    lab.ask("late", (INJECT, "true"), json!({})).await;
    lab.map_becomes("late", json!({KEY: first})).await;
    let second = lab.rotate("a test").await;
    all(7, &second).await;
    lab.map_becomes("late", json!({KEY: second})).await;
    // A deleted bundle is not removed from objects, and is created again.
    let bundles = lab.cluster.config_maps(NAMESPACE);
    bundles.delete(BUNDLE, &DeleteParams::default()).await.unwrap();
    soon("it is there again", || async { lab.bundle().await.is_some() }).await;
    all(7, &lab.bundle().await.unwrap()).await;
}

#[tokio::test]
async fn annotated_objects_get_the_bundle() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    config_maps(&mut lab).await;
    whole_cluster(&lab).await;
    lab.end().await;
}

#[tokio::test]
async fn annotated_objects_get_the_bundle_on_a_real_server() {
    // With the rights that it needs, and no others.
    let cluster = Cluster::real().await;
    let objects = rbac::objects_for(Catalog::builtin(), "default", &[Component::ServiceCa]);
    cluster.apply(&objects).await;
    let (client, asked) = rights::recorded(cluster.client_as_account("default", rbac::NAME).await);
    let mut lab = Lab::with(cluster, client).await;
    config_maps(&mut lab).await;
    whole_cluster(&lab).await;

    // A rejected write is reported, and retried until the server accepts it.
    let spec = json!({
        "group": "late.example.com", "version": "v1", "insecureSkipTLSVerify": true,
        "service": {"name": "web", "namespace": SHOP}, "groupPriorityMinimum": 1000, "versionPriority": 10,
    });
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
    let wanted = json!(BASE64_STANDARD.encode(lab.bundle().await.unwrap()));
    soon("it is given", || async {
        serde_json::to_value(api.get("v1.late.example.com").await.unwrap()).unwrap()["spec"]["caBundle"] == wanted
    })
    .await;
    lab.end().await;
    let role = |it: &&Value| it["metadata"]["name"] == "perennial-ca-injection";
    let needed = rights::kinds(&rights::granted(&objects.iter().filter(role).cloned().collect::<Vec<_>>()));
    let asked = rights::kinds(&asked.lock().unwrap());
    assert!(!needed.is_empty());
    let idle: Vec<&String> = needed.difference(&asked).collect();
    assert!(idle.is_empty(), "granted and never used: {idle:?}");
    let granted = rights::kinds(&rights::granted(&objects));
    let beyond: Vec<&String> = asked.difference(&granted).collect();
    assert!(beyond.is_empty(), "asked for and not granted: {beyond:?}");
}

#[tokio::test]
async fn a_certificate_added_to_the_bundle_by_mistake_is_not_injected() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    // All writes to annotated objects.
    let given: Arc<Mutex<Vec<String>>> = Arc::default();
    let (client, written) = (lab.cluster.client.clone(), given.clone());
    lab.client = Client::new(
        service_fn(move |request: Request<Body>| {
            let (client, written) = (client.clone(), written.clone());
            async move {
                let (parts, body) = request.into_parts();
                let bytes = body.collect_bytes().await.unwrap();
                if parts.method == Method::PUT && parts.uri.path().ends_with("/namespaces/shop/configmaps/one") {
                    let map: ConfigMap = serde_json::from_slice(&bytes).unwrap();
                    written.lock().unwrap().push(map.data.unwrap().remove(KEY).unwrap());
                }
                client.send(Request::from_parts(parts, Body::from(bytes.to_vec()))).await
            }
        }),
        "default",
    );
    lab.ask("one", (INJECT, "true"), json!({})).await;
    lab.once().await;
    let ours = lab.bundle().await.unwrap();
    let theirs = Minted::authority("theirs", lab.cluster.now(), SignedDuration::from_hours(24)).certificate.to_pem();
    lab.start();
    let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let beside = [format!("{ours}{key}"), format!("{ours}junk\n")];
    for mistake in &beside {
        lab.set_bundle(mistake).await;
        soon("the bundle is corrected", || async { lab.bundle().await.unwrap() == ours }).await;
    }
    for (mistake, right) in [("no bundle", vec![&ours]), (&theirs, vec![&ours, &theirs])] {
        lab.set_bundle(mistake).await;
        let is_right = |text: &str| right.iter().all(|it| text.contains(it.as_str()));
        soon("the bundle is corrected", || async { is_right(&lab.bundle().await.unwrap()) }).await;
        lab.map_becomes("one", json!({KEY: lab.bundle().await.unwrap()})).await;
    }
    lab.end().await;
    let given = given.lock().unwrap();
    assert_eq!(given.len(), 2, "the first bundle, and the corrected one: {given:#?}");
    assert!(given.iter().all(|text| text.contains(&ours) && !text.contains("PRIVATE") && !text.contains("junk")));
}

#[tokio::test]
async fn a_wrong_bundle_that_cannot_be_corrected_is_not_injected() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    lab.ask("one", (INJECT, "true"), json!({})).await;
    lab.once().await;
    let ours = lab.bundle().await.unwrap();
    let theirs = Minted::authority("theirs", lab.cluster.now(), SignedDuration::from_hours(24)).certificate.to_pem();
    lab.ask("two", (INJECT, "true"), json!({"mine": "x"})).await;

    // The bundle cannot be written.
    let unwritable = lab.cluster.way(|method, path| {
        let is_it = *method != Method::GET && path.ends_with("/configmaps/signing-cabundle");
        is_it.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    });
    lab.client = unwritable.clone();
    lab.set_bundle(&theirs).await;
    let passed = lab.runner().once().await.unwrap();
    assert!(!passed.failed.is_empty());
    assert_eq!(lab.bundle().await.unwrap(), theirs);
    assert_eq!(lab.data("one").await, json!({KEY: ours}));
    assert_eq!(lab.data("two").await, json!({"mine": "x"}));

    // The CA is unknown.
    lab.client = lab.cluster.way(|_, path| {
        path.ends_with("/secrets/signing-key").then_some((StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    });
    lab.set_bundle(&ours).await;
    lab.runner().once().await.unwrap();
    assert_eq!(lab.data("two").await, json!({"mine": "x"}));

    lab.client = lab.cluster.client.clone();
    lab.once().await;
    assert_eq!(lab.data("two").await, json!({KEY: ours}));

    // The CA is there, and the one that it followed is not.
    let ask = json!({"metadata": {"annotations": {FORCE: "a test"}}});
    let secrets = lab.cluster.secrets(NAMESPACE);
    secrets.patch("signing-key", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    lab.once().await;
    let whole = lab.bundle().await.unwrap();
    let data = secrets.get("signing-key").await.unwrap().data.unwrap();
    let alone = String::from_utf8(data["tls.crt"].0.clone()).unwrap();
    assert!(whole.contains(&alone) && whole != alone);
    lab.client = unwritable;
    lab.set_bundle(&alone).await;
    lab.runner().once().await.unwrap();
    assert_eq!(lab.bundle().await.unwrap(), alone);
    assert_eq!(lab.data("two").await, json!({KEY: whole}));
}

#[tokio::test]
async fn a_writer_of_a_bundle_copy_does_not_manage_the_ca() {
    let lab = Lab::new(Cluster::embedded().await).await;
    lab.once().await;
    let copies = lab.cluster.config_maps("openshift-config-managed");
    let mut copy = copies.get("service-ca").await.unwrap();
    copies.delete("service-ca", &DeleteParams::default()).await.unwrap();
    (copy.metadata.resource_version, copy.metadata.uid, copy.metadata.managed_fields) = (None, None, None);
    let as_them = PostParams { field_manager: Some("service-ca-operator".to_owned()), ..PostParams::default() };
    copies.create(&as_them, &copy).await.unwrap();
    lab.ask("one", (INJECT, "true"), json!({})).await;
    lab.once().await;
    assert_eq!(lab.data("one").await, json!({KEY: lab.bundle().await.unwrap()}));
}

#[tokio::test]
async fn another_operator_injects_the_bundle_that_it_manages() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    let day = SignedDuration::from_hours(24);
    let ca = Minted::authority("theirs", lab.cluster.now() - day, day * 700);
    let as_them = PostParams { field_manager: Some("service-ca-operator".to_owned()), ..PostParams::default() };
    let secret = json!({"metadata": {"name": "signing-key"}, "type": "kubernetes.io/tls", "data": ca.data()});
    let secret = serde_json::from_value(secret).unwrap();
    lab.cluster.secrets(NAMESPACE).create(&as_them, &secret).await.unwrap();
    let bundle = ca.certificate.to_pem();
    let map = json!({"metadata": {"name": BUNDLE}, "data": {"ca-bundle.crt": bundle}});
    let map = serde_json::from_value(map).unwrap();
    lab.cluster.config_maps(NAMESPACE).create(&as_them, &map).await.unwrap();
    lab.ask("one", (INJECT, "true"), json!({"mine": "x"})).await;
    lab.once().await;
    assert_eq!(lab.data("one").await, json!({"mine": "x"}));
    // Nor by an operator that does not manage the component.
    lab.cluster.view.settings.taken_over.insert("service-ca".to_owned());
    lab.cluster.view.settings.left_alone.insert("service-ca".to_owned());
    lab.once().await;
    assert_eq!(lab.data("one").await, json!({"mine": "x"}));
    lab.cluster.view.settings.left_alone.remove("service-ca");
    lab.once().await;
    assert_eq!(lab.data("one").await, json!({KEY: bundle}));
}

#[tokio::test]
async fn a_kind_that_cannot_be_watched_does_not_delay_the_others() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    let refuse = |method: &Method, path: &str| {
        let is_it = *method == Method::GET && path.ends_with("/apiservices");
        is_it.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    };
    lab.client = lab.cluster.way(refuse);
    lab.ask("one", (INJECT, "true"), json!({})).await;
    lab.once().await;
    assert_eq!(lab.data("one").await, json!({KEY: lab.bundle().await.unwrap()}));
    lab.start();
    reports_api_services(&lab).await;
    lab.end().await;
    lab.client = lab.cluster.client.clone();
    lab.start();
    soon("it is well", || async { condition(&lab.cluster, "service-ca", "Degraded").await.0 == "False" }).await;
    lab.end().await;
}

async fn reports_api_services(lab: &Lab) {
    soon("it is said", || async {
        let (status, message, _) = condition(&lab.cluster, "service-ca", "Degraded").await;
        status == "True" && message.contains("apiservices cannot be watched")
    })
    .await;
}

#[tokio::test]
async fn a_kind_that_can_be_listed_but_not_watched_is_reported() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    lab.client = lab.cluster.way_of(|client, request| async move {
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=true");
        match is_watch && request.uri().path().ends_with("/apiservices") {
            true => Ok(answer(StatusCode::FORBIDDEN, "Forbidden")),
            false => client.send(request).await,
        }
    });
    lab.once().await;
    lab.start();
    reports_api_services(&lab).await;
    lab.end().await;
}

#[tokio::test]
async fn an_annotation_does_not_change_a_bundle_of_the_cluster() {
    let lab = Lab::new(Cluster::embedded().await).await;
    lab.once().await;
    let ours = lab.bundle().await.unwrap();
    let (kept, copy) = (lab.cluster.config_maps(KAS), lab.cluster.config_maps("openshift-config-managed"));
    let theirs = json!({"metadata": annotated("client-ca"), "data": {"ca-bundle.crt": "theirs"}});
    lab.cluster.create::<ConfigMap>(Some(KAS), theirs).await;
    let ask = json!({"metadata": annotated("service-ca")});
    copy.patch("service-ca", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    lab.once().await;
    let data = async |api: &Api<ConfigMap>, name: &str| api.get(name).await.unwrap().data.unwrap();
    assert_eq!(data(&kept, "client-ca").await, [("ca-bundle.crt".to_owned(), "theirs".to_owned())].into());
    assert_eq!(data(&copy, "service-ca").await, [("ca-bundle.crt".to_owned(), ours)].into());
    for (namespace, name) in [(KAS, "client-ca"), ("openshift-config-managed", "service-ca")] {
        assert_eq!(lab.complaints(namespace, name).await.len(), 1, "{name}");
    }
}

#[tokio::test]
async fn repeated_changes_of_another_writer_are_corrected_less_often() {
    let mut lab = Lab::new(Cluster::embedded().await).await;
    lab.ask("one", (INJECT, "true"), json!({})).await;
    lab.once().await;
    let ours = json!({KEY: lab.bundle().await.unwrap()});
    let api = lab.cluster.config_maps(SHOP);
    let theirs = json!({"data": {KEY: "theirs", "mine": "x"}});
    lab.start();
    // As fast as it is corrected.
    let mut answered = 0;
    while lab.complaints(SHOP, "one").await.is_empty() {
        assert!(answered < 20, "it goes on and on");
        api.patch("one", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
        lab.map_becomes("one", ours.clone()).await;
        answered += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // It gets the bundle in the end, later each time, with one event.
    let mut waited = Duration::ZERO;
    for _ in 0..2 {
        let start = Instant::now();
        api.patch("one", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
        lab.map_becomes("one", ours.clone()).await;
        waited = start.elapsed();
    }
    assert!(Duration::from_millis(500) < waited, "{waited:?}");
    lab.end().await;
    let complaints = lab.complaints(SHOP, "one").await;
    assert!(matches!(&complaints[..], [why] if why.starts_with("another client keeps overwriting")), "{complaints:?}");
}
