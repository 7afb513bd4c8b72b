//! `ServiceCA`: the operator of the service CA, which issues the certificates of Services.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{OperatorSpec, OperatorStatus};
use crate::crd::Other;

/// ServiceCASpec configures the operator. A rotation of the service CA is forced by a new reason in
/// unsupportedConfigOverrides.forceRotation.reason.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "ServiceCA",
    plural = "servicecas",
    status = "ServiceCAStatus",
    derive = "PartialEq",
    doc = "ServiceCA configures the service CA, which issues the certificates of Services. There is one, named cluster."
)]
pub struct ServiceCASpec {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub operator: OperatorSpec,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// ServiceCAStatus is what the operator reports.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceCAStatus {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub operator: OperatorStatus,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
