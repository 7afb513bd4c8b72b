//! `perennial rotate` against `perennial up`, and what becomes of it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
    pub(crate) mod up;
}

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use common::admin::{Administrator, Said};
use common::up::{Up, directory};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A cluster with every certificate, and who looks after its policy.
struct Lab {
    // The server ends before its directory goes.
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
        lab
    }

    fn perennial(&self, arguments: &[&str]) -> Said {
        self.admin.perennial(arguments)
    }

    /// Which keys these certificates get from now on; the others keep what they have.
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

    /// The certificates that have keys which nobody wants.
    fn noncompliant(&self) -> BTreeSet<String> {
        let wrong = self.certificates().into_iter().filter(|it| it["compliant"] == false);
        wrong.map(|it| it["name"].as_str().unwrap().to_owned()).collect()
    }
}

fn names<const N: usize>(names: [&str; N]) -> BTreeSet<String> {
    names.map(str::to_owned).into()
}

#[test]
fn what_the_policy_does_not_want_is_replaced_a_few_at_a_time() {
    let lab = Lab::new();
    let nothing = lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--yes"]);
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(0), ""));
    assert!(nothing.err.contains("every certificate has the key that the policy asks for"), "{}", nothing.err);

    let wanted = ["aggregator-signer", "kube-apiserver-lb-signer", "kube-apiserver-localhost-signer"];
    lab.want(&wanted);
    assert_eq!(lab.noncompliant(), names(wanted));

    // A dry run says what would happen, and does nothing.
    let dry = lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--at-once", "2"]);
    assert_eq!(dry.code, Some(0));
    let table: Vec<&str> = dry.out.lines().filter(|line| line.contains("RSA 2048   ECDSA P256")).collect();
    assert_eq!(table.len(), 3, "{}", dry.out);
    assert_eq!(dry.out.matches("forced rotation: March").count(), 2, "{}", dry.out);
    assert!(dry.err.contains("asks for 2 of them now and for 1 when others are done"), "{}", dry.err);
    assert!(!lab.admin.kubectl("get secrets -A -o json").contains("perennial.dev/force-rotation"), "nobody asked");
    assert_eq!(lab.noncompliant(), names(wanted));

    let first =
        lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--at-once", "1", "--no-wait", "--yes"]);
    assert_eq!(first.out.matches("asked for a new certificate").count(), 1, "{}", first.out);
    assert!(first.err.contains("2 more are to be asked for"), "{}", first.err);
    lab.wait_until("one of them is replaced", |items| items.iter().filter(|it| it["compliant"] == false).count() == 2);

    // The same reason goes on with the others, and not with what was replaced for it.
    let rest = lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--at-once", "1", "--yes"]);
    assert_eq!(rest.code, Some(0), "{}", rest.err);
    assert_eq!(rest.out.matches("asked for a new certificate").count(), 2, "{}", rest.out);
    assert_eq!(rest.out.matches("is as it should be").count(), 2, "{}", rest.out);
    assert_eq!(lab.noncompliant(), names([]));

    // Another policy and the old reason: nothing is rotated twice for it.
    lab.want(&[]);
    let again = lab.perennial(&["rotate", "--noncompliant", "--reason", "March", "--yes"]);
    assert_eq!(again.code, Some(3), "{}", again.out);
    assert_eq!(again.err.matches("was rotated for this reason before").count(), 3, "{}", again.err);
    assert_eq!(lab.noncompliant(), names(wanted));
}

/// What is written on the Secret of the service CA.
fn written(lab: &Lab) -> Value {
    let secret = lab.admin.kubectl("get secret signing-key -n openshift-service-ca -o json");
    serde_json::from_str::<Value>(&secret).unwrap()["metadata"]["annotations"].take()
}

fn wait_for(lab: &Lab, annotation: &str, value: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while written(lab)[annotation] != value {
        assert!(Instant::now() < deadline, "{annotation} is not {value}: {}", written(lab));
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn the_service_ca_is_rotated_by_its_name_and_without_waiting_for_anybody() {
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
    assert_eq!(written(&lab).get(FORCED), None, "nobody asked");
    let asked = lab.perennial(&["rotate", "service-ca", "--reason", "leaked", "--yes"]);
    assert_eq!(asked.out, "asked for a new certificate in openshift-service-ca/signing-key\n", "{}", asked.err);
    wait_for(&lab, FORCED, "leaked");

    // Who asks by the resource waits for those who have not come to that yet; who insists does not.
    let overrides = json!({"forceRotation": {"reason": "once more"}});
    let spec = json!({"managementState": "Managed", "unsupportedConfigOverrides": overrides});
    let metadata = json!({"name": "cluster"});
    let object =
        json!({"apiVersion": "operator.openshift.io/v1", "kind": "ServiceCA", "metadata": metadata, "spec": spec});
    let applied = lab.admin.kubectl_words(&["apply", "-f", "-"], &object.to_string());
    assert_eq!(applied.code, Some(0), "{}", applied.err);
    let plan = lab.perennial(&["plan"]);
    assert!(plan.out.contains("whoever still holds what was before its rotation of"), "{}", plan.out);
    let dry = lab.perennial(&["rotate", "service-ca", "--reason", "now"]);
    assert!(dry.out.contains("forced rotation: now"), "{}", dry.out);
    assert_eq!(written(&lab).get(REASON), None);
    lab.perennial(&["rotate", "service-ca", "--reason", "now", "--yes"]);
    wait_for(&lab, FORCED, "now");
    assert_eq!(written(&lab)[REASON], "once more", "by that it has happened as well");
    let again = lab.perennial(&["rotate", "service-ca", "--reason", "now"]);
    assert!(again.err.contains("signing-key was rotated for this reason before"), "{}", again.err);

    // What the resource says is to be left alone is.
    let unmanaged = r#"{"spec": {"managementState": "Unmanaged"}}"#;
    lab.admin.kubectl_words(&["patch", "serviceca", "cluster", "--type=merge", "-p", unmanaged], "");
    let refused = lab.perennial(&["rotate", "service-ca", "--reason", "once more", "--yes"]);
    assert_eq!(refused.code, Some(1), "{}", refused.out);
    assert!(
        refused.err.contains("signing-key is left as it is: ServiceCA cluster: spec.managementState"),
        "{}",
        refused.err
    );
}
