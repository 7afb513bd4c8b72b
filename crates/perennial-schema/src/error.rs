//! Field errors with the texts of a kube-apiserver.

use std::fmt;

use serde_json::Value;

/// One error of an object. `Display` is the text of a kube-apiserver:
/// `spec.x: Unsupported value: "P224": supported values: "P256", "P384", "P521"`.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldError {
    /// The path, such as `spec.overrides[2].certificateName`. Empty for the object itself.
    pub path: String,
    /// The kind of the error.
    pub kind: ErrorKind,
    /// The value at the path.
    pub found: Found,
    /// What is accepted. May be empty.
    pub message: String,
}

/// The kinds of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// A field is missing.
    Required,
    /// A value is not one of an enumeration.
    Unsupported,
    /// A value violates a bound, a pattern or a rule.
    Invalid,
    /// An entry of a list repeats an earlier one.
    Duplicate,
    /// A string is too long.
    TooLong,
    /// A list or an object has too many entries.
    TooMany,
    /// A rule with the reason `FieldValueForbidden` failed.
    Forbidden,
    /// A value has the wrong type.
    TypeInvalid,
    /// The schema does not have this field.
    Unknown,
}

/// The value at the path of an error.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// This value.
    Value(Value),
    /// A value that the text leaves out: objects, lists and absent values.
    Omitted,
}

impl FieldError {
    /// Returns an error about the value at `path`.
    pub fn new(path: impl Into<String>, kind: ErrorKind, found: Value, message: impl Into<String>) -> FieldError {
        FieldError { path: path.into(), kind, found: Found::Value(found), message: message.into() }
    }

    /// Returns an error at `path` whose text does not repeat the value.
    pub fn without_value(path: impl Into<String>, kind: ErrorKind, message: impl Into<String>) -> FieldError {
        FieldError { path: path.into(), kind, found: Found::Omitted, message: message.into() }
    }

    /// Returns an error for a value that is not one of `supported`.
    pub fn unsupported(path: impl Into<String>, found: Value, supported: &[Value]) -> FieldError {
        let names = supported.iter().map(|value| match value {
            Value::String(text) => go_quote(text),
            other => go_quote(&go_json(other)),
        });
        let message = format!("supported values: {}", names.collect::<Vec<_>>().join(", "));
        FieldError::new(path, ErrorKind::Unsupported, found, message)
    }

    pub(crate) fn unknown(path: String) -> FieldError {
        FieldError::without_value(path, ErrorKind::Unknown, "")
    }

    pub(crate) fn rules_skipped() -> FieldError {
        let message = "some validation rules were not checked because the object was invalid; \
                       correct the existing errors to complete validation";
        FieldError::new("", ErrorKind::Invalid, Value::Null, message)
    }
}

impl ErrorKind {
    /// Returns the `reason` of a cause in a Kubernetes `Status`.
    pub fn reason(self) -> &'static str {
        match self {
            ErrorKind::Required => "FieldValueRequired",
            ErrorKind::Unsupported => "FieldValueNotSupported",
            ErrorKind::Invalid | ErrorKind::Unknown => "FieldValueInvalid",
            ErrorKind::Duplicate => "FieldValueDuplicate",
            ErrorKind::TooLong => "FieldValueTooLong",
            ErrorKind::TooMany => "FieldValueTooMany",
            ErrorKind::Forbidden => "FieldValueForbidden",
            ErrorKind::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    /// Returns true if CEL rules are not run on an object with such an error.
    pub(crate) fn blocks_rules(self) -> bool {
        use ErrorKind::{Required, TooLong, TooMany, TypeInvalid, Unsupported};
        matches!(self, Required | Unsupported | TooLong | TooMany | TypeInvalid)
    }

    fn title(self) -> &'static str {
        match self {
            ErrorKind::Required => "Required value",
            ErrorKind::Unsupported => "Unsupported value",
            ErrorKind::Invalid | ErrorKind::TypeInvalid => "Invalid value",
            ErrorKind::Duplicate => "Duplicate value",
            ErrorKind::TooLong => "Too long",
            ErrorKind::TooMany => "Too many",
            ErrorKind::Forbidden => "Forbidden",
            ErrorKind::Unknown => "unknown field",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(self, ErrorKind::Required | ErrorKind::Forbidden | ErrorKind::TooLong)
    }
}

impl FieldError {
    /// Returns the text without the path: the `message` of a cause in a Kubernetes `Status`.
    pub fn body(&self) -> String {
        let mut body = self.kind.title().to_owned();
        if let (true, Found::Value(value)) = (self.kind.shows_value(), &self.found) {
            body.push_str(": ");
            body.push_str(&match value {
                Value::String(text) => go_quote(text),
                other => go_json(other),
            });
        }
        if !self.message.is_empty() {
            body.push_str(": ");
            body.push_str(&self.message);
        }
        body
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.kind == ErrorKind::Unknown {
            return write!(f, "unknown field {}", go_quote(&self.path));
        }
        let path = if self.path.is_empty() { "<nil>" } else { &self.path };
        write!(f, "{path}: {}", self.body())
    }
}

impl std::error::Error for FieldError {}

/// Returns a string as Go's `%q` prints it.
pub(crate) fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{b}' => quoted.push_str("\\v"),
            '\u{c}' => quoted.push_str("\\f"),
            c if c.is_ascii_control() => quoted.push_str(&format!("\\x{:02x}", u32::from(c))),
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Returns a value as Go's `json.Marshal` prints it: keys sorted, integral floats without a fraction,
/// HTML characters escaped.
pub(crate) fn go_json(value: &Value) -> String {
    match value {
        Value::Number(number) => go_number(number),
        Value::String(text) => {
            let json = Value::String(text.clone()).to_string();
            json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
        }
        Value::Array(items) => format!("[{}]", items.iter().map(go_json).collect::<Vec<_>>().join(",")),
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            let print = |(name, value): (&String, &Value)| {
                format!("{}:{}", go_json(&Value::String(name.clone())), go_json(value))
            };
            format!("{{{}}}", fields.into_iter().map(print).collect::<Vec<_>>().join(","))
        }
        other => other.to_string(),
    }
}

fn go_number(number: &serde_json::Number) -> String {
    match number.as_f64() {
        Some(float) if number.is_f64() && float.abs() < 1e21 => {
            if float != 0.0 && float.abs() < 1e-6 {
                number.to_string()
            } else {
                float.to_string()
            }
        }
        _ => number.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_print_as_go_prints_them() {
        let check = |value: Value, expected: &str| {
            let error = FieldError::new("spec.x", ErrorKind::Invalid, value, "no");
            assert_eq!(error.to_string(), format!("spec.x: Invalid value: {expected}: no"));
        };
        check(json!("a\"b\\c\n\u{1}é"), r#""a\"b\\c\n\x01é""#);
        check(json!(4.0), "4");
        check(json!(4.5), "4.5");
        check(json!(-3), "-3");
        check(json!(null), "null");
        check(json!({"b": [1, "<"], "a": true}), r#"{"a":true,"b":[1,"\u003c"]}"#);
    }

    #[test]
    fn the_object_itself_has_no_path() {
        let error = FieldError::without_value("", ErrorKind::Invalid, "no");
        assert_eq!(error.to_string(), "<nil>: Invalid value: no");
    }
}
