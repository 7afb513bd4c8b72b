//! Finds the old value of a field in an update, and says whether it changed.

use serde_json::{Map, Value};

use crate::node::{ListType, Node};

/// The old value of a property or map entry.
pub(crate) fn of_field<'a>(old: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    old.and_then(|old| old.get(name))
}

/// The old value of an entry of a list. Only entries of lists of type `map` can be found again.
pub(crate) fn of_item<'a>(list: &Node, old: Option<&'a Value>, item: &Value) -> Option<&'a Value> {
    let (ListType::Map(keys), Value::Array(old_items), Value::Object(item)) = (&list.list_type, old?, item) else {
        return None;
    };
    old_items.iter().find(|old| old.as_object().is_some_and(|old| same_keys(keys, old, item)))
}

/// Whether a value is what it was. The order of a list of type `map` does not matter. An object
/// with fields that the schema does not have, such as the metadata of a resource, always counts as
/// changed: a server cannot follow them.
pub(crate) fn unchanged(node: &Node, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(old_items), Value::Array(new_items)) => {
            if !matches!(node.list_type, ListType::Map(_)) {
                return old_items == new_items;
            }
            let Some(child) = &node.items else { return old_items == new_items };
            old_items.len() == new_items.len()
                && new_items
                    .iter()
                    .all(|new| of_item(node, Some(old), new).is_some_and(|old| unchanged(child, old, new)))
        }
        (Value::Object(old_fields), Value::Object(new_fields)) => {
            old_fields.len() == new_fields.len()
                && new_fields.iter().all(|(name, new)| match (old_fields.get(name), node.field(name)) {
                    (Some(old), Some(child)) => unchanged(child, old, new),
                    _ => false,
                })
        }
        _ => old == new,
    }
}

fn same_keys(keys: &[String], old: &Map<String, Value>, new: &Map<String, Value>) -> bool {
    let is_scalar = |value: &Value| !(value.is_null() || value.is_array() || value.is_object());
    keys.iter().all(|key| new.get(key).is_some_and(|value| is_scalar(value) && old.get(key) == Some(value)))
}
