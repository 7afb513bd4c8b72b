//! Patches: what is to change, in the three ways that clients say it.

mod strategic;

use serde_json::Value;

pub(crate) use strategic::strategic;

use crate::status::{ApiError, Reason};

/// JSON Merge Patch (RFC 7386).
pub(crate) fn merge(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    json_patch::merge(object, patch);
    Ok(())
}

/// JSON Patch (RFC 6902).
pub(crate) fn json(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let patch: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| ApiError::new(Reason::BadRequest, format!("the patch is not valid: {error}")))?;
    json_patch::patch(object, &patch).map_err(|error| {
        let message = "the server rejected our request due to an error in our request";
        ApiError::new(Reason::Invalid, format!("{message}: {error}"))
    })
}
