//! Reads DER one level at a time, so that unknown parts keep their bytes.

use der::asn1::AnyRef;
use der::{Encode, Reader, SliceReader, Tag, Tagged};

/// Returns the elements inside a constructed value, in their order.
///
/// `SET OF` is read this way too: the decoders of the crates sort it, which loses the original order.
pub(crate) fn elements(contents: &[u8]) -> der::Result<Vec<AnyRef<'_>>> {
    let mut reader = SliceReader::new(contents)?;
    let mut found = Vec::new();
    while !reader.is_finished() {
        found.push(reader.decode()?);
    }
    Ok(found)
}

/// Returns the elements of `any`, which must be a SEQUENCE.
pub(crate) fn sequence(any: AnyRef<'_>) -> der::Result<Vec<AnyRef<'_>>> {
    any.tag().assert_eq(Tag::Sequence)?;
    elements(any.value())
}

/// Returns `any` with its tag and length: the original bytes, because DER has only one encoding of these.
pub(crate) fn whole(any: AnyRef<'_>) -> der::Result<Vec<u8>> {
    any.to_der()
}

/// Returns the number of a context-specific tag.
pub(crate) fn context_number(any: AnyRef<'_>) -> Option<u32> {
    let tag = any.tag();
    tag.is_context_specific().then(|| tag.number().value())
}

/// Returns bytes as lowercase hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    bytes.iter().flat_map(|b| [b >> 4, b & 15]).map(|nibble| DIGITS[usize::from(nibble)] as char).collect()
}
