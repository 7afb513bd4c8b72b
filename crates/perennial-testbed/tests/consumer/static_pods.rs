//! The static pods of the one node: a real kube-apiserver that restarts for files that it reads only at start, and its
//! revisions. The controller manager is simulated: pods read what it passes on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube_client::api::{Patch, PatchParams, PostParams};
use kube_client::{Api, Client};
use perennial_api::operator::{KubeAPIServer, KubeControllerManager};
use perennial_core::catalog::{Catalog, Delivery, Place};
use perennial_testbed::files::Files;
use perennial_testbed::kubernetes::{ApiServer, Door};
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::objects::{Key, Kind, Objects, now};
use crate::tls::Call;
use crate::world::World;

pub(crate) const KAS: &str = "openshift-kube-apiserver";
pub(crate) const KCM: &str = "openshift-kube-controller-manager";

type Data = BTreeMap<String, Vec<u8>>;
/// The content of a revision.
pub(crate) type Contents = BTreeMap<Key, Data>;

/// Changes within this time are rolled out together.
const SETTLE: Duration = Duration::from_secs(1);
/// The rollout time of the simulated controller manager.
const RESTART: Duration = Duration::from_secs(4);
/// The longest rollout time of a kube-apiserver on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(90);

/// The objects that the static pods of a namespace read at start, by the catalog.
pub(crate) fn revisioned(catalog: &Catalog, namespace: &str) -> BTreeSet<Key> {
    let by_revision = |delivery| matches!(delivery, Delivery::Revisioned | Delivery::Relayed { .. });
    let mut keys = BTreeSet::new();
    for edge in &catalog.edges {
        for (party, kind) in [(edge.verifier, Kind::ConfigMap), (edge.presenter, Kind::Secret)] {
            if let Place::Object(object) = party.place
                && by_revision(party.delivery)
                && object.namespace == namespace
            {
                keys.insert(Key { kind, namespace: namespace.to_owned(), name: object.name.to_owned() });
            }
        }
    }
    keys
}

pub(crate) fn contents(objects: &Objects, keys: &BTreeSet<Key>) -> Contents {
    keys.iter().map(|key| (key.clone(), objects.newest(key).as_ref().clone())).collect()
}

/// The kube-apiserver of the node.
pub(crate) struct Runs {
    pub(crate) dir: PathBuf,
    /// The arguments other than the files of the revision.
    pub(crate) arguments: Vec<String>,
    pub(crate) objects: Arc<Objects>,
}

/// A running kube-apiserver with its files.
pub(crate) struct Running {
    pub(crate) process: ApiServer,
    _files: Vec<Files>,
}

impl Runs {
    /// Starts a kube-apiserver with the files of a revision, and waits until it is ready.
    pub(crate) async fn start(&self, revision: u64, contents: &Contents) -> Running {
        let mut files = Vec::new();
        let mut arguments = self.arguments.clone();
        for (key, data) in contents {
            let kept = Files::begin(self.dir.join(format!("revision-{revision}")).join(&key.name), data).unwrap();
            let mut file = |flag: &str, name: &str| {
                arguments.push(format!("--{flag}={}", kept.path(name).display()));
            };
            match key.name.as_str() {
                "kubelet-client" => {
                    file("kubelet-client-certificate", "tls.crt");
                    file("kubelet-client-key", "tls.key");
                }
                "kubelet-serving-ca" => file("kubelet-certificate-authority", "ca-bundle.crt"),
                "etcd-serving-ca" => file("etcd-cafile", "ca-bundle.crt"),
                "etcd-client" => {
                    file("etcd-certfile", "tls.crt");
                    file("etcd-keyfile", "tls.key");
                }
                "localhost-recovery-serving-certkey" => {
                    let pair = [kept.path("tls.crt"), kept.path("tls.key")].map(|path| path.display().to_string());
                    arguments.push(format!("--tls-sni-cert-key={}", pair.join(",")));
                }
                // The other processes of the node verify the server with these.
                "kube-apiserver-server-ca" => {}
                other => panic!("a kube-apiserver has no use for {other}"),
            }
            files.push(kept);
        }
        let log = self.dir.join(format!("kube-apiserver-{revision}.log"));
        let process = ApiServer::start(&arguments, &log).unwrap();
        let mut running = Running { process, _files: files };
        self.wait_until_ready(&mut running).await;
        running
    }

    async fn wait_until_ready(&self, running: &mut Running) {
        let deadline = Instant::now() + READY_WITHIN;
        let mut answer = String::new();
        while Instant::now() < deadline {
            if let Some(status) = running.process.ended().unwrap() {
                panic!("kube-apiserver ended with {status}; it wrote:\n{}", running.process.last_words());
            }
            let trust = self.objects.newest(&Key::map(KAS, "kube-apiserver-server-ca"));
            let trust = String::from_utf8(trust["ca-bundle.crt"].clone()).unwrap();
            let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
            let port = running.process.port();
            let call = Call { port, server_name: "localhost", trust: &trust, identity: None, request };
            answer = call.make().await.unwrap_or_else(|error| error);
            if answer.starts_with("HTTP/1.1 200") {
                return;
            }
            sleep(Duration::from_millis(200)).await;
        }
        panic!("kube-apiserver is not ready: {answer:?}; it wrote:\n{}", running.process.last_words());
    }

    /// Restarts it whenever something changes that it reads only at its start. No request that has begun is cut off, and none
    /// begins with a process that is about to end.
    pub(crate) async fn roll_out(
        self,
        world: Arc<World>,
        door: Arc<Door>,
        status: Status,
        mut running: Running,
        mut held: Contents,
    ) {
        let keys: BTreeSet<Key> = held.keys().cloned().collect();
        let mut changes = self.objects.changes();
        let mut revision = 1;
        loop {
            while contents(&self.objects, &keys) == held {
                changes.changed().await.unwrap();
            }
            sleep(SETTLE).await;
            let wanted = contents(&self.objects, &keys);
            let names = wanted.iter().filter(|(key, data)| held[*key] != **data).map(|(key, _)| key.name.as_str());
            let names = names.collect::<Vec<_>>().join(", ");
            revision += 1;
            world.tell(&format!("kube-apiserver goes to revision {revision} for {names}"));
            status.copy(revision, &wanted).await;
            status.write(revision - 1, revision).await;
            let next = self.start(revision, &wanted).await;
            door.lead_to(next.process.port());
            let last = std::mem::replace(&mut running, next);
            note_started(&self.objects, &wanted);
            last.process.end().await.unwrap();
            status.started(now()).await;
            status.write(revision, 0).await;
            world.tell(&format!("kube-apiserver runs revision {revision}"));
            held = wanted;
        }
    }
}

/// Pods read the content of the new controller manager from now on.
pub(crate) async fn roll_out_controller_manager(world: Arc<World>, status: Status, mut held: Contents) {
    let keys: BTreeSet<Key> = held.keys().cloned().collect();
    let mut changes = world.objects.changes();
    let mut revision = 1;
    loop {
        while contents(&world.objects, &keys) == held {
            changes.changed().await.unwrap();
        }
        sleep(SETTLE).await;
        let wanted = contents(&world.objects, &keys);
        revision += 1;
        status.copy(revision, &wanted).await;
        status.write(revision - 1, revision).await;
        sleep(RESTART).await;
        note_started(&world.objects, &wanted);
        status.started(now()).await;
        status.write(revision, 0).await;
        world.tell(&format!("kube-controller-manager runs revision {revision}"));
        held = wanted;
    }
}

/// Processes of the node have the bundle of their start.
pub(crate) fn note_started(objects: &Objects, contents: &Contents) {
    for (key, data) in contents.iter().filter(|(key, _)| key.kind == Kind::ConfigMap) {
        objects.note(Key::started(&key.namespace, &key.name), data.clone(), now());
    }
}

/// The reported status of the static pods of a namespace.
pub(crate) struct Status {
    pub(crate) client: Client,
    pub(crate) namespace: &'static str,
}

impl Status {
    /// Stores the content of a revision.
    pub(crate) async fn copy(&self, revision: u64, contents: &Contents) {
        for (key, data) in contents {
            let metadata = json!({"name": format!("{}-{revision}", key.name)});
            match key.kind {
                Kind::Secret => {
                    let data: BTreeMap<_, _> =
                        data.iter().map(|(k, v)| (k, k8s_openapi::ByteString(v.clone()))).collect();
                    let made = json!({"metadata": metadata, "data": data, "type": "kubernetes.io/tls"});
                    self.create::<Secret>(made).await;
                }
                _ => {
                    let data: BTreeMap<_, _> = data.iter().map(|(k, v)| (k, String::from_utf8_lossy(v))).collect();
                    self.create::<ConfigMap>(json!({"metadata": metadata, "data": data})).await;
                }
            }
        }
    }

    /// Sets the current and the target revision of the node.
    pub(crate) async fn write(&self, current: u64, target: u64) {
        let node = json!({"nodeName": "m0", "currentRevision": current, "targetRevision": target});
        let status = Patch::Merge(json!({"status": {"nodeStatuses": [node]}}));
        let params = PatchParams::default();
        let client = &self.client;
        match self.namespace {
            KAS => {
                let api = Api::<KubeAPIServer>::all(client.clone());
                persist("status", || api.patch_status("cluster", &params, &status)).await;
            }
            _ => {
                let api = Api::<KubeControllerManager>::all(client.clone());
                persist("status", || api.patch_status("cluster", &params, &status)).await;
            }
        }
    }

    /// A kubelet shows static pods as Pods. This one has started then.
    pub(crate) async fn started(&self, at: Timestamp) {
        let params = PatchParams::default();
        let name = self.namespace.trim_start_matches("openshift-");
        let pods = Api::<Pod>::namespaced(self.client.clone(), self.namespace);
        let pod = format!("{name}-m0");
        let status = Patch::Merge(json!({"status": {"startTime": at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()}}));
        if persist("pod", || pods.get_opt(&pod)).await.is_none() {
            let mirror = json!({
                "metadata": {"name": pod, "annotations": {"kubernetes.io/config.mirror": "1"}},
                "spec": {"nodeName": "m0", "containers": [{"name": name, "image": name}]},
            });
            self.create::<Pod>(mirror).await;
        }
        persist("pod", || pods.patch_status(&pod, &params, &status)).await;
    }

    async fn create<K>(&self, object: serde_json::Value)
    where
        K: kube_client::Resource<Scope = kube_client::core::NamespaceResourceScope, DynamicType = ()>,
        K: Clone + std::fmt::Debug + serde::Serialize + serde::de::DeserializeOwned + Send + Sync,
    {
        let object: K = serde_json::from_value(object).unwrap();
        let api = Api::<K>::namespaced(self.client.clone(), self.namespace);
        let params = PostParams::default();
        let create = || async {
            match api.create(&params, &object).await {
                // The object was created, and only the response was lost.
                Err(kube_client::Error::Api(status)) if status.code == 409 => Ok(()),
                other => other.map(drop),
            }
        };
        persist("create", create).await;
    }
}

/// An idle connection ends with its server.
pub(crate) async fn persist<T, F>(what: &str, ask: impl Fn() -> F) -> T
where
    F: Future<Output = Result<T, kube_client::Error>>,
{
    let mut failed = None;
    for _ in 0..20 {
        match ask().await {
            Ok(answer) => return answer,
            Err(error) => failed = Some(error),
        }
        sleep(Duration::from_millis(500)).await;
    }
    panic!("{what}: {failed:?}")
}
