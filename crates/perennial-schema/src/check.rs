//! Checks a value against a schema, except list types and rules.

use serde_json::{Number, Value};

use crate::error::{ErrorKind, FieldError, go_quote};
use crate::node::{Additional, Bounds, Format, Node, Type};
use crate::old;

/// Returns every error of the value. With an old value, a field that was invalid before and did not change is
/// not an error.
///
/// It stops early, with the errors so far, when `go_on` returns false.
pub(crate) fn check(root: &Node, value: &Value, old: Option<&Value>, go_on: &dyn Fn() -> bool) -> Vec<FieldError> {
    visit(root, value, old, "", go_on)
}

fn visit(node: &Node, value: &Value, old: Option<&Value>, path: &str, go_on: &dyn Fn() -> bool) -> Vec<FieldError> {
    let at = At { node, path, go_on };
    let mut errors = Vec::new();
    if !go_on() {
        return errors;
    }
    at.check_type(value, &mut errors);
    if value.is_null() {
        at.check_enum(value, &mut errors);
        return errors;
    }
    at.check_branches(value, &mut errors);
    match value {
        Value::String(text) => at.check_string(text, &mut errors),
        Value::Number(number) => at.check_number(number, &mut errors),
        Value::Array(items) => at.check_list(items, old, &mut errors),
        _ => {}
    }
    at.check_enum(value, &mut errors);
    if let Value::Object(fields) = value {
        at.check_object(fields, old, &mut errors);
    }
    if !errors.is_empty() && old.is_some_and(|old| old::unchanged(node, old, value)) {
        errors.clear();
    }
    errors
}

/// A node and the path of its value.
struct At<'a> {
    node: &'a Node,
    path: &'a str,
    go_on: &'a dyn Fn() -> bool,
}

impl At<'_> {
    fn check_type(&self, value: &Value, errors: &mut Vec<FieldError>) {
        let types = &self.node.types;
        if types.is_empty() || (value.is_null() && self.node.nullable) {
            return;
        }
        let (found, found_format) = type_of(value);
        let fits = |kind: &Type| match (kind, value) {
            (Type::Integer, Value::Number(number)) => is_integral(number),
            (Type::Number, Value::Number(_)) => true,
            (kind, _) => kind.name() == found,
        };
        if types.iter().any(fits) {
            return;
        }
        let expected = types.iter().map(|kind| kind.name()).collect::<Vec<_>>().join(",");
        let (expected, found) = match (self.node.format, value) {
            (Some(format), Value::Bool(_) | Value::Number(_) | Value::Object(_)) => {
                (format.name().to_owned(), found_format)
            }
            _ => (expected, found),
        };
        self.wrong_type(&expected, found, errors);
    }

    fn wrong_type(&self, expected: &str, found: &str, errors: &mut Vec<FieldError>) {
        let message = format!("{} in body must be of type {expected}: {}", self.path, go_quote(found));
        errors.push(FieldError::new(self.path, ErrorKind::TypeInvalid, found.into(), message));
    }

    fn check_branches(&self, value: &Value, errors: &mut Vec<FieldError>) {
        let of_branch = |branch: &Node| visit(branch, value, None, self.path, self.go_on);
        let quoted = go_quote(self.path);
        if !self.node.any_of.is_empty() {
            let failures: Vec<_> = self.node.any_of.iter().map(of_branch).collect();
            if failures.iter().all(|failure| !failure.is_empty()) {
                errors.push(not_here(format!("{quoted} must validate at least one schema (anyOf)")));
                errors.extend(failures.into_iter().next().unwrap_or_default());
            }
        }
        if !self.node.one_of.is_empty() {
            let failures: Vec<_> = self.node.one_of.iter().map(of_branch).collect();
            let valid = failures.iter().filter(|failure| failure.is_empty()).count();
            let say = |why: &str| not_here(format!("{quoted} must validate one and only one schema (oneOf). {why}"));
            match valid {
                0 => {
                    errors.push(say("Found none valid"));
                    errors.extend(failures.into_iter().next().unwrap_or_default());
                }
                1 => {}
                more => errors.push(say(&format!("Found {more} valid alternatives"))),
            }
        }
        let failures: Vec<_> = self.node.all_of.iter().map(of_branch).collect();
        if failures.iter().any(|failure| !failure.is_empty()) {
            let none = failures.iter().all(|failure| !failure.is_empty());
            errors.extend(failures.into_iter().flatten());
            let none = if none { ". None validated" } else { "" };
            errors.push(not_here(format!("{quoted} must validate all the schemas (allOf){none}")));
        }
        if self.node.not.as_deref().is_some_and(|branch| of_branch(branch).is_empty()) {
            errors.push(not_here(format!("{quoted} must not validate the schema (not)")));
        }
    }

    fn check_string(&self, text: &str, errors: &mut Vec<FieldError>) {
        let Bounds { min_length, max_length, .. } = self.node.bounds;
        let length = text.chars().count() as u64;
        let found = || Value::from(text);
        if let Some(max) = max_length.filter(|max| length > *max) {
            let bytes = if max == 1 { "byte" } else { "bytes" };
            let message = format!("may not be more than {max} {bytes}");
            errors.push(FieldError::without_value(self.path, ErrorKind::TooLong, message));
        } else if let Some(min) = min_length.filter(|min| length < *min) {
            self.invalid(found(), &format!("should be at least {min} chars long"), errors);
        } else if let Some(pattern) = self.node.pattern.as_ref().filter(|pattern| !pattern.is_match(text)) {
            self.invalid(found(), &format!("should match '{pattern}'"), errors);
        }
        if self.node.format == Some(Format::DateTime) && !is_date_time(text) {
            self.wrong_type("date-time", text, errors);
        }
    }

    fn check_number(&self, number: &Number, errors: &mut Vec<FieldError>) {
        let in_range = match (&self.node.types[..], self.node.format) {
            ([Type::Integer], Some(Format::Int32)) => integer(number).is_some_and(|n| i32::try_from(n).is_ok()),
            ([Type::Integer], _) => integer(number).is_some(),
            _ => true,
        };
        if !in_range {
            let format = match self.node.format {
                Some(format) => format!("with format {}", format.name()),
                None => "(default format)".to_owned(),
            };
            errors.push(not_here(format!("Checked value must be of type integer {format} in {}", self.path)));
        }
        let Some(n) = number.as_f64() else { return };
        let bounds = &self.node.bounds;
        let mut say = |text: String| self.invalid(Value::Number(number.clone()), &text, errors);
        if let Some(factor) = bounds.multiple_of.filter(|factor| (n / factor).fract() != 0.0) {
            say(format!("should be a multiple of {factor}"));
        }
        // For a whole number, a server uses the whole part of a bound.
        let bound = |bound: f64| if number.is_f64() { bound } else { bound.trunc() };
        match (bounds.minimum.map(bound), bounds.exclusive_minimum) {
            (Some(min), false) if n < min => say(format!("should be greater than or equal to {min}")),
            (Some(min), true) if n <= min => say(format!("should be greater than {min}")),
            _ => {}
        }
        match (bounds.maximum.map(bound), bounds.exclusive_maximum) {
            (Some(max), false) if n > max => say(format!("should be less than or equal to {max}")),
            (Some(max), true) if n >= max => say(format!("should be less than {max}")),
            _ => {}
        }
    }

    fn check_list(&self, items: &[Value], old: Option<&Value>, errors: &mut Vec<FieldError>) {
        if let Some(child) = &self.node.items {
            let olds = old::Items::of(self.node, old);
            for (index, item) in items.iter().enumerate() {
                errors.extend(visit(child, item, olds.find(item), &format!("{}[{index}]", self.path), self.go_on));
            }
        }
        let Bounds { min_items, max_items, .. } = self.node.bounds;
        let count = items.len() as u64;
        if let Some(min) = min_items.filter(|min| count < *min) {
            self.invalid(count.into(), &format!("should have at least {min} items"), errors);
        }
        if let Some(max) = max_items.filter(|max| count > *max) {
            errors.push(too_many(self.path, count, max));
        }
    }

    fn check_object(&self, fields: &serde_json::Map<String, Value>, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let Bounds { min_properties, max_properties, .. } = self.node.bounds;
        let count = fields.len() as u64;
        if let Some(min) = min_properties.filter(|min| count < *min) {
            self.invalid(count.into(), &format!("should have at least {min} properties"), errors);
        }
        if let Some(max) = max_properties.filter(|max| count > *max) {
            errors.push(too_many(self.path, count, max));
        }
        let child_path =
            |name: &str| if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        if let Additional::Schema(child) = &self.node.additional {
            let mut names: Vec<_> = fields.keys().filter(|name| !self.node.properties.contains_key(*name)).collect();
            names.sort();
            for name in names {
                errors.extend(visit(child, &fields[name], old::of_field(old, name), &child_path(name), self.go_on));
            }
        }
        for (name, child) in &self.node.properties {
            let Some(value) = fields.get(name) else { continue };
            let old = old::of_field(old, name).filter(|_| !self.is_type_meta(name));
            errors.extend(visit(child, value, old, &child_path(name), self.go_on));
        }
        for name in self.node.required.iter().filter(|name| !fields.contains_key(*name)) {
            errors.push(FieldError::without_value(child_path(name), ErrorKind::Required, ""));
        }
    }

    /// Both objects of an update have been converted to one version, so these fields are always
    /// equal.
    fn is_type_meta(&self, name: &str) -> bool {
        self.path.is_empty() && matches!(name, "apiVersion" | "kind")
    }

    fn check_enum(&self, value: &Value, errors: &mut Vec<FieldError>) {
        let allowed = &self.node.allowed;
        if !allowed.is_empty() && !allowed.iter().any(|allowed| equals_enum(allowed, value)) {
            errors.push(FieldError::unsupported(self.path, value.clone(), allowed));
        }
    }

    fn invalid(&self, found: Value, text: &str, errors: &mut Vec<FieldError>) {
        let message = format!("{} in body {text}", self.path);
        errors.push(FieldError::new(self.path, ErrorKind::Invalid, found, message));
    }
}

/// Some errors of a server name the field only in their text.
fn not_here(message: String) -> FieldError {
    FieldError::new("", ErrorKind::Invalid, "".into(), message)
}

fn too_many(path: &str, count: u64, max: u64) -> FieldError {
    let items = if max == 1 { "item" } else { "items" };
    FieldError::new(path, ErrorKind::TooMany, count.into(), format!("must have at most {max} {items}"))
}

/// Returns the OpenAPI type and format of a value, as a server sees them.
fn type_of(value: &Value) -> (&'static str, &'static str) {
    match value {
        Value::Null => ("null", ""),
        Value::Bool(_) => ("boolean", ""),
        Value::Number(number) if number.is_f64() => ("number", "float64"),
        Value::Number(_) => ("integer", "int64"),
        Value::String(_) => ("string", ""),
        Value::Array(_) => ("array", ""),
        Value::Object(_) => ("object", ""),
    }
}

/// Returns the number as a 64-bit integer, also if it is written as `4.0`.
fn integer(number: &Number) -> Option<i64> {
    match number.as_f64() {
        Some(float) if number.is_f64() => is_integral(number).then_some(float as i64),
        _ => number.as_i64(),
    }
}

fn is_integral(number: &Number) -> bool {
    const LARGEST_EXACT: f64 = 9_007_199_254_740_991.0;
    match number.as_f64() {
        Some(float) if number.is_f64() => float.fract() == 0.0 && float.abs() <= LARGEST_EXACT,
        _ => true,
    }
}

/// Null equals no value, not even a null in the enumeration. Numbers are compared by value.
fn equals_enum(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (_, Value::Null) => false,
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => allowed == value,
    }
}

/// RFC 3339 with upper or lower case letters; the ranges of all parts are checked.
fn is_date_time(text: &str) -> bool {
    static PATTERN: std::sync::LazyLock<regex::Regex> = std::sync::LazyLock::new(|| {
        let pattern = r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]([01][0-9]|2[0-3]):[0-5][0-9]:([0-5][0-9]|60)(\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$";
        regex::Regex::new(pattern).expect("the pattern is a constant")
    });
    PATTERN.is_match(text)
}
