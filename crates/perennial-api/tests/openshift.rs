//! Objects of a real OpenShift with the trimmed definitions: they are valid, preserved, and parsed correctly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::needless_pass_by_value, reason = "wrong values read best in place")]

use perennial_api::config::{ClusterOperator, FeatureGate, Infrastructure, Network};
use perennial_api::crd;
use perennial_api::operator::{Etcd, KubeAPIServer, KubeControllerManager, ServiceCA};
use perennial_schema::{Options, Schema, UnknownFields};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

const CLUSTER_OPERATORS: &str = include_str!("data/openshift/clusteroperators.yaml");
const FEATURE_GATES: &str = include_str!("data/openshift/featuregates.yaml");
const INFRASTRUCTURES: &str = include_str!("data/openshift/infrastructures.yaml");
const NETWORKS: &str = include_str!("data/openshift/networks.yaml");
const ETCDS: &str = include_str!("data/openshift/etcds.yaml");
const KUBE_API_SERVERS: &str = include_str!("data/openshift/kubeapiservers.yaml");
const KUBE_CONTROLLER_MANAGERS: &str = include_str!("data/openshift/kubecontrollermanagers.yaml");
const SERVICE_CAS: &str = include_str!("data/openshift/servicecas.yaml");

fn objects(documents: &str) -> Vec<Value> {
    documents.split("\n---\n").map(|document| serde_norway::from_str(document).unwrap()).collect()
}

/// Returns the schema of an object's kind.
fn schema_of(object: &Value) -> Schema {
    let is_of = |group: &str, kind: &str| object["apiVersion"] == format!("{group}/v1") && object["kind"] == kind;
    let crd = perennial_api::crds().into_iter().find(|crd| is_of(&crd.spec.group, &crd.spec.names.kind)).unwrap();
    Schema::compile(&crd::schema(&crd)).unwrap()
}

/// Checks that a server stores each object unchanged, and that the types round-trip it.
fn check_kept<K: Serialize + DeserializeOwned>(documents: &str) {
    for object in objects(documents) {
        let schema = schema_of(&object);
        let mut stored = object.clone();
        schema.drop_nulls(&mut stored);
        schema.apply_defaults(&mut stored);
        assert_eq!(schema.prune(&mut stored), [""; 0]);
        assert_eq!(stored, object);
        assert_eq!(schema.validate(&stored, None), []);
        assert_eq!(schema.validate(&stored, Some(&stored)), []);

        let typed: K = serde_json::from_value(stored.clone()).unwrap();
        let mut written = serde_json::to_value(typed).unwrap();
        // A null in a known field is absent in the types.
        for field in ["observedConfig", "unsupportedConfigOverrides", "customNoUpgrade"] {
            if stored["spec"].get(field) == Some(&Value::Null) {
                written["spec"][field] = Value::Null;
            }
        }
        assert_eq!(written, stored);
    }
}

#[test]
fn objects_of_a_real_cluster_are_preserved() {
    check_kept::<ClusterOperator>(CLUSTER_OPERATORS);
    check_kept::<FeatureGate>(FEATURE_GATES);
    check_kept::<Infrastructure>(INFRASTRUCTURES);
    check_kept::<Network>(NETWORKS);
    check_kept::<Etcd>(ETCDS);
    check_kept::<KubeAPIServer>(KUBE_API_SERVERS);
    check_kept::<KubeControllerManager>(KUBE_CONTROLLER_MANAGERS);
    check_kept::<ServiceCA>(SERVICE_CAS);
}

#[test]
fn defaults_are_those_of_openshift() {
    let object = json!({"apiVersion": "operator.openshift.io/v1", "kind": "KubeControllerManager", "spec": {}});
    let stored = schema_of(&object).admit(object, Options::default()).unwrap();
    let expected = json!({"logLevel": "Normal", "operatorLogLevel": "Normal", "useMoreSecureServiceCA": false});
    assert_eq!(stored["spec"], expected);
}

fn first<K: DeserializeOwned>(documents: &str) -> K {
    serde_json::from_value(objects(documents).swap_remove(0)).unwrap()
}

#[test]
fn a_cluster_operator_has_conditions_and_versions() {
    let status = first::<ClusterOperator>(CLUSTER_OPERATORS).status.unwrap();
    let condition = |type_: &str| status.conditions.iter().find(|condition| condition.type_ == type_).unwrap();
    assert_eq!(condition("Available").status, "True");
    assert_eq!(condition("Available").last_transition_time.0.to_string(), "2026-01-12T08:15:02Z");
    assert_eq!(condition("Degraded").reason.as_deref(), Some("AsExpected"));
    assert_eq!(condition("EvaluationConditionsDetected").message, None);
    let version = status.versions.iter().find(|version| version.name == "operator");
    assert_eq!(version.unwrap().version, "4.21.3");
    assert_eq!(status.related_objects[1].namespace.as_deref(), Some("openshift-kube-apiserver"));
}

#[test]
fn a_feature_gate_lists_its_features() {
    let gate: FeatureGate = first(FEATURE_GATES);
    assert_eq!(gate.spec.feature_set.as_deref(), Some("CustomNoUpgrade"));
    let custom = gate.spec.custom_no_upgrade.unwrap();
    assert_eq!(
        (custom.enabled, custom.disabled[0].as_str()),
        (vec!["ShortCertRotation".into(), "ExternalOIDC".into()], "ConfigurablePKI")
    );
    let versions = gate.status.unwrap().feature_gates;
    assert_eq!((versions[0].version.as_str(), versions[0].disabled[0].name.as_str()), ("4.21.3", "ConfigurablePKI"));
    assert_eq!(versions[1].enabled.len(), 1);
}

#[test]
fn infrastructure_has_the_addresses_of_the_api_server() {
    let status = first::<Infrastructure>(INFRASTRUCTURES).status.unwrap();
    assert_eq!(status.api_server_url.as_deref(), Some("https://api.demo.example.com:6443"));
    assert_eq!(status.api_server_internal_uri.as_deref(), Some("https://api-int.demo.example.com:6443"));
    assert_eq!(status.infrastructure_name.as_deref(), Some("demo-x7k2p"));
    assert_eq!(status.control_plane_topology.as_deref(), Some("HighlyAvailable"));
    assert_eq!(status.platform_status.unwrap().type_.as_deref(), Some("BareMetal"));
}

#[test]
fn a_network_has_its_ranges() {
    let network: Network = first(NETWORKS);
    assert_eq!(network.spec.service_network, ["172.30.0.0/16", "fd02::/112"]);
    let status = network.status.unwrap();
    assert_eq!(status.service_network, ["172.30.0.0/16", "fd02::/112"]);
    assert_eq!(
        (status.cluster_network[1].cidr.as_deref(), status.cluster_network[1].host_prefix),
        (Some("fd01::/48"), Some(64))
    );
}

#[test]
fn operators_have_a_state_and_revisions() {
    let etcd: Etcd = first(ETCDS);
    assert_eq!(etcd.spec.operator.management_state.as_deref(), Some("Managed"));
    assert_eq!(etcd.spec.static_pod.force_redeployment_reason.as_deref(), Some("recovery-2026-02-01"));
    assert_eq!(etcd.spec.operator.unsupported_config_overrides, None);
    assert_eq!(etcd.spec.other.keys().collect::<Vec<_>>(), ["backendQuotaGiB", "controlPlaneHardwareSpeed"]);
    let status = etcd.status.unwrap();
    assert_eq!(status.operator.latest_available_revision, Some(7));
    let node = &status.node_statuses[1];
    assert_eq!((node.node_name.as_str(), node.current_revision, node.target_revision), ("master-1", Some(6), Some(7)));
    assert_eq!(node.last_failed_revision_errors, ["installer: exit status 1"]);

    let api_server: KubeAPIServer = first(KUBE_API_SERVERS);
    assert_eq!(api_server.spec.operator.log_level.as_deref(), Some("Debug"));
    assert_eq!(api_server.spec.operator.observed_config.unwrap()["servicesSubnet"], "172.30.0.0/16");
    let status = api_server.status.unwrap().operator;
    assert_eq!((status.observed_generation, status.version.as_deref()), (Some(4), Some("4.21.3")));

    let controller_manager: KubeControllerManager = first(KUBE_CONTROLLER_MANAGERS);
    assert!(controller_manager.spec.use_more_secure_service_ca);

    let service_ca: ServiceCA = first(SERVICE_CAS);
    let overrides = service_ca.spec.operator.unsupported_config_overrides.unwrap();
    assert_eq!(overrides["forceRotation"]["reason"], "the key was on a lost laptop");
    assert_eq!(service_ca.status.unwrap().operator.generations[0].last_generation, Some(2));
}

/// Checks that the first object with another value at `pointer` is rejected, and that the error names the field.
fn check_refused(documents: &str, pointer: &str, wrong: Value, named: &str) {
    let mut object = objects(documents).swap_remove(0);
    *object.pointer_mut(pointer).unwrap_or_else(|| panic!("nothing at {pointer}")) = wrong;
    let strict = Options { unknown_fields: UnknownFields::Refuse, ..Options::default() };
    let errors = schema_of(&object).admit(object, strict).unwrap_err();
    assert_eq!(errors[0].path, named, "{}", errors[0]);
}

#[test]
fn wrong_values_are_rejected_with_the_name_of_the_field() {
    let check = |documents: &str, named: &str, wrong: Value| {
        let pointer = format!("/{}", named.replace(['.', '['], "/").replace(']', ""));
        check_refused(documents, &pointer, wrong, named);
    };
    check(CLUSTER_OPERATORS, "spec", json!("x"));
    check(CLUSTER_OPERATORS, "status.conditions", json!({}));
    check(CLUSTER_OPERATORS, "status.conditions[0].status", json!(true));
    check(CLUSTER_OPERATORS, "status.conditions[0].lastTransitionTime", json!("today"));
    check(CLUSTER_OPERATORS, "status.versions[0].version", json!(4));
    check(CLUSTER_OPERATORS, "status.relatedObjects[0].group", json!(null));
    check(FEATURE_GATES, "spec.featureSet", json!("TechPreview"));
    check(FEATURE_GATES, "spec.customNoUpgrade.enabled", json!("ShortCertRotation"));
    check(FEATURE_GATES, "spec.customNoUpgrade.disabled[0]", json!(1));
    check(FEATURE_GATES, "status.featureGates[0].enabled[0]", json!("ExternalOIDC"));
    check(INFRASTRUCTURES, "status.apiServerURL", json!(6443));
    check(INFRASTRUCTURES, "status.apiServerInternalURI", json!([]));
    check(INFRASTRUCTURES, "status.infrastructureName", json!({}));
    check(INFRASTRUCTURES, "status.controlPlaneTopology", json!(1));
    check(INFRASTRUCTURES, "status.platformStatus", json!("BareMetal"));
    check(INFRASTRUCTURES, "status.platformStatus.type", json!(true));
    check(NETWORKS, "status.serviceNetwork", json!("172.30.0.0/16"));
    check(NETWORKS, "spec.serviceNetwork[1]", json!(64));
    check(NETWORKS, "spec.clusterNetwork[0].hostPrefix", json!(-1));
    check(ETCDS, "spec.managementState", json!("managed"));
    check(ETCDS, "spec.logLevel", json!("Loud"));
    check(ETCDS, "spec.forceRedeploymentReason", json!(3));
    check(ETCDS, "status.latestAvailableRevision", json!("7"));
    check(ETCDS, "status.nodeStatuses[1].currentRevision", json!(1.5));
    check(KUBE_API_SERVERS, "spec.unsupportedConfigOverrides", json!("x"));
    check(KUBE_API_SERVERS, "status.generations[0].lastGeneration", json!("0"));
    check(KUBE_CONTROLLER_MANAGERS, "spec.useMoreSecureServiceCA", json!("yes"));
    check(SERVICE_CAS, "spec.observedConfig", json!([]));
    check(SERVICE_CAS, "status.readyReplicas", json!("0"));
}

#[test]
fn entries_of_lists_may_not_be_repeated() {
    check_refused(CLUSTER_OPERATORS, "/status/conditions/1/type", json!("Degraded"), "status.conditions[1]");
    check_refused(FEATURE_GATES, "/status/featureGates/1/version", json!("4.21.3"), "status.featureGates[1]");
    check_refused(ETCDS, "/status/nodeStatuses/1/nodeName", json!("master-0"), "status.nodeStatuses[1]");
}
