//! Reads PEM tolerantly, and names the block of each error.
//!
//! Accepted: comments and blank lines outside blocks, CRLF, base64 lines of any length, other kinds of blocks. Rejected,
//! because other readers of the same file would misread it: a byte order mark, indented or glued markers, OpenSSL's own
//! certificate labels.

use std::fmt;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

use crate::certificate::{Certificate, CertificateError};

/// The position of a block in a PEM text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The number of the block, from 1.
    pub block: usize,
    /// The number of blocks in the text.
    pub of: usize,
    /// The label in its BEGIN line.
    pub label: String,
    /// The line of its BEGIN, from 1.
    pub line: usize,
}

/// Why a PEM text, or one block of it, cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PemError {
    /// Most readers do not find a BEGIN line after a byte order mark.
    #[error("the text starts with a {encoding} byte order mark, which PEM readers do not skip")]
    ByteOrderMark {
        /// UTF-8 or UTF-16.
        encoding: &'static str,
    },
    /// Most readers require the marker at the start of its line.
    #[error("line {line}: \"-----BEGIN\" does not start its line")]
    BeginInsideLine {
        /// The line, from 1.
        line: usize,
    },
    /// Two files were concatenated without a line break between them.
    #[error("line {line}: \"-----BEGIN\" follows \"-----END\" on the same line, the line break is missing")]
    MissingLineBreak {
        /// The line, from 1.
        line: usize,
    },
    /// A BEGIN line without its closing dashes, or with text after them.
    #[error("line {line}: the BEGIN line is not \"-----BEGIN LABEL-----\"")]
    MalformedBegin {
        /// The line, from 1.
        line: usize,
    },
    /// An END line without an open block.
    #[error("line {line}: END without BEGIN")]
    EndWithoutBegin {
        /// The line, from 1.
        line: usize,
    },
    /// The END line has another label, or text after its dashes.
    #[error("{place}: its END line {line} is not \"-----END {}-----\"", place.label)]
    MalformedEnd {
        /// The block.
        place: Place,
        /// The line of the END, from 1.
        line: usize,
    },
    /// The block is cut off.
    #[error("{place}: no END line")]
    Unterminated {
        /// The block.
        place: Place,
    },
    /// The text between BEGIN and END is not base64.
    #[error("{place}: not base64")]
    Base64 {
        /// The block.
        place: Place,
    },
    /// A label that only OpenSSL reads; the content of the first one differs too.
    #[error("{place}: this label is not accepted, only CERTIFICATE is")]
    Label {
        /// The block.
        place: Place,
    },
    /// The block is not a certificate.
    #[error("{place}: not a readable certificate")]
    Certificate {
        /// The block.
        place: Place,
        /// The error.
        #[source]
        source: Box<CertificateError>,
    },
    /// There is no certificate in the text.
    #[error("no certificate found: {found}")]
    NoCertificate {
        /// What the text has instead.
        found: String,
    },
}

/// Reads every certificate of a text, at least one. Private keys and other blocks are skipped.
pub fn read_certificates(text: &[u8]) -> Result<Vec<Certificate>, PemError> {
    let (certificates, mut damage) = read_what_parses(text);
    if damage.is_empty() { Ok(certificates) } else { Err(damage.swap_remove(0)) }
}

/// Reads every certificate that parses, and returns the errors of the rest.
///
/// A text without a certificate is an error too.
pub(crate) fn read_what_parses(text: &[u8]) -> (Vec<Certificate>, Vec<PemError>) {
    let (mut certificates, mut damage, mut others) = (Vec::new(), Vec::new(), Vec::new());
    if let Some(encoding) = byte_order_mark(text) {
        damage.push(PemError::ByteOrderMark { encoding });
    }
    for block in blocks(text.strip_prefix(UTF8_MARK).unwrap_or(text)) {
        match block {
            Ok(Block { place, der, .. }) => match place.label.as_str() {
                "CERTIFICATE" => match Certificate::from_der(&der) {
                    Ok(certificate) => certificates.push(certificate),
                    Err(source) => damage.push(PemError::Certificate { place, source: source.into() }),
                },
                "TRUSTED CERTIFICATE" | "X509 CERTIFICATE" => damage.push(PemError::Label { place }),
                _ => others.push(place),
            },
            Err(error) => damage.push(error),
        }
    }
    if certificates.is_empty() && damage.is_empty() {
        damage.push(PemError::NoCertificate { found: describe_found(text, &others) });
    }
    (certificates, damage)
}

/// One decoded block.
pub(crate) struct Block {
    pub(crate) place: Place,
    pub(crate) der: Zeroizing<Vec<u8>>,
    /// True for the headers of RFC 1421; then `der` is empty.
    pub(crate) encrypted: bool,
}

/// Returns every block, or its error, in the order of the text.
pub(crate) fn blocks(text: &[u8]) -> Vec<Result<Block, PemError>> {
    let of = text.windows(BEGIN.len()).filter(|window| *window == BEGIN).count();
    let mut found = Vec::new();
    let mut open: Option<(Place, usize)> = None;
    let mut block = 0;
    let mut next_line_at = 0;
    for (index, whole_line) in text.split(|&b| b == b'\n').enumerate() {
        let (line_at, number) = (next_line_at, index + 1);
        next_line_at += whole_line.len() + 1;
        let mut line = whole_line.trim_ascii_end();
        if let Some(rest) = line.strip_prefix(END) {
            let Some((place, body_at)) = open.take() else {
                found.push(Err(PemError::EndWithoutBegin { line: number }));
                continue;
            };
            let rest = rest.strip_prefix(place.label.as_bytes()).and_then(|rest| rest.strip_prefix(DASHES));
            match rest {
                Some(rest) if rest.is_empty() || rest.starts_with(BEGIN) => {
                    found.push(decode(place, &text[body_at..line_at]));
                    line = rest;
                    if !rest.is_empty() {
                        found.push(Err(PemError::MissingLineBreak { line: number }));
                    }
                }
                _ => found.push(Err(PemError::MalformedEnd { place, line: number })),
            }
        }
        if let Some(rest) = line.strip_prefix(BEGIN) {
            block += 1;
            if let Some((place, _)) = open.take() {
                found.push(Err(PemError::Unterminated { place }));
            }
            match rest.strip_suffix(DASHES).filter(|label| is_label(label)) {
                Some(label) => {
                    let label = String::from_utf8_lossy(label).into_owned();
                    open = Some((Place { block, of, label, line: number }, next_line_at.min(text.len())));
                }
                None => found.push(Err(PemError::MalformedBegin { line: number })),
            }
        } else if line.windows(BEGIN.len()).any(|window| window == BEGIN) {
            block += 1;
            found.push(Err(PemError::BeginInsideLine { line: number }));
        }
    }
    if let Some((place, _)) = open {
        found.push(Err(PemError::Unterminated { place }));
    }
    found
}

/// Returns the encoding whose byte order mark starts the text.
pub(crate) fn byte_order_mark(text: &[u8]) -> Option<&'static str> {
    if text.starts_with(UTF8_MARK) {
        Some("UTF-8")
    } else if text.starts_with(b"\xff\xfe") || text.starts_with(b"\xfe\xff") {
        Some("UTF-16")
    } else {
        None
    }
}

/// Describes a text in which the wanted block was not found.
pub(crate) fn describe_found(text: &[u8], others: &[Place]) -> String {
    if text.trim_ascii().is_empty() {
        "the text is empty".to_owned()
    } else if others.is_empty() {
        format!("the text of {} bytes has no PEM block", text.len())
    } else {
        let labels: Vec<_> = others.iter().map(|place| place.label.as_str()).collect();
        format!("the text has only {}", labels.join(", "))
    }
}

/// Returns true for short capital words. Any other text is more likely damage, perhaps of a key, and must not be shown.
fn is_label(label: &[u8]) -> bool {
    !label.is_empty()
        && label.len() <= 40
        && label.iter().all(|b| b.is_ascii_uppercase() || b" 0123456789#".contains(b))
}

fn decode(place: Place, body: &[u8]) -> Result<Block, PemError> {
    let mut base64 = Zeroizing::new(Vec::with_capacity(body.len()));
    let (mut in_headers, mut encrypted) = (true, false);
    for line in body.split(|&b| b == b'\n') {
        in_headers = in_headers && line.contains(&b':');
        if in_headers {
            encrypted |= line.starts_with(b"Proc-Type:") && line.trim_ascii_end().ends_with(b"ENCRYPTED");
        } else {
            base64.extend(line.iter().filter(|b| !b.is_ascii_whitespace()));
        }
    }
    if encrypted {
        return Ok(Block { place, der: Zeroizing::new(Vec::new()), encrypted });
    }
    // Allocated in advance, because a growing vector leaves copies of a key behind.
    let mut der = Zeroizing::new(vec![0; base64::decoded_len_estimate(base64.len())]);
    match BASE64.decode_slice(&*base64, &mut der) {
        Ok(length) => der.truncate(length),
        Err(_) => return Err(PemError::Base64 { place }),
    }
    Ok(Block { place, der, encrypted })
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PEM block {} of {} ({}, line {})", self.block, self.of, self.label, self.line)
    }
}

impl PemError {
    /// Returns the damaged block, if it was recognized.
    pub fn place(&self) -> Option<&Place> {
        match self {
            PemError::MalformedEnd { place, .. }
            | PemError::Unterminated { place }
            | PemError::Base64 { place }
            | PemError::Label { place }
            | PemError::Certificate { place, .. } => Some(place),
            _ => None,
        }
    }
}

const BEGIN: &[u8] = b"-----BEGIN ";
const END: &[u8] = b"-----END ";
const DASHES: &[u8] = b"-----";
const UTF8_MARK: &[u8] = b"\xef\xbb\xbf";

/// Unused trailing bits are ignored, as in Go: DER has its own length.
const BASE64: GeneralPurpose =
    GeneralPurpose::new(&STANDARD, GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true));

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Ca;

    /// `A` and `B` stand for a certificate each; checks the number of certificates, or the error.
    fn check(text: &str, expected: Result<usize, &str>) {
        let pem = Ca::root("a").certificate.to_pem();
        let text = text.replace("<A>", pem.trim_end());
        let read = read_certificates(text.as_bytes());
        let read = read.map(|certificates| certificates.len()).map_err(|error| error.to_string());
        assert_eq!(read.as_ref().map(|count| *count).map_err(String::as_str), expected, "{text}");
    }

    #[test]
    fn certificates_are_found_between_other_blocks() {
        check("<A>", Ok(1));
        check("<A>\n", Ok(1));
        check("# comment\n\n<A>\n\n# other\n<A>\n\n", Ok(2));
        check("<A>  \r\n<A>\r\n", Ok(2));
        check("-----BEGIN EC PARAMETERS-----\nAAAA\n-----END EC PARAMETERS-----\n<A>", Ok(1));
    }

    #[test]
    fn an_error_names_its_block_and_line() {
        check("", Err("no certificate found: the text is empty"));
        check("x", Err("no certificate found: the text of 1 bytes has no PEM block"));
        check(
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
            Err("no certificate found: the text has only PUBLIC KEY"),
        );
        check("\u{feff}<A>", Err("the text starts with a UTF-8 byte order mark, which PEM readers do not skip"));
        check(
            "-----BEGIN TRUSTED CERTIFICATE-----\nAAAA\n-----END TRUSTED CERTIFICATE-----",
            Err("PEM block 1 of 1 (TRUSTED CERTIFICATE, line 1): this label is not accepted, only CERTIFICATE is"),
        );
        check(
            "#\n-----BEGIN X509 CERTIFICATE-----\nAAAA\n-----END X509 CERTIFICATE-----\n<A>",
            Err("PEM block 1 of 2 (X509 CERTIFICATE, line 2): this label is not accepted, only CERTIFICATE is"),
        );
        check(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n<A>",
            Err("PEM block 1 of 2 (CERTIFICATE, line 1): not a readable certificate"),
        );
        check(
            "-----BEGIN CERTIFICATE-----\nA-A\n-----END CERTIFICATE-----",
            Err("PEM block 1 of 1 (CERTIFICATE, line 1): not base64"),
        );
        check("-----BEGIN CERTIFICATE-----\nAAAA\n<A>", Err("PEM block 1 of 2 (CERTIFICATE, line 1): no END line"));
        check(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERT-----",
            Err("PEM block 1 of 1 (CERTIFICATE, line 1): its END line 3 is not \"-----END CERTIFICATE-----\""),
        );
        check("<A>\n-----END CERTIFICATE-----", Err("line 11: END without BEGIN"));
        check("-----BEGIN CERTIFICATE", Err("line 1: the BEGIN line is not \"-----BEGIN LABEL-----\""));
        check("  <A>", Err("line 1: \"-----BEGIN\" does not start its line"));
        check(
            "<A><A>",
            Err("line 10: \"-----BEGIN\" follows \"-----END\" on the same line, the line break is missing"),
        );
    }

    #[test]
    fn trailing_bytes_after_a_certificate_are_an_error() {
        let mut der = Ca::root("a").certificate.der().to_vec();
        der.push(0);
        let text = der::pem::encode_string("CERTIFICATE", der::pem::LineEnding::LF, &der).unwrap();
        let error = read_certificates(text.as_bytes()).unwrap_err();
        let source = std::error::Error::source(&error).unwrap().to_string();
        assert!(source.contains("trailing data"), "{source}");
    }

    #[test]
    fn a_begin_line_with_a_key_in_it_is_not_repeated_in_the_error() {
        let error = read_certificates(b"-----BEGIN CERTIFICATE-----MIIEsecret").unwrap_err();
        assert_eq!(error, PemError::MalformedBegin { line: 1 });
    }
}
