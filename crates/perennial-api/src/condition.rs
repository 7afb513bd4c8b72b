//! Conditions: what operators say about themselves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Other;

/// Condition is one aspect of the state of something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// type names the aspect, such as Available or Degraded.
    #[serde(rename = "type")]
    pub type_: String,
    /// status is True, False or Unknown.
    pub status: String,
    /// lastTransitionTime is when status last changed.
    pub last_transition_time: Time,
    /// reason says in one word why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// message says to people why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
