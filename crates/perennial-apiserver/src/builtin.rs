//! What a server knows about the insides of built-in objects: as much as its clients rely on.

use base64::prelude::{BASE64_STANDARD, Engine};
use serde_json::{Map, Value, json};

use crate::definition;
use crate::resource::Resource;
use crate::status::Cause;

/// The most that a Secret's or ConfigMap's data may be.
const MAX_DATA: usize = 1 << 20;

/// Fills in what a server fills in, before an object is looked at.
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
        ("", "Service") => default_service(object),
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

fn default_service(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("type").or_insert_with(|| "ClusterIP".into());
    spec.entry("sessionAffinity").or_insert_with(|| "None".into());
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.entry("protocol").or_insert_with(|| "TCP".into());
            let number = port.get("port").cloned().unwrap_or_default();
            port.entry("targetPort").or_insert(number);
        }
    }
}

/// What is wrong with a built-in object, also as an update of an earlier one.
pub(crate) fn validate(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<Cause> {
    match (resource.group.as_str(), resource.kind.as_str()) {
        ("", "Secret") => secret_causes(object, old),
        ("", "ConfigMap") => config_map_causes(object, old),
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
    causes.extend(old.into_iter().flat_map(|old| immutable_causes(object, old, &["data", "binaryData"])));
    causes
}

/// An object that was declared immutable stays what it is.
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
    let is_key = |key: &str| {
        !key.is_empty()
            && key.len() <= 253
            && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
            && key != "."
            && !key.starts_with("..")
    };
    const WHY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  \
        or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
    for key in data.keys().filter(|key| !is_key(key)) {
        causes.push(cause("FieldValueInvalid", &format!("{field}[{key}]"), format!("Invalid value: {key:?}: {WHY}")));
    }
    let size: usize = data.values().filter_map(Value::as_str).map(str::len).sum();
    if size > MAX_DATA {
        causes.push(cause("FieldValueTooLong", field, format!("Too long: may not be more than {MAX_DATA} bytes")));
    }
    causes
}
