//! `Infrastructure`: the platform of the cluster, and the addresses of its API server.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Other;

/// InfrastructureSpec configures the platform. Perennial does not read it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Infrastructure",
    plural = "infrastructures",
    status = "InfrastructureStatus",
    derive = "PartialEq",
    doc = "Infrastructure describes the platform of the cluster and the URLs of its API server. There is one object, named cluster. The certificates of the load balancers use these names."
)]
pub struct InfrastructureSpec {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// InfrastructureStatus describes the platform and the URLs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// infrastructureName is the name of the cluster on its platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_name: Option<String>,
    /// apiServerURL is the address of the API server for users. Its host is in the certificate of the external load
    /// balancer.
    #[serde(default, rename = "apiServerURL", skip_serializing_if = "Option::is_none")]
    pub api_server_url: Option<String>,
    /// apiServerInternalURI is the address of the API server for nodes and pods. Its host is in the certificate of the
    /// internal load balancer.
    #[serde(default, rename = "apiServerInternalURI", skip_serializing_if = "Option::is_none")]
    pub api_server_internal_uri: Option<String>,
    /// controlPlaneTopology is the size of the control plane, such as HighlyAvailable, SingleReplica
    /// or External.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_topology: Option<String>,
    /// platformStatus is the status of the platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_status: Option<PlatformStatus>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// PlatformStatus is the status of a platform.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlatformStatus {
    /// type names the platform, such as BareMetal or None. A field of the same name in lower case has the details.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
