//! The faults of a run, and their times: drawn once from the seed, so that a run can be repeated with fewer of them.

use std::fmt;
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::chance::Chance;
use super::words;

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultKind {
    /// Perennial is stopped for hours or days: shorter than any reserve.
    Outages,
    /// Perennial or the whole cluster is stopped for weeks or months.
    LongOutages,
    /// Secrets and ConfigMaps are deleted.
    Deletions,
    /// Secrets and ConfigMaps are damaged.
    Corruption,
    /// Writes are lost or repeated, and Perennial crashes between two of them.
    Crashes,
    /// Clocks are a few minutes off, for a while.
    Clocks,
    /// Control-plane nodes and Services come and go.
    Membership,
    /// Administrators edit the policy and force rotations.
    Administrators,
}

/// A fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Fault {
    /// Perennial stops.
    OperatorDown {
        /// The length in seconds.
        seconds: i64,
    },
    /// The whole cluster stops; then every process starts with the current content of its files.
    ClusterDown {
        /// The length in seconds.
        seconds: i64,
    },
    /// A Secret, drawn by number, is deleted.
    DeleteSecret(u64),
    /// A ConfigMap is deleted.
    DeleteBundle(u64),
    /// A Secret is damaged.
    CorruptSecret(u64),
    /// A ConfigMap is damaged: some of its certificates are lost.
    CorruptBundle(u64),
    /// An annotation is removed.
    GarbleAnnotation(u64),
    /// The next writes are lost.
    LoseWrites(u64),
    /// The next write succeeds, but its response is lost: Perennial retries it.
    RepeatWrite,
    /// Perennial crashes after so many more writes, and restarts.
    Crash(u64),
    /// Perennial's clock is wrong for a while.
    ClockOff {
        /// The seconds by which it is ahead (negative: behind).
        seconds: i64,
        /// The length in seconds.
        lasts: i64,
    },
    /// A control-plane node joins.
    NodeJoins,
    /// A control-plane node leaves, if there are more than three.
    NodeLeaves,
    /// A Service asks for a certificate.
    ServiceComes,
    /// A Service is deleted.
    ServiceGoes,
    /// An administrator changes the key policy.
    PolicyEdit(u64),
    /// The policy cannot be read.
    PolicyUnreadable {
        /// The length in seconds.
        seconds: i64,
    },
    /// An administrator forces a rotation of a row, drawn by number.
    Force(u64),
}

/// A fault and its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Scheduled {
    /// The time.
    pub at: Timestamp,
    /// The fault.
    pub fault: Fault,
}

impl FaultKind {
    /// Every kind.
    pub const ALL: [FaultKind; 8] = [
        FaultKind::Outages,
        FaultKind::LongOutages,
        FaultKind::Deletions,
        FaultKind::Corruption,
        FaultKind::Crashes,
        FaultKind::Clocks,
        FaultKind::Membership,
        FaultKind::Administrators,
    ];

    /// Returns the name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            FaultKind::Outages => "outages",
            FaultKind::LongOutages => "long-outages",
            FaultKind::Deletions => "deletions",
            FaultKind::Corruption => "corruption",
            FaultKind::Crashes => "crashes",
            FaultKind::Clocks => "clocks",
            FaultKind::Membership => "membership",
            FaultKind::Administrators => "administrators",
        }
    }

    /// Returns how many days pass between two faults of the kind, on average.
    fn days_between(self) -> i64 {
        match self {
            FaultKind::Outages => 30,
            FaultKind::LongOutages => 250,
            FaultKind::Deletions | FaultKind::Corruption => 40,
            FaultKind::Crashes => 7,
            FaultKind::Clocks => 20,
            FaultKind::Membership => 60,
            FaultKind::Administrators => 90,
        }
    }

    fn draw(self, chance: &mut Chance) -> Fault {
        const HOUR: i64 = 3600;
        const DAY: i64 = 24 * HOUR;
        let number = chance.below(u64::MAX);
        let choice = chance.below(100);
        match self {
            FaultKind::Outages if choice < 70 => Fault::OperatorDown { seconds: chance.seconds(60, DAY).as_secs() },
            FaultKind::Outages => Fault::ClusterDown { seconds: chance.seconds(60, 12 * HOUR).as_secs() },
            FaultKind::LongOutages if choice < 50 => {
                Fault::OperatorDown { seconds: chance.seconds(5 * DAY, 60 * DAY).as_secs() }
            }
            FaultKind::LongOutages => Fault::ClusterDown { seconds: chance.seconds(5 * DAY, 90 * DAY).as_secs() },
            FaultKind::Deletions if choice < 60 => Fault::DeleteSecret(number),
            FaultKind::Deletions => Fault::DeleteBundle(number),
            FaultKind::Corruption if choice < 40 => Fault::CorruptSecret(number),
            FaultKind::Corruption if choice < 80 => Fault::CorruptBundle(number),
            FaultKind::Corruption => Fault::GarbleAnnotation(number),
            FaultKind::Crashes if choice < 30 => Fault::LoseWrites(1 + number % 5),
            FaultKind::Crashes if choice < 50 => Fault::RepeatWrite,
            FaultKind::Crashes => Fault::Crash(number % 12),
            FaultKind::Clocks => Fault::ClockOff {
                seconds: chance.seconds(-240, 240).as_secs(),
                lasts: chance.seconds(600, 2 * DAY).as_secs(),
            },
            FaultKind::Membership if choice < 30 => Fault::NodeJoins,
            FaultKind::Membership if choice < 60 => Fault::NodeLeaves,
            FaultKind::Membership if choice < 85 => Fault::ServiceComes,
            FaultKind::Membership => Fault::ServiceGoes,
            FaultKind::Administrators if choice < 30 => Fault::PolicyEdit(number),
            FaultKind::Administrators if choice < 45 => {
                Fault::PolicyUnreadable { seconds: chance.seconds(HOUR, 10 * DAY).as_secs() }
            }
            FaultKind::Administrators => Fault::Force(number),
        }
    }
}

/// Returns all faults of a run, in the order of time.
pub(super) fn script(kinds: &[FaultKind], from: Timestamp, to: Timestamp, chance: &mut Chance) -> Vec<Scheduled> {
    let mut script = Vec::new();
    for kind in kinds {
        let mut at = from;
        loop {
            at = at.saturating_add(chance.seconds(60, 2 * 86_400 * kind.days_between())).unwrap_or(Timestamp::MAX);
            if to <= at {
                break;
            }
            script.push(Scheduled { at, fault: kind.draw(chance) });
            // An administrator who forces one rotation may force another at once.
            if matches!(script.last(), Some(Scheduled { fault: Fault::Force(_), .. })) && chance.percent(30) {
                let soon = at + SignedDuration::from_mins(7);
                script.push(Scheduled { at: soon, fault: FaultKind::Administrators.draw(chance) });
            }
        }
    }
    script.sort_by_key(|scheduled| scheduled.at);
    script
}

impl FromStr for FaultKind {
    type Err = String;

    fn from_str(text: &str) -> Result<FaultKind, String> {
        let known = || FaultKind::ALL.map(FaultKind::name).join(", ");
        let found = FaultKind::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("{text:?} is not a kind of fault: expected one of {}", known()))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hours = |seconds: &i64| words::span(SignedDuration::from_secs(*seconds));
        match self {
            Fault::OperatorDown { seconds } => write!(f, "Perennial is down for {}", hours(seconds)),
            Fault::ClusterDown { seconds } => write!(f, "the whole cluster is down for {}", hours(seconds)),
            Fault::DeleteSecret(_) => f.write_str("a user deletes a Secret"),
            Fault::DeleteBundle(_) => f.write_str("a user deletes a ConfigMap"),
            Fault::CorruptSecret(_) => f.write_str("a user damages a Secret"),
            Fault::CorruptBundle(_) => f.write_str("a user damages a ConfigMap"),
            Fault::GarbleAnnotation(_) => f.write_str("a user removes an annotation"),
            Fault::LoseWrites(1) => f.write_str("the next write is lost"),
            Fault::LoseWrites(count) => write!(f, "the next {count} writes are lost"),
            Fault::RepeatWrite => f.write_str("the next write succeeds, but its response is lost"),
            Fault::Crash(writes) => write!(f, "Perennial crashes before write {} from now", writes + 1),
            Fault::ClockOff { seconds, lasts } => {
                write!(f, "Perennial's clock is {seconds}s off for {}", hours(lasts))
            }
            Fault::NodeJoins => f.write_str("a control-plane node joins"),
            Fault::NodeLeaves => f.write_str("a control-plane node leaves"),
            Fault::ServiceComes => f.write_str("a Service asks for a certificate"),
            Fault::ServiceGoes => f.write_str("a Service is deleted"),
            Fault::PolicyEdit(_) => f.write_str("an administrator changes the key policy"),
            Fault::PolicyUnreadable { seconds } => write!(f, "the policy cannot be read for {}", hours(seconds)),
            Fault::Force(_) => f.write_str("an administrator forces a rotation"),
        }
    }
}
