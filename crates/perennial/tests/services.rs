//! Tests certificates of Services on a real server: requested with kubectl, verified by openssl, rotated and distrusted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
    pub(crate) mod operator;
}

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use common::admin::Administrator;
use common::operator::Operator;
use perennial_testbed::kubernetes::ControlPlane;
use serde_json::{Value, json};

struct Shop<'a> {
    admin: Administrator,
    directory: &'a Path,
}

const POLICY: &str = "apiVersion: config.openshift.io/v1\nkind: PKI\nmetadata: {name: cluster}\nspec: {defaults: {key: {algorithm: ECDSA, ecdsa: {curve: P256}}}}\n";

/// Prepares a cluster with a policy and a node, without warnings.
fn prepare(admin: &Administrator) {
    admin.prepare_cluster();
    admin.kubectl_with("apply -f -", POLICY);
    let address = r#"{"status":{"addresses":[{"type":"InternalIP","address":"192.0.2.10"}]}}"#;
    admin.kubectl(&format!("patch node cp-0 --subresource=status --type=merge -p {address}"));
}

impl Shop<'_> {
    /// Starts an operator with the rights of the manifests, and a Service that has a certificate.
    fn open(&self) -> Operator {
        let admin = &self.admin;
        prepare(admin);
        let only = ["--controllers", "service-ca"];
        // Without an image, there is no Service of metrics, which would also get a certificate.
        let manifests = admin.perennial(&[&["manifests"][..], &only].concat());
        admin.kubectl_with("apply -f -", &manifests.out);
        let operator = Operator::start(admin, "openshift-service-ca-operator", &only, self.directory);
        admin.kubectl("create namespace shop");
        admin.kubectl("create service clusterip web --tcp=443 -n shop");
        admin.kubectl("annotate service web -n shop service.beta.openshift.io/serving-cert-secret-name=web-tls");
        let signed_by =
            |it: &Value| it["metadata"]["annotations"]["service.beta.openshift.io/serving-cert-signed-by"].is_string();
        self.soon("web is served", || signed_by(&self.get("service web -n shop")));
        operator
    }

    fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.admin.kubectl(&format!("get {what} -o json"))).unwrap()
    }

    /// Waits a few seconds for a condition.
    fn soon(&self, what: &str, is_so: impl Fn() -> bool) {
        self.within(what, Duration::from_secs(20), is_so);
    }

    fn within(&self, what: &str, limit: Duration, is_so: impl Fn() -> bool) {
        let deadline = Instant::now() + limit;
        while !is_so() {
            assert!(Instant::now() < deadline, "not after {} seconds: {what}", limit.as_secs());
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Returns the status and the message of a condition of the service CA.
    fn condition(&self, type_: &str) -> (String, String) {
        let operator = self.get("clusteroperator service-ca");
        let conditions = operator["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.iter().find(|it| it["type"] == type_);
        let text = |key: &str| found.and_then(|it| it[key].as_str()).unwrap_or_default().to_owned();
        (text("status"), text("message"))
    }

    /// Returns the chain in the Secret.
    fn chain(&self) -> String {
        let secret = self.get("secret web-tls -n shop");
        let pem = BASE64_STANDARD.decode(secret["data"]["tls.crt"].as_str().unwrap()).unwrap();
        String::from_utf8(pem).unwrap()
    }

    fn bundle(&self) -> String {
        self.get("configmap signing-cabundle -n openshift-service-ca")["data"]["ca-bundle.crt"]
            .as_str()
            .unwrap()
            .to_owned()
    }

    /// Returns the field managers of an object.
    fn writers(&self, what: &str) -> BTreeSet<String> {
        let object = self.get(&format!("{what} --show-managed-fields"));
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        entries.iter().map(|it| it["manager"].as_str().unwrap().to_owned()).collect()
    }

    /// Checks `explain` of a ConfigMap with this bundle and of the CA.
    fn check_explained(&self, bundle: &str) {
        let injected = || self.get("configmap trust -n shop")["data"]["service-ca.crt"] == *bundle;
        self.soon("the bundle is injected", injected);
        let container = json!({
            "name": "main", "image": "example.test/client", "volumeMounts": [{"name": "trust", "mountPath": "/trust"}],
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "client", "namespace": "shop"},
            "spec": {
                "containers": [container],
                "volumes": [{"name": "trust", "configMap": {"name": "trust"}}],
                "serviceAccountName": "client",
                "automountServiceAccountToken": false,
            },
        });
        let ask = || {
            let output = self.admin.perennial(&["explain", "shop/trust"]);
            assert_eq!(output.code, Some(0), "{}{}", output.out, output.err);
            output.out
        };
        assert!(ask().ends_with("No pod of shop mounts this ConfigMap or uses it in its environment.\n"), "{}", ask());
        self.admin.kubectl("create serviceaccount client -n shop");
        self.admin.kubectl_with("create -f -", &pod.to_string());
        let text = ask();
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for expected in [
            "shop/trust (ConfigMap)",
            "the operator of the service CA copies openshift-service-ca/signing-cabundle to the key service-ca.crt",
            "now the same as openshift-service-ca/signing-cabundle",
            ", the current service CA, expires ",
            ", an earlier service CA, expires ",
            "READ BY POD CONTAINER AS STARTED client main volume not yet",
        ] {
            assert!(words.contains(expected), "{expected:?} is not in {text}");
        }
        // All three CAs have the same name and differ in their keys.
        let keys: BTreeSet<&str> = words.split("(key ").skip(1).filter_map(|it| it.split(')').next()).collect();
        assert_eq!(keys.len(), 3, "{text}");
        assert_eq!(text.matches("  trusts  ").count(), bundle.matches("BEGIN CERTIFICATE").count(), "{text}");
        let output = self.admin.perennial(&["explain", "service-ca"]);
        assert!(
            output.out.contains("VERIFIED BY") && output.out.contains("service-serving shop/web-tls"),
            "{}",
            output.out
        );
    }

    /// Sets the status of the pod `client` as if it had started then.
    fn start_client(&self, began: &str) {
        let running = json!({
            "name": "main", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": began}},
        });
        let status = json!({"status": {"phase": "Running", "startTime": began, "containerStatuses": [running]}});
        let patch = status.to_string();
        let words = ["patch", "pod", "client", "-n", "shop", "--subresource=status", "--type=merge", "-p", &patch];
        let output = self.admin.kubectl_words(&words, "");
        assert_eq!(output.code, Some(0), "{}", output.err);
    }

    /// Returns openssl's description of the first certificate of a chain.
    fn describe(&self, chain: &str) -> String {
        let served = self.directory.join("described.pem");
        fs::write(&served, chain).unwrap();
        let output = Command::new("openssl").args(["x509", "-noout", "-text", "-in"]).arg(&served).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Verifies a chain with a bundle by openssl.
    fn judge(&self, chain: &str, bundle: &str) -> Result<(), String> {
        let [served, trusted] = ["served.pem", "trusted.pem"].map(|name| self.directory.join(name));
        fs::write(&served, chain).unwrap();
        fs::write(&trusted, bundle).unwrap();
        let mut openssl = Command::new("openssl");
        openssl.args([
            "verify",
            "-purpose",
            "sslserver",
            "-verify_hostname",
            "web.shop.svc",
            "-no-CApath",
            "-no-CAstore",
        ]);
        openssl.arg("-CAfile").arg(&trusted).arg("-untrusted").arg(&served).arg(&served);
        let output = openssl.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(text) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_keeps_working_through_a_rotation_and_a_distrust() {
    let control_plane = ControlPlane::lease().await.unwrap();
    let top = tempfile::tempdir().unwrap();
    let shop = Shop { admin: Administrator::new(control_plane.kubeconfig(), top.path()), directory: top.path() };
    let admin = &shop.admin;
    let operator = shop.open();
    let (old_chain, old_bundle) = (shop.chain(), shop.bundle());
    assert_eq!(shop.judge(&old_chain, &old_bundle), Ok(()));
    admin.kubectl("create configmap trust -n shop");
    let output = admin.perennial(&["explain", "shop/trust"]);
    assert_eq!((output.out.as_str(), output.code), ("", Some(1)));
    assert!(output.err.contains("ConfigMap shop/trust is not a bundle of the catalog"), "{}", output.err);
    assert!(output.err.contains("service.beta.openshift.io/inject-cabundle: \"true\""), "{}", output.err);
    admin.kubectl("annotate configmap trust -n shop service.beta.openshift.io/inject-cabundle=true");

    // Rotate only this certificate, once for a reason; then all certificates whose key does not follow the policy.
    let asked = admin.perennial(&["rotate", "shop/web-tls", "--reason", "copied", "--yes"]);
    assert_eq!(asked.out, "shop/web-tls: rotated\n1 rotated, 0 rotated before, 0 failed\n", "{}", asked.err);
    let rotated = shop.chain();
    assert_ne!(rotated, old_chain);
    assert_eq!(shop.judge(&rotated, &old_bundle), Ok(()));
    let again = admin.perennial(&["rotate", "service-serving", "--reason", "copied", "--yes"]);
    assert_eq!((again.code, again.out.lines().count()), (Some(0), 1), "{}{}", again.out, again.err);
    assert!(again.out.contains("not rotated: this reason was used") && shop.chain() == rotated, "{}", again.out);
    admin.kubectl_with("apply -f -", &POLICY.replace("P256", "P384"));
    let all = ["rotate", "--noncompliant", "--reason", "P384", "--yes", "--controllers", "service-ca"];
    let asked = admin.perennial(&all);
    assert_eq!(asked.code, Some(0), "{}{}", asked.out, asked.err);
    assert!(asked.out.ends_with(" 0 failed\n") && asked.out.contains("shop/web-tls: "), "{}", asked.out);
    assert!(shop.describe(&shop.chain()).contains("384 bit"), "{}", shop.describe(&shop.chain()));
    let (old_chain, old_bundle) = (shop.chain(), shop.bundle());

    // Without --yes, nothing changes.
    let dry = admin.perennial(&["distrust", "service-ca", "--reason", "a test"]);
    assert_eq!(dry.code, Some(3), "{}", dry.err);
    assert!(dry.out.contains("(shop/web-tls)") && dry.err.contains("dry run"), "{}{}", dry.out, dry.err);
    assert_eq!(shop.chain(), old_chain);
    for (arguments, error) in [
        (&["distrust", "etcd-signer", "--reason", "a test"][..], "service-ca"),
        (&["distrust", "service-ca"], "--reason"),
        (&["distrust", "service-ca", "--reason", " "], "must be one line, not empty"),
    ] {
        let output = admin.perennial(arguments);
        assert_eq!(output.code, Some(2), "{arguments:?}");
        assert!(output.err.contains(error), "{}", output.err);
    }

    // The dry run names the clients with the text of the operator's event.
    let (dry, until) =
        (admin.perennial(&["rotate", "service-ca", "--reason", "first"]), "accept new serving certificates until");
    assert!(dry.out.contains("CLIENTS OF SERVICES") && dry.out.contains(until), "{}{}", dry.out, dry.err);
    assert_eq!(shop.chain(), old_chain);
    let asked = admin.perennial(&["rotate", "service-ca", "--reason", "first", "--yes"]);
    assert_eq!(asked.code, Some(0), "{}", asked.err);
    shop.soon("web has another certificate", || shop.chain() != old_chain);
    let (new_chain, new_bundle) = (shop.chain(), shop.bundle());
    for chain in [&old_chain, &new_chain] {
        for bundle in [&old_bundle, &new_bundle] {
            assert_eq!(shop.judge(chain, bundle), Ok(()));
        }
    }
    shop.check_explained(&new_bundle);

    // A pod that started long before the distrust, so that the component stays degraded.
    shop.start_client("2020-01-01T00:00:00Z");
    let done = admin.perennial(&["distrust", "service-ca", "--reason", "leaked", "--yes"]);
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    assert!(done.out.contains("Rejected with the new bundle: shop/web-tls"), "{}", done.out);
    assert!(done.out.contains("Accepted with the new bundle: shop/web-tls"), "{}", done.out);
    let (last_chain, last_bundle) = (shop.chain(), shop.bundle());
    assert_eq!(last_bundle.matches("BEGIN CERTIFICATE").count(), 1);
    assert_eq!(shop.judge(&last_chain, &last_bundle), Ok(()));
    // The same reason a second time changes nothing, and one message says so.
    for arguments in [&["--yes"][..], &[]] {
        let again = admin.perennial(&[&["distrust", "service-ca", "--reason", "leaked"], arguments].concat());
        assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
        assert!(again.out.starts_with("service-ca: nothing to do: this reason was used on "), "{}", again.out);
        assert_eq!(again.err, "");
        assert_eq!(
            (again.out.lines().count(), shop.bundle(), shop.chain()),
            (1, last_bundle.clone(), last_chain.clone())
        );
    }
    // Clients with the previous or the new bundle accept the new certificate.
    for bundle in [&old_bundle, &new_bundle] {
        assert_eq!(shop.judge(&last_chain, bundle), Ok(()));
    }
    // Acknowledge: first a dry run, then the record, then nothing is left to acknowledge.
    let acknowledge = ["distrust", "service-ca", "--acknowledge"];
    let degraded = || shop.condition("Degraded");
    let (limit, remedy) = (Duration::from_secs(90), "--acknowledge");
    shop.within("the component is degraded", limit, || degraded().0 == "True" && degraded().1.contains(remedy));
    let dry = admin.perennial(&acknowledge);
    assert_eq!(dry.code, Some(3), "{}{}", dry.out, dry.err);
    assert!(dry.out.contains("still trust a distrusted CA") && dry.err.contains("dry run"), "{}{}", dry.out, dry.err);
    let done = admin.perennial(&[&acknowledge[..], &["--reason", "gateways restarted", "--yes"]].concat());
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    assert!(done.out.contains("Recorded on Secret openshift-service-ca/signing-key"), "{}", done.out);
    assert!(done.out.contains("updates the conditions of ClusterOperator service-ca within a minute"), "{}", done.out);
    for object in ["secret signing-key", "configmap signing-cabundle"] {
        let writers = shop.writers(&format!("{object} -n openshift-service-ca"));
        assert_eq!(writers, BTreeSet::from(["perennial".to_owned(), "perennial-cli".to_owned()]), "{object}");
    }
    let again = admin.perennial(&acknowledge);
    assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
    assert!(again.out.starts_with("service-ca: nothing to acknowledge"), "{}", again.out);
    shop.within("the component is no longer degraded", limit, || degraded().0 == "False");
    // No chain leads from the old CAs to the new bundle, with any cross-certificate.
    let everything = format!("{old_chain}{new_chain}{new_bundle}");
    for chain in [&old_chain, &new_chain, &everything] {
        let refused = shop.judge(chain, &last_bundle).unwrap_err();
        assert!(refused.contains("unable to get") || refused.contains("self-signed certificate"), "{refused}");
    }
    operator.had_its_rights();
}

/// After the loss of the CA's key, a Service keeps its certificate until its clients have reloaded, and every command reports this.
#[tokio::test(flavor = "multi_thread")]
async fn every_command_reports_a_waiting_service() {
    let control_plane = ControlPlane::lease().await.unwrap();
    let top = tempfile::tempdir().unwrap();
    let shop = Shop { admin: Administrator::new(control_plane.kubeconfig(), top.path()), directory: top.path() };
    let operator = shop.open();
    let (admin, chain) = (&shop.admin, shop.chain());
    let certs = || {
        let output = admin.perennial(&["certs", "--controllers", "service-ca"]);
        output.out.lines().find(|line| line.contains("shop/web-tls")).unwrap_or_default().to_owned()
    };
    assert!(!certs().contains("waits"), "{}", certs());
    let co = || admin.kubectl("get co service-ca --no-headers");
    shop.soon("the component says that nothing waits", || co().contains("as configured; nothing waits"));
    admin.kubectl("delete secret signing-key -n openshift-service-ca");
    shop.soon("the component says that a Service waits", || co().contains("1 of 1 Services wait for a certificate"));
    let plan = admin.perennial(&["plan", "--controllers", "service-ca"]).out;
    let waiting = plan.split_once("WAITING").map(|(_, waiting)| waiting).unwrap_or_default();
    assert!(waiting.contains("shop/web-tls (service-serving)"), "{plan}");
    assert!(certs().contains(" waits until "), "{}", certs());
    assert_eq!(shop.chain(), chain);
    operator.had_its_rights();
}

/// Broken edges of kube-apiserver do not change the exit code of commands for the service CA.
#[tokio::test(flavor = "multi_thread")]
async fn exit_codes_cover_only_the_chosen_components() {
    let control_plane = ControlPlane::lease().await.unwrap();
    let top = tempfile::tempdir().unwrap();
    let admin = Administrator::new(control_plane.kubeconfig(), top.path());
    prepare(&admin);
    let passed = admin.perennial(&["run", "--once", "--lease-namespace", "default"]);
    assert!([Some(0), Some(3)].contains(&passed.code), "{}", passed.err);
    let codes =
        |arguments: &[&str]| ["verify", "plan"].map(|command| admin.perennial(&[&[command], arguments].concat()).code);
    let only = ["--controllers", "service-ca"];
    assert!(!codes(&[]).contains(&Some(4)), "{:?}", codes(&[]));
    assert_eq!(codes(&only), [Some(0), Some(0)]);
    // Now kube-apiserver rejects all client certificates.
    let empty = ["patch", "configmap", "client-ca", "-n", "openshift-kube-apiserver", "--type=merge", "-p"];
    let patched = admin.kubectl_words(&[&empty[..], &[r#"{"data":{"ca-bundle.crt":""}}"#]].concat(), "");
    assert_eq!(patched.code, Some(0), "{}", patched.err);
    assert_eq!(codes(&[]), [Some(4), Some(4)]);
    assert_eq!(codes(&only), [Some(0), Some(0)]);
    for command in [
        &["rotate", "service-ca", "--reason", "x"][..],
        &["forecast", "--controllers", "service-ca"],
        &["run", "--once", "--lease-namespace", "default", "--controllers", "service-ca"],
    ] {
        let output = admin.perennial(command);
        assert_eq!(output.code, Some(0), "{command:?}: {}{}", output.out, output.err);
    }
    // None of them has repaired kube-apiserver.
    assert_eq!(codes(&[]), [Some(4), Some(4)]);
}
