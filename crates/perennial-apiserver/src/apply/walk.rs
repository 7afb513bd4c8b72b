//! Walks over typed objects: their fields, their differences, and the results of merging and removing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::{Element, FieldSet, Node, same};
use super::types::{Field, List, Type};

/// The differences between two objects.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Comparison {
    pub(super) removed: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) added: FieldSet,
}

impl Comparison {
    pub(super) fn without_trees(&self, ignored: &FieldSet) -> Comparison {
        Comparison {
            removed: self.removed.without_trees(ignored),
            modified: self.modified.without_trees(ignored),
            added: self.added.without_trees(ignored),
        }
    }

    /// Returns the added and the modified fields.
    pub(super) fn changed(&self) -> FieldSet {
        self.modified.union(&self.added)
    }
}

/// Returns the fields of an object: its leaves, and the entries of its lists and maps, but not its structs.
pub(super) fn fields(of: Type<'_>, value: &Value) -> FieldSet {
    node(of, value).below
}

fn node(of: Type<'_>, value: &Value) -> Node {
    let leaf = Node { is_member: true, below: FieldSet::default() };
    let mut below = Vec::new();
    match value {
        Value::Object(map) if !of.is_atomic_map() => {
            for (name, value) in map {
                let Field { of, is_named } = field(of, name);
                let mut node = node(of, value);
                let is_empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                node.is_member |= is_empty || !is_named;
                below.push((Element::field(name), node));
            }
        }
        Value::Array(items) => {
            let list = of.list();
            if list == List::Atomic {
                return leaf;
            }
            for (element, items) in grouped(of, &list, items) {
                // Parts of duplicate entries have no owner.
                let node = match items[..] {
                    [item] => Node { is_member: true, ..node(of.item(), item) },
                    _ => leaf.clone(),
                };
                below.push((element, node));
            }
        }
        _ => return leaf,
    }
    Node { is_member: false, below: FieldSet::of(below) }
}

/// Returns a set with the declared parents of its fields: a struct without remaining fields is removed too.
pub(super) fn with_named(of: Type<'_>, set: &FieldSet) -> FieldSet {
    set.map(|element, node| {
        let (of, is_named) = match element {
            Element::Field(name) => {
                let Field { of, is_named } = field(of, name);
                (of, is_named)
            }
            Element::Key(_) => (of.item(), false),
            Element::Value(_) | Element::Index(_) => (Type::Whole, false),
        };
        let is_member = node.is_member || (is_named && !node.below.is_empty());
        Some(Node { is_member, below: with_named(of, &node.below) })
    })
}

pub(super) fn compare(of: Type<'_>, old: &Value, new: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    Comparing { path: Vec::new(), into: &mut comparison }.walk(of, Some(old), Some(new));
    comparison
}

struct Comparing<'c> {
    path: Vec<Element>,
    into: &'c mut Comparison,
}

impl Comparing<'_> {
    fn walk(&mut self, of: Type<'_>, old: Option<&Value>, new: Option<&Value>) {
        let (of_old, of_new) = (shape(old, new), shape(new, old));
        let mut is_leaf = self.walk_as(of_new, of, old, new);
        if of_old != of_new {
            // A value that changed its type is removed field by field, and added field by field.
            is_leaf |= self.walk_as(of_old, of, old, new);
        }
        match (old, new) {
            (None, _) if !is_leaf => self.into.added.insert(&self.path),
            (_, None) if !is_leaf => self.into.removed.insert(&self.path),
            _ => {}
        }
    }

    /// Returns true for a leaf.
    fn walk_as<'v>(&mut self, shape: Shape, of: Type<'_>, old: Option<&'v Value>, new: Option<&'v Value>) -> bool {
        match shape {
            Shape::Map => {
                let nothing = Map::new();
                let map = |value: Option<&'v Value>| value.and_then(Value::as_object);
                let (olds, news) = (map(old).unwrap_or(&nothing), map(new).unwrap_or(&nothing));
                if of.is_atomic_map() || (olds.is_empty() && news.is_empty()) {
                    return self.leaf(old, new);
                }
                for name in olds.keys().chain(news.keys()).collect::<BTreeSet<_>>() {
                    self.path.push(Element::field(name));
                    self.walk(field(of, name).of, olds.get(name), news.get(name));
                    self.path.pop();
                }
                false
            }
            Shape::List => {
                let items = |value: Option<&'v Value>| value.and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let (olds, news) = (items(old), items(new));
                let list = of.list();
                if list == List::Atomic || (olds.is_empty() && news.is_empty()) {
                    return self.leaf(old, new);
                }
                let (olds, news) = (grouped(of, &list, olds), grouped(of, &list, news));
                for element in olds.keys().chain(news.keys()).collect::<BTreeSet<_>>() {
                    let items = |of: &BTreeMap<Element, Vec<&'v Value>>| of.get(element).cloned().unwrap_or_default();
                    self.path.push(element.clone());
                    self.items(of.item(), &items(&olds), &items(&news));
                    self.path.pop();
                }
                false
            }
            Shape::Plain => self.leaf(old, new),
        }
    }

    /// Compares the entries of a list with the same key. Duplicates exist only after writes without apply.
    fn items(&mut self, of: Type<'_>, olds: &[&Value], news: &[&Value]) {
        match (olds.len(), news.len()) {
            (0 | 1, 0 | 1) => self.walk(of, olds.first().copied(), news.first().copied()),
            (2.., 2..) => {
                let is_same = olds.len() == news.len() && olds.iter().zip(news).all(|(old, new)| same(old, new));
                if !is_same {
                    self.into.modified.insert(&self.path);
                }
            }
            (2.., _) => {
                if let Some(new) = news.first() {
                    self.walk(of, None, Some(new));
                }
                self.into.removed.insert(&self.path);
            }
            (_, 2..) => {
                if let Some(old) = olds.first() {
                    self.walk(of, Some(old), None);
                }
                self.into.added.insert(&self.path);
            }
        }
    }

    fn leaf(&mut self, old: Option<&Value>, new: Option<&Value>) -> bool {
        match (old, new) {
            (None, _) => self.into.added.insert(&self.path),
            (_, None) => self.into.removed.insert(&self.path),
            (Some(old), Some(new)) if !same(old, new) => self.into.modified.insert(&self.path),
            _ => {}
        }
        true
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Map,
    List,
    Plain,
}

/// Returns the kind of a value; an absent value or null has the kind of the other.
fn shape(value: Option<&Value>, other: Option<&Value>) -> Shape {
    match value {
        Some(Value::Object(_)) => Shape::Map,
        Some(Value::Array(_)) => Shape::List,
        None | Some(Value::Null) => match other {
            None | Some(Value::Null) => Shape::Plain,
            other => shape(other, None),
        },
        Some(_) => Shape::Plain,
    }
}

/// Returns an object with another one merged into it. Entries keep their order unless the other changes it.
pub(super) fn merge(of: Type<'_>, live: &Value, applied: &Value) -> Value {
    match (live, applied) {
        (Value::Object(old), Value::Object(new)) if !of.is_atomic_map() => {
            let mut merged = old.clone();
            for (name, new) in new {
                let value = match old.get(name) {
                    Some(old) => merge(field(of, name).of, old, new),
                    None => new.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(old), Value::Array(new)) => {
            let list = of.list();
            if list == List::Atomic || (old.is_empty() && new.is_empty()) {
                return applied.clone();
            }
            Value::Array(merge_lists(of, &list, old, new))
        }
        // Null is an empty map or an empty list: nothing to merge.
        (Value::Object(old), Value::Null) if !of.is_atomic_map() && !old.is_empty() => live.clone(),
        (Value::Array(old), Value::Null) if of.list() != List::Atomic && !old.is_empty() => live.clone(),
        _ => applied.clone(),
    }
}

fn merge_lists(of: Type<'_>, list: &List<'_>, old: &[Value], new: &[Value]) -> Vec<Value> {
    let (olds, news) = (keyed(of, list, old), keyed(of, list, new));
    // By element, because a list may have very many entries: comparing each with each takes minutes.
    let mut old_values: BTreeMap<&Element, &Value> = BTreeMap::new();
    for (element, value) in &olds {
        // A duplicate is replaced, not merged.
        old_values.entry(element).and_modify(|found| *found = &Value::Null).or_insert(value);
    }
    let new_elements: BTreeSet<&Element> = news.iter().map(|(element, _)| element).collect();
    let merged = |(element, new): &(Element, &Value)| match old_values.get(element) {
        Some(old) => merge(of.item(), old, new),
        None => (*new).clone(),
    };
    // Entries of both lists have the order of the new list.
    let mut shared = news.iter().map(|(element, _)| element).filter(|element| old_values.contains_key(element));
    let mut next_shared = shared.next();
    let mut taken: BTreeSet<&Element> = BTreeSet::new();
    let mut out = Vec::new();
    let (mut o, mut n) = (0, 0);
    while o < olds.len() || n < news.len() {
        if let (Some((old, _)), Some(entry)) = (olds.get(o), news.get(n)) {
            if *old == entry.0 {
                out.push(merged(entry));
                taken.insert(&entry.0);
                (o, n) = (o + 1, n + 1);
                next_shared = shared.next();
                continue;
            }
            if new_elements.contains(old) && next_shared.is_some_and(|next| next != old) {
                o += 1;
                continue;
            }
        }
        if let Some((element, old)) = olds.get(o) {
            if !new_elements.contains(element) {
                out.push((*old).clone());
                o += 1;
                continue;
            }
            if taken.contains(element) {
                o += 1;
            }
        }
        if let Some(entry) = news.get(n) {
            out.push(merged(entry));
            taken.insert(&entry.0);
            n += 1;
            if next_shared == Some(&entry.0) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// Returns entries with their keys; entries without a key are left out.
fn keyed<'v>(of: Type<'_>, list: &List<'_>, items: &'v [Value]) -> Vec<(Element, &'v Value)> {
    items.iter().filter_map(|item| Some((of.element(list, item).ok()?, item))).collect()
}

/// Returns an object without these fields; null if nothing is left.
pub(super) fn remove(of: Type<'_>, value: &Value, set: &FieldSet) -> Value {
    // The parent of a removed field stays, even if it is empty.
    let kept = |of: Type<'_>, value: &Value, below: &FieldSet| match (remove(of, value, below), value) {
        (Value::Null, Value::Object(_)) => Value::Object(Map::new()),
        (Value::Null, Value::Array(_)) => Value::Array(Vec::new()),
        (rest, _) => rest,
    };
    match value {
        Value::Object(map) if !map.is_empty() && !of.is_atomic_map() => {
            let mut left = Map::new();
            let mut is_touched = false;
            for (name, value) in map {
                let rest = match set.node(&Element::field(name)) {
                    Some(Node { is_member: true, .. }) => continue,
                    Some(node) => {
                        is_touched = true;
                        kept(field(of, name).of, value, &node.below)
                    }
                    None => value.clone(),
                };
                left.insert(name.clone(), rest);
            }
            if left.is_empty() && !is_touched { Value::Null } else { Value::Object(left) }
        }
        Value::Array(items) if !items.is_empty() && of.list() != List::Atomic => {
            let list = of.list();
            let mut left = Vec::new();
            for item in items {
                let element = of.element(&list, item).ok();
                let rest = match element.and_then(|element| set.node(&element)) {
                    Some(Node { is_member: true, .. }) => continue,
                    Some(node) => kept(of.item(), item, &node.below),
                    None => item.clone(),
                };
                left.push(rest);
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        Value::Object(_) | Value::Array(_) => Value::Null,
        plain => plain.clone(),
    }
}

/// Returns the faults of an object that is to be applied, each with its path.
pub(super) fn faults(of: Type<'_>, value: &Value) -> Vec<String> {
    let below = |prefix: String, of: Type<'_>, value: &Value| {
        faults(of, value).into_iter().map(move |rest| format!("{prefix}{rest}"))
    };
    if let Some(expected) = of.expected(value) {
        return vec![format!(": expected {expected}, got {}", type_name(value))];
    }
    let mut found = Vec::new();
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let Some(field) = of.field(name) else {
                    found.push(format!(".{name}: field not declared in schema"));
                    break;
                };
                found.extend(below(format!(".{name}"), field.of, value));
            }
        }
        Value::Array(items) if of.list() == List::Atomic => {
            for (index, item) in items.iter().enumerate() {
                found.extend(below(format!("[{index}]"), of.item(), item));
            }
        }
        Value::Array(items) => {
            let list = of.list();
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                let element = match of.element(&list, item) {
                    Ok(element) => element,
                    Err(why) => {
                        found.push(format!(": element {index}: {why}"));
                        break;
                    }
                };
                let name = element.to_string();
                if !seen.insert(element) {
                    found.push(format!(": duplicate entries for key {name}"));
                }
                found.extend(below(name, of.item(), item));
            }
        }
        _ => {}
    }
    found
}

/// Returns the name of the type in Go.
fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nil",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// Returns the type of a field; a field without a schema is deduced.
fn field<'t>(of: Type<'t>, name: &'t str) -> Field<'t> {
    of.field(name).unwrap_or(Field { of: Type::Deduced, is_named: false })
}

/// Groups entries by their key; entries without a key are left out.
fn grouped<'v>(of: Type<'_>, list: &List<'_>, items: &'v [Value]) -> BTreeMap<Element, Vec<&'v Value>> {
    let mut groups: BTreeMap<Element, Vec<&Value>> = BTreeMap::new();
    for item in items {
        if let Ok(element) = of.element(list, item) {
            groups.entry(element).or_default().push(item);
        }
    }
    groups
}
