//! Parses a pod: the Secrets and ConfigMaps that each container uses, and since when.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Container, ContainerPort, ContainerStatus, EnvFromSource, EnvVar, Pod as KubePod, PodSpec, PodStatus, Volume,
    VolumeMount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::catalog::ObjectName;
use perennial_core::clocks::shifted;
use perennial_core::consumers::{Kind, Owner, Pod, Use, Way};

use super::Endpoint;

/// The annotation of a mirror pod, which the kubelet creates for a static pod.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// The prefix of the volumes with service account tokens.
const TOKEN_VOLUME: &str = "kube-api-access-";

/// Returns a pod and its endpoint; none if the pod has completed.
pub(super) fn read(pod: KubePod) -> Option<(Pod, Endpoint)> {
    let (metadata, spec, status) = (pod.metadata, pod.spec?, pod.status.unwrap_or_default());
    if is_over(&status) {
        return None;
    }
    let (owner, is_ready) = (owner(&metadata), is_ready(&status));
    let uses = uses(&spec, &status);
    let endpoint = endpoint(&spec, &status);
    let pod = Pod {
        object: ObjectName { namespace: metadata.namespace?, name: metadata.name? },
        uid: metadata.uid.unwrap_or_default(),
        node: spec.node_name,
        owner,
        is_ending: metadata.deletion_timestamp.is_some(),
        is_ready,
        uses,
    };
    Some((pod, endpoint))
}

fn is_over(status: &PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

fn is_ready(status: &PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|it| it.type_ == "Ready" && it.status == "True")
}

/// Returns a pod with its readiness, to count the ready or completed pods of a controller.
pub(super) fn readiness(pod: KubePod) -> Option<Pod> {
    let (metadata, status) = (pod.metadata, pod.status.unwrap_or_default());
    Some(Pod {
        owner: owner(&metadata),
        object: ObjectName { namespace: metadata.namespace?, name: metadata.name? },
        uid: metadata.uid.unwrap_or_default(),
        node: None,
        is_ending: metadata.deletion_timestamp.is_some(),
        is_ready: is_ready(&status) || status.phase.as_deref() == Some("Succeeded"),
        uses: Vec::new(),
    })
}

fn owner(metadata: &ObjectMeta) -> Owner {
    let controller = metadata.owner_references.iter().flatten().find(|it| it.controller == Some(true));
    let is_mirror = metadata.annotations.as_ref().is_some_and(|all| all.contains_key(MIRROR));
    match controller {
        _ if is_mirror => Owner::Node,
        Some(owner) if owner.kind == "Node" => Owner::Node,
        Some(owner) => {
            let (kind, name, uid) = (owner.kind.clone(), owner.name.clone(), owner.uid.clone());
            Owner::Controller { kind, name, uid }
        }
        None => Owner::None,
    }
}

fn endpoint(spec: &PodSpec, status: &PodStatus) -> Endpoint {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let is_tcp = |port: &&ContainerPort| port.protocol.as_deref().is_none_or(|it| it == "TCP");
    let ports = containers.flat_map(|it| it.ports.iter().flatten()).filter(is_tcp);
    let ports: BTreeSet<u16> = ports.filter_map(|it| u16::try_from(it.container_port).ok()).collect();
    let address = status.pod_ip.as_deref().and_then(|ip| ip.parse().ok());
    Endpoint { address, ports: ports.into_iter().collect() }
}

/// The parts that all kinds of container have.
struct Parts<'p> {
    name: &'p str,
    mounts: &'p [VolumeMount],
    env: &'p [EnvVar],
    env_from: &'p [EnvFromSource],
}

fn uses(spec: &PodSpec, status: &PodStatus) -> Vec<Use> {
    let volumes: BTreeMap<&str, Vec<(Kind, &str)>> =
        spec.volumes.iter().flatten().map(|it| (it.name.as_str(), content(it))).collect();
    let fallback = status.start_time.as_ref().map(|it| it.0);
    let mut uses = Vec::new();
    let mut add = |parts: &Parts<'_>, statuses: Option<&Vec<ContainerStatus>>| {
        let (began_at, is_over) = started_and_ended(parts.name, statuses, fallback);
        let used = mounted(parts, &volumes).into_iter().chain(referenced(parts));
        uses.extend(used.map(|(kind, name, way)| {
            let (name, container) = (name.to_owned(), parts.name.to_owned());
            Use { kind, name, container, way, began_at, is_over }
        }));
    };
    for container in spec.init_containers.iter().flatten() {
        add(&parts(container), status.init_container_statuses.as_ref());
    }
    for container in &spec.containers {
        add(&parts(container), status.container_statuses.as_ref());
    }
    for container in spec.ephemeral_containers.iter().flatten() {
        let parts = Parts {
            name: &container.name,
            mounts: container.volume_mounts.as_deref().unwrap_or_default(),
            env: container.env.as_deref().unwrap_or_default(),
            env_from: container.env_from.as_deref().unwrap_or_default(),
        };
        add(&parts, status.ephemeral_container_statuses.as_ref());
    }
    uses
}

fn parts(container: &Container) -> Parts<'_> {
    Parts {
        name: &container.name,
        mounts: container.volume_mounts.as_deref().unwrap_or_default(),
        env: container.env.as_deref().unwrap_or_default(),
        env_from: container.env_from.as_deref().unwrap_or_default(),
    }
}

/// Returns the Secrets and ConfigMaps in a volume.
fn content(volume: &Volume) -> Vec<(Kind, &str)> {
    let mut content = Vec::new();
    let secret = volume.secret.as_ref().and_then(|it| it.secret_name.as_deref());
    content.extend(secret.map(|name| (Kind::Secret, name)));
    content.extend(volume.config_map.as_ref().map(|it| (Kind::ConfigMap, it.name.as_str())));
    for source in volume.projected.iter().flat_map(|it| it.sources.iter().flatten()) {
        content.extend(source.secret.as_ref().map(|it| (Kind::Secret, it.name.as_str())));
        content.extend(source.config_map.as_ref().map(|it| (Kind::ConfigMap, it.name.as_str())));
    }
    content
}

fn mounted<'p>(parts: &Parts<'p>, volumes: &BTreeMap<&str, Vec<(Kind, &'p str)>>) -> Vec<(Kind, &'p str, Way)> {
    let mut mounted = Vec::new();
    for mount in parts.mounts {
        let is_given = |path: &Option<String>| path.as_ref().is_some_and(|path| !path.is_empty());
        let way = if is_given(&mount.sub_path) || is_given(&mount.sub_path_expr) {
            Way::SubPath
        } else if mount.name.starts_with(TOKEN_VOLUME) {
            Way::TokenVolume
        } else {
            Way::Volume
        };
        mounted.extend(volumes.get(mount.name.as_str()).into_iter().flatten().map(|(kind, name)| (*kind, *name, way)));
    }
    mounted
}

fn referenced<'p>(parts: &Parts<'p>) -> Vec<(Kind, &'p str, Way)> {
    let mut names = Vec::new();
    for source in parts.env.iter().filter_map(|it| it.value_from.as_ref()) {
        names.extend(source.secret_key_ref.as_ref().map(|it| (Kind::Secret, it.name.as_str())));
        names.extend(source.config_map_key_ref.as_ref().map(|it| (Kind::ConfigMap, it.name.as_str())));
    }
    for source in parts.env_from {
        names.extend(source.secret_ref.as_ref().map(|it| (Kind::Secret, it.name.as_str())));
        names.extend(source.config_map_ref.as_ref().map(|it| (Kind::ConfigMap, it.name.as_str())));
    }
    names.into_iter().map(|(kind, name)| (kind, name, Way::Environment)).collect()
}

/// How long the kubelet may take to update the files of a volume.
const KUBELET_SYNC: SignedDuration = SignedDuration::from_mins(2);

/// Returns when a container started, and whether it has ended.
///
/// A container that waits to start has no start time: it will read the current content.
fn started_and_ended(
    name: &str,
    statuses: Option<&Vec<ContainerStatus>>,
    fallback: Option<Timestamp>,
) -> (Option<Timestamp>, bool) {
    let Some(status) = statuses.into_iter().flatten().find(|it| it.name == name) else { return (fallback, false) };
    let Some(state) = &status.state else { return (fallback, false) };
    if let Some(running) = &state.running {
        let began = running.started_at.as_ref().map(|it| it.0).or(fallback);
        // A container that restarts in the same pod reads the files that the kubelet wrote last, which may be a little older.
        let reads_from = |began| shifted(began, -KUBELET_SYNC).max(fallback.unwrap_or(began).min(began));
        return (if 0 < status.restart_count { began.map(reads_from) } else { began }, false);
    }
    match &state.terminated {
        Some(ended) => (ended.started_at.as_ref().map(|it| it.0).or(fallback), true),
        None => (None, false),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(metadata: Value, spec: &Value, status: &Value) -> Option<(Pod, Endpoint)> {
        let mut metadata = metadata;
        metadata["name"] = json!("web");
        metadata["namespace"] = json!("shop");
        read(serde_json::from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap())
    }

    fn used(spec: &Value, status: &Value) -> Vec<String> {
        let (pod, _) = pod(json!({}), spec, status).unwrap();
        let text = |it: Use| {
            let began = it.began_at.map_or("never".to_owned(), |at| at.strftime("%H:%M").to_string());
            let over = if it.is_over { ", over" } else { "" };
            format!("{}: {} {} as {} since {began}{over}", it.container, it.kind, it.name, it.way)
        };
        pod.uses.into_iter().map(text).collect()
    }

    #[test]
    fn all_uses_of_a_container_are_found() {
        let volumes = json!([
            {"name": "tls", "secret": {"secretName": "web-tls"}},
            {"name": "trust", "configMap": {"name": "bundle"}},
            {"name": "all", "projected": {"sources": [
                {"secret": {"name": "api-tls"}}, {"configMap": {"name": "other-bundle"}}, {"downwardAPI": {}},
            ]}},
            {"name": "kube-api-access-x2b", "projected": {"sources": [
                {"serviceAccountToken": {"path": "token"}}, {"configMap": {"name": "openshift-service-ca.crt"}},
            ]}},
            {"name": "idle", "secret": {"secretName": "not-mounted"}},
            {"name": "scratch", "emptyDir": {}},
        ]);
        let main = json!({
            "name": "main",
            "volumeMounts": [
                {"name": "tls", "mountPath": "/tls"},
                {"name": "trust", "mountPath": "/trust.crt", "subPath": "service-ca.crt"},
                {"name": "kube-api-access-x2b", "mountPath": "/var/run/secrets"},
                {"name": "scratch", "mountPath": "/scratch"},
            ],
            "env": [
                {"name": "A", "value": "plain"},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "web-tls", "key": "tls.crt"}}},
                {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "bundle", "key": "service-ca.crt"}}},
            ],
        });
        let side = json!({
            "name": "side",
            "volumeMounts": [{"name": "all", "mountPath": "/all", "subPathExpr": "$(POD)"}],
            "envFrom": [{"secretRef": {"name": "web-tls"}}, {"configMapRef": {"name": "bundle"}}],
        });
        let debug = json!({"name": "debug", "volumeMounts": [{"name": "all", "mountPath": "/all"}]});
        let spec = json!({"volumes": volumes, "containers": [main, side], "ephemeralContainers": [debug]});
        let status = json!({"startTime": "2026-01-01T10:00:00Z"});
        assert_eq!(
            used(&spec, &status),
            [
                "main: Secret web-tls as volume since 10:00",
                "main: ConfigMap bundle as subPath since 10:00",
                "main: ConfigMap openshift-service-ca.crt as token volume since 10:00",
                "main: Secret web-tls as environment since 10:00",
                "main: ConfigMap bundle as environment since 10:00",
                "side: Secret api-tls as subPath since 10:00",
                "side: ConfigMap other-bundle as subPath since 10:00",
                "side: Secret web-tls as environment since 10:00",
                "side: ConfigMap bundle as environment since 10:00",
                "debug: Secret api-tls as volume since 10:00",
                "debug: ConfigMap other-bundle as volume since 10:00",
            ]
        );
    }

    #[test]
    fn each_container_has_its_own_start_time() {
        let container = |name: &str| json!({"name": name, "envFrom": [{"secretRef": {"name": "web-tls"}}]});
        let spec = json!({
            "initContainers": [container("first"), container("proxy")],
            "containers": [container("main"), container("crashed"), container("ended"), container("unknown")],
        });
        let state = |name: &str, state: Value| {
            json!({
                "name": name, "state": state, "image": "i", "imageID": "i", "ready": true, "restartCount": 0,
            })
        };
        let at = |time: &str| format!("2026-01-01T{time}:00Z");
        let status = json!({
            "startTime": at("10:00"),
            "initContainerStatuses": [
                state("first", json!({"terminated": {"exitCode": 0, "startedAt": at("10:01")}})),
                state("proxy", json!({"running": {"startedAt": at("10:02")}})),
            ],
            "containerStatuses": [
                state("main", json!({"running": {"startedAt": at("11:00")}})),
                state("crashed", json!({"waiting": {"reason": "CrashLoopBackOff"}})),
                state("ended", json!({"terminated": {"exitCode": 1, "startedAt": at("11:01")}})),
            ],
        });
        assert_eq!(
            used(&spec, &status),
            [
                "first: Secret web-tls as environment since 10:01, over",
                "proxy: Secret web-tls as environment since 10:02",
                "main: Secret web-tls as environment since 11:00",
                "crashed: Secret web-tls as environment since never",
                "ended: Secret web-tls as environment since 11:01, over",
                "unknown: Secret web-tls as environment since 10:00",
            ]
        );
    }

    #[test]
    fn owner_of_a_pod_is_its_controller_or_its_node() {
        let spec = json!({"containers": []});
        let owner = |metadata: Value| pod(metadata, &spec, &json!({})).unwrap().0.owner.to_string();
        let reference = |kind: &str, controller: Value| json!({"apiVersion": "v1", "kind": kind, "name": "it", "uid": "1", "controller": controller});
        assert_eq!(
            owner(json!({"ownerReferences": [reference("Backup", json!(null)), reference("ReplicaSet", json!(true))]})),
            "ReplicaSet/it"
        );
        assert_eq!(owner(json!({"ownerReferences": [reference("Backup", json!(false))]})), "(none)");
        assert_eq!(owner(json!({})), "(none)");
        assert_eq!(owner(json!({"ownerReferences": [reference("Node", json!(true))]})), "(its node)");
        let mirror = json!({"annotations": {"kubernetes.io/config.mirror": "x"}, "ownerReferences": [reference("ReplicaSet", json!(true))]});
        assert_eq!(owner(mirror), "(its node)");
        for phase in ["Succeeded", "Failed"] {
            assert!(pod(json!({}), &spec, &json!({"phase": phase})).is_none(), "{phase}");
        }
    }

    #[test]
    fn endpoint_has_all_tcp_ports_of_the_pod() {
        let port = |number: i32, protocol: Value| json!({"containerPort": number, "protocol": protocol});
        let spec = json!({
            "containers": [
                {"name": "a", "ports": [port(8443, json!("TCP")), port(53, json!("UDP"))]},
                {"name": "b", "ports": [port(443, json!(null)), port(8443, json!("TCP"))]},
            ],
            "initContainers": [{"name": "proxy", "ports": [port(9443, json!("TCP"))]}],
        });
        let (_, endpoint) = pod(json!({}), &spec, &json!({"podIP": "fd00::7"})).unwrap();
        assert_eq!(endpoint, Endpoint { address: Some("fd00::7".parse().unwrap()), ports: vec![443, 8443, 9443] });
    }
}
