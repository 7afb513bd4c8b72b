//! Tests `perennial consumers` on a real server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
}

use std::path::Path;

use common::admin::{Administrator, CommandOutput};
use jiff::{SignedDuration, Timestamp};
use perennial_testbed::kubernetes::ControlPlane;
use serde_json::{Value, json};

struct Lab {
    admin: Administrator,
    /// An instant before all objects were created.
    before: Timestamp,
    after: Timestamp,
}

impl Lab {
    fn new(control_plane: &ControlPlane, directory: &Path) -> Lab {
        let admin = Administrator::new(control_plane.kubeconfig(), directory);
        admin.kubectl("create namespace shop");
        admin.kubectl("create serviceaccount default -n shop");
        let annotations = json!({"service.beta.openshift.io/inject-cabundle": "true"});
        let map = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"service-ca.crt": "a bundle"},
            "metadata": {"name": "trust", "namespace": "shop", "annotations": annotations},
        });
        admin.kubectl_with("apply -f -", &map.to_string());
        let made: Value = serde_json::from_str(&admin.kubectl("get configmap trust -n shop -o json")).unwrap();
        let made: Timestamp = made["metadata"]["creationTimestamp"].as_str().unwrap().parse().unwrap();
        let hours = SignedDuration::from_hours;
        Lab { admin, before: made - hours(50), after: made + hours(1) }
    }

    /// Creates a pod with the bundle that started at this instant.
    fn run_pod(&self, name: &str, owner: Option<&str>, began: Timestamp) {
        let owners: Vec<Value> = owner
            .map(|name| json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name, "controller": true}))
            .into_iter()
            .collect();
        let container = json!({
            "name": "main", "image": "registry.example.com/web:1",
            "volumeMounts": [{"name": "trust", "mountPath": "/trust"}],
        });
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop", "labels": {"app": "web"}, "ownerReferences": owners},
            "spec": {
                "automountServiceAccountToken": false, "containers": [container],
                "volumes": [{"name": "trust", "configMap": {"name": "trust"}}],
            },
        });
        self.admin.kubectl_with("create -f -", &pod.to_string());
        let running = json!({
            "name": "main", "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            "state": {"running": {"startedAt": began}},
        });
        let status = json!({"status": {
            "phase": "Running", "startTime": began, "containerStatuses": [running],
            "conditions": [{"type": "Ready", "status": "True"}],
        }});
        self.set_status("pod", name, &status);
    }

    fn set_status(&self, kind: &str, name: &str, status: &Value) {
        let patch = status.to_string();
        let words = ["patch", kind, name, "-n", "shop", "--subresource=status", "--type=merge", "-p", &patch];
        let output = self.admin.kubectl_words(&words, "");
        assert_eq!(output.code, Some(0), "{}", output.err);
    }

    fn allow(&self, disruptions: i32) {
        let status = json!({"status": {
            "disruptionsAllowed": disruptions, "currentHealthy": 9, "desiredHealthy": 1, "expectedPods": 9,
            "observedGeneration": 1,
        }});
        self.set_status("poddisruptionbudget", "web", &status);
    }

    fn consumers(&self, more: &str) -> CommandOutput {
        let words = format!("consumers service-ca {more}");
        self.admin.perennial(&words.split_whitespace().collect::<Vec<_>>())
    }

    fn pods(&self) -> String {
        self.admin.kubectl("get pods -n shop -o name").replace("pod/", "").replace('\n', " ")
    }
}

#[tokio::test]
async fn pods_with_a_previous_version_are_listed_and_evicted() {
    let control_plane = ControlPlane::lease().await.unwrap();
    let top = tempfile::tempdir().unwrap();
    let lab = Lab::new(&control_plane, top.path());
    lab.run_pod("web-fresh", Some("web"), lab.after);

    // No pod holds a previous version.
    let output = lab.consumers("");
    assert_eq!(
        (output.code, output.out.as_str()),
        (Some(0), "POD   HAS   AS   BEGAN   CHANGED   OLD\n"),
        "{}",
        output.err
    );
    assert_eq!(output.err, "1 pod uses a certificate or bundle of the service CA; 0 may hold a previous version\n");
    assert!(lab.consumers("--all").out.contains("web-fresh   ConfigMap/trust   volume"));

    lab.run_pod("web-1", Some("web"), lab.before);
    lab.run_pod("bare", None, lab.before);
    let output = lab.consumers("");
    assert_eq!(output.code, Some(3), "{}", output.err);
    assert!(output.err.contains("3 pods use a certificate or bundle of the service CA; 2 may hold"), "{}", output.err);
    let rows: Vec<&str> = output.out.lines().collect();
    assert_eq!(rows.len(), 4, "{}", output.out);
    assert_eq!(rows[1], "shop:");
    assert!(rows[2].starts_with("bare    ConfigMap/trust   volume   2d2h ago"), "{}", rows[2]);
    assert!(rows[3].starts_with("web-1   ConfigMap/trust   volume   2d2h ago") && rows[3].ends_with("perhaps"));
    assert_eq!(lab.consumers("-n default").code, Some(0), "the namespace has no pods");
    let listed: Value = serde_json::from_str(&lab.consumers("-o json").out).unwrap();
    assert_eq!(listed["items"][1]["pod"], "web-1");
    assert_eq!(listed["items"][1]["has"][0]["ways"], json!(["volume"]));
    assert!(lab.consumers("-o yaml").out.contains("  owner: ReplicaSet/web\n"));

    // A dry run evicts no pod.
    let output = lab.consumers("--restart -o wide");
    assert_eq!(output.code, Some(3));
    assert!(output.err.contains("dry run: --yes evicts 1 pod\n"), "{}", output.err);
    assert!(
        output.out.contains("would be evicted") && output.out.contains("no controller recreates it"),
        "{}",
        output.out
    );
    assert_eq!(lab.pods(), "bare web-1 web-fresh");

    // A budget forbids the eviction until the timeout.
    lab.admin.kubectl("create poddisruptionbudget web -n shop --selector=app=web --min-available=1");
    lab.allow(0);
    let output = lab.consumers("--restart --yes --timeout 1s");
    assert_eq!(output.code, Some(1));
    assert!(output.err.contains("shop/web-1 waits: Cannot evict pod as it would violate"), "{}", output.err);
    assert!(output.err.contains("0 evicted, 1 failed, 1 skipped\n"), "{}", output.err);
    assert!(output.err.contains("error: 1 pod was not evicted; the first: shop/web-1: Cannot evict"), "{}", output.err);
    assert!(output.out.contains("not evicted"), "{}", output.out);
    assert_eq!(lab.pods(), "bare web-1 web-fresh");

    // The budget allows the eviction.
    lab.allow(1);
    let output = lab.consumers("--restart --yes");
    assert_eq!(output.code, Some(3), "one is left: {}", output.err);
    assert!(output.err.contains("shop/web-1 evicted (1 of 1)\n1 evicted, 0 failed, 1 skipped\n"), "{}", output.err);
    assert_eq!(lab.pods(), "bare web-fresh");
    lab.allow(1);
    let output = lab.consumers("--restart --yes --include-bare");
    assert_eq!(output.code, Some(0), "{}", output.err);
    assert_eq!(lab.pods(), "web-fresh");

    // Wrong usage.
    let output = lab.admin.perennial(&["consumers", "etcd"]);
    assert_eq!(output.code, Some(2));
    assert!(output.err.contains("'etcd'") && output.err.contains("[possible values: service-ca]"), "{}", output.err);
    assert_eq!(lab.consumers("--yes").code, Some(2), "only with --restart");
}
