//! `KubeAPIServer`: the operator of kube-apiserver.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperatorSpec;
use super::static_pod::{StaticPodOperatorStatus, StaticPodSpec};
use crate::crd::Other;

/// KubeAPIServerSpec configures the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "KubeAPIServer",
    plural = "kubeapiservers",
    category = "coreoperators",
    status = "StaticPodOperatorStatus",
    derive = "PartialEq",
    doc = "KubeAPIServer configures the operator of kube-apiserver, and has the revision of each node. There is one object, named cluster."
)]
pub struct KubeAPIServerSpec {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub operator: OperatorSpec,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub static_pod: StaticPodSpec,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
