//! Checks that lists of type `set` have no equal entries, and lists of type `map` no equal keys.

use serde_json::{Map, Value};

use crate::error::{ErrorKind, FieldError, go_json};
use crate::node::{Additional, ListType, Node};

/// Returns every repeated entry, at its first repetition.
pub(crate) fn check(root: &Node, value: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    visit(root, value, "", &mut errors);
    errors
}

fn visit(node: &Node, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(fields) => {
            let mut names: Vec<&String> = fields.keys().collect();
            names.sort();
            for name in names {
                if let Some(child) = node.properties.get(name) {
                    let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                    visit(child, &fields[name], &path, errors);
                } else if let Additional::Schema(child) = &node.additional {
                    visit(child, &fields[name], &format!("{path}[{name}]"), errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => duplicates(path, items, errors),
                ListType::Map(keys) => match items.iter().position(|item| !item.is_object() && !item.is_null()) {
                    None => {
                        let keys: Vec<Value> = items.iter().map(|item| keys_of(keys, item)).collect();
                        duplicates(path, &keys, errors);
                    }
                    Some(index) => {
                        let message = "must be an object for an array of list-type map";
                        let path = format!("{path}[{index}]");
                        errors.push(FieldError::new(path, ErrorKind::Invalid, items[index].clone(), message));
                    }
                },
            }
            if let Some(child) = &node.items {
                for (index, item) in items.iter().enumerate() {
                    visit(child, item, &format!("{path}[{index}]"), errors);
                }
            }
        }
        _ => {}
    }
}

fn keys_of(keys: &[String], item: &Value) -> Value {
    let present = |key: &String| Some((key.clone(), item.get(key)?.clone()));
    Value::Object(keys.iter().filter_map(present).collect::<Map<_, _>>())
}

fn duplicates(path: &str, items: &[Value], errors: &mut Vec<FieldError>) {
    let mut seen = std::collections::HashMap::<String, u32>::new();
    for (index, item) in items.iter().enumerate() {
        let times = seen.entry(go_json(item)).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::new(format!("{path}[{index}]"), ErrorKind::Duplicate, item.clone(), ""));
        }
    }
}
