//! Objects as tables, for people.

use serde_json::{Value, json};

use crate::resource::{Column, Resource, Source};

/// A table of objects. Ages are computed by who reads it, from the metadata that goes with each row.
pub(crate) fn table(resource: &Resource, objects: &[Value], metadata: &Value, with_columns: bool) -> Value {
    let columns: Vec<Value> = resource.columns.iter().map(definition).collect();
    let rows: Vec<Value> = objects.iter().map(|object| row(resource, object)).collect();
    let list = |field: &str| metadata.get(field).cloned();
    let mut head = json!({});
    for field in ["resourceVersion", "continue", "remainingItemCount"] {
        if let Some(value) = list(field) {
            head[field] = value;
        }
    }
    json!({
        "kind": "Table",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": head,
        "columnDefinitions": if with_columns { columns.into() } else { Value::Null },
        "rows": rows,
    })
}

fn definition(column: &Column) -> Value {
    let format = if column.name == "Name" { "name" } else { "" };
    json!({
        "name": column.name, "type": column.kind, "format": format,
        "description": column.description, "priority": column.priority
    })
}

fn row(resource: &Resource, object: &Value) -> Value {
    let cells: Vec<Value> = resource.columns.iter().map(|column| cell(column, object)).collect();
    let partial =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]});
    json!({"cells": cells, "object": partial})
}

fn cell(column: &Column, object: &Value) -> Value {
    match &column.value {
        Source::Path(path) => at_path(object, path),
        Source::Count(maps) => {
            let count = |map: &&str| object[*map].as_object().map_or(0, serde_json::Map::len);
            maps.iter().map(count).sum::<usize>().into()
        }
        Source::Age => object["metadata"]["creationTimestamp"].clone(),
    }
}

/// A simple JSON path: fields with dots, and `[?(@.field=="value")]` once.
fn at_path(object: &Value, path: &str) -> Value {
    let mut value = object;
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(filter) = rest.strip_prefix("[?(@.") {
            let Some((condition, after)) = filter.split_once(")]") else { return Value::Null };
            let Some((field, wanted)) = condition.split_once("==") else { return Value::Null };
            let wanted = wanted.trim().trim_matches(['"', '\'']);
            let entries = value.as_array().map(Vec::as_slice).unwrap_or_default();
            let Some(found) = entries.iter().find(|entry| entry[field.trim()].as_str() == Some(wanted)) else {
                return Value::Null;
            };
            (value, rest) = (found, after);
            continue;
        }
        let text = rest.strip_prefix('.').unwrap_or(rest);
        let end = text.find(['.', '[']).unwrap_or(text.len());
        (value, rest) = (&value[&text[..end]], &text[end..]);
    }
    value.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_lead_to_values() {
        let object = json!({"spec": {"mode": "x"}, "status": {"conditions": [
            {"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}});
        assert_eq!(at_path(&object, ".spec.mode"), "x");
        assert_eq!(at_path(&object, ".spec.none.deeper"), Value::Null);
        assert_eq!(at_path(&object, ".status.conditions[?(@.type==\"Ready\")].status"), "True");
        assert_eq!(at_path(&object, ".status.conditions[?(@.type=='None')].status"), Value::Null);
    }
}
