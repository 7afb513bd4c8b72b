//! CertificateSigningRequests: their requester, their immutable parts, and their approval. The requested certificate itself
//! is not checked.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::cause;
use crate::listen::User;
use crate::status::Cause;

/// The decisions about a request. They are final.
const DECISIONS: [&str; 2] = ["Approved", "Denied"];
/// The conditions that are final, and are true or absent.
const LASTING: [&str; 3] = ["Approved", "Denied", "Failed"];

/// Sets the requester of a new request, and removes any decision.
pub(super) fn prepare_create(object: &mut Value, user: Option<&User>) {
    if let Some(spec) = object["spec"].as_object_mut() {
        ["username", "uid", "groups", "extra"].into_iter().for_each(|field| drop(spec.remove(field)));
        if let Some(user) = user {
            spec.insert("username".to_owned(), user.name.as_str().into());
            spec.insert("groups".to_owned(), json!(user.groups));
        }
    }
    object["status"] = json!({});
}

/// Reverts the changes that a write of this kind cannot make: an update changes only metadata, `approval` the decisions, and
/// `status` the certificate.
pub(super) fn changed(old: &Value, new: &mut Value, subresource: Option<&str>, now: &str) {
    new["spec"] = old["spec"].clone();
    let mut conditions: Vec<Value> = new["status"]["conditions"].as_array().cloned().unwrap_or_default();
    if subresource != Some("status") {
        new["status"] = old["status"].clone();
    }
    if subresource == Some("status") {
        keep_decisions(old, &mut conditions);
    }
    if subresource.is_some() {
        conditions.iter_mut().for_each(|condition| date(old, condition, now));
        if !conditions.is_empty() {
            new["status"]["conditions"] = conditions.into();
        } else if let Some(status) = new["status"].as_object_mut() {
            status.shift_remove("conditions");
        }
    }
}

/// Keeps the decisions of the old object: a write of the status may send them slightly changed.
fn keep_decisions(old: &Value, conditions: &mut [Value]) {
    for kind in DECISIONS {
        let kept: Vec<&Value> = of_type(old, kind).collect();
        let mut sent: Vec<&mut Value> = conditions.iter_mut().filter(|it| it["type"] == kind).collect();
        if kept.len() == sent.len() {
            sent.iter_mut().zip(kept).for_each(|(sent, kept)| **sent = kept.clone());
        }
    }
}

fn date(old: &Value, condition: &mut Value, now: &str) {
    if !condition.is_object() {
        return;
    }
    if condition["lastUpdateTime"].is_null() {
        condition["lastUpdateTime"] = now.into();
    }
    if condition["lastTransitionTime"].is_null() {
        let kind = condition["type"].as_str().unwrap_or_default();
        let same = of_type(old, kind).find(|it| it["status"] == condition["status"]);
        let since = same.and_then(|it| it["lastTransitionTime"].as_str()).unwrap_or(now);
        condition["lastTransitionTime"] = since.into();
    }
}

fn conditions(object: &Value) -> &[Value] {
    object["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default()
}

fn of_type<'v>(object: &'v Value, kind: &str) -> impl Iterator<Item = &'v Value> {
    conditions(object).iter().filter(move |condition| condition["type"] == kind)
}

/// Returns the faults of a request, also as an update of an earlier one.
pub(super) fn causes(object: &Value, old: Option<&Value>, subresource: Option<&str>) -> Vec<Cause> {
    let mut causes = spec_causes(&object["spec"]);
    causes.extend(condition_causes(object));
    let Some(old) = old else { return causes };
    let forbid = |field: &str, why: String| cause("FieldValueForbidden", field, format!("Forbidden: {why}"));
    let count = |object: &Value, kind: &str| of_type(object, kind).count();
    for kind in LASTING.into_iter().filter(|kind| count(object, kind) < count(old, kind)) {
        causes.push(forbid("status.conditions", format!("updates may not remove a condition of type {kind:?}")));
    }
    if subresource == Some("approval") {
        return causes;
    }
    for kind in DECISIONS.into_iter().filter(|kind| count(object, kind) > count(old, kind)) {
        causes.push(forbid("status.conditions", format!("updates may not add a condition of type {kind:?}")));
    }
    let [new, old] = [object, old].map(|it| it["status"]["certificate"].as_str().unwrap_or_default());
    if new != old && !old.is_empty() {
        let why = "updates may not modify existing certificate content".to_owned();
        causes.push(forbid("status.certificate", why));
    }
    causes
}

fn spec_causes(spec: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let usages = spec["usages"].as_array().map(Vec::as_slice).unwrap_or_default();
    if usages.is_empty() {
        causes.push(cause("FieldValueRequired", "spec.usages", "Required value"));
    }
    let mut seen = HashSet::new();
    for (number, usage) in usages.iter().enumerate() {
        let at = format!("spec.usages[{number}]");
        if !USAGES.iter().any(|known| usage == known) {
            let known: Vec<String> = USAGES.iter().map(|known| format!("{known:?}")).collect();
            let message = format!("Unsupported value: {usage}: supported values: {}", known.join(", "));
            causes.push(cause("FieldValueNotSupported", &at, message));
        }
        if !seen.insert(usage) {
            causes.push(cause("FieldValueDuplicate", &at, format!("Duplicate value: {usage}")));
        }
    }
    match spec["signerName"].as_str().unwrap_or_default() {
        "" => causes.push(cause("FieldValueRequired", "spec.signerName", "Required value")),
        name if !name.contains('/') => {
            let message = format!(
                "Invalid value: {name:?}: must be a fully qualified domain and path of the form 'example.com/signer-name'"
            );
            causes.push(cause("FieldValueInvalid", "spec.signerName", message));
        }
        _ => {}
    }
    if let Some(seconds) = spec["expirationSeconds"].as_i64().filter(|seconds| *seconds < 600) {
        let message =
            format!("Invalid value: {seconds}: may not specify a duration less than 600 seconds (10 minutes)");
        causes.push(cause("FieldValueInvalid", "spec.expirationSeconds", message));
    }
    causes
}

fn condition_causes(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut seen = HashSet::new();
    for (number, condition) in conditions(object).iter().enumerate() {
        let at = |field: &str| format!("status.conditions[{number}].{field}");
        let (kind, status) = (text(&condition["type"]), text(&condition["status"]));
        if kind.is_empty() {
            causes.push(cause("FieldValueRequired", &at("type"), "Required value"));
        }
        let accepted: &[&str] =
            if LASTING.contains(&kind.as_str()) { &["True"] } else { &["False", "True", "Unknown"] };
        if status.is_empty() {
            causes.push(cause("FieldValueRequired", &at("status"), "Required value"));
        } else if !accepted.contains(&status.as_str()) {
            let accepted: Vec<String> = accepted.iter().map(|it| format!("{it:?}")).collect();
            let message = format!("Unsupported value: {status:?}: supported values: {}", accepted.join(", "));
            causes.push(cause("FieldValueNotSupported", &at("status"), message));
        }
        if seen.contains(&*kind) {
            causes.push(cause("FieldValueDuplicate", &at("type"), format!("Duplicate value: {kind:?}")));
        }
        let other = DECISIONS.into_iter().find(|other| *other != kind);
        if DECISIONS.contains(&kind.as_str()) && other.is_some_and(|other| seen.contains(other)) {
            let message = format!("Invalid value: {kind:?}: Approved and Denied conditions are mutually exclusive");
            causes.push(cause("FieldValueInvalid", "status.conditions", message));
        }
        seen.extend(condition["type"].as_str());
    }
    causes
}

/// The allowed usages, sorted.
const USAGES: &[&str] = &[
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-03-01T12:00:00Z";

    fn request(conditions: &Value) -> Value {
        json!({
            "spec": {"request": "LS0=", "signerName": "example.test/a", "usages": ["client auth"]},
            "status": {"conditions": conditions},
        })
    }

    fn condition(kind: &str) -> Value {
        json!({"type": kind, "status": "True"})
    }

    /// Returns the object after a change, and its faults.
    fn check(old: &Value, mut new: Value, subresource: Option<&str>) -> (Value, Vec<String>) {
        changed(old, &mut new, subresource, NOW);
        let causes = causes(&new, Some(old), subresource);
        (new, causes.into_iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect())
    }

    #[test]
    fn a_request_has_the_user_who_sent_it() {
        let mut object = request(&json!([condition("Approved")]));
        object["spec"]["username"] = "somebody else".into();
        object["spec"]["extra"] = json!({"k": ["v"]});
        let user = User { name: "me".to_owned(), groups: vec!["us".to_owned()], ..User::default() };
        prepare_create(&mut object, Some(&user));
        assert_eq!(object["status"], json!({}));
        assert_eq!((&object["spec"]["username"], &object["spec"]["groups"]), (&json!("me"), &json!(["us"])));
        assert_eq!(object["spec"].get("extra"), None);
    }

    #[test]
    fn a_decision_is_dated_and_nothing_else_changes_with_it() {
        let mut sent = request(&json!([condition("Approved")]));
        sent["spec"]["signerName"] = "example.test/b".into();
        sent["status"]["certificate"] = "LS0=".into();
        let (new, wrong) = check(&request(&json!([])), sent, Some("approval"));
        assert_eq!(wrong, [""; 0]);
        assert_eq!(new["spec"]["signerName"], "example.test/a");
        let dated = json!({"type": "Approved", "status": "True", "lastUpdateTime": NOW, "lastTransitionTime": NOW});
        assert_eq!(new["status"], json!({"conditions": [dated]}));
    }

    #[test]
    fn a_decision_is_final() {
        let old = request(&json!([condition("Approved")]));
        let both = request(&json!([condition("Approved"), condition("Denied")]));
        assert_eq!(
            check(&old, both, Some("approval")).1,
            ["status.conditions: Invalid value: \"Denied\": Approved and Denied conditions are mutually exclusive"]
        );
        assert_eq!(
            check(&old, request(&json!([])), Some("approval")).1,
            ["status.conditions: Forbidden: updates may not remove a condition of type \"Approved\""]
        );
        let by_status = check(&request(&json!([])), old.clone(), Some("status")).1;
        assert_eq!(by_status, ["status.conditions: Forbidden: updates may not add a condition of type \"Approved\""]);
        // An update without a subresource does not change the decisions.
        let (new, wrong) = check(&old, request(&json!([])), None);
        assert_eq!((new["status"] == old["status"], wrong), (true, Vec::new()));
    }

    #[test]
    fn a_certificate_is_set_once_and_keeps_the_decision() {
        let mut old = request(&json!([condition("Approved")]));
        let mut sent = request(&json!([{"type": "Approved", "status": "True", "reason": "changed"}]));
        sent["status"]["certificate"] = "LS0=".into();
        let (new, wrong) = check(&old, sent.clone(), Some("status"));
        assert_eq!(wrong, [""; 0]);
        assert_eq!(
            (new["status"]["conditions"][0].get("reason"), &new["status"]["certificate"]),
            (None, &json!("LS0="))
        );
        old["status"]["certificate"] = "LS4=".into();
        let wrong = check(&old, sent, Some("status")).1;
        assert_eq!(wrong, ["status.certificate: Forbidden: updates may not modify existing certificate content"]);
    }

    #[test]
    fn a_request_needs_usages_and_a_signer() {
        let mut wrong = request(&json!([{"type": "Failed", "status": "False"}]));
        wrong["spec"] = json!({"usages": ["any", "any", "all"], "expirationSeconds": 5});
        let fields: Vec<String> = causes(&wrong, None, None).into_iter().map(|cause| cause.field).collect();
        let expected = [
            "spec.usages[1]",
            "spec.usages[2]",
            "spec.signerName",
            "spec.expirationSeconds",
            "status.conditions[0].status",
        ];
        assert_eq!(fields, expected);
    }
}
