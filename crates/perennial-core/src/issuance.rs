//! From a catalog row to the complete description of the certificate to make: the one way, on every day.

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{Catalog, ClusterFacts, HostError, Instance, Row, Span, TimeScale};
use crate::policy::{Policy, PolicySource};
use crate::spec::{CertificateSpec, Extension, Validity};

/// How far `not_before` lies in the past, so that a client whose clock is behind accepts a new certificate.
pub const BACKDATE: Span = Span::minutes(5);

/// What an issuance is decided from.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// What there is.
    pub catalog: &'a Catalog,
    /// What the cluster says about itself.
    pub cluster: &'a ClusterFacts,
    /// The cluster's key policy.
    pub policy: &'a Policy,
    /// The instant of issue.
    pub now: Timestamp,
    /// Real lifetimes, or a rehearsal's.
    pub scale: TimeScale,
}

/// A certificate to make, and why its key is what it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuance {
    /// Everything but key, serial number and signature.
    pub spec: CertificateSpec,
    /// The level of the policy that chose the key.
    pub source: PolicySource,
}

/// A certificate cannot be made now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuanceError {
    /// Its names are not known.
    #[error(transparent)]
    Hosts(#[from] HostError),
    /// Its signer has ended, or has not begun.
    #[error("the signer is valid from {} to {} only", signer.not_before, signer.not_after)]
    SignerNotValid {
        /// The life of the signer.
        signer: Validity,
    },
}

impl Circumstances<'_> {
    /// The certificate that `row` asks for now, under a signer valid for `signer` (none: it signs itself).
    pub fn issue(&self, row: &Row, instance: &Instance, signer: Option<Validity>) -> Result<Issuance, IssuanceError> {
        let hosts = row.resolve_hosts(self.cluster, instance)?;
        let resolved = self.catalog.key_of(self.policy, row);
        let validity = validity(self.now, row.validity, self.scale, signer)?;
        let spec = CertificateSpec {
            subject: row.resolve_subject(instance, self.now, &hosts).into(),
            usage: row.usage,
            hosts,
            validity,
            key: resolved.key,
            extensions: service_uid(instance).into_iter().collect(),
        };
        Ok(Issuance { spec, source: resolved.source })
    }
}

/// Says of which Service a certificate is: what OpenShift puts there.
const SERVICE_UID: &str = "1.3.6.1.4.1.2312.17.100.2.1";

/// The extension that names the Service, where it is known which.
fn service_uid(instance: &Instance) -> Option<Extension> {
    let Instance::Service { uid, .. } = instance else { return None };
    let length = u8::try_from(uid.len()).ok().filter(|length| (1..0x80).contains(length))?;
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    // PrintableString, or else UTF8String.
    let tag = if uid.bytes().all(is_printable) { 0x13 } else { 0x0c };
    let value = [tag, length].into_iter().chain(uid.bytes()).collect();
    Some(Extension { oid: SERVICE_UID.to_owned(), critical: false, value })
}

/// The life of a certificate issued at `now`: backdated, and within that of its signer on both sides.
pub fn validity(
    now: Timestamp,
    lifetime: Span,
    scale: TimeScale,
    signer: Option<Validity>,
) -> Result<Validity, IssuanceError> {
    let now = Timestamp::from_second(now.as_second()).expect("a timestamp without its fraction is a timestamp");
    let own =
        Validity { not_before: before(now, BACKDATE.scaled(scale)), not_after: after(now, lifetime.scaled(scale)) };
    let Some(signer) = signer else { return Ok(own) };
    // A signer that has begun and not ended leaves at least a second.
    if now < signer.not_before || signer.not_after <= now {
        return Err(IssuanceError::SignerNotValid { signer });
    }
    Ok(Validity { not_before: own.not_before.max(signer.not_before), not_after: own.not_after.min(signer.not_after) })
}

/// RFC 5280 section 4.1.2.5: certificates know the years 1970 (as we write them) to 9999.
fn before(at: Timestamp, span: SignedDuration) -> Timestamp {
    at.checked_sub(span).unwrap_or(Timestamp::UNIX_EPOCH).max(Timestamp::UNIX_EPOCH)
}

fn after(at: Timestamp, span: SignedDuration) -> Timestamp {
    let end_of_time = Timestamp::from_second(Timestamp::MAX.as_second()).expect("whole seconds of a timestamp");
    at.checked_add(span).unwrap_or(end_of_time)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn check(now: &str, lifetime: Span, scale: TimeScale, signer: Option<(&str, &str)>, expected: (&str, &str)) {
        let signer = signer.map(|(a, b)| Validity { not_before: at(a), not_after: at(b) });
        let validity = validity(at(now), lifetime, scale, signer).unwrap();
        assert_eq!((validity.not_before, validity.not_after), (at(expected.0), at(expected.1)));
    }

    #[test]
    fn a_certificate_lives_from_five_minutes_ago_for_its_lifetime() {
        check(
            "2026-03-01T12:00:00.75Z",
            Span::days(1),
            TimeScale::FULL,
            None,
            ("2026-03-01T11:55:00Z", "2026-03-02T12:00:00Z"),
        );
    }

    #[test]
    fn a_certificate_stays_within_the_life_of_its_signer() {
        check(
            "2026-03-01T12:00:00Z",
            Span::days(30),
            TimeScale::FULL,
            Some(("2026-03-01T11:58:00Z", "2026-03-20T00:00:00Z")),
            ("2026-03-01T11:58:00Z", "2026-03-20T00:00:00Z"),
        );
    }

    #[test]
    fn nothing_is_issued_under_a_signer_that_has_ended_or_not_begun() {
        let signer = Validity { not_before: at("2026-03-01T12:00:00Z"), not_after: at("2026-03-02T12:00:00Z") };
        let issued = |now: &str| validity(at(now), Span::days(30), TimeScale::FULL, Some(signer)).is_ok();
        assert!(!issued("2026-03-01T11:59:59Z"));
        assert!(issued("2026-03-01T12:00:00Z"));
        assert!(issued("2026-03-02T11:59:59Z"));
        assert!(!issued("2026-03-02T12:00:00Z"));
    }

    #[test]
    fn a_rehearsal_shrinks_the_backdating_too() {
        check(
            "2026-03-01T12:00:00Z",
            Span::days(30),
            TimeScale::SHORT,
            None,
            ("2026-03-01T11:59:59Z", "2026-03-01T14:00:00Z"),
        );
    }
}
