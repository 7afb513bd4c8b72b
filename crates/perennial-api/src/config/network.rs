//! `Network`: the addresses of Services and pods.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::{Other, definition};

/// Returns the definition. As in OpenShift, status is not a subresource.
pub fn crd() -> CustomResourceDefinition {
    let mut crd = definition::<Network>();
    crd.spec.versions.iter_mut().for_each(|version| version.subresources = None);
    crd
}

/// NetworkSpec is the requested configuration of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Network",
    plural = "networks",
    status = "NetworkStatus",
    derive = "PartialEq",
    doc = "Network has the address ranges of Services and pods. There is one object, named cluster. The API server's certificate for the service network uses these addresses."
)]
pub struct NetworkSpec {
    /// clusterNetwork are the address ranges of pods.
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

/// NetworkStatus is the actual configuration of the network.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkStatus {
    /// clusterNetwork are the address ranges of pods.
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

/// ClusterNetwork is an address range of pods.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterNetwork {
    /// cidr is the range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cidr: Option<String>,
    /// hostPrefix is the prefix length of the part that each node gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub host_prefix: Option<i32>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
