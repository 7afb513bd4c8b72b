//! Sets of fields, and their format in `managedFields`: `FieldsV1`.

use std::cmp::Ordering;
use std::fmt;

use serde_json::{Map, Value};

/// A set of fields of an object. It may contain a field without its subfields, and the reverse.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// Sorted. Every node is a member or has a member below it.
    ///
    /// A list, because the set of a large object contains very many small sets, and the smallest tree takes a kilobyte.
    nodes: Vec<(Element, Node)>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) is_member: bool,
    pub(super) below: FieldSet,
}

/// One element of a path. The order is that of `FieldsV1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// A field of a struct, or an entry of a map.
    Field(String),
    /// The list entry with these key values, by name.
    Key(Vec<(String, Plain)>),
    /// A value of a set.
    Value(Box<Plain>),
    /// An index of a list.
    Index(i64),
}

/// A value with the order of path elements: numbers, then texts, then the rest.
#[derive(Debug, Clone)]
pub(crate) struct Plain(pub(crate) Value);

/// An error in `FieldsV1`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a path element")]
pub(crate) struct NoElement(String);

impl FieldSet {
    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.node(last).is_some_and(|node| node.is_member),
            [first, rest @ ..] => self.node(first).is_some_and(|node| node.below.contains(rest)),
        }
    }

    /// Returns the set of these nodes without empty ones. Of nodes with the same element, the last one counts.
    pub(super) fn of(mut nodes: Vec<(Element, Node)>) -> FieldSet {
        nodes.retain(|(_, node)| !node.is_nothing());
        nodes.sort_by(|(one, _), (other, _)| one.cmp(other));
        nodes.dedup_by(|(later, node), (earlier, kept)| {
            let is_same = later == earlier;
            if is_same {
                std::mem::swap(node, kept);
            }
            is_same
        });
        nodes.shrink_to_fit();
        FieldSet { nodes }
    }

    /// Adds a field without its parents. No manager owns the whole object: the empty path adds nothing.
    pub(crate) fn insert(&mut self, path: &[Element]) {
        match path {
            [] => {}
            [last] => self.entry(last).is_member = true,
            [first, rest @ ..] => self.entry(first).below.insert(rest),
        }
    }

    fn entry(&mut self, element: &Element) -> &mut Node {
        // Most fields are added in order.
        let place = match self.nodes.last().map(|(last, _)| last.cmp(element)) {
            None | Some(Ordering::Less) => Err(self.nodes.len()),
            Some(Ordering::Equal) => Ok(self.nodes.len() - 1),
            Some(Ordering::Greater) => self.place(element),
        };
        let place = place.unwrap_or_else(|place| {
            if self.nodes.is_empty() {
                // Most sets have one field.
                self.nodes.reserve_exact(1);
            }
            self.nodes.insert(place, (element.clone(), Node::default()));
            place
        });
        &mut self.nodes[place].1
    }

    /// Returns the position of an element, or where to insert it.
    fn place(&self, element: &Element) -> Result<usize, usize> {
        self.nodes.binary_search_by(|(found, _)| found.cmp(element))
    }

    pub(crate) fn union(&self, other: &FieldSet) -> FieldSet {
        let mut nodes = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        let (mut ours, mut theirs) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let one = ours.next_if(|(it, _)| theirs.peek().is_none_or(|(other, _)| it <= other));
            let other = theirs.next_if(|(it, _)| one.is_none_or(|(one, _)| it == one));
            nodes.push(match (one, other) {
                (Some((element, one)), Some((_, other))) => {
                    let is_member = one.is_member || other.is_member;
                    (element.clone(), Node { is_member, below: one.below.union(&other.below) })
                }
                (Some(only), None) | (None, Some(only)) => only.clone(),
                (None, None) => break,
            });
        }
        nodes.shrink_to_fit();
        FieldSet { nodes }
    }

    pub(crate) fn intersection(&self, other: &FieldSet) -> FieldSet {
        self.map(|element, node| {
            let other = other.node(element)?;
            Some(Node { is_member: node.is_member && other.is_member, below: node.below.intersection(&other.below) })
        })
    }

    /// Returns the set without the fields of another set; subfields stay unless the other set contains them too.
    pub(crate) fn difference(&self, other: &FieldSet) -> FieldSet {
        self.map(|element, node| {
            let Some(other) = other.node(element) else { return Some(node.clone()) };
            Some(Node { is_member: node.is_member && !other.is_member, below: node.below.difference(&other.below) })
        })
    }

    /// Returns the set without the fields of another set and all their subfields.
    pub(crate) fn without_trees(&self, other: &FieldSet) -> FieldSet {
        self.map(|element, node| match other.node(element) {
            None => Some(node.clone()),
            Some(Node { is_member: true, .. }) => None,
            Some(other) => Some(Node { is_member: node.is_member, below: node.below.without_trees(&other.below) }),
        })
    }

    /// Returns every field in the order of conflict messages: the fields of a level before their subfields.
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
        let mut nodes = Vec::new();
        for (key, value) in fields.as_object().into_iter().flatten().filter(|(key, _)| *key != ".") {
            let Some(element) = Element::from_fields_v1(key)? else { continue };
            let below = FieldSet::from_fields_v1(value)?;
            let is_member = below.is_empty() || value.get(".").is_some();
            nodes.push((element, Node { is_member, below }));
        }
        Ok(FieldSet::of(nodes))
    }

    pub(super) fn node(&self, element: &Element) -> Option<&Node> {
        self.place(element).ok().map(|place| &self.nodes[place].1)
    }

    pub(super) fn map(&self, change: impl Fn(&Element, &Node) -> Option<Node>) -> FieldSet {
        let changed = self.nodes.iter().filter_map(|(element, node)| {
            let node = change(element, node).filter(|node| !node.is_nothing())?;
            Some((element.clone(), node))
        });
        let mut nodes: Vec<_> = changed.collect();
        nodes.shrink_to_fit();
        FieldSet { nodes }
    }
}

impl Node {
    fn is_nothing(&self) -> bool {
        !self.is_member && self.below.is_empty()
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

    /// Returns none for an unknown kind of element: later servers may have more.
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
            "v" => Element::Value(Box::new(Plain(value()?))),
            "i" => Element::Index(rest.parse().map_err(|_| wrong())?),
            _ => return Ok(None),
        }))
    }
}

/// The format of conflict messages: `.data`, `[name="a"]`, `[="a"]`.
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

/// Compares numbers by value: 1 equals 1.0.
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
            // No list has keys like these; any order works.
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

/// Returns JSON as Go writes it: safe inside HTML.
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
    fn field_sets_round_trip_through_fields_v1() {
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
    fn invalid_fields_v1_is_rejected() {
        for wrong in ["f", "data", "fx:data", "k:[]", "k:{", "v:", "i:x"] {
            assert_eq!(FieldSet::from_fields_v1(&json!({wrong: {}})), Err(NoElement(wrong.to_owned())));
        }
    }

    #[test]
    fn field_sets_have_union_intersection_and_difference() {
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
    fn numbers_are_equal_by_value() {
        assert!(same(&json!({"a": [1, {"b": 2}], "c": null}), &json!({"c": null, "a": [1.0, {"b": 2}]})));
        for other in [json!([1]), json!({"a": 1, "b": null}), json!({"a": "1"}), json!({"b": 1}), json!(null)] {
            assert!(!same(&json!({"a": 1}), &other), "{other}");
        }
    }

    #[test]
    fn field_sets_contain_fields_but_not_their_parents() {
        let set = set(&json!({"f:a": {"f:b": {}}}));
        let path = [Element::field("a"), Element::field("b")];
        assert!(set.contains(&path));
        assert!(!set.contains(&path[..1]));
        assert!(!set.contains(&[]));
    }
}
