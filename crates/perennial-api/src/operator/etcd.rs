//! `Etcd`: the operator of etcd.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::OperatorSpec;
use super::static_pod::{StaticPodOperatorStatus, StaticPodSpec};
use crate::crd::Other;

/// EtcdSpec configures the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "Etcd",
    plural = "etcds",
    category = "coreoperators",
    status = "StaticPodOperatorStatus",
    derive = "PartialEq",
    doc = "Etcd configures the operator of etcd, and has the revision of each node. There is one object, named cluster."
)]
pub struct EtcdSpec {
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
