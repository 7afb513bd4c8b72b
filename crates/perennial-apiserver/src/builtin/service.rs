//! Services: their defaults, and the validation of their ports.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::cause;
use crate::names;
use crate::status::Cause;

/// Sets the defaults.
pub(super) fn default(object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    spec.entry("type").or_insert_with(|| "ClusterIP".into());
    spec.entry("sessionAffinity").or_insert_with(|| "None".into());
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.entry("protocol").or_insert_with(|| "TCP".into());
            let number = port.get("port").cloned().unwrap_or_default();
            let target = port.entry("targetPort").or_insert(Value::Null);
            // A client that serializes a struct sends 0 for an unset field.
            if target.is_null() || *target == json!(0) || *target == json!("") {
                *target = number;
            }
        }
    }
}

/// Returns the faults of a Service.
pub(super) fn causes(object: &Value) -> Vec<Cause> {
    let spec = &object["spec"];
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && spec["clusterIP"] != "None" && spec["type"] != "ExternalName" {
        return vec![cause("FieldValueRequired", "spec.ports", "Required value")];
    }
    let mut causes = Vec::new();
    let mut names = HashSet::new();
    for (number, port) in ports.iter().enumerate() {
        let at = |field: &str| format!("spec.ports[{number}].{field}");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() && ports.len() > 1 {
            causes.push(cause("FieldValueRequired", &at("name"), "Required value"));
        } else if !name.is_empty() {
            let wrong = names::dns_label(name).into_iter().map(|why| format!("Invalid value: {name:?}: {why}"));
            causes.extend(wrong.map(|message| cause("FieldValueInvalid", &at("name"), message)));
            if !names.insert(name) {
                causes.push(cause("FieldValueDuplicate", &at("name"), format!("Duplicate value: {name:?}")));
            }
        }
        for field in ["port", "targetPort"].into_iter().filter(|field| !port[*field].is_string()) {
            let value = port[field].as_i64().unwrap_or(0);
            if !(1..=65535).contains(&value) {
                let message = format!("Invalid value: {value}: must be between 1 and 65535, inclusive");
                causes.push(cause("FieldValueInvalid", &at(field), message));
            }
        }
        let protocol = port["protocol"].as_str().unwrap_or_default();
        if !matches!(protocol, "TCP" | "UDP" | "SCTP") {
            let message = format!("Unsupported value: {protocol:?}: supported values: \"SCTP\", \"TCP\", \"UDP\"");
            causes.push(cause("FieldValueNotSupported", &at("protocol"), message));
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(spec: &Value) -> Vec<String> {
        let mut service = json!({"spec": spec});
        default(&mut service);
        causes(&service).into_iter().map(|cause| cause.field).collect()
    }

    #[test]
    fn ports_are_required_numbered_and_unique() {
        assert_eq!(check(&json!({})), ["spec.ports"]);
        assert_eq!(check(&json!({"clusterIP": "None"})), [""; 0]);
        assert_eq!(check(&json!({"type": "ExternalName"})), [""; 0]);
        assert_eq!(check(&json!({"ports": [{"port": 443, "targetPort": "https"}]})), [""; 0]);
        assert_eq!(check(&json!({"ports": [{"port": 443, "targetPort": 0}]})), [""; 0]);
        assert_eq!(check(&json!({"ports": [{"port": 0}]})), ["spec.ports[0].port", "spec.ports[0].targetPort"]);
        let unnamed = json!({"ports": [{"port": 1}, {"port": 2}]});
        assert_eq!(check(&unnamed), ["spec.ports[0].name", "spec.ports[1].name"]);
        let same = json!({"ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "a"}]});
        assert_eq!(check(&same), ["spec.ports[1].name"]);
        assert_eq!(check(&json!({"ports": [{"port": 1, "protocol": "ICMP"}]})), ["spec.ports[0].protocol"]);
    }
}
