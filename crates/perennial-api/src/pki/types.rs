//! The types of the PKI resource. `kubectl explain` shows their documentation.

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// PkiStatus is empty: operators report about certificates in their own status.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PkiStatus {}

/// CertificateConfig is the configuration of a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CertificateConfig {
    /// key chooses the key pair of the certificate.
    pub key: KeyConfig,
}

/// KeyConfig is the kind of key pair. Exactly one of rsa and ecdsa must be set, the one that
/// algorithm names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[x_kube(validation = Rule::new("(self.algorithm == 'RSA' && has(self.rsa) && !has(self.ecdsa)) || (self.algorithm == 'ECDSA' && has(self.ecdsa) && !has(self.rsa))").message("algorithm must match the configuration: use rsa field for RSA, ecdsa field for ECDSA"))]
pub struct KeyConfig {
    /// algorithm is the kind of key pair: RSA or ECDSA.
    pub algorithm: KeyAlgorithm,
    /// rsa holds the parameters of an RSA key pair. It is required when algorithm is RSA, and
    /// forbidden otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rsa: Option<RsaKeyConfig>,
    /// ecdsa holds the parameters of an ECDSA key pair. It is required when algorithm is ECDSA, and
    /// forbidden otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecdsa: Option<EcdsaKeyConfig>,
}

/// KeyAlgorithm is a kind of key pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub enum KeyAlgorithm {
    #[allow(missing_docs)]
    #[serde(rename = "RSA")]
    Rsa,
    #[allow(missing_docs)]
    #[serde(rename = "ECDSA")]
    Ecdsa,
}

/// RsaKeyConfig holds the parameters of an RSA key pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RsaKeyConfig {
    /// keySize is the size of the modulus in bits: 2048, 3072 or 4096. Larger keys are stronger, and
    /// slower to generate and to use.
    #[schemars(extend("enum" = [2048, 3072, 4096]))]
    pub key_size: i32,
}

/// EcdsaKeyConfig holds the parameters of an ECDSA key pair.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EcdsaKeyConfig {
    /// curve is the elliptic curve: P256, P384 or P521.
    pub curve: EcdsaCurve,
}

/// EcdsaCurve is an elliptic curve of NIST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum EcdsaCurve {
    P256,
    P384,
    P521,
}

/// CertificateCategory is one of the three categories of certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[allow(missing_docs)]
pub enum CertificateCategory {
    SignerCertificate,
    ServingCertificate,
    ClientCertificate,
}

/// CategoryCertificateConfig configures the certificates of a category.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CategoryCertificateConfig {
    /// category is the category: SignerCertificate for certificates that sign others,
    /// ServingCertificate for those that servers present, ClientCertificate for those that clients
    /// present.
    pub category: CertificateCategory,
    /// certificate configures these certificates.
    pub certificate: CertificateConfig,
}

/// CertificateOverride configures one certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(super::crd::well_known_rule()).message(super::crd::WELL_KNOWN_MESSAGE))]
pub struct CertificateOverride {
    /// certificateName is the well-known name of a certificate of the platform, such as
    /// etcd-signer, service-ca, kube-apiserver-lb-server or admin-kubeconfig-client. Certificates of
    /// Services have no such name: they follow their category and the defaults.
    #[schemars(length(min = 1, max = 253))]
    pub certificate_name: String,
    /// certificate configures this certificate.
    pub certificate: CertificateConfig,
}

/// One module per version, all identical: the definition has no conversion.
macro_rules! versions {
    ($($(#[$doc:meta])* $module:ident = $version:literal;)*) => {$(
        $(#[$doc])*
        pub mod $module {
            use super::*;

            /// PkiSpec chooses the keys of certificates. If several entries apply to a certificate, an
            /// override wins over a category, and a category over the defaults.
            #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, CustomResource, KubeSchema)]
            #[kube(
                group = "config.openshift.io",
                version = $version,
                kind = "PKI",
                plural = "pkis",
                status = "PkiStatus",
                derive = "PartialEq",
                doc = "PKI chooses the keys of the certificates of the cluster. There is one object, named cluster. A certificate gets its new key at its next rotation; a change re-issues nothing.",
                validation = Rule::new("self.metadata.name == 'cluster'").message("pki is a singleton, .metadata.name must be 'cluster'")
            )]
            pub struct PkiSpec {
                /// defaults apply to every certificate that neither overrides nor categories mention. When
                /// omitted, the platform decides, which at present means RSA with 2048 bits.
                #[serde(default, skip_serializing_if = "Option::is_none")]
                pub defaults: Option<CertificateConfig>,
                /// categories apply to all certificates of a category, and take precedence over defaults. Each
                /// category may appear once.
                #[serde(default, skip_serializing_if = "Vec::is_empty")]
                #[schemars(length(max = 3))]
                #[x_kube(merge_strategy = ListMerge::Map(vec!["category".into()]))]
                pub categories: Vec<CategoryCertificateConfig>,
                /// overrides apply to single certificates by their well-known names, and take precedence over
                /// categories and defaults. Each name may appear once.
                #[serde(default, skip_serializing_if = "Vec::is_empty")]
                #[schemars(length(max = 32))]
                #[x_kube(merge_strategy = ListMerge::Map(vec!["certificateName".into()]))]
                pub overrides: Vec<CertificateOverride>,
            }
        }
    )*};
}

versions! {
    /// The stored version.
    v1 = "v1";
    /// The first version of the resource.
    v1alpha1 = "v1alpha1";
}

pub use v1::PkiSpec;
