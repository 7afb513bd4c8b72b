//! `ClusterOperator`: the state of an operator, for people and for upgrades.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::crd::Other;

/// ClusterOperatorSpec is empty: the object only has a status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterOperator",
    plural = "clusteroperators",
    shortname = "co",
    status = "ClusterOperatorStatus",
    derive = "PartialEq",
    doc = "ClusterOperator is the status of an operator. Perennial writes one for each component that it manages.",
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

/// ClusterOperatorStatus is the reported status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterOperatorStatus {
    /// conditions are Available, Progressing, Degraded, Upgradeable and others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// versions are the versions of the operator, named operator, and of its operands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub versions: Vec<OperandVersion>,
    /// relatedObjects are objects that help to find the cause of a problem.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<RelatedObject>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// OperandVersion is the version of the operator or of an operand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OperandVersion {
    /// name is the name of the operand.
    pub name: String,
    /// version is the version of the operand.
    pub version: String,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// RelatedObject refers to one object or to all objects of a resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RelatedObject {
    /// group is the API group, empty for the core group.
    pub group: String,
    /// resource is the plural name of the resource.
    pub resource: String,
    /// namespace is the namespace of the object, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// name is the name of the object, or empty for all objects.
    pub name: String,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
