//! Scripts of applies and updates. The expected results, indented below each step, were recorded with the field
//! manager of k8s.io/apimachinery 0.36 and structured-merge-diff 6.3, on typed objects for built-in kinds.

use std::sync::Arc;

use super::types::Origin;
use super::*;
use crate::resource::Registry;

const RECORDED: &str = include_str!("scripts/recorded.txt");
const THING: &str = include_str!("scripts/thing.json");

#[test]
fn apply_and_update_match_a_kubernetes_api_server() {
    let scripts: Vec<&str> = RECORDED.trim().split("\n\n").collect();
    assert!(scripts.len() > 10);
    for recorded in scripts {
        let steps: Vec<&str> = recorded.lines().filter(|line| !line.starts_with("  ")).collect();
        assert_eq!(played(&steps), recorded.lines().map(str::to_owned).collect::<Vec<_>>());
    }
}

#[test]
fn conflicts_are_a_status_with_a_cause_for_each_field() {
    let types = builtin("ConfigMap");
    let live = apply(&types, &writer("one"), None, &config_map("1"), false).unwrap();
    let error = apply(&types, &writer("two"), Some(&live), &config_map("2"), false).unwrap_err();
    let error = ApiError::from(error);
    assert_eq!((error.code, error.reason), (409, Reason::Conflict));
    assert_eq!(error.message, "Apply failed with 1 conflict: conflict with \"one\": .data.k");
    let cause = Cause {
        reason: "FieldManagerConflict".to_owned(),
        message: "conflict with \"one\"".to_owned(),
        field: ".data.k".to_owned(),
    };
    assert_eq!(error.causes, [cause]);
}

#[test]
fn apply_writes_managed_fields_in_the_wire_format() {
    let object = apply(&builtin("ConfigMap"), &writer("one"), None, &config_map("1"), false).unwrap();
    let expected = r#"[{"manager":"one","operation":"Apply","apiVersion":"v1","time":"2001-01-01T00:00:07Z","fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k":{}}}}]"#;
    assert_eq!(object["metadata"]["managedFields"].to_string(), expected);
}

#[test]
fn apply_owns_status_without_a_status_subresource() {
    let schema = serde_json::from_str(THING).unwrap();
    let types = Types { has_status: false, origin: Origin::Schema(Arc::new(schema)) };
    let applied =
        json!({"apiVersion": "g.io/v1", "kind": "Thing", "metadata": {"name": "o"}, "status": {"phase": "x"}});
    let object = apply(&types, &writer("one"), None, &applied, false).unwrap();
    assert_eq!(owners(&object), ["one Apply @7: .status.phase"]);
}

#[test]
fn apply_rejects_unreadable_managed_fields() {
    let mut live = config_map("1");
    live["metadata"]["managedFields"] = json!([{"manager": "x", "operation": "Guess", "apiVersion": "v1"}]);
    let refused = apply(&builtin("ConfigMap"), &writer("one"), Some(&live), &config_map("1"), false);
    assert_eq!(refused, Err(ApplyError::Unreadable));
}

/// Returns the steps of a script, each with its result.
fn played(steps: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = steps[..2].iter().map(|line| (*line).to_owned()).collect();
    let kind = steps[1].strip_prefix("kind ").unwrap();
    let types = match kind {
        "Thing" => {
            let schema = serde_json::from_str(THING).unwrap();
            Types { has_status: true, origin: Origin::Schema(Arc::new(schema)) }
        }
        kind => builtin(kind),
    };
    let api_version = match kind {
        "Thing" => "g.io/v1",
        "Deployment" => "apps/v1",
        _ => "v1",
    };
    let mut live = None;
    for (number, step) in steps[2..].iter().enumerate() {
        lines.push((*step).to_owned());
        let [verb, who, object] = step.splitn(3, ' ').collect::<Vec<_>>()[..] else { panic!("{step}") };
        let mut object: Value = serde_json::from_str(object).unwrap();
        object["apiVersion"] = api_version.into();
        object["kind"] = kind.into();
        object["metadata"]["name"] = "o".into();
        let (manager, subresource) = who.split_once('/').map_or((who, None), |(who, sub)| (who, Some(sub)));
        let now = format!("2001-01-01T00:00:{number:02}Z");
        let writer = Writer { manager, api_version, subresource, now: &now };
        if verb == "update" {
            object["metadata"]["uid"] = "u".into();
            update(&types, &writer, live.as_ref(), &mut object);
            live = Some(object);
        } else {
            match apply(&types, &writer, live.as_ref(), &object, verb == "force") {
                Ok(object) => live = Some(object),
                Err(error) => {
                    lines.push(format!("  ! {}", error.to_string().replace('\n', " | ")));
                    continue;
                }
            }
        }
        let live = live.as_ref().unwrap();
        // A Kubernetes API server adds the structs of the other kinds to their objects.
        if ["Thing", "ConfigMap"].contains(&kind) {
            lines.push(format!("  = {}", content(live)));
        }
        lines.extend(owners(live).iter().map(|owner| format!("  {owner}")));
    }
    lines
}

/// Returns an object without its identity and its field owners.
fn content(object: &Value) -> Value {
    let mut object = object.clone();
    let map = object.as_object_mut().unwrap();
    let metadata = map["metadata"].as_object_mut().unwrap();
    ["name", "uid", "managedFields"].iter().for_each(|field| drop(metadata.remove(*field)));
    let left_out: &[&str] =
        if metadata.is_empty() { &["apiVersion", "kind", "metadata"] } else { &["apiVersion", "kind"] };
    left_out.iter().for_each(|field| drop(map.remove(*field)));
    object.sort_all_objects();
    object
}

/// Returns the field owners: `one Apply @3: .data.a`, with the second of their time.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array();
    let line = |entry: &Value| {
        let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
        let subresource = entry["subresource"].as_str().map(|name| format!("/{name}")).unwrap_or_default();
        let second =
            entry["time"].as_str().map_or("-".to_owned(), |time| time[17..19].parse::<u8>().unwrap().to_string());
        let fields = FieldSet::from_fields_v1(&entry["fieldsV1"]).unwrap();
        let paths: Vec<String> = fields.paths().iter().map(|path| path_text(path)).collect();
        format!("{}{subresource} {} @{second}: {}", text("manager"), text("operation"), paths.join(" "))
    };
    entries.into_iter().flatten().map(line).collect()
}

fn builtin(kind: &str) -> Types {
    let registry = Registry::builtin();
    Types::of(registry.iter().find(|resource| resource.kind == kind).unwrap())
}

fn config_map(value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "o"}, "data": {"k": value}})
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: "v1", subresource: None, now: "2001-01-01T00:00:07Z" }
}
