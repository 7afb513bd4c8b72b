//! Converts JSON into CEL values, by the schema.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Program, Value as Cel};
use serde_json::Value;

use crate::node::{Additional, Format, Node, Type};

/// Returns the CEL value of a node. Objects show only their declared properties, under
/// names that are CEL identifiers; a null property is not set.
pub(crate) fn to_cel(node: &Node, value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => match (&node.types[..], number.as_i64(), number.as_f64().unwrap_or(f64::NAN)) {
            ([Type::Number], _, float) => Cel::Float(float),
            (_, Some(int), _) => Cel::Int(int),
            ([Type::Integer], None, float) if float.fract() == 0.0 => Cel::Int(float as i64),
            (_, None, float) => Cel::Float(float),
        },
        Value::String(text) if node.format == Some(Format::DateTime) => timestamp(text).unwrap_or_else(|| string(text)),
        Value::String(text) => string(text),
        Value::Array(items) => {
            let any = Node::default();
            let child = node.items.as_deref().unwrap_or(&any);
            Cel::List(Arc::new(items.iter().map(|item| to_cel(child, item)).collect()))
        }
        Value::Object(fields) => Cel::Map(Map { map: Arc::new(visible_fields(node, fields)) }),
    }
}

fn visible_fields(node: &Node, fields: &serde_json::Map<String, Value>) -> HashMap<Key, Cel> {
    let key = |name: String| Key::String(Arc::new(name));
    let mut map = HashMap::with_capacity(fields.len());
    for (name, value) in fields {
        if let Some(child) = node.properties.get(name) {
            if let Some(name) = escape(name).filter(|_| !value.is_null()) {
                map.insert(key(name), to_cel(child, value));
            }
        } else if let Additional::Schema(child) = &node.additional {
            map.insert(key(name.clone()), to_cel(child, value));
        }
    }
    if node.embedded_resource {
        map.insert(key("metadata".to_owned()), metadata(fields.get("metadata")));
        for name in ["apiVersion", "kind"] {
            let text = fields.get(name).and_then(Value::as_str).unwrap_or_default();
            map.insert(key(name.to_owned()), string(text));
        }
    }
    map
}

/// Returns the name of a property in rules; none if rules cannot name it.
pub(crate) fn escape(name: &str) -> Option<String> {
    let starts_well = name.chars().next().is_some_and(|c| !c.is_ascii_digit());
    if !starts_well || !name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c)) {
        return None;
    }
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let escaped = name.replace("__", "__underscores__");
    Some(escaped.replace('.', "__dot__").replace('-', "__dash__").replace('/', "__slash__"))
}

/// Of a resource's metadata, rules see only the name and the prefix of a generated name.
pub(crate) const VISIBLE_METADATA: [&str; 2] = ["name", "generateName"];

fn metadata(metadata: Option<&Value>) -> Cel {
    let visible = VISIBLE_METADATA.into_iter().filter_map(|name| {
        let text = metadata?.get(name)?.as_str()?;
        Some((Key::String(Arc::new(name.to_owned())), string(text)))
    });
    Cel::Map(Map { map: Arc::new(visible.collect()) })
}

fn string(text: &str) -> Cel {
    Cel::String(Arc::new(text.to_owned()))
}

fn timestamp(text: &str) -> Option<Cel> {
    static PROGRAM: LazyLock<Program> =
        LazyLock::new(|| Program::compile("timestamp(text)").expect("the program is a constant"));
    let mut context = crate::rules::context().new_inner_scope();
    context.add_variable_from_value("text", string(text));
    PROGRAM.execute(&context).ok()
}

/// Words that are not identifiers in CEL.
const RESERVED: &[&str] = &[
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_escaped_as_the_server_escapes_them() {
        let check = |name: &str, expected: Option<&str>| assert_eq!(escape(name).as_deref(), expected, "{name}");
        check("camelCase", Some("camelCase"));
        check("my_field", Some("my_field"));
        check("my__field", Some("my__underscores__field"));
        check("a-b.c/d", Some("a__dash__b__dot__c__slash__d"));
        check("namespace", Some("__namespace__"));
        check("1st", None);
        check("größe", None);
        check("", None);
    }
}
