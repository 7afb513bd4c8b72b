//! `ServiceCA`: the operator of the service CA, which issues the certificates of Services.

use jiff::SignedDuration;
use kube::CustomResource;
use perennial_schema::{ErrorKind, FieldError};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{OperatorSpec, OperatorStatus};
use crate::crd::Other;
use crate::invalid::InvalidObject;

/// ServiceCASpec configures the operator. A new reason in unsupportedConfigOverrides.forceRotation.reason forces a rotation
/// of the service CA.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, JsonSchema)]
#[kube(
    group = "operator.openshift.io",
    version = "v1",
    kind = "ServiceCA",
    plural = "servicecas",
    status = "ServiceCAStatus",
    derive = "PartialEq",
    doc = "ServiceCA configures the service CA, which issues the certificates of Services. There is one object, named cluster."
)]
pub struct ServiceCASpec {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub operator: OperatorSpec,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// ServiceCAStatus is the status of the operator.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ServiceCAStatus {
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub operator: OperatorStatus,
    #[allow(missing_docs)]
    #[serde(flatten)]
    pub other: Other,
}

/// The requests of an administrator in `spec.unsupportedConfigOverrides`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Overrides {
    /// `forceRotation.reason`: forces a rotation, once for each reason.
    pub reason: Option<String>,
    /// `caConfig.validityDurationForTesting`: the validity of the next CA.
    pub validity: Option<SignedDuration>,
    /// `caConfig.emergency`: allows a validity in which not all pods restart by themselves.
    pub is_emergency: bool,
}

impl ServiceCA {
    /// Returns the requests, and the errors in them. An error does not affect the other requests.
    pub fn overrides(&self) -> (Overrides, Option<InvalidObject>) {
        let mut errors = Vec::new();
        let root = Value::Object(self.spec.operator.unsupported_config_overrides.clone().unwrap_or_default());
        let reason =
            field(&root, ["forceRotation", "reason"], "a string, why it is rotated", Value::as_str, &mut errors);
        let path = ["caConfig", "validityDurationForTesting"];
        let validity = field(&root, path, "an integer, the number of nanoseconds", Value::as_i64, &mut errors);
        let path = ["caConfig", "emergency"];
        let is_emergency = field(&root, path, "true or false", Value::as_bool, &mut errors).unwrap_or_default();
        let overrides = Overrides {
            is_emergency,
            reason: reason.filter(|reason| !reason.is_empty()).map(str::to_owned),
            validity: validity.filter(|nanoseconds| *nanoseconds != 0).map(SignedDuration::from_nanos),
        };
        let object = format!("ServiceCA {:?}", self.metadata.name.as_deref().unwrap_or_default());
        let invalid = (!errors.is_empty()).then(|| InvalidObject::fields(object, errors, &root));
        (overrides, invalid)
    }
}

/// Returns a value in a nested object; none if it is absent or null. Another type is an error.
fn field<'v, T>(
    root: &'v Value,
    [outer, inner]: [&str; 2],
    accepted: &str,
    read: impl Fn(&'v Value) -> Option<T>,
    errors: &mut Vec<FieldError>,
) -> Option<T> {
    let mut wrong = |path: &str, found: &Value, accepted: &str| {
        let path = format!("spec.unsupportedConfigOverrides.{path}");
        // Each path is reported once.
        if !errors.iter().any(|error| error.path == path) {
            let accepted = format!("accepted is {accepted}");
            errors.push(FieldError::new(path, ErrorKind::TypeInvalid, found.clone(), accepted));
        }
    };
    let parent = root.get(outer).filter(|value| !value.is_null())?;
    if !parent.is_object() {
        wrong(outer, parent, &format!("an object with {inner}"));
        return None;
    }
    let value = parent.get(inner).filter(|value| !value.is_null())?;
    let found = read(value);
    if found.is_none() {
        wrong(&format!("{outer}.{inner}"), value, accepted);
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Checks the requests of these overrides, or the error.
    fn check(overrides: &Value, reason: Option<&str>, hours: Option<i64>, wrong: &str) {
        let spec = json!({"unsupportedConfigOverrides": overrides});
        let object = ServiceCA::new("cluster", serde_json::from_value(spec).unwrap());
        let (found, invalid) = object.overrides();
        assert_eq!((found.reason.as_deref(), found.validity.map(|it| it.as_hours())), (reason, hours), "{overrides}");
        assert_eq!(invalid.map(|it| it.to_string()).unwrap_or_default(), wrong, "{overrides}");
    }

    #[test]
    fn requests_are_read_and_optional() {
        let both = json!({
            "forceRotation": {"reason": "100 % sure"},
            "caConfig": {"validityDurationForTesting": 68_259_600_000_000_000_i64},
        });
        check(&both, Some("100 % sure"), Some(790 * 24 + 1), "");
        check(&json!({"caConfig": {"validityDurationForTesting": -3_600_000_000_000_i64}}), None, Some(-1), "");
        for nothing in [
            json!(null),
            json!({}),
            json!({"forceRotation": null, "caConfig": {}}),
            json!({"forceRotation": {"reason": ""}, "caConfig": {"validityDurationForTesting": 0}}),
            json!({"forceRotation": {"reason": null}, "somethingElse": {"reason": 1}}),
        ] {
            check(&nothing, None, None, "");
        }
    }

    #[test]
    fn a_request_of_the_wrong_type_is_named_and_does_not_affect_the_others() {
        let at = "ServiceCA \"cluster\" is invalid: spec.unsupportedConfigOverrides";
        check(
            &json!({"forceRotation": {"reason": "leaked"}, "caConfig": {"validityDurationForTesting": "1h"}}),
            Some("leaked"),
            None,
            &format!(
                "{at}.caConfig.validityDurationForTesting: Invalid value: \"1h\": accepted is an integer, the number of nanoseconds"
            ),
        );
        check(
            &json!({"forceRotation": {"reason": 7}, "caConfig": {"validityDurationForTesting": 3_600_000_000_000_i64}}),
            None,
            Some(1),
            &format!("{at}.forceRotation.reason: Invalid value: 7: accepted is a string, why it is rotated"),
        );
        check(
            &json!({"forceRotation": "now"}),
            None,
            None,
            &format!("{at}.forceRotation: Invalid value: \"now\": accepted is an object with reason"),
        );
        check(
            &json!({"caConfig": {"emergency": "yes"}}),
            None,
            None,
            &format!("{at}.caConfig.emergency: Invalid value: \"yes\": accepted is true or false"),
        );
        let (_, invalid) = ServiceCA::new(
            "cluster",
            serde_json::from_value(json!({"unsupportedConfigOverrides": {"forceRotation": [], "caConfig": 1.5}}))
                .unwrap(),
        )
        .overrides();
        assert_eq!(invalid.unwrap().problems.len(), 2);
    }
}
