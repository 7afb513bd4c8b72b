//! Fixtures for the tests of several modules.

use serde_json::{Value, json};

use crate::environment::{Environment, counting};

/// Returns an environment with a stopped clock and counting random bytes.
pub(crate) fn environment() -> Environment {
    Environment::new(|| "2026-03-01T12:00:00Z".parse().unwrap(), counting())
}

/// Returns the definition of a resource in version v1; `name` is its plural and its group.
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

/// Returns the definition of cluster-scoped shelves.
pub(crate) fn shelves() -> Value {
    definition("shelves.shop.test", "Shelf", "Cluster", &json!({"type": "object"}))
}
