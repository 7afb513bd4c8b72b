//! `ClusterOperator`: how an operator is, for people and for upgrades.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::crd::Other;

/// ClusterOperatorSpec is empty: an operator only reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterOperator",
    plural = "clusteroperators",
    shortname = "co",
    status = "ClusterOperatorStatus",
    derive = "PartialEq",
    doc = "ClusterOperator says how an operator is. Perennial reports its state in one of its own.",
    printcolumn(name = "Version", type_ = "string", json_path = r#".status.versions[?(@.name=="operator")].version"#),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Available")].status"#
    ),
    printcolumn(
        name = "Progressing",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].status"#
    ),
    printcolumn(
        name = "Degraded",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Degraded")].status"#
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = r#".status.conditions[?(@.type=="Available")].lastTransitionTime"#
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = r#".status.conditions[?(@.type=="Progressing")].message"#
    )
)]
pub struct ClusterOperatorSpec {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// ClusterOperatorStatus is what the operator reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOperatorStatus {
    /// conditions are the aspects of its state: Available, Progressing, Degraded, Upgradeable and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// versions are what runs: of the operator itself, named operator, and of what it operates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<OperandVersion>,
    /// relatedObjects are the objects that somebody who looks for a cause should see.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<RelatedObject>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// OperandVersion is the version of one thing that runs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperandVersion {
    /// name is what runs.
    pub name: String,
    /// version is its version.
    pub version: String,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// RelatedObject points to an object, or to all of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelatedObject {
    /// group is the API group, empty for the core group.
    pub group: String,
    /// resource is the plural name of the resource.
    pub resource: String,
    /// namespace is where it is, if it is in one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// name is the object, or empty for all of them.
    pub name: String,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
