//! All CustomResourceDefinitions of Perennial, generated from the types of this crate.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Map, Value, json};

use crate::config::{ClusterOperator, FeatureGate, Infrastructure, network};
use crate::operator::{Etcd, KubeAPIServer, KubeControllerManager, ServiceCA};
use crate::pki;

/// Fields of an object that Perennial does not know.
///
/// Every object of a trimmed definition has this field last: its schema then preserves unknown fields, and reading an object
/// into these types and writing it back loses nothing.
pub type Other = Map<String, Value>;

/// Returns all definitions, always in the same order: `PKI`, then the trimmed kinds that Perennial reads on OpenShift, for
/// clusters without definitions of these kinds.
///
/// On OpenShift they already exist and belong to OpenShift: create absent ones, never overwrite.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        pki::crd(),
        definition::<ClusterOperator>(),
        definition::<FeatureGate>(),
        definition::<Infrastructure>(),
        network::crd(),
        definition::<Etcd>(),
        definition::<KubeAPIServer>(),
        definition::<KubeControllerManager>(),
        definition::<ServiceCA>(),
    ]
}

/// Returns a definition as YAML, as in `deploy/crds`.
pub fn yaml(crd: &CustomResourceDefinition) -> String {
    serde_norway::to_string(crd).expect("a definition is plain data")
}

/// Returns the file name of a definition in `deploy/crds`.
pub fn file_name(crd: &CustomResourceDefinition) -> String {
    format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural)
}

/// Returns the schema of the stored version.
pub fn schema(crd: &CustomResourceDefinition) -> Value {
    let version = crd.spec.versions.iter().find(|version| version.storage);
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    serde_json::to_value(schema.expect("the stored version has a schema")).expect("a schema is plain data")
}

/// Returns the definition of a kind.
pub(crate) fn definition<K: CustomResourceExt>() -> CustomResourceDefinition {
    finish(K::crd())
}

/// Corrects the differences between derived and hand-written schemas.
pub(crate) fn finish(crd: CustomResourceDefinition) -> CustomResourceDefinition {
    let mut json = serde_json::to_value(crd).expect("a definition is plain data");
    correct(&mut json, false);
    serde_json::from_value(json).expect("a corrected definition is a definition")
}

/// Fields that OpenShift declares nullable, and in which its operators store nulls.
const NULLABLE: [&str; 3] = ["customNoUpgrade", "observedConfig", "unsupportedConfigOverrides"];

fn correct(value: &mut Value, may_be_null: bool) {
    match value {
        Value::Object(fields) => {
            // Every `Option` is nullable in a derived schema. A null would then be stored, and `has(self.rsa)` be evaluated on it.
            // Without the keyword, a server drops nulls. A property of this name would be an object.
            if !may_be_null && fields.get("nullable").is_some_and(Value::is_boolean) {
                fields.shift_remove("nullable");
            }
            // A map of any values.
            if fields.get("additionalProperties") == Some(&json!(true)) {
                fields.shift_remove("additionalProperties");
                fields.insert("x-kubernetes-preserve-unknown-fields".to_owned(), json!(true));
            }
            for (name, value) in fields {
                correct(value, NULLABLE.contains(&name.as_str()));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| correct(item, false)),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
