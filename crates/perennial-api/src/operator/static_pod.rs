//! The common part of operators whose operand is a static pod on each control-plane node, rolled out in revisions.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperatorStatus;
use crate::crd::Other;

/// The part of a spec that operators of static pods have besides [`OperatorSpec`](super::OperatorSpec).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticPodSpec {
    /// forceRedeploymentReason rolls out a new revision whenever it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub force_redeployment_reason: Option<String>,
    /// failedRevisionLimit is the number of failed revisions to keep: 0 means a default, -1 all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_revision_limit: Option<i32>,
    /// succeededRevisionLimit is the number of successful revisions to keep: 0 means a default, -1 all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub succeeded_revision_limit: Option<i32>,
}

/// StaticPodOperatorStatus is the status of the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StaticPodOperatorStatus {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub operator: OperatorStatus,
    /// nodeStatuses are the revisions of each node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["nodeName"]))]
    pub node_statuses: Vec<NodeStatus>,
    /// latestAvailableRevisionReason is the reason of the newest revision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_available_revision_reason: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// NodeStatus has the revisions of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeStatus {
    /// nodeName is the name of the node.
    pub node_name: String,
    /// currentRevision is the revision that runs on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_revision: Option<i32>,
    /// targetRevision is the revision that is rolled out on the node, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_revision: Option<i32>,
    /// lastFailedRevision is the last revision whose rollout failed on the node, or 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed_revision: Option<i32>,
    /// lastFailedTime is the time of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failed_time: Option<Time>,
    /// lastFailedRevisionErrors are the errors of the last failed revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub last_failed_revision_errors: Vec<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
