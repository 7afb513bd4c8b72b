//! Tests stock kubectl against `perennial up`, without special flags.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod up;
}

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base64::prelude::{BASE64_STANDARD, Engine};
use common::up::{Up, directory, up};
use perennial_testbed::kubernetes::{ControlPlane, program};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A user at a terminal.
struct User {
    // The server is dropped before its directory. Another owner stops a real server.
    _running: Option<Up>,
    kubeconfig: PathBuf,
    top: TempDir,
}

/// The output of kubectl.
struct CommandOutput {
    out: String,
    err: String,
    is_done: bool,
}

impl User {
    fn new() -> User {
        let top = directory();
        let running = Up::start(&top.path().join("data"), &["--node", "cp-0=10.0.0.4", "--cluster-domain", "lab.test"]);
        User { kubeconfig: running.kubeconfig(), _running: Some(running), top }
    }

    fn of(real: &ControlPlane) -> User {
        User { kubeconfig: real.kubeconfig(), _running: None, top: directory() }
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(program("kubectl").unwrap_or_else(|error| panic!("{error}")));
        // kubectl caches discovery by address, and ports are reused.
        command.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", self.top.path().join("cache"));
        command.current_dir(self.top.path()).args(words.split_whitespace());
        command
    }

    fn run(&self, words: &str, input: &str) -> CommandOutput {
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        CommandOutput { out: text(output.stdout), err: text(output.stderr), is_done: output.status.success() }
    }

    /// Runs kubectl, which must succeed, and returns its output.
    fn does(&self, words: &str) -> String {
        self.does_with(words, "")
    }

    fn does_with(&self, words: &str, input: &str) -> String {
        let output = self.run(words, input);
        assert!(output.is_done, "kubectl {words}\n{}{}", output.out, output.err);
        output.out
    }

    /// Runs kubectl, which must fail, and returns its error.
    fn cannot(&self, words: &str, input: &str) -> String {
        let output = self.run(words, input);
        assert!(!output.is_done, "kubectl {words}\n{}", output.out);
        output.err
    }

    fn json(&self, words: &str) -> Value {
        serde_json::from_str(&self.does(&format!("{words} -o json"))).unwrap()
    }

    fn file(&self, name: &str, content: &str) {
        fs::write(self.top.path().join(name), content).unwrap();
    }
}

/// Columns are separated by three spaces at least.
fn heading(table: &str) -> Vec<&str> {
    table.lines().next().unwrap_or_default().split("  ").map(str::trim).filter(|it| !it.is_empty()).collect()
}

const MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m, namespace: default}\ndata: {a: '1', b: '2'}\n";

#[test]
fn flags_are_stored_until_another_flag_changes_them() {
    let top = directory();
    let data = top.path().join("data");
    let start = |arguments: &[&str]| {
        let running = Up::start(&data, arguments);
        User { kubeconfig: running.kubeconfig(), _running: Some(running), top: directory() }
    };
    let three = ["--cluster-domain", "lab.test", "--node", "a=10.0.0.1,b=10.0.0.2,c=10.0.0.3"];
    drop(start(&three));
    let user = start(&["--api-url", "https://api.example.com:443", "--node", "c=10.0.0.4"]);
    let status = user.json("get infrastructure cluster")["status"].take();
    assert_eq!(status["apiServerURL"], "https://api.example.com:443");
    assert_eq!(status["apiServerInternalURI"], "https://api-int.lab.test:6443");
    assert_eq!(status["controlPlaneTopology"], "HighlyAvailable");
    assert_eq!(user.json("get nodes")["items"].as_array().unwrap().len(), 3);
    assert_eq!(user.json("get node c")["status"]["addresses"][0]["address"], "10.0.0.4");
    assert_eq!(user.does("config view --minify -o jsonpath={.clusters[0].name}"), "lab");
}

#[test]
fn kubectl_works() {
    let user = User::new();
    check_reads(&user);
    check_writes(&user);
    check_apply(&user);
    check_edit(&user);
    check_wait_and_watch(&user);
    check_delete(&user);
}

fn check_reads(user: &User) {
    let resources = user.does("api-resources");
    for kind in ["Secret", "PKI", "Infrastructure", "CustomResourceDefinition", "Lease"] {
        assert!(resources.contains(kind), "{resources}");
    }
    let pki = user.does("get pki cluster -o yaml");
    assert!(pki.contains("kind: PKI") && pki.contains("name: cluster"), "{pki}");
    assert_eq!(heading(&user.does("get namespaces")), ["NAME", "STATUS", "AGE"]);
    assert_eq!(heading(&user.does("get secrets -n openshift-kube-apiserver")), ["NAME", "TYPE", "DATA", "AGE"]);
    let infrastructure = user.json("get infrastructure cluster");
    assert_eq!(infrastructure["status"]["apiServerURL"], "https://api.lab.test:6443");
    assert_eq!(user.json("get network cluster")["status"]["serviceNetwork"][0], "172.30.0.0/16");
    assert_eq!(user.json("get node cp-0")["status"]["addresses"][0]["address"], "10.0.0.4");
    let described = user.does("describe secret localhost-serving-cert-certkey -n openshift-kube-apiserver");
    assert!(described.contains("kubernetes.io/tls") && described.contains("tls.key:"), "{described}");
    assert!(user.does("explain pki.spec.defaults").contains("FIELD: defaults"));
    assert_eq!(user.does("auth can-i create secrets").trim(), "yes");
    assert!(user.does("auth whoami").contains("system:admin"));
    assert!(user.does("version").contains("Server Version: v1."));
}

fn check_writes(user: &User) {
    user.does("create namespace shop");
    user.does("create configmap c --from-literal=k=v -n shop");
    user.does("create secret generic s --from-literal=password=hunter2 -n shop");
    user.does("create serviceaccount robot -n shop");
    assert_eq!(user.json("get secret s -n shop")["data"]["password"], "aHVudGVyMg==");
    let again = user.cannot("create configmap c -n shop", "");
    assert!(again.contains("configmaps \"c\" already exists"), "{again}");
    let missing = user.cannot("get configmap nobody -n shop", "");
    assert!(missing.contains("Error from server (NotFound): configmaps \"nobody\" not found"), "{missing}");
    user.does("label configmap c -n shop app=web");
    user.does("annotate configmap c -n shop note=mine");
    user.does_with("patch configmap c -n shop -p {\"data\":{\"l\":\"w\"}}", "");
    let selected = user.json("get configmaps -n shop -l app=web --field-selector=metadata.name=c");
    let map = &selected["items"][0];
    assert_eq!(map["data"]["l"], "w");
    assert_eq!(map["metadata"]["annotations"]["note"], "mine");
    user.does("create configmap d --from-literal=k=v -n shop --dry-run=server");
    assert!(user.cannot("get configmap d -n shop", "").contains("NotFound"));
}

fn check_apply(user: &User) {
    user.file("m.yaml", MAP);
    assert!(user.does("apply -f m.yaml").contains("configmap/m created"));
    assert!(user.does("apply -f m.yaml").contains("configmap/m unchanged"));
    user.file("m.yaml", &MAP.replace(", b: '2'", ""));
    let difference = user.run("diff -f m.yaml", "");
    assert!(difference.out.contains("-  b: \"2\""), "{}{}", difference.out, difference.err);
    assert!(user.does("apply -f m.yaml").contains("configmap/m configured"));
    assert_eq!(user.json("get configmap m")["data"], serde_json::json!({"a": "1"}));
    user.file("m.yaml", &MAP.replace("'2'", "'3'"));
    assert!(user.does("replace -f m.yaml").contains("configmap/m replaced"));
    assert_eq!(user.json("get configmap m")["data"]["b"], "3");
    // Server-side apply: the owner of a field keeps it until another manager forces a conflict.
    user.file("n.yaml", &MAP.replace("name: m", "name: other"));
    user.does("apply --server-side -f n.yaml");
    user.file("n.yaml", &MAP.replace("name: m", "name: other").replace("'2'", "'4'"));
    let conflict = user.cannot("apply --server-side --field-manager=other -f n.yaml", "");
    assert!(conflict.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.b"), "{conflict}");
    user.does("apply --server-side --field-manager=other --force-conflicts -f n.yaml");
    assert_eq!(user.json("get configmap other")["data"]["b"], "4");
}

fn check_edit(user: &User) {
    let wrong = "apiVersion: config.openshift.io/v1\nkind: PKI\nmetadata: {name: other}\nspec: {}\n";
    let refused = user.cannot("create -f -", wrong);
    assert!(refused.contains("cluster"), "{refused}");
    // An editor that asks for ECDSA, as a person would.
    let editor = user.top.path().join("editor");
    let script =
        "#!/bin/sh\nsed -i 's/^spec: {}/spec: {defaults: {key: {algorithm: ECDSA, ecdsa: {curve: P384}}}}/' \"$1\"\n";
    fs::write(&editor, script).unwrap();
    make_executable(&editor);
    let mut edit = user.command("edit pki cluster");
    let edited = edit.env("KUBE_EDITOR", &editor).output().unwrap();
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    let policy = user.json("get pki cluster");
    assert_eq!(policy["spec"]["defaults"]["key"]["ecdsa"]["curve"], "P384");
    assert_eq!(policy["metadata"]["generation"], 2);
    let both = r#"{"spec":{"defaults":{"key":{"rsa":{"keySize":2048}}}}}"#;
    let refused = user.cannot(&format!("patch pki cluster --type=merge -p {both}"), "");
    assert!(refused.contains("spec.defaults.key"), "{refused}");
}

fn make_executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn check_wait_and_watch(user: &User) {
    user.does("wait --for=condition=Established crd/pkis.config.openshift.io --timeout=30s");
    let mut watching = user.command("get configmaps -n shop -w --no-headers");
    let mut child = watching.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("c "));
    user.does("create configmap seen -n shop");
    assert!(lines.next().unwrap().starts_with("seen "));
    user.does("delete configmap seen -n shop");
    assert!(lines.next().unwrap().starts_with("seen "));
    child.kill().unwrap();
    child.wait().unwrap();
}

fn check_delete(user: &User) {
    user.does("delete configmap m");
    user.does("delete configmap other --cascade=foreground --timeout=60s");
    user.does("delete namespace shop --timeout=60s");
    assert!(user.cannot("get namespace shop", "").contains("NotFound"));
    assert!(user.cannot("get secret s -n shop", "").contains("NotFound"));
    // Deleting a definition deletes its objects.
    user.does("delete crd featuregates.config.openshift.io --timeout=60s");
    // kubectl still has the resource in its cache.
    let gone = user.cannot("get featuregates", "");
    assert!(gone.contains("the server could not find the requested resource"), "{gone}");
}

#[test]
fn kubectl_gets_clear_errors_for_unsupported_requests() {
    let user = User::new();
    let refused = user.cannot("get pods --as bob", "");
    assert!(refused.contains("users \"bob\" is forbidden: this API server does not impersonate users"), "{refused}");
    assert!(user.cannot("auth can-i list secrets --as-group staff --as bob", "").contains("does not impersonate"));

    user.does("run web --image=example.test/web");
    let pods = user.does("get pods --no-headers");
    assert_eq!(pods.split_whitespace().take(4).collect::<Vec<_>>(), ["web", "0/1", "Pending", "0"], "{pods}");
    for (words, what) in [
        ("logs web", "has no logs"),
        ("logs -f web", "has no logs"),
        ("exec web -- true", "cannot run a command"),
        ("attach web", "cannot be attached to"),
    ] {
        let refused = user.cannot(words, "");
        let expected = format!("pod \"web\" {what}: this API server has no nodes that run containers");
        assert!(refused.contains(&expected), "kubectl {words}: {refused}");
    }
    // kubectl itself rejects this one.
    let refused = user.cannot("port-forward web 8080:80", "");
    assert!(refused.contains("pod is not running. Current status=Pending"), "{refused}");
    let absent = user.cannot("logs nobody", "");
    assert!(absent.contains("pods \"nobody\" not found"), "{absent}");
    user.does("create deployment web --image=example.test/web");
    let refused = user.cannot("scale deployment web --replicas=3", "");
    assert!(refused.contains("deployments.apps \"web\" cannot be scaled: this API server has no nodes"), "{refused}");
}

#[test]
fn kubectl_explains_fields() {
    let user = User::new();
    for (of, expected) in [
        ("secret", &["KIND: Secret", "FIELDS:", "stringData", "map[string]string", "ObjectMeta"][..]),
        ("secret.metadata.labels", &["FIELD: labels <map[string]string>", "organize and categorize"]),
        ("pods.spec.containers.env.valueFrom", &["configMapKeyRef", "ConfigMapKeySelector"]),
        ("crd.spec.versions.schema", &["openAPIV3Schema", "JSONSchemaProps"]),
        ("deployment.spec.strategy", &["rollingUpdate", "RollingUpdateDeployment"]),
        ("leases.coordination.k8s.io", &["GROUP: coordination.k8s.io", "LeaseSpec"]),
        ("pki", &["GROUP: config.openshift.io", "metadata", "ObjectMeta", "spec"]),
        ("pki.metadata.name", &["FIELD: name <string>"]),
        ("pki.spec.defaults.key", &["algorithm", "-required-", "enum: RSA, ECDSA"]),
        ("serviceca.spec", &["unsupportedConfigOverrides"]),
    ] {
        let explained: Vec<String> = user
            .does(&format!("explain {of}"))
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
            .collect();
        let explained = explained.join("\n");
        for text in expected {
            assert!(explained.contains(text), "kubectl explain {of}: {text} is not in\n{explained}");
        }
    }
}

#[test]
fn every_documented_patch_is_accepted() {
    let user = User::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut pages = vec![root.join("README.md")];
    for part in fs::read_dir(root.join("docs")).unwrap() {
        pages.extend(fs::read_dir(part.unwrap().path()).unwrap().map(|page| page.unwrap().path()));
    }
    let mut patches = Vec::new();
    for page in pages.iter().filter(|page| page.extension().is_some_and(|it| it == "md")) {
        let text = fs::read_to_string(page).unwrap().replace("\\\n", " ");
        let commands =
            text.lines().map(|line| line.trim_start_matches("$ ")).filter(|line| line.starts_with("kubectl patch "));
        patches.extend(commands.map(ToOwned::to_owned));
    }
    assert!(!patches.is_empty(), "the pages have none");
    // Both documented resources, also if the pages change.
    let overrides = r#"{"spec":{"unsupportedConfigOverrides":{"forceRotation":{"reason":"a test"}}}}"#;
    patches.push(format!("kubectl patch serviceca cluster --type=merge -p '{overrides}'"));
    patches.push(
        "kubectl patch featuregate cluster --type=merge -p '{\"spec\":{\"featureSet\":\"CustomNoUpgrade\"}}'"
            .to_owned(),
    );
    for patch in patches {
        let kubectl = program("kubectl").unwrap_or_else(|error| panic!("{error}"));
        let mut shell = Command::new("sh");
        shell.env("KUBECONFIG", &user.kubeconfig).env("KUBECACHEDIR", user.top.path().join("cache"));
        let patched = shell.args(["-c", &patch.replacen("kubectl", kubectl.to_str().unwrap(), 1)]).output().unwrap();
        assert!(patched.status.success(), "{patch}: {}", String::from_utf8_lossy(&patched.stderr));
    }
}

/// Connects with openssl, and verifies the name of the server.
fn openssl_connects(address: &str, ca: &Path, check: [&str; 2]) -> Result<(), String> {
    let mut openssl = Command::new("openssl");
    openssl.args(["s_client", "-connect", address, "-verify_return_error", "-CAfile"]).arg(ca).args(check);
    let output = openssl.stdin(Stdio::null()).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Tests a network namespace with an address for clients.
#[test]
fn a_server_on_all_addresses_has_a_certificate_with_the_addresses_of_the_machine() {
    const ADDRESS: &str = "198.51.100.7";
    let top = directory();
    let data = top.path().join("data");
    let server = up(&data, &["--listen", "0.0.0.0:0"]);
    let mut command = Command::new("unshare");
    let script = format!("ip link set lo up && ip addr add {ADDRESS}/32 dev lo && exec \"$@\"");
    command.args(["--map-root-user", "--net", "sh", "-c", &script, "sh"]).arg(server.get_program());
    let running = Up::run(
        {
            command.args(server.get_args());
            command
        },
        &data,
    );
    let config: Value = serde_norway::from_str(&fs::read_to_string(running.kubeconfig()).unwrap()).unwrap();
    let cluster = &config["clusters"][0]["cluster"];
    let ca = top.path().join("ca.crt");
    fs::write(&ca, BASE64_STANDARD.decode(cluster["certificate-authority-data"].as_str().unwrap()).unwrap()).unwrap();
    let port = cluster["server"].as_str().unwrap().rsplit_once(':').unwrap().1.to_owned();
    let connects = |address: &str, checked: &str| {
        let mut openssl = Command::new("nsenter");
        openssl.args(["--user", "--net", "--preserve-credentials", "-t", &running.process().to_string(), "openssl"]);
        openssl.args(["s_client", "-connect", &format!("{address}:{port}"), "-verify_return_error", "-CAfile"]);
        openssl.arg(&ca).args(["-verify_ip", checked]);
        let output = openssl.stdin(Stdio::null()).output().unwrap();
        if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
    };
    for address in [ADDRESS, "127.0.0.1"] {
        assert_eq!(connects(address, address), Ok(()));
    }
    // An address that the machine does not have.
    assert!(connects(ADDRESS, "198.51.100.8").unwrap_err().contains("IP address mismatch"));
}

#[test]
fn a_server_on_another_address_has_a_certificate_with_it_and_additional_names() {
    let top = directory();
    let data = top.path().join("data");
    // Without additional names, the certificate has only localhost.
    let user = User::new();
    let ca = top.path().join("ca.crt");
    let write_ca = |user: &User| {
        let words = "config view --raw -o jsonpath={.clusters[0].cluster.certificate-authority-data}";
        fs::write(&ca, BASE64_STANDARD.decode(user.does(words)).unwrap()).unwrap();
    };
    let address = |user: &User| {
        let url = user.does("config view -o jsonpath={.clusters[0].cluster.server}");
        url.strip_prefix("https://").unwrap().to_owned()
    };
    write_ca(&user);
    assert_eq!(openssl_connects(&address(&user), &ca, ["-verify_hostname", "localhost"]), Ok(()));
    assert!(openssl_connects(&address(&user), &ca, ["-verify_hostname", "lab.test"]).is_err());
    drop(user);

    let names = ["--listen", "127.0.0.2:0", "--tls-san", "lab.test,192.0.2.7", "--tls-san", "2001:db8::7"];
    let running = Up::start(&data, &names);
    let user = User { kubeconfig: running.kubeconfig(), _running: Some(running), top: directory() };
    write_ca(&user);
    let address = address(&user);
    assert!(address.starts_with("127.0.0.2:"), "{address}");
    for check in [
        ["-verify_hostname", "localhost"],
        ["-verify_hostname", "lab.test"],
        ["-verify_ip", "127.0.0.2"],
        ["-verify_ip", "127.0.0.1"],
        ["-verify_ip", "192.0.2.7"],
        ["-verify_ip", "2001:db8::7"],
    ] {
        assert_eq!(openssl_connects(&address, &ca, check), Ok(()), "{check:?}");
    }
    assert!(openssl_connects(&address, &ca, ["-verify_hostname", "other.test"]).is_err());
    // kubectl needs no other server name, and accepts each name of the certificate.
    assert_eq!(user.does("config view -o jsonpath={.clusters[0].cluster.tls-server-name}"), "");
    user.does("get namespaces");
    user.does("get namespaces --tls-server-name lab.test");
    assert!(user.cannot("get namespaces --tls-server-name other.test", "").contains("other.test"));
    // A new certificate for localhost also replaces the certificate with additional names.
    let serial = |name: &str| {
        let shown = Command::new("sh").args(["-c", &format!("openssl s_client -connect {address} </dev/null 2>/dev/null | openssl x509 -noout -serial -ext subjectAltName")]).output().unwrap();
        let text = String::from_utf8(shown.stdout).unwrap();
        assert!(text.contains(name), "{text}");
        text
    };
    let before = serial("DNS:lab.test");
    user.does(
        "annotate secret localhost-serving-cert-certkey -n openshift-kube-apiserver perennial.dev/force-rotation=test",
    );
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while serial("DNS:lab.test") == before {
        assert!(std::time::Instant::now() < deadline, "it serves with the same certificate");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
fn metrics_with_tls_need_the_token() {
    let top = directory();
    let data = top.path().join("data");
    let command = common::up::up(&data, &["--metrics", "127.0.0.1:0", "--metrics-tls", "--log-format", "json"]);
    let running = Up::begin(command, "serving the Kubernetes API");
    let lines = running.output.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let url = lines.into_iter().find_map(|line| line["url"].as_str().map(ToOwned::to_owned)).unwrap();
    assert!(url.starts_with("https://"), "{url}");
    let token = fs::read_to_string(data.join("token")).unwrap();
    let ask = |url: &str, token: Option<&str>| {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--insecure",
            "--max-time",
            "30",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
            url,
        ]);
        if let Some(token) = token {
            curl.args(["--header", &format!("Authorization: Bearer {token}")]);
        }
        String::from_utf8(curl.output().unwrap().stdout).unwrap()
    };
    assert_eq!(ask(&url, Some(token.trim())), "200");
    assert_eq!(ask(&url, None), "401");
    assert_eq!(ask(&url, Some("another")), "401");
    assert_eq!(ask(&url.replace("/metrics", "/readyz"), None), "200");
    assert!(running.stop("-TERM").success());
}

/// Commands with which kubectl creates objects without a file, as protobuf.
const WITHOUT_A_FILE: &[&str] = &[
    "create deployment one --image=example.test/web:1 --port=8080 --replicas=0",
    "create deployment two --image=example.test/web:1 --image=example.test/proxy@sha256:00 --replicas=3",
    "create deployment three --image=example.test/web -- sleep 1h",
    "create service clusterip four --tcp=80:8080 --tcp=443:https --tcp=9090",
    "create service clusterip five --clusterip=None",
    "create service nodeport six --tcp=80 --node-port=30080",
    "create service loadbalancer seven --tcp=80",
    "create service externalname eight --external-name=example.test",
    "create configmap nine --from-literal=k=v",
    "create secret generic ten --from-literal=k=v",
    "create serviceaccount eleven",
    "create role twelve --verb=get,list --resource=pods,deployments.apps --resource-name=a",
    "create clusterrole thirteen --verb=get --non-resource-url=/version",
    "create clusterrole fourteen --aggregation-rule=a=b",
    "create rolebinding fifteen --role=twelve --user=me --group=us --serviceaccount=default:eleven",
    "create clusterrolebinding sixteen --clusterrole=thirteen --user=me",
    "create namespace seventeen",
];

/// Fields that only the real server sets, for kubelets and for routing to Services.
const ONLY_REAL: &[&str] = &[
    "/spec/progressDeadlineSeconds",
    "/spec/revisionHistoryLimit",
    "/spec/strategy/",
    "/spec/template/spec/containers/*/imagePullPolicy",
    "/spec/template/spec/containers/*/ports/*/protocol",
    "/spec/template/spec/containers/*/terminationMessagePath",
    "/spec/template/spec/containers/*/terminationMessagePolicy",
    "/spec/template/spec/dnsPolicy",
    "/spec/template/spec/restartPolicy",
    "/spec/template/spec/schedulerName",
    "/spec/template/spec/securityContext",
    "/spec/template/spec/terminationGracePeriodSeconds",
    "/spec/allocateLoadBalancerNodePorts",
    "/spec/clusterIP",
    "/spec/clusterIPs/",
    "/spec/externalTrafficPolicy",
    "/spec/internalTrafficPolicy",
    "/spec/ipFamilies/",
    "/spec/ipFamilyPolicy",
    "/spec/ports/*/nodePort",
];

#[tokio::test]
async fn objects_that_kubectl_creates_without_a_file_are_the_same_on_a_real_server() {
    let control_plane = ControlPlane::lease().await.unwrap_or_else(|error| panic!("{error}"));
    let (real, ours) = (User::of(&control_plane), User::new());
    let mut complaints = Vec::new();
    for words in WITHOUT_A_FILE {
        for more in [" --dry-run=server", ""] {
            // Arguments after two dashes are for the container.
            let (command, arguments) = words.split_once(" -- ").unwrap_or((words, ""));
            let words = format!("{command}{more} -o json -- {arguments}");
            let made = |user: &User| leaves(&serde_json::from_str(&user.does(&words)).unwrap());
            let (real, ours) = (made(&real), made(&ours));
            for at in real.keys().chain(ours.keys()).filter(|at| real.get(*at) != ours.get(*at)) {
                let is_filled_in = match (real.get(at), ours.get(at)) {
                    (Some(_), None) => is_only_real(at),
                    // A struct that is empty only on our server.
                    (None, Some(value)) => *value == json!({}) && is_only_real(&format!("{at}/")),
                    _ => false,
                };
                if !is_filled_in {
                    complaints.push(format!("{words}: {at}: {:?}, and ours has {:?}", real.get(at), ours.get(at)));
                }
            }
        }
    }
    assert!(complaints.is_empty(), "{}", complaints.join("\n"));
    for user in [&real, &ours] {
        check_certificate_requests(user);
    }
}

fn check_certificate_requests(user: &User) {
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]);
    let made = openssl.args(["-keyout", "/dev/null", "-subj", "/CN=tester"]).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let request = made.stdout;
    for (name, verb, decision) in [("yes", "approve", "Approved"), ("no", "deny", "Denied")] {
        let whole = json!({
            "apiVersion": "certificates.k8s.io/v1",
            "kind": "CertificateSigningRequest",
            "metadata": {"name": name},
            "spec": {
                "request": BASE64_STANDARD.encode(&request),
                "signerName": "example.test/signer",
                "usages": ["client auth"]
            },
        });
        user.does_with("create -f -", &whole.to_string());
        assert!(user.does(&format!("get csr {name} --no-headers")).contains("Pending"));
        user.does(&format!("certificate {verb} {name}"));
        assert!(user.does(&format!("get csr {name} --no-headers")).contains(decision));
        let found = user.json(&format!("get csr {name}"));
        assert!(found["spec"]["username"].as_str().unwrap().contains("admin"), "{found}");
        let condition = &found["status"]["conditions"][0];
        assert_eq!((&condition["type"], &condition["status"]), (&json!(decision), &json!("True")));
        assert!(condition["lastTransitionTime"].is_string(), "{condition}");
    }
    let refused = user.cannot("certificate deny yes", "");
    assert!(refused.contains("is already Approved"), "{refused}");
}

/// Returns whether a path is in that list, where `*` matches a number and a slash at the end matches all paths below.
fn is_only_real(at: &str) -> bool {
    let plain: Vec<&str> = at.split('/').map(|part| if part.parse::<usize>().is_ok() { "*" } else { part }).collect();
    let plain = plain.join("/");
    ONLY_REAL.iter().any(|known| plain == *known || known.ends_with('/') && plain.starts_with(known))
}

/// Returns all leaf values of an object by path, without values that differ each time.
fn leaves(value: &Value) -> BTreeMap<String, Value> {
    fn collect(at: String, value: &Value, found: &mut BTreeMap<String, Value>) {
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                for (name, value) in fields.iter().filter(|(name, _)| !CHANCE.contains(&name.as_str())) {
                    collect(format!("{at}/{name}"), value, found);
                }
            }
            Value::Array(items) if !items.is_empty() => {
                items.iter().enumerate().for_each(|(number, item)| collect(format!("{at}/{number}"), item, found));
            }
            value => drop(found.insert(at, value.clone())),
        }
    }
    const CHANCE: &[&str] = &["uid", "resourceVersion", "creationTimestamp", "time"];
    let mut found = BTreeMap::new();
    collect(String::new(), value, &mut found);
    found
}
