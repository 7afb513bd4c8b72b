//! Patches in three formats: merge patch, JSON patch and strategic merge patch.

mod strategic;

use json_patch::jsonptr::Pointer;
use json_patch::{Patch, PatchOperation, patch_unsafe};
use serde_json::Value;

pub(crate) use strategic::strategic;

use crate::bounded::Size;
use crate::deadline;
use crate::limits::{BODY_VALUES, OBJECT_DEPTH, PATCH_COPIED_BYTES, PATCH_OPERATIONS};
use crate::status::{ApiError, Reason};

/// JSON Merge Patch (RFC 7386).
pub(crate) fn merge(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    json_patch::merge(object, patch);
    Ok(())
}

/// JSON Patch (RFC 6902). A few bytes can request very much, so each operation is checked before it is done.
pub(crate) fn json(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let count = patch.as_array().map_or(0, Vec::len);
    if count > PATCH_OPERATIONS {
        let message = format!("The allowed maximum operations in a JSON patch is {PATCH_OPERATIONS}, got {count}");
        return Err(ApiError::new(Reason::RequestEntityTooLarge, message));
    }
    let patch: Patch = serde_json::from_value(patch.clone())
        .map_err(|error| ApiError::new(Reason::BadRequest, format!("the patch is not valid: {error}")))?;
    let mut added = Added::default();
    for (index, operation) in patch.iter().enumerate() {
        deadline::check()?;
        added.check(object, index, operation)?;
        patch_unsafe(object, std::slice::from_ref(operation)).map_err(|mut error| {
            error.operation = index;
            let message = "the server rejected our request due to an error in our request";
            ApiError::new(Reason::Invalid, format!("{message}: {error}"))
        })?;
    }
    Ok(())
}

/// What the operations of a patch have added so far.
#[derive(Default)]
struct Added {
    copied_bytes: usize,
    copied_values: usize,
}

impl Added {
    fn check(&mut self, object: &Value, index: usize, operation: &PatchOperation) -> Result<(), ApiError> {
        let found = |from: &Pointer| object.pointer(from.as_str()).map(Size::of).unwrap_or_default();
        let (path, size) = match operation {
            PatchOperation::Add(it) => (&it.path, Size::of(&it.value)),
            PatchOperation::Replace(it) => (&it.path, Size::of(&it.value)),
            PatchOperation::Move(it) => (&it.path, found(&it.from)),
            PatchOperation::Copy(it) => {
                let size = found(&it.from);
                self.copied_bytes += size.bytes;
                self.copied_values += size.values;
                (&it.path, size)
            }
            PatchOperation::Remove(_) | PatchOperation::Test(_) => return Ok(()),
        };
        let depth = path.count() + size.depth;
        if depth > OBJECT_DEPTH {
            let message = format!(
                "operation {index} of the JSON patch makes an object of {depth} levels, at most {OBJECT_DEPTH} are accepted"
            );
            return Err(ApiError::new(Reason::RequestEntityTooLarge, message));
        }
        let copied = [("bytes", self.copied_bytes, PATCH_COPIED_BYTES), ("values", self.copied_values, BODY_VALUES)];
        match copied.into_iter().find(|(_, copied, accepted)| copied > accepted) {
            None => Ok(()),
            Some((what, copied, accepted)) => {
                let message = format!(
                    "operation {index} of the JSON patch has copied {copied} {what} with those before it, at most {accepted} are accepted"
                );
                Err(ApiError::new(Reason::RequestEntityTooLarge, message))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refusal(object: Value, patch: &Value) -> (u16, String) {
        let mut object = object;
        let error = super::json(&mut object, patch).unwrap_err();
        (error.code, error.message)
    }

    #[test]
    fn a_json_patch_that_nests_by_copying_is_rejected() {
        // Each copy doubles the levels: 14 copies made 16,384 levels, and dropping such a value overflowed the stack.
        let below = |copies: usize| "/a".repeat((1 << copies) + 1);
        let copies: Value = (0..14).map(|it| json!({"op": "copy", "from": "/a", "path": below(it)})).collect();
        let (code, message) = refusal(json!({"a": {}}), &copies);
        assert_eq!(code, 413, "{message}");
        assert!(message.contains("levels, at most 100 are accepted"), "{message}");
        // A move nests too.
        let moves: Vec<Value> = (0..200)
            .flat_map(|_| {
                [
                    json!({"op": "move", "from": "/a", "path": "/b"}),
                    json!({"op": "add", "path": "/a", "value": {}}),
                    json!({"op": "move", "from": "/b", "path": "/a/a"}),
                ]
            })
            .collect();
        let (code, message) = refusal(json!({"a": {}}), &moves.into());
        assert_eq!(code, 413, "{message}");
    }

    #[test]
    fn a_json_patch_that_doubles_an_object_is_rejected() {
        let doubling = |it: usize| json!({"op": "copy", "from": "/data", "path": format!("/data/k{it}")});
        let text = "x".repeat(1000);
        let patch: Value = (0..26).map(doubling).collect();
        let (code, message) = refusal(json!({"data": {"k": text}}), &patch);
        assert_eq!(code, 413, "{message}");
        assert!(message.contains("bytes with those before it, at most 3145728 are accepted"), "{message}");
        let (_, message) = refusal(json!({"data": {"k": [0, 0, 0, 0, 0, 0, 0, 0]}}), &patch);
        assert!(message.contains("values with those before it, at most 50000 are accepted"), "{message}");
    }

    #[test]
    fn a_json_patch_with_too_many_operations_is_rejected() {
        let test = json!({"op": "test", "path": "", "value": {}});
        let operations = |count: usize| Value::Array(vec![test.clone(); count]);
        assert_eq!(super::json(&mut json!({}), &operations(PATCH_OPERATIONS)), Ok(()));
        let (code, message) = refusal(json!({}), &operations(PATCH_OPERATIONS + 1));
        assert_eq!(code, 413);
        assert_eq!(message, "The allowed maximum operations in a JSON patch is 10000, got 10001");
    }

    #[test]
    fn a_rejected_operation_is_named_by_its_number() {
        let patch = json!([{"op": "add", "path": "/a", "value": 1}, {"op": "remove", "path": "/b"}]);
        let (code, message) = refusal(json!({}), &patch);
        assert_eq!(code, 422);
        assert!(message.contains("operation '/1' failed at path '/b'"), "{message}");
    }
}
