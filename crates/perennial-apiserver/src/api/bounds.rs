//! The size limits of an object, with everything that a write adds to it.

use serde_json::Value;

use super::admit::about_kind;
use super::text;
use crate::bounded::Size;
use crate::limits::{OBJECT_BYTES, OBJECT_DEPTH};
use crate::resource::Resource;
use crate::status::ApiError;
use crate::store::Stored;

/// Rejects an object that is too large, or too deep to be read again. An object that already is too large may be
/// replaced by one that is not larger.
pub(super) fn check(resource: &Resource, new: &Value, old: Option<&Stored>) -> Result<(), ApiError> {
    let depth = Size::of(new).depth;
    if depth > OBJECT_DEPTH {
        let why =
            format!("the object nests {depth} levels with its managedFields, at most {OBJECT_DEPTH} are accepted");
        return Err(refusal(resource, new, &why));
    }
    let bytes = length(new);
    let accepted = old.map_or(0, |old| old.body.len()).max(OBJECT_BYTES);
    if bytes > accepted {
        let why = format!("the object has {bytes} bytes with its metadata, at most {OBJECT_BYTES} are accepted");
        return Err(refusal(resource, new, &why));
    }
    Ok(())
}

fn refusal(resource: &Resource, object: &Value, why: &str) -> ApiError {
    let about = about_kind(resource, text(object, "name"));
    ApiError::too_large(about, why)
}

/// Returns the length of a value as JSON.
fn length(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Writing a value with text keys cannot fail.
    drop(serde_json::to_writer(&mut count, value));
    count.0
}
