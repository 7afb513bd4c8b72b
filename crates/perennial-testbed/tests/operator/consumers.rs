//! The pods that use the service CA: on both servers, with real TLS, and on a real server with disruption budgets.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod as KubePod, Secret, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use kube_client::client::Body;
use kube_client::{Api, Client};
use perennial_core::consumers::{Consumer, Pod, Restart, Served, consumers};
use perennial_core::injection::{INJECT, LEGACY_NAME};
use perennial_core::policy::Usage;
use perennial_operator::consumers::restart::{EvictionTiming, Outcome, restart};
use perennial_operator::consumers::{Found, find, probe};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;
use tokio::task::AbortHandle;
use tokio_rustls::TlsAcceptor;
use tower::service_fn;

use crate::cluster::{Cluster, soon};
use crate::mint::Minted;
use crate::rights;

const SHOP: &str = "shop";
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A cluster with a serving certificate, a bundle and some pods.
struct Lab {
    cluster: Cluster,
    authority: Minted,
    /// The certificate in the Secret.
    current: Minted,
    /// The time of creation of all objects, by the server's clock.
    made_at: Timestamp,
    /// The servers; they stop with the test.
    servers: Mutex<Vec<AbortHandle>>,
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.servers.lock().unwrap().iter().for_each(AbortHandle::abort);
    }
}

impl Lab {
    async fn new(cluster: Cluster) -> Lab {
        let from = cluster.now() - DAY;
        let authority = Minted::authority("service-ca", from, DAY * 700);
        let current = authority.issue(Usage::Serving, "web.shop.svc", from, DAY * 600);
        cluster.create::<Namespace>(None, json!({"metadata": {"name": SHOP}})).await;
        cluster.create::<ServiceAccount>(Some(SHOP), json!({"metadata": {"name": "default"}})).await;
        let annotations = json!({"service.beta.openshift.io/originating-service-name": "web"});
        let secret = json!({
            "metadata": {"name": "web-tls", "annotations": annotations},
            "type": "kubernetes.io/tls", "data": current.data(),
        });
        let made: Secret = cluster.create(Some(SHOP), secret.clone()).await;
        let mut theirs = secret;
        theirs["metadata"] = json!({"name": "not-ours"});
        cluster.create::<Secret>(Some(SHOP), theirs).await;
        for (name, annotation) in [("trust", INJECT), (LEGACY_NAME, INJECT), ("other", "example.com/other")] {
            let map = json!({"metadata": {"name": name, "annotations": {annotation: "true"}}, "data": {"a": "b"}});
            cluster.create::<ConfigMap>(Some(SHOP), map).await;
        }
        let made_at = made.metadata.creation_timestamp.unwrap().0;
        Lab { cluster, authority, current, made_at, servers: Mutex::default() }
    }

    fn hours_later(&self, hours: i64) -> Timestamp {
        self.made_at + SignedDuration::from_hours(hours)
    }

    /// A pod of a controller that runs since then.
    async fn pod(&self, name: &str, began: Timestamp, volumes: Value, container: Value) -> KubePod {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "0c5d9c1e-rs", "controller": true,
        });
        self.pod_with(json!({"name": name, "ownerReferences": [owner]}), began, volumes, container).await
    }

    async fn pod_with(&self, metadata: Value, began: Timestamp, volumes: Value, container: Value) -> KubePod {
        let mut main = json!({"name": "main", "image": "registry.example.com/web:1"});
        main.as_object_mut().unwrap().extend(container.as_object().unwrap().clone());
        let spec = json!({"automountServiceAccountToken": false, "containers": [main], "volumes": volumes});
        let name = metadata["name"].as_str().unwrap().to_owned();
        let made = self.cluster.create(Some(SHOP), json!({"metadata": metadata, "spec": spec})).await;
        let status = json!({"status": {
            "phase": "Running", "startTime": began, "podIP": "127.0.0.1", "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "main", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": began}},
            }],
        }});
        self.pods().patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
        made
    }

    fn pods(&self) -> Api<KubePod> {
        Api::namespaced(self.cluster.client.clone(), SHOP)
    }

    /// A pod with the serving certificate, which listens on these ports.
    async fn server(&self, name: &str, ports: &[u16]) {
        let ports: Vec<Value> = ports.iter().map(|it| json!({"containerPort": it})).collect();
        let container = json!({"ports": ports, "volumeMounts": [{"name": "tls", "mountPath": "/tls"}]});
        self.pod(name, self.hours_later(-1), tls_volume(), container).await;
    }

    /// Serves this certificate until the test ends, and returns the address.
    async fn serve(&self, minted: &Minted, version: &'static SupportedProtocolVersion, wants_certificate: bool) -> u16 {
        let key = PrivateKeyDer::from_pem_slice(minted.key.to_pem().unwrap().as_bytes()).unwrap();
        let chain = vec![CertificateDer::from(minted.certificate.der().to_vec())];
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone()).with_protocol_versions(&[version]).unwrap();
        let builder = if wants_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(CertificateDer::from(self.authority.certificate.der().to_vec())).unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
            builder.with_client_cert_verifier(verifier)
        } else {
            builder.with_no_client_auth()
        };
        let acceptor = TlsAcceptor::from(Arc::new(builder.with_single_cert(chain, key).unwrap()));
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                drop(acceptor.accept(socket).await);
            }
        });
        self.servers.lock().unwrap().push(task.abort_handle());
        port
    }

    /// Answers every client with the same bytes, or with nothing.
    async fn answer(&self, bytes: &'static [u8]) -> u16 {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let task = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((mut socket, _)) = listener.accept().await {
                socket.write_all(bytes).await.unwrap();
                kept.push(socket);
            }
        });
        self.servers.lock().unwrap().push(task.abort_handle());
        port
    }
}

fn tls_volume() -> Value {
    json!([{"name": "tls", "secret": {"secretName": "web-tls"}}])
}

fn mounts(name: &str) -> Value {
    json!({"volumeMounts": [{"name": name, "mountPath": "/it"}]})
}

/// One line for each use of an object by a pod.
fn text(all: &[Consumer<'_>]) -> Vec<String> {
    let mut lines = Vec::new();
    for it in all {
        for held in &it.held {
            let ways: Vec<String> = held.ways.iter().map(ToString::to_string).collect();
            let (pod, kind, name) = (&it.pod.object.name, held.source.kind, &held.source.object.name);
            lines.push(format!("{pod} {kind}/{name} {} {}", ways.join("+"), held.old));
        }
    }
    lines
}

/// Binds the documented roles to an account.
fn documented(names: &[&str]) -> Vec<Value> {
    let page = include_str!("../../../../docs/reference/consumers.md");
    let yaml = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let mut objects = Vec::new();
    for document in serde_norway::Deserializer::from_str(yaml) {
        let role = Value::deserialize(document).unwrap();
        let name = role["metadata"]["name"].as_str().unwrap().to_owned();
        if names.contains(&name.as_str()) {
            objects.push(role);
            objects.push(json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
                "subjects": [{"kind": "ServiceAccount", "name": "looks", "namespace": "default"}],
            }));
        }
    }
    assert_eq!(objects.len(), names.len() * 2, "the page names them");
    objects
}

async fn listed(lab: &Lab, client: &Client) {
    let (before, after) = (lab.hours_later(-1), lab.hours_later(1));
    lab.pod("a-before", before, tls_volume(), mounts("tls")).await;
    lab.pod("b-after", after, tls_volume(), mounts("tls")).await;
    let sub_path = json!({"volumeMounts": [{"name": "trust", "mountPath": "/ca.crt", "subPath": "service-ca.crt"}]});
    let trust = json!([{"name": "trust", "configMap": {"name": "trust"}}]);
    lab.pod("c-sub-path", before, trust.clone(), sub_path).await;
    let reference = json!({"secretKeyRef": {"name": "web-tls", "key": "tls.crt"}});
    lab.pod("d-env", before, json!([]), json!({"env": [{"name": "CERT", "valueFrom": reference}]})).await;
    let token = json!([{"name": "kube-api-access-x", "projected": {"sources": [
        {"configMap": {"name": LEGACY_NAME}}, {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]}}]);
    lab.pod("e-token", before, token, mounts("kube-api-access-x")).await;
    let others = json!([{"name": "x", "projected": {"sources": [
        {"secret": {"name": "not-ours"}}, {"configMap": {"name": "other"}},
    ]}}]);
    lab.pod("f-nothing", before, others, mounts("x")).await;
    lab.pod("g-idle", before, trust, json!({})).await;
    let found = find(client, None).await.unwrap();
    let all = consumers(&found.pods, &found.sources, &BTreeMap::new());
    let expected = [
        "a-before Secret/web-tls volume perhaps",
        "b-after Secret/web-tls volume no",
        "c-sub-path ConfigMap/trust subPath yes",
        "d-env Secret/web-tls environment yes",
        "e-token ConfigMap/openshift-service-ca.crt token volume perhaps",
    ];
    assert_eq!(text(&all), expected);
    assert_eq!(text(&consumers(&find(client, Some("default")).await.unwrap().pods, &[], &BTreeMap::new())), [""; 0]);
    // A new label is no change of the content; new data is.
    let api = lab.cluster.secrets(SHOP);
    let other = PatchParams { field_manager: Some("somebody".to_owned()), ..PatchParams::default() };
    tokio::time::sleep(Duration::from_millis(1100)).await;
    lab.cluster.set_now(lab.cluster.now() + DAY);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    api.patch("web-tls", &other, &Patch::Merge(&label)).await.unwrap();
    let changed = |found: &Found| found.sources.iter().find(|it| it.object.name == "web-tls").unwrap().changed_at;
    assert_eq!(changed(&find(client, Some(SHOP)).await.unwrap()), lab.made_at);
    let renewed = lab.authority.issue(Usage::Serving, "web.shop.svc", lab.cluster.now(), DAY);
    let data = json!({"data": renewed.data()});
    api.patch("web-tls", &other, &Patch::Merge(&data)).await.unwrap();
    assert!(changed(&find(client, Some(SHOP)).await.unwrap()) > lab.made_at);
}

#[tokio::test]
async fn pods_that_may_use_earlier_content_are_listed() {
    let lab = Lab::new(Cluster::embedded().await).await;
    listed(&lab, &lab.cluster.client.clone()).await;
}

#[tokio::test]
async fn pods_that_may_use_earlier_content_are_listed_on_a_real_server() {
    let lab = Lab::new(Cluster::real().await).await;
    let roles = documented(&["perennial-consumers"]);
    lab.cluster.apply(&roles).await;
    let (client, asked) = rights::recorded(lab.cluster.client_as_account("default", "looks").await);
    listed(&lab, &client).await;
    assert_eq!(rights::kinds(&asked.lock().unwrap()), rights::kinds(&rights::granted(&roles)), "asked, and granted");
}

/// A cluster with more objects than a page.
#[tokio::test]
async fn all_pages_of_a_list_are_read() {
    let lab = Lab::new(Cluster::embedded().await).await;
    for number in 0..501 {
        let metadata = json!({"name": format!("map-{number:03}"), "annotations": {INJECT: "true"}});
        lab.cluster.create::<ConfigMap>(Some(SHOP), json!({"metadata": metadata})).await;
        let volume = json!({"name": "it", "configMap": {"name": format!("map-{number:03}")}});
        let container = json!({"name": "main", "image": "i", "volumeMounts": [{"name": "it", "mountPath": "/it"}]});
        let spec = json!({"containers": [container], "volumes": [volume]});
        let pod = json!({"metadata": {"name": format!("pod-{number:03}")}, "spec": spec});
        lab.cluster.create::<KubePod>(Some(SHOP), pod).await;
    }
    let found = find(&lab.cluster.client, None).await.unwrap();
    assert_eq!((found.sources.len(), found.pods.len()), (504, 501));
}

async fn probed(lab: &Lab, client: &Client) -> BTreeMap<String, Served> {
    let found = find(client, None).await.unwrap();
    let all = consumers(&found.pods, &found.sources, &BTreeMap::new());
    let served = probe::probe(client, &all, &found.endpoints, &lab.cluster.clock()).await;
    served.into_iter().map(|((pod, secret), served)| (format!("{} {secret}", pod.name), served)).collect()
}

#[tokio::test]
async fn the_certificate_that_a_pod_serves_is_checked() {
    let lab = Lab::new(Cluster::embedded().await).await;
    let from = lab.cluster.now() - DAY * 2;
    let old = lab.authority.issue(Usage::Serving, "web.shop.svc", lab.cluster.now() - DAY, DAY * 300);
    let ended = Minted::authority("before", from, DAY * 9).issue(Usage::Serving, "web.shop.svc", from, DAY);
    let other = lab.authority.issue(Usage::Serving, "metrics.shop.svc", lab.cluster.now() - DAY, DAY);
    let [current_13, current_12] =
        [lab.serve(&lab.current, &TLS13, false).await, lab.serve(&lab.current, &TLS12, false).await];
    let [mutual_13, mutual_12] =
        [lab.serve(&lab.current, &TLS13, true).await, lab.serve(&lab.current, &TLS12, true).await];
    let [old_port, ended_port] = [lab.serve(&old, &TLS13, false).await, lab.serve(&ended, &TLS12, false).await];
    let other_port = lab.serve(&other, &TLS13, false).await;
    let plain = lab.answer(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
    let silent = lab.answer(b"").await;
    let closed = {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        listener.local_addr().unwrap().port()
    };
    lab.server("current-12", &[current_12]).await;
    lab.server("current-13", &[other_port, current_13]).await;
    lab.server("mutual-12", &[mutual_12]).await;
    lab.server("mutual-13", &[mutual_13]).await;
    lab.server("old", &[old_port, current_13]).await;
    lab.server("ended", &[ended_port]).await;
    lab.server("other", &[other_port, closed]).await;
    lab.server("plain", &[plain]).await;
    lab.server("silent", &[silent]).await;
    lab.server("closed", &[closed]).await;
    lab.server("none", &[]).await;
    // A pod without a serving certificate is not probed.
    let trust = json!([{"name": "trust", "configMap": {"name": "trust"}}]);
    lab.pod("client", lab.hours_later(-1), trust, mounts("trust")).await;

    let found = probed(&lab, &lab.cluster.client).await;
    let until = |minted: &Minted| Served::Old { until: minted.certificate.facts().validity.not_after };
    for name in ["current-12", "current-13", "mutual-12", "mutual-13"] {
        assert_eq!(found[&format!("{name} web-tls")], Served::Current, "{name}");
    }
    assert_eq!(found["old web-tls"], until(&old));
    assert_eq!(found["ended web-tls"], until(&ended));
    assert_eq!(found["other web-tls"], Served::Other);
    for (name, expected) in [
        ("plain", format!("port {plain}: no TLS")),
        ("silent", format!("port {silent}: no answer within 2 seconds")),
        ("closed", format!("port {closed}: Connection refused")),
        ("none", "declares no port".to_owned()),
    ] {
        let served = &found[&format!("{name} web-tls")];
        let Served::Nothing { why } = served else { panic!("{name}: {served:?}") };
        assert!(why.contains(&expected), "{name}: {why}");
    }
    assert_eq!(found.len(), 11);

    // An unreadable Secret is reported without its content.
    let key = lab.current.key.to_pem().unwrap();
    let broken = json!({"stringData": {"tls.crt": *key, "tls.key": *key}});
    let api = lab.cluster.secrets(SHOP);
    api.patch("web-tls", &PatchParams::default(), &Patch::Merge(&broken)).await.unwrap();
    let found = probed(&lab, &lab.cluster.client).await;
    let Served::Nothing { why } = &found["current-13 web-tls"] else { panic!("{found:?}") };
    assert_eq!(why, "Secret shop/web-tls: tls.crt has no readable certificate");
}

#[tokio::test]
async fn probe_needs_only_the_right_to_read_secrets() {
    let lab = Lab::new(Cluster::real().await).await;
    let listing = documented(&["perennial-consumers"]);
    lab.cluster.apply(&listing).await;
    let port = lab.serve(&lab.current, &TLS13, false).await;
    lab.server("web", &[port]).await;
    let (client, asked) = rights::recorded(lab.cluster.client_as_account("default", "looks").await);
    let Served::Nothing { why } = &probed(&lab, &client).await["web web-tls"] else { panic!("it may not") };
    assert!(why.contains("Secret shop/web-tls: ") && why.contains("forbidden"), "{why}");
    let more = documented(&["perennial-consumers-probe"]);
    lab.cluster.apply(&more).await;
    soon("it may", || async { probed(&lab, &client).await["web web-tls"] == Served::Current }).await;
    let granted = rights::granted(&[listing, more].concat());
    assert_eq!(rights::kinds(&asked.lock().unwrap()), rights::kinds(&granted), "asked, and granted");
}

/// The results for pods, in order.
type Told = Arc<Mutex<Vec<String>>>;

fn note(told: &Told) -> impl FnMut(&Pod, &Outcome) + use<> {
    let told = told.clone();
    move |pod, outcome| {
        let text = match outcome {
            Outcome::Evicted => "evicted".to_owned(),
            Outcome::Gone => "gone".to_owned(),
            Outcome::Waits(why) => format!("waits: {why}"),
            Outcome::Stays(why) => format!("stays: {why}"),
        };
        told.lock().unwrap().push(format!("{} {text}", pod.object.name));
    }
}

/// The pods to evict.
fn chosen(found: &Found) -> Vec<Pod> {
    let all = consumers(&found.pods, &found.sources, &BTreeMap::new());
    let evict = all.into_iter().filter(|it| it.restart(false) == Restart::Evict);
    evict.map(|it| it.pod.clone()).collect()
}

async fn allow(lab: &Lab, disruptions: i32) {
    let api = Api::<PodDisruptionBudget>::namespaced(lab.cluster.client.clone(), SHOP);
    let status = json!({"status": {
        "disruptionsAllowed": disruptions, "currentHealthy": 9, "desiredHealthy": 1, "expectedPods": 9, "observedGeneration": 1,
    }});
    api.patch_status("web", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

#[tokio::test]
async fn pods_are_evicted_one_at_a_time_within_their_budgets() {
    let lab = Lab::new(Cluster::real().await).await;
    let roles = documented(&["perennial-consumers", "perennial-consumers-restart"]);
    lab.cluster.apply(&roles).await;
    let account = lab.cluster.client_asking_once_as_account("default", "looks").await;
    let (client, asked) = rights::recorded(account);
    let before = lab.hours_later(-1);
    for name in ["web-1", "web-2"] {
        lab.pod(name, before, tls_volume(), mounts("tls")).await;
    }
    lab.pod("web-fresh", lab.hours_later(1), tls_volume(), mounts("tls")).await;
    lab.pod_with(json!({"name": "bare"}), before, tls_volume(), mounts("tls")).await;
    let node = json!({"apiVersion": "v1", "kind": "Node", "name": "m0", "uid": "0c5d9c1e-m0", "controller": true});
    let mirror = json!({"name": "mirror", "ownerReferences": [node]});
    lab.pod_with(mirror, before, tls_volume(), mounts("tls")).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {}}});
    lab.cluster.create::<PodDisruptionBudget>(Some(SHOP), budget).await;
    allow(&lab, 0).await;

    let pods = chosen(&find(&client, None).await.unwrap());
    assert_eq!(pods.iter().map(|it| it.object.name.as_str()).collect::<Vec<_>>(), ["web-1", "web-2"]);
    // Without progress the restart stops, with the reason.
    let (told, pause) = (Told::default(), Duration::from_millis(50));
    let soon_enough = EvictionTiming { pause, give_up_after: Duration::from_millis(300) };
    restart(&client, &pods.iter().collect::<Vec<_>>(), soon_enough, note(&told)).await;
    let said = told.lock().unwrap().clone();
    let [first, second, third, fourth] = said.as_slice() else { panic!("{said:?}") };
    assert!(
        first.starts_with("web-1 waits: Cannot evict pod as it would violate the pod's disruption budget."),
        "{first}"
    );
    assert!(first.contains("The disruption budget web "), "{first}");
    assert_eq!(second, "web-2 waits: other pods of ReplicaSet/web are evicted first");
    assert_eq!(third, &first.replace("waits", "stays"));
    assert_eq!(fourth, &second.replace("waits", "stays"));
    assert!(lab.pods().get_opt("web-1").await.unwrap().is_some());

    // The budget allows it meanwhile.
    let told = Told::default();
    let running = tokio::spawn({
        let (client, pods, told) = (client.clone(), pods.clone(), told.clone());
        async move {
            let timing = EvictionTiming { pause, give_up_after: Duration::from_secs(60) };
            restart(&client, &pods.iter().collect::<Vec<_>>(), timing, note(&told)).await;
        }
    });
    let has_said = |text: &'static str| {
        let told = &told;
        soon(text, move || async move { told.lock().unwrap().iter().any(|it| it.contains(text)) })
    };
    has_said("web-1 waits: Cannot evict").await;
    allow(&lab, 5).await;
    has_said("web-1 evicted").await;
    // The next pod waits until another one is ready, even if the budget allows more.
    tokio::time::sleep(pause * 10).await;
    assert!(lab.pods().get_opt("web-2").await.unwrap().is_some());
    lab.pod("web-3", lab.hours_later(1), tls_volume(), mounts("tls")).await;
    has_said("web-2 evicted").await;
    running.await.unwrap();
    let left = find(&client, None).await.unwrap();
    assert!(chosen(&left).is_empty());
    let names: Vec<&str> = left.pods.iter().map(|it| it.object.name.as_str()).collect();
    assert_eq!(names, ["bare", "mirror", "web-3", "web-fresh"], "no other pod is evicted");
    assert_eq!(rights::kinds(&asked.lock().unwrap()), rights::kinds(&rights::granted(&roles)), "asked, and granted");
}

#[tokio::test]
async fn a_pod_that_has_restarted_in_the_meantime_is_not_evicted() {
    let lab = Lab::new(Cluster::real().await).await;
    let before = lab.hours_later(-1);
    lab.pod("web-0", before, tls_volume(), mounts("tls")).await;
    let pods = chosen(&find(&lab.cluster.client, None).await.unwrap());
    let list = Request::get(format!("/api/v1/namespaces/{SHOP}/pods")).body(Vec::new()).unwrap();
    let list = lab.cluster.client.request_text(list).await.unwrap();
    lab.pods().delete("web-0", &DeleteParams::default().grace_period(0)).await.unwrap();
    let another = lab.pod("web-0", lab.hours_later(1), tls_volume(), mounts("tls")).await;
    // Once the pod is found to be another one, and once only when the eviction is checked.
    let client = lab.cluster.client.clone();
    let behind = Client::new(
        service_fn(move |request: Request<Body>| {
            let (client, list) = (client.clone(), list.clone());
            async move {
                if *request.method() != Method::GET {
                    return client.send(request).await;
                }
                let answer = Response::builder().header("content-type", "application/json");
                Ok(answer.body(Body::from(list.into_bytes())).unwrap())
            }
        }),
        "default",
    );
    let timing = EvictionTiming { pause: Duration::from_millis(50), give_up_after: Duration::from_secs(5) };
    for client in [behind, lab.cluster.client.clone()] {
        let told = Told::default();
        restart(&client, &pods.iter().collect::<Vec<_>>(), timing, note(&told)).await;
        assert_eq!(*told.lock().unwrap(), ["web-0 gone"]);
        assert_eq!(lab.pods().get("web-0").await.unwrap().metadata.uid, another.metadata.uid);
    }
}
