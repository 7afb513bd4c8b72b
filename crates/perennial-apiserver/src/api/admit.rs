//! Admission: the metadata that the server sets, and the checks of an object before it is stored.

use perennial_schema::FieldError;
use serde_json::Value;

use super::fields::same_but;
use super::identify::Sent;
use super::{Api, WriteOptions, remove, text};
use crate::builtin;
use crate::deadline;
use crate::limits::OBJECT_BYTES;
use crate::path::Objects;
use crate::resource::Resource;
use crate::status::{About, ApiError, Cause};

/// The longest given part of a generated name.
const MAX_GENERATED: usize = 58;

impl Api {
    /// Sets the metadata of a new object.
    pub(super) fn prepare_create(&self, resource: &Resource, object: &mut Value, options: &WriteOptions) {
        if text(object, "name").is_empty() && !text(object, "generateName").is_empty() {
            let name: String = text(object, "generateName").chars().take(MAX_GENERATED).collect();
            object["metadata"]["name"] = format!("{name}{}", self.environment.suffix()).into();
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
        // Only the status subresource sets the status.
        if resource.has_status
            && resource.schema.is_some()
            && let Some(object) = object.as_object_mut()
        {
            object.remove("status");
        }
        builtin::prepare_create(resource, object, options.user.as_ref());
    }

    /// Returns the object after an update: the new object with the metadata that an update cannot change.
    pub(super) fn changed(
        &self,
        resource: &Resource,
        old: &Value,
        new: Value,
        subresource: Option<&str>,
        sent: Sent,
    ) -> Result<Value, ApiError> {
        let seen = text(&new, "resourceVersion");
        let name = text(old, "name");
        let invalid = |about: About, field: &str, message: String| {
            let (reason, field) = ("FieldValueInvalid".to_owned(), field.to_owned());
            ApiError::invalid(about, vec![Cause { reason, message, field }])
        };
        if !seen.is_empty() && seen != text(old, "resourceVersion") {
            return Err(ApiError::modified(super::about(resource, name)));
        }
        if seen.is_empty() && resource.schema.is_some() {
            let message = "Invalid value: 0: must be specified for an update".to_owned();
            return Err(invalid(super::about(resource, name), "metadata.resourceVersion", message));
        }
        let uid = text(&new, "uid");
        if !uid.is_empty() && uid != text(old, "uid") {
            if sent == Sent::Patch {
                let message = format!("Invalid value: {uid:?}: field is immutable");
                return Err(invalid(about_kind(resource, name), "metadata.uid", message));
            }
            let why =
                format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", text(old, "uid"));
            return Err(ApiError::conflict(super::about(resource, name), &why));
        }
        let end = text(&new, "deletionTimestamp");
        if !end.is_empty() && text(old, "deletionTimestamp").is_empty() {
            let message = format!("Invalid value: {end:?}: field is immutable");
            return Err(invalid(about_kind(resource, name), "metadata.deletionTimestamp", message));
        }
        let mut new = match subresource {
            Some(_) => {
                let mut merged = old.clone();
                merged["status"] = new["status"].clone();
                merged["metadata"]["managedFields"] = new["metadata"]["managedFields"].clone();
                merged
            }
            None => self.with_kept_status(resource, old, new),
        };
        for field in ["uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"] {
            match old["metadata"].get(field) {
                Some(kept) => new["metadata"][field] = kept.clone(),
                None => remove(&mut new, field),
            }
        }
        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
        builtin::changed(resource, old, &mut new, subresource, &self.environment.now_text());
        admit(resource, &mut new, Some(old), subresource)?;
        if has_generation(resource) && !wants_same(old, &new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
            new["metadata"]["generation"] = generation.into();
        }
        Ok(new)
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

    /// Checks that the namespace of a new object exists and is not being deleted.
    pub(super) fn check_namespace(&self, resource: &Resource, at: &Objects, name: &str) -> Result<(), ApiError> {
        let Some(namespace) = at.namespace.as_deref().filter(|_| resource.namespaced) else { return Ok(()) };
        let registry = self.registry();
        let namespaces = registry.get("", "v1", "namespaces").ok_or_else(ApiError::no_such_path)?;
        let at = super::key(namespaces, None, namespace);
        let found = self.store.get(&at).ok_or_else(|| ApiError::not_found(super::about(namespaces, namespace)))?;
        let is_ending = super::object(namespaces, &at, &found)?["metadata"]["deletionTimestamp"].is_string();
        if is_ending {
            let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
            let cause = Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {namespace} is being terminated"),
                field: "metadata.namespace".to_owned(),
            };
            let refusal = ApiError::forbidden(super::about(resource, name), &why);
            return Err(ApiError { causes: vec![cause], ..refusal });
        }
        Ok(())
    }
}

/// Sets the defaults of an object and validates it.
pub(super) fn admit(
    resource: &Resource,
    object: &mut Value,
    old: Option<&Value>,
    subresource: Option<&str>,
) -> Result<(), ApiError> {
    let name = text(object, "name").to_owned();
    let mut causes = Vec::new();
    match &resource.schema {
        Some(schema) => {
            schema.drop_nulls(object);
            if !schema.apply_defaults_within(object, OBJECT_BYTES) {
                let why = format!("the defaults of its schema add more than {OBJECT_BYTES} bytes");
                return Err(ApiError::too_large(about_kind(resource, &name), &why));
            }
            // A stored object may be older than the schema.
            schema.prune(object);
            causes.extend(builtin::metadata::causes(resource, object, old));
            let go_on = || deadline::check().is_ok();
            causes.extend(schema.validate_while(object, old, &go_on).iter().map(cause));
            deadline::check()?;
        }
        None => {
            builtin::default(resource, object);
            causes.extend(builtin::metadata::causes(resource, object, old));
            causes.extend(builtin::validate(resource, object, old, subresource));
        }
    }
    if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(about_kind(resource, &name), causes)) }
}

fn cause(error: &FieldError) -> Cause {
    let field = if error.path.is_empty() { "<nil>".to_owned() } else { error.path.clone() };
    Cause { reason: error.kind.reason().to_owned(), message: error.body(), field }
}

/// An error about an invalid object names its kind, not its resource.
pub(super) fn about_kind(resource: &Resource, name: &str) -> About {
    About { group: resource.group.clone(), kind: resource.kind.clone(), name: name.to_owned() }
}

/// Returns true for custom resources and for kinds with a spec, which count the changes of the spec.
fn has_generation(resource: &Resource) -> bool {
    resource.schema.is_some() || matches!(resource.kind.as_str(), "Deployment" | "CustomResourceDefinition")
}

/// Returns true if the desired state of both objects is equal. For Deployments it includes the annotations.
fn wants_same(old: &Value, new: &Value) -> bool {
    let same_annotations = || old["metadata"]["annotations"] == new["metadata"]["annotations"];
    same_but(old, new, &["metadata", "status"]) && (new["kind"] != "Deployment" || same_annotations())
}
