//! Which key a certificate gets: by its name, its category, the defaults, or the platform.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::key::KeySpec;

/// The PKI policy of a cluster, parsed. An empty one leaves everything to the platform.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// For every certificate that nothing more specific names.
    pub defaults: Option<KeySpec>,
    /// For all certificates of a category.
    pub categories: BTreeMap<Category, KeySpec>,
    /// For single well-known certificates.
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

/// What a certificate is technically for. The category of a dual-use certificate is one of the
/// three above; its key follows both.
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

/// The answer of [`Policy::resolve`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolved {
    /// The key to generate.
    pub key: KeySpec,
    /// The level of the policy that said so.
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
    /// The key for the certificate with this logical name and usage.
    ///
    /// `name` is the well-known name, never that of a Secret: the Secret `kubelet-client` holds
    /// the certificate `kube-apiserver-to-kubelet-client`. Certificates that cannot be overridden
    /// by name (those of Services) have none.
    pub fn resolve(&self, name: Option<&str>, usage: Usage) -> Resolved {
        if let Some(&key) = name.and_then(|name| self.overrides.get(name)) {
            return Resolved { key, source: PolicySource::Override };
        }
        match usage {
            Usage::Signer => self.resolve_category(Category::Signer),
            Usage::Serving => self.resolve_category(Category::Serving),
            Usage::Client => self.resolve_category(Category::Client),
            Usage::Peer => {
                let (serving, client) =
                    (self.resolve_category(Category::Serving), self.resolve_category(Category::Client));
                let key = serving.key.stronger(client.key);
                // Where both ask for the same key, the more specific level said so.
                [serving, client]
                    .into_iter()
                    .filter(|resolved| resolved.key == key)
                    .min_by_key(|resolved| resolved.source)
                    .expect("the stronger of two is one of the two")
            }
        }
    }

    fn resolve_category(&self, category: Category) -> Resolved {
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
    /// Whether certificates of this usage present themselves as servers.
    pub fn serves(self) -> bool {
        matches!(self, Usage::Serving | Usage::Peer)
    }

    /// Whether certificates of this usage present themselves as clients.
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

    fn check(words: &str, name: &str, usage: Usage, expected: &str) {
        let resolved = policy(words).resolve(Some(name), usage);
        assert_eq!(format!("{} from {}", resolved.key, resolved.source), expected, "{name} under {words:?}");
    }

    /// P07, P09, P10.
    #[test]
    fn the_most_specific_level_wins() {
        let all = "defaults RSA 3072; SignerCertificate RSA 4096; etcd-signer ECDSA P521";
        check(all, "etcd-signer", Usage::Signer, "ECDSA P521 from override");
        check(all, "service-ca", Usage::Signer, "RSA 4096 from category");
        check(all, "aggregator-client", Usage::Client, "RSA 3072 from defaults");
        check("", "aggregator-client", Usage::Client, "RSA 2048 from platform");
        check("ServingCertificate ECDSA P384", "aggregator-client", Usage::Client, "RSA 2048 from platform");
    }

    #[test]
    fn a_weaker_override_still_wins() {
        check("defaults RSA 4096; root-ca RSA 2048", "root-ca", Usage::Signer, "RSA 2048 from override");
    }

    #[test]
    fn a_service_certificate_has_no_name_to_override() {
        let policy = policy("defaults RSA 3072; ServingCertificate ECDSA P256");
        assert_eq!(policy.resolve(None, Usage::Serving).source, PolicySource::Category);
    }

    /// P08.
    #[test]
    fn a_peer_takes_the_stronger_of_serving_and_client() {
        let name = "etcd-server";
        check(
            "ServingCertificate RSA 2048; ClientCertificate ECDSA P256",
            name,
            Usage::Peer,
            "ECDSA P256 from category",
        );
        check(
            "ServingCertificate RSA 3072; ClientCertificate ECDSA P256",
            name,
            Usage::Peer,
            "ECDSA P256 from category",
        );
        check("ClientCertificate ECDSA P384; defaults RSA 4096", name, Usage::Peer, "ECDSA P384 from category");
        check("ClientCertificate RSA 2048; defaults RSA 4096", name, Usage::Peer, "RSA 4096 from defaults");
        check("ClientCertificate RSA 4096; defaults RSA 4096", name, Usage::Peer, "RSA 4096 from category");
        check("etcd-server RSA 2048; defaults RSA 4096", name, Usage::Peer, "RSA 2048 from override");
        check("", name, Usage::Peer, "RSA 2048 from platform");
    }
}
