//! Defaults and validation of built-in kinds, as far as clients rely on them.

pub(crate) mod fields;
pub(crate) mod metadata;
mod read;
mod request;
mod service;

pub(crate) use read::read;

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};

use crate::listen::User;
use crate::resource::Resource;
use crate::status::Cause;
use crate::{definition, names};

/// The largest size of a Secret's or ConfigMap's data.
const MAX_DATA: usize = 1 << 20;

/// Sets the fields of a new object that come from its creator.
pub(crate) fn prepare_create(resource: &Resource, object: &mut Value, user: Option<&User>) {
    if resource.is_certificate_request() {
        request::prepare_create(object, user);
    }
}

/// Reverts the changes that a write of this kind cannot make.
pub(crate) fn changed(resource: &Resource, old: &Value, new: &mut Value, subresource: Option<&str>, now: &str) {
    if resource.is_certificate_request() {
        request::changed(old, new, subresource, now);
    }
}

/// Sets the defaults of an object.
pub(crate) fn default(resource: &Resource, object: &mut Value) {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Secret") => default_secret(object),
        ("", "Namespace") => {
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            if object["status"]["phase"].is_null() {
                object["status"] = json!({"phase": "Active"});
            }
            if let Some(name) = object["metadata"]["name"].as_str().map(ToOwned::to_owned) {
                object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name.into();
            }
        }
        ("", "Service") => service::default(object),
        // A pod is pending until a node runs it.
        ("", "Pod") if object["status"]["phase"].as_str().is_none_or(str::is_empty) => {
            object["status"]["phase"] = "Pending".into();
        }
        _ if definition::is_definition(resource) => definition::default(object),
        _ => {}
    }
}

fn default_secret(object: &mut Value) {
    if let Some(Value::Object(texts)) = object.as_object_mut().and_then(|secret| secret.remove("stringData")) {
        let data = object.as_object_mut().map(|secret| secret.entry("data").or_insert_with(|| json!({})));
        if let Some(Value::Object(data)) = data {
            for (key, text) in texts {
                data.insert(key, BASE64_STANDARD.encode(text.as_str().unwrap_or_default()).into());
            }
        }
    }
    if object["type"].as_str().is_none_or(str::is_empty) {
        object["type"] = "Opaque".into();
    }
}

/// Returns the faults of a built-in object, also as an update of an earlier one or of a subresource.
pub(crate) fn validate(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    subresource: Option<&str>,
) -> Vec<Cause> {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Secret") => secret_causes(object, old),
        ("", "ConfigMap") => config_map_causes(object, old),
        ("", "Service") => service::causes(object),
        ("coordination.k8s.io", "Lease") => lease_causes(object),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => binding_causes(object, old),
        _ if resource.is_certificate_request() => request::causes(object, old, subresource),
        _ if definition::is_definition(resource) => definition::causes(object, old),
        _ => Vec::new(),
    }
}

fn cause(reason: &str, field: &str, message: impl Into<String>) -> Cause {
    Cause { reason: reason.to_owned(), message: message.into(), field: field.to_owned() }
}

fn secret_causes(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let empty = Map::new();
    let data = object["data"].as_object().unwrap_or(&empty);
    let mut causes = data_causes("data", data);
    let kind = object["type"].as_str().unwrap_or_default();
    if kind == "kubernetes.io/tls" {
        for key in ["tls.crt", "tls.key"].into_iter().filter(|key| !data.contains_key(*key)) {
            causes.push(cause("FieldValueRequired", &format!("data[{key}]"), "Required value"));
        }
    }
    if let Some(old) = old {
        if old["type"] != object["type"] {
            let message = format!("Invalid value: {}: field is immutable", object["type"]);
            causes.push(cause("FieldValueInvalid", "type", message));
        }
        causes.extend(immutable_causes(object, old, &["data"]));
    }
    causes
}

fn config_map_causes(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let empty = Map::new();
    let mut causes = Vec::new();
    for map in ["data", "binaryData"] {
        causes.extend(data_causes(map, object[map].as_object().unwrap_or(&empty)));
    }
    let in_both = |key: &&String| object["binaryData"].get(key.as_str()).is_some();
    for key in object["data"].as_object().unwrap_or(&empty).keys().filter(in_both) {
        let message = format!("Invalid value: {key:?}: duplicate of key present in binaryData");
        causes.push(cause("FieldValueInvalid", &format!("data[{key}]"), message));
    }
    causes.extend(old.into_iter().flat_map(|old| immutable_causes(object, old, &["data", "binaryData"])));
    causes
}

fn lease_causes(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (field, least, why) in [
        ("leaseDurationSeconds", 1, "must be greater than 0"),
        ("leaseTransitions", 0, "must be greater than or equal to 0"),
    ] {
        if let Some(number) = object["spec"][field].as_i64().filter(|number| *number < least) {
            let message = format!("Invalid value: {number}: {why}");
            causes.push(cause("FieldValueInvalid", &format!("spec.{field}"), message));
        }
    }
    causes
}

/// The role of a binding is immutable: a user who may change bindings could otherwise grant any role.
fn binding_causes(object: &Value, old: Option<&Value>) -> Vec<Cause> {
    let role = &object["roleRef"];
    if old.is_none_or(|old| old["roleRef"] == *role) {
        return Vec::new();
    }
    let shown = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
    vec![cause("FieldValueInvalid", "roleRef", format!("Invalid value: {shown}: cannot change roleRef"))]
}

/// Checks that an immutable object is unchanged.
fn immutable_causes(object: &Value, old: &Value, maps: &[&str]) -> Vec<Cause> {
    if old["immutable"] != json!(true) {
        return Vec::new();
    }
    let mut fields: Vec<&str> = Vec::new();
    if object["immutable"] != json!(true) {
        fields.push("immutable");
    }
    fields.extend(maps.iter().filter(|map| object[**map] != old[**map]));
    const WHY: &str = "Forbidden: field is immutable when `immutable` is set";
    fields.into_iter().map(|field| cause("FieldValueForbidden", field, WHY)).collect()
}

fn data_causes(field: &str, data: &Map<String, Value>) -> Vec<Cause> {
    let mut causes = Vec::new();
    for key in data.keys() {
        let wrong = names::data_key(key).into_iter().map(|why| format!("Invalid value: {key:?}: {why}"));
        causes.extend(wrong.map(|message| cause("FieldValueInvalid", &format!("{field}[{key}]"), message)));
    }
    let size: usize = data.values().filter_map(Value::as_str).map(str::len).sum();
    if size > MAX_DATA {
        causes.push(cause("FieldValueTooLong", field, format!("Too long: may not be more than {MAX_DATA} bytes")));
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;

    fn check(group: &str, plural: &str, object: &Value, old: Option<&Value>) -> Vec<String> {
        let registry = Registry::builtin();
        let causes = validate(registry.get(group, "v1", plural).unwrap(), object, old, None);
        causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect()
    }

    #[test]
    fn a_key_is_in_data_or_in_binary_data() {
        let both = json!({"data": {"k": "v"}, "binaryData": {"k": "dg=="}});
        assert_eq!(
            check("", "configmaps", &both, None),
            ["data[k]: Invalid value: \"k\": duplicate of key present in binaryData"]
        );
    }

    #[test]
    fn the_duration_of_a_lease_is_positive() {
        let lease = json!({"spec": {"leaseDurationSeconds": -1, "leaseTransitions": 0}});
        let wrong = check("coordination.k8s.io", "leases", &lease, None);
        assert_eq!(wrong, ["spec.leaseDurationSeconds: Invalid value: -1: must be greater than 0"]);
    }

    #[test]
    fn the_role_of_a_binding_is_immutable() {
        let to = |name: &str| json!({"roleRef": {"apiGroup": "g", "kind": "Role", "name": name}});
        let group = "rbac.authorization.k8s.io";
        assert_eq!(check(group, "rolebindings", &to("a"), Some(&to("a"))), [""; 0]);
        assert_eq!(
            check(group, "rolebindings", &to("b"), Some(&to("a"))),
            ["roleRef: Invalid value: {\"APIGroup\":\"g\",\"Kind\":\"Role\",\"Name\":\"b\"}: cannot change roleRef"]
        );
    }
}
