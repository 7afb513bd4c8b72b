//! The fields of built-in kinds, and the faults of objects with other fields.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    /// A number, by its name in Go.
    Number(&'static str),
    Bool,
    Bytes,
    Time,
    Quantity,
    NumberOrText,
    Any,
    List(Box<Shape>),
    Map(Box<Shape>),
    Struct(&'static str),
}

/// The fields of each type, from `fields.txt`.
pub(super) type Table = BTreeMap<&'static str, BTreeMap<&'static str, Shape>>;

pub(super) static TABLE: LazyLock<Table> = LazyLock::new(|| table(include_str!("fields.txt")));

/// Returns the fields of a type; none if any field is accepted.
#[cfg(test)]
pub(crate) fn names(of: &str) -> Option<Vec<&'static str>> {
    TABLE.get(of).map(|fields| fields.keys().copied().collect())
}

/// Returns the faults of an applied built-in object: unknown fields, and values of the wrong type.
pub(crate) fn faults(group: &str, kind: &str, object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(root) = root(group, kind) {
        find_faults(&Shape::Struct(root), object, "", &mut found);
    }
    found
}

/// Returns the type of a built-in kind.
pub(super) fn root(group: &str, kind: &str) -> Option<&'static str> {
    let name = if group == "events.k8s.io" { "events.Event" } else { kind };
    TABLE.get_key_value(name).map(|(name, _)| *name)
}

fn find_faults(shape: &Shape, value: &Value, at: &str, found: &mut Vec<String>) {
    match (shape, value) {
        (Shape::Struct(name), Value::Object(fields)) => {
            let Some(shapes) = TABLE.get(name) else { return };
            for (name, value) in fields {
                match shapes.get(name.as_str()) {
                    Some(shape) => find_faults(shape, value, &format!("{at}.{name}"), found),
                    None => {
                        found.push(format!("{at}.{name}: field not declared in schema"));
                        break;
                    }
                }
            }
        }
        (Shape::Map(of), Value::Object(entries)) => {
            entries.iter().for_each(|(name, value)| find_faults(of, value, &format!("{at}.{name}"), found));
        }
        (Shape::List(of), Value::Array(items)) => {
            for (number, item) in items.iter().enumerate() {
                find_faults(of, item, &format!("{at}[{number}]"), found);
            }
        }
        (_, Value::Null) | (Shape::Any, _) | (Shape::Bool, Value::Bool(_)) => {}
        (Shape::Text | Shape::Bytes | Shape::Time, Value::String(_)) => {}
        (Shape::Quantity | Shape::NumberOrText, Value::String(_) | Value::Number(_)) => {}
        (Shape::Number(_), Value::Number(_)) => {}
        (shape, value) => {
            let expected = match shape {
                Shape::Struct(_) | Shape::Map(_) => "map",
                Shape::List(_) => "list",
                Shape::Number(_) => "numeric (int or float)",
                Shape::Bool => "boolean",
                _ => "string",
            };
            found.push(format!("{at}: expected {expected}, got {}", name_of(value)));
        }
    }
}

pub(super) fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn table(text: &'static str) -> Table {
    let mut table = Table::new();
    let mut of = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // A line that starts with a space continues the previous one.
        let fields = match line.split_once(": ") {
            Some((name, fields)) => {
                of = name;
                fields
            }
            None => line,
        };
        for field in fields.split(',').map(str::trim).filter(|field| !field.is_empty()) {
            let (name, shape) = field.split_once(' ').unwrap_or((field, "string"));
            table.entry(of).or_default().insert(name, shape_of(shape));
        }
    }
    table
}

fn shape_of(text: &'static str) -> Shape {
    let inside = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    if let Some(of) = inside('[', ']') {
        return Shape::List(Box::new(shape_of(of)));
    }
    if let Some(of) = inside('{', '}') {
        return Shape::Map(Box::new(shape_of(of)));
    }
    match text {
        "string" => Shape::Text,
        "int32" | "int64" | "double" => Shape::Number(text),
        "bool" => Shape::Bool,
        "bytes" => Shape::Bytes,
        "time" => Shape::Time,
        "quantity" => Shape::Quantity,
        "int-or-string" => Shape::NumberOrText,
        "any" => Shape::Any,
        name => Shape::Struct(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Registry;
    use serde_json::json;

    #[test]
    fn every_named_type_is_in_the_table() {
        fn named(shape: &Shape) -> Option<&'static str> {
            match shape {
                Shape::Struct(name) => Some(name),
                Shape::List(of) | Shape::Map(of) => named(of),
                _ => None,
            }
        }
        for shape in TABLE.values().flat_map(BTreeMap::values) {
            assert!(named(shape).is_none_or(|name| TABLE.contains_key(name)), "{shape:?}");
        }
        for resource in Registry::builtin().iter().filter(|resource| resource.is_stored) {
            assert!(root(&resource.group, &resource.kind).is_some(), "{}", resource.kind);
        }
    }

    #[test]
    fn faults_of_an_applied_object_have_paths() {
        let object = json!({"data": {"k": 5}, "dada": {}, "metadata": {"name": "a"}});
        let faults = faults("", "ConfigMap", &object);
        assert_eq!(faults, [".data.k: expected string, got number", ".dada: field not declared in schema"]);
    }
}
