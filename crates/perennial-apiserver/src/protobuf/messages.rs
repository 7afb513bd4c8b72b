//! The supported messages: the numbers and types of their fields.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// The type of a field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holds {
    Text,
    Bool,
    Number,
    /// Bytes, which JSON has as base64.
    Bytes,
    /// A time with a precision of seconds.
    Time,
    /// A time with a precision of microseconds.
    MicroTime,
    Quantity,
    NumberOrText,
    /// A message with a list of texts.
    Texts,
    /// Bytes with JSON.
    Json,
    Message(&'static str),
    /// A message whose fields JSON has in the parent.
    Inline(&'static str),
    List(Box<Holds>),
    Map(Box<Holds>),
}

#[derive(Debug)]
pub(super) struct Field {
    /// The name in JSON.
    pub(super) name: &'static str,
    pub(super) holds: Holds,
    /// True if zero differs from absent.
    pub(super) keeps_zero: bool,
}

/// The fields of a message, by number.
pub(super) type Message = BTreeMap<u64, Field>;

/// Returns a message by its name, which must be in the table.
pub(super) fn message(name: &str) -> &'static Message {
    static TABLE: LazyLock<BTreeMap<&str, Message>> = LazyLock::new(|| table(include_str!("messages.txt")));
    TABLE.get(name).expect("every message that is named is in the table")
}

fn table(text: &'static str) -> BTreeMap<&'static str, Message> {
    let mut table: BTreeMap<&str, Message> = BTreeMap::new();
    let mut of = "";
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        // A line that starts with a space continues the previous one.
        let fields = match line.split_once(": ") {
            Some((name, fields)) => {
                of = name;
                fields
            }
            None => line,
        };
        for field in fields.split(',').map(str::trim).filter(|field| !field.is_empty()) {
            let mut words = field.split(' ');
            let number = words.next().and_then(|number| number.parse().ok()).expect("a field begins with its number");
            let name = words.next().expect("a field has a name");
            let holds = words.next().map_or(Holds::Text, |of| if name == "+" { Holds::Inline(of) } else { holds(of) });
            let (name, keeps_zero) = name.strip_suffix('!').map_or((name, false), |name| (name, true));
            table.entry(of).or_default().insert(number, Field { name, holds, keeps_zero });
        }
    }
    table
}

fn holds(text: &'static str) -> Holds {
    let inside = |open: char, close: char| text.strip_prefix(open).and_then(|rest| rest.strip_suffix(close));
    if let Some(of) = inside('[', ']') {
        return Holds::List(Box::new(holds(of)));
    }
    if let Some(of) = inside('{', '}') {
        return Holds::Map(Box::new(holds(of)));
    }
    match text {
        "string" => Holds::Text,
        "bool" => Holds::Bool,
        "int" => Holds::Number,
        "bytes" => Holds::Bytes,
        "time" => Holds::Time,
        "microtime" => Holds::MicroTime,
        "quantity" => Holds::Quantity,
        "int-or-string" => Holds::NumberOrText,
        "texts" => Holds::Texts,
        "json" => Holds::Json,
        name => Holds::Message(name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::KINDS;

    /// Walks through all types of a message; panics at a name that is not in the table.
    fn walk(name: &'static str, above: &[&str]) {
        assert!(!above.contains(&name), "{name} holds itself: bytes could be nested without an end");
        let above = [above, &[name]].concat();
        for field in message(name).values() {
            let mut holds = &field.holds;
            while let Holds::List(of) | Holds::Map(of) = holds {
                holds = of;
            }
            if let Holds::Message(inner) | Holds::Inline(inner) = holds {
                walk(inner, &above);
            }
        }
    }

    #[test]
    fn messages_have_the_same_fields_as_objects() {
        for (name, message) in table(include_str!("messages.txt")) {
            // A message has its kind in the envelope, JSON has it inside.
            let Some(expected) = crate::builtin::fields::names(name) else { continue };
            let is_kind = KINDS.contains(&name);
            let expected = expected.into_iter().filter(|field| !is_kind || !["apiVersion", "kind"].contains(field));
            let mut found: Vec<&str> = message.values().map(|field| field.name).collect();
            found.sort_unstable();
            assert_eq!(found, expected.collect::<Vec<_>>(), "{name}");
        }
    }

    #[test]
    fn every_named_message_is_in_the_table_and_none_contains_itself() {
        KINDS.iter().for_each(|kind| walk(kind, &[]));
    }
}
