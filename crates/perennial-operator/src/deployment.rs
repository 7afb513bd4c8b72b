//! The operator in a cluster: two of it, of which one leads, and where its metrics are.

use serde_json::{Value, json};

use crate::rbac::NAME;

/// Where it serves metrics and answers probes.
const PORT: u16 = 9943;

/// What to apply besides [`crate::rbac::objects`] so that it runs, with these arguments more.
pub fn objects(image: &str, namespace: &str, more: &[&str]) -> Vec<Value> {
    vec![deployment(image, namespace, more), service(namespace), disruptions(namespace)]
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

fn metadata(namespace: &str) -> Value {
    json!({"name": NAME, "namespace": namespace, "labels": labels()})
}

fn deployment(image: &str, namespace: &str, more: &[&str]) -> Value {
    let mut arguments =
        vec!["run".to_owned(), format!("--metrics=[::]:{PORT}"), format!("--lease-namespace={namespace}")];
    arguments.extend(more.iter().map(|it| (*it).to_owned()));
    let control_plane = "node-role.kubernetes.io/control-plane";
    let apart = json!({
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": labels()}, "topologyKey": "kubernetes.io/hostname"},
    });
    let probe = |path: &str| json!({"httpGet": {"path": path, "port": "metrics", "scheme": "HTTPS"}});
    let mut liveness = probe("/livez");
    liveness["periodSeconds"] = json!(30);
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata(namespace),
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels()},
            "template": {
                "metadata": {"labels": labels()},
                "spec": {
                    "serviceAccountName": NAME,
                    // What keeps the control plane's certificates is not the first to go.
                    "priorityClassName": "system-cluster-critical",
                    "tolerations": [
                        {"key": control_plane, "operator": "Exists", "effect": "NoSchedule"},
                        {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
                    ],
                    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}},
                    // Longer than a write and the release of the lease take.
                    "terminationGracePeriodSeconds": 30,
                    // As whom is for the image, or for the cluster, to say.
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": NAME,
                        "image": image,
                        "args": arguments,
                        "ports": [{"name": "metrics", "containerPort": PORT}],
                        "livenessProbe": liveness,
                        "readinessProbe": probe("/readyz"),
                        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}},
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true,
                        },
                    }],
                },
            },
        },
    })
}

fn service(namespace: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata(namespace),
        "spec": {"selector": labels(), "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics"}]},
    })
}

/// Whoever drains nodes leaves one of the two.
fn disruptions(namespace: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
    })
}
