//! Tests the authorization of metrics of `perennial run` on a real cluster with its manifests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
}

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::admin::Administrator;
use perennial_testbed::check::promtool_check_metrics;
use perennial_testbed::kubernetes::ControlPlane;
use serde_json::Value;

const NAMESPACE: &str = "openshift-kube-apiserver-operator";
/// An additional flag, with its own rights.
const BESIDES: &str = "--publish-service-ca";

/// An operator that stops with the test.
struct Operator {
    child: Child,
    url: String,
}

impl Operator {
    fn start(kubeconfig: &Path) -> Operator {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        command.args(["run", "--metrics", "127.0.0.1:0", "--metrics-tls", "--kubeconfig"]).arg(kubeconfig);
        command.arg(BESIDES);
        let mut child = command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap());
        let mut output = String::new();
        let url = loop {
            let mut line = String::new();
            assert_ne!(log.read_line(&mut line).unwrap(), 0, "it ended: {output}");
            let url = serde_json::from_str::<Value>(&line).ok().and_then(|line| find_url(&line));
            output += &line;
            if let Some(url) = url {
                break url;
            }
        };
        // Read the log, because a full pipe would block the operator.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Operator { child, url }
    }

    /// Requests a path with curl, and returns the status and the body.
    fn ask(&self, path: &str, token: Option<&str>) -> (String, String) {
        let url = self.url.replace("/metrics", path);
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--insecure",
            "--max-time",
            "30",
            "--write-out",
            "\n%{http_code}",
            &url,
        ]);
        if let Some(token) = token {
            curl.args(["--header", &format!("Authorization: Bearer {token}")]);
        }
        let output = curl.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let (text, status) = text.rsplit_once('\n').unwrap();
        (status.to_owned(), text.to_owned())
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn find_url(line: &Value) -> Option<String> {
    let url = line.get("url").or_else(|| line.get("fields")?.get("url"))?;
    url.as_str().map(str::to_owned)
}

/// Returns a kubeconfig of a service account.
fn kubeconfig_of(admin: &Administrator, account: &str, directory: &Path) -> PathBuf {
    let token = admin.kubectl(&format!("create token {account} -n {NAMESPACE}"));
    let mut config: Value = serde_json::from_str(&admin.kubectl("config view --raw -o json")).unwrap();
    config["users"][0]["user"] = serde_json::json!({"token": token});
    let path = directory.join(format!("{account}.kubeconfig"));
    fs::write(&path, config.to_string()).unwrap();
    path
}

/// Returns the metrics of an installation.
fn installed(admin: &Administrator, directory: &Path) -> String {
    let [config, out] = ["install-config.yaml", "installed"].map(|name| directory.join(name));
    let text = "apiVersion: v1\nbaseDomain: example.com\nmetadata: {name: demo}\nplatform: {none: {}}\n\
                pki: {signerCertificates: {key: {algorithm: ECDSA, ecdsa: {curve: P256}}}}\n";
    fs::write(&config, text).unwrap();
    let arguments = ["install", "--install-config", config.to_str().unwrap(), "--out", out.to_str().unwrap()];
    let made = admin.perennial(&arguments);
    assert_eq!(made.code, Some(0), "{}", made.err);
    fs::read_to_string(out.join("openshift_pki_installer.prom")).unwrap()
}

/// The label names of a series, and the bounds of a histogram.
type Labels = (BTreeSet<String>, BTreeSet<String>);

/// Returns the labels of each series about certificates. All series of a name have the same label names.
fn series(text: &str) -> BTreeMap<String, Labels> {
    let mut found: BTreeMap<String, Labels> = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("openshift_pki_certificate_")) {
        let (name, rest) = line.split_once('{').unwrap();
        // No value of a label contains a comma or an equals sign.
        let labels = rest.split_once('}').unwrap().0.split(',').map(|label| label.split_once('=').unwrap());
        let labels: BTreeMap<&str, &str> = labels.collect();
        let names: BTreeSet<String> = labels.keys().map(|&name| name.to_owned()).collect();
        let bound = labels.get("le").map(|&bound| bound.to_owned());
        let known = found.entry(name.to_owned()).or_insert_with(|| (names.clone(), BTreeSet::new()));
        assert_eq!(known.0, names, "{line}");
        known.1.extend(bound);
    }
    found
}

#[tokio::test]
async fn metrics_over_tls_need_an_authorized_token() {
    let control_plane = ControlPlane::lease().await.unwrap();
    let top = tempfile::tempdir().unwrap();
    let admin = Administrator::new(control_plane.kubeconfig(), top.path());

    // Read-only commands work on any cluster.
    for words in ["certs", "certs -o json", "plan", "verify", "forecast", "explain aggregator-client", "snapshot"] {
        let output = admin.perennial(&words.split(' ').collect::<Vec<_>>());
        assert!(matches!(output.code, Some(0 | 3 | 4)), "perennial {words}: {:?} {}", output.code, output.err);
        assert!(!output.out.is_empty(), "perennial {words}");
    }

    // A real server accepts the manifests.
    let image = ["manifests", "--image", "registry.example.com/perennial:1"];
    let manifests = admin.perennial(&[&image[..], &[BESIDES]].concat()).out;
    assert!(manifests.contains(&format!("- {BESIDES}\n")), "{manifests}");
    admin.prepare_cluster();
    let applied = admin.kubectl_with("apply -f -", &manifests);
    for made in [
        "deployment.apps/perennial created",
        "service/perennial created",
        "clusterrole.rbac.authorization.k8s.io/perennial created",
    ] {
        assert!(applied.contains(made), "{made} is not in\n{applied}");
    }

    let operator = Operator::start(&kubeconfig_of(&admin, "perennial", top.path()));
    for account in ["prometheus", "stranger"] {
        admin.kubectl(&format!("create serviceaccount {account} -n {NAMESPACE}"));
    }
    let role = "--clusterrole perennial-metrics-reader";
    admin.kubectl(&format!("create clusterrolebinding reads {role} --serviceaccount {NAMESPACE}:prometheus"));
    let token = |account: &str| admin.kubectl(&format!("create token {account} -n {NAMESPACE}"));

    // The probes need no token.
    assert_eq!(operator.ask("/livez", None), ("200".to_owned(), "ok".to_owned()));
    assert_eq!(operator.ask("/metrics", None).0, "401");
    assert_eq!(operator.ask("/metrics", Some("made up")).0, "401");
    let (status, why) = operator.ask("/metrics", Some(&token("stranger")));
    assert_eq!(status, "403");
    assert!(why.contains(":stranger may not get /metrics"), "{why}");
    for _ in 0..600 {
        if operator.ask("/readyz", None).0 == "200" {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(operator.ask("/readyz", None).0, "200", "a pass has ended");
    // With these rights, the operator writes conditions.
    let text = admin.kubectl("get clusteroperator kube-apiserver -o json");
    assert!(text.contains("CertRotation_AggregatorClientSigner_Degraded"), "{text}");
    let reader = token("prometheus");
    let (status, text) = operator.ask("/metrics", Some(&reader));
    assert_eq!(status, "200", "{text}");
    promtool_check_metrics(&text).unwrap();
    assert!(text.contains("openshift_pki_certificate_generated_total"), "{text}");
    // One query reads the series of the installer and of the operator.
    let (operators, installers) = (series(&text), series(&installed(&admin, top.path())));
    assert_eq!(installers.len(), 5, "{installers:?}");
    for (name, labels) in &installers {
        assert_eq!(operators.get(name), Some(labels), "{name}");
    }
    for (reason, count) in [("UnknownToken", 1), ("Forbidden", 1), ("TooManyTokens", 0), ("ReviewFailed", 0)] {
        let line = format!("perennial_metrics_requests_refused_total{{reason=\"{reason}\"}} {count}\n");
        assert!(text.contains(&line), "{line} {text}");
    }
    // Every namespace has the CA bundle of Services, with the rights of --publish-service-ca.
    let data = |map: &str, key: &str| {
        let found = admin.kubectl(&format!("get configmap -o json --ignore-not-found {map}"));
        let found: Value = serde_json::from_str(&found).unwrap_or_default();
        found["data"][key].as_str().map(str::to_owned)
    };
    let is_given = || {
        let given = data("-n default openshift-service-ca.crt", "service-ca.crt");
        given.is_some() && given == data("-n openshift-service-ca signing-cabundle", "ca-bundle.crt")
    };
    for _ in 0..300 {
        if is_given() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(is_given());
    // Without TLS, there is no answer.
    let plain = Command::new("curl").args(["--silent", &operator.url.replace("https:", "http:")]).output().unwrap();
    assert!(!plain.status.success());
}
