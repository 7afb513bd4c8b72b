//! What an object must be to be stored.

use perennial_schema::FieldError;
use serde_json::{Value, json};

use super::{Api, FieldValidation, WriteOptions, remove, text};
use crate::path::Objects;
use crate::resource::Resource;
use crate::status::{About, ApiError, Cause, Reason};
use crate::{builtin, names};

impl Api {
    /// The object with the kind, name and namespace that its path says.
    pub(super) fn identified(&self, resource: &Resource, at: &Objects, body: Value) -> Result<Value, ApiError> {
        let bad = |message: String| ApiError::new(Reason::BadRequest, message);
        let Value::Object(_) = &body else {
            return Err(bad("the object provided is unrecognized (must be of type object)".to_owned()));
        };
        let mut object = body;
        for (field, expected) in [("apiVersion", resource.api_version()), ("kind", resource.kind.clone())] {
            match object[field].as_str() {
                Some(found) if !found.is_empty() && found != expected => {
                    return Err(bad(format!(
                        "the {field} in the data ({found}) does not match the expected {field} ({expected})"
                    )));
                }
                _ => object[field] = expected.into(),
            }
        }
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
        Ok(object)
    }

    /// The metadata that an object gets when it is made.
    pub(super) fn born(&self, resource: &Resource, object: &mut Value) {
        if text(object, "name").is_empty() && !text(object, "generateName").is_empty() {
            let name = format!("{}{}", text(object, "generateName"), self.environment.suffix());
            object["metadata"]["name"] = name.into();
        }
        for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"] {
            remove(object, field);
        }
        object["metadata"]["uid"] = self.environment.uid().into();
        object["metadata"]["creationTimestamp"] = self.environment.now_text().into();
        remove(object, "generation");
        if has_generation(resource) {
            object["metadata"]["generation"] = 1.into();
        }
        // Status is for whoever brings it about.
        if resource.has_status
            && resource.schema.is_some()
            && let Some(object) = object.as_object_mut()
        {
            object.remove("status");
        }
    }

    /// What an object becomes when another takes its place.
    pub(super) fn changed(
        &self,
        resource: &Resource,
        old: &Value,
        new: Value,
        subresource: Option<&str>,
        options: &WriteOptions,
    ) -> Result<(Value, Vec<String>), ApiError> {
        let seen = text(&new, "resourceVersion");
        let name = text(old, "name");
        if !seen.is_empty() && seen != text(old, "resourceVersion") {
            return Err(ApiError::modified(super::about(resource, name)));
        }
        if seen.is_empty() && resource.schema.is_some() {
            let cause = Cause {
                reason: "FieldValueInvalid".to_owned(),
                message: "Invalid value: 0: must be specified for an update".to_owned(),
                field: "metadata.resourceVersion".to_owned(),
            };
            return Err(ApiError::invalid(about_kind(resource, name), vec![cause]));
        }
        let uid = text(&new, "uid");
        if !uid.is_empty() && uid != text(old, "uid") {
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", text(old, "uid"));
            return Err(ApiError::conflict(super::about(resource, name), &why));
        }
        let mut new = match subresource {
            Some("status") => {
                let mut merged = old.clone();
                merged["status"] = new["status"].clone();
                merged["metadata"]["managedFields"] = new["metadata"]["managedFields"].clone();
                merged
            }
            _ => self.with_kept_status(resource, old, new),
        };
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            match old["metadata"].get(field) {
                Some(kept) => new["metadata"][field] = kept.clone(),
                None => remove(&mut new, field),
            }
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        let warnings = admit(resource, &mut new, Some(old), options.field_validation)?;
        if has_generation(resource) && !same_but_for_metadata(old, &new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0) + 1;
            new["metadata"]["generation"] = generation.into();
        }
        Ok((new, warnings))
    }

    fn with_kept_status(&self, resource: &Resource, old: &Value, mut new: Value) -> Value {
        if resource.has_status
            && let Some(object) = new.as_object_mut()
        {
            match old.get("status") {
                Some(status) => drop(object.insert("status".to_owned(), status.clone())),
                None => drop(object.remove("status")),
            }
        }
        new
    }

    /// Objects are made only in namespaces that are there to stay.
    pub(super) fn check_namespace(&self, resource: &Resource, at: &Objects) -> Result<(), ApiError> {
        let Some(namespace) = at.namespace.as_deref().filter(|_| resource.namespaced) else { return Ok(()) };
        let registry = self.registry();
        let namespaces = registry.get("", "v1", "namespaces").ok_or_else(ApiError::no_such_path)?;
        let found = self.store.get(&super::key(namespaces, None, namespace));
        let found = found.ok_or_else(|| ApiError::not_found(super::about(namespaces, namespace)))?;
        let is_ending = super::object(namespaces, &found)["metadata"]["deletionTimestamp"].is_string();
        if is_ending {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            return Err(ApiError::forbidden(super::about(resource, at.name.as_deref().unwrap_or_default()), &why));
        }
        Ok(())
    }
}

/// Completes an object and checks it; returns what the caller should know.
pub(super) fn admit(
    resource: &Resource,
    object: &mut Value,
    old: Option<&Value>,
    field_validation: FieldValidation,
) -> Result<Vec<String>, ApiError> {
    let name = text(object, "name").to_owned();
    let mut causes: Vec<Cause> = match (name.is_empty(), resource.kind.as_str()) {
        (true, _) => vec![Cause {
            reason: "FieldValueRequired".to_owned(),
            message: "Required value: name or generateName is required".to_owned(),
            field: "metadata.name".to_owned(),
        }],
        (false, "Namespace") => names::namespace_cause(&name).into_iter().collect(),
        // Roles may be called as paths are.
        (false, _) if resource.group == "rbac.authorization.k8s.io" => Vec::new(),
        (false, _) => names::name_cause(&name).into_iter().collect(),
    };
    let mut warnings = Vec::new();
    match &resource.schema {
        Some(schema) => {
            schema.drop_nulls(object);
            schema.apply_defaults(object);
            let unknown = schema.prune(object);
            match field_validation {
                FieldValidation::Strict if !unknown.is_empty() => {
                    let fields: Vec<String> = unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
                    let message = format!("strict decoding error: {}", fields.join(", "));
                    let whole = format!(
                        "{} in version {:?} cannot be handled as a {}: {message}",
                        resource.kind, resource.version, resource.kind
                    );
                    return Err(ApiError::new(Reason::BadRequest, whole));
                }
                FieldValidation::Warn => {
                    warnings.extend(unknown.iter().map(|field| format!("unknown field {field:?}")));
                }
                FieldValidation::Strict | FieldValidation::Ignore => {}
            }
            causes.extend(schema.validate(object, old).iter().map(cause));
        }
        None => {
            drop_empty_maps(object);
            builtin::default(resource, object);
            causes.extend(builtin::validate(resource, object, old));
        }
    }
    if causes.is_empty() { Ok(warnings) } else { Err(ApiError::invalid(about_kind(resource, &name), causes)) }
}

fn cause(error: &FieldError) -> Cause {
    let field = if error.path.is_empty() { "<nil>".to_owned() } else { error.path.clone() };
    Cause { reason: error.kind.reason().to_owned(), message: error.body(), field }
}

/// An error about an object that is wrong speaks of its kind, not of its resource.
pub(super) fn about_kind(resource: &Resource, name: &str) -> About {
    About { group: resource.group.clone(), kind: resource.kind.clone(), name: name.to_owned() }
}

/// Custom resources, and what has a spec, count how often that changed.
fn has_generation(resource: &Resource) -> bool {
    resource.schema.is_some() || matches!(resource.kind.as_str(), "Deployment" | "CustomResourceDefinition")
}

fn same_but_for_metadata(old: &Value, new: &Value) -> bool {
    let plain = |value: &Value| {
        let mut value = value.clone();
        if let Some(object) = value.as_object_mut() {
            ["metadata", "status"].into_iter().for_each(|field| drop(object.remove(field)));
        }
        value
    };
    plain(old) == plain(new)
}

/// Built-in objects have no empty maps in their metadata.
fn drop_empty_maps(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|_, value| !value.is_null() && value.as_object().is_none_or(|map| !map.is_empty()));
    }
}
