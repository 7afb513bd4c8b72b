//! Rejects documents that would take the parser long: its time grows with the square of the bracket depth, and it expands
//! aliases.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor};

/// Checks that the document is small enough to be parsed. The error names the size and what is accepted.
///
/// A document that is not YAML passes: the parser has the better message.
pub(super) fn check(text: &str) -> Result<(), String> {
    if text.len() > MOST_BYTES {
        return Err(format!("the document has {} bytes; at most {MOST_BYTES} are accepted", text.len()));
    }
    if let Some(line) = line_of_excessive_nesting(text) {
        return Err(format!(
            "line {line} opens level {} of [ and {{; at most {MOST_LEVELS} are accepted",
            MOST_LEVELS + 1
        ));
    }
    // Without an alias a document is no larger than its text.
    if text.contains('*') && !fits_without_aliases(text) {
        return Err(format!(
            "the document has more than {MOST_BYTES} bytes with its aliases written out; at most {MOST_BYTES} are accepted"
        ));
    }
    Ok(())
}

/// An install-config has some kilobytes, mostly its pull secret; etcd accepts no object above 1.5 MiB.
const MOST_BYTES: usize = 1 << 20;
/// An install-config and a PKI have fewer than ten.
const MOST_LEVELS: usize = 64;

/// Returns the first line, counted from 1, with too many open brackets.
///
/// The scan recognizes quotes, comments, block scalars and plain text well enough to skip brackets in them. It is not a
/// YAML parser: it treats plain text over several lines outside of brackets as several values.
fn line_of_excessive_nesting(text: &str) -> Option<usize> {
    let mut scan = Scan::default();
    let mut lines = text.lines().enumerate();
    lines.find_map(|(index, line)| (scan.deepest_in(line.as_bytes()) > MOST_LEVELS).then_some(index + 1))
}

/// The state of a scan between two lines.
#[derive(Default)]
struct Scan {
    /// The number of open brackets.
    depth: usize,
    /// The closing quote, if the scan is inside a quoted text.
    quote: Option<u8>,
    /// True if the scan is inside an unquoted text.
    plain: bool,
    /// The indentation of the line that started a block scalar, if the scan is in one.
    block_scalar: Option<usize>,
}

impl Scan {
    /// Reads a line, and returns its largest depth.
    fn deepest_in(&mut self, line: &[u8]) -> usize {
        let indent = line.iter().take_while(|byte| **byte == b' ').count();
        if let Some(outer) = self.block_scalar {
            if indent > outer || line.trim_ascii().is_empty() {
                return self.depth;
            }
            self.block_scalar = None;
        }
        let mut deepest = self.depth;
        let mut at = if line.starts_with(b"---") && self.quote.is_none() { 3 } else { 0 };
        while let Some(&byte) = line.get(at) {
            let next = line.get(at + 1).copied();
            let ends_word = next.is_none_or(|next| next.is_ascii_whitespace());
            let in_brackets = self.depth > 0;
            at += 1;
            match (self.quote, byte) {
                (Some(b'"'), b'\\') => at += 1,
                (Some(b'\''), b'\'') if next == Some(b'\'') => at += 1,
                (Some(quote), _) => self.quote = Some(quote).filter(|quote| *quote != byte),
                (None, b' ' | b'\t') => {}
                (None, b'#') if at == 1 || line[at - 2].is_ascii_whitespace() => {
                    self.plain = false;
                    break;
                }
                (None, b'[' | b'{') if in_brackets || !self.plain => {
                    self.plain = false;
                    self.depth += 1;
                    deepest = deepest.max(self.depth);
                }
                (None, b']' | b'}') if in_brackets => {
                    self.plain = false;
                    self.depth -= 1;
                }
                (None, b',') if in_brackets => self.plain = false,
                (None, b':') if ends_word || in_brackets && !self.plain => self.plain = false,
                (None, b'-' | b'?') if ends_word && !self.plain => {}
                (None, b'\'' | b'"') if !self.plain => self.quote = Some(byte),
                (None, b'|' | b'>') if !in_brackets && !self.plain => {
                    self.block_scalar = Some(indent);
                    break;
                }
                // An anchor, an alias or a tag comes before, or instead of, a value.
                (None, b'&' | b'*' | b'!') if !self.plain => {
                    let ends = |byte: &u8| byte.is_ascii_whitespace() || b",[]{}".contains(byte);
                    at += line[at..].iter().take_while(|byte| !ends(byte)).count();
                }
                (None, _) => self.plain = true,
            }
        }
        self.plain &= self.depth > 0;
        deepest
    }
}

/// Returns true if all values and texts together, with aliases expanded, stay within the limit.
fn fits_without_aliases(text: &str) -> bool {
    let room = Cell::new(Some(MOST_BYTES));
    for document in serde_norway::Deserializer::from_str(text) {
        if Measure(&room).deserialize(document).is_err() {
            break;
        }
    }
    room.get().is_some()
}

/// Subtracts the size of a value from the remaining room, and fails when there is none left.
#[derive(Clone, Copy)]
struct Measure<'a>(&'a Cell<Option<usize>>);

impl Measure<'_> {
    fn take<E: Error>(self, bytes: usize) -> Result<(), E> {
        self.0.set(self.0.get().and_then(|room| room.checked_sub(bytes.max(1))));
        self.0.get().map(drop).ok_or_else(|| E::custom("the document is too large"))
    }
}

impl<'de> DeserializeSeed<'de> for Measure<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Measure<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E: Error>(self) -> Result<(), E> {
        self.take(1)
    }

    fn visit_bool<E: Error>(self, _: bool) -> Result<(), E> {
        self.take(1)
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<(), E> {
        self.take(1)
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<(), E> {
        self.take(1)
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<(), E> {
        self.take(1)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        self.take(text.len())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        self.take(1)?;
        while items.next_element_seed(self)?.is_some() {}
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        self.take(1)?;
        while entries.next_entry_seed(self, self)?.is_some() {}
        Ok(())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, tagged: A) -> Result<(), A::Error> {
        let (_, value) = tagged.variant::<String>()?;
        value.newtype_variant_seed(self)
    }
}

#[cfg(test)]
#[allow(clippy::needless_pass_by_value, reason = "expectations read best in place")]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(text: &str, expected: Expect) {
        expected.assert_eq(&match super::check(text) {
            Ok(()) => "accepted".to_owned(),
            Err(error) => error,
        });
    }

    /// Replaces the word `DEEP` in a text with too many brackets.
    fn check_deep(text: &str, expected: Expect) {
        check(&text.replace("DEEP", &"[".repeat(MOST_LEVELS + 1)), expected);
    }

    #[test]
    fn large_documents_are_rejected() {
        check(&"#".repeat(MOST_BYTES), expect!["accepted"]);
        check(&"#".repeat(MOST_BYTES + 1), expect!["the document has 1048577 bytes; at most 1048576 are accepted"]);
    }

    #[test]
    fn deep_brackets_are_rejected() {
        check(&format!("a: {}{}", "[".repeat(MOST_LEVELS), "]".repeat(MOST_LEVELS)), expect!["accepted"]);
        check(
            &format!("a: 1\nb: {}", "[".repeat(MOST_LEVELS + 1)),
            expect!["line 2 opens level 65 of [ and {; at most 64 are accepted"],
        );
        check(&"[".repeat(200_000), expect!["line 1 opens level 65 of [ and {; at most 64 are accepted"]);
        check(&"{a: [".repeat(MOST_LEVELS), expect!["line 1 opens level 65 of [ and {; at most 64 are accepted"]);
        check(&"[\n".repeat(MOST_LEVELS + 1), expect!["line 65 opens level 65 of [ and {; at most 64 are accepted"]);
        check(&"[a, {}], ".repeat(1000), expect!["accepted"]);
        check_deep("--- DEEP", expect!["line 1 opens level 65 of [ and {; at most 64 are accepted"]);
        check_deep("- DEEP", expect!["line 1 opens level 65 of [ and {; at most 64 are accepted"]);
        check_deep("? DEEP", expect!["line 1 opens level 65 of [ and {; at most 64 are accepted"]);
        check_deep("!tag &anchor DEEP", expect!["line 1 opens level 65 of [ and {; at most 64 are accepted"]);
        check_deep("['a', \"b\", DEEP", expect!["line 1 opens level 65 of [ and {; at most 64 are accepted"]);
        check_deep(
            "# it's a comment\na: it's text\nb: DEEP",
            expect!["line 3 opens level 65 of [ and {; at most 64 are accepted"],
        );
        check_deep(
            "a: |\n  '\n  \"\n\n  text\nb: DEEP",
            expect!["line 6 opens level 65 of [ and {; at most 64 are accepted"],
        );
        check_deep(
            "a: 'it''s'\nb: \"\\\"\"\nc: DEEP",
            expect!["line 3 opens level 65 of [ and {; at most 64 are accepted"],
        );
        check(
            &"[\"]\", ']', # ]\n".repeat(MOST_LEVELS + 1),
            expect!["line 65 opens level 65 of [ and {; at most 64 are accepted"],
        );
    }

    #[test]
    fn brackets_in_text_are_ignored() {
        check_deep("a: 'DEEP'", expect!["accepted"]);
        check_deep("a: 'it''s DEEP'", expect!["accepted"]);
        check_deep("a: \"\\\" DEEP\"", expect!["accepted"]);
        check_deep("a: \"first\n  DEEP\"", expect!["accepted"]);
        check_deep("a: text DEEP", expect!["accepted"]);
        check_deep("a: 1 # DEEP", expect!["accepted"]);
        check_deep("a: |\n  DEEP\n\n  DEEP\nb: 1", expect!["accepted"]);
        check_deep("- a: >-\n    DEEP\n", expect!["accepted"]);
        check_deep("[a: 'DEEP', b, {\"c\":\"DEEP\"}]", expect!["accepted"]);
    }

    #[test]
    fn aliases_are_counted_as_often_as_they_are_used() {
        let list = |item: &str, count: usize| format!("[{}]", vec![item; count].join(","));
        check(&format!("a: &a {}\nb: {}\n", list("x", 100), list("*a", 100)), expect!["accepted"]);
        // Many values, few jumps: the parser's own limit is on jumps.
        check(
            &format!("a: &a {}\nb: {}\n", list("x", 2_000), list("*a", 2_000)),
            expect![
                "the document has more than 1048576 bytes with its aliases written out; at most 1048576 are accepted"
            ],
        );
        // Long text, few values.
        check(
            &format!("a: &a {}\nb: {}\n", "x".repeat(100_000), list("*a", 20)),
            expect![
                "the document has more than 1048576 bytes with its aliases written out; at most 1048576 are accepted"
            ],
        );
        // As keys, merged and after tags.
        check(
            &format!("a: &a {}\nb: [{}]\n", "x".repeat(100_000), "{*a : 1},".repeat(20)),
            expect![
                "the document has more than 1048576 bytes with its aliases written out; at most 1048576 are accepted"
            ],
        );
        check(
            &format!("a: &a {{b: {}}}\nc: [{}]\n", "x".repeat(100_000), "{<<: *a},".repeat(20)),
            expect![
                "the document has more than 1048576 bytes with its aliases written out; at most 1048576 are accepted"
            ],
        );
        check(
            &format!("a: &a !t {}\nb: {}\n", "x".repeat(100_000), list("*a", 20)),
            expect![
                "the document has more than 1048576 bytes with its aliases written out; at most 1048576 are accepted"
            ],
        );
        // The parser explains what is not YAML.
        check("a: *nowhere", expect!["accepted"]);
    }
}
