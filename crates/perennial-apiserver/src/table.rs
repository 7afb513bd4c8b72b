//! Objects as tables, for `kubectl get`.

mod cells;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resource::{Column, Resource, Source};

/// How much of an object its row contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Include {
    Nothing,
    Metadata,
    Object,
}

/// Returns a table of objects, with ages at `now`.
pub(crate) fn table(
    resource: &Resource,
    objects: &[Value],
    metadata: &Value,
    now: Timestamp,
    include: Include,
) -> Value {
    let columns: Vec<Value> = resource.columns.iter().map(definition).collect();
    let rows: Vec<Value> = objects.iter().map(|object| row(resource, object, now, include)).collect();
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
        "columnDefinitions": columns,
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

/// Returns the row of an object.
pub(crate) fn row(resource: &Resource, object: &Value, now: Timestamp, include: Include) -> Value {
    let cells: Vec<Value> = resource.columns.iter().map(|column| cell(column, object, now)).collect();
    let object = match include {
        Include::Nothing => Value::Null,
        Include::Metadata => {
            json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
        }
        Include::Object => object.clone(),
    };
    json!({"cells": cells, "object": object})
}

fn cell(column: &Column, object: &Value, now: Timestamp) -> Value {
    match &column.value {
        Source::Path(path) if column.kind == "date" => age(&at_path(object, path), now).into(),
        Source::Path(path) => at_path(object, path),
        Source::PathOr(path, otherwise) => match at_path(object, path) {
            Value::Null => (*otherwise).into(),
            value => value,
        },
        Source::NumberAt(path) => at_path(object, path).as_i64().unwrap_or(0).into(),
        Source::Count(fields) => fields.iter().map(|field| count(&object[*field])).sum::<usize>().into(),
        Source::AgeAt(paths) => {
            let found = paths.iter().map(|path| at_path(object, path)).find(Value::is_string);
            age(&found.unwrap_or_default(), now).into()
        }
        Source::Age => age(&object["metadata"]["creationTimestamp"], now).into(),
        Source::Cell(cell) => cells::text(*cell, object).into(),
    }
}

fn count(value: &Value) -> usize {
    match value {
        Value::Object(map) => map.len(),
        Value::Array(list) => list.len(),
        _ => 0,
    }
}

/// Returns an age in its largest units: `45s`, `5m30s`, `3h20m`, `12d`, `2y30d`.
fn age(since: &Value, now: Timestamp) -> String {
    let Some(since) = since.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return "<unknown>".to_owned();
    };
    span(since.duration_until(now).as_secs())
}

/// Returns so many seconds in their largest units.
fn span(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let with = |large: i64, unit: &str, small: i64, small_unit: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{small_unit}"),
    };
    match seconds {
        ..0 => "<invalid>".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => with(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => with(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => with(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ if days < 2920 => with(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// Follows a simple JSON path: fields with dots, and `[?(@.field=="value")]` once.
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
        // An entry of a list by its index.
        if let Some(index) = rest.strip_prefix('[') {
            let Some((index, after)) = index.split_once(']') else { return Value::Null };
            let Ok(index) = index.parse::<usize>() else { return Value::Null };
            (value, rest) = (&value[index], after);
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
    fn an_age_is_in_its_largest_units() {
        let check = |seconds: i64, expected: &str| {
            let since = Timestamp::UNIX_EPOCH.to_string().into();
            assert_eq!(age(&since, Timestamp::from_second(seconds).unwrap()), expected);
        };
        check(0, "0s");
        check(119, "119s");
        check(120, "2m");
        check(330, "5m30s");
        check(600, "10m");
        check(10_799, "179m");
        check(12_000, "3h20m");
        check(28_800, "8h");
        check(172_800, "2d");
        check(180_000, "2d2h");
        check(12 * 86_400, "12d");
        check(760 * 86_400, "2y30d");
        check(3650 * 86_400, "10y");
        check(-1, "<invalid>");
        assert_eq!(age(&Value::Null, Timestamp::UNIX_EPOCH), "<unknown>");
    }

    #[test]
    fn paths_lead_to_values() {
        let object = json!({"spec": {"mode": "x"}, "status": {"conditions": [
            {"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]}});
        assert_eq!(at_path(&object, ".spec.mode"), "x");
        assert_eq!(at_path(&object, ".spec.none.deeper"), Value::Null);
        assert_eq!(at_path(&object, ".status.conditions[?(@.type==\"Ready\")].status"), "True");
        assert_eq!(at_path(&object, ".status.conditions[?(@.type=='None')].status"), Value::Null);
        assert_eq!(at_path(&object, ".status.conditions[1].type"), "Ready");
        for nowhere in [".status.conditions[7].type", ".status.conditions[*].type", "[", "[[", "..", ".spec[", ".[]"] {
            assert_eq!(at_path(&object, nowhere), Value::Null, "{nowhere}");
        }
    }
}
