//! Warnings about a key policy that is valid but questionable.

use std::fmt;

use crate::catalog::{Catalog, Row, Span};
use crate::key::{KeySpec, RsaSize};
use crate::policy::{Category, Policy, PolicySource, Usage};

/// A questionable key of a certificate. The certificate is issued nevertheless.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum KeyWarning {
    /// A key of 112-bit strength for a certificate with a validity of ten years or more.
    WeakForItsValidity {
        /// The certificate.
        certificate: String,
        /// Its key.
        key: KeySpec,
        /// The validity of the certificate.
        validity: Span,
    },
    /// The key is stronger than the signer's key. An attacker who breaks the signer can forge the certificate.
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
    /// The key of a certificate for servers and clients follows its listed category, but the other category asks for a stronger key.
    OtherCategoryAsksForMore {
        /// The certificate.
        certificate: String,
        /// Its key.
        key: KeySpec,
        /// Its category.
        category: Category,
        /// The other category.
        other: Category,
        /// The key that the policy asks for in the other category.
        other_key: KeySpec,
    },
}

/// NIST SP 800-57 part 1 disallows 112-bit strength after 2030, within the validity of such a certificate.
const LONG_VALIDITY: Span = Span::days(3650);

/// Returns the warnings about the key that a policy asks for in a row. Assumes that the signer's key follows the policy too.
pub fn policy_warnings(catalog: &Catalog, policy: &Policy, row: &Row) -> Vec<KeyWarning> {
    let signer = catalog.signer_of(row).map(|signer| catalog.key_of(policy, signer).key);
    issue_warnings(catalog, policy, row, catalog.key_of(policy, row).key, row.validity, signer)
}

/// Returns the warnings about a certificate of a row that is issued with this key and validity, by a signer with `signer_key`
/// (none for a self-signed certificate).
pub fn issue_warnings(
    catalog: &Catalog,
    policy: &Policy,
    row: &Row,
    key: KeySpec,
    validity: Span,
    signer_key: Option<KeySpec>,
) -> Vec<KeyWarning> {
    let certificate = || row.certificate.to_owned();
    let mut warnings = Vec::new();
    if key == KeySpec::Rsa(RsaSize::B2048) && validity >= LONG_VALIDITY {
        warnings.push(KeyWarning::WeakForItsValidity { certificate: certificate(), key, validity });
    }
    if let (Some(signer), Some(signer_key)) = (catalog.signer_of(row), signer_key)
        && key.strength() > signer_key.strength()
    {
        let signer = signer.certificate.to_owned();
        warnings.push(KeyWarning::StrongerThanSigner { certificate: certificate(), key, signer, signer_key });
    }
    let category = catalog.logical(row).category;
    let is_overridden = catalog.key_of(policy, row).source == PolicySource::Override;
    if let Some(other) = other_category(row.usage, category).filter(|_| !is_overridden) {
        let other_key = policy.resolve_category(other).key;
        if other_key.strength() > key.strength() {
            let certificate = certificate();
            warnings.push(KeyWarning::OtherCategoryAsksForMore { certificate, key, category, other, other_key });
        }
    }
    warnings
}

/// Returns the other category of a certificate for servers and clients.
fn other_category(usage: Usage, listed: Category) -> Option<Category> {
    match (usage, listed) {
        (Usage::Peer, Category::Serving) => Some(Category::Client),
        (Usage::Peer, Category::Client) => Some(Category::Serving),
        _ => None,
    }
}

impl fmt::Display for KeyWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyWarning::WeakForItsValidity { certificate, key, validity } => {
                write!(f, "{certificate}: {key} is weak for a validity of {validity}")
            }
            KeyWarning::StrongerThanSigner { certificate, key, signer, signer_key } => {
                write!(
                    f,
                    "{certificate}: {key} is stronger than {signer_key} of its signer {signer}, which limits its strength"
                )
            }
            KeyWarning::OtherCategoryAsksForMore { certificate, key, category, other, other_key } => {
                write!(
                    f,
                    "{certificate}: {key}, because it is listed as a {category}; it is also a {other}, for which the \
                     policy asks for {other_key}"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Day;

    /// Returns the row of the running cluster.
    fn row(certificate: &str) -> &'static Row {
        let catalog = Catalog::builtin();
        let rows = catalog.rows_of(catalog.certificate(certificate).unwrap());
        rows.max_by_key(|row| row.day).filter(|row| row.day == Day::Two).unwrap()
    }

    fn check(certificate: &str, key: &str, days: i64, signer: Option<&str>, expected: &[&str]) {
        let (key, signer) = (key.parse().unwrap(), signer.map(|key| key.parse().unwrap()));
        let (catalog, policy) = (Catalog::builtin(), Policy::default());
        let found = issue_warnings(catalog, &policy, row(certificate), key, Span::days(days), signer);
        assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn rsa_2048_for_ten_years_is_doubtful() {
        let name = "kube-apiserver-lb-signer";
        let weak = "kube-apiserver-lb-signer: RSA 2048 is weak for a validity of 3650d";
        check(name, "RSA 2048", 3650, None, &[weak]);
        check(name, "RSA 2048", 3649, None, &[]);
        check(name, "RSA 3072", 3650, None, &[]);
        check(name, "ECDSA P256", 3650, None, &[]);
    }

    #[test]
    fn a_leaf_stronger_than_its_signer_is_doubtful() {
        let name = "aggregator-client";
        let limited = "aggregator-client: ECDSA P384 is stronger than RSA 2048 of its signer aggregator-signer, which limits its strength";
        check(name, "ECDSA P384", 30, Some("RSA 2048"), &[limited]);
        check(name, "ECDSA P256", 30, Some("RSA 3072"), &[]); // 128 bits each
        check(name, "RSA 2048", 30, Some("ECDSA P256"), &[]);
    }

    #[test]
    fn a_dual_use_certificate_whose_other_category_asks_for_more_is_doubtful() {
        let key = |text: &str| -> KeySpec { text.parse().unwrap() };
        let warnings = |policy: &Policy| -> Vec<String> {
            let found = policy_warnings(Catalog::builtin(), policy, row("etcd-peer-server"));
            found.iter().map(ToString::to_string).collect()
        };
        let mut policy = Policy {
            defaults: Some(key("ECDSA P256")),
            categories: [(Category::Client, key("ECDSA P384"))].into(),
            ..Policy::default()
        };
        let expected = "etcd-peer-server: ECDSA P256, because it is listed as a ServingCertificate; it is also a \
                        ClientCertificate, for which the policy asks for ECDSA P384";
        assert_eq!(warnings(&policy), [expected]);
        // Less in the other category is no reason to warn, and an override is a decision about both uses.
        policy.categories.insert(Category::Client, key("RSA 2048"));
        assert_eq!(warnings(&policy), [] as [&str; 0]);
        policy.categories.insert(Category::Client, key("ECDSA P384"));
        policy.overrides.insert("etcd-peer-server".to_owned(), key("RSA 2048"));
        assert_eq!(warnings(&policy), [] as [&str; 0]);
    }
}
