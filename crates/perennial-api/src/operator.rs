//! The resources of `operator.openshift.io` that Perennial reads and writes: the configuration and the state of the operators
//! whose certificates it manages. Each kind has one object, named `cluster`. Trimmed like [`config`](crate::config).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::crd::Other;

pub mod etcd;
pub mod kube_api_server;
pub mod kube_controller_manager;
pub mod service_ca;
pub mod static_pod;

pub use etcd::Etcd;
pub use kube_api_server::KubeAPIServer;
pub use kube_controller_manager::KubeControllerManager;
pub use service_ca::ServiceCA;

/// The part of a spec that all operators have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorSpec {
    /// managementState enables the operator (Managed or Force) or disables it (Unmanaged or Removed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^(Managed|Unmanaged|Force|Removed)$"))]
    pub management_state: Option<String>,
    /// logLevel is the log level of the operand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Normal", "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]))]
    pub log_level: Option<String>,
    /// operatorLogLevel is the log level of the operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Normal", "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]))]
    pub operator_log_level: Option<String>,
    /// observedConfig is the configuration that the operator computes from other objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_config: Option<Other>,
    /// unsupportedConfigOverrides overrides all other configuration, and is not supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported_config_overrides: Option<Other>,
}

/// The part of a status that all operators have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorStatus {
    /// conditions are the conditions of the operator.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// generations are the generations that the operator has written last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["group", "resource", "namespace", "name"]
    ))]
    pub generations: Vec<Generation>,
    /// observedGeneration is the last generation of this object that the operator has reconciled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// latestAvailableRevision is the newest revision of the operand's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_available_revision: Option<i32>,
    /// readyReplicas is the number of ready replicas of the operand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// version is the version of the operand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Generation is the generation of an object that the operator has written last.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// group is the API group, empty for the core group.
    pub group: String,
    /// resource is the plural name of the resource.
    pub resource: String,
    /// namespace is the namespace of the object, or empty.
    pub namespace: String,
    /// name is the object's name.
    pub name: String,
    /// lastGeneration is the generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_generation: Option<i64>,
    /// hash is the hash of an object without a generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
