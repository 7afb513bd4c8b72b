//! The kinds of keys, and the strength of each.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kind of key pair. A plan contains this instead of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum KeySpec {
    /// RSA with a modulus of this size.
    Rsa(RsaSize),
    /// ECDSA on this curve.
    Ecdsa(Curve),
}

/// The RSA modulus sizes that a policy may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RsaSize {
    /// 2048 bits.
    B2048,
    /// 3072 bits.
    B3072,
    /// 4096 bits.
    B4096,
}

/// The elliptic curves that a policy may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Curve {
    /// NIST P-256.
    P256,
    /// NIST P-384.
    P384,
    /// NIST P-521.
    P521,
}

impl KeySpec {
    /// Every kind of key, weakest RSA first.
    pub const ALL: [KeySpec; 6] = [
        KeySpec::Rsa(RsaSize::B2048),
        KeySpec::Rsa(RsaSize::B3072),
        KeySpec::Rsa(RsaSize::B4096),
        KeySpec::Ecdsa(Curve::P256),
        KeySpec::Ecdsa(Curve::P384),
        KeySpec::Ecdsa(Curve::P521),
    ];

    /// The kind of key without a policy.
    pub const PLATFORM_DEFAULT: KeySpec = KeySpec::Rsa(RsaSize::B2048);

    /// `RSA` or `ECDSA`, as the PKI resource and the metrics spell it.
    pub fn algorithm(self) -> &'static str {
        match self {
            KeySpec::Rsa(_) => "RSA",
            KeySpec::Ecdsa(_) => "ECDSA",
        }
    }

    /// The modulus size in bits, for RSA.
    pub fn key_size(self) -> Option<u32> {
        match self {
            KeySpec::Rsa(size) => Some(size.bits()),
            KeySpec::Ecdsa(_) => None,
        }
    }

    /// The curve, for ECDSA.
    pub fn curve(self) -> Option<Curve> {
        match self {
            KeySpec::Rsa(_) => None,
            KeySpec::Ecdsa(curve) => Some(curve),
        }
    }

    /// Comparable security strength in bits (NIST SP 800-57 part 1, table 2; RSA 4096 interpolated).
    pub fn strength(self) -> u32 {
        match self {
            KeySpec::Rsa(RsaSize::B2048) => 112,
            KeySpec::Rsa(RsaSize::B3072) => 128,
            KeySpec::Rsa(RsaSize::B4096) => 152,
            KeySpec::Ecdsa(Curve::P256) => 128,
            KeySpec::Ecdsa(Curve::P384) => 192,
            KeySpec::Ecdsa(Curve::P521) => 256,
        }
    }
}

impl RsaSize {
    /// The modulus size in bits.
    pub fn bits(self) -> u32 {
        match self {
            RsaSize::B2048 => 2048,
            RsaSize::B3072 => 3072,
            RsaSize::B4096 => 4096,
        }
    }

    /// The size with exactly this many bits, if a policy may ask for it.
    pub fn from_bits(bits: u32) -> Option<RsaSize> {
        [RsaSize::B2048, RsaSize::B3072, RsaSize::B4096].into_iter().find(|size| size.bits() == bits)
    }
}

impl Curve {
    /// `P256`, as the PKI resource and the metrics spell it.
    pub fn name(self) -> &'static str {
        match self {
            Curve::P256 => "P256",
            Curve::P384 => "P384",
            Curve::P521 => "P521",
        }
    }

    /// The curve that the PKI resource calls `name`.
    pub fn from_name(name: &str) -> Option<Curve> {
        [Curve::P256, Curve::P384, Curve::P521].into_iter().find(|curve| curve.name() == name)
    }
}

impl fmt::Display for KeySpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeySpec::Rsa(size) => write!(f, "RSA {}", size.bits()),
            KeySpec::Ecdsa(curve) => write!(f, "ECDSA {}", curve.name()),
        }
    }
}

/// The text is not one of the six kinds of key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown kind of key {found:?}: accepted are RSA 2048, RSA 3072, RSA 4096, ECDSA P256, ECDSA P384, ECDSA P521")]
pub struct ParseKeySpecError {
    /// The text that was found.
    pub found: String,
}

impl FromStr for KeySpec {
    type Err = ParseKeySpecError;

    fn from_str(text: &str) -> Result<KeySpec, ParseKeySpecError> {
        KeySpec::ALL
            .into_iter()
            .find(|key| key.to_string() == text)
            .ok_or_else(|| ParseKeySpecError { found: text.to_owned() })
    }
}

impl From<KeySpec> for String {
    fn from(key: KeySpec) -> String {
        key.to_string()
    }
}

impl TryFrom<String> for KeySpec {
    type Error = ParseKeySpecError;

    fn try_from(text: String) -> Result<KeySpec, ParseKeySpecError> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_ordered_by_the_strength_that_nist_gives_them() {
        let strength = |key: &str| key.parse::<KeySpec>().unwrap().strength();
        let order = ["RSA 2048", "RSA 3072", "RSA 4096", "ECDSA P384", "ECDSA P521"];
        assert!(order.is_sorted_by(|weaker, stronger| strength(weaker) < strength(stronger)));
        assert_eq!(strength("RSA 3072"), strength("ECDSA P256"));
    }

    /// Unknown sizes and curves are rejected.
    #[test]
    fn a_kind_of_key_in_parts() {
        let parts = |key: KeySpec| (key.algorithm(), key.key_size(), key.curve().map(Curve::name));
        assert_eq!(parts(KeySpec::Rsa(RsaSize::B3072)), ("RSA", Some(3072), None));
        assert_eq!(parts(KeySpec::Ecdsa(Curve::P521)), ("ECDSA", None, Some("P521")));
        assert_eq!(
            [2048, 3072, 4096, 1024].map(RsaSize::from_bits).map(|size| size.map(RsaSize::bits)),
            [Some(2048), Some(3072), Some(4096), None]
        );
        assert_eq!(
            ["P256", "P384", "P521", "p256"].map(Curve::from_name),
            [Some(Curve::P256), Some(Curve::P384), Some(Curve::P521), None]
        );
    }

    #[test]
    fn a_kind_of_key_is_its_text_in_json() {
        for key in KeySpec::ALL {
            let json = serde_json::to_string(&key).unwrap();
            assert_eq!(json, format!("\"{key}\""));
            assert_eq!(serde_json::from_str::<KeySpec>(&json).unwrap(), key);
        }
    }

    /// The type has no value for a size of 1024 bits.
    #[test]
    fn a_kind_of_key_round_trips_through_its_text() {
        for key in KeySpec::ALL {
            assert_eq!(key.to_string().parse(), Ok(key));
        }
        let error = "RSA 1024".parse::<KeySpec>().unwrap_err();
        assert!(error.to_string().contains("\"RSA 1024\""), "{error}");
    }
}
