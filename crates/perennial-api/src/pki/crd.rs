//! The CustomResourceDefinition of the PKI resource, generated from its types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;
use kube::core::crd::merge_crds;
use perennial_core::catalog::Catalog;
use serde_json::Value;

use super::{VERSIONS, v1, v1alpha1};
use crate::crd::finish;
use crate::invalid::{Problem, value_at};

/// Returns the definition with all versions.
pub fn crd() -> CustomResourceDefinition {
    let merged = merge_crds(vec![v1::PKI::crd(), v1alpha1::PKI::crd()], VERSIONS[0])
        .expect("the versions differ in nothing but their name");
    finish(merged)
}

/// The message of a violated [`well_known_rule`].
pub(super) const WELL_KNOWN_MESSAGE: &str = "certificateName must be a well-known certificate name";

/// Adds the found name and the accepted names to the error of a violated [`well_known_rule`].
pub(super) fn note_well_known_names(problem: &mut Problem, document: &Value) {
    if let Problem::Field { error, note } = problem
        && error.message == WELL_KNOWN_MESSAGE
        && let Some(found) = value_at(document, &error.path)
    {
        let names: Vec<&str> = Catalog::builtin().well_known_names().collect();
        *note = Some(format!("found {}, accepted are {}", found["certificateName"], names.join(", ")));
    }
}

/// Returns the rule that an override names a well-known certificate.
pub(super) fn well_known_rule() -> String {
    let names: Vec<String> = Catalog::builtin().well_known_names().map(|name| format!("'{name}'")).collect();
    format!("self.certificateName in [{}]", names.join(", "))
}
