//! Tests `perennial rotate` against `perennial up`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
    pub(crate) mod up;
}

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use common::admin::{Administrator, CommandOutput};
use common::up::{Up, directory};
use perennial_x509::read_certificates;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A cluster with all certificates.
struct Lab {
    // The server is dropped before its directory.
    _running: Up,
    admin: Administrator,
    _top: TempDir,
}

impl Lab {
    fn new() -> Lab {
        let top = directory();
        let running = Up::start(&top.path().join("data"), &[]);
        let admin = Administrator::new(running.kubeconfig(), top.path());
        let lab = Lab { _running: running, admin, _top: top };
        lab.wait_until("every certificate is there", |items| {
            let kept = items.iter().filter(|it| !it["name"].as_str().unwrap().starts_with("etcd"));
            kept.filter(|it| it["state"] == "present").count() >= 22
        });
        lab.wait_until_finished(&[]);
        lab
    }

    fn perennial(&self, arguments: &[&str]) -> CommandOutput {
        self.admin.perennial(arguments)
    }

    /// Sets a policy that changes the keys of these certificates only.
    fn want(&self, names: &[&str]) {
        let key = json!({"algorithm": "ECDSA", "ecdsa": {"curve": "P256"}});
        let overrides: Vec<Value> =
            names.iter().map(|name| json!({"certificateName": name, "certificate": {"key": key}})).collect();
        let patch = json!({"spec": {"overrides": overrides}}).to_string();
        let patched = self.admin.kubectl_words(&["patch", "pki", "cluster", "--type=merge", "-p", &patch], "");
        assert_eq!(patched.code, Some(0), "{}", patched.err);
    }

    fn certificates(&self) -> Vec<Value> {
        let listed = self.perennial(&["certs", "-o", "json"]);
        let mut list: Value = serde_json::from_str(&listed.out).unwrap_or_else(|_| panic!("{}", listed.err));
        serde_json::from_value(list["items"].take()).unwrap()
    }

    fn wait_until(&self, what: &str, is_so: impl Fn(&[Value]) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(120);
        while !is_so(&self.certificates()) {
            assert!(Instant::now() < deadline, "not so after two minutes: {what}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits until the operator has no write left, except to objects that it cannot write.
    ///
    /// After the write of a Secret, the operator still writes the bundles that contain its certificate.
    fn wait_until_finished(&self, except: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(120);
        loop {
            let planned = self.perennial(&["plan", "-o", "json"]);
            let plan: Value = serde_json::from_str(&planned.out).unwrap_or_else(|_| panic!("{}", planned.err));
            let due = plan["steps"].as_array().unwrap().iter().map(|step| step["object"].as_str().unwrap());
            let due: Vec<&str> = due.filter(|object| !except.contains(object)).collect();
            if due.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "still to write after two minutes: {due:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Returns the certificates whose key does not follow the policy.
    fn noncompliant(&self) -> BTreeSet<String> {
        let wrong = self.certificates().into_iter().filter(|it| it["compliant"] == false);
        wrong.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn noncompliant_certificates_are_rotated_a_few_at_a_time() {
    let lab = Lab::new();
    let nothing = lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--yes"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("nothing to rotate: every key follows the policy"), "{}", nothing.err);

    let wanted = ["aggregator-signer", "kube-apiserver-lb-signer", "kube-apiserver-localhost-signer"];
    lab.want(&wanted);
    assert_eq!(lab.noncompliant(), names(wanted));

    // A dry run prints the plan and writes nothing.
    let dry = lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--at-once", "2"]);
    assert_eq!(dry.code, Some(0));
    let table: Vec<&str> = dry.out.lines().filter(|line| line.contains("RSA 2048   ECDSA P256")).collect();
    assert_eq!(table.len(), 3, "{}", dry.out);
    assert_eq!(dry.out.matches("forced rotation: March").count(), 2, "{}", dry.out);
    assert!(dry.err.contains("asks for 2 new certificates, then for 1 more"), "{}", dry.err);
    assert!(
        !lab.admin.kubectl("get secrets -A -o json").contains("perennial.dev/force-rotation"),
        "no rotation was requested"
    );
    assert_eq!(lab.noncompliant(), names(wanted));

    let first =
        lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--at-once", "1", "--no-wait", "--yes"]);
    assert_eq!(first.out.matches("asked for a new certificate").count(), 1, "{}", first.out);
    assert!(first.err.contains("2 more to rotate"), "{}", first.err);
    lab.wait_until("one of them is replaced", |items| items.iter().filter(|it| it["compliant"] == false).count() == 2);

    // The same reason continues with the other certificates, and rotates none twice.
    lab.wait_until_finished(&[]);
    let rest = lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--at-once", "1", "--yes"]);
    assert_eq!(rest.code, Some(0), "{}{}", rest.out, rest.err);
    assert_eq!(rest.err.matches("asked for a new certificate").count(), 2, "{}", rest.err);
    assert!(rest.out.ends_with("\n2 rotated, 0 rotated before, 0 failed\n"), "{}", rest.out);
    assert_eq!(lab.noncompliant(), names([]));

    // With another policy and the old reason, nothing is rotated, and one message says so.
    lab.want(&[]);
    for arguments in [&["--yes"][..], &[]] {
        let again = lab.perennial(&[&["rotate", "--noncompliant", "--reason", "March"], arguments].concat());
        assert_eq!(again.code, Some(1), "{}", again.out);
        assert_eq!(
            again.err,
            "error: 3 certificates: not rotated: this reason was used before; pass another --reason\n"
        );
    }
    assert_eq!(lab.noncompliant(), names(wanted));
}

/// Creates Services with RSA certificates.
fn with_services(lab: &Lab, count: usize) {
    lab.admin.kubectl("create namespace shop");
    for number in 0..count {
        let asks = json!({"service.beta.openshift.io/serving-cert-secret-name": format!("web-{number}-tls")});
        let metadata = json!({"name": format!("web-{number}"), "namespace": "shop", "annotations": asks});
        let spec = json!({"ports": [{"port": 443}]});
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec});
        lab.admin.kubectl_with("create -f -", &service.to_string());
    }
    lab.wait_until("every Service has a certificate", |items| {
        items.iter().filter(|it| it["namespace"] == "shop" && it["state"] == "present").count() == count
    });
}

/// Returns the certificates of Services by Secret.
fn served(lab: &Lab) -> BTreeMap<String, Value> {
    let list: Value = serde_json::from_str(&lab.admin.kubectl("get secrets -n shop -o json")).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    items.map(|it| (it["metadata"]["name"].as_str().unwrap().to_owned(), it["data"]["tls.crt"].clone())).collect()
}

/// Returns the number of changed certificates.
fn changed(one: &BTreeMap<String, Value>, other: &BTreeMap<String, Value>) -> usize {
    assert!(one.keys().eq(other.keys()));
    one.iter().filter(|(name, certificate)| other[*name] != **certificate).count()
}

#[test]
fn certificates_of_services_are_rotated_by_policy_row_and_secret_with_exact_totals() {
    const COUNT: usize = 12;
    let lab = Lab::new();
    with_services(&lab, COUNT);
    let key = json!({"key": {"algorithm": "ECDSA", "ecdsa": {"curve": "P256"}}});
    let categories = json!([{"category": "ServingCertificate", "certificate": key}]);
    let patch = json!({"spec": {"categories": categories}}).to_string();
    let patched = lab.admin.kubectl_words(&["patch", "pki", "cluster", "--type=merge", "-p", &patch], "");
    assert_eq!(patched.code, Some(0), "{}", patched.err);
    assert!(lab.noncompliant().contains("service-serving"));

    // The serving certificates of the control plane stay as they are.
    let before = served(&lab);
    let all =
        ["rotate", "--noncompliant", "--controllers", "service-ca", "--reason", "March", "--at-once", "3", "--yes"];
    let rotated = lab.perennial(&all);
    assert_eq!(rotated.code, Some(0), "{}{}", rotated.out, rotated.err);
    assert!(rotated.out.ends_with("\n12 rotated, 0 rotated before, 0 failed\n"), "{}", rotated.out);
    assert!(!lab.noncompliant().contains("service-serving"));
    let after = served(&lab);
    assert_eq!(changed(&before, &after), COUNT);

    // One certificate by its Secret: a dry run, the rotation, and a second call with the same reason.
    lab.wait_until_finished(&[]);
    let one = ["rotate", "shop/web-3-tls", "--reason", "copied"];
    let dry = lab.perennial(&one);
    assert_eq!(dry.code, Some(0), "{}{}", dry.out, dry.err);
    assert!(
        dry.out.contains("shop/web-3-tls") && dry.out.contains("1 write due now, 0 waiting, 0 risks"),
        "{}",
        dry.out
    );
    assert!(dry.err.contains("dry run: --yes asks for 1 new certificate"), "{}", dry.err);
    let done = lab.perennial(&[&one[..], &["--yes"]].concat());
    assert_eq!(done.code, Some(0), "{}{}", done.out, done.err);
    assert_eq!(done.out, "shop/web-3-tls: rotated\n1 rotated, 0 rotated before, 0 failed\n");
    let one_more = served(&lab);
    assert_eq!(changed(&after, &one_more), 1);
    for arguments in [&one[..], &[&one[..], &["--yes"]].concat()] {
        let again = lab.perennial(arguments);
        assert_eq!((again.code, again.err.as_str()), (Some(0), ""), "{}", again.out);
        assert!(again.out.starts_with("shop/web-3-tls: not rotated: this reason was used"), "{}", again.out);
        assert_eq!(again.out.lines().count(), 1);
    }
    assert_eq!(served(&lab), one_more);

    // All certificates by the row. The totals include certificates that were rotated before.
    let all = lab.perennial(&["rotate", "service-serving", "--reason", "copied", "--at-once", "4", "--yes"]);
    assert_eq!(all.code, Some(0), "{}{}", all.out, all.err);
    assert!(all.out.ends_with("\n11 rotated, 1 rotated before, 0 failed\n"), "{}", all.out);
    assert_eq!(changed(&one_more, &served(&lab)), COUNT - 1);

    // An immutable Secret counts as failed, and the command completes.
    let immutable = ["patch", "secret", "web-0-tls", "-n", "shop", "--type=merge", "-p", r#"{"immutable": true}"#];
    assert_eq!(lab.admin.kubectl_words(&immutable, "").code, Some(0));
    let rest = lab.perennial(&["rotate", "service-serving", "--reason", "once more", "--yes"]);
    assert_eq!(rest.code, Some(1), "{}{}", rest.out, rest.err);
    assert!(rest.out.contains("shop/web-0-tls: failed: "), "{}", rest.out);
    assert!(rest.out.ends_with("\n11 rotated, 0 rotated before, 1 failed\n"), "{}", rest.out);
    assert!(rest.err.contains("error: 1 certificate not rotated; the first: shop/web-0-tls: "), "{}", rest.err);

    // certs, explain and rotate accept the same names.
    for name in ["service-serving", "shop/web-3-tls", "aggregator-client", "openshift-kube-apiserver/aggregator-client"]
    {
        for command in [&["certs", name][..], &["explain", name], &["rotate", name, "--reason", "names"]] {
            let output = lab.perennial(command);
            assert_eq!(output.code, Some(0), "{command:?}: {}", output.err);
        }
    }
    for command in [
        &["certs", "shop/web-3-tl"][..],
        &["explain", "shop/web-3-tl"],
        &["rotate", "shop/web-3-tl", "--reason", "names"],
    ] {
        let output = lab.perennial(command);
        assert_eq!((output.code, output.out.as_str()), (Some(1), ""), "{command:?}");
        assert!(
            output.err.contains(
                "unknown name \"shop/web-3-tl\"; similar names: shop/web-3-tls, shop/web-0-tls and shop/web-1-tls"
            ),
            "{}",
            output.err
        );
    }
    // With --controllers service-ca, the output covers only the service CA.
    let verified = lab.perennial(&["verify", "--controllers", "service-ca"]);
    assert!(verified.out.contains("service-serving") && !verified.out.contains("aggregator"), "{}", verified.out);

    // All commands show the same dates, also for waits.
    let signer = lab.perennial(&["rotate", "kube-control-plane-signer", "--reason", "dates", "--yes"]);
    assert_eq!(signer.code, Some(0), "{}{}", signer.out, signer.err);
    lab.perennial(&["rotate", "kube-controller-manager-client-cert-key", "--reason", "dates", "--no-wait", "--yes"]);
    lab.wait_until_finished(&["shop/web-0-tls"]);
    let mut waiting = 0;
    for item in lab.certificates().iter().filter(|it| it["nextRotation"].is_object()) {
        waiting += usize::from(item["waiting"].is_string());
        let name = format!("{}/{}", item["namespace"].as_str().unwrap(), item["secret"].as_str().unwrap());
        let explained = lab.perennial(&["explain", &name]).out;
        if name == "shop/web-0-tls" {
            assert!(explained.contains("  next rotation now: forced rotation: once more"), "{explained}");
            continue;
        }
        let next = explained.lines().find_map(|line| line.strip_prefix("  next rotation ")).unwrap();
        let listed: jiff::Timestamp = item["nextRotation"]["at"].as_str().unwrap().parse().unwrap();
        assert!(next.starts_with(&listed.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()), "{item}\n{explained}");
    }
    assert!(waiting > 0, "nothing waits");
    let one = lab.perennial(&["certs", "shop/web-3-tls", "-o", "json"]);
    assert_eq!(serde_json::from_str::<Value>(&one.out).unwrap()["items"].as_array().unwrap().len(), 1);
}

/// Returns the annotations of the Secret of the service CA.
fn written(lab: &Lab) -> Value {
    let secret = lab.admin.kubectl("get secret signing-key -n openshift-service-ca -o json");
    serde_json::from_str::<Value>(&secret).unwrap()["metadata"]["annotations"].take()
}

/// Waits until the Secret of the service CA has this annotation, and the operator has published its certificate.
fn wait_for(lab: &Lab, annotation: &str, value: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while written(lab)[annotation] != value {
        assert!(Instant::now() < deadline, "{annotation} is not {value}: {}", written(lab));
        std::thread::sleep(Duration::from_millis(200));
    }
    lab.wait_until_finished(&[]);
    let get = |object: &str| -> Value {
        serde_json::from_str(&lab.admin.kubectl(&format!("get {object} -n openshift-service-ca -o json"))).unwrap()
    };
    let chain = get("secret signing-key")["data"]["tls.crt"].as_str().map(|it| BASE64_STANDARD.decode(it).unwrap());
    let ca = read_certificates(&chain.unwrap()).unwrap().remove(0);
    let bundle = get("configmap signing-cabundle")["data"]["ca-bundle.crt"].take();
    let bundle = read_certificates(bundle.as_str().unwrap().as_bytes()).unwrap();
    assert!(bundle.contains(&ca), "the bundle does not contain the CA");
}

/// Returns until when clients that have not reloaded accept new certificates, in the order of a dry run or of an Event.
fn accepted_until(text: &str) -> Vec<String> {
    let clients = text.split("clients that have not reloaded the trust bundle since ").skip(1);
    let until = clients.map(|it| it.split_once(" accept new serving certificates until ").unwrap().1);
    // In the Event, other text follows.
    until.map(|it| it[..it.find('Z').unwrap() + 1].to_owned()).collect()
}

/// Returns the messages of the Events about forced rotations of the service CA with this reason.
fn announced(lab: &Lab, reason: &str) -> BTreeSet<String> {
    let events = lab.admin.kubectl("get events -A -o json --field-selector reason=ServiceCARotationForced");
    let events: Value = serde_json::from_str(&events).unwrap();
    let messages = events["items"].as_array().unwrap().iter().map(|it| it["message"].as_str().unwrap().to_owned());
    messages.filter(|it| it.contains(&format!("for the reason {reason:?}"))).collect()
}

#[test]
fn the_service_ca_is_rotated_at_once_for_each_new_reason() {
    const FORCED: &str = "perennial.dev/forced-rotation";
    const REASON: &str = "service-ca.operators.openshift.io/forced-rotation-reason";
    let lab = Lab::new();
    let dry = lab.perennial(&["rotate", "service-ca", "--reason", "leaked"]);
    assert_eq!(dry.code, Some(0), "{}", dry.err);
    assert!(
        dry.out.contains("openshift-service-ca/signing-key") && dry.out.contains("forced rotation: leaked"),
        "{}",
        dry.out
    );
    assert_eq!(written(&lab).get(FORCED), None, "no rotation was requested");
    let asked = lab.perennial(&["rotate", "service-ca", "--reason", "leaked", "--yes"]);
    assert_eq!(asked.code, Some(0), "{}", asked.err);
    let rotated = "openshift-service-ca/signing-key: rotated\n1 rotated, 0 rotated before, 0 failed\n";
    assert_eq!(asked.out, rotated, "{}", asked.err);
    wait_for(&lab, FORCED, "leaked");

    // A reason in the resource soon after does not wait, either.
    let overrides = json!({"forceRotation": {"reason": "once more"}});
    let spec = json!({"managementState": "Managed", "unsupportedConfigOverrides": overrides});
    let metadata = json!({"name": "cluster"});
    let object =
        json!({"apiVersion": "operator.openshift.io/v1", "kind": "ServiceCA", "metadata": metadata, "spec": spec});
    let applied = lab.admin.kubectl_words(&["apply", "-f", "-"], &object.to_string());
    assert_eq!(applied.code, Some(0), "{}", applied.err);
    wait_for(&lab, REASON, "once more");
    assert_eq!(written(&lab)[FORCED], "leaked");
    // Rotations in the same second have the same clients. The next one is in another second than the last one.
    std::thread::sleep(Duration::from_secs(1));
    let dry = lab.perennial(&["rotate", "service-ca", "--reason", "now"]);
    assert!(dry.out.contains("forced rotation: now"), "{}", dry.out);
    let expected = accepted_until(&dry.out);
    assert!((2..=3).contains(&expected.len()), "{}", dry.out);
    let asked = lab.perennial(&["rotate", "service-ca", "--reason", "now", "--yes"]);
    assert_eq!(asked.out, rotated, "{}", asked.err);
    // The Event of the operator names the same clients as the dry run.
    let messages = announced(&lab, "now");
    assert!(!messages.is_empty(), "there is no Event");
    messages.iter().for_each(|it| assert_eq!(accepted_until(it), expected, "{it}\n{}", dry.out));
    assert_eq!((&written(&lab)[FORCED], &written(&lab)[REASON]), (&json!("now"), &json!("once more")));
    let again = lab.perennial(&["rotate", "service-ca", "--reason", "now"]);
    assert!(again.out.contains("signing-key: not rotated: this reason was used"), "{}{}", again.out, again.err);

    // With Unmanaged, the CA is not rotated.
    let unmanaged = r#"{"spec": {"managementState": "Unmanaged"}}"#;
    lab.admin.kubectl_words(&["patch", "serviceca", "cluster", "--type=merge", "-p", unmanaged], "");
    let refused = lab.perennial(&["rotate", "service-ca", "--reason", "once more", "--yes"]);
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(
        refused.err.contains("signing-key is not rotated: ServiceCA cluster: spec.managementState"),
        "{}",
        refused.err
    );
}
