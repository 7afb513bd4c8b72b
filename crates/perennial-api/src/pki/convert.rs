//! Conversions between the PKI resource and its policy.

use perennial_core::key::{Curve, KeySpec, RsaSize};
use perennial_core::policy::{Category, Policy};

use super::{
    CategoryCertificateConfig, CertificateCategory, CertificateConfig, CertificateOverride, EcdsaCurve, EcdsaKeyConfig,
    KeyAlgorithm, KeyConfig, PkiSpec, RsaKeyConfig,
};

/// A spec that the schema of this version does not allow. A newer version, or a cluster without the definition's rules, may
/// have stored it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}")]
pub struct UnsupportedSpec {
    /// The key that is not supported, such as `spec.defaults.key`.
    pub path: String,
    /// What was found and what is accepted.
    pub problem: String,
}

impl TryFrom<&PkiSpec> for Policy {
    type Error = UnsupportedSpec;

    fn try_from(spec: &PkiSpec) -> Result<Policy, UnsupportedSpec> {
        let key = |path: String, certificate: &CertificateConfig| {
            let path = format!("{path}.key");
            KeySpec::try_from(&certificate.key).map_err(|problem| UnsupportedSpec { path, problem })
        };
        let mut policy = Policy::default();
        if let Some(defaults) = &spec.defaults {
            policy.defaults = Some(key("spec.defaults".to_owned(), defaults)?);
        }
        for (index, entry) in spec.categories.iter().enumerate() {
            let key = key(format!("spec.categories[{index}].certificate"), &entry.certificate)?;
            policy.categories.insert(entry.category.into(), key);
        }
        for (index, entry) in spec.overrides.iter().enumerate() {
            let key = key(format!("spec.overrides[{index}].certificate"), &entry.certificate)?;
            policy.overrides.insert(entry.certificate_name.clone(), key);
        }
        Ok(policy)
    }
}

impl From<&Policy> for PkiSpec {
    fn from(policy: &Policy) -> PkiSpec {
        let certificate = |key: &KeySpec| CertificateConfig { key: KeyConfig::from(*key) };
        PkiSpec {
            defaults: policy.defaults.as_ref().map(certificate),
            categories: policy
                .categories
                .iter()
                .map(|(category, key)| CategoryCertificateConfig {
                    category: (*category).into(),
                    certificate: certificate(key),
                })
                .collect(),
            overrides: policy
                .overrides
                .iter()
                .map(|(name, key)| CertificateOverride {
                    certificate_name: name.clone(),
                    certificate: certificate(key),
                })
                .collect(),
        }
    }
}

impl TryFrom<&KeyConfig> for KeySpec {
    type Error = String;

    fn try_from(key: &KeyConfig) -> Result<KeySpec, String> {
        match (key.algorithm, key.rsa, key.ecdsa) {
            (KeyAlgorithm::Rsa, Some(rsa), None) => u32::try_from(rsa.key_size)
                .ok()
                .and_then(RsaSize::from_bits)
                .map(KeySpec::Rsa)
                .ok_or_else(|| format!("RSA keys have 2048, 3072 or 4096 bits, found {}", rsa.key_size)),
            (KeyAlgorithm::Ecdsa, None, Some(ecdsa)) => Ok(KeySpec::Ecdsa(ecdsa.curve.into())),
            (algorithm, rsa, ecdsa) => Err(format!(
                "algorithm must match the configuration: found {algorithm:?} with{} rsa and with{} ecdsa",
                if rsa.is_some() { "" } else { "out" },
                if ecdsa.is_some() { "" } else { "out" },
            )),
        }
    }
}

impl From<KeySpec> for KeyConfig {
    fn from(key: KeySpec) -> KeyConfig {
        match key {
            KeySpec::Rsa(size) => {
                let key_size = i32::try_from(size.bits()).expect("key sizes are small");
                KeyConfig { algorithm: KeyAlgorithm::Rsa, rsa: Some(RsaKeyConfig { key_size }), ecdsa: None }
            }
            KeySpec::Ecdsa(curve) => {
                let ecdsa = EcdsaKeyConfig { curve: curve.into() };
                KeyConfig { algorithm: KeyAlgorithm::Ecdsa, rsa: None, ecdsa: Some(ecdsa) }
            }
        }
    }
}

/// Converts between two enums with the same variants.
macro_rules! same_variants {
    ($($api:ident::{$($api_variant:ident),*} = $core:ident::{$($core_variant:ident),*};)*) => {$(
        impl From<$api> for $core {
            fn from(value: $api) -> $core {
                match value { $($api::$api_variant => $core::$core_variant),* }
            }
        }
        impl From<$core> for $api {
            fn from(value: $core) -> $api {
                match value { $($core::$core_variant => $api::$api_variant),* }
            }
        }
    )*};
}

same_variants! {
    EcdsaCurve::{P256, P384, P521} = Curve::{P256, P384, P521};
    CertificateCategory::{SignerCertificate, ServingCertificate, ClientCertificate} = Category::{Signer, Serving, Client};
}
