//! The preparation of an object before validation: nulls, defaults and unknown fields.

use serde_json::Value;

use crate::node::{Additional, Node};

/// Removes nulls in fields that are neither nullable nor have a default. Nulls in lists stay.
pub(crate) fn drop_nulls(node: Option<&Node>, value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| {
                let node = node.and_then(|node| node.field(name));
                let dropped = value.is_null() && node.is_some_and(|node| !node.nullable && node.default.is_none());
                if !dropped {
                    drop_nulls(node, value);
                }
                !dropped
            });
        }
        Value::Array(items) => {
            let node = node.and_then(|node| node.items.as_deref());
            items.iter_mut().for_each(|item| drop_nulls(node, item));
        }
        _ => {}
    }
}

/// Fills in defaults for missing fields, and for nulls if null is not allowed, within `room` bytes.
/// Returns whether all defaults fit.
///
/// A default may be as large as a definition, and a list can request it with two bytes for each entry.
pub(crate) fn apply_defaults(node: &Node, value: &mut Value, room: &mut usize) -> bool {
    match value {
        Value::Object(fields) => {
            for (name, child) in &node.properties {
                let Some(default) = &child.default else { continue };
                if fields.get(name).is_none_or(|value| value.is_null() && !child.nullable) {
                    if !take(room, name.len() + size(default)) {
                        return false;
                    }
                    fields.insert(name.clone(), default.clone());
                }
            }
            fields.iter_mut().all(|(name, value)| match node.field(name) {
                None => true,
                Some(child) => replace_null(child, value, room) && apply_defaults(child, value, room),
            })
        }
        Value::Array(items) => {
            let Some(child) = &node.items else { return true };
            items.iter_mut().all(|item| replace_null(child, item, room) && apply_defaults(child, item, room))
        }
        _ => true,
    }
}

fn replace_null(node: &Node, value: &mut Value, room: &mut usize) -> bool {
    if value.is_null() && !node.nullable {
        let default = node.default.as_ref();
        if !take(room, default.map_or(0, size)) {
            return false;
        }
        *value = default.cloned().unwrap_or(Value::Null);
    }
    true
}

/// The smallest size of a value besides its texts.
const BYTES_OF_A_VALUE: usize = 32;

fn take(room: &mut usize, bytes: usize) -> bool {
    let left = room.checked_sub(bytes);
    *room = left.unwrap_or(0);
    left.is_some()
}

/// Returns the size of a value: its texts, and some bytes for each value.
fn size(value: &Value) -> usize {
    let inner: usize = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    BYTES_OF_A_VALUE + inner
}

/// Removes fields that the schema does not have. Returns their paths, sorted.
pub(crate) fn prune(root: &Node, value: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    Pruner { unknown: &mut unknown }.visit(Some(root), value, "");
    unknown.sort();
    unknown
}

struct Pruner<'a> {
    unknown: &'a mut Vec<String>,
}

impl Pruner<'_> {
    fn visit(&mut self, node: Option<&Node>, value: &mut Value, path: &str) {
        match value {
            Value::Object(fields) => fields.retain(|name, value| self.keep(node, name, value, path)),
            Value::Array(items) => {
                let child = node.and_then(|node| node.items.as_deref());
                let preserve = node.is_some_and(|node| node.preserve_unknown);
                for (index, item) in items.iter_mut().enumerate() {
                    match (preserve, child) {
                        (true, None) => {}
                        _ => self.visit(child, item, &format!("{path}[{index}]")),
                    }
                }
            }
            _ => {}
        }
    }

    fn keep(&mut self, node: Option<&Node>, name: &str, value: &mut Value, path: &str) -> bool {
        let path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        let Some(node) = node else {
            self.unknown.push(path);
            return false;
        };
        if node.embedded_resource && META_FIELDS.contains(&name) {
            return true;
        }
        match (node.field(name), &node.additional) {
            (Some(child), _) => self.visit(Some(child), value, &path),
            (None, Additional::Any) => self.visit(None, value, &path),
            (None, _) if node.preserve_unknown => {}
            (None, _) => {
                self.unknown.push(path);
                return false;
            }
        }
        true
    }
}

/// The fields of every resource. They are not pruned: the caller knows the schema of metadata.
pub(crate) const META_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "expectations and schemas read best in place")]
mod tests {
    use expect_test::{Expect, expect};
    use serde_json::json;

    use crate::{Options, Schema, UnknownFields};

    fn check(schema: serde_json::Value, value: serde_json::Value, expected: Expect) {
        let schema = Schema::compile_plain(&schema).unwrap();
        let mut stored = value;
        schema.drop_nulls(&mut stored);
        schema.apply_defaults(&mut stored);
        let unknown = schema.prune(&mut stored);
        expected.assert_eq(&format!("{stored} without {unknown:?}"));
    }

    #[test]
    fn nulls_are_removed_unless_nullable_or_defaulted() {
        let schema = json!({"type": "object", "properties": {
            "plain": {"type": "string"},
            "nullable": {"type": "string", "nullable": true},
            "defaulted": {"type": "string", "default": "d"},
            "both": {"type": "string", "nullable": true, "default": "d"},
            "inner": {"type": "object", "properties": {"x": {"type": "string"}}},
        }});
        check(
            schema,
            json!({"plain": null, "nullable": null, "defaulted": null, "both": null, "inner": {"x": null}}),
            expect![[r#"{"nullable":null,"defaulted":"d","both":null,"inner":{}} without []"#]],
        );
    }

    #[test]
    fn defaults_are_filled_in_inside_defaults() {
        let inner = json!({"type": "object", "default": {}, "properties": {"x": {"type": "integer", "default": 7}}});
        let schema = json!({"type": "object", "properties": {
            "one": {"type": "object", "default": {}, "properties": {"two": inner}},
            "list": {"type": "array", "items": inner},
            "map": {"type": "object", "additionalProperties": inner},
        }});
        check(
            schema,
            json!({"list": [{}, {"x": 1}, null], "map": {"a": {}}}),
            expect![[r#"{"list":[{"x":7},{"x":1},{"x":7}],"map":{"a":{"x":7}},"one":{"two":{"x":7}}} without []"#]],
        );
    }

    #[test]
    fn unknown_fields_are_pruned_at_every_depth() {
        let schema = json!({"type": "object", "properties": {
            "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                     "properties": {"known": {"type": "object"}}},
            "map": {"type": "object", "additionalProperties": {"type": "object"}},
        }});
        check(
            schema,
            json!({"x": 1, "list": [{"a": "1"}, {"b": {"c": 1}}], "free": {"any": {"thing": 1}, "known": {"z": 1}},
                   "map": {"k": {"v": 1}}}),
            expect![[
                r#"{"list":[{"a":"1"},{}],"free":{"any":{"thing":1},"known":{}},"map":{"k":{}}} without ["free.known.z", "list[1].b", "map.k.v", "x"]"#
            ]],
        );
    }

    #[test]
    fn the_root_of_a_resource_has_metadata() {
        let schema = Schema::compile(&json!({"type": "object", "properties": {}})).unwrap();
        let value = json!({"apiVersion": "v1", "kind": "K", "metadata": {"name": "n"}});
        assert_eq!(schema.admit(value.clone(), Options::default()).unwrap(), value);
        let strict = Options { unknown_fields: UnknownFields::Refuse, ..Options::default() };
        let errors = schema.admit(json!({"metadata": {}, "other": 1}), strict).unwrap_err();
        assert_eq!(errors[0].to_string(), "unknown field \"other\"");
    }
}
