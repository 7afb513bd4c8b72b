//! Distinguished names: written as Go does, kept byte for byte, and formatted for display.

use std::collections::BTreeSet;
use std::fmt;

use der::asn1::{AnyRef, ObjectIdentifier, SetOfVec};
use der::{Encode, Sequence, Tag, Tagged, ValueOrd};
use perennial_core::spec::Subject;

use crate::asn1;

/// A distinguished name. Two names are equal if their bytes are, as in Go and webpki.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// An RDNSequence that [`attributes`] reads without error.
    der: Vec<u8>,
}

/// Why a distinguished name cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// An attribute is empty or has a NUL character.
    #[error("{attribute} {value:?} of the subject is empty or has a NUL character")]
    Value {
        /// CN, O or OU.
        attribute: &'static str,
        /// The value.
        value: String,
    },
    /// The DER is not a name.
    #[error("not a distinguished name: {0}")]
    Der(der::Error),
    /// An attribute is not a valid string of its type; Go rejects such certificates.
    #[error("attribute {attribute} is not a valid {string_type}")]
    Attribute {
        /// CN or a dotted object identifier.
        attribute: String,
        /// The type, such as PrintableString.
        string_type: String,
    },
}

impl Name {
    /// Writes a subject as Go does: O, OU, CN; several values of one type as a single multi-valued RDN.
    pub fn from_subject(subject: &Subject) -> Result<Name, NameError> {
        let common_name = (!subject.common_name.is_empty()).then_some(&subject.common_name);
        let mut rdns = Vec::new();
        for (oid, attribute, values) in [
            (ORGANIZATION, "O", &subject.organizations[..]),
            (ORGANIZATIONAL_UNIT, "OU", &subject.organizational_units[..]),
            (COMMON_NAME, "CN", common_name.map(std::slice::from_ref).unwrap_or_default()),
        ] {
            let mut rdn = SetOfVec::new();
            let mut seen = BTreeSet::new();
            // A SET has no duplicates.
            for value in values.iter().filter(|value| seen.insert(*value)) {
                if value.is_empty() || value.contains('\0') {
                    return Err(NameError::Value { attribute, value: value.clone() });
                }
                let tag = if value.bytes().all(is_go_printable) { Tag::PrintableString } else { Tag::Utf8String };
                let value = AnyRef::new(tag, value.as_bytes()).map_err(NameError::Der)?;
                rdn.insert(Attribute { oid, value }).map_err(NameError::Der)?;
            }
            if !values.is_empty() {
                rdns.push(rdn);
            }
        }
        Ok(Name { der: rdns.to_der().map_err(NameError::Der)? })
    }

    /// Reads a name and checks that every attribute is a valid string of its type.
    pub fn from_der(der: &[u8]) -> Result<Name, NameError> {
        attributes(der)?;
        Ok(Name { der: der.to_vec() })
    }

    /// Returns the bytes of the name.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Returns true if it has no attribute.
    pub fn is_empty(&self) -> bool {
        self.rdns().is_empty()
    }

    /// Returns the last CN, as Go does.
    pub fn common_name(&self) -> Option<String> {
        self.values("CN").pop()
    }

    /// Returns every O, in the order of the bytes.
    pub fn organizations(&self) -> Vec<String> {
        self.values("O")
    }

    /// Returns every OU, in the order of the bytes.
    pub fn organizational_units(&self) -> Vec<String> {
        self.values("OU")
    }

    fn values(&self, wanted: &str) -> Vec<String> {
        self.rdns().into_iter().flatten().filter(|(attribute, _)| attribute == wanted).map(|(_, value)| value).collect()
    }

    /// Returns the RDNs without empty ones, which the standard forbids and Go reads.
    fn rdns(&self) -> Vec<Vec<(String, String)>> {
        let mut rdns = attributes(&self.der).unwrap_or_default();
        rdns.retain(|rdn| !rdn.is_empty());
        rdns
    }
}

/// The most significant RDN is last in the bytes and first in the text: `CN=admin,O=dev+O=ops` (RFC 4514).
impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, rdn) in self.rdns().iter().rev().enumerate() {
            for (part, (attribute, value)) in rdn.iter().enumerate() {
                let separator = match (index, part) {
                    (0, 0) => "",
                    (_, 0) => ",",
                    _ => "+",
                };
                write!(f, "{separator}{attribute}={}", Escaped(value))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}

/// An AttributeTypeAndValue.
#[derive(Clone, Debug, PartialEq, Eq, Sequence, ValueOrd)]
struct Attribute<'a> {
    oid: ObjectIdentifier,
    value: AnyRef<'a>,
}

/// Returns the attributes of each RDN, by short name or dotted object identifier.
fn attributes(name: &[u8]) -> Result<Vec<Vec<(String, String)>>, NameError> {
    let rdns = AnyRef::try_from(name).and_then(asn1::sequence).map_err(NameError::Der)?;
    let read_rdn = |rdn: AnyRef<'_>| {
        rdn.tag().assert_eq(Tag::Set).map_err(NameError::Der)?;
        let attributes = asn1::elements(rdn.value()).map_err(NameError::Der)?;
        attributes.into_iter().map(|any| read_attribute(any.decode_as().map_err(NameError::Der)?)).collect()
    };
    rdns.into_iter().map(read_rdn).collect()
}

fn read_attribute(Attribute { oid, value }: Attribute<'_>) -> Result<(String, String), NameError> {
    let oid = oid.to_string();
    let attribute = SHORT_NAMES.iter().find(|(dotted, _)| *dotted == oid).map_or(oid, |(_, short)| (*short).to_owned());
    let bytes = value.value();
    let ascii = |accepted: bool| accepted.then(|| String::from_utf8_lossy(bytes).into_owned());
    let text = match value.tag() {
        Tag::Utf8String => String::from_utf8(bytes.to_vec()).ok(),
        // `*` and `&` are not in the standard's set, but are so common that Go accepts them.
        Tag::PrintableString => ascii(bytes.iter().all(|&b| is_go_printable(b) || b == b'*' || b == b'&')),
        Tag::Ia5String => ascii(bytes.is_ascii()),
        Tag::NumericString => ascii(bytes.iter().all(|b| b.is_ascii_digit() || *b == b' ')),
        Tag::TeletexString => Some(bytes.iter().map(|&b| char::from(b)).collect()),
        Tag::BmpString if bytes.len() % 2 == 0 => {
            let units: Vec<u16> = bytes.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
            String::from_utf16(&units).ok()
        }
        _ => None,
    };
    match text {
        Some(text) => Ok((attribute, text)),
        None => Err(NameError::Attribute { attribute, string_type: value.tag().to_string() }),
    }
}

/// Returns true for the characters for which Go chooses PrintableString.
fn is_go_printable(b: u8) -> bool {
    b.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&b)
}

/// Escapes by RFC 4514 section 2.4, and control characters so that the text stays on one line.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.0.chars().count().saturating_sub(1);
        for (index, c) in self.0.chars().enumerate() {
            match c {
                ',' | '+' | '"' | '\\' | '<' | '>' | ';' => write!(f, "\\{c}")?,
                '#' if index == 0 => f.write_str("\\#")?,
                ' ' if index == 0 || index == last => f.write_str("\\ ")?,
                // Line breaks, and characters that reorder or hide the text around them.
                c if c.is_control()
                    || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}') =>
                {
                    let mut utf8 = [0; 4];
                    for byte in c.encode_utf8(&mut utf8).bytes() {
                        write!(f, "\\{byte:02X}")?;
                    }
                }
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");
const ORGANIZATIONAL_UNIT: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.11");

const SHORT_NAMES: [(&str, &str); 10] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.5", "SERIALNUMBER"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(common_name: &str, organizations: &[&str], units: &[&str]) -> Subject {
        let owned = |list: &[&str]| list.iter().map(|&text| text.to_owned()).collect();
        Subject {
            common_name: common_name.to_owned(),
            organizations: owned(organizations),
            organizational_units: owned(units),
        }
    }

    fn check(subject: &Subject, readable: &str, hex: &str) {
        let name = Name::from_subject(subject).unwrap();
        assert_eq!(name.to_string(), readable);
        assert_eq!(asn1::hex(name.der()), hex, "{readable}");
        assert_eq!(Name::from_der(name.der()), Ok(name));
    }

    /// The expected bytes are what `pkix.Name{…}.ToRDNSequence()` marshals to.
    #[test]
    fn names_are_written_as_go_writes_them() {
        check(&subject("", &[], &[]), "", "3000");
        check(&subject("ab", &[], &[]), "CN=ab", "300d310b3009060355040313026162");
        check(&subject("a@b", &[], &[]), "CN=a@b", "300e310c300a06035504030c03614062");
        check(&subject("a*", &[], &[]), "CN=a*", "300d310b300906035504030c02612a");
        check(
            &subject("c", &["o"], &["u"]),
            "CN=c,OU=u,O=o",
            "3024310a300806035504 0a13016f310a300806035504 0b130175310a300806035504 03130163".replace(' ', "").as_str(),
        );
    }

    #[test]
    fn several_organizations_are_one_sorted_rdn() {
        let name = Name::from_subject(&subject("admin", &["system:masters", "dev"], &[])).unwrap();
        assert_eq!(name.to_string(), "CN=admin,O=dev+O=system:masters");
        assert_eq!(name.organizations(), ["dev", "system:masters"]);
        assert_eq!(name.common_name().as_deref(), Some("admin"));
        let twice = Name::from_subject(&subject("admin", &["dev", "dev"], &[])).unwrap();
        assert_eq!(twice.to_string(), "CN=admin,O=dev");
    }

    #[test]
    fn a_readable_name_stays_on_one_line() {
        let name = Name::from_subject(&subject(" a,b\n\u{202e}c+d ", &["#x"], &[])).unwrap();
        assert_eq!(name.to_string(), "CN=\\ a\\,b\\0A\\E2\\80\\AEc\\+d\\ ,O=\\#x");
    }

    #[test]
    fn an_rdn_without_an_attribute_is_read_and_not_shown() {
        let empty = Name::from_der(&[0x30, 2, 0x31, 0]).unwrap();
        assert!(empty.is_empty());
        assert_eq!(empty.to_string(), "");
        let common_name = [0x31, 0x0b, 0x30, 9, 6, 3, 0x55, 4, 3, 0x13, 2, b'a', b'b'];
        let der = [&[0x30, 17, 0x31, 0], &common_name[..], &[0x31, 0]].concat();
        let name = Name::from_der(&der).unwrap();
        assert_eq!((name.to_string().as_str(), name.is_empty(), name.der()), ("CN=ab", false, &der[..]));
    }

    #[test]
    fn an_empty_or_nul_value_is_rejected() {
        for bad in ["", "a\0b"] {
            let error = Name::from_subject(&subject("cn", &[bad], &[])).unwrap_err();
            assert!(error.to_string().starts_with("O "), "{error}");
        }
    }

    #[test]
    fn strings_that_are_not_of_their_type_are_rejected() {
        let check = |tag: u8, value: &[u8], expected: Result<&str, &str>| {
            let mut atv = vec![0x06, 3, 0x55, 4, 3, tag, u8::try_from(value.len()).unwrap()];
            atv.extend(value);
            for outer in [0x30, 0x31, 0x30] {
                atv.splice(0..0, [outer, u8::try_from(atv.len()).unwrap()]);
            }
            let read = Name::from_der(&atv).map(|name| name.to_string()).map_err(|error| error.to_string());
            assert_eq!(read.as_deref().map_err(String::as_str), expected);
        };
        check(0x13, b"plain", Ok("CN=plain"));
        check(0x13, b"a*&", Ok("CN=a*&"));
        check(0x13, b"a_b", Err("attribute CN is not a valid PrintableString"));
        check(0x13, b"a@b", Err("attribute CN is not a valid PrintableString"));
        check(0x0c, b"\xff", Err("attribute CN is not a valid UTF8String"));
        check(0x16, b"\xe4", Err("attribute CN is not a valid IA5String"));
        check(0x14, b"\xe4", Ok("CN=\u{e4}"));
        check(0x1e, b"\0a\0b", Ok("CN=ab"));
        check(0x1e, b"\0a\0", Err("attribute CN is not a valid BMPString"));
        check(0x02, b"\x01", Err("attribute CN is not a valid INTEGER"));
    }
}
