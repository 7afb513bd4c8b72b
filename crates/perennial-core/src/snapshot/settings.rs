//! What somebody asked for: everything about a decision that is not found in certificates.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::catalog::TimeScale;
use crate::rules::Mode;

/// How Perennial was told to behave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Real lifetimes, or a rehearsal's.
    pub time_scale: TimeScale,
    /// By which rules.
    pub mode: Mode,
    /// Forced rotations that somebody asks for: the row, and why.
    pub forced: BTreeMap<String, String>,
    /// Edges that may break, because somebody who cannot be reached was told.
    pub consent: BTreeSet<String>,
    /// When restarts are welcome; always, where there is none.
    pub windows: Vec<Window>,
    /// Components whose objects are ours although somebody else writes them.
    pub taken_over: BTreeSet<String>,
    /// How many certificates may be in the making at once.
    pub in_flight: usize,
}

/// A time of the week at which restarts are welcome, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, try_from = "RawWindow")]
pub struct Window {
    /// Minutes from midnight between Sunday and Monday to its beginning, below 10,080.
    pub from_minute: u32,
    /// How long it lasts.
    pub minutes: u32,
}

/// A window as it is written.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawWindow {
    from_minute: u32,
    minutes: u32,
}

impl TryFrom<RawWindow> for Window {
    type Error = String;

    fn try_from(raw: RawWindow) -> Result<Window, String> {
        let RawWindow { from_minute, minutes } = raw;
        let week = u32::try_from(WEEK_MINUTES).unwrap_or(u32::MAX);
        if from_minute >= week {
            return Err(format!("a window's fromMinute is {from_minute}: accepted is 0 to {}", week - 1));
        }
        if minutes == 0 || minutes > week {
            return Err(format!("a window's minutes are {minutes}: accepted is 1 to {week}"));
        }
        Ok(Window { from_minute, minutes })
    }
}

const WEEK_MINUTES: i64 = 7 * 24 * 60;

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            time_scale: TimeScale::FULL,
            mode: Mode::Normal,
            forced: BTreeMap::new(),
            consent: BTreeSet::new(),
            windows: Vec::new(),
            taken_over: BTreeSet::new(),
            in_flight: 50,
        }
    }
}

impl Settings {
    /// When restarts are welcome next; none where they are now.
    pub fn next_window(&self, now: Timestamp) -> Option<Timestamp> {
        if self.windows.is_empty() {
            return None;
        }
        let opening: Vec<Timestamp> = self.windows.iter().map(|window| window.opens_at(now)).collect();
        opening.into_iter().min().filter(|opens_at| now < *opens_at)
    }
}

impl Window {
    /// The beginning of the next one, or now while it is open.
    fn opens_at(&self, now: Timestamp) -> Timestamp {
        let civil = now.to_zoned(TimeZone::UTC);
        let midnight = civil.start_of_day().map_or(now, |midnight| midnight.timestamp());
        let days = i64::from(civil.weekday().to_monday_zero_offset());
        let monday = midnight - SignedDuration::from_hours(24 * days);
        let opening = |week: i64| monday + SignedDuration::from_mins(i64::from(self.from_minute) + week * WEEK_MINUTES);
        // Last week's may reach into this one.
        let openings = [opening(-1), opening(0), opening(1)];
        let length = SignedDuration::from_mins(i64::from(self.minutes));
        let next = openings.into_iter().find(|from| now < *from + length).unwrap_or(openings[2]);
        next.max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_lies_within_a_week() {
        let read = |text: &str| serde_json::from_str::<Window>(text).map_err(|error| error.to_string());
        assert!(read(r#"{"fromMinute": 10079, "minutes": 10080}"#).is_ok());
        let refused = read(r#"{"fromMinute": 10080, "minutes": 1}"#).unwrap_err();
        assert_eq!(refused, "a window's fromMinute is 10080: accepted is 0 to 10079");
        assert!(read(r#"{"fromMinute": 0, "minutes": 0}"#).is_err());
        assert!(read(r#"{"fromMinute": 0, "minutes": 4294967295}"#).is_err());
    }

    #[test]
    fn a_window_opens_every_week() {
        // Sunday 22:00 to Monday 02:00.
        let window = Window { from_minute: (6 * 24 + 22) * 60, minutes: 240 };
        let settings = Settings { windows: vec![window], ..Settings::default() };
        let next = |now: &str| settings.next_window(now.parse().unwrap()).map(|at| at.to_string());
        assert_eq!(next("2026-11-15T21:59:59Z").as_deref(), Some("2026-11-15T22:00:00Z")); // a Sunday
        assert_eq!(next("2026-11-15T22:00:00Z"), None);
        assert_eq!(next("2026-11-16T01:59:59Z"), None);
        assert_eq!(next("2026-11-16T02:00:00Z").as_deref(), Some("2026-11-22T22:00:00Z"));
        assert_eq!(Settings::default().next_window("2026-11-15T21:59:59Z".parse().unwrap()), None);
    }
}
