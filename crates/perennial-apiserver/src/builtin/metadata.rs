//! Validation of object metadata, for all kinds including custom resources.

use std::collections::HashSet;

use serde_json::Value;

use super::cause;
use crate::names;
use crate::resource::Resource;
use crate::status::Cause;

/// The largest size of all annotations of an object.
const MAX_ANNOTATIONS: usize = 256 << 10;

/// The finalizers that need no domain.
const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// Returns the faults of an object's metadata, also as an update of an earlier one.
pub(crate) fn causes(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let metadata = &object["metadata"];
    let mut causes = match old {
        Some(old) => new_finalizers(metadata, &old["metadata"]).into_iter().collect(),
        None => name_causes(resource, metadata),
    };
    let mut say = |field: &str, value: &str, why: Vec<String>| {
        causes.extend(why.into_iter().map(|why| invalid(field, value, &why)));
    };
    for (key, value) in entries(&metadata["labels"]) {
        say("metadata.labels", key, names::qualified(key));
        say("metadata.labels", value, names::label_value(value));
    }
    let mut size = 0;
    for (key, value) in entries(&metadata["annotations"]) {
        // Annotation keys are not case-sensitive, not even their domain.
        say("metadata.annotations", key, names::qualified(&key.to_lowercase()));
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS {
        let message = format!("Too long: may not be more than {MAX_ANNOTATIONS} bytes");
        causes.push(cause("FieldValueTooLong", "metadata.annotations", message));
    }
    causes.extend(owner_causes(&metadata["ownerReferences"]));
    causes.extend(finalizer_causes(resource, &metadata["finalizers"]));
    causes
}

fn name_causes(resource: &Resource, metadata: &Value) -> Vec<Cause> {
    let of = |field: &str, is_prefix: bool| {
        let name = metadata[field].as_str().unwrap_or_default();
        let wrong = if name.is_empty() { Vec::new() } else { names::of_object(resource, name, is_prefix) };
        wrong.into_iter().map(move |why| invalid(&format!("metadata.{field}"), name, &why)).collect::<Vec<_>>()
    };
    let mut causes = of("generateName", true);
    causes.extend(of("name", false));
    if metadata["name"].as_str().is_none_or(str::is_empty) {
        let message = "Required value: name or generateName is required";
        causes.push(cause("FieldValueRequired", "metadata.name", message));
    }
    causes
}

fn owner_causes(owners: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut controller: Option<String> = None;
    for owner in owners.as_array().into_iter().flatten() {
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"].into_iter().filter(|field| text(field).is_empty()) {
            let why = if field == "apiVersion" { "version must not be empty" } else { "must not be empty" };
            causes.push(invalid(&format!("metadata.ownerReferences.{field}"), "", why));
        }
        if owner["controller"] == true {
            let found = format!("{}/{}", text("kind"), text("name"));
            match &controller {
                Some(first) => {
                    let why = "Only one reference can have Controller set to true. Found \"true\" in references for";
                    let message = format!("Invalid value: {owners}: {why} {first} and {found}");
                    causes.push(cause("FieldValueInvalid", "metadata.ownerReferences", message));
                }
                None => controller = Some(found),
            }
        }
    }
    causes
}

fn finalizer_causes(resource: &Resource, finalizers: &Value) -> Vec<Cause> {
    // Other parts of a Kubernetes API server serve these two, with only the rules for all kinds.
    let is_lenient = resource.schema.is_some()
        || matches!(resource.group.as_str(), "apiextensions.k8s.io" | "apiregistration.k8s.io");
    let mut causes = Vec::new();
    for (number, finalizer) in texts(finalizers).enumerate() {
        let wrong = names::qualified(finalizer);
        causes.extend(wrong.iter().map(|why| invalid("metadata.finalizers", finalizer, why)));
        if !is_lenient && !finalizer.contains('/') && !STANDARD_FINALIZERS.contains(&finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            causes.push(invalid(&format!("metadata.finalizers[{number}]"), finalizer, why));
        }
    }
    causes
}

/// An object that is being deleted gets no new finalizers.
fn new_finalizers(metadata: &Value, old: &Value) -> Option<Cause> {
    if !old["deletionTimestamp"].is_string() {
        return None;
    }
    let had: HashSet<&str> = texts(&old["finalizers"]).collect();
    let mut new: Vec<String> =
        texts(&metadata["finalizers"]).filter(|it| !had.contains(it)).map(|it| format!("{it:?}")).collect();
    new.sort();
    let why = "no new finalizers can be added if the object is being deleted, found new finalizers";
    let message = format!("Forbidden: {why} []string{{{}}}", new.join(", "));
    (!new.is_empty()).then(|| cause("FieldValueForbidden", "metadata.finalizers", message))
}

fn invalid(field: &str, value: &str, why: &str) -> Cause {
    cause("FieldValueInvalid", field, format!("Invalid value: {value:?}: {why}"))
}

fn entries(map: &Value) -> impl Iterator<Item = (&str, &str)> {
    let entries = map.as_object().into_iter().flatten();
    entries.map(|(key, value)| (key.as_str(), value.as_str().unwrap_or_default()))
}

fn texts(list: &Value) -> impl Iterator<Item = &str> {
    list.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;
    use serde_json::json;

    /// Returns the faulty fields.
    fn check(metadata: &Value, old: Option<&Value>) -> Vec<String> {
        let registry = Registry::builtin();
        let resource = registry.get("", "v1", "configmaps").unwrap();
        let (object, old) = (json!({"metadata": metadata}), old.map(|old| json!({"metadata": old})));
        causes(resource, &object, old.as_ref()).into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn labels_annotations_finalizers_and_owners_are_validated() {
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y"});
        let fine = json!({
            "name": "a", "labels": {"app": "", "example.test/a": "b"}, "annotations": {"Example.test/A": "b c"},
            "finalizers": ["example.test/a", "orphan"], "ownerReferences": [owner],
        });
        assert_eq!(check(&fine, None), [""; 0]);
        let wrong = |field: &str, value: Value| {
            let mut metadata = json!({"name": "a"});
            metadata[field] = value;
            check(&metadata, None)
        };
        assert_eq!(wrong("labels", json!({"a b": "c"})), ["metadata.labels"]);
        assert_eq!(wrong("labels", json!({"a": "b c"})), ["metadata.labels"]);
        assert_eq!(wrong("annotations", json!({"a b": "c"})), ["metadata.annotations"]);
        assert_eq!(wrong("annotations", json!({"a": "b".repeat(MAX_ANNOTATIONS)})), ["metadata.annotations"]);
        assert_eq!(wrong("finalizers", json!(["nodomain"])), ["metadata.finalizers[0]"]);
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap"});
        let fields = ["metadata.ownerReferences.name", "metadata.ownerReferences.uid"];
        assert_eq!(wrong("ownerReferences", json!([owner])), fields);
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "y", "controller": true});
        assert_eq!(wrong("ownerReferences", json!([owner, owner])), ["metadata.ownerReferences"]);
    }

    #[test]
    fn an_object_that_is_being_deleted_gets_no_new_finalizers() {
        let old = json!({"name": "a", "deletionTimestamp": "2026-03-01T12:00:00Z", "finalizers": ["a.test/a"]});
        assert_eq!(check(&json!({"name": "a", "finalizers": ["a.test/a"]}), Some(&old)), [""; 0]);
        assert_eq!(check(&json!({"name": "a", "finalizers": ["a.test/b"]}), Some(&old)), ["metadata.finalizers"]);
    }
}
