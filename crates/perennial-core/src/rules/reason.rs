//! Why the planner issues a certificate, and what a due certificate waits for. The texts are those of events and logs.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::spec::Host;
use crate::trust::Refusal;

/// Why a certificate is issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reason {
    /// The Secret does not exist.
    Absent,
    /// The content of the Secret cannot be used.
    Unreadable {
        /// The error.
        why: String,
    },
    /// The annotation with the end, or the start, of the validity is missing.
    AnnotationMissing {
        /// `notAfter` or `notBefore`.
        which: BoundaryName,
    },
    /// Such an annotation is not an RFC 3339 time.
    AnnotationGarbled {
        /// The value of the annotation.
        value: String,
    },
    /// The annotation with the issuer's name is missing.
    IssuerMissing,
    /// The certificate has expired.
    Expired {
        /// The last second of the certificate's validity.
        not_after: Timestamp,
    },
    /// The certificate is not valid yet, by more than clocks may differ.
    NotYetValid {
        /// The first second of the certificate's validity.
        not_before: Timestamp,
    },
    /// An administrator asked for it.
    Forced {
        /// The administrator's reason.
        reason: String,
    },
    /// Four fifths of the certificate's validity have passed.
    PastEightyPercent {
        /// When four fifths had passed.
        since: Timestamp,
    },
    /// The certificate is due for its refresh.
    PastRefresh {
        /// When the refresh became due.
        since: Timestamp,
    },
    /// The bundle does not contain the issuer.
    IssuerNotInBundle,
    /// The row has a new signer, and its certificates follow at once.
    SignerChanged,
    /// The certificate, or its signer, is distrusted.
    Distrusted {
        /// Since when it is distrusted.
        since: Timestamp,
    },
    /// The Secret has other certificates after the leaf than it should.
    ChainDiffers {
        /// The number of missing certificates that lead to an earlier signer, or to any signer.
        missing: usize,
        /// The number of certificates that do not belong to its signer.
        foreign: usize,
    },
    /// The names in the certificate differ from the required names.
    HostsDiffer {
        /// Names in the certificate that are not required.
        extra: Vec<Host>,
        /// Required names that are not in the certificate.
        missing: Vec<Host>,
    },
}

/// An end of a certificate's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BoundaryName {
    /// The end.
    NotAfter,
    /// The beginning.
    NotBefore,
}

/// Why a due certificate or bundle is not written yet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Waiting {
    /// Verifiers may not have the new signer yet.
    SignerTooYoung {
        /// When all verifiers have it.
        until: Timestamp,
    },
    /// The write would break an edge that holds.
    Trust {
        /// When the write is safe, if time alone makes it safe.
        until: Option<Timestamp>,
        /// The edge that would break.
        refusal: Box<Refusal>,
    },
    /// Static pods must first load the bundle by which they trust the certificate.
    Rollout {
        /// The static pods that have not loaded it.
        lacking: Vec<String>,
        /// The latest end of the wait: from then on, the edge is broken without the write too.
        until: Option<Timestamp>,
        /// The edge that would break.
        refusal: Box<Refusal>,
    },
    /// The write restarts static pods, and the maintenance window is closed.
    Window {
        /// When the window opens.
        opens_at: Timestamp,
    },
    /// The certificate stays, but is not valid yet. Clients reject it.
    Validity {
        /// The start of the certificate's validity.
        begins_at: Timestamp,
    },
    /// Another operator writes the objects of the component.
    OtherWriter {
        /// The object that the other operator writes.
        object: String,
        /// The field manager of the other operator.
        writer: String,
    },
    /// The signer is absent or cannot sign.
    Signer {
        /// The signer.
        signer: String,
        /// When time alone may end the wait.
        until: Option<Timestamp>,
    },
    /// The names of the certificate are unknown.
    Hosts {
        /// The missing fact.
        why: String,
    },
    /// The certificate was issued more often than the rules can explain.
    Breaker {
        /// The number of issues.
        issued: usize,
        /// The first of these issues.
        since: Timestamp,
        /// When the next attempt is allowed.
        until: Timestamp,
    },
    /// Another writer keeps changing the labels or annotations.
    Contested {
        /// How often they were corrected.
        times: usize,
        /// The first of these corrections.
        since: Timestamp,
        /// When the next correction is allowed.
        until: Timestamp,
    },
    /// The allowed number of other certificates is already being rotated.
    Pace {
        /// The number of other certificates that are being rotated.
        in_flight: usize,
    },
    /// An object that the decision depends on could not be read.
    Unknown {
        /// The object.
        object: String,
        /// The error.
        why: String,
    },
    /// The last write of the object failed, or of the bundle that must contain its signer first.
    Blocked {
        /// The object.
        object: String,
        /// The error of the write.
        why: String,
        /// For a wait for a bundle: when the certificate is issued even without it.
        until: Option<Timestamp>,
    },
    /// The PKI resource cannot be read, so the existing certificate is kept.
    Policy {
        /// The error.
        why: String,
        /// When the certificate is issued nevertheless, with the platform's key.
        until: Timestamp,
    },
}

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Time, a rollout or the next pass. The rotation continues by itself.
    Progress,
    /// An administrator: the cluster or its configuration has a problem.
    Attention,
    /// The other operator, which manages the component.
    OtherOperator,
}

impl Waiting {
    /// Returns the kind of the wait, for the label of a metric. The set of kinds is fixed.
    pub fn label(&self) -> &'static str {
        match self {
            Waiting::SignerTooYoung { .. } => "SignerTooYoung",
            Waiting::Trust { .. } => "ClientsLackTrust",
            Waiting::Rollout { .. } => "Rollout",
            Waiting::Window { .. } => "MaintenanceWindow",
            Waiting::Validity { .. } => "NotYetValid",
            Waiting::OtherWriter { .. } => "OtherOperator",
            Waiting::Signer { .. } => "SignerNotUsable",
            Waiting::Hosts { .. } => "HostnamesUnknown",
            Waiting::Breaker { .. } => "CircuitBreaker",
            Waiting::Contested { .. } => "Contested",
            Waiting::Pace { .. } => "Pace",
            Waiting::Unknown { .. } => "NotReadable",
            Waiting::Blocked { .. } => "WriteFailed",
            Waiting::Policy { .. } => "PolicyNotReadable",
        }
    }

    /// Returns the remedy that ends the wait.
    pub fn remedy(&self) -> Remedy {
        match self {
            Waiting::SignerTooYoung { .. }
            | Waiting::Trust { .. }
            | Waiting::Rollout { .. }
            | Waiting::Window { .. }
            | Waiting::Validity { .. }
            | Waiting::Signer { .. }
            | Waiting::Pace { .. } => Remedy::Progress,
            Waiting::Hosts { .. }
            | Waiting::Breaker { .. }
            | Waiting::Contested { .. }
            | Waiting::Unknown { .. }
            | Waiting::Blocked { .. }
            | Waiting::Policy { .. } => Remedy::Attention,
            Waiting::OtherWriter { .. } => Remedy::OtherOperator,
        }
    }

    /// Returns the message without any time, for a status that must not change while nothing happens.
    pub fn summary(&self) -> String {
        match self {
            Waiting::SignerTooYoung { .. } => "its new signer may not have reached all verifiers yet".to_owned(),
            Waiting::Trust { refusal, .. } => {
                let verifier = refusal.edge.split(" accepts ").next().unwrap_or_default();
                let bundle = refusal.broken.bundle.split(':').next().unwrap_or_default();
                format!("if issued now, a {verifier} that still has the previous {bundle} would reject it")
            }
            Waiting::Rollout { lacking, .. } => {
                format!("static pods must restart first: they still hold {}", first_few(lacking))
            }
            Waiting::Window { .. } => "the maintenance window is closed".to_owned(),
            Waiting::Validity { .. } => "it is not valid yet".to_owned(),
            Waiting::Breaker { issued, .. } => {
                format!("circuit breaker: issued {issued} times within an hour; retried when the hour is over")
            }
            Waiting::Contested { .. } => "another writer keeps changing its labels or annotations".to_owned(),
            Waiting::Policy { why, .. } => format!("the PKI resource cannot be read: {why}"),
            Waiting::OtherWriter { .. }
            | Waiting::Signer { .. }
            | Waiting::Hosts { .. }
            | Waiting::Pace { .. }
            | Waiting::Unknown { .. }
            | Waiting::Blocked { .. } => self.to_string(),
        }
    }

    /// Returns when time alone ends the wait.
    pub fn until(&self) -> Option<Timestamp> {
        match self {
            Waiting::SignerTooYoung { until }
            | Waiting::Window { opens_at: until }
            | Waiting::Validity { begins_at: until }
            | Waiting::Breaker { until, .. }
            | Waiting::Contested { until, .. }
            | Waiting::Policy { until, .. } => Some(*until),
            Waiting::Trust { until, .. }
            | Waiting::Rollout { until, .. }
            | Waiting::Signer { until, .. }
            | Waiting::Blocked { until, .. } => *until,
            Waiting::OtherWriter { .. } | Waiting::Hosts { .. } | Waiting::Pace { .. } | Waiting::Unknown { .. } => {
                None
            }
        }
    }
}

/// Returns the first three names, and the number of the others.
pub fn first_few(names: &[String]) -> String {
    match names {
        [first @ .., last] if names.len() <= 3 && !first.is_empty() => format!("{} and {last}", first.join(", ")),
        [one, two, three, more @ ..] if !more.is_empty() => format!("{one}, {two}, {three} and {} more", more.len()),
        few => few.join(", "),
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Absent => f.write_str("secret doesn't exist"),
            Reason::Unreadable { why } => write!(f, "unusable: {why}"),
            Reason::AnnotationMissing { which: BoundaryName::NotAfter } => f.write_str("missing notAfter"),
            Reason::AnnotationMissing { which: BoundaryName::NotBefore } => f.write_str("missing notBefore"),
            Reason::AnnotationGarbled { value } => write!(f, "bad expiry: {value:?}"),
            Reason::IssuerMissing => f.write_str("missing issuer name"),
            Reason::Expired { not_after } => write!(f, "already expired at {not_after}"),
            Reason::NotYetValid { not_before } => write!(f, "not valid before {not_before}"),
            Reason::Forced { reason } => write!(f, "forced rotation: {reason}"),
            Reason::PastEightyPercent { since } => write!(f, "past refresh time (80% of validity) since {since}"),
            Reason::PastRefresh { since } => write!(f, "past its refresh time {since}"),
            Reason::IssuerNotInBundle => f.write_str("issuer not in ca bundle"),
            Reason::Distrusted { since } => write!(f, "distrusted since {since}"),
            Reason::SignerChanged => f.write_str("cert not signed by most recent signer"),
            Reason::ChainDiffers { missing, foreign } => {
                write!(f, "served chain differs: {missing} missing, {foreign} foreign")
            }
            Reason::HostsDiffer { extra, missing } => {
                let list = |hosts: &[Host]| hosts.iter().map(Host::to_string).collect::<Vec<_>>().join(",");
                write!(
                    f,
                    "hostnames differ: existing-not-required [{}], required-not-existing [{}]",
                    list(extra),
                    list(missing)
                )
            }
        }
    }
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Waiting::SignerTooYoung { until } => {
                write!(f, "its new signer may not have reached all verifiers before {until}")
            }
            Waiting::Trust { until: Some(until), refusal } => write!(f, "until {until}: {refusal}"),
            Waiting::Trust { until: None, refusal } => write!(f, "until the cluster changes: {refusal}"),
            Waiting::Rollout { lacking, refusal, .. } => {
                write!(f, "static pods must restart first: they still hold {}: {refusal}", first_few(lacking))
            }
            Waiting::Window { opens_at } => write!(f, "maintenance window opens at {opens_at}"),
            Waiting::Validity { begins_at } => write!(f, "the start of its validity at {begins_at}"),
            Waiting::OtherWriter { object, writer } => write!(f, "{writer} manages {object}"),
            Waiting::Signer { signer, .. } => write!(f, "its signer {signer} is not usable yet"),
            Waiting::Hosts { why } => write!(f, "its names are not known: {why}"),
            Waiting::Breaker { issued, since, until } => {
                write!(f, "circuit breaker: issued {issued} times since {since}, not again before {until}")
            }
            Waiting::Contested { times, since, until } => {
                write!(
                    f,
                    "another writer keeps changing its labels or annotations: corrected {times} times since {since}, next attempt after {until}"
                )
            }
            Waiting::Pace { in_flight: 1 } => f.write_str("another certificate is being rotated"),
            Waiting::Pace { in_flight } => write!(f, "{in_flight} other certificates are being rotated"),
            Waiting::Unknown { object, why } => write!(f, "{object} could not be read: {why}"),
            Waiting::Blocked { object, why, .. } => write!(f, "{object} could not be written: {why}"),
            Waiting::Policy { why, until } => {
                write!(f, "the PKI resource cannot be read ({why}); the existing certificate stays until {until}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::{Broken, Obstacle};

    #[test]
    fn of_many_names_three_are_listed() {
        let few =
            |count: u8| first_few(&(b'a'..b'a' + count).map(|name| char::from(name).to_string()).collect::<Vec<_>>());
        assert_eq!([0, 1, 2, 3].map(few), ["", "a", "a and b", "a, b and c"]);
        assert_eq!([4, 9].map(few), ["a, b, c and 1 more", "a, b, c and 6 more"]);
    }

    /// Returns a wait of every kind, with this time in every field that may contain one.
    fn every_wait(at: Timestamp) -> Vec<Waiting> {
        let refusal = || {
            let broken = Broken {
                bundle: format!("openshift-service-ca/signing-cabundle:ca-bundle.crt as it was until {at}"),
                leaf: format!("shop/web-tls:tls.crt as it was until {at}"),
                obstacle: Obstacle::NotValid { not_before: at, not_after: at },
            };
            Box::new(Refusal { edge: "consumer of the service CA accepts shop/web-tls".into(), at, broken })
        };
        let (text, until) = (|| "a text".to_owned(), Some(at));
        vec![
            Waiting::SignerTooYoung { until: at },
            Waiting::Trust { until, refusal: refusal() },
            Waiting::Rollout { lacking: vec![text()], until, refusal: refusal() },
            Waiting::Window { opens_at: at },
            Waiting::Validity { begins_at: at },
            Waiting::OtherWriter { object: text(), writer: text() },
            Waiting::Signer { signer: text(), until },
            Waiting::Hosts { why: text() },
            Waiting::Breaker { issued: 5, since: at, until: at },
            Waiting::Contested { times: 5, since: at, until: at },
            Waiting::Pace { in_flight: 5 },
            Waiting::Unknown { object: text(), why: text() },
            Waiting::Blocked { object: text(), why: text(), until },
            Waiting::Policy { why: text(), until: at },
        ]
    }

    /// Returns the position in [`every_wait`]. A new kind of wait does not compile until it has one.
    fn position(waiting: &Waiting) -> usize {
        match waiting {
            Waiting::SignerTooYoung { .. } => 0,
            Waiting::Trust { .. } => 1,
            Waiting::Rollout { .. } => 2,
            Waiting::Window { .. } => 3,
            Waiting::Validity { .. } => 4,
            Waiting::OtherWriter { .. } => 5,
            Waiting::Signer { .. } => 6,
            Waiting::Hosts { .. } => 7,
            Waiting::Breaker { .. } => 8,
            Waiting::Contested { .. } => 9,
            Waiting::Pace { .. } => 10,
            Waiting::Unknown { .. } => 11,
            Waiting::Blocked { .. } => 12,
            Waiting::Policy { .. } => 13,
        }
    }

    #[test]
    fn the_summary_of_a_wait_contains_no_time() {
        let [early, late] = ["2026-01-01T00:00:00Z", "2027-12-31T23:59:59Z"].map(|it| every_wait(it.parse().unwrap()));
        assert!(early.iter().map(position).eq(0..14));
        let summaries = |waits: &[Waiting]| waits.iter().map(Waiting::summary).collect::<Vec<_>>();
        assert_eq!(summaries(&early), summaries(&late));
        assert!(summaries(&early).iter().all(|it| !it.is_empty()));
    }

    #[test]
    fn one_other_certificate_is_singular() {
        let pace = |in_flight| Waiting::Pace { in_flight }.to_string();
        assert_eq!(
            [1, 2].map(pace),
            ["another certificate is being rotated", "2 other certificates are being rotated"]
        );
    }
}
