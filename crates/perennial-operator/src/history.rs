//! The history of an object, in annotations on the object: previous certificates, and since when each CA is in a bundle.
//!
//! An object holds only the current certificate or bundle, while processes may still hold a previous one. So each write records what
//! it replaces, and when. The history has no secrets. The operator ignores a history that it cannot parse.
//!
//! A server rejects an object with more than 256 KiB of annotations, and then the certificate could never be renewed. So a write drops
//! the oldest previous certificates if they do not fit. Dropping them is safe: a reader that holds an older version can hold a newer one
//! as long, and previous certificates matter only when a bundle loses a CA. A bundle loses only CAs that have expired, with all that
//! they signed, and CAs that another component withdraws, which never signed any of these certificates.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine};
use jiff::Timestamp;
use perennial_api::annotations::{FORCED, ISSUED_AT, ISSUES, PUBLISHED, SERVICE_CA_FORCED, SUPERSEDED};
use perennial_core::snapshot::{BundleState, Published, SecretState, Slot};
use perennial_core::trust::CertificateId;
use perennial_x509::{Certificate, trust};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::library::Library;

/// The largest size of all annotations of an object, in bytes: three quarters of the server's limit, so that others can add theirs.
const ROOM: usize = 192 * 1024;

/// Annotations of an object.
pub(crate) type Annotations = BTreeMap<String, String>;

/// The history of one certificate of a Secret.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretHistory {
    /// The instant of issue.
    pub(crate) issued_at: Option<Timestamp>,
    /// The reason of the last forced rotation.
    pub(crate) forced: Option<String>,
    /// The reason of the last rotation that a resource asked for. Only `ServiceCA` can ask.
    pub(crate) requested: Option<String>,
    /// The previous certificates, oldest first.
    pub(crate) superseded: Vec<Past>,
    /// When the last few certificates were issued.
    pub(crate) issues: Vec<Timestamp>,
}

/// A previous certificate of a place, with its chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    /// The certificate, then its chain.
    pub(crate) certificates: Vec<Certificate>,
    /// When another certificate replaced it.
    pub(crate) at: Timestamp,
    /// The lag of its readers in seconds, if a person set a shorter one.
    pub(crate) lag_override: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct RawPast {
    at: Timestamp,
    /// DER in base64.
    certificates: Vec<String>,
    #[serde(rename = "lagOverride", alias = "hurry", default, skip_serializing_if = "Option::is_none")]
    lag_override: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct RawPublished {
    at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<Slot>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    first: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reached: Option<Timestamp>,
    #[serde(rename = "lagOverride", alias = "hurry", default, skip_serializing_if = "Option::is_none")]
    lag_override: Option<u32>,
}

/// Values by data key: an object may hold several certificates or bundles.
type Keyed<T> = BTreeMap<String, T>;

impl SecretHistory {
    /// Reads the history of the certificate under this data key.
    pub(crate) fn read(annotations: &Annotations, key: &str) -> SecretHistory {
        let past = |raw: RawPast| {
            let certificates = raw.certificates.iter().map(|text| {
                let der = BASE64_STANDARD.decode(text).ok()?;
                Certificate::from_der(&der).ok()
            });
            let certificates: Vec<Certificate> = certificates.collect::<Option<_>>()?;
            (!certificates.is_empty()).then_some(Past { certificates, at: raw.at, lag_override: raw.lag_override })
        };
        let superseded = keyed::<Vec<RawPast>>(annotations, SUPERSEDED).remove(key).unwrap_or_default();
        SecretHistory {
            issued_at: annotations.get(ISSUED_AT).and_then(|text| text.parse().ok()),
            forced: annotations.get(FORCED).cloned(),
            requested: annotations.get(SERVICE_CA_FORCED).cloned(),
            superseded: superseded.into_iter().filter_map(past).collect(),
            issues: keyed(annotations, ISSUES).remove(key).unwrap_or_default(),
        }
    }

    /// Returns the history of a state that is about to be written.
    pub(crate) fn of(state: &SecretState, library: &Library) -> SecretHistory {
        let superseded = state.superseded.iter().filter_map(|past| {
            let ids = [&past.certificate].into_iter().chain(&past.chain);
            let certificates: Vec<Certificate> = ids.map(|id| library.get(id).cloned()).collect::<Option<_>>()?;
            Some(Past { certificates, at: past.at, lag_override: past.lag_override })
        });
        SecretHistory {
            issued_at: state.issued_at,
            forced: state.forced.clone(),
            requested: state.requested.clone(),
            superseded: superseded.collect(),
            issues: state.issues.clone(),
        }
    }

    /// Writes the history. Returns how many previous certificates it dropped because they did not fit.
    pub(crate) fn write(&self, annotations: &mut Annotations, key: &str) -> usize {
        set(annotations, ISSUED_AT, self.issued_at.map(|at| at.to_string()));
        set(annotations, FORCED, self.forced.clone());
        set(annotations, SERVICE_CA_FORCED, self.requested.clone());
        let raw = |past: &Past| RawPast {
            at: past.at,
            certificates: past.certificates.iter().map(|it| BASE64_STANDARD.encode(it.der())).collect(),
            lag_override: past.lag_override,
        };
        set_keyed(annotations, ISSUES, key, (!self.issues.is_empty()).then_some(self.issues.clone()));
        set_keyed(annotations, SUPERSEDED, key, None::<()>);
        let taken: usize = annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
        let mut room = ROOM.saturating_sub(taken);
        // From the newest to the oldest.
        let fits = |past: &RawPast| {
            let size = serde_json::to_string(past).map_or(usize::MAX, |text| text.len() + 1);
            let left = room.checked_sub(size);
            room = left.unwrap_or_default();
            left.is_some()
        };
        let mut superseded: Vec<RawPast> = self.superseded.iter().rev().map(raw).take_while(fits).collect();
        superseded.reverse();
        let forgotten = self.superseded.len() - superseded.len();
        set_keyed(annotations, SUPERSEDED, key, (!superseded.is_empty()).then_some(superseded));
        forgotten
    }
}

/// Reads since when each CA is in the bundle under this data key.
pub(crate) fn read_published(annotations: &Annotations, key: &str) -> BTreeMap<CertificateId, Published> {
    let raw = keyed::<BTreeMap<CertificateId, RawPublished>>(annotations, PUBLISHED).remove(key).unwrap_or_default();
    let published =
        |RawPublished { at, from, first, reached, lag_override }| Published { at, from, first, reached, lag_override };
    raw.into_iter().map(|(id, raw)| (id, published(raw))).collect()
}

/// Writes since when each CA is in a bundle.
pub(crate) fn write_published(annotations: &mut Annotations, key: &str, state: &BundleState, library: &Library) {
    let raw = |(id, published): (&CertificateId, &Published)| {
        // A planned certificate has a fingerprint by now.
        let id = library.get(id).map_or_else(|| id.clone(), trust::id);
        let Published { at, from, first, reached, lag_override } = published.clone();
        (id, RawPublished { at, from, first, reached, lag_override })
    };
    let published: BTreeMap<CertificateId, RawPublished> = state.published.iter().map(raw).collect();
    set_keyed(annotations, PUBLISHED, key, (!published.is_empty()).then_some(published));
}

/// Removes the history under this data key.
pub(crate) fn forget(annotations: &mut Annotations, key: &str) {
    for name in [SUPERSEDED, ISSUES, PUBLISHED] {
        set_keyed(annotations, name, key, None::<()>);
    }
}

fn keyed<T: DeserializeOwned>(annotations: &Annotations, name: &str) -> Keyed<T> {
    annotations.get(name).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default()
}

fn set_keyed<T: Serialize>(annotations: &mut Annotations, name: &str, key: &str, value: Option<T>) {
    let mut all: Keyed<serde_json::Value> = keyed(annotations, name);
    match value.and_then(|value| serde_json::to_value(value).ok()) {
        Some(value) => drop(all.insert(key.to_owned(), value)),
        None => drop(all.remove(key)),
    }
    let text = (!all.is_empty()).then(|| serde_json::to_string(&all).ok()).flatten();
    set(annotations, name, text);
}

fn set(annotations: &mut Annotations, name: &str, value: Option<String>) {
    match value {
        Some(value) => drop(annotations.insert(name.to_owned(), value)),
        None => drop(annotations.remove(name)),
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use perennial_core::policy::Usage;
    use perennial_core::spec::{CertificateSpec, Subject, Validity};
    use perennial_x509::{PrivateKey, self_signed};

    use super::*;

    /// The server's limit for annotations, in bytes.
    const LIMIT: usize = 256 * 1024;

    fn certificate(now: Timestamp) -> Certificate {
        let spec = CertificateSpec {
            subject: Subject::common_name("test").into(),
            usage: Usage::Signer,
            hosts: Vec::new(),
            validity: Validity { not_before: now, not_after: now + SignedDuration::from_hours(1) },
            key: "ECDSA P256".parse().unwrap(),
            extensions: Vec::new(),
        };
        self_signed(&spec, &PrivateKey::generate(spec.key).unwrap()).unwrap()
    }

    #[test]
    fn history_that_does_not_fit_keeps_the_newest_certificates_and_counts_the_dropped() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let one = certificate(now);
        let past = |number: i64, length: usize| Past {
            certificates: vec![one.clone(); length],
            at: now + SignedDuration::from_secs(number),
            lag_override: (number == 999).then_some(900),
        };
        let size = |annotations: &Annotations| annotations.iter().map(|it| it.0.len() + it.1.len()).sum::<usize>();
        for length in [1, 3, 30] {
            let history =
                SecretHistory { superseded: (0..1000).map(|it| past(it, length)).collect(), ..Default::default() };
            let theirs = ("example.com/note".to_owned(), "x".repeat(20_000));
            let mut annotations = Annotations::from([theirs.clone()]);
            let forgotten = history.write(&mut annotations, "tls.crt");
            let kept = SecretHistory::read(&annotations, "tls.crt").superseded;
            assert!(!kept.is_empty() && forgotten > 0);
            assert_eq!(kept, history.superseded[forgotten..], "{length}");
            assert!(size(&annotations) < LIMIT && size(&annotations) + length * 2000 > ROOM, "{}", size(&annotations));
            // The annotations are full, so another data key of the same object gets no history.
            let second = history.write(&mut annotations, "other.crt");
            assert!(second >= forgotten && size(&annotations) < LIMIT);
            assert_eq!(SecretHistory::read(&annotations, "tls.crt").superseded, kept);
            assert_eq!(annotations[&theirs.0], theirs.1);
        }
        let few = SecretHistory { superseded: (0..5).map(|it| past(it, 2)).collect(), ..SecretHistory::default() };
        let mut annotations = Annotations::new();
        assert_eq!(few.write(&mut annotations, "tls.crt"), 0);
        assert_eq!(SecretHistory::read(&annotations, "tls.crt"), few);
    }
}
