//! `perennial manifests` on a real cluster that is not OpenShift: one `kubectl apply`, and the operator works with the rights that it
//! was given.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
}

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use common::admin::Administrator;
use perennial_testbed::kubernetes::ControlPlane;
use serde_json::{Value, json};

/// The namespaces that every cluster has.
const EVERYWHERE: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];

/// An operator, which ends with the test.
struct Operator {
    child: Child,
    log: PathBuf,
}

impl Operator {
    /// Starts it with the account that the manifests made, and with nothing else.
    fn start(admin: &Administrator, namespace: &str, arguments: &[&str], directory: &Path) -> Operator {
        let token = admin.kubectl(&format!("create token perennial -n {namespace}"));
        let mut config: Value = serde_json::from_str(&admin.kubectl("config view --raw -o json")).unwrap();
        config["users"][0]["user"] = json!({"token": token});
        let [kubeconfig, log] = ["account.kubeconfig", "operator.log"].map(|name| directory.join(name));
        fs::write(&kubeconfig, config.to_string()).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        command.args(["run", "--metrics", "127.0.0.1:0", "--kubeconfig"]).arg(&kubeconfig).args(arguments);
        command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        Operator { child: command.spawn().unwrap(), log }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
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
async fn one_apply_is_enough_and_a_service_gets_a_certificate() {
    let control_plane = ControlPlane::start().await.unwrap();
    let top = tempfile::tempdir().unwrap();
    let admin = Administrator::new(control_plane.kubeconfig(), top.path());
    let manifests = |arguments: &[&str]| {
        let said = admin.perennial(&[&["manifests"], arguments].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        said.out
    };
    admin.kubectl_with("create -f -", &admin.perennial(&["crds"]).out);
    let image = ["--controllers", "service-ca", "--image", "registry.example.com/perennial:0.1.0"];
    admin.kubectl_with("apply -f -", &manifests(&image));
    let ours = ["openshift-config-managed", "openshift-service-ca", "openshift-service-ca-operator"];
    assert_eq!(namespaces(&admin), ours.map(str::to_owned).into());

    let account = "openshift-service-ca-operator";
    let operator = Operator::start(&admin, account, &["--controllers", "service-ca"], top.path());
    admin.kubectl("create namespace shop");
    admin.kubectl("create service clusterip web --tcp=443 -n shop");
    admin.kubectl("annotate service web -n shop service.beta.openshift.io/serving-cert-secret-name=web-tls");
    let chain = soon(
        "a certificate for web",
        || operator.log(),
        || {
            let said = admin.kubectl_words(&["get", "secret", "web-tls", "-n", "shop", "-o", "json"], "");
            (said.code == Some(0)).then(|| decoded(&serde_json::from_str(&said.out).unwrap(), "tls.crt"))
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

    // It says that all is well, and was refused nothing.
    soon(
        "a healthy component",
        || operator.log(),
        || {
            let said = admin.kubectl_words(&["get", "clusteroperator", "service-ca", "-o", "json"], "");
            let object: Value = serde_json::from_str(&said.out).ok()?;
            let conditions = object["status"]["conditions"].as_array()?.clone();
            let is =
                |kind: &str, status: &str| conditions.iter().any(|it| it["type"] == kind && it["status"] == status);
            (is("Available", "True") && is("Degraded", "False")).then_some(())
        },
    );
    let log = operator.log();
    assert!(!log.contains("forbidden") && !log.contains("Forbidden"), "{log}");
    drop(operator);

    // The same for everything, on top of that.
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
