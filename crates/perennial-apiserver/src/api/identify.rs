//! Checks that a received object has the kind, name and namespace of its path.

use serde_json::{Value, json};

use super::{Api, FieldValidation, WriteOptions, remove, text};
use crate::builtin;
use crate::path::Objects;
use crate::resource::Resource;
use crate::status::{About, ApiError, Cause, Reason};

/// How an object was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// As a whole object.
    Whole,
    /// As a patch of the stored object.
    Patch,
    /// As the fields of an apply.
    Applied,
}

impl Api {
    /// Returns the object with the kind, name and namespace of its path, and warnings for the caller.
    pub(super) fn identified(
        &self,
        resource: &Resource,
        at: &Objects,
        body: Value,
        sent: Sent,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>), ApiError> {
        let bad = |message: String| ApiError::new(Reason::BadRequest, message);
        let Value::Object(_) = &body else {
            return Err(bad("the object provided is unrecognized (must be of type object)".to_owned()));
        };
        let mut object = body;
        check_kind(resource, &object, sent)?;
        object["apiVersion"] = resource.api_version().into();
        object["kind"] = resource.kind.as_str().into();
        // An applied object is checked when it is merged.
        let warnings = if sent == Sent::Applied {
            Vec::new()
        } else {
            read(resource, &mut object, sent, options.field_validation)?
        };
        if !object["metadata"].is_object() {
            object["metadata"] = json!({});
        }
        let namespace = text(&object, "namespace").to_owned();
        match &at.namespace {
            Some(expected) if !namespace.is_empty() && namespace != *expected => {
                let message = "the namespace of the provided object does not match the namespace sent on the request";
                return Err(bad(message.to_owned()));
            }
            Some(expected) => object["metadata"]["namespace"] = expected.as_str().into(),
            None if resource.namespaced => {
                return Err(bad("an object of this kind must be in a namespace".to_owned()));
            }
            None => remove(&mut object, "namespace"),
        }
        let name = text(&object, "name").to_owned();
        match &at.name {
            Some(expected) if !name.is_empty() && name != *expected => {
                return Err(bad(format!(
                    "the name of the object ({name}) does not match the name on the URL ({expected})"
                )));
            }
            Some(expected) => object["metadata"]["name"] = expected.as_str().into(),
            None => {}
        }
        Ok((object, warnings))
    }
}

/// Returns a stored object without fields that have become unknown since. The next writer is not responsible for them.
pub(super) fn known(resource: &Resource, mut object: Value) -> Value {
    // An unreadable object is reported when it is written again.
    drop(read(resource, &mut object, Sent::Whole, FieldValidation::Ignore));
    object
}

/// Checks that an object has the kind of its path. An applied object must name its kind, other objects may.
fn check_kind(resource: &Resource, object: &Value, sent: Sent) -> Result<(), ApiError> {
    let bad = |message: String| Err(ApiError::new(Reason::BadRequest, message));
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if sent == Sent::Applied && (version.is_empty() || kind.is_empty()) {
        let version = if version.contains('/') { version.to_owned() } else { format!("/{version}") };
        return bad(format!("invalid object type: {version}, Kind={kind}"));
    }
    let api_version = resource.api_version();
    if !version.is_empty() && version != api_version {
        return bad(format!(
            "the API version in the data ({version}) does not match the expected API version ({api_version})"
        ));
    }
    if kind.is_empty() || kind == resource.kind {
        return Ok(());
    }
    if resource.schema.is_some() && sent == Sent::Whole {
        let cause = Cause {
            reason: "FieldValueInvalid".to_owned(),
            message: format!("Invalid value: {kind:?}: must be {}", resource.kind),
            field: "kind".to_owned(),
        };
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let about = About { group: resource.group.clone(), kind: kind.to_owned(), name };
        return Err(ApiError::invalid(about, vec![cause]));
    }
    bad(format!("the kind in the data ({kind}) does not match the expected kind ({})", resource.kind))
}

/// Removes unknown fields from an object, as a Kubernetes API server does, and reports them to the caller.
fn read(
    resource: &Resource,
    object: &mut Value,
    sent: Sent,
    field_validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let refuse = |why: String| match sent {
        Sent::Patch => {
            // A Kubernetes API server repeats the whole object here, even a Secret.
            let cause = Cause {
                reason: "FieldValueInvalid".to_owned(),
                message: format!("Invalid value: {why}"),
                field: "patch".to_owned(),
            };
            let about = About { group: String::new(), kind: String::new(), name: String::new() };
            ApiError::invalid(about, vec![cause])
        }
        Sent::Whole | Sent::Applied => {
            let (kind, version) = (&resource.kind, &resource.version);
            let message = format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}");
            ApiError::new(Reason::BadRequest, message)
        }
    };
    let mut unknown = builtin::read(resource, object).map_err(refuse)?;
    unknown.extend(resource.schema.iter().flat_map(|schema| schema.prune(object)));
    let unknown: Vec<String> = unknown.into_iter().map(|field| format!("unknown field {field:?}")).collect();
    match field_validation {
        FieldValidation::Strict if !unknown.is_empty() => {
            Err(refuse(format!("strict decoding error: {}", unknown.join(", "))))
        }
        FieldValidation::Strict | FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Warn => Ok(unknown),
    }
}
