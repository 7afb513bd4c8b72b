//! The Deployment of the operator with two replicas, its metrics Service, and its disruption budget.

use serde_json::{Value, json};

use crate::rbac::NAME;

/// The port of the metrics and the probes.
const PORT: u16 = 9943;
/// The annotation by which the metrics Service asks for a serving certificate.
const SERVING_CERT: &str = "service.beta.openshift.io/serving-cert-secret-name";
/// The Secret with that certificate.
const METRICS_SECRET: &str = "perennial-metrics-tls";
/// Where the pods mount that Secret.
const METRICS_FILES: &str = "/etc/perennial/metrics";

/// Returns the objects to apply in addition to [`crate::rbac::objects`]. `more` are additional arguments of the operator.
pub fn objects(image: &str, namespace: &str, more: &[&str], nodes: Nodes) -> Vec<Value> {
    vec![deployment(image, namespace, more, nodes), service(namespace), disruptions(namespace)]
}

/// The nodes on which the operator may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nodes {
    /// Only nodes of the control plane, which have its keys anyway.
    ControlPlane,
    /// Any node, for clusters whose control plane has no nodes.
    Any,
}

fn labels() -> Value {
    json!({"app.kubernetes.io/name": NAME})
}

fn metadata(namespace: &str) -> Value {
    json!({"name": NAME, "namespace": namespace, "labels": labels()})
}

fn deployment(image: &str, namespace: &str, more: &[&str], nodes: Nodes) -> Value {
    let mut arguments =
        vec!["run".to_owned(), format!("--metrics=[::]:{PORT}"), format!("--lease-namespace={namespace}")];
    arguments.push(format!("--metrics-cert={METRICS_FILES}/tls.crt"));
    arguments.push(format!("--metrics-key={METRICS_FILES}/tls.key"));
    arguments.extend(more.iter().map(|it| (*it).to_owned()));
    let control_plane = "node-role.kubernetes.io/control-plane";
    let apart = json!({
        "weight": 100,
        "podAffinityTerm": {"labelSelector": {"matchLabels": labels()}, "topologyKey": "kubernetes.io/hostname"},
    });
    let mut affinity = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}});
    if nodes == Nodes::ControlPlane {
        let labelled = |label: &str| json!({"matchExpressions": [{"key": label, "operator": "Exists"}]});
        let terms = [labelled(control_plane), labelled("node-role.kubernetes.io/master")];
        affinity["nodeAffinity"] =
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    }
    let priority = if nodes == Nodes::ControlPlane { "system-cluster-critical" } else { "" };
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
                    // The scheduler must not preempt the operator. Managed clusters reject this class.
                    "priorityClassName": priority,
                    "tolerations": [
                        {"key": control_plane, "operator": "Exists", "effect": "NoSchedule"},
                        {"key": "node-role.kubernetes.io/master", "operator": "Exists", "effect": "NoSchedule"},
                    ],
                    "affinity": affinity,
                    // No environment variable for each Service of the namespace.
                    "enableServiceLinks": false,
                    // Longer than a write and the release of the lease.
                    "terminationGracePeriodSeconds": 30,
                    // The image or the cluster chooses the user.
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    // The operator itself may have to issue the certificate, and a cluster may have no service CA.
                    "volumes": [{"name": "metrics", "secret": {"secretName": METRICS_SECRET, "optional": true}}],
                    "containers": [{
                        "name": NAME,
                        "image": image,
                        "args": arguments,
                        "ports": [{"name": "metrics", "containerPort": PORT}],
                        "volumeMounts": [{"name": "metrics", "mountPath": METRICS_FILES, "readOnly": true}],
                        "livenessProbe": liveness,
                        "readinessProbe": probe("/readyz"),
                        // docs/reference/performance.md: at most 62 MiB with 10,000 Services, of which 25 MiB without any. The request
                        // is one and a half times that. The limit is eight times that, enough for about 130,000 Services, so that the
                        // kernel ends only a process that leaks memory.
                        "resources": {"requests": {"cpu": "10m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}},
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
    let mut metadata = metadata(namespace);
    metadata["annotations"] = json!({SERVING_CERT: METRICS_SECRET});
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": metadata,
        "spec": {"selector": labels(), "ports": [{"name": "metrics", "port": PORT, "targetPort": "metrics"}]},
    })
}

/// Returns the disruption budget: a drain of nodes leaves one replica running.
fn disruptions(namespace: &str) -> Value {
    json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata(namespace),
        "spec": {"maxUnavailable": 1, "selector": {"matchLabels": labels()}},
    })
}

#[cfg(test)]
mod tests {
    use perennial_core::serving::Request;

    use super::*;

    #[test]
    fn metrics_are_served_with_the_certificate_that_the_service_asks_for() {
        let [deployment, service, _] =
            objects("image", "pki", &[], Nodes::Any).try_into().expect("a Deployment, a Service and a budget");
        let annotations = serde_json::from_value(service["metadata"]["annotations"].clone()).unwrap();
        let asked = Request::of(&annotations).unwrap().unwrap().secret;
        let pod = &deployment["spec"]["template"]["spec"];
        let (volume, mount) = (&pod["volumes"][0], &pod["containers"][0]["volumeMounts"][0]);
        assert_eq!(volume["secret"], json!({"secretName": asked, "optional": true}));
        assert_eq!(volume["name"], mount["name"]);
        let directory = mount["mountPath"].as_str().unwrap();
        for argument in [format!("--metrics-cert={directory}/tls.crt"), format!("--metrics-key={directory}/tls.key")] {
            assert!(pod["containers"][0]["args"].as_array().unwrap().contains(&json!(argument)), "{argument}");
        }
    }

    #[test]
    fn the_pod_is_restricted_to_what_the_operator_needs() {
        let pod = |nodes| objects("image", "pki", &[], nodes)[0]["spec"]["template"]["spec"].clone();
        let restricted = pod(Nodes::ControlPlane);
        // Terms are alternatives: a node needs one of the labels.
        let exists = |label: &str| json!({"matchExpressions": [{"key": label, "operator": "Exists"}]});
        let labels = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
        assert_eq!(
            restricted["affinity"]["nodeAffinity"],
            json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": labels.map(exists)}})
        );
        for (label, toleration) in labels.iter().zip(restricted["tolerations"].as_array().unwrap()) {
            assert_eq!(*toleration, json!({"key": label, "operator": "Exists", "effect": "NoSchedule"}));
        }
        assert_eq!(pod(Nodes::Any)["affinity"].get("nodeAffinity"), None);

        let container = &restricted["containers"][0];
        assert_eq!(restricted["enableServiceLinks"], false);
        assert_eq!(
            restricted["securityContext"],
            json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}})
        );
        assert_eq!(
            container["securityContext"],
            json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true})
        );
        assert_eq!(
            container["resources"],
            json!({"requests": {"cpu": "10m", "memory": "96Mi"}, "limits": {"memory": "512Mi"}})
        );
        // A read-only root needs no writable volume, and the only volume is read-only.
        assert_eq!(restricted["volumes"].as_array().unwrap().len(), 1);
        assert_eq!(container["volumeMounts"][0]["readOnly"], true);
    }
}
