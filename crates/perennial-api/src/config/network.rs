//! `Network`: the addresses of Services and pods.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{Other, definition};

/// The definition. Status is part of the object here, as on OpenShift: it has no subresource.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = definition::<Network>();
    crd.spec.versions.iter_mut().for_each(|version| version.subresources = None);
    crd
}

/// NetworkSpec is what somebody wants the network to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Network",
    plural = "networks",
    status = "NetworkStatus",
    derive = "PartialEq",
    doc = "Network says which addresses Services and pods have. There is one, named cluster. The API server's certificate for the service network gets its addresses from it."
)]
pub struct NetworkSpec {
    /// clusterNetwork are the addresses of pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cluster_network: Vec<ClusterNetwork>,
    /// serviceNetwork are the addresses of Services, one range for each address family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub service_network: Vec<String>,
    /// networkType names the network plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// NetworkStatus is what the network is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// clusterNetwork are the addresses of pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub cluster_network: Vec<ClusterNetwork>,
    /// serviceNetwork are the addresses of Services, one range for each address family. The first address of each
    /// is the API server's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub service_network: Vec<String>,
    /// networkType names the network plugin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_type: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// ClusterNetwork is a range of addresses of pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetwork {
    /// cidr is the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
    /// hostPrefix is the size of the part that each node gets, as the length of its prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub host_prefix: Option<i32>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
