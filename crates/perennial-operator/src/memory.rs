//! What objects remember for later decisions, as annotations on them.
//!
//! An object holds only what is there now; processes hold what was there before. So whoever writes an object writes down what
//! it replaced and since when everything is there. Nothing of it is secret. What cannot be read counts as not written down.
//!
//! There is room for so much: a server refuses an object with more than 256 KiB of annotations, and a certificate that cannot be
//! written is never renewed again. So the oldest of what was replaced is forgotten where it does not fit any more. What was replaced
//! later is held at least as long, by everybody. It is safe to forget: earlier certificates matter where trust is removed, and it is
//! removed only from signers that have ended, with all that they signed, and from what somebody took back who never signed any of
//! these.

use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine};
use jiff::Timestamp;
use perennial_api::annotations::{FORCED, ISSUED_AT, ISSUES, PUBLISHED, SERVICE_CA_FORCED, SUPERSEDED};
use perennial_core::rules::{BundleState, Published, SecretState};
use perennial_core::snapshot::Slot;
use perennial_core::trust::CertificateId;
use perennial_x509::{Certificate, trust};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::library::Library;

/// How much the annotations of an object may take together: three quarters of what a server lets through, so that others can add
/// theirs.
const ROOM: usize = 192 * 1024;

/// Annotations of an object.
pub(crate) type Annotations = BTreeMap<String, String>;

/// What a Secret remembers about one of its certificates.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SecretMemory {
    /// The instant of issue.
    pub(crate) issued_at: Option<Timestamp>,
    /// The reason of the last forced rotation.
    pub(crate) forced: Option<String>,
    /// The reason of the last one that a resource asked for; so far only `ServiceCA` can.
    pub(crate) requested: Option<String>,
    /// What was there before.
    pub(crate) superseded: Vec<Past>,
    /// When the last few were issued.
    pub(crate) issues: Vec<Timestamp>,
}

/// An earlier certificate of a place, with what was served beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Past {
    /// The certificate first.
    pub(crate) certificates: Vec<Certificate>,
    /// When another took its place.
    pub(crate) at: Timestamp,
    /// How many seconds whoever reads it is given to come to that, where it is less than usual.
    pub(crate) hurry: Option<u32>,
}

#[derive(Serialize, Deserialize)]
struct RawPast {
    at: Timestamp,
    /// DER in base64.
    certificates: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hurry: Option<u32>,
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hurry: Option<u32>,
}

/// An object may hold several certificates or bundles, each under its key.
type Keyed<T> = BTreeMap<String, T>;

impl SecretMemory {
    /// What is written down about the certificate under this key.
    pub(crate) fn read(annotations: &Annotations, key: &str) -> SecretMemory {
        let past = |raw: RawPast| {
            let certificates = raw.certificates.iter().map(|text| {
                let der = BASE64_STANDARD.decode(text).ok()?;
                Certificate::from_der(&der).ok()
            });
            let certificates: Vec<Certificate> = certificates.collect::<Option<_>>()?;
            (!certificates.is_empty()).then_some(Past { certificates, at: raw.at, hurry: raw.hurry })
        };
        let superseded = keyed::<Vec<RawPast>>(annotations, SUPERSEDED).remove(key).unwrap_or_default();
        SecretMemory {
            issued_at: annotations.get(ISSUED_AT).and_then(|text| text.parse().ok()),
            forced: annotations.get(FORCED).cloned(),
            requested: annotations.get(SERVICE_CA_FORCED).cloned(),
            superseded: superseded.into_iter().filter_map(past).collect(),
            issues: keyed(annotations, ISSUES).remove(key).unwrap_or_default(),
        }
    }

    /// The memory of a state that is about to be written.
    pub(crate) fn of(state: &SecretState, library: &Library) -> SecretMemory {
        let superseded = state.superseded.iter().filter_map(|past| {
            let ids = [&past.certificate].into_iter().chain(&past.chain);
            let certificates: Vec<Certificate> = ids.map(|id| library.get(id).cloned()).collect::<Option<_>>()?;
            Some(Past { certificates, at: past.at, hurry: past.hurry })
        });
        SecretMemory {
            issued_at: state.issued_at,
            forced: state.forced.clone(),
            requested: state.requested.clone(),
            superseded: superseded.collect(),
            issues: state.issues.clone(),
        }
    }

    /// Writes it down, and says how many earlier certificates were forgotten because there is no room for them.
    pub(crate) fn write(&self, annotations: &mut Annotations, key: &str) -> usize {
        set(annotations, ISSUED_AT, self.issued_at.map(|at| at.to_string()));
        set(annotations, FORCED, self.forced.clone());
        set(annotations, SERVICE_CA_FORCED, self.requested.clone());
        let raw = |past: &Past| RawPast {
            at: past.at,
            certificates: past.certificates.iter().map(|it| BASE64_STANDARD.encode(it.der())).collect(),
            hurry: past.hurry,
        };
        set_keyed(annotations, ISSUES, key, (!self.issues.is_empty()).then_some(self.issues.clone()));
        set_keyed(annotations, SUPERSEDED, key, None::<()>);
        let taken: usize = annotations.iter().map(|(name, value)| name.len() + value.len()).sum();
        let mut room = ROOM.saturating_sub(taken);
        // The newest first.
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

/// Since when each certificate of the bundle under this key is there.
pub(crate) fn read_published(annotations: &Annotations, key: &str) -> BTreeMap<CertificateId, Published> {
    let raw = keyed::<BTreeMap<CertificateId, RawPublished>>(annotations, PUBLISHED).remove(key).unwrap_or_default();
    let published = |RawPublished { at, from, first, reached, hurry }| Published { at, from, first, reached, hurry };
    raw.into_iter().map(|(id, raw)| (id, published(raw))).collect()
}

/// Writes down since when each certificate of a bundle is there.
pub(crate) fn write_published(annotations: &mut Annotations, key: &str, state: &BundleState, library: &Library) {
    let raw = |(id, published): (&CertificateId, &Published)| {
        // What was planned has a fingerprint by now.
        let id = library.get(id).map_or_else(|| id.clone(), trust::id);
        let Published { at, from, first, reached, hurry } = published.clone();
        (id, RawPublished { at, from, first, reached, hurry })
    };
    let published: BTreeMap<CertificateId, RawPublished> = state.published.iter().map(raw).collect();
    set_keyed(annotations, PUBLISHED, key, (!published.is_empty()).then_some(published));
}

/// Forgets everything about what was under this key.
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

    /// The limit of a server.
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
    fn of_many_earlier_certificates_the_newest_are_kept_and_the_others_counted() {
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        let one = certificate(now);
        let past = |number: i64, length: usize| Past {
            certificates: vec![one.clone(); length],
            at: now + SignedDuration::from_secs(number),
            hurry: (number == 999).then_some(900),
        };
        let size = |annotations: &Annotations| annotations.iter().map(|it| it.0.len() + it.1.len()).sum::<usize>();
        for length in [1, 3, 30] {
            let memory =
                SecretMemory { superseded: (0..1000).map(|it| past(it, length)).collect(), ..Default::default() };
            let theirs = ("example.com/note".to_owned(), "x".repeat(20_000));
            let mut annotations = Annotations::from([theirs.clone()]);
            let forgotten = memory.write(&mut annotations, "tls.crt");
            let kept = SecretMemory::read(&annotations, "tls.crt").superseded;
            assert!(!kept.is_empty() && forgotten > 0);
            assert_eq!(kept, memory.superseded[forgotten..], "{length}");
            assert!(size(&annotations) < LIMIT && size(&annotations) + length * 2000 > ROOM, "{}", size(&annotations));
            // Another key of the same object finds no room, and takes none.
            let second = memory.write(&mut annotations, "other.crt");
            assert!(second >= forgotten && size(&annotations) < LIMIT);
            assert_eq!(SecretMemory::read(&annotations, "tls.crt").superseded, kept);
            assert_eq!(annotations[&theirs.0], theirs.1);
        }
        let few = SecretMemory { superseded: (0..5).map(|it| past(it, 2)).collect(), ..SecretMemory::default() };
        let mut annotations = Annotations::new();
        assert_eq!(few.write(&mut annotations, "tls.crt"), 0);
        assert_eq!(SecretMemory::read(&annotations, "tls.crt"), few);
    }
}
