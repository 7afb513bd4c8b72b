//! Checks that a row of the database can be read as an object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// Rejects a row that is not a JSON object, or is too deep to be read. It keeps nothing of it, as a database may have many rows.
pub(super) fn check(body: &[u8]) -> serde_json::Result<()> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    Deserializer::deserialize_map(&mut deserializer, Skim)?;
    deserializer.end()
}

/// Parses a value like a later read, and drops it.
#[derive(Clone, Copy)]
struct Skim;

impl<'de> DeserializeSeed<'de> for Skim {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Skim {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        while items.next_element_seed(Skim)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        while fields.next_key::<IgnoredAny>()?.is_some() {
            fields.next_value_seed(Skim)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_readable_if_it_is_an_object() {
        let nested = |levels: usize| format!("{{\"a\":{}{}}}", "[".repeat(levels), "]".repeat(levels));
        for right in ["{}", r#"{"a":[1,-1,1.5,true,null,"x"],"b":{}}"#, &nested(100)] {
            assert!(check(right.as_bytes()).is_ok(), "{right}");
        }
        for wrong in ["", "null", "[]", "1", "\"a\"", "{", "{}x", r#"{"a":}"#, &nested(128), &nested(100_000)] {
            assert!(check(wrong.as_bytes()).is_err(), "{wrong:.50}");
        }
    }
}
