//! `Infrastructure`: where the cluster is, and how its API server is reached.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Other;

/// InfrastructureSpec configures the platform. Perennial reads nothing of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "Infrastructure",
    plural = "infrastructures",
    status = "InfrastructureStatus",
    derive = "PartialEq",
    doc = "Infrastructure says where the cluster is and how its API server is reached. There is one, named cluster. The certificates of the load balancers get their names from it."
)]
pub struct InfrastructureSpec {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// InfrastructureStatus says where the cluster is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct InfrastructureStatus {
    /// infrastructureName is the name of the cluster on its platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_name: Option<String>,
    /// apiServerURL is how users reach the API server. Its host is in the certificate of the external load
    /// balancer.
    #[serde(default, rename = "apiServerURL", skip_serializing_if = "Option::is_none")]
    pub api_server_url: Option<String>,
    /// apiServerInternalURI is how nodes and pods reach the API server. Its host is in the certificate of the
    /// internal load balancer.
    #[serde(default, rename = "apiServerInternalURI", skip_serializing_if = "Option::is_none")]
    pub api_server_internal_uri: Option<String>,
    /// controlPlaneTopology says how many nodes the control plane has, such as HighlyAvailable, SingleReplica
    /// or External.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_topology: Option<String>,
    /// platformStatus is what the platform says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform_status: Option<PlatformStatus>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// PlatformStatus is what a platform says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlatformStatus {
    /// type names the platform, such as BareMetal or None. A field of the same name in lower case has the details.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
