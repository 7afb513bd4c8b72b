//! Why something is issued, and what something waits for: in the words that people look for in events and logs.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::spec::Host;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Waiting {
    /// Whoever verifies it may not have the new signer yet.
    SignerTooYoung {
        /// When they have.
        until: Timestamp,
    },
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
            Reason::SignerChanged => f.write_str("cert not signed by most recent signer"),
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
        }
    }
}
