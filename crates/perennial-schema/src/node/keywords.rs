//! Reads the keywords of one node of a schema, and rejects those that this crate does not enforce.

use regex::{Regex, RegexBuilder};
use serde_json::{Map, Value};

use crate::limits::{LIST_KEYS, PATTERN_BYTES};

use super::{Bounds, Format, ListType, SchemaError, Type, name_of};

/// Whether a schema describes a value, or restricts one that is described elsewhere.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Spine,
    Branch,
}

/// The keywords of one node, read with their required types.
pub(super) struct Keywords<'a> {
    pub(super) at: &'a str,
    pub(super) fields: &'a Map<String, Value>,
}

impl<'a> Keywords<'a> {
    pub(super) fn get(&self, keyword: &str) -> Option<&'a Value> {
        self.fields.get(keyword).filter(|value| !value.is_null())
    }

    pub(super) fn refuse_unknown(&self, place: Place) -> Result<(), SchemaError> {
        for keyword in self.fields.keys() {
            let known = IGNORED.contains(&&**keyword) || READ.contains(&&**keyword);
            if !known || (place == Place::Branch && SPINE_ONLY.contains(&&**keyword)) {
                return Err(self.unsupported(keyword));
            }
        }
        Ok(())
    }

    pub(super) fn unsupported(&self, what: impl Into<String>) -> SchemaError {
        SchemaError::Unsupported { at: name_of(self.at), what: what.into() }
    }

    pub(super) fn flag(&self, keyword: &str) -> Result<bool, SchemaError> {
        self.read(keyword, "a boolean", Value::as_bool).map(Option::unwrap_or_default)
    }

    fn text(&self, keyword: &str) -> Result<Option<&'a str>, SchemaError> {
        self.read(keyword, "a string", Value::as_str)
    }

    pub(super) fn list(&self, keyword: &str) -> Result<&'a [Value], SchemaError> {
        let list = self.read(keyword, "a list", Value::as_array)?;
        Ok(list.map(Vec::as_slice).unwrap_or_default())
    }

    pub(super) fn strings(&self, keyword: &str) -> Result<Vec<String>, SchemaError> {
        let items = self.list(keyword)?.iter();
        items
            .map(|item| match item.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(malformed(self.at, keyword, "a list of strings", item)),
            })
            .collect()
    }

    fn read<T>(
        &self,
        keyword: &str,
        expected: &'static str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Result<Option<T>, SchemaError> {
        let Some(value) = self.get(keyword) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| malformed(self.at, keyword, expected, value))
    }

    pub(super) fn types(&self) -> Result<Vec<Type>, SchemaError> {
        if self.flag("x-kubernetes-int-or-string")? {
            return Ok(vec![Type::Integer, Type::String]);
        }
        let Some(name) = self.text("type")? else { return Ok(Vec::new()) };
        let kind = Type::from_name(name).ok_or_else(|| self.unsupported(format!("type: {name}")))?;
        Ok(vec![kind])
    }

    pub(super) fn format(&self, types: &[Type]) -> Result<Option<Format>, SchemaError> {
        let Some(name) = self.text("format")? else { return Ok(None) };
        Ok(match (types, name) {
            ([Type::Integer], "int32") => Some(Format::Int32),
            ([Type::Integer], "int64") => Some(Format::Int64),
            ([Type::Number], "float") => Some(Format::Float),
            ([Type::Number], "double") => Some(Format::Double),
            ([Type::String], "date-time") => Some(Format::DateTime),
            ([] | [Type::String], name) if UNCHECKED_FORMATS.contains(&&*name.replace('-', "")) => {
                return Err(self.unsupported(format!("format: {name}")));
            }
            _ => None,
        })
    }

    pub(super) fn bounds(&self) -> Result<Bounds, SchemaError> {
        let count = |keyword| self.read(keyword, "a whole number", Value::as_u64);
        let number = |keyword| self.read(keyword, "a number", Value::as_f64);
        Ok(Bounds {
            min_length: count("minLength")?,
            max_length: count("maxLength")?,
            min_items: count("minItems")?,
            max_items: count("maxItems")?,
            min_properties: count("minProperties")?,
            max_properties: count("maxProperties")?,
            minimum: number("minimum")?,
            maximum: number("maximum")?,
            exclusive_minimum: self.flag("exclusiveMinimum")?,
            exclusive_maximum: self.flag("exclusiveMaximum")?,
            multiple_of: number("multipleOf")?,
        })
    }

    pub(super) fn pattern(&self) -> Result<Option<Regex>, SchemaError> {
        let Some(pattern) = self.text("pattern")?.filter(|pattern| !pattern.is_empty()) else { return Ok(None) };
        RegexBuilder::new(pattern).size_limit(PATTERN_BYTES).build().map(Some).map_err(|source| SchemaError::Pattern {
            at: name_of(self.at),
            pattern: pattern.to_owned(),
            source: Box::new(source),
        })
    }

    pub(super) fn list_type(&self) -> Result<ListType, SchemaError> {
        let keys = self.strings("x-kubernetes-list-map-keys")?;
        if keys.len() > LIST_KEYS {
            let what = format!("x-kubernetes-list-map-keys of {} names (accepted are {LIST_KEYS})", keys.len());
            return Err(self.unsupported(what));
        }
        match self.text("x-kubernetes-list-type")? {
            None | Some("atomic") => Ok(ListType::Atomic),
            Some("set") => Ok(ListType::Set),
            Some("map") if !keys.is_empty() => Ok(ListType::Map(keys)),
            Some("map") => Err(self.unsupported("x-kubernetes-list-type: map without x-kubernetes-list-map-keys")),
            Some(other) => Err(self.unsupported(format!("x-kubernetes-list-type: {other}"))),
        }
    }
}

pub(super) fn object<'a>(at: &str, keyword: &str, value: &'a Value) -> Result<&'a Map<String, Value>, SchemaError> {
    value.as_object().ok_or_else(|| malformed(at, keyword, "an object", value))
}

fn malformed(at: &str, keyword: &str, expected: &'static str, found: &Value) -> SchemaError {
    let found = crate::error::go_json(found);
    SchemaError::Malformed { at: name_of(at), keyword: keyword.to_owned(), expected, found }
}

/// Keywords that restrict nothing.
const IGNORED: &[&str] = &["description", "title", "example", "externalDocs", "id", "$schema", "x-kubernetes-map-type"];

/// Keywords that are enforced.
const READ: &[&str] = &[
    "type",
    "format",
    "nullable",
    "properties",
    "additionalProperties",
    "items",
    "default",
    "enum",
    "required",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "pattern",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "x-kubernetes-int-or-string",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
];

/// Keywords that a branch such as `allOf` may not have.
const SPINE_ONLY: &[&str] = &[
    "default",
    "nullable",
    "additionalProperties",
    "x-kubernetes-preserve-unknown-fields",
    "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
];

/// Formats of strings that a server checks and this crate does not, without their dashes.
const UNCHECKED_FORMATS: &[&str] = &[
    "bsonobjectid",
    "uri",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "cidr",
    "mac",
    "uuid",
    "uuid3",
    "uuid4",
    "uuid5",
    "isbn",
    "isbn10",
    "isbn13",
    "creditcard",
    "ssn",
    "hexcolor",
    "rgbcolor",
    "byte",
    "date",
    "duration",
    "k8sshortname",
    "k8slongname",
];
