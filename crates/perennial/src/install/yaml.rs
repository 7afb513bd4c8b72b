//! Writes small YAML documents, some of which contain a key.
//!
//! A general YAML library would copy a key through buffers that are not zeroized, and would not quote a timestamp, which some parsers
//! then read as a date. This module builds the text once, in zeroized memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::{Zeroize, Zeroizing};

/// A document under construction.
#[derive(Default)]
pub(crate) struct Document {
    text: Zeroizing<Vec<u8>>,
}

impl Document {
    /// Adds a fixed line, such as `metadata:`.
    pub(crate) fn line(&mut self, line: &str) -> &mut Document {
        self.push(line.as_bytes());
        self.push(b"\n")
    }

    /// Adds `<prefix><quoted value>`.
    pub(crate) fn text(&mut self, prefix: &str, value: &str) -> &mut Document {
        self.push(prefix.as_bytes());
        // A JSON string is a YAML string in double quotes.
        self.line(&serde_json::Value::from(value).to_string())
    }

    /// Adds `<prefix><value in base64>`.
    pub(crate) fn base64(&mut self, prefix: &str, value: &[u8]) -> &mut Document {
        self.push(prefix.as_bytes());
        let length = base64::encoded_len(value.len(), true).expect("a key is not half the address space");
        let mut encoded = Zeroizing::new(vec![0; length]);
        STANDARD.encode_slice(value, &mut encoded).expect("the buffer has the length of the result");
        self.push(&encoded);
        self.push(b"\n")
    }

    /// Adds `<prefix>|` and the indented lines of the value.
    pub(crate) fn block(&mut self, prefix: &str, indent: &str, value: &str) -> &mut Document {
        self.line(&format!("{prefix}|"));
        for line in value.lines() {
            self.line(&format!("{indent}{line}"));
        }
        self
    }

    /// Returns the document.
    pub(crate) fn finish(self) -> Zeroizing<Vec<u8>> {
        self.text
    }

    /// Adds bytes. Grows by copying to a new buffer and zeroizing the old one, which `Vec` does not do.
    fn push(&mut self, bytes: &[u8]) -> &mut Document {
        if self.text.capacity() - self.text.len() < bytes.len() {
            let mut larger = Vec::with_capacity((self.text.len() + bytes.len()) * 2);
            larger.extend_from_slice(&self.text);
            self.text.zeroize();
            *self.text = larger;
        }
        self.text.extend_from_slice(bytes);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_is_escaped_correctly() {
        let odd = "2026-01-01T00:00:00Z \"quoted\": {not: yaml} # no comment\\";
        let mut document = Document::default();
        document.line("a:").text("  text: ", odd).base64("  bytes: ", b"\x00\xff key").block(
            "  block: ",
            "    ",
            "1\n2\n",
        );
        let text = String::from_utf8(document.finish().to_vec()).unwrap();
        let value: serde_json::Value = serde_norway::from_str(&text).unwrap();
        assert_eq!(value["a"]["text"], odd);
        assert_eq!(STANDARD.decode(value["a"]["bytes"].as_str().unwrap()).unwrap(), b"\x00\xff key");
        assert_eq!(value["a"]["block"], "1\n2\n");
    }
}
