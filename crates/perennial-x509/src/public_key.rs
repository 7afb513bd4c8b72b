//! Public keys: their kinds, their bytes and their key identifiers.

use std::fmt;

use aws_lc_rs::digest;
use der::asn1::{AnyRef, BitStringRef, ObjectIdentifier, UintRef};
use perennial_core::key::{Curve, KeySpec, RsaSize};

use crate::{asn1, meter};

/// A public key as a certificate carries it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PublicKey {
    /// The whole SubjectPublicKeyInfo, byte for byte.
    spki: Vec<u8>,
    /// The value of its BIT STRING: a PKCS#1 key or a point.
    bits: Vec<u8>,
    kind: KeyKind,
}

/// The kind of a certificate's key, including kinds that no policy may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum KeyKind {
    /// One of the kinds that a policy may ask for.
    Known(KeySpec),
    /// RSA with a modulus of another size.
    OtherRsa {
        /// The size of the modulus.
        bits: u32,
    },
    /// Ed25519.
    Ed25519,
    /// ECDSA on another curve.
    OtherCurve {
        /// The curve's dotted object identifier, or `explicit parameters`.
        curve: String,
    },
    /// Another algorithm.
    Other {
        /// The dotted object identifier.
        oid: String,
    },
}

impl PublicKey {
    /// Reads a SubjectPublicKeyInfo.
    pub fn from_spki_der(spki: &[u8]) -> Result<PublicKey, der::Error> {
        let [identifier, bits] = asn1::sequence(AnyRef::try_from(spki)?)?[..] else {
            return Err(der::ErrorKind::Failed.to_error());
        };
        let parameters = asn1::sequence(identifier)?;
        let algorithm: ObjectIdentifier =
            parameters.first().ok_or_else(|| der::ErrorKind::Failed.to_error())?.decode_as()?;
        let bits = bits.decode_as::<BitStringRef<'_>>()?;
        let bits = bits.as_bytes().ok_or_else(|| der::ErrorKind::Failed.to_error())?;
        let kind = match algorithm {
            RSA => KeyKind::rsa(modulus_bits(bits)?),
            EC => KeyKind::curve(parameters.get(1).copied()),
            ED25519 => KeyKind::Ed25519,
            other => KeyKind::Other { oid: other.to_string() },
        };
        Ok(PublicKey { spki: spki.to_vec(), bits: bits.to_vec(), kind })
    }

    /// Returns the whole SubjectPublicKeyInfo, byte for byte.
    pub fn spki_der(&self) -> &[u8] {
        &self.spki
    }

    /// Returns the kind of the key.
    pub fn kind(&self) -> &KeyKind {
        &self.kind
    }

    /// The key identifier of RFC 7093 section 2, method 1: the leftmost 160 bits of SHA-256 over
    /// the value of the BIT STRING.
    pub fn key_id(&self) -> Vec<u8> {
        meter::crypto(|| digest::digest(&digest::SHA256, &self.bits)).as_ref()[..20].to_vec()
    }

    /// Returns true if both are the same key, with any encoding.
    pub fn is_same_key(&self, other: &PublicKey) -> bool {
        self.kind == other.kind && self.bits == other.bits
    }

    /// Returns why some verifier rejects this key, if any does.
    ///
    /// OpenSSL and GnuTLS reject RSA below 2048 bits, TLS in Go rejects it above 8192 bits; Go does not read other curves and
    /// compressed points.
    pub(crate) fn unacceptable(&self) -> Option<String> {
        match &self.kind {
            KeyKind::Known(KeySpec::Ecdsa(_)) if self.bits.first() != Some(&UNCOMPRESSED) => {
                Some(format!("{} with a point that is not uncompressed", self.kind))
            }
            KeyKind::Known(_) | KeyKind::Ed25519 | KeyKind::OtherRsa { bits: 2048..=8192 } => None,
            KeyKind::OtherRsa { .. } | KeyKind::OtherCurve { .. } | KeyKind::Other { .. } => {
                Some(self.kind.to_string())
            }
        }
    }

    /// The value of the BIT STRING.
    pub(crate) fn bits(&self) -> &[u8] {
        &self.bits
    }
}

impl KeyKind {
    /// Returns the kind as a policy spells it, if a policy may ask for it.
    pub fn spec(&self) -> Option<KeySpec> {
        match self {
            KeyKind::Known(spec) => Some(*spec),
            _ => None,
        }
    }

    /// Returns true for RSA of any size.
    pub fn is_rsa(&self) -> bool {
        matches!(self, KeyKind::Known(KeySpec::Rsa(_)) | KeyKind::OtherRsa { .. })
    }

    pub(crate) fn rsa(bits: u32) -> KeyKind {
        match RsaSize::from_bits(bits) {
            Some(size) => KeyKind::Known(KeySpec::Rsa(size)),
            None => KeyKind::OtherRsa { bits },
        }
    }

    /// The kind of an EC key with these parameters.
    pub(crate) fn curve(parameters: Option<AnyRef<'_>>) -> KeyKind {
        match parameters.and_then(|parameters| parameters.decode_as::<ObjectIdentifier>().ok()) {
            Some(P256) => KeyKind::Known(KeySpec::Ecdsa(Curve::P256)),
            Some(P384) => KeyKind::Known(KeySpec::Ecdsa(Curve::P384)),
            Some(P521) => KeyKind::Known(KeySpec::Ecdsa(Curve::P521)),
            Some(other) => KeyKind::OtherCurve { curve: other.to_string() },
            None => KeyKind::OtherCurve { curve: "explicit parameters".to_owned() },
        }
    }

    /// The kind that a PKCS#8 algorithm identifier names, without the size of an RSA key.
    pub(crate) fn describe(algorithm: ObjectIdentifier) -> KeyKind {
        match algorithm {
            ED25519 => KeyKind::Ed25519,
            other => KeyKind::Other { oid: other.to_string() },
        }
    }
}

/// The size of the modulus of a PKCS#1 public key.
fn modulus_bits(pkcs1: &[u8]) -> der::Result<u32> {
    let parts = asn1::sequence(AnyRef::try_from(pkcs1)?)?;
    let modulus: UintRef<'_> = parts.first().ok_or_else(|| der::ErrorKind::Failed.to_error())?.decode_as()?;
    Ok(bit_length(modulus.as_bytes()))
}

/// The number of significant bits of a big-endian integer.
pub(crate) fn bit_length(bytes: &[u8]) -> u32 {
    let significant = bytes.iter().position(|&b| b != 0).map_or(&[][..], |first| &bytes[first..]);
    let leading = significant.first().map_or(0, |first| first.leading_zeros());
    u32::try_from(significant.len() * 8).unwrap_or(u32::MAX).saturating_sub(leading)
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyKind::Known(spec) => spec.fmt(f),
            KeyKind::OtherRsa { bits } => write!(f, "RSA {bits}"),
            KeyKind::Ed25519 => f.write_str("Ed25519"),
            KeyKind::OtherCurve { curve } => match curve.as_str() {
                "1.3.132.0.10" => f.write_str("ECDSA secp256k1"),
                "1.3.132.0.33" => f.write_str("ECDSA P224"),
                other => write!(f, "ECDSA on {other}"),
            },
            KeyKind::Other { oid } => match oid.as_str() {
                "1.2.840.113549.1.1.10" => f.write_str("RSA-PSS"),
                "1.2.840.10040.4.1" => f.write_str("DSA"),
                "1.3.101.110" => f.write_str("X25519"),
                "1.3.101.113" => f.write_str("Ed448"),
                other => write!(f, "algorithm {other}"),
            },
        }
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({}, id {})", self.kind, asn1::hex(&self.key_id()))
    }
}

pub(crate) const RSA: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.113549.1.1.1");
pub(crate) const EC: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.2.1");
const ED25519: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.101.112");
const P256: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.2.840.10045.3.1.7");
const P384: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.34");
const P521: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.132.0.35");

/// The first byte of a point that has both coordinates (SEC 1 section 2.3.3).
const UNCOMPRESSED: u8 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bit_length_ignores_leading_zeros() {
        let check = |bytes: &[u8], bits| assert_eq!(bit_length(bytes), bits, "{bytes:?}");
        check(&[], 0);
        check(&[0, 0], 0);
        check(&[1], 1);
        check(&[0, 0x80, 0], 16);
        check(&[0x7f, 0xff], 15);
    }
}
