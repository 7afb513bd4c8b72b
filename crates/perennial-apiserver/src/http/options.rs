//! What the options of a request may be. Wrong ones are told as those of an object: a kind, a field, and why.

use crate::status::{About, ApiError, Cause};

/// The kinds of options that a request has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Options {
    Create,
    Update,
    Patch,
    Delete,
    List,
}

impl Options {
    /// Refuses a request if something is wrong with its options.
    pub(super) fn refuse(self, causes: Vec<Cause>) -> Result<(), ApiError> {
        if causes.is_empty() {
            return Ok(());
        }
        let kind = format!("{self:?}Options");
        Err(ApiError::invalid(About { group: "meta.k8s.io".to_owned(), kind, name: String::new() }, causes))
    }
}

/// A value that is none of those that there are; `value` is as people read it.
pub(super) fn unsupported(field: &str, value: &str, supported: &[&str]) -> Cause {
    let supported: Vec<String> = supported.iter().map(|it| format!("{it:?}")).collect();
    let message = format!("Unsupported value: {value}: supported values: {}", supported.join(", "));
    cause("FieldValueNotSupported", field, message)
}

/// A value that must not be there.
pub(super) fn forbidden(field: &str, why: &str) -> Cause {
    cause("FieldValueForbidden", field, format!("Forbidden: {why}"))
}

/// A value that is wrong; it is as people read it.
pub(super) fn invalid(field: &str, value: &str, why: &str) -> Cause {
    cause("FieldValueInvalid", field, format!("Invalid value: {value}: {why}"))
}

/// A value that must be there.
pub(super) fn required(field: &str, why: &str) -> Cause {
    cause("FieldValueRequired", field, format!("Required value: {why}"))
}

fn cause(reason: &str, field: &str, message: String) -> Cause {
    Cause { reason: reason.to_owned(), message, field: field.to_owned() }
}
