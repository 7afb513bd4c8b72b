//! What somebody asked for: everything about a decision that is not found in certificates.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::catalog::{Component, Day, Row, Span, TimeScale};
use crate::nearest::nearest;
use crate::rules::Mode;
use crate::trust::KeyId;
use crate::wiring::Wiring;

/// How Perennial was told to behave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Real lifetimes, or a rehearsal's.
    pub time_scale: TimeScale,
    /// By which rules.
    pub mode: Mode,
    /// Forced rotations that an annotation of the Secret asks for: the row, and why.
    pub forced: BTreeMap<String, String>,
    /// Edges that may break, because somebody who cannot be reached was told.
    pub consent: BTreeSet<String>,
    /// When restarts are welcome; always, where there is none.
    pub windows: Vec<Window>,
    /// Components whose objects are ours although somebody else writes them.
    pub taken_over: BTreeSet<String>,
    /// Components whose objects are nobody's business here: nothing of theirs is written.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub left_alone: BTreeSet<String>,
    /// Rows and bundles that are left as they are, with their copies, while everything that rests on them goes on.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub frozen: BTreeSet<String>,
    /// Forced rotations that a resource asks for: the row, and why.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub requested: BTreeMap<String, String>,
    /// How many seconds certificates of a row live, where somebody asks for another life than the catalog's.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub lives: BTreeMap<String, u32>,
    /// Signers by their keys that nobody is to trust any more, and since when: what is lost by that was accepted.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub distrusted: BTreeMap<KeyId, Timestamp>,
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

/// A setting that is about something that there is not: it would be without effect, and nobody would know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("settings.{field} names {found:?}, which is {what}: {}", .meant.as_ref().map_or_else(
    || format!("accepted is {accepted}"),
    |meant| format!("accepted is {accepted}; did you mean {meant:?}?")
))]
pub struct UnknownName {
    /// The setting, as the file has it.
    pub field: &'static str,
    /// What stands there.
    pub found: String,
    /// What it is not.
    pub what: &'static str,
    /// What could stand there.
    pub accepted: String,
    /// What was probably meant.
    pub meant: Option<String>,
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
            left_alone: BTreeSet::new(),
            frozen: BTreeSet::new(),
            requested: BTreeMap::new(),
            lives: BTreeMap::new(),
            distrusted: BTreeMap::new(),
            in_flight: 50,
        }
    }
}

impl Settings {
    /// A row with the life that somebody asks for.
    pub fn lived(&self, row: &Row) -> Row {
        let wanted = self.lives.get(row.id).map(|seconds| Span::from_scaled(*seconds, self.time_scale));
        Row { validity: wanted.unwrap_or(row.validity), ..*row }
    }

    /// Whether everything that they name exists. An edge may be named with a node or a Service that has gone.
    pub(super) fn check(&self, wiring: &Wiring<'_>) -> Result<(), UnknownName> {
        let catalog = wiring.catalog;
        let rows = || catalog.rows.iter().filter(|row| row.day == Day::Two);
        let components = || rows().map(|row| row.component.owner()).collect::<BTreeSet<_>>();
        let named = [
            ("forced", self.forced.keys().collect::<Vec<_>>()),
            ("requested", self.requested.keys().collect()),
            ("lives", self.lives.keys().collect()),
        ];
        for (field, names) in named {
            if let Some(found) = names.into_iter().find(|found| !rows().any(|row| row.id == found.as_str())) {
                let (what, accepted) = ("no row of the running cluster", "a row of its catalog".to_owned());
                return Err(unknown(field, found, what, accepted, rows().map(|row| row.id)));
            }
        }
        let bundles = || catalog.bundles.iter().filter(|bundle| bundle.day == Day::Two).map(|bundle| bundle.id);
        let both = || rows().map(|row| row.id).chain(bundles());
        if let Some(found) = self.frozen.iter().find(|found| !both().any(|id| id == found.as_str())) {
            let accepted = "a row or bundle of its catalog".to_owned();
            return Err(unknown("frozen", found, "no row or bundle of the running cluster", accepted, both()));
        }
        if let Some(found) = self.consent.iter().find(|found| !wiring.is_edge(found)) {
            let (what, accepted) = ("no edge", "an edge as `perennial verify -o json` names it".to_owned());
            return Err(unknown(
                "consent",
                found,
                what,
                accepted,
                wiring.edges().iter().map(|edge| edge.name.as_ref()),
            ));
        }
        for (field, names) in [("takenOver", &self.taken_over), ("leftAlone", &self.left_alone)] {
            if let Some(found) = names.iter().find(|found| !components().contains(found.as_str())) {
                let accepted = format!("one of {}", components().into_iter().collect::<Vec<_>>().join(", "));
                return Err(unknown(field, found, "no component", accepted, components()));
            }
        }
        Ok(())
    }

    /// Whether a row or bundle of a component is not written.
    pub fn leaves(&self, component: Component, name: &str) -> bool {
        self.left_alone.contains(component.owner()) || self.frozen.contains(name)
    }

    /// When restarts are welcome next; none where they are now.
    pub fn next_window(&self, now: Timestamp) -> Option<Timestamp> {
        if self.windows.is_empty() {
            return None;
        }
        let opening: Vec<Timestamp> = self.windows.iter().map(|window| window.opens_at(now)).collect();
        opening.into_iter().min().filter(|opens_at| now < *opens_at)
    }
}

fn unknown<'n>(
    field: &'static str,
    found: &str,
    what: &'static str,
    accepted: String,
    names: impl IntoIterator<Item = &'n str>,
) -> UnknownName {
    UnknownName { field, found: found.to_owned(), what, accepted, meant: nearest(found, names).map(str::to_owned) }
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
