//! `FeatureGate`: the enabled features.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Other;

/// FeatureGateSpec is the requested set of features.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "FeatureGate",
    plural = "featuregates",
    status = "FeatureGateStatus",
    derive = "PartialEq",
    doc = "FeatureGate enables and disables features. There is one object, named cluster. Perennial reads ConfigurablePKI and ShortCertRotation."
)]
pub struct FeatureGateSpec {
    /// featureSet selects a set of features. Empty means the default; CustomNoUpgrade means the features of
    /// customNoUpgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["CustomNoUpgrade", "DevPreviewNoUpgrade", "TechPreviewNoUpgrade", "OKD", ""]))]
    pub feature_set: Option<String>,
    /// customNoUpgrade enables or disables single features. It applies only if featureSet is CustomNoUpgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_no_upgrade: Option<CustomFeatureGates>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// CustomFeatureGates switches single features.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CustomFeatureGates {
    /// enabled are the features to enable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<String>,
    /// disabled are the features to disable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// FeatureGateStatus is the effective set of features.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureGateStatus {
    /// featureGates are the features of each version of the cluster that may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["version"]))]
    pub feature_gates: Vec<VersionFeatureGates>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// VersionFeatureGates are the features of one version.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VersionFeatureGates {
    /// version is the version of the cluster.
    pub version: String,
    /// enabled are the enabled features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<Feature>,
    /// disabled are the disabled features.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<Feature>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// Feature is one feature.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Feature {
    /// name is its name.
    pub name: String,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
