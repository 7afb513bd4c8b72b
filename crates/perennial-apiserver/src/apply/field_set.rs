//! Sets of fields, and how `managedFields` write them: `FieldsV1`.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

/// A set of fields of an object. A field may be in it without what it holds, and the other way round.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// No node is neither a member nor above one.
    nodes: BTreeMap<Element, Node>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) is_member: bool,
    pub(super) below: FieldSet,
}

/// One step of a path. The order is the one in which `FieldsV1` are written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// A field of a struct, or an entry of a map.
    Field(String),
    /// The entry of a list that has these values; by name.
    Key(Vec<(String, Plain)>),
    /// A value of a set.
    Value(Plain),
    /// A place in a list.
    Index(i64),
}

/// A value with the order that path elements have: numbers, then texts, then the rest.
#[derive(Debug, Clone)]
pub(crate) struct Plain(pub(crate) Value);

/// What is no `FieldsV1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no path element")]
pub(crate) struct NoElement(String);

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.nodes.get(last).is_some_and(|node| node.is_member),
            [first, rest @ ..] => self.nodes.get(first).is_some_and(|node| node.below.contains(rest)),
        }
    }

    /// Adds a field, but not those above it. Nobody owns the whole object: the empty path adds nothing.
    pub(crate) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => self.nodes.entry(last.clone()).or_default().is_member = true,
            [first, rest @ ..] => self.nodes.entry(first.clone()).or_default().below.insert(rest),
        }
    }

    pub(crate) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut union = self.clone();
        for (element, node) in &other.nodes {
            let into = union.nodes.entry(element.clone()).or_default();
            into.is_member |= node.is_member;
            into.below = into.below.union(&node.below);
        }
        union
    }

    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.map(|element, node| {
            let other = other.nodes.get(element)?;
            Some(Node { is_member: node.is_member && other.is_member, below: node.below.intersection(&other.below) })
        })
    }

    /// Without the fields of another set; what is below them stays unless it is there as well.
    pub(crate) fn difference(&self, other: &FieldSet) -> FieldSet {
        self.map(|element, node| {
            let Some(other) = other.nodes.get(element) else { return Some(node.clone()) };
            Some(Node { is_member: node.is_member && !other.is_member, below: node.below.difference(&other.below) })
        })
    }

    /// Without the fields of another set, and without all that is below them.
    pub(crate) fn without_trees(&self, other: &FieldSet) -> FieldSet {
        self.map(|element, node| match other.nodes.get(element) {
            None => Some(node.clone()),
            Some(Node { is_member: true, .. }) => None,
            Some(other) => Some(Node { is_member: node.is_member, below: node.below.without_trees(&other.below) }),
        })
    }

    /// Every field, in the order in which conflicts are listed: those of a level before what is below them.
    pub(crate) fn paths(&self) -> Vec<Vec<Element>> {
        let members = self.nodes.iter().filter(|(_, node)| node.is_member);
        let mut paths: Vec<_> = members.map(|(element, _)| vec![element.clone()]).collect();
        for (element, node) in &self.nodes {
            paths.extend(node.below.paths().into_iter().map(|rest| [vec![element.clone()], rest].concat()));
        }
        paths
    }

    pub(crate) fn to_fields_v1(&self) -> Value {
        let written = self.nodes.iter().map(|(element, node)| {
            let mut below = node.below.to_fields_v1();
            if let (true, Value::Object(map)) = (node.is_member && !node.below.is_empty(), &mut below) {
                map.shift_insert(0, ".".to_owned(), Value::Object(Map::new()));
            }
            (element.to_fields_v1(), below)
        });
        Value::Object(written.collect())
    }

    pub(crate) fn from_fields_v1(fields: &Value) -> Result<FieldSet, NoElement> {
        let mut set = FieldSet::default();
        for (key, value) in fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".") {
            let Some(element) = Element::from_fields_v1(key)? else { continue };
            let below = FieldSet::from_fields_v1(value)?;
            let is_member = below.is_empty() || value.get(".").is_some();
            set.nodes.insert(element, Node { is_member, below });
        }
        Ok(set)
    }

    pub(super) fn node(&self, element: &Element) -> Option<&Node> {
        self.nodes.get(element)
    }

    /// Puts a node in its place, unless there is nothing in it.
    pub(super) fn put(&mut self, element: Element, node: Node) {
        if node.is_member || !node.below.is_empty() {
            self.nodes.insert(element, node);
        }
    }

    pub(super) fn map(&self, change: impl Fn(&Element, &Node) -> Option<Node>) -> FieldSet {
        let mut set = FieldSet::default();
        for (element, node) in &self.nodes {
            if let Some(node) = change(element, node) {
                set.put(element.clone(), node);
            }
        }
        set
    }
}

impl Element {
    pub(crate) fn field(name: &str) -> Element {
        Element::Field(name.to_owned())
    }

    fn to_fields_v1(&self) -> String {
        match self {
            Element::Field(name) => format!("f:{name}"),
            Element::Key(key) => {
                let key: Map<_, _> = key.iter().map(|(name, value)| (name.clone(), value.0.clone())).collect();
                format!("k:{}", go_json(&Value::Object(key)))
            }
            Element::Value(value) => format!("v:{}", go_json(&value.0)),
            Element::Index(index) => format!("i:{index}"),
        }
    }

    /// None for a kind of element that is not known: servers that come later may have more.
    fn from_fields_v1(text: &str) -> Result<Option<Element>, NoElement> {
        let wrong = || NoElement(text.to_owned());
        let (kind, rest) = text.split_once(':').filter(|(kind, _)| kind.len() == 1).ok_or_else(wrong)?;
        let value = || serde_json::from_str::<Value>(rest).map_err(|_| wrong());
        Ok(Some(match kind {
            "f" => Element::field(rest),
            "k" => {
                let Value::Object(key) = value()? else { return Err(wrong()) };
                let mut key: Vec<_> = key.into_iter().map(|(name, value)| (name, Plain(value))).collect();
                key.sort();
                Element::Key(key)
            }
            "v" => Element::Value(Plain(value()?)),
            "i" => Element::Index(rest.parse().map_err(|_| wrong())?),
            _ => return Ok(None),
        }))
    }
}

/// As it is named in conflicts: `.data`, `[name="a"]`, `[="a"]`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Element::Field(name) => write!(f, ".{name}"),
            Element::Key(key) => {
                let key: Vec<String> = key.iter().map(|(name, value)| format!("{name}={}", value.0)).collect();
                write!(f, "[{}]", key.join(","))
            }
            Element::Value(value) => write!(f, "[={}]", value.0),
            Element::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// Numbers are equal by what they are worth: 1 is 1.0.
pub(super) fn same(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
        }
        (Value::Object(one), Value::Object(other)) => {
            let found = |(key, value): (&String, &Value)| other.get(key).is_some_and(|other| same(value, other));
            one.len() == other.len() && one.iter().all(found)
        }
        _ => Plain::order(one, other) == Ordering::Equal,
    }
}

impl Plain {
    fn order(one: &Value, other: &Value) -> Ordering {
        let rank = |value: &Value| match value {
            Value::Number(_) => 0,
            Value::String(_) => 1,
            Value::Bool(_) => 2,
            Value::Array(_) => 3,
            Value::Object(_) => 4,
            Value::Null => 5,
        };
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => match (one.as_i64(), other.as_i64()) {
                (Some(one), Some(other)) => one.cmp(&other),
                _ => one.as_f64().unwrap_or_default().total_cmp(&other.as_f64().unwrap_or_default()),
            },
            (Value::String(one), Value::String(other)) => one.cmp(other),
            (Value::Bool(one), Value::Bool(other)) => one.cmp(other),
            // No list has keys like these; any order will do.
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => {
                one.to_string().cmp(&other.to_string())
            }
            _ => rank(one).cmp(&rank(other)),
        }
    }
}

impl Ord for Plain {
    fn cmp(&self, other: &Plain) -> Ordering {
        Plain::order(&self.0, &other.0)
    }
}

impl PartialOrd for Plain {
    fn partial_cmp(&self, other: &Plain) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Plain {
    fn eq(&self, other: &Plain) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Plain {}

/// JSON as Go writes it: safe inside HTML.
pub(super) fn go_json(value: &Value) -> String {
    let mut text = value.to_string();
    let escapes =
        [("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u{2028}", "\\u2028"), ("\u{2029}", "\\u2029")];
    for (plain, escaped) in escapes {
        text = text.replace(plain, escaped);
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(fields: &Value) -> FieldSet {
        FieldSet::from_fields_v1(fields).unwrap()
    }

    fn check(found: &FieldSet, expected: &Value) {
        assert_eq!(found.to_fields_v1().to_string(), expected.to_string());
    }

    #[test]
    fn apply_sets_are_read_and_written_alike() {
        let fields = json!({
            "f:data": {".": {}, "f:a.b/c": {}},
            "f:list": {
                "k:{\"port\":9,\"protocol\":\"TCP\"}": {".": {}, "f:x": {}},
                "k:{\"port\":10,\"protocol\":\"TCP\"}": {"f:x": {}},
                "v:2": {},
                "v:\"v\\u003c\"": {},
                "v:true": {},
                "i:3": {},
            },
        });
        check(&set(&fields), &fields);
        let shuffled = json!({"f:b": {}, "f:a": {"k:{\"y\":1,\"x\":1}": {}}, ".": {}, "z:unknown": {}});
        check(&set(&shuffled), &json!({"f:a": {"k:{\"x\":1,\"y\":1}": {}}, "f:b": {}}));
    }

    #[test]
    fn apply_sets_are_refused_where_they_are_none() {
        for wrong in ["f", "data", "fx:data", "k:[]", "k:{", "v:", "i:x"] {
            assert_eq!(FieldSet::from_fields_v1(&json!({wrong: {}})), Err(NoElement(wrong.to_owned())));
        }
    }

    #[test]
    fn apply_sets_are_joined_and_parted() {
        let one = set(&json!({"f:a": {".": {}, "f:b": {}, "f:c": {}}, "f:d": {}}));
        let other = set(&json!({"f:a": {"f:b": {}, "f:e": {}}, "f:d": {"f:f": {}}}));
        check(
            &one.union(&other),
            &json!({"f:a": {".": {}, "f:b": {}, "f:c": {}, "f:e": {}}, "f:d": {".": {}, "f:f": {}}}),
        );
        check(&one.intersection(&other), &json!({"f:a": {"f:b": {}}}));
        check(&one.difference(&other), &json!({"f:a": {".": {}, "f:c": {}}, "f:d": {}}));
        check(&other.difference(&one), &json!({"f:a": {"f:e": {}}, "f:d": {"f:f": {}}}));
        check(&other.without_trees(&one), &json!({}));
        assert!(one.difference(&one).is_empty());
    }

    #[test]
    fn apply_values_are_the_same_by_what_they_are_worth() {
        assert!(same(&json!({"a": [1, {"b": 2}], "c": null}), &json!({"c": null, "a": [1.0, {"b": 2}]})));
        for other in [json!([1]), json!({"a": 1, "b": null}), json!({"a": "1"}), json!({"b": 1}), json!(null)] {
            assert!(!same(&json!({"a": 1}), &other), "{other}");
        }
    }

    #[test]
    fn apply_sets_contain_fields_not_what_is_above() {
        let set = set(&json!({"f:a": {"f:b": {}}}));
        let path = [Element::field("a"), Element::field("b")];
        assert!(set.contains(&path));
        assert!(!set.contains(&path[..1]));
        assert!(!set.contains(&[]));
    }
}
