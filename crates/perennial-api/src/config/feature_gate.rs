//! `FeatureGate`: which features are on.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Other;

/// FeatureGateSpec says which features somebody wants.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "FeatureGate",
    plural = "featuregates",
    status = "FeatureGateStatus",
    derive = "PartialEq",
    doc = "FeatureGate says which features are on. There is one, named cluster. Perennial heeds ConfigurablePKI and ShortCertRotation in it."
)]
pub struct FeatureGateSpec {
    /// featureSet chooses a set of features. Empty means the default; CustomNoUpgrade means what
    /// customNoUpgrade says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["CustomNoUpgrade", "DevPreviewNoUpgrade", "TechPreviewNoUpgrade", "OKD", ""]))]
    pub feature_set: Option<String>,
    /// customNoUpgrade switches single features. It counts only if featureSet is CustomNoUpgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom_no_upgrade: Option<CustomFeatureGates>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// CustomFeatureGates switches single features.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CustomFeatureGates {
    /// enabled are the features to switch on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<String>,
    /// disabled are the features to switch off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub disabled: Vec<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// FeatureGateStatus says which features are on in fact.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeatureGateStatus {
    /// featureGates are the features of each version of the cluster that may be running.
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
    /// enabled are the features that are on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enabled: Vec<Feature>,
    /// disabled are the features that are off.
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
