//! The certificates of Services on a real server, as an administrator sees them: asked for with kubectl, judged by openssl, rotated,
//! and distrusted.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
}

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use common::admin::Administrator;
use perennial_testbed::kubernetes::ControlPlane;
use serde_json::Value;

/// `perennial run`, which ends with the test.
struct Operator(Child);

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Shop<'a> {
    admin: Administrator,
    directory: &'a Path,
}

impl Shop<'_> {
    fn get(&self, what: &str) -> Value {
        serde_json::from_str(&self.admin.kubectl(&format!("get {what} -o json"))).unwrap()
    }

    /// Waits until kubectl says so: for seconds, not for minutes.
    fn soon(&self, what: &str, is_so: impl Fn() -> bool) {
        for _ in 0..100 {
            if is_so() {
                return;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        panic!("not after twenty seconds: {what}");
    }

    /// The first certificate of a Secret, and everything in its file.
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

    /// What openssl says of the first certificate of a chain.
    fn describe(&self, chain: &str) -> String {
        let served = self.directory.join("described.pem");
        fs::write(&served, chain).unwrap();
        let said = Command::new("openssl").args(["x509", "-noout", "-text", "-in"]).arg(&served).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    }

    /// What openssl says of a served chain with a bundle.
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
        let said = openssl.output().unwrap();
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        if said.status.success() { Ok(()) } else { Err(text) }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_is_served_through_a_rotation_and_its_old_ca_is_distrusted() {
    let control_plane = ControlPlane::start().await.unwrap();
    let top = tempfile::tempdir().unwrap();
    let shop = Shop { admin: Administrator::new(control_plane.kubeconfig(), top.path()), directory: top.path() };
    let admin = &shop.admin;
    admin.prepare_cluster();
    let policy = "apiVersion: config.openshift.io/v1\nkind: PKI\nmetadata: {name: cluster}\nspec: {defaults: {key: {algorithm: ECDSA, ecdsa: {curve: P256}}}}\n";
    admin.kubectl_with("apply -f -", policy);
    let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
    command.args(["run", "--controllers", "service-ca", "--metrics", "127.0.0.1:0", "--lease-namespace", "default"]);
    command.env("KUBECONFIG", admin.kubeconfig()).stdout(Stdio::null()).stderr(Stdio::null());
    let operator = Operator(command.spawn().unwrap());

    admin.kubectl("create namespace shop");
    admin.kubectl("create service clusterip web --tcp=443 -n shop");
    admin.kubectl("annotate service web -n shop service.beta.openshift.io/serving-cert-secret-name=web-tls");
    let signed_by =
        |it: &Value| it["metadata"]["annotations"]["service.beta.openshift.io/serving-cert-signed-by"].is_string();
    shop.soon("web is served", || signed_by(&shop.get("service web -n shop")));
    let (old_chain, old_bundle) = (shop.chain(), shop.bundle());
    assert_eq!(shop.judge(&old_chain, &old_bundle), Ok(()));

    // A rotation of this certificate alone, once for a reason; and of all that the policy asks other keys for.
    let asked = admin.perennial(&["rotate", "shop/web-tls", "--reason", "copied", "--yes"]);
    assert_eq!(asked.out, "shop/web-tls: rotated\n1 rotated, 0 already, 0 failed\n", "{}", asked.err);
    let rotated = shop.chain();
    assert_ne!(rotated, old_chain);
    assert_eq!(shop.judge(&rotated, &old_bundle), Ok(()));
    let again = admin.perennial(&["rotate", "service-serving", "--reason", "copied", "--yes"]);
    assert_eq!((again.code, again.out.lines().count()), (Some(0), 1), "{}{}", again.out, again.err);
    assert!(again.out.contains("not rotated: this reason was used") && shop.chain() == rotated, "{}", again.out);
    admin.kubectl_with("apply -f -", &policy.replace("P256", "P384"));
    let all = ["rotate", "--noncompliant", "--reason", "P384", "--yes", "--controllers", "service-ca"];
    let asked = admin.perennial(&all);
    assert_eq!(asked.code, Some(0), "{}{}", asked.out, asked.err);
    assert!(asked.out.ends_with(" 0 failed\n") && asked.out.contains("shop/web-tls: "), "{}", asked.out);
    assert!(shop.describe(&shop.chain()).contains("384 bit"), "{}", shop.describe(&shop.chain()));
    let (old_chain, old_bundle) = (shop.chain(), shop.bundle());

    // Without --yes nothing happens.
    let dry = admin.perennial(&["distrust", "service-ca", "--reason", "a test"]);
    assert_eq!(dry.code, Some(3), "{}", dry.err);
    assert!(dry.out.contains("(shop/web-tls)") && dry.err.contains("dry run"), "{}{}", dry.out, dry.err);
    assert_eq!(shop.chain(), old_chain);
    for (arguments, error) in [
        (&["distrust", "etcd-signer", "--reason", "a test"][..], "service-ca"),
        (&["distrust", "service-ca"], "--reason"),
        (&["distrust", "service-ca", "--reason", " "], "a few words"),
    ] {
        let said = admin.perennial(arguments);
        assert_eq!(said.code, Some(2), "{arguments:?}");
        assert!(said.err.contains(error), "{}", said.err);
    }

    let asked = admin.perennial(&["rotate", "service-ca", "--reason", "first", "--yes"]);
    assert_eq!(asked.code, Some(0), "{}", asked.err);
    shop.soon("web has another certificate", || shop.chain() != old_chain);
    let (new_chain, new_bundle) = (shop.chain(), shop.bundle());
    for chain in [&old_chain, &new_chain] {
        for bundle in [&old_bundle, &new_bundle] {
            assert_eq!(shop.judge(chain, bundle), Ok(()));
        }
    }

    let done = admin.perennial(&["distrust", "service-ca", "--reason", "leaked", "--yes"]);
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    assert!(done.out.contains("Refused with the new bundle: shop/web-tls"), "{}", done.out);
    assert!(done.out.contains("Accepted with the new bundle: shop/web-tls"), "{}", done.out);
    let (last_chain, last_bundle) = (shop.chain(), shop.bundle());
    assert_eq!(last_bundle.matches("BEGIN CERTIFICATE").count(), 1);
    assert_eq!(shop.judge(&last_chain, &last_bundle), Ok(()));
    // The same reason a second time does nothing, and says so once.
    for arguments in [&["--yes"][..], &[]] {
        let again = admin.perennial(&[&["distrust", "service-ca", "--reason", "leaked"], arguments].concat());
        assert_eq!(again.code, Some(0), "{}{}", again.out, again.err);
        assert!(again.out.starts_with("service-ca: nothing to do: this reason was used on "), "{}", again.out);
        assert_eq!(
            (again.out.lines().count(), shop.bundle(), shop.chain()),
            (1, last_bundle.clone(), last_chain.clone())
        );
    }
    // Who has not read the new bundle is not cut off from who has a new certificate.
    for bundle in [&old_bundle, &new_bundle] {
        assert_eq!(shop.judge(&last_chain, bundle), Ok(()));
    }
    // And nobody comes from the old ones to the new one, whatever is sent with them.
    let everything = format!("{old_chain}{new_chain}{new_bundle}");
    for chain in [&old_chain, &new_chain, &everything] {
        let refused = shop.judge(chain, &last_bundle).unwrap_err();
        assert!(refused.contains("unable to get") || refused.contains("self-signed certificate"), "{refused}");
    }
    drop(operator);
}
