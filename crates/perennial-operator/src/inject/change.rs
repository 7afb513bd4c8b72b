//! Computes the change that puts a CA bundle into an object.

use base64::prelude::{BASE64_STANDARD, Engine};
use perennial_api::annotations::{DESCRIPTION, OWNING_COMPONENT};
use perennial_core::injection::{KEY, Target};
use serde_json::{Map, Value, json};

const OWNER: &str = "service-ca";
const PURPOSE: &str = "The service CA bundle, which Perennial injects because an annotation asks for it";

/// A change of an object.
#[derive(Debug, PartialEq)]
pub(super) enum Change {
    /// Replace the whole object, in the resource version that was read.
    Replace(Value),
    /// Apply these fields as their owner. Fields of other managers stay.
    Apply(Value),
}

/// Returns the change; none if the object has the bundle.
pub(super) fn change(target: Target, object: &Value, bundle: &str) -> Option<Change> {
    let encoded = || json!(BASE64_STANDARD.encode(bundle));
    let applied = |fields: Map<String, Value>| {
        let metadata = json!({"name": object["metadata"]["name"]});
        let mut applied = json!({"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": metadata});
        applied.as_object_mut()?.extend(fields);
        Some(Change::Apply(applied))
    };
    let one = |key: &str, value: Value| applied(Map::from_iter([(key.to_owned(), value)]));
    match target {
        Target::ConfigMap => config_map(object, bundle),
        Target::ApiService => {
            let wanted = encoded();
            (object["spec"]["caBundle"] != wanted).then(|| one("spec", json!({"caBundle": wanted})))?
        }
        Target::CustomResourceDefinition => {
            let conversion = &object["spec"]["conversion"];
            let wanted = encoded();
            let is_right = conversion["webhook"]["clientConfig"]["caBundle"] == wanted;
            if conversion["strategy"] != "Webhook" || is_right {
                return None;
            }
            one("spec", json!({"conversion": {"webhook": {"clientConfig": {"caBundle": wanted}}}}))
        }
        Target::MutatingWebhookConfiguration | Target::ValidatingWebhookConfiguration => {
            let wanted = encoded();
            let webhooks = object["webhooks"].as_array().map(Vec::as_slice).unwrap_or_default();
            if webhooks.iter().all(|it| it["clientConfig"]["caBundle"] == wanted) {
                return None;
            }
            // An apply gives up the fields that it omits, so it has the webhooks that are correct, too.
            let ours = webhooks.iter().map(|it| json!({"name": it["name"], "clientConfig": {"caBundle": wanted}}));
            one("webhooks", ours.collect())
        }
    }
}

/// Returns the change of a ConfigMap: the bundle becomes its only data, and annotations name the owner and the purpose.
fn config_map(object: &Value, bundle: &str) -> Option<Change> {
    let wanted = json!({KEY: bundle});
    if object["data"] == wanted {
        return None;
    }
    let mut changed = object.clone();
    changed["data"] = wanted;
    let annotations = &mut changed["metadata"]["annotations"];
    if annotations[OWNING_COMPONENT].as_str().unwrap_or_default().is_empty() {
        annotations[OWNING_COMPONENT] = json!(OWNER);
        annotations[DESCRIPTION] = json!(PURPOSE);
    }
    Some(Change::Replace(changed))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BUNDLE: &str = "-----BEGIN CERTIFICATE-----\n";

    fn applied(change: Option<Change>) -> Value {
        match change {
            Some(Change::Apply(value)) => value,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn data_of_a_config_map_becomes_only_the_bundle() {
        let metadata = json!({"name": "m", "annotations": {"a": "b"}});
        let object = json!({"metadata": metadata, "data": {"x": "y", KEY: "old"}, "binaryData": {"z": "AA=="}});
        let Some(Change::Replace(changed)) = change(Target::ConfigMap, &object, BUNDLE) else { panic!("no change") };
        assert_eq!(changed["data"], json!({KEY: BUNDLE}));
        assert_eq!(changed["binaryData"], object["binaryData"]);
        assert_eq!(changed["metadata"]["annotations"]["a"], "b");
        assert_eq!(changed["metadata"]["annotations"][OWNING_COMPONENT], OWNER);
        assert_eq!(change(Target::ConfigMap, &changed, BUNDLE), None);
        // An owner that a user has named stays.
        let theirs = json!({"metadata": {"name": "m", "annotations": {OWNING_COMPONENT: "shop"}}});
        let Some(Change::Replace(changed)) = change(Target::ConfigMap, &theirs, BUNDLE) else { panic!("no change") };
        assert_eq!(changed["metadata"]["annotations"], json!({OWNING_COMPONENT: "shop"}));
    }

    #[test]
    fn every_webhook_gets_the_bundle_and_other_fields_stay() {
        let hook = |name: &str, bundle: Value| json!({"name": name, "clientConfig": {"url": "u", "caBundle": bundle}});
        let right = json!(BASE64_STANDARD.encode(BUNDLE));
        let object = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "w", "labels": {"a": "b"}},
            "webhooks": [hook("one", right.clone()), hook("two", json!("Zm9yZWlnbg=="))],
        });
        let changed = applied(change(Target::ValidatingWebhookConfiguration, &object, BUNDLE));
        let ours = |name: &str| json!({"name": name, "clientConfig": {"caBundle": right}});
        assert_eq!(changed["webhooks"], json!([ours("one"), ours("two")]));
        assert_eq!(changed["metadata"], json!({"name": "w"}));
        let all_right = json!({"webhooks": [hook("one", right.clone())]});
        assert_eq!(change(Target::ValidatingWebhookConfiguration, &all_right, BUNDLE), None);
        assert_eq!(change(Target::MutatingWebhookConfiguration, &json!({}), BUNDLE), None);
    }

    #[test]
    fn definition_gets_the_bundle_only_if_it_has_a_conversion_webhook() {
        let object =
            |strategy: &str| json!({"metadata": {"name": "c"}, "spec": {"conversion": {"strategy": strategy}}});
        assert_eq!(change(Target::CustomResourceDefinition, &object("None"), BUNDLE), None);
        let changed = applied(change(Target::CustomResourceDefinition, &object("Webhook"), BUNDLE));
        let wanted = json!({"clientConfig": {"caBundle": BASE64_STANDARD.encode(BUNDLE)}});
        assert_eq!(changed["spec"], json!({"conversion": {"webhook": wanted}}));
    }
}
