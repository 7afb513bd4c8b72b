//! The participants: the servers behind the API server, and all its callers, each with the files of the catalog.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube_client::Api;
use kube_client::api::{Patch, PatchParams};
use serde_json::json;

use crate::callers::{Caller, Identity, Question};
use crate::cluster::Cluster;
use crate::mint::{self, Requested};
use crate::objects::{Key, Objects, When, now};
use crate::servers::{Server, Serves, group};
use crate::static_pods::{KAS, KCM, persist};
use crate::world::World;

const KASO: &str = "openshift-kube-apiserver-operator";
const MANAGED: &str = "openshift-config-managed";
const EXTERNAL: &str = "api.shop.example.com";
const INTERNAL: &str = "api-int.shop.example.com";
const PROMETHEUS: &str = "system:serviceaccount:openshift-monitoring:prometheus-k8s";
/// The API server requests it from the kubelet.
const LOG: &str = "/api/v1/namespaces/openshift-kube-apiserver/pods/kube-apiserver-m0/log";
const FRONT_PROXY: &[&str] = &["system:openshift-aggregator"];

/// The servers and their addresses.
pub(crate) struct Servers {
    pub(crate) all: Vec<Arc<Server>>,
    ports: BTreeMap<&'static str, u16>,
}

/// Starts the servers and registers them in the API server.
pub(crate) async fn start_servers(world: &Arc<World>, cluster: &Cluster) -> Servers {
    // Where extension API servers look for what the kube-apiserver was told to accept front proxies by, which it puts there
    // itself; and what the catalog says they and the controller manager read.
    let published = Key::map("kube-system", "extension-apiserver-authentication");
    let aggregated = [
        ("extension", published.clone(), When::AtOnce),
        ("late-extension", Key::map(KAS, "aggregator-client-ca"), When::Late),
        ("late-manager", Key::map(KCM, "aggregator-client-ca"), When::Late),
    ];
    while !world.objects.is_there(&published) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let mut servers = Servers { all: Vec::new(), ports: BTreeMap::new() };
    for (name, trust, when) in aggregated {
        let [authority, leaf] = mint::server(&format!("{name}.default.svc"));
        let server = Server::new(name, Serves::Fixed(leaf.into()), (trust, when), FRONT_PROXY);
        let port = servers.start(server, world).await;
        register(cluster, name, &authority.certificate, port).await;
    }
    let kubelet = Serves::Requested(Box::new(Requested::server("127.0.0.1")));
    let trust = (Key::map(MANAGED, "kube-apiserver-client-ca"), When::Late);
    let kubelet = Server::new("kubelet", kubelet, trust, &["system:kube-apiserver", PROMETHEUS]);
    let port = servers.start(kubelet, world).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    let nodes = Api::<Node>::all(cluster.client.clone());
    nodes.patch_status("m0", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let [authority, leaf] = mint::server("kube-controller-manager");
    let bundle = [("ca-bundle.crt".to_owned(), authority.certificate.into_bytes())];
    world.objects.note(Key::started("", "kube-controller-manager"), bundle.into(), now());
    let trust = (Key::map(KCM, "client-ca"), When::Late);
    let manager = Server::new("kube-controller-manager", Serves::Fixed(leaf.into()), trust, &[PROMETHEUS]);
    servers.start(manager, world).await;
    servers
}

impl Servers {
    async fn start(&mut self, server: Server, world: &Arc<World>) -> u16 {
        let server = Arc::new(server);
        let port = server.start(world).await;
        self.ports.insert(server.name, port);
        self.all.push(server);
        port
    }
}

/// Registers an aggregated API, and waits until it is available. A Service on loopback has an external name.
async fn register(cluster: &Cluster, name: &str, authority: &str, port: u16) {
    let service = json!({
        "metadata": {"name": name},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    });
    cluster.create::<Service>(Some("default"), service).await;
    let id = format!("v1.{}", group(name));
    let api = json!({
        "metadata": {"name": id},
        "spec": {
            "group": group(name),
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "caBundle": STANDARD.encode(authority),
            "service": {"namespace": "default", "name": name, "port": port},
        },
    });
    cluster.create::<APIService>(None, api).await;
    let apis = Api::<APIService>::all(cluster.client.clone());
    for _ in 0..300 {
        let found = persist("APIService", || apis.get(&id)).await;
        let mut conditions = found.status.iter().flat_map(|status| &status.conditions).flatten();
        if conditions.any(|it| it.type_ == "Available" && it.status == "True") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{id} is not available");
}

/// All callers.
pub(crate) fn callers(servers: &Servers, objects: &Objects, late: When) -> Vec<Caller> {
    let mut callers = Vec::new();
    let started = || (Key::started(KAS, "kube-apiserver-server-ca"), When::AtOnce);
    let node = |when| (Key::map(MANAGED, "kube-apiserver-server-ca"), when);
    let get = |path: &str, answer| Question::Get { path: path.to_owned(), answer };
    for when in [When::AtOnce, late] {
        let held = |key: Key| Identity::Held(key, when);
        let named = |name: &str| format!("{name} {when:?}");
        let new = |name: &str, server_name, trust, identity| Caller::new(named(name), server_name, trust, identity);
        let manager = held(Key::secret(KCM, "kube-controller-manager-client-cert-key"));
        callers.push(new("controller manager", "localhost", started(), manager).is("system:kube-controller-manager"));
        let scheduler = held(Key::secret("openshift-kube-scheduler", "kube-scheduler-client-cert-key"));
        callers.push(new("scheduler", "localhost-recovery", started(), scheduler).is("system:kube-scheduler"));
        let node_admin = || held(Key::secret(KAS, "control-plane-node-admin-client-cert-key"));
        let user = "system:control-plane-node-admin";
        callers.push(new("control-plane node", "localhost", started(), node_admin()).is(user));
        let endpoints = held(Key::secret(KAS, "check-endpoints-client-cert-key"));
        let user = "system:serviceaccount:openshift-kube-apiserver:check-endpoints";
        callers.push(new("check-endpoints", INTERNAL, node(when), endpoints).is(user));
        let admin = || held(Key::secret(KASO, "node-system-admin-client"));
        callers.push(new("administrator on a node", INTERNAL, node(when), admin()).is("system:admin"));
        let proxy = held(Key::secret(KAS, "aggregator-client"));
        let question = Question::WhoAmI { user: "alice".to_owned(), on_behalf: true };
        callers.push(new("front proxy", "localhost", started(), proxy).asks(question));
        let trust = (Key::started(KCM, "serviceaccount-ca"), when);
        callers.push(new("pod", "kubernetes.default.svc", trust, Identity::Nobody));
        let prometheus = Identity::Requested(Arc::new(Requested::client(PROMETHEUS, "system:serviceaccounts")));
        let trust = (Key::map(MANAGED, "kubelet-serving-ca"), when);
        let monitoring = new("monitoring of the kubelet", "127.0.0.1", trust, prometheus);
        callers.push(Caller { port: Some(servers.ports["kubelet"]), ..monitoring.asks(get("/metrics", "ok")) });
        callers.push(new("administrator on a node", INTERNAL, node(when), admin()).is("system:admin").with_kubectl());
        callers.push(new("asking a kubelet", "localhost", started(), node_admin()).asks(get(LOG, "ok")));
    }
    let node_admin = || Identity::Held(Key::secret(KAS, "control-plane-node-admin-client-cert-key"), When::AtOnce);
    for name in ["extension", "late-extension", "late-manager"] {
        let path = format!("/apis/{}/v1", group(name));
        let caller = Caller::new(format!("asking {name}"), "localhost", started(), node_admin());
        callers.push(caller.asks(get(&path, "APIResourceList")));
    }
    let path = format!("/apis/{}/v1", group("late-extension"));
    let aggregated = Caller::new("asking late-extension".to_owned(), "localhost", started(), node_admin());
    callers.push(aggregated.asks(get(&path, "APIResourceList")).with_kubectl());
    // Requested certificates: one is used until it expires, the others are renewed.
    for (name, requested) in [
        ("a kubelet", Requested::client("system:node:m0", "system:nodes").until_its_end()),
        ("a kubelet that is often new", Requested::client("system:node:m0", "system:nodes")),
    ] {
        let identity = Identity::Requested(Arc::new(requested));
        callers.push(Caller::new(name.to_owned(), INTERNAL, node(late), identity).is("system:node:m0"));
    }
    let prometheus = Requested::client(PROMETHEUS, "system:serviceaccounts").until_its_end();
    let trust = (Key::started("", "kube-controller-manager"), When::Never);
    let name = "monitoring of the controller manager".to_owned();
    let monitoring = Caller::new(name, "kube-controller-manager", trust, Identity::Requested(Arc::new(prometheus)));
    let port = Some(servers.ports["kube-controller-manager"]);
    callers.push(Caller { port, ..monitoring.asks(get("/metrics", "ok")) });
    // Files of the installation, which are never updated. They have one signer of the load balancer, as long as it
    // is valid: ten years for a real one.
    let first = || (Key::map(KAS, "kube-apiserver-server-ca"), When::Never);
    let until = Some(end_of(objects, &Key::secret(KASO, "loadbalancer-serving-signer")));
    let admin = || Identity::Fixed(mint::installation().admin());
    let bootstrap = Identity::Fixed(mint::installation().bootstrap());
    let user = "system:serviceaccount:openshift-machine-config-operator:node-bootstrapper";
    let frozen = [
        Caller::new("the kubeconfig of the installation".to_owned(), EXTERNAL, first(), admin()).is("system:admin"),
        Caller::new("the kubeconfig of the installation".to_owned(), EXTERNAL, first(), admin())
            .asks(get(LOG, "ok"))
            .with_kubectl(),
        Caller::new("a new node".to_owned(), INTERNAL, first(), bootstrap).is(user),
    ];
    callers.extend(frozen.into_iter().map(|caller| Caller { until, ..caller }));
    // A client that does not follow the catalog is rejected, or the test proves nothing.
    let trust = (Key::started(KCM, "serviceaccount-ca"), When::Never);
    let pod = Caller::new("a pod that never reads again".to_owned(), "kubernetes.default.svc", trust, Identity::Nobody);
    callers.push(Caller { is_refused: true, ..pod });
    callers
}

fn end_of(objects: &Objects, key: &Key) -> Timestamp {
    let chain = objects.newest(key)["tls.crt"].clone();
    mint::read(&String::from_utf8(chain).unwrap()).facts().validity.not_after
}

/// Checks that every caller was active, and that late readers held an earlier version while a newer one existed.
pub(crate) fn check_counts(callers: &[Arc<Caller>], servers: &Servers) -> String {
    let mut text = String::new();
    for caller in callers {
        let [answered, with_old_trust, with_old_identity, refused] = caller.count.numbers();
        text +=
            &format!("{answered:5} ({with_old_trust} old trust, {with_old_identity} old identity) {}\n", caller.name);
        assert_eq!(refused > 0, caller.is_refused, "{} was refused {refused} times", caller.name);
        let least = if caller.is_kubectl { 20 } else { 50 };
        assert!(answered >= least, "{} was answered {answered} times", caller.name);
        if matches!(caller.trust.1, When::Late | When::Never) && !caller.trust.0.namespace.is_empty() {
            assert!(with_old_trust > 0, "{} never had an old bundle", caller.name);
        }
        if matches!(caller.identity, Identity::Held(_, When::Late)) {
            assert!(with_old_identity > 0, "{} never had an old certificate", caller.name);
        }
    }
    for server in &servers.all {
        let [answered, old] = [&server.answered, &server.with_old_trust].map(|it| it.load(Ordering::Relaxed));
        text += &format!("{answered:5} ({old} old trust) answered by {}\n", server.name);
        assert!(answered >= 50, "{} answered {answered} times", server.name);
        assert!(server.trust.1 != When::Late || old > 0, "{} never had an old bundle", server.name);
    }
    text
}
