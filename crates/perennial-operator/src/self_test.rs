//! The crypto test: generates and uses a key of every configured kind before the operator starts.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use perennial_core::clocks::shifted;
use perennial_core::inventory::{Entry, inventory};
use perennial_core::key::KeySpec;
use perennial_core::plan::{Planner, Report};
use perennial_core::policy::{Policy, Usage};
use perennial_core::snapshot::Snapshot;
use perennial_core::spec::{CertificateSpec, Subject, Validity};
use perennial_x509::{IssueError, KeyError, PrivateKey, self_signed, signed_by};

/// A key of a configured kind cannot be generated or used.
#[derive(Debug, thiserror::Error)]
pub enum SelfTestError {
    /// The key cannot be generated.
    #[error("crypto test failed for {spec}: {source}")]
    Key {
        /// The kind of key.
        spec: KeySpec,
        /// The reason.
        source: KeyError,
    },
    /// The key cannot sign.
    #[error("crypto test failed for {spec}: {source}")]
    Sign {
        /// The kind of key.
        spec: KeySpec,
        /// The reason.
        source: IssueError,
    },
    /// The signature of the key does not verify.
    #[error("crypto test failed for {spec}: its signature does not verify")]
    Refused {
        /// The kind of key.
        spec: KeySpec,
    },
}

/// Returns every kind of key that the policy gives to a certificate.
pub(crate) fn configured(planner: &Planner<'_>, snapshot: &Snapshot, report: &Report) -> BTreeSet<KeySpec> {
    // If the policy cannot be read, the operator may have to use the default policy.
    let key = |entry: Entry<'_>| {
        let wanted = entry.wanted.unwrap_or_else(|| planner.wiring().catalog.key_of(&Policy::default(), entry.row));
        wanted.key
    };
    inventory(planner, snapshot, report).into_iter().map(key).collect()
}

/// Generates a key, signs with it, and verifies the signature.
pub(crate) fn test(spec: KeySpec, now: Timestamp) -> Result<(), SelfTestError> {
    let key = PrivateKey::generate(spec).map_err(|source| SelfTestError::Key { spec, source })?;
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let wanted = CertificateSpec {
        subject: Subject::common_name("crypto test").into(),
        usage: Usage::Signer,
        hosts: Vec::new(),
        validity: Validity { not_before: now, not_after: shifted(now, SignedDuration::from_secs(1)) },
        key: spec,
        extensions: Vec::new(),
    };
    let certificate = self_signed(&wanted, &key).map_err(|source| SelfTestError::Sign { spec, source })?;
    if signed_by(&certificate, &certificate) { Ok(()) } else { Err(SelfTestError::Refused { spec }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_key_can_be_tested() {
        let now = "2026-03-01T12:00:00.5Z".parse().unwrap();
        for spec in KeySpec::ALL {
            test(spec, now).unwrap();
        }
    }
}
