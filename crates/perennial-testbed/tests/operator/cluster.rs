//! A cluster for the operator, and its clock.

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use http::{Method, Request, Response, StatusCode};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::api::{ListParams, Patch, PatchParams, PostParams};
use kube_client::client::Body;
use kube_client::{Api, Client};
use perennial_api::config::{Infrastructure, Network};
use perennial_api::operator::{KubeAPIServer, KubeControllerManager, ServiceCA};
use perennial_api::pki::{Pki, PkiSpec};
use perennial_apiserver::api::Api as Server;
use perennial_apiserver::environment::Environment;
use perennial_apiserver::http::router;
use perennial_apiserver::store::Store;
use perennial_core::catalog::{BundleHome, Catalog, Component, Home};
use perennial_core::plan::Planner;
use perennial_core::policy::Policy;
use perennial_operator::act::Actor;
use perennial_operator::observe::View;
use perennial_operator::pass::{Clock, Passed, Reconciler};
use perennial_operator::run::Runner;
use perennial_testbed::kubernetes::ControlPlane;
use perennial_x509::KeyPool;
use serde_json::{Value, json};
use tower::service_fn;

pub(crate) static PLANNER: LazyLock<Planner<'static>> = LazyLock::new(|| Planner::new(Catalog::builtin()));
pub(crate) static KEYS: LazyLock<Arc<KeyPool>> =
    LazyLock::new(|| Arc::new(KeyPool::eager(NonZeroUsize::new(2).unwrap()).unwrap()));

/// A cluster, its clock, and the operator's settings.
pub(crate) struct Cluster {
    pub(crate) client: Client,
    pub(crate) view: View,
    pub(crate) now: Arc<AtomicI64>,
    /// Ends with the test.
    pub(crate) real: Option<ControlPlane>,
}

impl Cluster {
    /// On the embedded server.
    pub(crate) async fn embedded() -> Cluster {
        let now = beginning();
        let (clock, count) = (now.clone(), AtomicUsize::new(1));
        let random = move || {
            let number = count.fetch_add(1, Ordering::Relaxed) as u64;
            [number.wrapping_mul(0x9e37_79b9_7f4a_7c15), number].map(u64::to_be_bytes).concat().try_into().unwrap()
        };
        let server = Arc::new(Server::new(Store::memory(), Environment::new(move || read(&clock), random)));
        tokio::spawn(server.clone().collect_forever());
        Cluster::prepared(Client::new(router(server), "default"), now, None).await
    }

    /// On a real kube-apiserver.
    pub(crate) async fn real() -> Cluster {
        let control_plane = ControlPlane::lease().await.unwrap();
        let client = control_plane.client().await.unwrap();
        Cluster::prepared(client, beginning(), Some(control_plane)).await
    }

    /// On a real kube-apiserver, beside which these controllers of a kube-controller-manager run.
    pub(crate) async fn real_with(controllers: &[&str]) -> Cluster {
        let mut control_plane = ControlPlane::lease().await.unwrap_or_else(|error| panic!("{error}"));
        control_plane.start_controllers(controllers).await.unwrap_or_else(|error| panic!("{error}"));
        let client = control_plane.client().await.unwrap();
        Cluster::prepared(client, beginning(), Some(control_plane)).await
    }

    /// With definitions, namespaces, addresses and a control-plane node, and ECDSA keys because they are quick.
    pub(crate) async fn prepared(client: Client, now: Arc<AtomicI64>, real: Option<ControlPlane>) -> Cluster {
        let cluster = Cluster { client, view: View::default(), now, real };
        for definition in perennial_api::crds() {
            cluster.create::<CustomResourceDefinition>(None, serde_json::to_value(definition).unwrap()).await;
        }
        for name in namespaces() {
            cluster.create::<Namespace>(None, json!({"metadata": {"name": name}})).await;
        }
        // A real server has it. Events about objects without a namespace are there.
        if Api::<Namespace>::all(cluster.client.clone()).get_opt("default").await.unwrap().is_none() {
            cluster.create::<Namespace>(None, json!({"metadata": {"name": "default"}})).await;
        }
        cluster.wait_for_definitions().await;
        cluster.create::<Infrastructure>(None, json!({"metadata": {"name": "cluster"}, "spec": {}})).await;
        cluster.set_addresses("https://api.shop.example.com:6443", "https://api-int.shop.example.com:6443").await;
        let network = json!({"metadata": {"name": "cluster"}, "spec": {"serviceNetwork": ["172.30.0.0/16"]}});
        cluster.create::<Network>(None, network).await;
        let labels = json!({"node-role.kubernetes.io/master": ""});
        cluster.create::<Node>(None, json!({"metadata": {"name": "m0", "labels": labels}})).await;
        let address = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.10"}]}});
        let nodes = Api::<Node>::all(cluster.client.clone());
        nodes.patch_status("m0", &PatchParams::default(), &Patch::Merge(&address)).await.unwrap();
        cluster.set_policy("ECDSA P256").await;
        cluster
    }

    /// A real server serves a definition shortly after its creation.
    async fn wait_for_definitions(&self) {
        let pkis = Api::<Pki>::all(self.client.clone());
        let networks = Api::<Network>::all(self.client.clone());
        let infrastructures = Api::<Infrastructure>::all(self.client.clone());
        let service_cas = Api::<ServiceCA>::all(self.client.clone());
        let all = ListParams::default();
        for _ in 0..300 {
            if pkis.list(&all).await.is_ok()
                && networks.list(&all).await.is_ok()
                && infrastructures.list(&all).await.is_ok()
                && service_cas.list(&all).await.is_ok()
            {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        }
        panic!("the definitions are not served");
    }

    pub(crate) async fn create<K>(&self, namespace: Option<&str>, object: Value) -> K
    where
        K: kube_client::Resource<DynamicType = ()> + Clone + std::fmt::Debug,
        K: serde::de::DeserializeOwned + serde::Serialize,
    {
        let mut object = object;
        object["apiVersion"] = json!(K::api_version(&()));
        object["kind"] = json!(K::kind(&()));
        let base = match namespace {
            Some(namespace) => K::url_path(&(), Some(namespace)),
            None => K::url_path(&(), None),
        };
        let request = http::Request::post(base).header("content-type", "application/json");
        self.client.request(request.body(serde_json::to_vec(&object).unwrap()).unwrap()).await.unwrap()
    }

    /// Makes an account and its rights.
    pub(crate) async fn apply(&self, objects: &[Value]) {
        for object in objects {
            let kind = object["kind"].as_str().unwrap();
            let base = match (kind, object["metadata"]["namespace"].as_str()) {
                ("ServiceAccount", Some(namespace)) => format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
                (_, Some(namespace)) => {
                    format!("/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/{}s", kind.to_lowercase())
                }
                (_, None) => format!("/apis/rbac.authorization.k8s.io/v1/{}s", kind.to_lowercase()),
            };
            let request = http::Request::post(base).header("content-type", "application/json");
            let body = request.body(serde_json::to_vec(object).unwrap()).unwrap();
            self.client.request::<Value>(body).await.unwrap();
        }
    }

    pub(crate) async fn set_addresses(&self, external: &str, internal: &str) {
        let status = json!({"status": {"apiServerURL": external, "apiServerInternalURI": internal}});
        let api = Api::<Infrastructure>::all(self.client.clone());
        api.patch_status("cluster", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    }

    /// The kind of key that new certificates get.
    pub(crate) async fn set_policy(&self, key: &str) {
        self.put_policy(&Policy { defaults: Some(key.parse().unwrap()), ..Policy::default() }).await;
    }

    /// Which keys new certificates get.
    pub(crate) async fn put_policy(&self, policy: &Policy) {
        let spec = PkiSpec::from(policy);
        let api = Api::<Pki>::all(self.client.clone());
        if let Some(mut found) = api.get_opt("cluster").await.unwrap() {
            found.spec = spec;
            api.replace("cluster", &PostParams::default(), &found).await.unwrap();
        } else {
            api.create(&PostParams::default(), &Pki::new("cluster", spec)).await.unwrap();
        }
    }

    pub(crate) fn now(&self) -> Timestamp {
        read(&self.now)
    }

    pub(crate) fn set_now(&self, now: Timestamp) {
        self.now.store(now.as_second(), Ordering::Relaxed);
    }

    /// Its clock, as it is read elsewhere.
    pub(crate) fn clock(&self) -> Clock {
        let now = self.now.clone();
        Arc::new(move || read(&now))
    }

    /// Who keeps it.
    pub(crate) fn reconciler(&self) -> Reconciler<'static> {
        self.reconciler_through(self.client.clone())
    }

    /// Who keeps it through another way to the same server.
    pub(crate) fn reconciler_through(&self, client: Client) -> Reconciler<'static> {
        Reconciler::new(&PLANNER, client, KEYS.clone(), self.view.clone(), self.clock())
    }

    /// Returns a client for the same server on which a function answers some requests, by method and path.
    pub(crate) fn way(
        &self,
        refuse: impl Fn(&Method, &str) -> Option<(StatusCode, &'static str)> + Send + Sync + 'static,
    ) -> Client {
        self.way_of(move |client, request| {
            let refused = refuse(request.method(), request.uri().path());
            async move {
                match refused {
                    Some((code, reason)) => Ok(answer(code, reason)),
                    None => client.send(request).await,
                }
            }
        })
    }

    /// A way to the same server on which this is done with each request.
    pub(crate) fn way_of<F>(&self, handle: impl Fn(Client, Request<Body>) -> F + Send + Sync + 'static) -> Client
    where
        F: Future<Output = kube_client::Result<Response<Body>>> + Send + 'static,
    {
        way_through(self.client.clone(), handle)
    }

    /// Returns the operator's configuration, with its event recorder.
    pub(crate) fn runner(&self) -> Runner<'static> {
        self.runner_through(self.client.clone())
    }

    /// The same through another way to the same server.
    pub(crate) fn runner_through(&self, client: Client) -> Runner<'static> {
        Runner::new(&PLANNER, client, KEYS.clone(), self.view.clone(), self.clock())
    }

    /// A client of a service account, on a real server.
    pub(crate) async fn client_as_account(&self, namespace: &str, name: &str) -> Client {
        self.real.as_ref().unwrap().client_as_account(namespace, name).await.unwrap()
    }

    /// Returns the same client without retries.
    pub(crate) async fn client_asking_once_as_account(&self, namespace: &str, name: &str) -> Client {
        self.real.as_ref().unwrap().client_asking_once_as_account(namespace, name).await.unwrap()
    }

    /// What the programs of a real cluster wrote last.
    pub(crate) fn last_words(&self) -> String {
        self.real.as_ref().map_or_else(|| "the server is embedded".to_owned(), ControlPlane::last_words)
    }

    /// Says that the node runs the API server and the controller manager at revision 1, of which nothing was kept.
    pub(crate) async fn run_static_pods(&self) {
        let status = json!({"status": {"nodeStatuses": [{"nodeName": "m0", "currentRevision": 1}]}});
        let metadata = json!({"metadata": {"name": "cluster"}, "spec": {}});
        self.create::<KubeAPIServer>(None, metadata.clone()).await;
        self.create::<KubeControllerManager>(None, metadata).await;
        let (params, status) = (PatchParams::default(), Patch::Merge(&status));
        Api::<KubeAPIServer>::all(self.client.clone()).patch_status("cluster", &params, &status).await.unwrap();
        Api::<KubeControllerManager>::all(self.client.clone()).patch_status("cluster", &params, &status).await.unwrap();
    }

    pub(crate) fn actor(&self) -> Actor {
        Actor::new(self.client.clone(), KEYS.clone(), self.clock())
    }

    /// Does everything that can be done now, and returns the writes as text.
    pub(crate) async fn pass(&self) -> (Passed, String) {
        let passed = self.reconciler().pass(&[]).await.unwrap();
        assert!(passed.failed.is_empty(), "{:?}", passed.failed);
        let text = passed.written.iter().map(|(step, _)| format!("{step}\n")).collect();
        (passed, text)
    }

    pub(crate) fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), namespace)
    }

    pub(crate) fn config_maps(&self, namespace: &str) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), namespace)
    }

    /// Every Secret and ConfigMap of the catalog's namespaces, as `kind namespace/name`, with its version.
    pub(crate) async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = BTreeMap::new();
        for namespace in namespaces() {
            for it in self.secrets(namespace).list(&ListParams::default()).await.unwrap() {
                let name = format!("Secret {namespace}/{}", it.metadata.name.unwrap());
                versions.insert(name, it.metadata.resource_version.unwrap());
            }
            for it in self.config_maps(namespace).list(&ListParams::default()).await.unwrap() {
                let name = format!("ConfigMap {namespace}/{}", it.metadata.name.unwrap());
                versions.insert(name, it.metadata.resource_version.unwrap());
            }
        }
        versions
    }
}

/// Returns a client that runs a function with each request.
pub(crate) fn way_through<F>(
    client: Client,
    handle: impl Fn(Client, Request<Body>) -> F + Send + Sync + 'static,
) -> Client
where
    F: Future<Output = kube_client::Result<Response<Body>>> + Send + 'static,
{
    let handle = Arc::new(handle);
    Client::new(service_fn(move |request| handle(client.clone(), request)), "default")
}

/// Returns the error of a server that rejects a request.
pub(crate) fn answer(code: StatusCode, reason: &str) -> Response<Body> {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "a fault of the test", "reason": reason, "code": code.as_u16(),
    });
    let body = Body::from(serde_json::to_vec(&status).unwrap());
    Response::builder().status(code).header("content-type", "application/json").body(body).unwrap()
}

pub(crate) fn beginning() -> Arc<AtomicI64> {
    let began: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    Arc::new(AtomicI64::new(began.as_second()))
}

fn read(clock: &AtomicI64) -> Timestamp {
    Timestamp::from_second(clock.load(Ordering::Relaxed)).unwrap()
}

/// Every namespace of the catalog, except those of every cluster.
pub(crate) fn namespaces() -> BTreeSet<&'static str> {
    let catalog = Catalog::builtin();
    let mut names = BTreeSet::new();
    for row in &catalog.rows {
        if let Home::Secret(object) | Home::Files { secret: Some(object), .. } = row.home {
            names.insert(object.namespace);
        }
        names.extend(row.copies.iter().map(|copy| copy.object.namespace));
    }
    for bundle in &catalog.bundles {
        match bundle.home {
            BundleHome::ConfigMap(place) => drop(names.insert(place.object.namespace)),
            BundleHome::File { config_maps, .. } => names.extend(config_maps.iter().map(|it| it.object.namespace)),
        }
        names.extend(bundle.copies.iter().map(|copy| copy.object.namespace));
    }
    names.extend(Component::managed().filter_map(Component::operator_namespace));
    names.retain(|name| !name.starts_with('<') && *name != "kube-system");
    names
}

/// Waits some seconds until a condition is true.
pub(crate) async fn soon<F: Future<Output = bool>>(what: &str, is_so: impl Fn() -> F) {
    for _ in 0..200 {
        if is_so().await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("not after ten seconds: {what}");
}
