//! Reads JSON and YAML within limits, and measures values before they are stored.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use crate::limits::{BODY_VALUES, OBJECT_DEPTH, YAML_BRACKETS};

/// Why the server rejects a text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unreadable {
    /// It is not JSON, or not YAML.
    #[error("{0}")]
    Malformed(String),
    /// It nests too deeply.
    #[error("it nests deeper than {OBJECT_DEPTH} levels")]
    Deep,
    /// It has too many values.
    #[error("it has more than {BODY_VALUES} values")]
    Many,
    /// It has too many brackets, before it is parsed.
    #[error("it has {found} brackets, at most {YAML_BRACKETS} are accepted; send JSON, where they are not counted")]
    Brackets {
        /// The number of brackets.
        found: usize,
    },
}

/// Reads JSON.
pub(crate) fn json(bytes: &[u8]) -> Result<Value, Unreadable> {
    let bounds = Bounds::default();
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let value = bounds.read(&mut deserializer, |error| error.to_string())?;
    deserializer.end().map_err(|error| Unreadable::Malformed(error.to_string()))?;
    Ok(value)
}

/// Reads YAML.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, Unreadable> {
    let found = bytes.iter().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if found > YAML_BRACKETS {
        return Err(Unreadable::Brackets { found });
    }
    Bounds::default().read(serde_norway::Deserializer::from_slice(bytes), |error| error.to_string())
}

/// The depth of a value, its number of values, and its length as JSON.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) depth: usize,
    pub(crate) values: usize,
    pub(crate) bytes: usize,
}

impl Size {
    /// Measures a value. The bytes of texts are counted before escaping.
    pub(crate) fn of(value: &Value) -> Size {
        let mut size = Size { depth: 0, values: 1, bytes: 0 };
        match value {
            Value::Null | Value::Bool(_) => size.bytes = 4,
            // The longest number has 24 characters.
            Value::Number(_) => size.bytes = 8,
            Value::String(text) => size.bytes = text.len() + 2,
            Value::Array(items) => {
                size.bytes = 2;
                items.iter().for_each(|item| size.hold(Size::of(item), 1));
                size.depth += 1;
            }
            Value::Object(fields) => {
                size.bytes = 2;
                fields.iter().for_each(|(name, value)| size.hold(Size::of(value), name.len() + 4));
                size.depth += 1;
            }
        }
        size
    }

    fn hold(&mut self, inner: Size, more: usize) {
        self.depth = self.depth.max(inner.depth);
        self.values += inner.values;
        self.bytes += inner.bytes + more;
    }
}

/// The remaining limits of a reader, and the limit that it exceeded.
#[derive(Default)]
struct Bounds {
    values: Cell<usize>,
    is_deep: Cell<bool>,
}

impl Bounds {
    fn read<'de, D: Deserializer<'de>>(
        &self,
        deserializer: D,
        why: impl Fn(D::Error) -> String,
    ) -> Result<Value, Unreadable> {
        let value = Bounded { bounds: self, depth: 0 }.deserialize(deserializer);
        value.map_err(|error| match () {
            () if self.is_deep.get() => Unreadable::Deep,
            () if self.values.get() > BODY_VALUES => Unreadable::Many,
            () => Unreadable::Malformed(why(error)),
        })
    }
}

/// Reads one value at a depth.
#[derive(Clone, Copy)]
struct Bounded<'b> {
    bounds: &'b Bounds,
    depth: usize,
}

impl Bounded<'_> {
    /// Returns a reader for the entries of a list or map.
    fn below<E: Error>(self) -> Result<Self, E> {
        if self.depth >= OBJECT_DEPTH {
            self.bounds.is_deep.set(true);
            return Err(E::custom("too deep"));
        }
        Ok(Bounded { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        let values = self.bounds.values.get() + 1;
        self.bounds.values.set(values);
        if values > BODY_VALUES {
            return Err(D::Error::custom("too many values"));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(below)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let below = self.below()?;
        let mut map = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            map.insert(name, fields.next_value_seed(below)?);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn nested(levels: usize) -> String {
        format!("{}{}", "[".repeat(levels), "]".repeat(levels))
    }

    #[test]
    fn json_and_yaml_are_read_as_before() {
        let text = r#"{"a":[1,-2,3.5,18446744073709551615,true,null,"ü\n"],"a.b":{},"a":{"c":[]}}"#;
        let plain: Value = serde_json::from_str(text).unwrap();
        assert_eq!(json(text.as_bytes()).unwrap(), plain);
        for wrong in ["", "{", "[1 2]", "{} {}", "nul", "\"\u{1}\""] {
            let expected = serde_json::from_str::<Value>(wrong).unwrap_err().to_string();
            assert_eq!(json(wrong.as_bytes()), Err(Unreadable::Malformed(expected)), "{wrong}");
        }
        let text = "a: [1, -2, 3.5, true, ~, 'x']\n1: {b: no}\nc: |\n  text [\nd: &x {e: 1}\nf: *x\n";
        let plain: Value = serde_norway::from_str(text).unwrap();
        assert_eq!(yaml(text.as_bytes()).unwrap(), plain);
        assert!(matches!(yaml(b"a: ["), Err(Unreadable::Malformed(_))));
    }

    #[test]
    fn a_body_that_nests_too_deeply_is_rejected() {
        assert!(json(nested(OBJECT_DEPTH).as_bytes()).is_ok());
        for levels in [OBJECT_DEPTH + 1, 200, 1_000_000] {
            assert_eq!(json(nested(levels).as_bytes()), Err(Unreadable::Deep), "{levels}");
        }
        assert!(yaml(nested(OBJECT_DEPTH).as_bytes()).is_ok());
        assert_eq!(yaml(nested(OBJECT_DEPTH + 1).as_bytes()), Err(Unreadable::Deep));
        // 60 kB of brackets took minutes to read.
        assert_eq!(yaml(&[b'['; 60_000]), Err(Unreadable::Brackets { found: 60_000 }));
        let blocks = "- ".repeat(30_000);
        assert!(yaml(blocks.as_bytes()).is_err());
    }

    #[test]
    fn a_body_with_too_many_values_is_rejected() {
        let list = |count: usize| format!("[{}0]", "0,".repeat(count - 1));
        assert!(json(list(BODY_VALUES - 1).as_bytes()).is_ok());
        assert_eq!(json(list(BODY_VALUES).as_bytes()), Err(Unreadable::Many));
        // An alias counts as everything that it names.
        let laughs = "a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\n\
                      d: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: [*e,*e,*e,*e,*e,*e,*e]\n";
        assert!(yaml(laughs.as_bytes()).is_err());
    }

    #[test]
    fn a_value_is_measured() {
        let value = json!({"a": [1, {"b": "xy"}], "c": {}});
        let Size { depth, values, bytes } = Size::of(&value);
        assert_eq!((depth, values), (3, 6));
        assert!(bytes.abs_diff(value.to_string().len()) < 20, "{bytes}");
        assert_eq!(Size::of(&json!("text")).depth, 0);
    }
}
