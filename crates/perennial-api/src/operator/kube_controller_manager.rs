//! `KubeControllerManager`: the operator of kube-controller-manager.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperatorSpec;
use super::static_pod::{StaticPodOperatorStatus, StaticPodSpec};
use crate::crd::Other;

/// KubeControllerManagerSpec configures the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "KubeControllerManager",
    plural = "kubecontrollermanagers",
    category = "coreoperators",
    status = "StaticPodOperatorStatus",
    derive = "PartialEq",
    doc = "KubeControllerManager configures the operator of kube-controller-manager, and has the revision of each node. There is one object, named cluster."
)]
pub struct KubeControllerManagerSpec {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub operator: OperatorSpec,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub static_pod: StaticPodSpec,
    /// useMoreSecureServiceCA limits the ConfigMap openshift-service-ca.crt of every namespace to the service
    /// CA, without other CAs of the platform.
    #[serde(default, rename = "useMoreSecureServiceCA")]
    pub use_more_secure_service_ca: bool,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
