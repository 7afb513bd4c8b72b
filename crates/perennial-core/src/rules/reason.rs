//! Why something is issued, and what something waits for: in the words that people look for in events and logs.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::spec::Host;
use crate::trust::Refusal;

/// Why a certificate is issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Reason {
    /// There is none.
    Absent,
    /// What is there cannot be used.
    Unreadable {
        /// What is wrong with it.
        why: String,
    },
    /// An annotation that should say when it ends, or begins, is missing.
    AnnotationMissing {
        /// `notAfter` or `notBefore`.
        which: BoundaryName,
    },
    /// Such an annotation is no instant.
    AnnotationGarbled {
        /// What stands there.
        value: String,
    },
    /// The annotation that should name the issuer is missing.
    IssuerMissing,
    /// It has ended.
    Expired {
        /// Its last second.
        not_after: Timestamp,
    },
    /// An administrator asked for it.
    Forced {
        /// Why.
        reason: String,
    },
    /// Four fifths of its life are over.
    PastEightyPercent {
        /// When they were.
        since: Timestamp,
    },
    /// Its refresh is due.
    PastRefresh {
        /// Since when.
        since: Timestamp,
    },
    /// Nobody in the bundle signed it.
    IssuerNotInBundle,
    /// Another signer has taken over, and this certificate follows at once.
    SignerChanged,
    /// Nobody is to trust it, or who signed it, any more.
    Distrusted {
        /// Since when.
        since: Timestamp,
    },
    /// Others are served beside it than should be.
    ChainDiffers {
        /// How many are not served that lead to an earlier signer, or to any.
        missing: usize,
        /// How many are served that have nothing to do with its signer.
        foreign: usize,
    },
    /// It has other names than it should have.
    HostsDiffer {
        /// Names that it has and should not.
        extra: Vec<Host>,
        /// Names that it should have and has not.
        missing: Vec<Host>,
    },
}

/// Which end of a certificate's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BoundaryName {
    /// The end.
    NotAfter,
    /// The beginning.
    NotBefore,
}

/// What something that is due waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Waiting {
    /// Whoever verifies it may not have the new signer yet.
    SignerTooYoung {
        /// When they have.
        until: Timestamp,
    },
    /// It would break an edge, until time has passed or that edge is broken anyway.
    Trust {
        /// When it is safe, if time alone makes it so.
        until: Option<Timestamp>,
        /// What would break.
        refusal: Box<Refusal>,
    },
    /// Static pods must first run what they trust it by.
    Rollout {
        /// Which of them do not yet.
        lacking: Vec<String>,
        /// The latest at which waiting is of no more use, because what would break is broken anyway.
        until: Option<Timestamp>,
        /// What would break.
        refusal: Box<Refusal>,
    },
    /// It restarts something, and this is not the time for that.
    Window {
        /// When it is.
        opens_at: Timestamp,
    },
    /// It is there, and stays; but it is not valid yet, and nobody accepts it.
    Validity {
        /// When it is.
        begins_at: Timestamp,
    },
    /// Somebody else writes the objects of its component.
    OtherWriter {
        /// The object.
        object: String,
        /// Who.
        writer: String,
    },
    /// Its signer is not there yet.
    Signer {
        /// The signer.
        signer: String,
        /// When that may change by itself.
        until: Option<Timestamp>,
    },
    /// Its names are not known.
    Hosts {
        /// What is missing.
        why: String,
    },
    /// It was issued more often than its rules can explain.
    Breaker {
        /// How often.
        issued: usize,
        /// Since when.
        since: Timestamp,
        /// When it is tried once more.
        until: Timestamp,
    },
    /// Somebody else sets its labels and annotations otherwise, each time.
    Contested {
        /// How often they were set right.
        times: usize,
        /// Since when.
        since: Timestamp,
        /// When it is tried once more.
        until: Timestamp,
    },
    /// Enough others are in the making.
    Pace {
        /// How many.
        in_flight: usize,
    },
    /// What it depends on could not be looked at.
    Unknown {
        /// What.
        object: String,
        /// Why.
        why: String,
    },
    /// The object was just tried to be written, in vain; or the bundle was that must have its signer first.
    Blocked {
        /// The object.
        object: String,
        /// What was said.
        why: String,
        /// When it is issued all the same, where it waits for a bundle.
        until: Option<Timestamp>,
    },
    /// The PKI resource cannot be read, and what exists is better kept than guessed at.
    Policy {
        /// What is wrong with it.
        why: String,
        /// When it is issued all the same.
        until: Timestamp,
    },
}

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Time, a rollout or the next pass: the rotation goes on by itself.
    Progress,
    /// A person: something is wrong with the cluster or its configuration.
    Attention,
    /// The other operator that manages the component.
    OtherOperator,
}

impl Waiting {
    /// Returns a name for the kind of wait, for the label of a metric: one of a fixed few.
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

    /// Returns what ends the wait.
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

    /// Returns the wait in words without any instant, for a status that must not change while nothing happens.
    pub fn summary(&self) -> String {
        match self {
            Waiting::SignerTooYoung { .. } => "its signer is too new for the clients that verify it".to_owned(),
            Waiting::Trust { refusal, .. } => {
                let verifier = refusal.edge.split(" accepts ").next().unwrap_or_default();
                let bundle = refusal.broken.bundle.split(':').next().unwrap_or_default();
                format!("if issued now, a {verifier} that still has the previous {bundle} would reject it")
            }
            Waiting::Rollout { lacking, .. } => format!("rollout of {}", first_few(lacking)),
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

    /// When time alone ends it.
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

/// Three names, and how many more there are.
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
            Waiting::SignerTooYoung { until } => write!(f, "signer too young until {until}"),
            Waiting::Trust { until: Some(until), refusal } => write!(f, "until {until}: {refusal}"),
            Waiting::Trust { until: None, refusal } => write!(f, "until something changes: {refusal}"),
            Waiting::Rollout { lacking, refusal, .. } => {
                write!(f, "rollout of {}: {refusal}", first_few(lacking))
            }
            Waiting::Window { opens_at } => write!(f, "maintenance window opens at {opens_at}"),
            Waiting::Validity { begins_at } => write!(f, "its own validity, which begins at {begins_at}"),
            Waiting::OtherWriter { object, writer } => write!(f, "{writer} is writing {object}"),
            Waiting::Signer { signer, .. } => write!(f, "its signer {signer} is not usable yet"),
            Waiting::Hosts { why } => write!(f, "its names are not known: {why}"),
            Waiting::Breaker { issued, since, until } => {
                write!(f, "circuit breaker: issued {issued} times since {since}, not again before {until}")
            }
            Waiting::Contested { times, since, until } => {
                write!(
                    f,
                    "somebody else sets its labels and annotations: set right {times} times since {since}, not again before {until}"
                )
            }
            Waiting::Pace { in_flight: 1 } => f.write_str("another one is in the making"),
            Waiting::Pace { in_flight } => write!(f, "{in_flight} others are in the making"),
            Waiting::Unknown { object, why } => write!(f, "{object} could not be read: {why}"),
            Waiting::Blocked { object, why, .. } => write!(f, "{object} could not be written: {why}"),
            Waiting::Policy { why, until } => {
                write!(f, "the PKI resource cannot be read ({why}); left as it is until {until}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_names_three_are_told() {
        let told =
            |count: u8| first_few(&(b'a'..b'a' + count).map(|name| char::from(name).to_string()).collect::<Vec<_>>());
        assert_eq!([0, 1, 2, 3].map(told), ["", "a", "a and b", "a, b and c"]);
        assert_eq!([4, 9].map(told), ["a, b, c and 1 more", "a, b, c and 6 more"]);
    }

    #[test]
    fn one_other_is_not_several() {
        let pace = |in_flight| Waiting::Pace { in_flight }.to_string();
        assert_eq!([1, 2].map(pace), ["another one is in the making", "2 others are in the making"]);
    }
}
