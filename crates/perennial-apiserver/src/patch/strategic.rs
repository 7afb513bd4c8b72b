//! Strategic merge patch: like a merge patch, but lists of objects are merged by a key of theirs.

use std::collections::{HashMap, HashSet, VecDeque};

use serde_json::{Map, Value};

use crate::deadline;
use crate::status::{ApiError, Reason};

/// The key fields of lists in built-in types.
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

/// Applies a patch to an object.
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
    let mut gone = HashSet::new();
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        if merge_field(object, key, value)? == Left::Nothing {
            gone.insert(key.as_str());
        }
    }
    remove_all(object, &gone);
    gone.clear();
    for (key, value) in patch.iter().filter(|(key, _)| key.starts_with('$')) {
        gone.extend(directive(object, &before, key, value)?);
    }
    remove_all(object, &gone);
    Ok(())
}

/// What a patch leaves of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Left {
    Something,
    Nothing,
}

/// Removes fields, all at once: removing each separately would move all fields after it.
fn remove_all(object: &mut Map<String, Value>, gone: &HashSet<&str>) {
    if !gone.is_empty() {
        object.retain(|field, _| !gone.contains(field.as_str()));
    }
}

/// Merges one field. If nothing is left of it, the caller removes it.
fn merge_field(object: &mut Map<String, Value>, key: &str, value: &Value) -> Result<Left, ApiError> {
    deadline::check()?;
    match (object.get_mut(key), value) {
        (_, Value::Null) => return Ok(Left::Nothing),
        (_, Value::Object(patch)) if patch.get(DIRECTIVE).and_then(Value::as_str) == Some("delete") => {
            return Ok(Left::Nothing);
        }
        (Some(Value::Object(old)), Value::Object(patch)) => merge_maps(old, patch)?,
        (Some(Value::Array(old)), Value::Array(patch)) => {
            merge_lists(old, key, patch)?;
            // A list whose entries were all deleted by the patch is removed; a list that is given as empty stays.
            if old.is_empty() && !patch.is_empty() {
                return Ok(Left::Nothing);
            }
        }
        // A new field is merged into an empty one.
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
    Ok(Left::Something)
}

/// Follows a directive. Returns the field of which nothing is left, if any.
fn directive<'p>(
    object: &mut Map<String, Value>,
    before: &Map<String, Value>,
    key: &'p str,
    value: &Value,
) -> Result<Option<&'p str>, ApiError> {
    if key == DIRECTIVE {
        return match value.as_str() {
            Some("merge" | "replace" | "delete") => Ok(None),
            _ => Err(wrong(&format!("{DIRECTIVE} is {value}; accepted are \"merge\", \"replace\" and \"delete\""))),
        };
    }
    let list = || value.as_array().ok_or_else(|| wrong(&format!("{key} must be a list")));
    if key == RETAIN {
        let kept: HashSet<&str> = list()?.iter().filter_map(Value::as_str).collect();
        object.retain(|field, _| kept.contains(field.as_str()));
    } else if let Some(field) = key.strip_prefix(DELETE_VALUES) {
        let gone: HashSet<&Value> = list()?.iter().collect();
        if let Some(Value::Array(values)) = object.get_mut(field) {
            values.retain(|value| !gone.contains(value));
            if values.is_empty() {
                return Ok(Some(field));
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
        return Err(wrong(&format!("{key} is not a directive")));
    }
    Ok(None)
}

fn merge_lists(old: &mut Vec<Value>, field: &str, patch: &[Value]) -> Result<(), ApiError> {
    if patch.iter().any(|entry| entry[DIRECTIVE] == "replace") {
        let kept = patch.iter().filter(|entry| entry[DIRECTIVE] != "replace");
        *old = kept.cloned().collect();
        return Ok(());
    }
    if MERGED_SETS.contains(&field) {
        let before = old.clone();
        let mut found: HashSet<&Value> = before.iter().collect();
        old.extend(patch.iter().filter(|value| found.insert(value)).cloned());
        *old = in_order(std::mem::take(old), patch, &before, None);
        return Ok(());
    }
    let Some(by) = merge_key(field, patch) else {
        *old = patch.to_vec();
        return Ok(());
    };
    let before = old.clone();
    let mut entries = Entries::new(std::mem::take(old), by);
    for entry in patch {
        deadline::check()?;
        let Some(changes) = entry.as_object() else { return Err(wrong(&format!("{field} must hold objects"))) };
        let Some(key) = entry.get(by) else { return Err(wrong(&format!("an entry of {field} lacks {by}"))) };
        if entry[DIRECTIVE] == "delete" {
            entries.delete(key);
        } else {
            entries.merge(key, changes)?;
        }
    }
    *old = in_order(entries.left(), patch, &before, Some(by));
    Ok(())
}

/// The entries of a list by their key. Of several entries with the same key, the first is used.
struct Entries<'k> {
    by: &'k str,
    /// None for a deleted entry.
    slots: Vec<Option<Value>>,
    places: HashMap<Value, VecDeque<usize>>,
}

impl<'k> Entries<'k> {
    fn new(list: Vec<Value>, by: &'k str) -> Entries<'k> {
        let mut entries = Entries { by, slots: Vec::with_capacity(list.len()), places: HashMap::new() };
        list.into_iter().for_each(|entry| entries.push(entry));
        entries
    }

    fn push(&mut self, entry: Value) {
        if let Some(key) = entry.get(self.by) {
            self.places.entry(key.clone()).or_default().push_back(self.slots.len());
        }
        self.slots.push(Some(entry));
    }

    fn delete(&mut self, key: &Value) {
        if let Some(place) = self.places.get_mut(key).and_then(VecDeque::pop_front) {
            self.slots[place] = None;
        }
    }

    fn merge(&mut self, key: &Value, changes: &Map<String, Value>) -> Result<(), ApiError> {
        let places = self.places.get_mut(key);
        let Some((places, place)) = places.and_then(|places| places.front().copied().map(|place| (places, place)))
        else {
            self.push(Value::Object(without_directives(changes)));
            return Ok(());
        };
        if let Some(Value::Object(entry)) = &mut self.slots[place] {
            merge_maps(entry, changes)?;
            // A directive may remove the key.
            if entry.get(self.by) != Some(key) {
                places.pop_front();
            }
        }
        Ok(())
    }

    fn left(self) -> Vec<Value> {
        self.slots.into_iter().flatten().collect()
    }
}

/// Orders the entries of a merged list: those of the patch in its order, the others in their previous order, and both
/// merged so that existing orders stay. A new entry comes before entries that it cannot be compared with.
fn in_order(merged: Vec<Value>, patch: &[Value], before: &[Value], by: Option<&str>) -> Vec<Value> {
    let (patch, before) = (Places::of(patch, by), Places::of(before, by));
    let (mut named, mut others) = (Vec::new(), VecDeque::new());
    for entry in merged {
        let was = before.find(&entry);
        match patch.find(&entry) {
            Some(place) => named.push((place, was, entry)),
            None => others.push_back((was, entry)),
        }
    }
    named.sort_by_key(|(place, ..)| *place);
    let mut ordered = Vec::new();
    for (_, was, entry) in named {
        let is_before = |other: Option<usize>| matches!((other, was), (Some(left), Some(right)) if left < right);
        while let Some((_, other)) = others.pop_front_if(|(other, _)| is_before(*other)) {
            ordered.push(other);
        }
        ordered.push(entry);
    }
    ordered.extend(others.into_iter().map(|(_, other)| other));
    ordered
}

/// The positions of list entries, by key or else by value: the first of equal ones.
struct Places<'l> {
    by: Option<&'l str>,
    places: HashMap<Option<&'l Value>, usize>,
}

impl<'l> Places<'l> {
    fn of(list: &'l [Value], by: Option<&'l str>) -> Places<'l> {
        let mut places = HashMap::new();
        for (place, entry) in list.iter().enumerate() {
            places.entry(key_of(entry, by)).or_insert(place);
        }
        Places { by, places }
    }

    fn find(&self, entry: &Value) -> Option<usize> {
        self.places.get(&key_of(entry, self.by)).copied()
    }
}

fn key_of<'v>(entry: &'v Value, by: Option<&str>) -> Option<&'v Value> {
    by.map_or(Some(entry), |by| entry.get(by))
}

/// Returns the key field of a list; none if the list is atomic.
fn merge_key(field: &str, entries: &[Value]) -> Option<&'static str> {
    if !entries.iter().all(Value::is_object) {
        return None;
    }
    // Ports of containers and of Services have the same field name.
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
    fn ports_of_containers_and_services_have_different_keys() {
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
    fn other_lists_are_atomic_and_finalizers_are_a_set() {
        check(json!({"args": ["a", "b"]}), &json!({"args": ["c"]}), &json!({"args": ["c"]}));
        check(json!({"finalizers": ["a"]}), &json!({"finalizers": ["b", "a"]}), &json!({"finalizers": ["b", "a"]}));
        check(
            json!({"finalizers": ["a", "b"]}),
            &json!({"$deleteFromPrimitiveList/finalizers": ["a"]}),
            &json!({"finalizers": ["b"]}),
        );
    }

    #[test]
    fn added_entries_come_first_and_existing_ones_keep_their_order() {
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
    fn a_list_whose_entries_are_all_deleted_is_removed() {
        let delete = json!({"ownerReferences": [{"$patch": "delete", "uid": "1"}]});
        check(json!({"ownerReferences": [{"uid": "1"}]}), &delete, &json!({}));
        check(json!({}), &delete, &json!({}));
        check(json!({"finalizers": ["a"]}), &json!({"$deleteFromPrimitiveList/finalizers": ["a"]}), &json!({}));
        check(json!({"args": ["a"]}), &json!({"args": []}), &json!({"args": []}));
    }

    #[test]
    fn the_first_of_entries_with_the_same_key_is_patched() {
        let twice = json!({"env": [{"name": "a", "value": "1"}, {"name": "b"}, {"name": "a", "value": "2"}]});
        let delete = json!({"name": "a", "$patch": "delete"});
        let set = |value: &str| json!({"name": "a", "value": value});
        check(twice.clone(), &json!({"env": [delete]}), &json!({"env": [set("2"), {"name": "b"}]}));
        check(twice.clone(), &json!({"env": [delete, delete, delete]}), &json!({"env": [{"name": "b"}]}));
        check(twice.clone(), &json!({"env": [set("3")]}), &json!({"env": [set("3"), set("2"), {"name": "b"}]}));
        check(twice, &json!({"env": [delete, set("3")]}), &json!({"env": [set("3"), {"name": "b"}]}));
        // An entry whose key a directive removes is not found any more.
        let keyless = json!({"name": "a", "$retainKeys": ["value"], "value": "3"});
        let patch = json!({"env": [keyless, {"name": "a", "value": "4"}]});
        check(json!({"env": [set("1")]}), &patch, &json!({"env": [set("4"), {"value": "3"}]}));
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
    fn an_invalid_patch_is_rejected() {
        let refused = |patch: Value| strategic(&mut json!({"a": 1, "env": []}), &patch).unwrap_err().message;
        assert!(refused(json!([])).ends_with("the patch must be an object"));
        assert!(refused(json!({"$surprise": 1})).ends_with("$surprise is not a directive"));
        assert!(refused(json!({"$patch": "merge it"})).contains("accepted are"));
        assert!(refused(json!({"env": [{"value": "x"}]})).ends_with("an entry of env lacks name"));
    }
}
