//! What an administrator should hear about a policy that is valid and yet doubtful.

use std::fmt;

use crate::catalog::Span;
use crate::key::{KeySpec, RsaSize};

/// Something doubtful about a certificate's key. It is made all the same.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyWarning {
    /// A 112-bit key for a certificate that lives ten years or longer.
    WeakForItsLife {
        /// The certificate.
        certificate: String,
        /// Its key.
        key: KeySpec,
        /// How long it lives.
        validity: Span,
    },
    /// Whoever breaks the signer can forge the certificate, so its own strength buys nothing.
    StrongerThanSigner {
        /// The certificate.
        certificate: String,
        /// Its key.
        key: KeySpec,
        /// Its signer.
        signer: String,
        /// The signer's key.
        signer_key: KeySpec,
    },
}

/// NIST SP 800-57 part 1 ends the use of 112-bit strength with 2030, within the life of such a certificate.
const LONG_LIFE: Span = Span::days(3650);

/// What is doubtful about this key for a certificate with this lifetime, and this signer (none: it signs itself).
pub fn key_warnings(
    certificate: &str,
    key: KeySpec,
    validity: Span,
    signer: Option<(&str, KeySpec)>,
) -> Vec<KeyWarning> {
    let mut warnings = Vec::new();
    if key == KeySpec::Rsa(RsaSize::B2048) && validity >= LONG_LIFE {
        warnings.push(KeyWarning::WeakForItsLife { certificate: certificate.to_owned(), key, validity });
    }
    if let Some((signer, signer_key)) = signer
        && key.strength() > signer_key.strength()
    {
        let (certificate, signer) = (certificate.to_owned(), signer.to_owned());
        warnings.push(KeyWarning::StrongerThanSigner { certificate, key, signer, signer_key });
    }
    warnings
}

impl fmt::Display for KeyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyWarning::WeakForItsLife { certificate, key, validity } => {
                write!(f, "{certificate}: {key} is weak for a certificate that lives {validity}")
            }
            KeyWarning::StrongerThanSigner { certificate, key, signer, signer_key } => {
                write!(
                    f,
                    "{certificate}: {key} is stronger than its signer {signer} with {signer_key}, which limits it"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(key: &str, days: i64, signer: Option<&str>, expected: &[&str]) {
        let signer = signer.map(|key| ("s", key.parse().unwrap()));
        let found: Vec<String> =
            key_warnings("c", key.parse().unwrap(), Span::days(days), signer).iter().map(ToString::to_string).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn rsa_2048_for_ten_years_is_doubtful() {
        check("RSA 2048", 3650, None, &["c: RSA 2048 is weak for a certificate that lives 3650d"]);
        check("RSA 2048", 3649, None, &[]);
        check("RSA 3072", 3650, None, &[]);
        check("ECDSA P256", 3650, None, &[]);
    }

    #[test]
    fn a_leaf_stronger_than_its_signer_is_doubtful() {
        check(
            "ECDSA P384",
            30,
            Some("RSA 2048"),
            &["c: ECDSA P384 is stronger than its signer s with RSA 2048, which limits it"],
        );
        check("ECDSA P256", 30, Some("RSA 3072"), &[]); // 128 bits each
        check("RSA 2048", 30, Some("ECDSA P256"), &[]);
    }
}
