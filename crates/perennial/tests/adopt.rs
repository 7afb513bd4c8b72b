//! Tests that `perennial run` takes over the certificates of `perennial install` on a real cluster: it replaces none early, and the
//! kubeconfigs of the installation keep working.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
    pub(crate) mod dated;
}

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use base64::prelude::{BASE64_STANDARD, Engine};
use common::admin::{Administrator, CommandOutput, shift_clock};
use common::dated::Dated;
use jiff::SignedDuration;
use perennial_testbed::kubernetes::ControlPlane;
use serde_json::Value;
use tempfile::TempDir;

const CONFIG: &str = "\
apiVersion: v1
metadata: {name: shop}
baseDomain: example.com
networking: {serviceNetwork: [172.30.0.0/16]}
pki:
  signerCertificates:
    key: {algorithm: ECDSA, ecdsa: {curve: P384}}
";

/// The signers that the running cluster takes over, and the file of each.
const SIGNERS: [(&str, &str, &str); 7] = [
    ("openshift-kube-apiserver-operator", "aggregator-client-signer", "aggregator-signer"),
    ("openshift-kube-apiserver-operator", "kube-apiserver-to-kubelet-signer", "kube-apiserver-to-kubelet-signer"),
    ("openshift-kube-apiserver-operator", "kube-control-plane-signer", "kube-control-plane-signer"),
    ("openshift-kube-apiserver-operator", "loadbalancer-serving-signer", "kube-apiserver-lb-signer"),
    ("openshift-kube-apiserver-operator", "localhost-serving-signer", "kube-apiserver-localhost-signer"),
    ("openshift-kube-apiserver-operator", "service-network-serving-signer", "kube-apiserver-service-network-signer"),
    ("openshift-kube-controller-manager-operator", "csr-signer-signer", "kubelet-signer"),
];

fn secret(admin: &Administrator, namespace: &str, name: &str) -> BTreeMap<String, String> {
    let secret: Value =
        serde_json::from_str(&admin.kubectl(&format!("get secret {name} -n {namespace} -o json"))).unwrap();
    let data: BTreeMap<String, String> = serde_json::from_value(secret["data"].clone()).unwrap();
    let text = |value: String| String::from_utf8(BASE64_STANDARD.decode(value).unwrap()).unwrap();
    data.into_iter().map(|(key, value)| (key, text(value))).collect()
}

fn bundle(admin: &Administrator, namespace: &str, name: &str) -> String {
    let map: Value =
        serde_json::from_str(&admin.kubectl(&format!("get configmap {name} -n {namespace} -o json"))).unwrap();
    map["data"]["ca-bundle.crt"].as_str().unwrap().to_owned()
}

/// Checks that OpenSSL accepts a leaf with its chain and this bundle at a later time.
fn openssl_accepts(directory: &Path, trust: &str, leaf: &str, purpose: &str, ahead: &str) {
    let [trust_file, leaf_file] = ["trust.pem", "leaf.pem"].map(|name| directory.join(name));
    fs::write(&trust_file, trust).unwrap();
    fs::write(&leaf_file, leaf).unwrap();
    let mut openssl = Command::new("openssl");
    shift_clock(&mut openssl, ahead);
    openssl.args(["verify", "-x509_strict", "-purpose", purpose]);
    openssl.arg("-CAfile").arg(&trust_file).arg("-untrusted").arg(&leaf_file).arg(&leaf_file);
    let output = openssl.output().unwrap();
    assert!(output.status.success(), "{ahead}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Returns a field of the administrator's kubeconfig.
fn of_kubeconfig(path: &Path, field: &str) -> String {
    let text = fs::read_to_string(path).unwrap();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{field}: "))).unwrap();
    String::from_utf8(BASE64_STANDARD.decode(line.trim_matches('"')).unwrap()).unwrap()
}

/// An installed cluster, and the files of its installation.
struct Installed {
    // Fields are dropped in this order.
    _control_plane: ControlPlane,
    admin: Administrator,
    /// A proxy that also shifts the server's clock.
    dated: Dated,
    out: PathBuf,
    top: TempDir,
}

impl Installed {
    async fn new() -> Installed {
        let control_plane = ControlPlane::lease().await.unwrap();
        let top = tempfile::tempdir().unwrap();
        let admin = Administrator::new(control_plane.kubeconfig(), top.path());
        let [config, out] = ["install-config.yaml", "installed"].map(|name| top.path().join(name));
        fs::write(&config, CONFIG).unwrap();
        let paths = [config.to_str().unwrap(), out.to_str().unwrap()];
        let installed = admin.perennial(&["install", "--install-config", paths[0], "--out", paths[1]]);
        assert_eq!(installed.code, Some(0), "{}", installed.err);
        admin.prepare_cluster();
        admin.kubectl(&format!("apply -f {}", out.join("manifests").display()));
        let dated = Dated::open(admin.kubeconfig(), top.path());
        Installed { _control_plane: control_plane, admin, dated, out, top }
    }

    /// Runs perennial at a later time of both the machine and the cluster.
    fn later(&self, ahead: &str, arguments: &[&str]) -> CommandOutput {
        self.dated.set(if ahead == "+0" { SignedDuration::ZERO } else { ahead[1..].parse().unwrap() });
        self.admin.perennial_later(self.dated.kubeconfig(), ahead, arguments)
    }

    /// Makes one pass at a later time, and checks that no edge is broken.
    fn pass(&self, ahead: &str) -> String {
        let passed = self.later(ahead, &["run", "--once"]);
        assert_eq!(passed.code, Some(0), "{ahead}: {}{}", passed.out, passed.err);
        let verified = self.later(ahead, &["verify"]);
        assert!(verified.out.contains(" 0 broken,"), "{ahead}: {}{}", verified.out, verified.err);
        passed.out
    }

    /// Checks that the kubeconfigs of the installation work at a later time.
    fn kubeconfigs_work(&self, ahead: &str) {
        for (kubeconfig, name) in [("kubeconfig", "external"), ("kubeconfig-kubelet", "internal")] {
            let path = self.out.join("auth").join(kubeconfig);
            let name = format!("{name}-loadbalancer-serving-certkey");
            let served = secret(&self.admin, "openshift-kube-apiserver", &name);
            let trust = of_kubeconfig(&path, "certificate-authority-data");
            openssl_accepts(self.top.path(), &trust, &served["tls.crt"], "sslserver", ahead);
            let client = of_kubeconfig(&path, "client-certificate-data");
            let accepted = bundle(&self.admin, "openshift-kube-apiserver", "client-ca");
            openssl_accepts(self.top.path(), &accepted, &client, "sslclient", ahead);
        }
    }
}

/// Returns the number of Day-1 certificates in the bundle.
fn first_day(bundle: &str, file: &Path) -> usize {
    let certificate = fs::read_to_string(file).unwrap();
    bundle.matches(certificate.trim()).count()
}

#[tokio::test]
async fn the_operator_takes_over_certificates_of_the_installation_unchanged() {
    let cluster = Installed::new().await;
    let Installed { admin, out, .. } = &cluster;

    let first = admin.perennial(&["run", "--once"]);
    assert_eq!(first.code, Some(0), "{}{}", first.out, first.err);
    // The words that people search for in logs.
    for phrase in [
        "crypto test passed",
        "requires a new signing cert/key pair",
        "Updating signing cert/key pair",
        "requires a new cert:",
        "Updating CA bundle",
        "requires a new target cert/key pair",
        "Updating target cert/key pair",
    ] {
        assert!(first.err.contains(phrase), "{phrase} is not in the log:\n{}", first.err);
    }
    for (namespace, name, file) in SIGNERS {
        let found = secret(admin, namespace, name);
        let path = out.join("tls").join(file);
        assert_eq!(found["tls.crt"], fs::read_to_string(path.with_extension("crt")).unwrap(), "{name}");
        assert!(!first.out.contains(&format!("issue {namespace}/{name}:")), "{}", first.out);
    }
    // The operator issues the other 16 certificates from the Day-1 signers, and the service CA.
    assert_eq!(first.out.lines().filter(|line| line.starts_with("issue ")).count(), 16, "{}", first.out);
    let verified = admin.perennial(&["verify"]);
    // One-day certificates expire within a week; no edge is broken.
    assert_eq!(verified.code, Some(3), "{}{}", verified.out, verified.err);
    assert!(verified.out.contains(" 0 broken,"), "{}", verified.out);
    let again = admin.perennial(&["run", "--once"]);
    assert!(again.out.starts_with("0 writes,"), "{}", again.out);

    cluster.kubeconfigs_work("+0");

    // The cluster knows this bundle, so the proof covers its readers, too.
    let carried = bundle(admin, "openshift-config", "initial-kube-apiserver-server-ca");
    assert_eq!(carried, fs::read_to_string(out.join("tls/kube-apiserver-complete-server-ca-bundle.crt")).unwrap());
    // No operator runs, so do not wait.
    let ask = ["rotate", "kube-apiserver-lb-signer", "--reason", "a rehearsal", "--yes", "--no-wait"];
    let planned = admin.perennial(&ask);
    assert_eq!(planned.code, Some(0), "{}", planned.err);
    let rotated = admin.perennial(&["run", "--once"]);
    assert_eq!(rotated.code, Some(0), "{}{}", rotated.out, rotated.err);
    assert!(rotated.out.contains("loadbalancer-serving-signer: forced rotation: a rehearsal"), "{}", rotated.out);
    cluster.kubeconfigs_work("+0");
}

#[tokio::test]
async fn one_day_certificates_are_replaced_in_time_without_broken_edges() {
    let cluster = Installed::new().await;
    let Installed { admin, out, .. } = &cluster;
    cluster.pass("+0");
    let [aggregator, kubelet] = ["aggregator-signer", "kubelet-signer"].map(|it| out.join(format!("tls/{it}.crt")));
    assert!(cluster.pass("+18h").starts_with("0 writes,"), "nothing is due");

    // After 80 % of a day, new signers replace both signers, and the bundles trust both.
    let written = cluster.pass("+20h");
    for signer in ["aggregator-client-signer", "csr-signer-signer"] {
        assert!(written.contains(&format!("operator/{signer}: past refresh time (80% of validity)")), "{written}");
    }
    let trusted = |name: &str| bundle(admin, "openshift-config-managed", name);
    assert_eq!(first_day(&trusted("kube-apiserver-aggregator-client-ca"), &aggregator), 1);
    assert_eq!(first_day(&trusted("csr-controller-ca"), &kubelet), 1);

    // Their certificates follow when every verifier has the new bundle.
    let written = cluster.pass("+1225m");
    for step in [
        "issue openshift-kube-apiserver/aggregator-client: ",
        "copy openshift-kube-controller-manager-operator/csr-signer to openshift-kube-controller-manager/csr-signer",
    ] {
        assert!(written.contains(step), "{step} is not in {written}");
    }
    cluster.kubeconfigs_work("+1225m");

    // Bundles no longer contain expired signers.
    cluster.pass("+25h");
    assert_eq!(first_day(&trusted("kube-apiserver-aggregator-client-ca"), &aggregator), 0);
    assert_eq!(first_day(&trusted("csr-controller-ca"), &kubelet), 0);

    // A cluster that was off until every leaf has expired recovers without help.
    let back = cluster.later("+960h", &["run", "--once"]);
    assert!(matches!(back.code, Some(0 | 3 | 4)), "{}{}", back.out, back.err);
    let half_an_hour_later = "+57630m";
    cluster.pass(half_an_hour_later);
    cluster.kubeconfigs_work(half_an_hour_later);
}
