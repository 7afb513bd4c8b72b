//! The settings: everything that administrators have configured.

use std::collections::{BTreeMap, BTreeSet};

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::catalog::index::Wiring;
use crate::catalog::{Component, Day, TimeScale};
use crate::clocks::shifted;
use crate::nearest::nearest;

/// Which rotation rules apply.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Mode {
    /// All rules.
    Normal,
    /// Only those for absent, unusable and expired certificates and for changed names: for recovery next to a running operator.
    OnlyWhenExpired,
}

/// The settings of administrators. Observing a cluster never changes them. The functions of [`Snapshot`](super::Snapshot) compute
/// what follows from them and from the observations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Real lifetimes, or the scaled lifetimes of a rehearsal.
    #[serde(skip_serializing_if = "is_full")]
    pub time_scale: TimeScale,
    /// Which rotation rules apply.
    #[serde(skip_serializing_if = "is_normal")]
    pub mode: Mode,
    /// Forced rotations of every certificate of a row: the row and the reason.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub forced: BTreeMap<String, String>,
    /// Edges that may break, because the administrator accepts it for verifiers that cannot be updated.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub consent: BTreeSet<String>,
    /// The maintenance windows, in which restarts are allowed. Without any, restarts are always allowed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub windows: Vec<Window>,
    /// Components that Perennial manages although another operator writes their objects.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub taken_over: BTreeSet<String>,
    /// Components that Perennial does not manage, besides those that it leaves to their operators by default.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub left_alone: BTreeSet<String>,
    /// True if Perennial also manages the components that it leaves to their operators by default.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub every_component: bool,
    /// Services, as `namespace/name`, whose names belong to the cluster. The service CA issues no certificate for them.
    #[serde(skip_serializing_if = "is_default_reserved")]
    pub reserved_services: BTreeSet<String>,
    /// The largest number of certificates that may be rotated at the same time.
    #[serde(skip_serializing_if = "is_default_in_flight")]
    pub in_flight: usize,
}

/// The default of `in_flight`.
const IN_FLIGHT: usize = 50;

fn is_full(scale: &TimeScale) -> bool {
    *scale == TimeScale::FULL
}

fn is_normal(mode: &Mode) -> bool {
    *mode == Mode::Normal
}

fn is_default_in_flight(in_flight: &usize) -> bool {
    *in_flight == IN_FLIGHT
}

/// Returns the Service of the API server.
fn default_reserved() -> BTreeSet<String> {
    ["default/kubernetes".to_owned()].into()
}

fn is_default_reserved(reserved: &BTreeSet<String>) -> bool {
    *reserved == default_reserved()
}

/// A weekly maintenance window, in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, try_from = "RawWindow")]
pub struct Window {
    /// The start, in minutes after midnight between Sunday and Monday, below 10,080.
    pub from_minute: u32,
    /// The length in minutes.
    pub minutes: u32,
}

/// A window before its validation.
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

/// A setting that names an unknown object. It would silently have no effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("settings.{field} names {found:?}, which is {what}: {}", .meant.as_ref().map_or_else(
    || format!("accepted is {accepted}"),
    |meant| format!("accepted is {accepted}; did you mean {meant:?}?")
))]
pub struct UnknownName {
    /// The name of the setting in the file.
    pub field: &'static str,
    /// The unknown name.
    pub found: String,
    /// What it is not, such as "no edge".
    pub what: &'static str,
    /// The accepted values.
    pub accepted: String,
    /// The accepted name that is most similar.
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
            every_component: false,
            reserved_services: default_reserved(),
            in_flight: IN_FLIGHT,
        }
    }
}

impl Settings {
    /// Checks that all names in the settings exist. The name of an edge may contain a node or Service that no longer exists.
    pub(super) fn check(&self, wiring: &Wiring<'_>) -> Result<(), UnknownName> {
        let catalog = wiring.catalog;
        let rows = || catalog.rows.iter().filter(|row| row.day == Day::Two);
        let components = || rows().map(|row| row.component.owner()).collect::<BTreeSet<_>>();
        if let Some(found) = self.forced.keys().find(|found| !rows().any(|row| row.id == found.as_str())) {
            let (what, accepted) = ("no row of the running cluster", "a row of its catalog".to_owned());
            return Err(unknown("forced", found, what, accepted, rows().map(|row| row.id)));
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

    /// True if the names of this Service belong to the cluster.
    pub fn reserves(&self, namespace: &str, service: &str) -> bool {
        self.reserved_services.iter().any(|it| it.split_once('/') == Some((namespace, service)))
    }

    /// True if Perennial manages the certificates of this component.
    pub fn manages(&self, component: Component) -> bool {
        let row = component.row();
        let is_default = row.is_managed || row.operator_namespace.is_none() || self.every_component;
        is_default && !self.left_alone.contains(row.owner)
    }

    /// Returns when the next maintenance window opens; none if one is open now, or if there is none.
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
    /// Returns the start of the next window, or `now` while it is open.
    fn opens_at(&self, now: Timestamp) -> Timestamp {
        let civil = now.to_zoned(TimeZone::UTC);
        let midnight = civil.start_of_day().map_or(now, |midnight| midnight.timestamp());
        let days = i64::from(civil.weekday().to_monday_zero_offset());
        let monday = shifted(midnight, -SignedDuration::from_hours(24 * days));
        let minute = |week: i64| i64::from(self.from_minute) + week * WEEK_MINUTES;
        let opening = |week: i64| shifted(monday, SignedDuration::from_mins(minute(week)));
        // The window of last week may extend into this week.
        let openings = [opening(-1), opening(0), opening(1)];
        let length = SignedDuration::from_mins(i64::from(self.minutes));
        let next = openings.into_iter().find(|from| now < shifted(*from, length)).unwrap_or(openings[2]);
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
