//! Label and field selectors of lists and watches.

use serde_json::Value;

use crate::names::is_dns_subdomain;
use crate::status::{ApiError, Reason};

/// A label and field selector.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Selector {
    labels: Vec<LabelRule>,
    fields: Vec<FieldRule>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct LabelRule {
    key: String,
    wanted: Wanted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    In(Vec<String>),
    /// Matches an object without the label too.
    NotIn(Vec<String>),
    Exists,
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct FieldRule {
    path: String,
    value: String,
    is_equal: bool,
}

impl Selector {
    /// Parses the two query parameters; `known_fields` are the selectable fields of the resource besides name and namespace.
    pub fn parse(labels: &str, fields: &str, known_fields: &[&str]) -> Result<Selector, ApiError> {
        Ok(Selector { labels: parse_labels(labels)?, fields: parse_fields(fields, known_fields)? })
    }

    /// Returns true if it matches every object.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// Returns true if it matches the object.
    pub fn selects(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        let label = |key: &str| labels.get(key).and_then(Value::as_str);
        let fits = |rule: &LabelRule| match (&rule.wanted, label(&rule.key)) {
            (Wanted::In(values), Some(found)) => values.iter().any(|value| value == found),
            (Wanted::NotIn(values), Some(found)) => values.iter().all(|value| value != found),
            (Wanted::NotIn(_), None) => true,
            (Wanted::In(_), None) => false,
            (Wanted::Exists, found) => found.is_some(),
            (Wanted::Absent, found) => found.is_none(),
        };
        let has = |rule: &FieldRule| (field(object, &rule.path) == rule.value) == rule.is_equal;
        self.labels.iter().all(fits) && self.fields.iter().all(has)
    }
}

/// Returns a field by its dotted path, as text; empty if absent.
fn field(object: &Value, path: &str) -> String {
    match path.split('.').fold(object, |value, part| &value[part]) {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn bad(message: String) -> ApiError {
    ApiError::new(Reason::BadRequest, message)
}

fn parse_fields(text: &str, known: &[&str]) -> Result<Vec<FieldRule>, ApiError> {
    let mut rules = Vec::new();
    for part in text.split(',').filter(|part| !part.is_empty()) {
        let (path, value, is_equal) = if let Some((path, value)) = part.split_once("!=") {
            (path, value, false)
        } else if let Some((path, value)) = part.split_once("==") {
            (path, value, true)
        } else if let Some((path, value)) = part.split_once('=') {
            (path, value, true)
        } else {
            return Err(bad(format!("invalid field selector: {part:?}; can't understand '{part}'")));
        };
        if !["metadata.name", "metadata.namespace"].contains(&path) && !known.contains(&path) {
            return Err(bad(format!("field label not supported: {path}")));
        }
        rules.push(FieldRule { path: path.to_owned(), value: value.to_owned(), is_equal });
    }
    Ok(rules)
}

fn parse_labels(text: &str) -> Result<Vec<LabelRule>, ApiError> {
    let mut rules = Vec::new();
    for part in split_outside_parentheses(text) {
        let part = part.trim();
        if part.is_empty() {
            continue;
        }
        let rule = parse_label(part).ok_or_else(|| bad(format!("unable to parse requirement: found {part:?}")))?;
        rules.push(rule);
    }
    Ok(rules)
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (position, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[start..position]);
                start = position + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn parse_label(part: &str) -> Option<LabelRule> {
    let rule = |key: &str, wanted| {
        let key = key.trim();
        let has_values = match &wanted {
            Wanted::In(values) | Wanted::NotIn(values) => values.iter().all(|value| value.is_empty() || is_word(value)),
            Wanted::Exists | Wanted::Absent => true,
        };
        (is_label_key(key) && has_values).then(|| LabelRule { key: key.to_owned(), wanted })
    };
    let one = |value: &str| vec![value.trim().to_owned()];
    if let Some(key) = part.strip_prefix('!') {
        return rule(key, Wanted::Absent);
    }
    if let Some((key, set)) = part.strip_suffix(')').and_then(|part| part.split_once('(')) {
        let values = set.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = key.split_whitespace();
        let (key, operator) = (words.next()?, words.next()?);
        return match operator {
            "in" => rule(key, Wanted::In(values)),
            "notin" => rule(key, Wanted::NotIn(values)),
            _ => None,
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return rule(key, Wanted::NotIn(one(value)));
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return rule(key, Wanted::In(one(value)));
    }
    rule(part, Wanted::Exists)
}

/// Returns true for `app`, or `example.com/app`.
fn is_label_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    is_word(name) && prefix.is_none_or(is_dns_subdomain)
}

/// Returns true for a label name or value: up to 63 letters, digits, `-`, `_` and `.`, with a letter or digit at both ends.
fn is_word(text: &str) -> bool {
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    let inside = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_.".contains(byte);
    bytes.len() <= 63 && edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(inside)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(labels: &str, fields: &str, expected: bool) {
        let object = json!({
            "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web", "tier": "front"}},
            "type": "kubernetes.io/tls"
        });
        let selector = Selector::parse(labels, fields, &["type"]).unwrap();
        assert_eq!(selector.selects(&object), expected, "{labels} {fields}");
    }

    #[test]
    fn labels_are_matched() {
        check("", "", true);
        check("app=web", "", true);
        check("app==web,tier=front", "", true);
        check("app=web,tier=back", "", false);
        check("app!=web", "", false);
        check("other!=web", "", true);
        check("app in (web, api)", "", true);
        check("app notin (web,api)", "", false);
        check("other notin (web)", "", true);
        check("app", "", true);
        check("other", "", false);
        check("!other", "", true);
        check("!app", "", false);
    }

    #[test]
    fn fields_are_matched() {
        check("", "metadata.name=web", true);
        check("", "metadata.name==web,metadata.namespace=shop", true);
        check("", "metadata.name!=web", false);
        check("", "type=kubernetes.io/tls", true);
        check("", "type=Opaque", false);
        check("app=web", "type=Opaque", false);
    }

    #[test]
    fn an_invalid_selector_is_rejected() {
        let refused = |labels: &str, fields: &str| Selector::parse(labels, fields, &[]).unwrap_err().message;
        assert_eq!(refused("", "type=Opaque"), "field label not supported: type");
        assert_eq!(refused("", "nonsense"), "invalid field selector: \"nonsense\"; can't understand 'nonsense'");
        assert_eq!(refused("a b c", ""), "unable to parse requirement: found \"a b c\"");
        assert_eq!(refused("a within (b)", ""), "unable to parse requirement: found \"a within (b)\"");
    }

    #[test]
    fn selectors_accept_only_valid_label_keys_and_values() {
        let is_understood = |labels: &str| Selector::parse(labels, "", &[]).is_ok();
        for labels in ["example.com/app=web", "!a.b_c", "app=", "app in (a, b-1)", "app notin ()"] {
            assert!(is_understood(labels), "{labels}");
        }
        let long = format!("app={}", "a".repeat(64));
        for labels in ["-app", "app-", "!-app", "a/b/c", "Example.com/app", "/app", "app=-web", "app in (a, b!)", &long]
        {
            assert!(!is_understood(labels), "{labels}");
        }
    }
}
