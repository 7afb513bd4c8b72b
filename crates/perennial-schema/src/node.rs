//! Parses an OpenAPI v3 structural schema into a tree, and rejects what this crate does not enforce.

use std::collections::BTreeMap;

use regex::{Regex, RegexBuilder};
use serde_json::Value;

use crate::limits::{KEY_DEFAULT_BYTES, PATTERN_BYTES, PATTERNS_BYTES};
use crate::rules::Rule;
use keywords::{Keywords, Place, object};

mod keywords;

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// The path in the schema, for messages of [`SchemaError`].
    pub(crate) at: String,
    pub(crate) types: Vec<Type>,
    pub(crate) format: Option<Format>,
    pub(crate) nullable: bool,
    pub(crate) properties: BTreeMap<String, Node>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<Box<Node>>,
    pub(crate) default: Option<Value>,
    pub(crate) allowed: Vec<Value>,
    pub(crate) required: Vec<String>,
    pub(crate) bounds: Bounds,
    pub(crate) pattern: Option<Regex>,
    pub(crate) list_type: ListType,
    pub(crate) preserve_unknown: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) all_of: Vec<Node>,
    pub(crate) any_of: Vec<Node>,
    pub(crate) one_of: Vec<Node>,
    pub(crate) not: Option<Box<Node>>,
    pub(crate) rules: Vec<Rule>,
}

/// The JSON types of OpenAPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

/// The formats that are checked. Unknown formats are ignored, as in a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Int32,
    Int64,
    Float,
    Double,
    DateTime,
}

/// Which fields an object may have besides its properties.
#[derive(Debug, Default)]
pub(crate) enum Additional {
    #[default]
    None,
    Any,
    Schema(Box<Node>),
}

#[derive(Debug, Default)]
pub(crate) struct Bounds {
    pub(crate) min_length: Option<u64>,
    pub(crate) max_length: Option<u64>,
    pub(crate) min_items: Option<u64>,
    pub(crate) max_items: Option<u64>,
    pub(crate) min_properties: Option<u64>,
    pub(crate) max_properties: Option<u64>,
    pub(crate) minimum: Option<f64>,
    pub(crate) maximum: Option<f64>,
    pub(crate) exclusive_minimum: bool,
    pub(crate) exclusive_maximum: bool,
    pub(crate) multiple_of: Option<f64>,
}

/// How the entries of a list are identified.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// Why a schema cannot be enforced.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// A keyword has a value of the wrong kind.
    #[error("schema of {at}: {keyword} must be {expected}, found {found}")]
    Malformed {
        /// The field that the schema describes.
        at: String,
        /// The keyword.
        keyword: String,
        /// What is accepted.
        expected: &'static str,
        /// The value.
        found: String,
    },
    /// A keyword, its value, or a combination is not enforced by this crate.
    #[error("schema of {at}: {what} is not supported")]
    Unsupported {
        /// The field that the schema describes.
        at: String,
        /// The keyword, with its value if that matters.
        what: String,
    },
    /// A pattern is not a regular expression.
    #[error("schema of {at}: pattern {pattern:?} is not a regular expression")]
    Pattern {
        /// The field that the schema describes.
        at: String,
        /// The pattern.
        pattern: String,
        /// The error.
        #[source]
        source: Box<regex::Error>,
    },
    /// All patterns together are too large.
    #[error(
        "the patterns of the whole schema take more than {} bytes when they are compiled",
        crate::limits::PATTERNS_BYTES
    )]
    PatternsTooLarge,
    /// A CEL rule cannot be compiled or refers to something that does not exist.
    #[error("schema of {at}: rule {rule:?}: {problem}")]
    Rule {
        /// The field that the schema describes.
        at: String,
        /// The rule.
        rule: String,
        /// The error.
        problem: String,
    },
    /// All CEL rules together are too long.
    #[error(
        "x-kubernetes-validations have {bytes} bytes in the whole schema, at most {} are accepted",
        crate::limits::RULES_BYTES
    )]
    RulesTooLong {
        /// The bytes of all expressions.
        bytes: usize,
    },
    /// No thread could be started to compile rules.
    #[error("no thread could be started to compile x-kubernetes-validations")]
    Thread(#[source] std::io::Error),
    /// The parser of rules failed.
    #[error("the parser of x-kubernetes-validations failed")]
    Parser,
}

/// Returns the bytes of all CEL expressions of a schema.
pub(crate) fn rules_bytes(schema: &Value) -> usize {
    match schema {
        Value::Object(fields) => {
            let rules = fields.get("x-kubernetes-validations").and_then(Value::as_array).into_iter().flatten();
            let texts = rules.flat_map(|rule| [rule.get("rule"), rule.get("messageExpression")]);
            // Every rule counts, even one without a text.
            let own: usize = texts.map(|text| text.and_then(Value::as_str).map_or(1, str::len)).sum();
            own + fields.values().map(rules_bytes).sum::<usize>()
        }
        Value::Array(items) => items.iter().map(rules_bytes).sum(),
        _ => 0,
    }
}

/// Rejects a schema whose patterns together take too much memory. They are compiled one after the other, and none is kept.
pub(crate) fn check_patterns(schema: &Value) -> Result<(), SchemaError> {
    let mut room = PATTERNS_BYTES;
    if patterns_fit(schema, &mut room) { Ok(()) } else { Err(SchemaError::PatternsTooLarge) }
}

fn patterns_fit(schema: &Value, room: &mut usize) -> bool {
    match schema {
        Value::Object(fields) => {
            if let Some(Value::String(pattern)) = fields.get("pattern") {
                let bytes = compiled_bytes(pattern);
                if bytes > *room {
                    return false;
                }
                *room -= bytes;
            }
            fields.values().all(|inner| patterns_fit(inner, room))
        }
        Value::Array(items) => items.iter().all(|inner| patterns_fit(inner, room)),
        _ => true,
    }
}

/// Returns the bytes of a compiled pattern, rounded up to a power of two. An invalid pattern is rejected later.
fn compiled_bytes(pattern: &str) -> usize {
    let sizes = std::iter::successors(Some(4 << 10), |size| Some(size * 2)).take_while(|size| *size <= PATTERN_BYTES);
    sizes.into_iter().find(|size| RegexBuilder::new(pattern).size_limit(*size).build().is_ok()).unwrap_or(PATTERN_BYTES)
}

impl Node {
    pub(crate) fn compile(schema: &Value) -> Result<Node, SchemaError> {
        Node::compile_at(schema, String::new(), Place::Spine)
    }

    fn compile_at(schema: &Value, at: String, place: Place) -> Result<Node, SchemaError> {
        let keywords = Keywords { at: &at, fields: object(&at, "the schema", schema)? };
        keywords.refuse_unknown(place)?;
        let child = |name: &str| if at.is_empty() { name.to_owned() } else { format!("{at}.{name}") };
        let mut properties = BTreeMap::new();
        if let Some(children) = keywords.get("properties") {
            for (name, schema) in object(&at, "properties", children)? {
                properties.insert(name.clone(), Node::compile_at(schema, child(name), place)?);
            }
        }
        let additional = match keywords.get("additionalProperties") {
            None => Additional::None,
            Some(Value::Bool(true)) => Additional::Any,
            Some(Value::Bool(false)) => return Err(keywords.unsupported("additionalProperties: false")),
            Some(schema) => Additional::Schema(Box::new(Node::compile_at(schema, child("*"), place)?)),
        };
        let items = match keywords.get("items") {
            None => None,
            Some(schema) => Some(Box::new(Node::compile_at(schema, format!("{at}[]"), place)?)),
        };
        let branches = |keyword| -> Result<Vec<Node>, SchemaError> {
            let schemas = keywords.list(keyword)?.iter();
            schemas.map(|schema| Node::compile_at(schema, at.clone(), Place::Branch)).collect()
        };
        let not = match keywords.get("not") {
            None => None,
            Some(schema) => Some(Box::new(Node::compile_at(schema, at.clone(), Place::Branch)?)),
        };
        let (all_of, any_of, one_of) = (branches("allOf")?, branches("anyOf")?, branches("oneOf")?);
        let rules = keywords.list("x-kubernetes-validations")?.iter();
        let rules = rules.map(|rule| Rule::compile(rule, &at)).collect::<Result<_, _>>()?;
        let types = keywords.types()?;
        let format = keywords.format(&types)?;
        let (required, bounds, pattern) = (keywords.strings("required")?, keywords.bounds()?, keywords.pattern()?);
        let (default, allowed) = (keywords.get("default").cloned(), keywords.list("enum")?.to_vec());
        let list_type = keywords.list_type()?;
        if let (ListType::Map(keys), Some(items)) = (&list_type, &items) {
            let defaults = keys.iter().filter_map(|key| items.properties.get(key)?.default.as_ref());
            if let Some(bytes) = defaults.map(|it| it.to_string().len()).find(|bytes| *bytes > KEY_DEFAULT_BYTES) {
                let what = format!("a default of {bytes} bytes for a key of x-kubernetes-list-type: map");
                return Err(keywords.unsupported(format!("{what} (accepted are {KEY_DEFAULT_BYTES})")));
            }
        }
        Ok(Node {
            nullable: keywords.flag("nullable")?,
            preserve_unknown: keywords.flag("x-kubernetes-preserve-unknown-fields")?,
            embedded_resource: keywords.flag("x-kubernetes-embedded-resource")?,
            list_type,
            types,
            format,
            properties,
            additional,
            items,
            default,
            allowed,
            required,
            bounds,
            pattern,
            all_of,
            any_of,
            one_of,
            not,
            rules,
            at,
        })
    }

    /// Makes this the root of a resource, which has `apiVersion`, `kind` and `metadata` in addition to
    /// the schema.
    pub(crate) fn make_resource_root(&mut self) {
        self.embedded_resource = true;
    }

    /// Returns the schema of a property, or of any other key.
    pub(crate) fn field(&self, name: &str) -> Option<&Node> {
        match (self.properties.get(name), &self.additional) {
            (Some(node), _) => Some(node),
            (None, Additional::Schema(node)) => Some(node),
            (None, _) => None,
        }
    }

    pub(crate) fn has_rules(&self) -> bool {
        !self.rules.is_empty() || self.children().any(Node::has_rules)
    }

    /// Returns the child nodes that describe other values, without branches such as `allOf`.
    pub(crate) fn children(&self) -> impl Iterator<Item = &Node> {
        let additional = match &self.additional {
            Additional::Schema(node) => Some(&**node),
            _ => None,
        };
        self.properties.values().chain(additional).chain(self.items.as_deref())
    }
}

impl Type {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Type::Object => "object",
            Type::Array => "array",
            Type::String => "string",
            Type::Integer => "integer",
            Type::Number => "number",
            Type::Boolean => "boolean",
        }
    }

    fn from_name(name: &str) -> Option<Type> {
        [Type::Object, Type::Array, Type::String, Type::Integer, Type::Number, Type::Boolean]
            .into_iter()
            .find(|kind| kind.name() == name)
    }
}

impl Format {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Format::Int32 => "int32",
            Format::Int64 => "int64",
            Format::Float => "float",
            Format::Double => "double",
            Format::DateTime => "date-time",
        }
    }
}

/// Returns the name of the node at this path in messages.
pub(crate) fn name_of(at: &str) -> String {
    if at.is_empty() { "the root".to_owned() } else { at.to_owned() }
}
