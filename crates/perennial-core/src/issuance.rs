//! Computes the complete specification of a certificate from its catalog row, for Day-1 and Day-2 alike.

use jiff::{SignedDuration, Timestamp};

use crate::catalog::{Catalog, ClusterFacts, HostError, Instance, Row, Span, TimeScale};
use crate::clocks::Clocks;
use crate::policy::{Policy, PolicySource};
use crate::spec::{CertificateSpec, Extension, Validity};

/// How far `not_before` lies in the past, so that a client whose clock is behind accepts a new certificate.
pub const BACKDATE: Span = Span::minutes(5);

/// What an issuance depends on.
#[derive(Debug, Clone, Copy)]
pub struct Circumstances<'a> {
    /// The catalog.
    pub catalog: &'a Catalog,
    /// The facts of the cluster that certificates name.
    pub cluster: &'a ClusterFacts,
    /// The cluster's key policy.
    pub policy: &'a Policy,
    /// The instant of issue.
    pub clocks: Clocks,
    /// Real lifetimes, or the scaled lifetimes of a rehearsal.
    pub scale: TimeScale,
}

/// A certificate to issue, and the origin of its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Issuance {
    /// Everything except key, serial number and signature.
    pub spec: CertificateSpec,
    /// The level of the policy that chose the key.
    pub source: PolicySource,
}

/// Why a certificate cannot be issued now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IssuanceError {
    /// The names of the certificate are unknown.
    #[error(transparent)]
    Hosts(#[from] HostError),
    /// The signer has expired, or is not valid yet.
    #[error("the signer is valid from {} to {} only", signer.not_before, signer.not_after)]
    SignerNotValid {
        /// The validity of the signer.
        signer: Validity,
    },
}

impl Circumstances<'_> {
    /// Returns the certificate that `row` asks for now, with a signer valid for `signer` (none for a self-signed certificate).
    pub fn issue(&self, row: &Row, instance: &Instance, signer: Option<Validity>) -> Result<Issuance, IssuanceError> {
        let hosts = row.resolve_hosts(self.cluster, instance)?;
        let resolved = self.catalog.key_of(self.policy, row);
        let validity = validity(self.clocks, row.validity, self.scale, signer)?;
        let spec = CertificateSpec {
            subject: row.resolve_subject(instance, self.clocks.now(), &hosts).into(),
            usage: row.usage,
            hosts,
            validity,
            key: resolved.key,
            extensions: service_uid(instance).into_iter().collect(),
        };
        Ok(Issuance { spec, source: resolved.source })
    }
}

/// The extension with the uid of the certificate's Service, as in OpenShift.
const SERVICE_UID: &str = "1.3.6.1.4.1.2312.17.100.2.1";

/// Returns the extension with the uid of the Service, if the uid is known.
fn service_uid(instance: &Instance) -> Option<Extension> {
    let Instance::Service { uid, .. } = instance else { return None };
    let length = u8::try_from(uid.len()).ok().filter(|length| (1..0x80).contains(length))?;
    let is_printable = |byte: u8| byte.is_ascii_alphanumeric() || b" '()+,-./:=?".contains(&byte);
    // PrintableString, or else UTF8String.
    let tag = if uid.bytes().all(is_printable) { 0x13 } else { 0x0c };
    let value = [tag, length].into_iter().chain(uid.bytes()).collect();
    Some(Extension { oid: SERVICE_UID.to_owned(), critical: false, value })
}

/// Returns the validity of a certificate that is issued now: backdated, and within the validity of its signer.
///
/// If two clocks differ, the certificate is valid by both, and its lifetime counts from the later one. If the signer is not
/// valid by both clocks, the certificate is valid by [`Clocks::now`] only.
pub fn validity(
    clocks: Clocks,
    lifetime: Span,
    scale: TimeScale,
    signer: Option<Validity>,
) -> Result<Validity, IssuanceError> {
    let whole =
        |at: Timestamp| Timestamp::from_second(at.as_second()).expect("a timestamp without its fraction is one");
    let between = |earliest: Timestamp, latest: Timestamp| Validity {
        not_before: before(whole(earliest), BACKDATE.scaled(scale)),
        not_after: after(whole(latest), lifetime.scaled(scale)),
    };
    let by_both = between(clocks.earliest(), clocks.latest());
    let Some(signer) = signer else { return Ok(by_both) };
    // A valid signer leaves at least one second.
    let is_valid_at = |at: Timestamp| signer.not_before <= whole(at) && whole(at) < signer.not_after;
    let own = match (is_valid_at(clocks.now()), is_valid_at(clocks.earliest()) && is_valid_at(clocks.latest())) {
        (false, _) => return Err(IssuanceError::SignerNotValid { signer }),
        (true, true) => by_both,
        (true, false) => between(clocks.now(), clocks.now()),
    };
    Ok(Validity { not_before: own.not_before.max(signer.not_before), not_after: own.not_after.min(signer.not_after) })
}

/// RFC 5280 section 4.1.2.5: a certificate can express the years 1970 (in our encoding) to 9999.
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
        let validity = validity(Clocks::one(at(now)), lifetime, scale, signer).unwrap();
        assert_eq!((validity.not_before, validity.not_after), (at(expected.0), at(expected.1)));
    }

    #[test]
    fn a_certificate_is_backdated_by_five_minutes() {
        check(
            "2026-03-01T12:00:00.75Z",
            Span::days(1),
            TimeScale::FULL,
            None,
            ("2026-03-01T11:55:00Z", "2026-03-02T12:00:00Z"),
        );
    }

    #[test]
    fn a_certificate_stays_within_the_validity_of_its_signer() {
        check(
            "2026-03-01T12:00:00Z",
            Span::days(30),
            TimeScale::FULL,
            Some(("2026-03-01T11:58:00Z", "2026-03-20T00:00:00Z")),
            ("2026-03-01T11:58:00Z", "2026-03-20T00:00:00Z"),
        );
    }

    #[test]
    fn an_expired_or_future_signer_issues_nothing() {
        let signer = Validity { not_before: at("2026-03-01T12:00:00Z"), not_after: at("2026-03-02T12:00:00Z") };
        let issued = |now: &str| validity(Clocks::one(at(now)), Span::days(30), TimeScale::FULL, Some(signer)).is_ok();
        assert!(!issued("2026-03-01T11:59:59Z"));
        assert!(issued("2026-03-01T12:00:00Z"));
        assert!(issued("2026-03-02T11:59:59Z"));
        assert!(!issued("2026-03-02T12:00:00Z"));
    }

    #[test]
    fn a_certificate_is_valid_by_both_clocks_where_its_signer_is() {
        let now = at("2026-03-01T12:00:00Z");
        let day = 86_400;
        let issued = |skew: i64, signer: Option<(&str, &str)>| {
            let signer = signer.map(|(a, b)| Validity { not_before: at(a), not_after: at(b) });
            let made = validity(Clocks::apart(now, skew * day), Span::days(30), TimeScale::FULL, signer);
            made.map(|it| (it.not_before.to_string(), it.not_after.to_string())).ok()
        };
        let expected = |from: &str, to: &str| Some((from.to_owned(), to.to_owned()));
        assert_eq!(issued(400, None), expected("2026-03-01T11:55:00Z", "2027-05-05T12:00:00Z"));
        assert_eq!(issued(-400, None), expected("2025-01-25T11:55:00Z", "2026-03-31T12:00:00Z"));
        let long = Some(("2020-01-01T00:00:00Z", "2030-01-01T00:00:00Z"));
        assert_eq!(issued(20, long), expected("2026-03-01T11:55:00Z", "2026-04-20T12:00:00Z"));
        // Not by both: then by the server's.
        let year = Some(("2026-02-01T00:00:00Z", "2027-02-01T00:00:00Z"));
        assert_eq!(issued(400, year), expected("2026-03-01T11:55:00Z", "2026-03-31T12:00:00Z"));
        assert_eq!(issued(-400, year), expected("2026-03-01T11:55:00Z", "2026-03-31T12:00:00Z"));
        // Valid by the other clock alone is not valid.
        assert_eq!(issued(400, Some(("2027-03-01T00:00:00Z", "2030-01-01T00:00:00Z"))), None);
        let ends = [i64::MIN, i64::MAX].map(|skew| {
            let made = validity(Clocks::apart(now, skew), Span::days(30), TimeScale::FULL, None).unwrap();
            (made.not_before.to_string(), made.not_after.to_string())
        });
        let [behind, ahead] = ends;
        assert_eq!(behind, ("1970-01-01T00:00:00Z".to_owned(), "2026-03-31T12:00:00Z".to_owned()));
        assert_eq!((ahead.0.as_str(), &ahead.1[..4]), ("2026-03-01T11:55:00Z", "9999"));
    }

    #[test]
    fn a_rehearsal_scales_the_backdating_too() {
        check(
            "2026-03-01T12:00:00Z",
            Span::days(30),
            TimeScale::SHORT,
            None,
            ("2026-03-01T11:59:59Z", "2026-03-01T14:00:00Z"),
        );
    }
}
