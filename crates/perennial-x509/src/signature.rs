//! The signature algorithms of certificates: which one a key signs with, and how a signature is checked.

use std::fmt;

use aws_lc_rs::signature as aws;
use der::asn1::{AnyRef, ObjectIdentifier};
use perennial_core::key::{Curve, KeySpec};

use crate::asn1;
use crate::public_key::{KeyKind, PublicKey};

/// The signature algorithm of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum SignatureAlgorithm {
    /// RSA PKCS#1 v1.5 with SHA-256.
    RsaSha256,
    /// RSA PKCS#1 v1.5 with SHA-384.
    RsaSha384,
    /// RSA PKCS#1 v1.5 with SHA-512.
    RsaSha512,
    /// ECDSA with SHA-256.
    EcdsaSha256,
    /// ECDSA with SHA-384.
    EcdsaSha384,
    /// ECDSA with SHA-512.
    EcdsaSha512,
    /// Ed25519: checked, but never issued.
    Ed25519,
    /// Any other algorithm, including SHA-1 and RSA-PSS: always rejected.
    Other {
        /// The dotted object identifier.
        oid: String,
    },
}

impl SignatureAlgorithm {
    /// Returns the algorithm that a key on this curve (none: RSA) signs with.
    pub(crate) fn of_signer(curve: Option<Curve>) -> SignatureAlgorithm {
        match curve {
            None => SignatureAlgorithm::RsaSha256,
            Some(Curve::P256) => SignatureAlgorithm::EcdsaSha256,
            Some(Curve::P384) => SignatureAlgorithm::EcdsaSha384,
            Some(Curve::P521) => SignatureAlgorithm::EcdsaSha512,
        }
    }

    /// Reads the contents of an `AlgorithmIdentifier`.
    pub(crate) fn from_identifier(identifier: AnyRef<'_>) -> der::Result<SignatureAlgorithm> {
        let parts = asn1::sequence(identifier)?;
        let oid: ObjectIdentifier = parts.first().ok_or_else(|| der::ErrorKind::Failed.to_error())?.decode_as()?;
        // webpki compares the parameters too: NULL for RSA, none for the others.
        let whole = asn1::whole(identifier)?;
        Ok(match KNOWN.iter().find(|(_, known)| *known == whole) {
            Some((algorithm, _)) => algorithm.clone(),
            None => SignatureAlgorithm::Other { oid: oid.to_string() },
        })
    }

    /// The whole `AlgorithmIdentifier` in DER: RSA with a NULL parameter, ECDSA and Ed25519 with none.
    pub(crate) fn identifier(&self) -> &'static [u8] {
        KNOWN.iter().find(|(algorithm, _)| algorithm == self).map_or(&[], |(_, identifier)| identifier)
    }

    /// Returns true if `signature` over `message` was made with the private half of `key`.
    pub(crate) fn verifies(&self, key: &PublicKey, message: &[u8], signature: &[u8]) -> bool {
        use SignatureAlgorithm::{EcdsaSha256, EcdsaSha384, EcdsaSha512, Ed25519, RsaSha256, RsaSha384, RsaSha512};
        let curve = key.kind().spec().and_then(KeySpec::curve);
        let algorithm: &'static dyn aws::VerificationAlgorithm = match (self, curve) {
            (RsaSha256, None) if key.kind().is_rsa() => &aws::RSA_PKCS1_2048_8192_SHA256,
            (RsaSha384, None) if key.kind().is_rsa() => &aws::RSA_PKCS1_2048_8192_SHA384,
            (RsaSha512, None) if key.kind().is_rsa() => &aws::RSA_PKCS1_2048_8192_SHA512,
            (EcdsaSha256, Some(Curve::P256)) => &aws::ECDSA_P256_SHA256_ASN1,
            (EcdsaSha384, Some(Curve::P256)) => &aws::ECDSA_P256_SHA384_ASN1,
            (EcdsaSha512, Some(Curve::P256)) => &aws::ECDSA_P256_SHA512_ASN1,
            (EcdsaSha256, Some(Curve::P384)) => &aws::ECDSA_P384_SHA256_ASN1,
            (EcdsaSha384, Some(Curve::P384)) => &aws::ECDSA_P384_SHA384_ASN1,
            (EcdsaSha512, Some(Curve::P384)) => &aws::ECDSA_P384_SHA512_ASN1,
            (EcdsaSha256, Some(Curve::P521)) => &aws::ECDSA_P521_SHA256_ASN1,
            (EcdsaSha384, Some(Curve::P521)) => &aws::ECDSA_P521_SHA384_ASN1,
            (EcdsaSha512, Some(Curve::P521)) => &aws::ECDSA_P521_SHA512_ASN1,
            (Ed25519, None) if *key.kind() == KeyKind::Ed25519 => &aws::ED25519,
            _ => return false,
        };
        aws::UnparsedPublicKey::new(algorithm, key.bits()).verify(message, signature).is_ok()
    }
}

impl fmt::Display for SignatureAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SignatureAlgorithm::RsaSha256 => "RSA with SHA-256",
            SignatureAlgorithm::RsaSha384 => "RSA with SHA-384",
            SignatureAlgorithm::RsaSha512 => "RSA with SHA-512",
            SignatureAlgorithm::EcdsaSha256 => "ECDSA with SHA-256",
            SignatureAlgorithm::EcdsaSha384 => "ECDSA with SHA-384",
            SignatureAlgorithm::EcdsaSha512 => "ECDSA with SHA-512",
            SignatureAlgorithm::Ed25519 => "Ed25519",
            SignatureAlgorithm::Other { oid } => match oid.as_str() {
                "1.2.840.113549.1.1.4" => "RSA with MD5",
                "1.2.840.113549.1.1.5" => "RSA with SHA-1",
                "1.2.840.113549.1.1.10" => "RSA-PSS",
                "1.2.840.10045.4.1" => "ECDSA with SHA-1",
                _ => oid,
            },
        })
    }
}

/// Algorithm and the whole `AlgorithmIdentifier`.
const KNOWN: [(SignatureAlgorithm, &[u8]); 7] = [
    (SignatureAlgorithm::RsaSha256, &rsa(11)),
    (SignatureAlgorithm::RsaSha384, &rsa(12)),
    (SignatureAlgorithm::RsaSha512, &rsa(13)),
    (SignatureAlgorithm::EcdsaSha256, &ecdsa(2)),
    (SignatureAlgorithm::EcdsaSha384, &ecdsa(3)),
    (SignatureAlgorithm::EcdsaSha512, &ecdsa(4)),
    (SignatureAlgorithm::Ed25519, &[0x30, 5, 6, 3, 0x2b, 0x65, 0x70]),
];

const fn rsa(arc: u8) -> [u8; 15] {
    [0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, arc, 5, 0]
}

const fn ecdsa(arc: u8) -> [u8; 12] {
    [0x30, 10, 6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, arc]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_identifier_reads_back_as_its_algorithm() {
        for (algorithm, _) in KNOWN {
            let identifier = AnyRef::try_from(algorithm.identifier()).unwrap();
            assert_eq!(SignatureAlgorithm::from_identifier(identifier).unwrap(), algorithm);
        }
    }

    #[test]
    fn other_parameters_make_another_algorithm() {
        let without_null = [0x30, 11, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 11];
        let read = SignatureAlgorithm::from_identifier(AnyRef::try_from(&without_null[..]).unwrap()).unwrap();
        assert_eq!(read, SignatureAlgorithm::Other { oid: "1.2.840.113549.1.1.11".to_owned() });
    }
}
