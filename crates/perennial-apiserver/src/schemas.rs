//! The OpenAPI schemas of built-in kinds, for `kubectl explain`. The program that starts the server passes them.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

use crate::resource::Resource;

/// The schemas of built-in kinds. A built-in kind without one is described as an object without fields.
#[derive(Debug, Default)]
pub struct Schemas {
    components: BTreeMap<String, Value>,
    /// The component of each kind, by group, version and kind.
    kinds: BTreeMap<(String, String, String), String>,
    fingerprint: u64,
}

/// The prefix of a reference to a schema of the same document.
pub(crate) const COMPONENTS: &str = "#/components/schemas/";
/// The schema of object metadata.
const METADATA: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";

impl Schemas {
    /// Returns schemas by name, with references of the form `#/components/schemas/NAME`, and the name of each kind's schema, by
    /// group, version and kind.
    pub fn new(
        components: impl IntoIterator<Item = (String, Value)>,
        kinds: impl IntoIterator<Item = ((String, String, String), String)>,
    ) -> Schemas {
        let components: BTreeMap<String, Value> = components.into_iter().collect();
        let kinds: BTreeMap<_, _> = kinds.into_iter().collect();
        let mut hash = DefaultHasher::new();
        kinds.hash(&mut hash);
        components.iter().for_each(|(name, schema)| (name, schema.to_string()).hash(&mut hash));
        Schemas { components, kinds, fingerprint: hash.finish() }
    }

    /// Returns the name of a kind's schema, if there is one.
    pub fn of_kind(&self, resource: &Resource) -> Option<&str> {
        let key = (resource.group.clone(), resource.version.clone(), resource.kind.clone());
        self.kinds.get(&key).map(String::as_str)
    }

    /// Returns the schema of this name, and every schema that it refers to, directly or indirectly.
    pub(crate) fn with_references(&self, name: &str) -> BTreeMap<&str, &Value> {
        let mut found = BTreeMap::new();
        let mut open = vec![name.to_owned()];
        while let Some(name) = open.pop() {
            let Some((name, schema)) = self.components.get_key_value(&name) else { continue };
            if found.insert(name.as_str(), schema).is_none() {
                let mut names = BTreeSet::new();
                references(schema, &mut names);
                open.extend(names);
            }
        }
        found
    }

    /// Returns the name of the schema of object metadata, if present.
    pub(crate) fn metadata(&self) -> Option<&str> {
        self.components.get_key_value(METADATA).map(|(name, _)| name.as_str())
    }

    /// Returns a number that differs for other schemas.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.fingerprint
    }
}

fn references(schema: &Value, found: &mut BTreeSet<String>) {
    match schema {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str).and_then(|it| it.strip_prefix(COMPONENTS));
            found.extend(name.map(ToOwned::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_includes_everything_that_it_refers_to() {
        let to = |name: &str| json!({"properties": {"p": {"allOf": [{"$ref": format!("{COMPONENTS}{name}")}]}}});
        // b refers to itself, as the schema of schemas does.
        let components = [("a", to("b")), ("b", to("b")), ("c", to("a")), ("d", to("missing"))];
        let schemas = Schemas::new(components.map(|(name, schema)| (name.to_owned(), schema)), []);
        let names = |of: &str| schemas.with_references(of).into_keys().collect::<Vec<_>>();
        assert_eq!(names("c"), ["a", "b", "c"]);
        assert_eq!(names("b"), ["b"]);
        assert_eq!(names("d"), ["d"]);
    }
}
