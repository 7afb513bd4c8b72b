//! Validation of request options. The errors have the format of object errors: kind, field and reason.

use crate::status::{About, ApiError, Cause};

/// The kinds of options of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Options {
    Create,
    Update,
    Patch,
    Delete,
    List,
}

impl Options {
    /// Rejects a request with faulty options.
    pub(super) fn refuse(self, causes: Vec<Cause>) -> Result<(), ApiError> {
        if causes.is_empty() {
            return Ok(());
        }
        let kind = format!("{self:?}Options");
        Err(ApiError::invalid(About { group: "meta.k8s.io".to_owned(), kind, name: String::new() }, causes))
    }
}

/// Returns the cause for an unsupported value; `value` is as the message shows it.
pub(super) fn unsupported(field: &str, value: &str, supported: &[&str]) -> Cause {
    let supported: Vec<String> = supported.iter().map(|it| format!("{it:?}")).collect();
    let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
    cause("FieldValueNotSupported", field, message)
}

/// Returns the cause for a forbidden value.
pub(super) fn forbidden(field: &str, why: &str) -> Cause {
    cause("FieldValueForbidden", field, format!("Forbidden: {why}"))
}

/// Returns the cause for an invalid value; `value` is as the message shows it.
pub(super) fn invalid(field: &str, value: &str, why: &str) -> Cause {
    cause("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
}

/// Returns the cause for a missing value.
pub(super) fn required(field: &str, why: &str) -> Cause {
    cause("FieldValueRequired", field, format!("Required value: {why}"))
}

fn cause(reason: &str, field: &str, message: String) -> Cause {
    Cause { reason: reason.to_owned(), message, field: field.to_owned() }
}
