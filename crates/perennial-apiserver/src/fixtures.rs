//! What tests of several modules begin with.

use serde_json::{Value, json};

use crate::environment::{Environment, counting};

/// A clock that stands still, and chance that counts.
pub(crate) fn environment() -> Environment {
    Environment::new(|| "2026-03-01T12:00:00Z".parse().unwrap(), counting())
}

/// The definition of a resource in version v1; `name` is its plural and its group.
pub(crate) fn definition(name: &str, kind: &str, scope: &str, schema: &Value) -> Value {
    let (plural, group) = name.split_once('.').unwrap();
    json!({
        "metadata": {"name": name},
        "spec": {
            "group": group, "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]
        }
    })
}

/// The definition of shelves of the whole cluster.
pub(crate) fn shelves() -> Value {
    definition("shelves.shop.test", "Shelf", "Cluster", &json!({"type": "object"}))
}
