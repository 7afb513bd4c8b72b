//! Lifetimes in the catalog, and the scale that shortens all of them for rehearsals.

use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize, Serializer};

/// A span of time in whole seconds. Written as text: `30d`, `12h`, `10m`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span {
    seconds: i64,
}

/// Divides every lifetime, refresh and lag of the catalog by the same number.
///
/// One scale for all keeps the order of all lifetimes, which a rehearsal depends on. A test checks this
/// for the largest divisor; with a larger one, all lifetimes would be one second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct TimeScale {
    /// From 1 to [`TimeScale::MAX_DIVISOR`].
    divisor: u32,
}

/// The time after which a rollout of a static-pod revision has reached all nodes, with some to spare: a write that a rollout must
/// precede is delayed for that long at most.
pub const ROLLOUT_AT_MOST: Span = Span::minutes(120);

/// The time that a rollout of a static-pod revision usually takes: the forecast, which has no process to observe, assumes it.
pub const USUAL_ROLLOUT: Span = Span::minutes(30);

impl Span {
    /// Returns a span of this many seconds.
    pub const fn seconds(seconds: i64) -> Span {
        Span { seconds }
    }

    /// Returns a span of this many minutes.
    pub const fn minutes(minutes: i64) -> Span {
        Span { seconds: minutes * 60 }
    }

    /// Returns a span of this many days of 24 hours.
    pub const fn days(days: i64) -> Span {
        Span { seconds: days * 86_400 }
    }

    /// Returns the scaled duration, at least a second.
    pub fn scaled(self, scale: TimeScale) -> SignedDuration {
        SignedDuration::from_secs((self.seconds / i64::from(scale.divisor)).max(1))
    }

    /// Returns the span that has this many seconds after scaling.
    pub fn from_scaled(seconds: u32, scale: TimeScale) -> Span {
        Span { seconds: i64::from(seconds) * i64::from(scale.divisor) }
    }

    /// Returns the whole days, at full scale.
    pub(super) const fn as_days(self) -> i64 {
        self.seconds / 86_400
    }

    /// Returns the seconds, at full scale.
    pub const fn as_seconds(self) -> i64 {
        self.seconds
    }
}

impl TimeScale {
    /// Real lifetimes.
    pub const FULL: TimeScale = TimeScale { divisor: 1 };

    /// The scale of the feature gate `ShortCertRotation`: 30 days become two hours.
    pub const SHORT: TimeScale = TimeScale { divisor: 360 };

    /// The largest divisor: ten minutes become one second.
    pub const MAX_DIVISOR: u32 = 600;

    /// Returns a scale that divides by `divisor`, if that is from 1 to [`TimeScale::MAX_DIVISOR`].
    pub const fn divide_by(divisor: u32) -> Option<TimeScale> {
        match divisor {
            1..=TimeScale::MAX_DIVISOR => Some(TimeScale { divisor }),
            _ => None,
        }
    }
}

impl std::ops::Add for Span {
    type Output = Span;

    fn add(self, other: Span) -> Span {
        Span { seconds: self.seconds + other.seconds }
    }
}

impl std::ops::Sub for Span {
    type Output = Span;

    fn sub(self, other: Span) -> Span {
        Span { seconds: self.seconds - other.seconds }
    }
}

impl TryFrom<u32> for TimeScale {
    type Error = String;

    fn try_from(divisor: u32) -> Result<TimeScale, String> {
        let wrong = || format!("a time scale divides by 1 to {}, not by {divisor}", TimeScale::MAX_DIVISOR);
        TimeScale::divide_by(divisor).ok_or_else(wrong)
    }
}

impl From<TimeScale> for u32 {
    fn from(scale: TimeScale) -> u32 {
        scale.divisor
    }
}

impl Serialize for Span {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, length) in [("d", 86_400), ("h", 3_600), ("m", 60)] {
            if self.seconds >= length && self.seconds % length == 0 {
                return write!(f, "{}{unit}", self.seconds / length);
            }
        }
        write!(f, "{}s", self.seconds)
    }
}
