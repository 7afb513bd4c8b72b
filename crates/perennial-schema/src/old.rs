//! Finds the old value of a field in an update, and checks whether it changed.

use std::collections::HashMap;

use serde_json::Value;

use crate::node::{ListType, Node};

/// Returns the old value of a property or map entry.
pub(crate) fn of_field<'a>(old: Option<&'a Value>, name: &str) -> Option<&'a Value> {
    old.and_then(|old| old.get(name))
}

/// The old entries of a list, by their keys. Only entries of lists of type `map` can be found.
pub(crate) struct Items<'a> {
    keys: &'a [String],
    by_keys: HashMap<String, &'a Value>,
}

impl<'a> Items<'a> {
    pub(crate) fn of(list: &'a Node, old: Option<&'a Value>) -> Items<'a> {
        let mut items = Items { keys: &[], by_keys: HashMap::new() };
        if let (ListType::Map(keys), Some(Value::Array(old_items))) = (&list.list_type, old) {
            items.keys = keys;
            for item in old_items {
                if let Some(keys) = items.keys_of(item) {
                    items.by_keys.entry(keys).or_insert(item);
                }
            }
        }
        items
    }

    /// Returns the old value of an entry.
    pub(crate) fn find(&self, item: &Value) -> Option<&'a Value> {
        if self.by_keys.is_empty() {
            return None;
        }
        self.by_keys.get(&self.keys_of(item)?).copied()
    }

    /// Returns the keys of an entry as one text; none if one is missing or not a plain value.
    fn keys_of(&self, item: &Value) -> Option<String> {
        let is_scalar = |value: &&Value| !(value.is_null() || value.is_array() || value.is_object());
        let keys = self.keys.iter().map(|key| item.get(key).filter(is_scalar));
        Some(keys.collect::<Option<Vec<_>>>()?.into_iter().map(|value| format!("{value},")).collect())
    }
}

/// Returns true if a value is unchanged. The order of a list of type `map` does not matter. An object
/// with fields that the schema does not have, such as the metadata of a resource, always counts as
/// changed: a server cannot compare them.
pub(crate) fn unchanged(node: &Node, old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Array(old_items), Value::Array(new_items)) => {
            if !matches!(node.list_type, ListType::Map(_)) {
                return old_items == new_items;
            }
            let Some(child) = &node.items else { return old_items == new_items };
            let olds = Items::of(node, Some(old));
            old_items.len() == new_items.len()
                && new_items.iter().all(|new| olds.find(new).is_some_and(|old| unchanged(child, old, new)))
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
