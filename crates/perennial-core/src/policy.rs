//! The key policy: the kind of key that a certificate gets, by its name, its category, the defaults or the platform.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::KeySpec;

/// The parsed PKI policy of a cluster. An empty policy means the platform's default for every certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// The key of every certificate without a more specific entry.
    pub defaults: Option<KeySpec>,
    /// The key of all certificates of a category.
    pub categories: BTreeMap<Category, KeySpec>,
    /// The key of single well-known certificates.
    pub overrides: BTreeMap<String, KeySpec>,
}

/// The three categories of the PKI resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Category {
    /// CA certificates.
    #[serde(rename = "SignerCertificate")]
    Signer,
    /// Certificates that servers present.
    #[serde(rename = "ServingCertificate")]
    Serving,
    /// Certificates that clients present.
    #[serde(rename = "ClientCertificate")]
    Client,
}

/// The key usage of a certificate.
///
/// Its category, which decides its key, is listed in the catalog, also for a certificate with two usages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Usage {
    /// A CA: signs other certificates.
    Signer,
    /// serverAuth.
    Serving,
    /// clientAuth.
    Client,
    /// serverAuth and clientAuth.
    Peer,
}

/// The result of [`Policy::resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The key to generate.
    pub key: KeySpec,
    /// The level of the policy that chose the key.
    pub source: PolicySource,
}

/// The levels of a policy, most specific first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PolicySource {
    /// `spec.overrides[]` names the certificate.
    Override,
    /// `spec.categories[]` has its category.
    Category,
    /// `spec.defaults`.
    Defaults,
    /// Nothing in the policy applies.
    Platform,
}

impl Policy {
    /// Returns the key for the certificate with this logical name and category.
    ///
    /// `name` is the well-known name, never that of a Secret: the Secret `kubelet-client` holds
    /// the certificate `kube-apiserver-to-kubelet-client`. Certificates that cannot be overridden
    /// by name (those of Services) have none.
    pub fn resolve(&self, name: Option<&str>, category: Category) -> Resolved {
        match name.and_then(|name| self.overrides.get(name)) {
            Some(&key) => Resolved { key, source: PolicySource::Override },
            None => self.resolve_category(category),
        }
    }

    /// Returns the key for the certificates of a category that no override names.
    pub fn resolve_category(&self, category: Category) -> Resolved {
        if let Some(&key) = self.categories.get(&category) {
            return Resolved { key, source: PolicySource::Category };
        }
        match self.defaults {
            Some(key) => Resolved { key, source: PolicySource::Defaults },
            None => Resolved { key: KeySpec::PLATFORM_DEFAULT, source: PolicySource::Platform },
        }
    }
}

impl Category {
    /// Every category.
    pub const ALL: [Category; 3] = [Category::Signer, Category::Serving, Category::Client];

    /// `SignerCertificate`, as the PKI resource and the metrics spell it.
    pub fn name(self) -> &'static str {
        match self {
            Category::Signer => "SignerCertificate",
            Category::Serving => "ServingCertificate",
            Category::Client => "ClientCertificate",
        }
    }

    /// The category that the PKI resource calls `name`.
    pub fn from_name(name: &str) -> Option<Category> {
        Category::ALL.into_iter().find(|category| category.name() == name)
    }
}

impl Usage {
    /// Returns true if servers present certificates of this usage.
    pub fn serves(self) -> bool {
        matches!(self, Usage::Serving | Usage::Peer)
    }

    /// Returns true if clients present certificates of this usage.
    pub fn connects(self) -> bool {
        matches!(self, Usage::Client | Usage::Peer)
    }
}

impl fmt::Display for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Usage::Signer => "signer",
            Usage::Serving => "serving",
            Usage::Client => "client",
            Usage::Peer => "peer",
        })
    }
}

impl fmt::Display for PolicySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PolicySource::Override => "override",
            PolicySource::Category => "category",
            PolicySource::Defaults => "defaults",
            PolicySource::Platform => "platform",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    /// A policy in words: `defaults RSA 3072; SignerCertificate RSA 4096; etcd-signer ECDSA P521`.
    fn policy(words: &str) -> Policy {
        let mut policy = Policy::default();
        for entry in words.split(';').map(str::trim).filter(|entry| !entry.is_empty()) {
            let (level, key) = entry.split_once(' ').unwrap();
            let key = key.parse().unwrap();
            match Category::from_name(level) {
                _ if level == "defaults" => policy.defaults = Some(key),
                Some(category) => drop(policy.categories.insert(category, key)),
                None => drop(policy.overrides.insert(level.to_owned(), key)),
            }
        }
        policy
    }

    fn check(words: &str, name: &str, category: Category, expected: &str) {
        let resolved = policy(words).resolve(Some(name), category);
        assert_eq!(format!("{} from {}", resolved.key, resolved.source), expected, "{name} under {words:?}");
    }

    #[test]
    fn the_most_specific_level_wins() {
        let all = "defaults RSA 3072; SignerCertificate RSA 4096; etcd-signer ECDSA P521";
        check(all, "etcd-signer", Category::Signer, "ECDSA P521 from override");
        check(all, "service-ca", Category::Signer, "RSA 4096 from category");
        check(all, "aggregator-client", Category::Client, "RSA 3072 from defaults");
        check("", "aggregator-client", Category::Client, "RSA 2048 from platform");
        check("ServingCertificate ECDSA P384", "aggregator-client", Category::Client, "RSA 2048 from platform");
    }

    #[test]
    fn a_weaker_override_still_wins() {
        check("defaults RSA 4096; root-ca RSA 2048", "root-ca", Category::Signer, "RSA 2048 from override");
    }

    #[test]
    fn a_service_certificate_has_no_name_to_override() {
        let policy = policy("defaults RSA 3072; ServingCertificate ECDSA P256");
        assert_eq!(policy.resolve(None, Category::Serving).source, PolicySource::Category);
    }

    #[test]
    fn the_key_of_a_dual_use_certificate_follows_its_listed_category() {
        let name = "etcd-peer-server";
        let category = Catalog::builtin().certificate(name).unwrap().category;
        let both = "ServingCertificate RSA 2048; ClientCertificate ECDSA P256";
        check(both, name, category, "RSA 2048 from category");
        check("ServingCertificate ECDSA P384; defaults RSA 4096", name, category, "ECDSA P384 from category");
        check("ClientCertificate ECDSA P384; defaults RSA 4096", name, category, "RSA 4096 from defaults");
        check("etcd-peer-server RSA 2048; defaults RSA 4096", name, category, "RSA 2048 from override");
        check("", name, category, "RSA 2048 from platform");
    }
}
