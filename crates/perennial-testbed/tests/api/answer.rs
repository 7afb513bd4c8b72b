//! Normalizes an answer, and compares two answers.

use std::{collections::BTreeMap, fmt};

use serde_json::{Map, Value, json};

/// An answer of a server.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    /// The texts of its Warning headers.
    pub(crate) warnings: Vec<String>,
    /// JSON, the list of the events of a watch, or a text.
    pub(crate) body: Value,
}

/// Random values, with the step in which each first appeared.
#[derive(Debug, Default)]
pub(crate) struct Names {
    known: BTreeMap<String, String>,
    step: usize,
    in_step: usize,
}

impl Answer {
    pub(crate) fn read(parts: &http::response::Parts, bytes: &[u8], is_watch: bool) -> Answer {
        let warnings = parts.headers.get_all("warning").iter();
        let warnings = warnings.map(|header| String::from_utf8_lossy(header.as_bytes()).into_owned()).collect();
        let body = match is_watch && parts.status.is_success() {
            true => serde_json::Deserializer::from_slice(bytes)
                .into_iter::<Value>()
                .filter(|event| !event.as_ref().is_ok_and(is_progress))
                .collect(),
            false => serde_json::from_slice(bytes),
        };
        let body = body.unwrap_or_else(|_| String::from_utf8_lossy(bytes).trim().into());
        Answer { code: parts.status.as_u16(), warnings, body }
    }

    /// Why it is a refusal; empty where it is none.
    pub(crate) fn message(&self) -> &str {
        self.body["message"].as_str().filter(|_| self.code >= 400).unwrap_or_default()
    }

    pub(crate) fn without_chance(mut self, names: &mut Names) -> Answer {
        names.step += 1;
        names.in_step = 0;
        self.body = plain(self.body, names);
        self
    }
}

impl Names {
    fn name(&mut self, what: &str, text: &str) -> String {
        let key = format!("{what} {text}");
        if !self.known.contains_key(&key) {
            self.in_step += 1;
            self.known.insert(key.clone(), format!("{what} {}.{}", self.step, self.in_step));
        }
        self.known[&key].clone()
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.code, self.body)
    }
}

/// Returns where two answers differ, as JSON pointers into `{code, warnings, body}`, with the values.
pub(crate) fn differing(real: &Answer, ours: &Answer) -> Vec<(String, Value, Value)> {
    // Where one refuses what the other does, the rest differs, too.
    if real.code != ours.code {
        return vec![("/code".to_owned(), real.code.into(), ours.code.into())];
    }
    let whole = |it: &Answer| json!({"warnings": it.warnings, "body": it.body});
    let mut found = Vec::new();
    differ("", &whole(real), &whole(ours), &mut found);
    found
}

fn differ(at: &str, real: &Value, ours: &Value, found: &mut Vec<(String, Value, Value)>) {
    match (real, ours) {
        (Value::Object(of_real), Value::Object(of_ours)) => {
            let keys: std::collections::BTreeSet<&String> = of_real.keys().chain(of_ours.keys()).collect();
            for key in keys {
                let inside = |map: &Map<String, Value>| map.get(key).cloned();
                // A null that is written is not the same as nothing.
                let (real, ours) = (inside(of_real), inside(of_ours));
                let at = format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
                match (real, ours) {
                    (Some(real), Some(ours)) => differ(&at, &real, &ours, found),
                    (Some(real), None) => found.push((at, real, NOTHING.into())),
                    (None, Some(ours)) => found.push((at, NOTHING.into(), ours)),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(of_real), Value::Array(of_ours)) if of_real.len() == of_ours.len() => {
            for (number, (real, ours)) in of_real.iter().zip(of_ours).enumerate() {
                differ(&format!("{at}/{number}"), real, ours, found);
            }
        }
        _ if real != ours => found.push((at.to_owned(), real.clone(), ours.clone())),
        _ => {}
    }
}

/// Servers send bookmarks at any time.
fn is_progress(event: &Value) -> bool {
    event["type"] == "BOOKMARK" && event["object"]["metadata"].get("annotations").is_none()
}

/// Returns a value with names for random values, and sorted where the server chooses an order.
fn plain(value: Value, names: &mut Names) -> Value {
    match value {
        Value::Object(mut map) => {
            name_what_was_generated(&map, names);
            order_managers(&mut map);
            order_causes(&mut map);
            // By key, so that both servers come across things in the same order.
            map.sort_keys();
            let is_list = map.contains_key("items") || map.contains_key("rows");
            let is_bookmark = map.get("type") == Some(&json!("BOOKMARK"));
            let entries = map.into_iter().map(|(key, value)| {
                let value = match (key.as_str(), value) {
                    // Whatever else happens on a server moves these on.
                    ("metadata", Value::Object(metadata)) if is_list => plain(moving(metadata), names),
                    ("object", Value::Object(mut object)) if is_bookmark => {
                        if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
                            *metadata = moving(metadata.clone()).as_object().cloned().unwrap_or_default();
                        }
                        plain(Value::Object(object), names)
                    }
                    ("resourceVersion", Value::String(version)) if version != MOVING => {
                        names.name("version", &version).into()
                    }
                    (_, value) => plain(value, names),
                };
                (key, value)
            });
            Value::Object(entries.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| plain(item, names)).collect(),
        Value::String(text) => plain_text(&text, names).into(),
        other => other,
    }
}

const MOVING: &str = "some version";

fn moving(mut metadata: Map<String, Value>) -> Value {
    for (key, stands_for) in [("resourceVersion", MOVING), ("continue", "some token")] {
        if let Some(value) = metadata.get_mut(key).filter(|value| value.as_str().is_some_and(|text| !text.is_empty())) {
            *value = stands_for.into();
        }
    }
    Value::Object(metadata)
}

fn name_what_was_generated(object: &Map<String, Value>, names: &mut Names) {
    let text = |key: &str| object.get(key).and_then(Value::as_str);
    if let (Some(beginning), Some(name)) = (text("generateName"), text("name"))
        && name.strip_prefix(beginning).is_some_and(|end| end.len() == 5)
    {
        names.known.insert(name.to_owned(), format!("{beginning}*****"));
    }
}

/// The server sorts them by time, in seconds.
fn order_managers(metadata: &mut Map<String, Value>) {
    if let Some(Value::Array(managers)) = metadata.get_mut("managedFields") {
        managers.sort_by_key(|it| [&it["manager"], &it["operation"], &it["subresource"]].map(Value::to_string));
    }
}

/// The server reports faults in any order.
fn order_causes(status: &mut Map<String, Value>) {
    let Some(Value::Array(causes)) = status.get_mut("details").and_then(|details| details.get_mut("causes")) else {
        return;
    };
    causes.sort_by_key(|cause| [&cause["field"], &cause["message"]].map(Value::to_string));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let parts: Vec<String> =
        causes.iter().map(|cause| format!("{}: {}", text(&cause["field"]), text(&cause["message"]))).collect();
    let Some(message) = status.get_mut("message") else { return };
    let whole = text(message);
    let Some((beginning, list)) = whole.strip_suffix(']').and_then(|whole| whole.split_once("is invalid: [")) else {
        return;
    };
    let is_of_parts = list.len() == parts.join(", ").len() && parts.iter().all(|part| list.contains(part));
    if is_of_parts {
        *message = format!("{beginning}is invalid: [{}]", parts.join(", ")).into();
    }
}

fn plain_text(text: &str, names: &mut Names) -> String {
    if let Some(stands_for) = names.known.get(text) {
        return stands_for.clone();
    }
    if text.parse::<jiff::Timestamp>().is_ok() {
        return "some time".to_owned();
    }
    if let Some(rest) = text.strip_prefix("too old resource version: ")
        && rest.bytes().all(|byte| b"0123456789 ()".contains(&byte))
    {
        return "too old resource version: some version (some other)".to_owned();
    }
    let is_age = text.strip_suffix('s').is_some_and(|seconds| seconds.parse::<u8>().is_ok());
    if is_age {
        return "some age".to_owned();
    }
    // Messages contain uids too.
    const LENGTH: usize = 36;
    let mut plain = text.to_owned();
    for start in 0..text.len().saturating_sub(LENGTH - 1) {
        if let Some(uid) = text.get(start..start + LENGTH).filter(|part| is_uid(part)) {
            plain = plain.replace(uid, &names.name("uid", uid));
        }
    }
    plain
}

fn is_uid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    parts.iter().map(|part| part.len()).eq([8, 4, 4, 4, 12])
        && parts.iter().all(|part| part.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Stands for a value that only the other server has.
const NOTHING: &str = "(nothing)";
