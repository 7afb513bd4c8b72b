//! Custom resource definitions as objects: their defaults, their validation and their status.

use perennial_schema::Schema;
use serde_json::{Value, json};

use crate::names::is_dns_subdomain;
use crate::resource::Resource;
use crate::status::Cause;

/// Returns true if the objects of a resource are definitions.
pub(crate) fn is_definition(resource: &Resource) -> bool {
    resource.group == "apiextensions.k8s.io" && resource.kind == "CustomResourceDefinition"
}

/// Sets the names that follow from the kind, and the conversion.
pub(crate) fn default(definition: &mut Value) {
    let Some(spec) = definition.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let Some(names) = spec.get_mut("names").and_then(Value::as_object_mut) else { return };
    let kind = names.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    for (field, name) in [("singular", kind.to_lowercase()), ("listKind", format!("{kind}List"))] {
        if names.get(field).and_then(Value::as_str).is_none_or(str::is_empty) {
            names.insert(field.to_owned(), name.into());
        }
    }
}

/// Returns the faults of a definition, also as an update of an earlier one.
pub(crate) fn causes(definition: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut say = |reason: &str, field: &str, message: String| {
        causes.push(Cause { reason: reason.to_owned(), message, field: field.to_owned() });
    };
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, plural) = (text(&spec["group"]), text(&spec["names"]["plural"]));
    let name = text(&definition["metadata"]["name"]);
    if name != format!("{plural}.{group}") {
        let message = format!("Invalid value: {name:?}: must be spec.names.plural+\".\"+spec.group");
        say("FieldValueInvalid", "metadata.name", message);
    }
    for (field, value) in
        [("spec.group", &group), ("spec.names.plural", &plural), ("spec.names.kind", &text(&spec["names"]["kind"]))]
    {
        if value.is_empty() {
            say("FieldValueRequired", field, "Required value".to_owned());
        }
    }
    let is_domain = is_dns_subdomain(&group) && group.contains('.');
    if !group.is_empty() && !is_domain {
        let message = format!("Invalid value: {group:?}: should be a domain with at least one dot");
        say("FieldValueInvalid", "spec.group", message);
    }
    match spec["scope"].as_str() {
        None | Some("") => say("FieldValueRequired", "spec.scope", "Required value".to_owned()),
        Some("Cluster" | "Namespaced") => {}
        Some(other) => {
            let message = format!("Unsupported value: {other:?}: supported values: \"Cluster\", \"Namespaced\"");
            say("FieldValueNotSupported", "spec.scope", message);
        }
    }
    if old.is_some_and(|old| old["spec"]["scope"] != spec["scope"]) {
        let message = format!("Invalid value: {}: field is immutable", spec["scope"]);
        say("FieldValueInvalid", "spec.scope", message);
    }
    let versions = spec["versions"].as_array().map(Vec::as_slice).unwrap_or_default();
    if versions.is_empty() {
        say("FieldValueRequired", "spec.versions", "Required value: must have at least one version".to_owned());
    } else if versions.iter().filter(|version| version["storage"] == true).count() != 1 {
        let message = "Invalid value: must have exactly one version marked as storage version".to_owned();
        say("FieldValueInvalid", "spec.versions", message);
    }
    for (number, version) in versions.iter().enumerate() {
        let at = format!("spec.versions[{number}]");
        if text(&version["name"]).is_empty() {
            say("FieldValueRequired", &format!("{at}.name"), "Required value".to_owned());
        }
        let field = format!("{at}.schema.openAPIV3Schema");
        match &version["schema"]["openAPIV3Schema"] {
            schema @ Value::Object(_) => {
                if let Err(error) = Schema::compile(schema) {
                    say("FieldValueInvalid", &field, format!("Invalid value: {error}"));
                }
            }
            _ => say("FieldValueRequired", &field, "Required value".to_owned()),
        }
    }
    causes
}

/// Sets the status of a definition: it is served as soon as it is stored.
pub(crate) fn settle(definition: &mut Value, now: &str) {
    let condition = |kind: &str, reason: &str, message: &str| {
        let since = definition["status"]["conditions"].as_array().into_iter().flatten();
        let since = since.filter(|it| it["type"] == kind).find_map(|it| it["lastTransitionTime"].as_str());
        json!({
            "type": kind, "status": "True", "lastTransitionTime": since.unwrap_or(now),
            "reason": reason, "message": message
        })
    };
    let conditions = [
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ];
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<&Value> =
        versions.filter(|version| version["storage"] == true).map(|version| &version["name"]).collect();
    definition["status"] = json!({
        "conditions": conditions, "acceptedNames": definition["spec"]["names"], "storedVersions": stored
    });
}
