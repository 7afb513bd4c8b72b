//! Tests `perennial manifests` on a real cluster that is not OpenShift: after one `kubectl apply`, the operator works with exactly these
//! rights.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
    pub(crate) mod operator;
}

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use common::admin::Administrator;
use common::operator::Operator;
use perennial_testbed::kubernetes::{ControlPlane, program};
use serde_json::{Value, json};

/// The namespaces that every cluster has.
const EVERYWHERE: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// The page with the tested commands.
const PAGE: &str = include_str!("../../../docs/how-to/install-on-any-kubernetes.md");

/// Runs the commands of the page up to the start of the operator, and returns the kubeconfig of the service account.
fn follow_the_page(admin: &Administrator, directory: &Path) -> PathBuf {
    let section = PAGE.split("## Try it without an image").nth(1).unwrap().split("\n## ").next().unwrap();
    let commands: Vec<&str> = section.lines().filter_map(|line| line.strip_prefix("$ ")).collect();
    let (start, commands) = commands.split_last().unwrap();
    assert_eq!(*start, "perennial run --controllers service-ca --kubeconfig=$OPERATOR");
    let kubectl = program("kubectl").unwrap();
    let programs = [kubectl.parent().unwrap(), Path::new(env!("CARGO_BIN_EXE_perennial")).parent().unwrap()];
    let path = std::env::var_os("PATH").unwrap();
    let programs = programs.map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    let output = Command::new("bash")
        .args(["-euo", "pipefail", "-c", &format!("{}\necho $OPERATOR >&2", commands.join("\n"))])
        .env("PATH", std::env::join_paths(programs).unwrap())
        .env("KUBECONFIG", admin.kubeconfig())
        .current_dir(directory)
        .output()
        .unwrap();
    let err = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{err}");
    directory.join(err.lines().last().unwrap())
}

/// Returns the kubeconfig of a service account with exactly these rules in the whole cluster.
fn account_with(admin: &Administrator, name: &str, rules: &Value, directory: &Path) -> PathBuf {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules,
    });
    admin.kubectl_with("apply -f -", &role.to_string());
    admin.kubectl(&format!("create serviceaccount {name} -n shop"));
    admin.kubectl(&format!("create clusterrolebinding {name} --clusterrole={name} --serviceaccount=shop:{name}"));
    let token = admin.kubectl(&format!("create token {name} -n shop"));
    let mut config: Value = serde_json::from_str(&admin.kubectl("config view --raw -o json")).unwrap();
    config["users"][0]["user"] = json!({"token": token});
    let kubeconfig = directory.join(name);
    fs::write(&kubeconfig, config.to_string()).unwrap();
    kubeconfig
}

fn namespaces(admin: &Administrator) -> BTreeSet<String> {
    let names = admin.kubectl("get namespaces -o name");
    let names = names.lines().map(|line| line.strip_prefix("namespace/").unwrap().to_owned());
    names.filter(|name| !EVERYWHERE.contains(&name.as_str())).collect()
}

fn soon<T>(what: &str, log: impl Fn() -> String, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(90);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen:\n{}", log());
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn decoded(secret: &Value, key: &str) -> String {
    String::from_utf8(BASE64_STANDARD.decode(secret["data"][key].as_str().unwrap()).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn after_one_apply_a_service_gets_a_certificate() {
    let control_plane = ControlPlane::lease().await.unwrap();
    let top = tempfile::tempdir().unwrap();
    let admin = Administrator::new(control_plane.kubeconfig(), top.path());
    let manifests = |arguments: &[&str]| {
        let output = admin.perennial(&[&["manifests"], arguments].concat());
        assert_eq!(output.code, Some(0), "{}", output.err);
        output.out
    };
    admin.kubectl_with("create -f -", &admin.perennial(&["crds"]).out);
    let image = ["--controllers", "service-ca", "--image", "registry.example.com/perennial:0.1.0"];
    admin.kubectl_with("apply -f -", &manifests(&image));
    let ours = ["openshift-config-managed", "openshift-service-ca", "openshift-service-ca-operator"];
    assert_eq!(namespaces(&admin), ours.map(str::to_owned).into());

    let kubeconfig = follow_the_page(&admin, top.path());
    let operator = Operator::with(&kubeconfig, &["--controllers", "service-ca"], top.path());
    admin.kubectl("create namespace shop");
    admin.kubectl("create service clusterip web --tcp=443 -n shop");
    admin.kubectl("annotate service web -n shop service.beta.openshift.io/serving-cert-secret-name=web-tls");
    let chain = soon(
        "a certificate for web",
        || operator.log(),
        || {
            let output = admin.kubectl_words(&["get", "secret", "web-tls", "-n", "shop", "-o", "json"], "");
            (output.code == Some(0)).then(|| decoded(&serde_json::from_str(&output.out).unwrap(), "tls.crt"))
        },
    );
    let map = admin.kubectl("get configmap signing-cabundle -n openshift-service-ca -o json");
    let bundle = serde_json::from_str::<Value>(&map).unwrap()["data"]["ca-bundle.crt"].as_str().unwrap().to_owned();
    let [trusted, served] = ["trusted.pem", "served.pem"].map(|name| top.path().join(name));
    fs::write(&trusted, bundle).unwrap();
    fs::write(&served, chain).unwrap();
    let mut openssl = Command::new("openssl");
    openssl.args(["verify", "-x509_strict", "-purpose", "sslserver", "-verify_hostname", "web.shop.svc", "-CAfile"]);
    let judged = openssl.arg(&trusted).arg("-untrusted").arg(&served).arg(&served).output().unwrap();
    assert!(judged.status.success(), "{}", String::from_utf8_lossy(&judged.stderr));

    // The conditions are healthy, and the API server has denied no request.
    soon(
        "a healthy component",
        || operator.log(),
        || {
            let output = admin.kubectl_words(&["get", "clusteroperator", "service-ca", "-o", "json"], "");
            let object: Value = serde_json::from_str(&output.out).ok()?;
            let conditions = object["status"]["conditions"].as_array()?.clone();
            let is =
                |kind: &str, status: &str| conditions.iter().any(|it| it["type"] == kind && it["status"] == status);
            (is("Available", "True") && is("Degraded", "False")).then_some(())
        },
    );
    operator.had_its_rights();
    // The Service of the operator has a certificate for metrics.
    let own = ["get", "secret", "perennial-metrics-tls", "-n", "openshift-service-ca-operator"];
    let is_issued = || (admin.kubectl_words(&own, "").code == Some(0)).then_some(());
    soon("a certificate for metrics", || operator.log(), is_issued);
    drop(operator);
    check_few_rights(&admin, top.path());

    // Then apply the manifests of all components.
    let all = manifests(&[]);
    admin.kubectl_with("apply -f -", &all);
    let named = all.lines().filter_map(|line| line.strip_prefix("  namespace: "));
    let mut named: BTreeSet<String> = named.map(ToOwned::to_owned).collect();
    named.retain(|name| !EVERYWHERE.contains(&name.as_str()));
    named.insert("shop".to_owned());
    assert_eq!(namespaces(&admin), named);
    let without = manifests(&["--no-namespaces"]);
    assert!(all.contains("kind: Namespace\n") && !without.contains("kind: Namespace\n"));
    assert!(all.ends_with(&without), "nothing else differs");
}

/// Checks `verify` and `certs` with a service account that may read only a part of the service CA.
fn check_few_rights(admin: &Administrator, directory: &Path) {
    let about = ["--controllers", "service-ca"];
    let ask = |kubeconfig: &Path, command: &[&str]| {
        let mut perennial = Command::new(env!("CARGO_BIN_EXE_perennial"));
        let output = perennial.args(command).args(about).env("KUBECONFIG", kubeconfig).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(output.stdout), text(output.stderr), output.status.code())
    };
    let (out, err, code) = ask(admin.kubeconfig(), &["verify"]);
    assert_eq!((err.as_str(), code), ("", Some(0)), "{out}");
    let (out, ..) = ask(admin.kubeconfig(), &["certs", "-o", "json"]);
    let listed: Value = serde_json::from_str(&out).unwrap();
    let items = listed["items"].as_array().unwrap();
    let names: BTreeSet<&str> = items.iter().filter_map(|it| it["name"].as_str()).collect();
    assert_eq!(names, BTreeSet::from(["service-ca", "service-serving"]));

    let read = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list"]});
    let of_cluster = ["config.openshift.io", "operator.openshift.io"].map(|group| read(group, &["*"]));
    let rules = |core: &[&str]| json!([read("", core), of_cluster[0], of_cluster[1]]);
    // Without the list of Services, edges are unknown; without the Secret of a Service, its certificate is unknown.
    let no_services = account_with(admin, "no-services", &rules(&["nodes", "secrets", "configmaps"]), directory);
    let no_secrets = account_with(admin, "no-secrets", &rules(&["nodes", "services", "configmaps"]), directory);
    // Without the right to read any Secret, the commands fail.
    let (out, err, code) = ask(&no_secrets, &["verify"]);
    assert_eq!((out.as_str(), code), ("", Some(1)), "{err}");
    assert!(err.starts_with("error: failed to read the cluster: secrets "), "{err}");
    admin.kubectl("create role no-secrets -n openshift-service-ca --verb=get --resource=secrets");
    admin.kubectl(
        "create rolebinding no-secrets -n openshift-service-ca --role=no-secrets --serviceaccount=shop:no-secrets",
    );
    for (kubeconfig, unread) in [(&no_services, "the list of Services"), (&no_secrets, "Secret shop/web-tls")] {
        let (out, err, code) = ask(kubeconfig, &["verify"]);
        assert_eq!(code, Some(3), "{out}{err}");
        assert!(err.contains(&format!("warning: {unread} could not be read: ")), "{err}");
    }
}
