//! Private keys: generating them, signing with them, and writing them as PEM.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, EcPrivateKeyRfc5915Der, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{self as aws, EcdsaKeyPair, EcdsaSigningAlgorithm, KeyPair, RsaKeyPair};
use der::pem::LineEnding;
use perennial_core::key::{Curve, KeySpec, RsaSize};
use zeroize::Zeroizing;

use crate::certificate::Certificate;
use crate::meter;
use crate::pem::PemError;
use crate::public_key::{KeyKind, PublicKey};
use crate::random;
use crate::signature::SignatureAlgorithm;

/// A key pair. It has no `Clone` and no `Display`, and its `Debug` shows only its kind.
///
/// The private half is inside the crypto library, which zeroizes it on drop.
pub struct PrivateKey {
    pair: Pair,
    public: PublicKey,
}

enum Pair {
    Rsa(RsaKeyPair),
    Ecdsa(Curve, EcdsaKeyPair),
}

/// Why a private key could not be generated, read, used or written.
///
/// No variant carries bytes of the key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The PEM around the key is damaged.
    #[error("failed to read the PEM of a private key")]
    Pem(#[from] PemError),
    /// There is no private key in the text.
    #[error("no private key found: {found}")]
    NoKey {
        /// What the text has instead.
        found: String,
    },
    /// Perennial does not guess which of them is meant.
    #[error("{count} private keys found where exactly one is accepted")]
    SeveralKeys {
        /// The number of keys.
        count: usize,
    },
    /// The key is encrypted, and there is no passphrase.
    #[error("the private key at line {line} ({label}) is encrypted: only unencrypted keys are accepted")]
    Encrypted {
        /// The label of its PEM block.
        label: String,
        /// The line of its BEGIN.
        line: usize,
    },
    /// A kind of key that Perennial does not use.
    #[error("the private key is {found}: accepted are RSA from 2048 bits and ECDSA P256, P384, P521")]
    Unsupported {
        /// Its kind or format.
        found: String,
    },
    /// SEC1 with neither curve nor public key fits every curve.
    #[error("the SEC1 private key names neither its curve nor its public key, so its curve would be a guess")]
    AmbiguousCurve,
    /// The DER inside the PEM is not a private key.
    #[error("the private key is malformed: {what}")]
    Malformed {
        /// The part and its error.
        what: String,
    },
    /// The crypto library failed to generate a key.
    #[error("failed to generate a key {spec}")]
    Generate {
        /// The requested kind.
        spec: KeySpec,
    },
    /// The generation panicked.
    #[error("the generation of a key {spec} panicked")]
    Panicked {
        /// The requested kind.
        spec: KeySpec,
    },
    /// The pool was dropped before the key was generated.
    #[error("key generation ended before the key {spec} was generated")]
    PoolClosed {
        /// The requested kind.
        spec: KeySpec,
    },
    /// The crypto library failed to sign.
    #[error("failed to sign with a key {kind}")]
    Sign {
        /// The kind of the key.
        kind: KeyKind,
    },
    /// The crypto library failed to encode.
    #[error("failed to encode a key {kind}")]
    Encode {
        /// The kind of the key.
        kind: KeyKind,
    },
}

impl PrivateKey {
    /// Generates a key pair. RSA takes from tens of milliseconds to seconds: see [`crate::keygen`].
    pub fn generate(spec: KeySpec) -> Result<PrivateKey, KeyError> {
        let rsa = |size| meter::crypto(|| RsaKeyPair::generate(size)).map(Pair::Rsa);
        let pair = match spec {
            KeySpec::Rsa(RsaSize::B2048) => rsa(KeySize::Rsa2048),
            KeySpec::Rsa(RsaSize::B3072) => rsa(KeySize::Rsa3072),
            KeySpec::Rsa(RsaSize::B4096) => rsa(KeySize::Rsa4096),
            KeySpec::Ecdsa(curve) => {
                meter::crypto(|| EcdsaKeyPair::generate(signing(curve))).map(|pair| Pair::Ecdsa(curve, pair))
            }
        };
        PrivateKey::new(pair.map_err(|_| KeyError::Generate { spec })?)
    }

    /// Reads the one private key in a PEM text: PKCS#1, SEC1 or PKCS#8.
    ///
    /// Other blocks (certificates, `EC PARAMETERS`), comments and blank lines are skipped.
    pub fn from_pem(text: &[u8]) -> Result<PrivateKey, KeyError> {
        crate::key_pem::read(text)
    }

    pub(crate) fn from_rsa(pair: RsaKeyPair) -> Result<PrivateKey, KeyError> {
        PrivateKey::new(Pair::Rsa(pair))
    }

    pub(crate) fn from_ecdsa(curve: Curve, pair: EcdsaKeyPair) -> Result<PrivateKey, KeyError> {
        PrivateKey::new(Pair::Ecdsa(curve, pair))
    }

    fn new(pair: Pair) -> Result<PrivateKey, KeyError> {
        let spki = meter::crypto(|| match &pair {
            Pair::Rsa(pair) => AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()),
            Pair::Ecdsa(_, pair) => AsDer::<PublicKeyX509Der<'_>>::as_der(pair.public_key()),
        });
        let malformed = |what: &str| KeyError::Malformed { what: what.to_owned() };
        let spki = spki.map_err(|_| malformed("its public half cannot be encoded"))?;
        let public = PublicKey::from_spki_der(spki.as_ref())
            .map_err(|_| malformed("its public half is no SubjectPublicKeyInfo"))?;
        Ok(PrivateKey { pair, public })
    }

    /// Returns the kind as a policy spells it; none for an imported RSA key of another size.
    pub fn spec(&self) -> Option<KeySpec> {
        self.public.kind().spec()
    }

    /// Returns the public half.
    pub fn public_key(&self) -> &PublicKey {
        &self.public
    }

    /// Returns true if the certificate is for this key.
    pub fn matches(&self, certificate: &Certificate) -> bool {
        self.public.is_same_key(&certificate.facts().public_key)
    }

    /// Returns the algorithm of [`PrivateKey::sign`], which follows from the key alone.
    pub fn signature_algorithm(&self) -> SignatureAlgorithm {
        match &self.pair {
            Pair::Rsa(_) => SignatureAlgorithm::of_signer(None),
            Pair::Ecdsa(curve, _) => SignatureAlgorithm::of_signer(Some(*curve)),
        }
    }

    /// Signs `message` with [`PrivateKey::signature_algorithm`].
    pub fn sign(&self, message: &[u8]) -> Result<Vec<u8>, KeyError> {
        let failed = |_| KeyError::Sign { kind: self.public.kind().clone() };
        match &self.pair {
            Pair::Rsa(pair) => {
                // The library panics unless the buffer has exactly this length.
                let mut signature = vec![0; pair.public_modulus_len()];
                let sign = || pair.sign(&aws::RSA_PKCS1_SHA256, &random::source(), message, &mut signature);
                meter::crypto(sign).map_err(failed)?;
                Ok(signature)
            }
            Pair::Ecdsa(_, pair) => {
                let signature = meter::crypto(|| pair.sign(&random::source(), message)).map_err(failed)?;
                Ok(signature.as_ref().to_vec())
            }
        }
    }

    /// Returns the key in the format that existing consumers parse: PKCS#1 for RSA, SEC1 for ECDSA.
    pub fn to_pem(&self) -> Result<Zeroizing<String>, KeyError> {
        match &self.pair {
            Pair::Rsa(pair) => {
                let pkcs8 =
                    meter::crypto(|| AsDer::<Pkcs8V1Der<'_>>::as_der(pair)).map_err(|_| self.encode_failed())?;
                // The crypto library writes no PKCS#1, but PKCS#8 is a wrapper around one.
                let info = pkcs8::PrivateKeyInfoRef::try_from(pkcs8.as_ref()).map_err(|_| self.encode_failed())?;
                self.pem("RSA PRIVATE KEY", info.private_key.as_bytes())
            }
            Pair::Ecdsa(_, pair) => {
                let sec1 = meter::crypto(|| AsDer::<EcPrivateKeyRfc5915Der<'_>>::as_der(&pair.private_key()));
                self.pem("EC PRIVATE KEY", sec1.map_err(|_| self.encode_failed())?.as_ref())
            }
        }
    }

    /// Returns the key as PKCS#8, the same format for all kinds.
    pub fn to_pkcs8_pem(&self) -> Result<Zeroizing<String>, KeyError> {
        match &self.pair {
            Pair::Rsa(pair) => {
                let pkcs8 =
                    meter::crypto(|| AsDer::<Pkcs8V1Der<'_>>::as_der(pair)).map_err(|_| self.encode_failed())?;
                self.pem("PRIVATE KEY", pkcs8.as_ref())
            }
            Pair::Ecdsa(_, pair) => {
                let pkcs8 = meter::crypto(|| pair.to_pkcs8v1()).map_err(|_| self.encode_failed())?;
                self.pem("PRIVATE KEY", pkcs8.as_ref())
            }
        }
    }

    fn pem(&self, label: &str, der: &[u8]) -> Result<Zeroizing<String>, KeyError> {
        der::pem::encode_string(label, LineEnding::LF, der).map(Zeroizing::new).map_err(|_| self.encode_failed())
    }

    fn encode_failed(&self) -> KeyError {
        KeyError::Encode { kind: self.public.kind().clone() }
    }
}

/// The curve decides the hash, so that every signature algorithm follows from the issuer's key.
pub(crate) fn signing(curve: Curve) -> &'static EcdsaSigningAlgorithm {
    match curve {
        Curve::P256 => &aws::ECDSA_P256_SHA256_ASN1_SIGNING,
        Curve::P384 => &aws::ECDSA_P384_SHA384_ASN1_SIGNING,
        Curve::P521 => &aws::ECDSA_P521_SHA512_ASN1_SIGNING,
    }
}

impl fmt::Debug for PrivateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PrivateKey({}, redacted)", self.public.kind())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::key;

    #[test]
    fn every_kind_of_key_has_its_kind_and_signs() {
        for spec in KeySpec::ALL {
            let key = key(spec);
            assert_eq!(key.spec(), Some(spec));
            assert_eq!(format!("{key:?}"), format!("PrivateKey({spec}, redacted)"));
            let signature = key.sign(b"message").unwrap();
            let algorithm = key.signature_algorithm();
            assert!(algorithm.verifies(key.public_key(), b"message", &signature), "{spec}");
            assert!(!algorithm.verifies(key.public_key(), b"massage", &signature), "{spec}");
        }
    }

    #[test]
    fn the_signature_algorithm_follows_the_key() {
        let check = |spec: &str, algorithm: &str| {
            let key = key(spec.parse().unwrap());
            assert_eq!(key.signature_algorithm().to_string(), algorithm);
        };
        check("RSA 2048", "RSA with SHA-256");
        check("RSA 4096", "RSA with SHA-256");
        check("ECDSA P256", "ECDSA with SHA-256");
        check("ECDSA P384", "ECDSA with SHA-384");
        check("ECDSA P521", "ECDSA with SHA-512");
    }

    #[test]
    fn keys_are_written_as_pkcs1_sec1_and_pkcs8() {
        for spec in KeySpec::ALL {
            let key = key(spec);
            let label = if spec.curve().is_some() { "EC" } else { "RSA" };
            let pem = key.to_pem().unwrap();
            assert!(pem.starts_with(&format!("-----BEGIN {label} PRIVATE KEY-----\n")), "{spec}");
            assert!(pem.ends_with(&format!("-----END {label} PRIVATE KEY-----\n")), "{spec}");
            assert!(key.to_pkcs8_pem().unwrap().starts_with("-----BEGIN PRIVATE KEY-----\n"), "{spec}");
        }
    }
}
