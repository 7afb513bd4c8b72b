//! The schemas of an install-config, in the dialect of CustomResourceDefinitions.

use serde_json::{Value, json};

/// Returns the schema of everything except `pki`. Unknown keys are preserved everywhere.
pub(super) fn outer() -> Value {
    open(&json!({
        "metadata": required(open(&json!({"name": {"type": "string"}})), &["name"]),
        "baseDomain": {"type": "string"},
        "networking": open(&json!({
            "serviceNetwork": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
            "serviceCIDR": {"type": "string"},
            "machineCIDR": {"type": "string"},
            "machineNetwork": {"type": "array", "items": required(open(&json!({"cidr": {"type": "string"}})), &["cidr"])},
        })),
        "platform": {"type": "object", "maxProperties": 1, "additionalProperties": platform()},
        "featureGates": {"type": "array", "items": {"type": "string"}},
    }))
    .also(|root| root["required"] = json!(["metadata", "baseDomain"]))
}

/// Returns the schema of `pki`, with the schema and the rules of the resource, inside an object so that paths start with
/// its name.
pub(super) fn pki() -> Value {
    let definition = crate::pki::schema();
    let certificate = definition.pointer("/properties/spec/properties/defaults");
    let certificate = certificate.expect("the definition has spec.defaults").clone();
    let signers = json!({"type": "object", "properties": {"signerCertificates": certificate},
                         "required": ["signerCertificates"]});
    json!({"type": "object", "properties": {"pki": signers}})
}

/// Returns the schema of any platform's settings. A platform without settings may be written `none:` or `none: {}`.
fn platform() -> Value {
    let vips = json!({"type": "array", "maxItems": 2, "items": {"type": "string"}});
    open(&json!({
        "apiVIPs": vips,
        "apiVIP": {"type": "string"},
        "api_vips": vips,
        "api_vip": {"type": "string"},
        "provisioningNetwork": {"type": "string", "enum": ["Managed", "Unmanaged", "Disabled"]},
        "provisioningNetworkCIDR": {"type": "string"},
        "bootstrapProvisioningIP": {"type": "string"},
    }))
    .also(|platform| platform["nullable"] = json!(true))
}

fn open(properties: &Value) -> Value {
    json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": properties})
}

fn required(schema: Value, fields: &[&str]) -> Value {
    schema.also(|schema| schema["required"] = json!(fields))
}

trait Also: Sized {
    /// Returns this value after a change.
    fn also(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Also for Value {}
