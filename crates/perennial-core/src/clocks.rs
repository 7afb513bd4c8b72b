//! The current time by two clocks that may differ: the API server's clock and the local clock.

use jiff::{SignedDuration, Timestamp};

/// How far the two clocks may differ without consequences.
pub const TOLERANCE: SignedDuration = SignedDuration::from_mins(5);

/// The current time by two clocks. Perennial does not know which of them is right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Clocks {
    now: Timestamp,
    other: Timestamp,
}

impl Clocks {
    /// Returns one clock, or two that agree.
    pub fn one(now: Timestamp) -> Clocks {
        Clocks { now, other: now }
    }

    /// Returns the leading clock and another one that is `seconds` ahead of it (behind it, if negative). Instants stay within the
    /// calendar.
    pub fn apart(now: Timestamp, seconds: i64) -> Clocks {
        Clocks { now, other: shifted(now, SignedDuration::from_secs(seconds)) }
    }

    /// Returns the time by the leading clock, which is recorded and at which a certificate must be valid.
    pub fn now(self) -> Timestamp {
        self.now
    }

    /// Returns the earlier time: an instant before it is past by both clocks.
    pub fn earliest(self) -> Timestamp {
        self.now.min(self.other)
    }

    /// Returns the later time: an instant after it is in the future by both clocks.
    pub fn latest(self) -> Timestamp {
        self.now.max(self.other)
    }

    /// Returns when an instant is past by both clocks, measured by the leading clock.
    pub fn past_by_both(self, at: Timestamp) -> Timestamp {
        shifted(at, self.earliest().duration_until(self.now))
    }
}

/// Returns an instant that is `by` later, within the calendar.
pub fn shifted(at: Timestamp, by: SignedDuration) -> Timestamp {
    let end = if by.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    at.checked_add(by).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_stay_within_the_calendar() {
        for seconds in [i64::MIN, -1, 0, 1, i64::MAX] {
            for now in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
                let clocks = Clocks::apart(now, seconds);
                assert!(clocks.earliest() <= clocks.now() && clocks.now() <= clocks.latest());
                for at in [Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX] {
                    assert!(at <= clocks.past_by_both(at));
                }
            }
        }
    }

    #[test]
    fn an_instant_is_past_by_both_when_the_later_clock_has_waited_for_the_other() {
        let now = Timestamp::UNIX_EPOCH;
        let at = shifted(now, SignedDuration::from_secs(10));
        assert_eq!(Clocks::one(now).past_by_both(at), at);
        assert_eq!(Clocks::apart(now, 60).past_by_both(at), at);
        assert_eq!(Clocks::apart(now, -60).past_by_both(at), shifted(at, SignedDuration::from_secs(60)));
    }
}
