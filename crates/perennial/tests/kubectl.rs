//! Stock kubectl against `perennial up`, without a flag that it would not need at work.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod up;
}

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::up::{Up, directory};
use perennial_testbed::kubernetes::program;
use serde_json::Value;
use tempfile::TempDir;

/// A user at a terminal.
struct User {
    // The server ends before its directory goes.
    _running: Up,
    kubeconfig: PathBuf,
    top: TempDir,
}

/// What kubectl said.
struct Said {
    out: String,
    err: String,
    is_done: bool,
}

impl User {
    fn new() -> User {
        let top = directory();
        let running = Up::start(&top.path().join("data"), &["--node", "cp-0=10.0.0.4", "--cluster-domain", "lab.test"]);
        User { kubeconfig: running.kubeconfig(), _running: running, top }
    }

    fn command(&self, words: &str) -> Command {
        let mut command = Command::new(program("kubectl").unwrap_or_else(|error| panic!("{error}")));
        // Its cache of what a server has goes by address, and ports come again.
        command.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", self.top.path().join("cache"));
        command.current_dir(self.top.path()).args(words.split_whitespace());
        command
    }

    fn says(&self, words: &str, input: &str) -> Said {
        let mut command = self.command(words);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Said { out: text(output.stdout), err: text(output.stderr), is_done: output.status.success() }
    }

    /// What it prints where it succeeds.
    fn does(&self, words: &str) -> String {
        self.does_with(words, "")
    }

    fn does_with(&self, words: &str, input: &str) -> String {
        let said = self.says(words, input);
        assert!(said.is_done, "kubectl {words}\n{}{}", said.out, said.err);
        said.out
    }

    /// What it complains about where it fails.
    fn cannot(&self, words: &str, input: &str) -> String {
        let said = self.says(words, input);
        assert!(!said.is_done, "kubectl {words}\n{}", said.out);
        said.err
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
fn what_the_flags_say_stays_until_they_say_something_else() {
    let top = directory();
    let data = top.path().join("data");
    let start = |arguments: &[&str]| {
        let running = Up::start(&data, arguments);
        User { kubeconfig: running.kubeconfig(), _running: running, top: directory() }
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
fn kubectl_behaves_as_at_work() {
    let user = User::new();
    it_reads(&user);
    it_writes(&user);
    it_applies(&user);
    it_edits_the_policy(&user);
    it_waits_and_watches(&user);
    it_deletes(&user);
}

fn it_reads(user: &User) {
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

fn it_writes(user: &User) {
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

fn it_applies(user: &User) {
    user.file("m.yaml", MAP);
    assert!(user.does("apply -f m.yaml").contains("configmap/m created"));
    assert!(user.does("apply -f m.yaml").contains("configmap/m unchanged"));
    user.file("m.yaml", &MAP.replace(", b: '2'", ""));
    let difference = user.says("diff -f m.yaml", "");
    assert!(difference.out.contains("-  b: \"2\""), "{}{}", difference.out, difference.err);
    assert!(user.does("apply -f m.yaml").contains("configmap/m configured"));
    assert_eq!(user.json("get configmap m")["data"], serde_json::json!({"a": "1"}));
    user.file("m.yaml", &MAP.replace("'2'", "'3'"));
    assert!(user.does("replace -f m.yaml").contains("configmap/m replaced"));
    assert_eq!(user.json("get configmap m")["data"]["b"], "3");
    // Server-side: whoever owns a field keeps it until somebody insists.
    user.file("n.yaml", &MAP.replace("name: m", "name: other"));
    user.does("apply --server-side -f n.yaml");
    user.file("n.yaml", &MAP.replace("name: m", "name: other").replace("'2'", "'4'"));
    let conflict = user.cannot("apply --server-side --field-manager=other -f n.yaml", "");
    assert!(conflict.contains("Apply failed with 1 conflict: conflict with \"kubectl\": .data.b"), "{conflict}");
    user.does("apply --server-side --field-manager=other --force-conflicts -f n.yaml");
    assert_eq!(user.json("get configmap other")["data"]["b"], "4");
}

fn it_edits_the_policy(user: &User) {
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

fn it_waits_and_watches(user: &User) {
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

fn it_deletes(user: &User) {
    user.does("delete configmap m other");
    user.does("delete namespace shop --timeout=60s");
    assert!(user.cannot("get namespace shop", "").contains("NotFound"));
    assert!(user.cannot("get secret s -n shop", "").contains("NotFound"));
    // A definition takes its objects with it.
    user.does("delete crd featuregates.config.openshift.io --timeout=60s");
    // kubectl still remembers that there was such a resource.
    let gone = user.cannot("get featuregates", "");
    assert!(gone.contains("the server could not find the requested resource"), "{gone}");
}
