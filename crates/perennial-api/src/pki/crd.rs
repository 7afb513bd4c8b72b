//! The CustomResourceDefinition of the PKI resource, made from its types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::core::crd::merge_crds;
use perennial_core::catalog::Catalog;
use serde_json::Value;

use super::{VERSIONS, v1, v1alpha1};
use crate::invalid::{Problem, value_at};

/// The definition with all versions.
pub fn crd() -> CustomResourceDefinition {
    let merged = merge_crds(vec![v1::PKI::crd(), v1alpha1::PKI::crd()], VERSIONS[0])
        .expect("the versions differ in nothing but their name");
    let mut json = serde_json::to_value(merged).expect("a definition is plain data");
    // Every `Option` is nullable in a derived schema. A null would then be stored, and
    // `has(self.rsa)` be asked about it; without the keyword, a server drops nulls.
    strip_nullable(&mut json);
    serde_json::from_value(json).expect("a definition without a keyword is a definition")
}

/// The definition as YAML, as `deploy/crds` holds it.
pub fn crd_yaml() -> String {
    serde_norway::to_string(&crd()).expect("a definition is plain data")
}

/// The schema of the stored version.
pub(super) fn schema(crd: &CustomResourceDefinition) -> Value {
    let version = crd.spec.versions.iter().find(|version| version.storage);
    let schema = version.and_then(|version| version.schema.as_ref()?.open_api_v3_schema.as_ref());
    serde_json::to_value(schema.expect("the stored version has a schema")).expect("a schema is plain data")
}

/// What a broken [`well_known_rule`] says.
pub(super) const WELL_KNOWN_MESSAGE: &str = "certificateName must be a well-known certificate name";

/// Says which name was found, and which are accepted, where [`well_known_rule`] is broken.
pub(super) fn note_well_known_names(problem: &mut Problem, document: &Value) {
    if let Problem::Field { error, note } = problem
        && error.message == WELL_KNOWN_MESSAGE
        && let Some(found) = value_at(document, &error.path)
    {
        let names: Vec<&str> = Catalog::builtin().well_known_names().collect();
        *note = Some(format!("found {}, accepted are {}", found["certificateName"], names.join(", ")));
    }
}

/// The rule that an override names one of the well-known certificates.
pub(super) fn well_known_rule() -> String {
    let names: Vec<String> = Catalog::builtin().well_known_names().map(|name| format!("'{name}'")).collect();
    format!("self.certificateName in [{}]", names.join(", "))
}

fn strip_nullable(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            // A property of this name would be an object.
            if fields.get("nullable").is_some_and(Value::is_boolean) {
                fields.shift_remove("nullable");
            }
            fields.values_mut().for_each(strip_nullable);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nullable),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `UPDATE_EXPECT=1 cargo test -p perennial-api` writes the file, as does `perennial crds`.
    #[test]
    fn the_committed_definition_is_the_generated_one() {
        expect_test::expect_file!["../../../../deploy/crds/config.openshift.io_pkis.yaml"].assert_eq(&crd_yaml());
    }
}
