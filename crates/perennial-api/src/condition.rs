//! Conditions of operators.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::crd::Other;

/// Condition is one condition of an object.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// type is the name of the condition, such as Available or Degraded.
    #[serde(rename = "type")]
    pub type_: String,
    /// status is True, False or Unknown.
    pub status: String,
    /// lastTransitionTime is the last change of status.
    pub last_transition_time: Time,
    /// reason is the cause in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// message is a description for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}
