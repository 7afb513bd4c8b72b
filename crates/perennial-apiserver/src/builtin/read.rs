//! Decodes objects as a Kubernetes API server does: unknown fields are dropped, values of the wrong type are rejected.

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use jiff::Timestamp;
use serde_json::{Number, Value};

use super::fields::{Shape, TABLE, name_of, root};
use crate::resource::Resource;

/// Decodes an object as a Kubernetes API server does. Returns the paths of the dropped unknown fields, or the error of a
/// Kubernetes API server.
pub(crate) fn read(resource: &Resource, object: &mut Value) -> Result<Vec<String>, String> {
    let mut reader = Reader::default();
    match root(&resource.group, &resource.kind).filter(|_| resource.schema.is_none()) {
        Some(root) => reader.read(&Shape::Struct(root), object)?,
        // For a custom resource only the metadata has a known type.
        None => {
            if let Some(metadata) = object.get_mut("metadata") {
                reader.read(&Shape::Struct("ObjectMeta"), metadata)?;
                reader.unknown.iter_mut().for_each(|field| field.insert_str(0, "metadata."));
            }
        }
    }
    Ok(reader.unknown)
}

#[derive(Default)]
struct Reader {
    unknown: Vec<String>,
    /// The current struct.
    of: &'static str,
    /// The path in the format of errors.
    path: Vec<String>,
    /// The path in the usual format.
    at: String,
}

impl Reader {
    fn read(&mut self, shape: &Shape, value: &mut Value) -> Result<(), String> {
        match (shape, &mut *value) {
            (_, Value::Null) | (Shape::Any, _) | (Shape::Text, Value::String(_)) | (Shape::Bool, Value::Bool(_)) => {}
            (Shape::Quantity | Shape::NumberOrText, Value::String(_)) | (Shape::Quantity, Value::Number(_)) => {}
            (Shape::Number("double"), Value::Number(_)) => {}
            (Shape::Number(name), Value::Number(number)) if is_in_range(name, number) => {}
            (Shape::NumberOrText, Value::Number(number)) if is_in_range("int32", number) => {}
            (Shape::Time, Value::String(text)) => {
                text.parse::<Timestamp>().map_err(|error| format!("parsing time {text:?}: {error}"))?;
            }
            (Shape::Bytes, Value::String(text)) => *text = canonical(text)?,
            (Shape::List(of), Value::Array(items)) => {
                for (number, item) in items.iter_mut().enumerate() {
                    let at = self.at.len();
                    self.at.push_str(&format!("[{number}]"));
                    self.read(of, item)?;
                    self.at.truncate(at);
                }
            }
            (Shape::Map(of), Value::Object(entries)) => {
                for (name, entry) in entries {
                    if entry.is_null() && matches!(**of, Shape::Text | Shape::Bytes) {
                        *entry = "".into();
                    }
                    let at = self.at.len();
                    self.at.push_str(&format!(".{name}"));
                    self.read(of, entry)?;
                    self.at.truncate(at);
                }
            }
            (Shape::Struct(name), Value::Object(_)) => {
                let above = std::mem::replace(&mut self.of, name);
                self.read_struct(name, value)?;
                self.of = above;
            }
            (shape, value) => return Err(self.wrong(shape, value)),
        }
        Ok(())
    }

    fn read_struct(&mut self, name: &'static str, value: &mut Value) -> Result<(), String> {
        let (Some(shapes), Some(fields)) = (TABLE.get(name), value.as_object_mut()) else { return Ok(()) };
        let mut outcome = Ok(());
        fields.retain(|name, value| {
            let at = self.at.len();
            self.at.push_str(if at == 0 { "" } else { "." });
            self.at.push_str(name);
            let shape = shapes.get(name.as_str());
            match shape {
                Some(shape) if outcome.is_ok() => {
                    self.path.push(name.clone());
                    outcome = self.read(shape, value);
                    self.path.pop();
                }
                Some(_) => {}
                None => self.unknown.push(self.at.clone()),
            }
            self.at.truncate(at);
            // An empty `managedFields` list is kept: it removes all owners.
            shape.is_some_and(|shape| name == "managedFields" || !is_nothing(shape, value))
        });
        outcome
    }

    fn wrong(&self, shape: &Shape, value: &Value) -> String {
        let found = match value {
            Value::Number(number) if matches!(shape, Shape::Number(_)) => format!("number {number}"),
            value => name_of(value).to_owned(),
        };
        match self.path.as_slice() {
            [] => format!("json: cannot unmarshal {found} into Go value of type {}", go_name(shape)),
            path => format!(
                "json: cannot unmarshal {found} into Go struct field {}.{} of type {}",
                self.of.rsplit('.').next().unwrap_or_default(),
                path.join("."),
                go_name(shape)
            ),
        }
    }
}

/// Returns true if a field has its zero value and can be dropped.
fn is_nothing(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (_, Value::Null) => true,
        (Shape::Map(_), Value::Object(entries)) => entries.is_empty(),
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        _ => false,
    }
}

fn is_in_range(name: &str, number: &Number) -> bool {
    number.as_i64().is_some_and(|number| name == "int64" || i32::try_from(number).is_ok())
}

fn go_name(shape: &Shape) -> String {
    match shape {
        Shape::Number("double") => "float64".to_owned(),
        Shape::Number(name) => (*name).to_owned(),
        Shape::Bool => "bool".to_owned(),
        Shape::Bytes => "[]uint8".to_owned(),
        Shape::Time => "v1.Time".to_owned(),
        Shape::Quantity => "resource.Quantity".to_owned(),
        Shape::NumberOrText => "intstr.IntOrString".to_owned(),
        Shape::Text | Shape::Any => "string".to_owned(),
        Shape::List(of) => format!("[]{}", go_name(of)),
        Shape::Map(of) => format!("map[string]{}", go_name(of)),
        Shape::Struct(name) => format!("v1.{}", name.rsplit('.').next().unwrap_or_default()),
    }
}

/// Returns canonical base64. The input may have line breaks.
fn canonical(text: &str) -> Result<String, String> {
    const LENIENT: GeneralPurpose = GeneralPurpose::new(
        &STANDARD,
        GeneralPurposeConfig::new()
            .with_decode_allow_trailing_bits(true)
            .with_decode_padding_mode(DecodePaddingMode::RequireCanonical),
    );
    let text = text.replace(['\r', '\n'], "");
    let bytes = LENIENT.decode(&text).map_err(|error| {
        let at = match error {
            base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => at,
            base64::DecodeError::InvalidLength(_) | base64::DecodeError::InvalidPadding => text.len(),
        };
        format!("illegal base64 data at input byte {at}")
    })?;
    Ok(LENIENT.encode(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;
    use serde_json::json;

    fn check(group: &str, plural: &str, mut object: Value) -> (Value, Result<Vec<String>, String>) {
        let registry = Registry::builtin();
        let outcome = read(registry.get(group, "v1", plural).unwrap(), &mut object);
        (object, outcome)
    }

    #[test]
    fn unknown_fields_are_dropped_and_named_in_their_order() {
        let object = json!({"metadata": {"name": "a", "lables": {}}, "dada": {"k": "v"}, "data": {"k": "v"}});
        let (object, unknown) = check("", "configmaps", object);
        assert_eq!(object, json!({"metadata": {"name": "a"}, "data": {"k": "v"}}));
        assert_eq!(unknown.unwrap(), ["metadata.lables", "dada"]);
        let ports = json!({"spec": {"ports": [{"port": 1}, {"port": 2, "prot": 3}]}});
        assert_eq!(check("", "services", ports).1.unwrap(), ["spec.ports[1].prot"]);
    }

    #[test]
    fn empty_values_are_dropped_except_managed_fields_and_structs() {
        let object = json!({"metadata": {"labels": {}, "creationTimestamp": null, "managedFields": []}, "webhooks": [
            {"name": "a", "namespaceSelector": {}, "rules": []}
        ]});
        let (object, unknown) = check("admissionregistration.k8s.io", "mutatingwebhookconfigurations", object);
        assert_eq!(unknown.unwrap(), [""; 0]);
        let kept = json!({"metadata": {"managedFields": []}, "webhooks": [{"name": "a", "namespaceSelector": {}}]});
        assert_eq!(object, kept);
    }

    #[test]
    fn values_of_wrong_types_are_rejected() {
        let refusal = |group: &str, plural: &str, object: Value| check(group, plural, object).1.unwrap_err();
        assert_eq!(
            refusal("", "configmaps", json!({"data": {"k": 5}})),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
        assert_eq!(
            refusal("apps", "deployments", json!({"spec": {"replicas": "2"}})),
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"
        );
        assert_eq!(
            refusal("", "secrets", json!({"metadata": []})),
            "json: cannot unmarshal array into Go struct field Secret.metadata of type v1.ObjectMeta"
        );
        let time = json!({"spec": {"renewTime": "soon"}});
        assert!(refusal("coordination.k8s.io", "leases", time).starts_with("parsing time \"soon\""));
        for replicas in [json!(1.5), json!(5_000_000_000_i64)] {
            refusal("apps", "deployments", json!({"spec": {"replicas": replicas}}));
        }
    }

    #[test]
    fn bytes_are_base64() {
        let (secret, outcome) = check("", "secrets", json!({"data": {"a": "dg==\n", "b": null, "c": "d2\nV2"}}));
        outcome.unwrap();
        assert_eq!(secret["data"], json!({"a": "dg==", "b": "", "c": "d2V2"}));
        let refusal = check("", "secrets", json!({"data": {"k": "no base64"}})).1.unwrap_err();
        assert_eq!(refusal, "illegal base64 data at input byte 2");
    }
}
