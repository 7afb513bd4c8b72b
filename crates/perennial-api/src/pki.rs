//! The `PKI` resource: the key policy of a cluster.
//!
//! Versions `v1` (stored) and `v1alpha1` are identical. The CustomResourceDefinition is generated
//! from the types in this module, and [`parse`] validates a document with the schema and the rules of
//! that definition, so that the cluster accepts every document that is accepted offline.

use std::sync::LazyLock;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::policy::Policy;
use perennial_schema::{ErrorKind, FieldError, Options, Schema, UnknownFields};
use serde_json::{Value, json};

use crate::invalid::InvalidObject;
use crate::yaml;

mod convert;
mod crd;
mod stored;
#[allow(unreachable_pub, reason = "the derive of KubeSchema repeats the type inside a function")]
mod types;

pub use convert::UnsupportedSpec;
pub use crd::crd;
pub use stored::{StoredPolicy, UnsupportedEntry, read};
pub use types::{
    CategoryCertificateConfig, CertificateCategory, CertificateConfig, CertificateOverride, EcdsaCurve, EcdsaKeyConfig,
    KeyAlgorithm, KeyConfig, PkiSpec, PkiStatus, RsaKeyConfig, v1, v1alpha1,
};

/// The resource in the stored version.
pub type Pki = v1::PKI;

/// The API group.
pub const GROUP: &str = "config.openshift.io";
/// The kind.
pub const KIND: &str = "PKI";
/// The plural name in URLs.
pub const PLURAL: &str = "pkis";
/// The served versions, the stored one first.
pub const VERSIONS: [&str; 2] = ["v1", "v1alpha1"];
/// The only allowed name of the resource.
pub const NAME: &str = "cluster";

/// Reads a PKI resource from YAML or JSON text, as strictly as a cluster with
/// `fieldValidation=Strict` does.
pub fn parse(text: &str) -> Result<(Pki, Policy), InvalidObject> {
    let value = yaml::parse(text).map_err(|error| InvalidObject::syntax(KIND, error))?;
    parse_value(value)
}

/// Reads a PKI resource from JSON.
pub fn parse_value(mut value: Value) -> Result<(Pki, Policy), InvalidObject> {
    if !value.is_object() {
        let found = yaml::type_name(&value);
        let message = format!("the document must be an object with apiVersion, kind, metadata and spec, found {found}");
        return Err(InvalidObject::syntax(KIND, message));
    }
    yaml::normalize(&mut value);
    let object = match value.pointer("/metadata/name").and_then(Value::as_str) {
        Some(name) => format!("{KIND} {name:?}"),
        None => KIND.to_owned(),
    };
    let mut errors = check_envelope(&value);
    if !errors.is_empty() {
        return Err(InvalidObject::fields(object, errors, &value));
    }
    errors = check_metadata(&value);
    let strict = Options { unknown_fields: UnknownFields::Refuse, ..Options::default() };
    let admitted = SCHEMA.admit(value.clone(), strict);
    let mut stored = match admitted {
        Ok(stored) if errors.is_empty() => stored,
        admitted => {
            // An error without a path repeats another error: that rules were not run, that the name is not `cluster`, or that a
            // number of an enumeration has a format.
            let (placed, unplaced): (Vec<_>, Vec<_>) =
                admitted.err().unwrap_or_default().into_iter().partition(|error| !error.path.is_empty());
            errors.extend(placed);
            if errors.is_empty() {
                errors = unplaced;
            }
            let mut invalid = InvalidObject::fields(object, errors, &value);
            invalid.problems.iter_mut().for_each(|problem| crd::note_well_known_names(problem, &value));
            return Err(invalid);
        }
    };
    // Both versions are identical.
    stored["apiVersion"] = json!(format!("{GROUP}/{}", VERSIONS[0]));
    let pki: Pki =
        serde_json::from_value(stored).map_err(|error| InvalidObject::syntax(object.clone(), error.to_string()))?;
    let policy = Policy::try_from(&pki.spec).map_err(|error| InvalidObject::syntax(object, error.to_string()))?;
    Ok((pki, policy))
}

/// Returns the schema of the stored version, which is the same for all versions.
pub fn schema() -> Value {
    crate::crd::schema(&crd())
}

/// The schema of the definition, compiled once.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::compile(&schema()).expect("a test compiles the schema of the definition"));

/// Checks that a document is a PKI. Otherwise it is not validated further.
fn check_envelope(value: &Value) -> Vec<FieldError> {
    let field = |name: &str| value.get(name).cloned().filter(|value| !value.is_null());
    let accepted = VERSIONS.map(|version| Value::from(format!("{GROUP}/{version}")));
    let mut errors = Vec::new();
    match field("apiVersion") {
        None => errors.push(FieldError::without_value("apiVersion", ErrorKind::Required, "")),
        Some(found) if accepted.contains(&found) => {}
        Some(found) => errors.push(FieldError::unsupported("apiVersion", found, &accepted)),
    }
    match field("kind") {
        None => errors.push(FieldError::without_value("kind", ErrorKind::Required, "")),
        Some(found) if found == KIND => {}
        Some(found) => errors.push(FieldError::new("kind", ErrorKind::Invalid, found, format!("must be {KIND}"))),
    }
    errors
}

/// Checks the metadata, which is not in the schema.
fn check_metadata(value: &Value) -> Vec<FieldError> {
    let missing = || FieldError::without_value("metadata.name", ErrorKind::Required, format!("must be '{NAME}'"));
    let fields = match value.get("metadata") {
        None | Some(Value::Null) => return vec![missing()],
        Some(Value::Object(fields)) => fields,
        Some(other) => {
            return vec![FieldError::new("metadata", ErrorKind::TypeInvalid, other.clone(), "must be an object")];
        }
    };
    let mut errors = Vec::new();
    match fields.get("name") {
        None | Some(Value::Null) => errors.push(missing()),
        Some(Value::String(name)) if name.is_empty() => errors.push(missing()),
        Some(Value::String(name)) if name != NAME => {
            let message = format!("pki is a singleton, .metadata.name must be '{NAME}'");
            errors.push(FieldError::new("metadata.name", ErrorKind::Invalid, name.as_str().into(), message));
        }
        // Another type is reported with the other errors of the metadata.
        Some(_) => {}
    }
    for (name, value) in fields {
        let path = format!("metadata.{name}");
        let read = serde_json::from_value::<ObjectMeta>(json!({ name: value }));
        match read.map(|read| serde_json::to_value(read).unwrap_or_default()) {
            Err(error) => errors.push(FieldError::new(path, ErrorKind::TypeInvalid, value.clone(), error.to_string())),
            // A field that is lost when the metadata is read and written again is unknown.
            Ok(written) if written.get(name).is_none() && !value.is_null() => {
                errors.push(FieldError::without_value(path, ErrorKind::Unknown, ""));
            }
            Ok(_) => {}
        }
    }
    errors
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "expectations and schemas read best in place")]
mod tests;
