//! Strategic merge patch: like a merge patch, but lists of objects are merged by a key of theirs.

use serde_json::{Map, Value};

use crate::status::{ApiError, Reason};

/// By which field the entries of a list are told apart, and of which objects. The built-in types have these.
const MERGE_KEYS: &[(&str, &str)] = &[
    ("containers", "name"),
    ("initContainers", "name"),
    ("ephemeralContainers", "name"),
    ("volumes", "name"),
    ("env", "name"),
    ("volumeMounts", "mountPath"),
    ("volumeDevices", "devicePath"),
    ("imagePullSecrets", "name"),
    ("secrets", "name"),
    ("hostAliases", "ip"),
    ("topologySpreadConstraints", "topologyKey"),
    ("conditions", "type"),
    ("addresses", "type"),
    ("taints", "key"),
    ("ownerReferences", "uid"),
    ("webhooks", "name"),
];

/// Lists of plain values that are merged as sets.
const MERGED_SETS: &[&str] = &["finalizers", "podCIDRs"];

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE_VALUES: &str = "$deleteFromPrimitiveList/";

/// Changes an object as the patch says.
pub(crate) fn strategic(object: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let (Some(object), Some(patch)) = (object.as_object_mut(), patch.as_object()) else {
        return Err(wrong("the patch must be an object"));
    };
    merge_maps(object, patch)
}

fn wrong(why: &str) -> ApiError {
    ApiError::new(Reason::BadRequest, format!("the strategic merge patch is not valid: {why}"))
}

fn merge_maps(object: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    if patch.get(DIRECTIVE).and_then(Value::as_str) == Some("replace") {
        *object = without_directives(patch);
        return Ok(());
    }
    let before: Map<String, Value> = patch
        .keys()
        .filter_map(|key| key.strip_prefix(ORDER))
        .filter_map(|field| Some((field.to_owned(), object.get(field)?.clone())))
        .collect();
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        merge_field(object, key, value)?;
    }
    for (key, value) in patch.iter().filter(|(key, _)| key.starts_with('$')) {
        directive(object, &before, key, value)?;
    }
    Ok(())
}

fn merge_field(object: &mut Map<String, Value>, key: &str, value: &Value) -> Result<(), ApiError> {
    match (object.get_mut(key), value) {
        (_, Value::Null) => drop(object.shift_remove(key)),
        (_, Value::Object(patch)) if patch.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") => {
            object.shift_remove(key);
        }
        (Some(Value::Object(old)), Value::Object(patch)) => merge_maps(old, patch)?,
        (Some(Value::Array(old)), Value::Array(patch)) => {
            merge_lists(old, key, patch)?;
            // Nothing is left of a list whose entries the patch deleted; one that is given as empty is another matter.
            if old.is_empty() && !patch.is_empty() {
                object.shift_remove(key);
            }
        }
        // Where there was nothing, what the patch adds is merged into nothing.
        (_, Value::Object(patch)) => {
            let mut new = Map::new();
            merge_maps(&mut new, patch)?;
            object.insert(key.to_owned(), Value::Object(new));
        }
        (_, Value::Array(patch)) => {
            let mut new = Vec::new();
            merge_lists(&mut new, key, patch)?;
            if !new.is_empty() || patch.is_empty() {
                object.insert(key.to_owned(), Value::Array(new));
            }
        }
        (_, plain) => drop(object.insert(key.to_owned(), plain.clone())),
    }
    Ok(())
}

fn directive(
    object: &mut Map<String, Value>,
    before: &Map<String, Value>,
    key: &str,
    value: &Value,
) -> Result<(), ApiError> {
    if key == DIRECTIVE {
        return match value.as_str() {
            Some("merge" | "replace" | "delete") => Ok(()),
            _ => Err(wrong(&format!("{DIRECTIVE} is {value}; accepted are \"merge\", \"replace\" and \"delete\""))),
        };
    }
    let list = || value.as_array().ok_or_else(|| wrong(&format!("{key} must be a list")));
    if key == RETAIN {
        let kept = list()?;
        object.retain(|field, _| kept.iter().any(|kept| kept.as_str() == Some(field)));
    } else if let Some(field) = key.strip_prefix(DELETE_VALUES) {
        let gone = list()?;
        if let Some(Value::Array(values)) = object.get_mut(field) {
            values.retain(|value| !gone.contains(value));
            if values.is_empty() {
                object.shift_remove(field);
            }
        }
    } else if let Some(field) = key.strip_prefix(ORDER) {
        let order = list()?;
        if let Some(Value::Array(values)) = object.get_mut(field) {
            let before = before.get(field).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let by = merge_key(field, values);
            *values = in_order(std::mem::take(values), order, before, by);
        }
    } else {
        return Err(wrong(&format!("{key} is no directive")));
    }
    Ok(())
}

fn merge_lists(old: &mut Vec<Value>, field: &str, patch: &[Value]) -> Result<(), ApiError> {
    if patch.iter().any(|entry| entry[DIRECTIVE] == "replace") {
        let kept = patch.iter().filter(|entry| entry[DIRECTIVE] != "replace");
        *old = kept.cloned().collect();
        return Ok(());
    }
    if MERGED_SETS.contains(&field) {
        let before = old.clone();
        for value in patch {
            if !old.contains(value) {
                old.push(value.clone());
            }
        }
        *old = in_order(std::mem::take(old), patch, &before, None);
        return Ok(());
    }
    let Some(by) = merge_key(field, patch) else {
        *old = patch.to_vec();
        return Ok(());
    };
    let before = old.clone();
    for entry in patch {
        let Some(changes) = entry.as_object() else { return Err(wrong(&format!("{field} must hold objects"))) };
        let Some(key) = entry.get(by) else { return Err(wrong(&format!("an entry of {field} lacks {by}"))) };
        let found = old.iter().position(|old| old.get(by) == Some(key));
        match (found, entry[DIRECTIVE] == "delete") {
            (Some(position), true) => drop(old.remove(position)),
            (None, true) => {}
            (Some(position), false) => {
                if let Some(entry) = old[position].as_object_mut() {
                    merge_maps(entry, changes)?;
                }
            }
            (None, false) => old.push(Value::Object(without_directives(changes))),
        }
    }
    *old = in_order(std::mem::take(old), patch, &before, Some(by));
    Ok(())
}

/// Entries of a merged list: those that the patch names in its order, the others as they were before, and the two
/// merged so that what was before another stays so. A new entry comes before what it cannot be compared with.
fn in_order(merged: Vec<Value>, patch: &[Value], before: &[Value], by: Option<&str>) -> Vec<Value> {
    let place = |list: &[Value], entry: &Value| {
        list.iter().position(|other| by.map_or(other == entry, |by| other.get(by) == entry.get(by)))
    };
    let (mut named, others): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|entry| place(patch, entry).is_some());
    named.sort_by_key(|entry| place(patch, entry));
    let (mut named, mut others) = (named.into_iter().peekable(), others.into_iter().peekable());
    let mut ordered = Vec::new();
    while let (Some(name), Some(other)) = (named.peek(), others.peek()) {
        let is_after = matches!((place(before, other), place(before, name)), (Some(left), Some(right)) if left < right);
        ordered.extend(if is_after { others.next() } else { named.next() });
    }
    ordered.extend(named.chain(others));
    ordered
}

/// By which field the entries of a list are told apart; none where the list is one value.
fn merge_key(field: &str, entries: &[Value]) -> Option<&'static str> {
    if !entries.iter().all(Value::is_object) {
        return None;
    }
    // Ports of a container and of a Service have the same name.
    if field == "ports" {
        let of_container = entries.iter().any(|entry| entry.get("containerPort").is_some());
        return Some(if of_container { "containerPort" } else { "port" });
    }
    MERGE_KEYS.iter().find(|(name, _)| *name == field).map(|(_, key)| *key)
}

fn without_directives(map: &Map<String, Value>) -> Map<String, Value> {
    map.iter().filter(|(key, _)| !key.starts_with('$')).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(mut object: Value, patch: &Value, expected: &Value) {
        strategic(&mut object, patch).unwrap();
        assert_eq!(&object, expected);
    }

    #[test]
    fn fields_are_merged_and_nulls_remove() {
        check(
            json!({"data": {"a": "1", "b": "2"}, "x": 1}),
            &json!({"data": {"b": null, "c": "3"}, "x": null}),
            &json!({"data": {"a": "1", "c": "3"}}),
        );
        check(json!({}), &json!({"a": {"b": {"c": 1, "d": null}}}), &json!({"a": {"b": {"c": 1}}}));
    }

    #[test]
    fn lists_are_merged_by_their_key() {
        let pod = json!({"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "1"}]});
        check(
            pod.clone(),
            &json!({"containers": [{"name": "b", "image": "2"}, {"name": "c", "image": "3"}]}),
            &json!({"containers": [
                {"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "3"}]}),
        );
        check(
            pod.clone(),
            &json!({"containers": [{"name": "a", "$patch": "delete"}]}),
            &json!({"containers": [{"name": "b", "image": "1"}]}),
        );
        check(
            pod.clone(),
            &json!({"containers": [{"$patch": "replace"}, {"name": "z"}]}),
            &json!({"containers": [{"name": "z"}]}),
        );
        check(
            pod,
            &json!({"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "image": "2"}]}),
            &json!({"containers": [{"name": "b", "image": "2"}, {"name": "a", "image": "1"}]}),
        );
    }

    #[test]
    fn ports_are_told_apart_by_what_they_are() {
        check(
            json!({"ports": [{"port": 80, "name": "http"}]}),
            &json!({"ports": [{"port": 443}]}),
            &json!({"ports": [{"port": 443}, {"port": 80, "name": "http"}]}),
        );
        check(
            json!({"ports": [{"containerPort": 80, "name": "http"}]}),
            &json!({"ports": [{"containerPort": 80, "name": "web"}]}),
            &json!({"ports": [{"containerPort": 80, "name": "web"}]}),
        );
    }

    #[test]
    fn other_lists_are_one_value_and_finalizers_a_set() {
        check(json!({"args": ["a", "b"]}), &json!({"args": ["c"]}), &json!({"args": ["c"]}));
        check(json!({"finalizers": ["a"]}), &json!({"finalizers": ["b", "a"]}), &json!({"finalizers": ["b", "a"]}));
        check(
            json!({"finalizers": ["a", "b"]}),
            &json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
            &json!({"finalizers": ["b"]}),
        );
    }

    #[test]
    fn what_is_added_comes_first_and_what_was_there_keeps_its_order() {
        let named = |names: &[&str]| json!({"env": names.iter().map(|name| json!({"name": name})).collect::<Vec<_>>()});
        check(named(&["a", "b"]), &named(&["c"]), &named(&["c", "a", "b"]));
        check(named(&["a", "b"]), &named(&["b", "c"]), &named(&["a", "b", "c"]));
        check(named(&["a", "b"]), &named(&["c", "b"]), &named(&["c", "a", "b"]));
        check(json!({"finalizers": ["a"]}), &json!({"finalizers": ["b"]}), &json!({"finalizers": ["b", "a"]}));
        let mut patch = named(&["d"]);
        patch["$setElementOrder/env"] = json!([{"name": "b"}, {"name": "d"}]);
        check(named(&["a", "b", "c"]), &patch, &named(&["a", "b", "d", "c"]));
    }

    #[test]
    fn a_list_whose_entries_are_deleted_goes() {
        let delete = json!({"ownerReferences": [{"$patch": "delete", "uid": "1"}]});
        check(json!({"ownerReferences": [{"uid": "1"}]}), &delete, &json!({}));
        check(json!({}), &delete, &json!({}));
        check(json!({"finalizers": ["a"]}), &json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), &json!({}));
        check(json!({"args": ["a"]}), &json!({"args": []}), &json!({"args": []}));
    }

    #[test]
    fn directives_replace_delete_and_retain() {
        check(json!({"m": {"a": 1}}), &json!({"m": {"$patch": "replace", "b": 2}}), &json!({"m": {"b": 2}}));
        check(json!({"m": {"a": 1}, "n": 1}), &json!({"m": {"$patch": "delete"}}), &json!({"n": 1}));
        check(
            json!({"s": {"a": 1, "b": 2}}),
            &json!({"s": {"$retainKeys": ["b", "c"], "c": 3}}),
            &json!({"s": {"b": 2, "c": 3}}),
        );
    }

    #[test]
    fn what_is_no_patch_is_refused() {
        let refused = |patch: Value| strategic(&mut json!({"a": 1, "env": []}), &patch).unwrap_err().message;
        assert!(refused(json!([])).ends_with("the patch must be an object"));
        assert!(refused(json!({"$surprise": 1})).ends_with("$surprise is no directive"));
        assert!(refused(json!({"$patch": "merge it"})).contains("accepted are"));
        assert!(refused(json!({"env": [{"value": "x"}]})).ends_with("an entry of env lacks name"));
    }
}
