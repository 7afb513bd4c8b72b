//! Parses an OpenAPI v3 structural schema into a tree, and refuses what would not be enforced.

use std::collections::BTreeMap;

use regex::Regex;
use serde_json::Value;

use crate::rules::Rule;
use keywords::{Keywords, Place, object};

mod keywords;

/// One node of a schema.
#[derive(Debug, Default)]
pub(crate) struct Node {
    /// Where in the schema, for messages of [`SchemaError`].
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

/// The formats that are checked. A server ignores the formats it does not know, and so do we.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    Int32,
    Int64,
    Float,
    Double,
    DateTime,
}

/// Which fields an object may have beside its properties.
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

/// How the entries of a list are told apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    #[default]
    Atomic,
    Set,
    Map(Vec<String>),
}

/// A schema that cannot be enforced as it is written.
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
        /// What stood there.
        found: String,
    },
    /// A keyword, a value of one, or their combination is not enforced here.
    #[error("schema of {at}: {what} is not supported")]
    Unsupported {
        /// The field that the schema describes.
        at: String,
        /// The keyword, with its value where that matters.
        what: String,
    },
    /// A pattern is not a regular expression.
    #[error("schema of {at}: pattern {pattern:?} is not a regular expression")]
    Pattern {
        /// The field that the schema describes.
        at: String,
        /// The pattern.
        pattern: String,
        /// Why not.
        #[source]
        source: Box<regex::Error>,
    },
    /// A CEL rule cannot be compiled or refers to something that does not exist.
    #[error("schema of {at}: rule {rule:?}: {problem}")]
    Rule {
        /// The field that the schema describes.
        at: String,
        /// The rule.
        rule: String,
        /// What is wrong with it.
        problem: String,
    },
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
        Ok(Node {
            nullable: keywords.flag("nullable")?,
            preserve_unknown: keywords.flag("x-kubernetes-preserve-unknown-fields")?,
            embedded_resource: keywords.flag("x-kubernetes-embedded-resource")?,
            list_type: keywords.list_type()?,
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

    /// Makes this the root of a resource, which has `apiVersion`, `kind` and `metadata` whatever
    /// the schema says.
    pub(crate) fn make_resource_root(&mut self) {
        self.embedded_resource = true;
    }

    /// The schema of a property, or of what stands under any other key.
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

    /// The nodes below this one that describe other values: no branches of `allOf` and the like.
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

/// What a message calls the node at this path.
pub(crate) fn name_of(at: &str) -> String {
    if at.is_empty() { "the root".to_owned() } else { at.to_owned() }
}
