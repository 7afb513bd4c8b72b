//! Each lease gets servers with only the objects of new ones, and the servers end with the process that they watch.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use kube_client::Client;
use perennial_testbed::kubernetes::{ControlPlane, ServerPool, StartError};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use super::processes_of;

/// A pool whose servers end with a process that does nothing else.
struct Pool {
    servers: ServerPool,
    watched: Background,
    dir: PathBuf,
    _top: TempDir,
}

/// A process that ends with its handle.
struct Background(Child);

impl Background {
    fn start(command: &mut Command) -> Background {
        Background(command.stdin(Stdio::null()).spawn().unwrap())
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.end();
    }
}

impl Pool {
    fn new() -> Pool {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("servers");
        let watched = Background::start(Command::new("sleep").arg("3600"));
        let servers = ServerPool::new(dir.clone(), watched.0.id());
        Pool { servers, watched, dir, _top: top }
    }

    async fn lease(&self) -> (ControlPlane, Client) {
        let control_plane = self.servers.lease().await.unwrap_or_else(|error| panic!("{error}"));
        let client = control_plane.client().await.unwrap();
        (control_plane, client)
    }
}

async fn soon(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so().await {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        sleep(Duration::from_millis(50)).await;
    }
}

async fn send(client: &Client, method: &str, path: &str, body: &Value) -> Result<Value, String> {
    let content = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = http::Request::builder().method(method).uri(path).header("content-type", content);
    client.request(request.body(body).unwrap()).await.map_err(|error| format!("{method} {path}: {error}"))
}

async fn get(client: &Client, path: &str) -> Value {
    send(client, "GET", path, &Value::Null).await.unwrap()
}

/// The address of the server of a control plane.
fn server(control_plane: &ControlPlane) -> String {
    let text = fs::read_to_string(control_plane.kubeconfig()).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["clusters"][0]["cluster"]["server"].as_str().unwrap().to_owned()
}

const NAMESPACES: &str = "/api/v1/namespaces";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
const API_SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const THINGS: &str = "/apis/example.test/v1/namespaces/shop/things";
/// The ConfigMap that a kube-apiserver creates at its start.
const RECORD: &str = "/api/v1/namespaces/kube-system/configmaps/kube-apiserver-legacy-service-account-token-tracking";

/// Lists with objects of a new server, and with objects that `fill` creates.
const LISTS: [&str; 14] = [
    NAMESPACES,
    "/api/v1/configmaps",
    "/api/v1/events",
    "/api/v1/secrets",
    "/api/v1/serviceaccounts",
    "/api/v1/services",
    "/apis/networking.k8s.io/v1/ipaddresses",
    DEFINITIONS,
    WEBHOOKS,
    API_SERVICES,
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/roles",
    "/apis/rbac.authorization.k8s.io/v1/rolebindings",
];

/// Returns all objects of the lists without their resource versions, which a reset does not turn back.
async fn objects(client: &Client) -> Vec<Value> {
    let mut found = Vec::new();
    for path in LISTS {
        let list = get(client, path).await;
        for item in list["items"].as_array().unwrap() {
            let mut item = item.clone();
            item["metadata"].as_object_mut().unwrap().remove("resourceVersion");
            item["listed"] = json!(path);
            found.push(item);
        }
    }
    found
}

/// Creates objects of all kinds that a reset treats in its own way, with schemas that differ from lease to lease.
async fn fill(client: &Client, field: &str) {
    let post = async |path: &str, body: Value| send(client, "POST", path, &body).await.unwrap();
    let schema = json!({"type": "object", "properties": {field: {"type": "string"}}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names = json!({"plural": "things", "singular": "thing", "kind": "Thing"});
    let definition = json!({"group": "example.test", "scope": "Namespaced", "names": names, "versions": [version]});
    post(DEFINITIONS, json!({"metadata": {"name": "things.example.test"}, "spec": definition})).await;
    for name in ["shop", "closing"] {
        post(NAMESPACES, json!({"metadata": {"name": name}})).await;
    }
    let shop = format!("{NAMESPACES}/shop");
    for (path, kind) in [("configmaps", "ConfigMap"), ("secrets", "Secret"), ("serviceaccounts", "ServiceAccount")] {
        post(&format!("{shop}/{path}"), json!({"kind": kind, "metadata": {"name": "it", "finalizers": ["a.test/b"]}}))
            .await;
    }
    // A fixed address and a fixed port: the second allocation fails if the first is still there.
    let ports = json!([{"port": 443, "nodePort": 30123}]);
    let spec = json!({"type": "NodePort", "clusterIP": "10.0.0.77", "ports": ports});
    post(&format!("{shop}/services"), json!({"metadata": {"name": "web"}, "spec": spec})).await;
    let about = json!({"kind": "Service", "namespace": "shop", "name": "web"});
    let event = json!({"metadata": {"name": "web.1"}, "involvedObject": about, "reason": "Tested", "type": "Normal"});
    post(&format!("{shop}/events"), event).await;

    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
    let subjects = json!([{"kind": "ServiceAccount", "name": "it", "namespace": "shop"}]);
    for (kind, place) in [("ClusterRole", RBAC.to_owned()), ("Role", format!("{RBAC}/namespaces/shop"))] {
        let (plural, metadata) = (kind.to_lowercase(), json!({"name": "it"}));
        post(&format!("{place}/{plural}s"), json!({"metadata": metadata, "rules": rules})).await;
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": "it"});
        post(
            &format!("{place}/{plural}bindings"),
            json!({"metadata": metadata, "roleRef": role, "subjects": subjects}),
        )
        .await;
    }

    soon("things are served", async || send(client, "GET", THINGS, &Value::Null).await.is_ok()).await;
    assert_eq!(get(client, THINGS).await["items"], json!([]), "objects of an earlier definition of the same name");
    let thing = json!({"apiVersion": "example.test/v1", "kind": "Thing", "metadata": {"name": "it"}, (field): "kept"});
    let thing = post(THINGS, thing).await;
    assert_eq!(thing[field], "kept", "the schema of an earlier definition of the same name: {thing}");
    // Without a namespace controller, the namespace stays in its deletion.
    send(client, "DELETE", &format!("{NAMESPACES}/closing"), &Value::Null).await.unwrap();

    // Objects of a new server.
    send(client, "PATCH", &format!("{RBAC}/clusterroles/view"), &json!({"rules": []})).await.unwrap();
    send(client, "DELETE", &format!("{RBAC}/clusterrolebindings/system:discovery"), &Value::Null).await.unwrap();
    send(client, "PATCH", RECORD, &json!({"data": {"since": "2001-01-01"}})).await.unwrap();
    let labels = json!({"metadata": {"labels": {"changed": "yes"}}});
    send(client, "PATCH", &format!("{NAMESPACES}/kube-public"), &labels).await.unwrap();

    // From here on, each request to create a ConfigMap fails.
    let backend = json!({"service": {"name": "nothing", "namespace": "shop"}, "caBundle": ""});
    let rules =
        json!([{"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}]);
    let webhook = json!({
        "name": "it.example.test", "clientConfig": backend, "rules": rules, "failurePolicy": "Fail",
        "sideEffects": "None", "admissionReviewVersions": ["v1"], "timeoutSeconds": 1,
    });
    post(WEBHOOKS, json!({"metadata": {"name": "it"}, "webhooks": [webhook]})).await;
    let backend = json!({"name": "nothing", "namespace": "shop"});
    let spec = json!({
        "group": "absent.test", "version": "v1", "service": backend, "groupPriorityMinimum": 1000, "versionPriority": 1,
        "insecureSkipTLSVerify": true,
    });
    post(API_SERVICES, json!({"metadata": {"name": "v1.absent.test"}, "spec": spec})).await;
}

/// Returns whether the service account that `fill` binds may read Secrets.
async fn may_read_secrets(control_plane: &ControlPlane) -> bool {
    let account = control_plane.client_as_account("shop", "it").await.unwrap();
    let listed = send(&account, "GET", "/api/v1/namespaces/shop/secrets/it", &Value::Null).await;
    !listed.is_err_and(|error| error.contains("cannot get resource"))
}

#[tokio::test]
async fn next_lease_has_only_the_objects_of_a_new_server() {
    let pool = Pool::new();
    // Another process uses the first slot.
    fs::DirBuilder::new().mode(0o700).create(&pool.dir).unwrap();
    let slot = pool.dir.join("slot-0.lock");
    let mut other = Background::start(Command::new("flock").arg("--no-fork").arg(&slot).args(["sleep", "3600"]));
    soon("the slot is locked", async || fs::File::open(&slot).is_ok_and(|file| file.try_lock().is_err())).await;

    let (mut control_plane, mut client) = pool.lease().await;
    assert!(pool.dir.join("slot-1").is_dir() && !pool.dir.join("slot-0").exists());
    assert_eq!(control_plane.kubeconfig().metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let (address, new) = (server(&control_plane), objects(&client).await);
    for field in ["first", "second"] {
        fill(&client, field).await;
        soon("the account may read Secrets", async || may_read_secrets(&control_plane).await).await;
        drop(control_plane);
        (control_plane, client) = pool.lease().await;
        assert_eq!(server(&control_plane), address);
        assert!(!may_read_secrets(&control_plane).await);
        assert_eq!(objects(&client).await, new);
        let groups = get(&client, "/apis").await.to_string();
        assert!(!groups.contains("example.test") && !groups.contains("absent.test"), "{groups}");
        assert!(send(&client, "GET", THINGS, &Value::Null).await.is_err());
    }
    other.end();
}

#[tokio::test]
async fn servers_are_replaced_after_a_kill_and_end_with_the_process() {
    let mut pool = Pool::new();
    let (first, _) = pool.lease().await;
    let (address, kubeconfig) = (server(&first), first.kubeconfig());
    let is_api_server = |(program, _): &(String, u32)| program.ends_with("/kube-apiserver");
    let (_, process) = processes_of(&pool.dir).into_iter().find(is_api_server).unwrap();
    assert!(Command::new("kill").args(["-KILL", &process.to_string()]).status().unwrap().success());
    drop(first);
    assert!(!kubeconfig.exists());

    let (second, client) = pool.lease().await;
    assert_ne!(server(&second), address);
    assert_eq!(get(&client, NAMESPACES).await["items"].as_array().unwrap().len(), 4);
    let running = |name: &str| processes_of(&pool.dir).iter().filter(|it| it.0.ends_with(name)).count();
    assert_eq!([running("/kube-apiserver"), running("/etcd")], [1, 1]);

    // A test that is killed cannot remove this file.
    let address = server(&second);
    drop(second);
    assert!(!pool.dir.join("slot-0/in-use").exists());
    fs::write(pool.dir.join("slot-0/in-use"), "1").unwrap();
    let (third, _) = pool.lease().await;
    assert_ne!(server(&third), address);

    pool.watched.end();
    let dir = &pool.dir;
    soon("the servers end and their files are gone", async || processes_of(dir).is_empty() && !dir.exists()).await;
    drop(third);
    assert!(matches!(pool.servers.lease().await.unwrap_err(), StartError::NotRunning { .. }));
}

#[tokio::test]
async fn directory_that_others_can_read_or_replace_is_rejected() {
    let top = tempfile::tempdir().unwrap();
    let [dir, link, file] = ["servers", "link", "file"].map(|name| top.path().join(name));
    fs::create_dir(&dir).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o750)).unwrap();
    std::os::unix::fs::symlink(top.path(), &link).unwrap();
    fs::write(&file, "").unwrap();
    for path in [dir, link, file] {
        let rejected = ServerPool::new(path, std::process::id()).lease().await.unwrap_err();
        assert!(matches!(rejected, StartError::NotPrivate { .. }), "{rejected}");
    }
}

#[test]
fn tests_of_nextest_lease_unless_own_servers_are_wanted() {
    let is = |name: &str, value: &str| std::env::var(name).is_ok_and(|it| it == value);
    let leases = is("NEXTEST_EXECUTION_MODE", "process-per-test") && !is("PERENNIAL_OWN_SERVERS", "1");
    assert_eq!(ServerPool::of_this_run().is_some(), leases);
}
