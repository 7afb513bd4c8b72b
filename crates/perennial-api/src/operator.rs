//! What Perennial reads and writes of `operator.openshift.io`: the configuration and the state of operators whose
//! certificates it keeps. Each kind has one object, named `cluster`. Trimmed as [`config`](crate::config) is.

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
    /// managementState says whether the operator acts: Managed or Force if so, Unmanaged or Removed if not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("pattern" = "^(Managed|Unmanaged|Force|Removed)$"))]
    pub management_state: Option<String>,
    /// logLevel is how much the operand logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Normal", "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]))]
    pub log_level: Option<String>,
    /// operatorLogLevel is how much the operator itself logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Normal", "enum" = ["", "Normal", "Debug", "Trace", "TraceAll"]))]
    pub operator_log_level: Option<String>,
    /// observedConfig is configuration that the operator has put together from other objects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_config: Option<Other>,
    /// unsupportedConfigOverrides is configuration that wins over everything else, without any promise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unsupported_config_overrides: Option<Other>,
}

/// The part of a status that all operators have.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OperatorStatus {
    /// conditions are the aspects of the operator's state.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// generations are the generations of objects that the operator has last written.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend(
        "x-kubernetes-list-type" = "map",
        "x-kubernetes-list-map-keys" = ["group", "resource", "namespace", "name"]
    ))]
    pub generations: Vec<Generation>,
    /// observedGeneration is the generation of this object that the operator has last acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// latestAvailableRevision is the newest revision of the operand's configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_available_revision: Option<i32>,
    /// readyReplicas is how many replicas of the operand are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_replicas: Option<i32>,
    /// version is the version of the operand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
}

/// Generation is the generation of an object that an operator has last written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Generation {
    /// group is the API group, empty for the core group.
    pub group: String,
    /// resource is the plural name of the resource.
    pub resource: String,
    /// namespace is where the object is, empty if it is in none.
    pub namespace: String,
    /// name is the object's name.
    pub name: String,
    /// lastGeneration is its generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_generation: Option<i64>,
    /// hash stands for the content of an object that has no generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
