//! Runs of years, with and without faults; and faulty planners that must be detected.

mod controls;
mod judge;
mod scripted_faults;
mod seeds;
mod years;

use super::chance::Chance;
use super::*;
use crate::catalog::Day;

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// Returns the first instant of this day.
fn day(number: i64) -> Timestamp {
    start() + SignedDuration::from_hours(24 * number)
}

/// Returns so many days of a usual cluster without faults.
fn days(number: i64) -> Options {
    Options { length: SignedDuration::from_hours(24 * number), ..Options::years(1, 1, start()) }
}

/// Returns a forced rotation of this row on this day.
fn force(number: i64, row: &str) -> Scheduled {
    let rows: Vec<&str> = Catalog::builtin().rows.iter().filter(|row| row.day == Day::Two).map(|row| row.id).collect();
    let draw = (0..).find(|draw| Chance::new(*draw).pick(&rows) == Some(&row)).unwrap();
    Scheduled { at: day(number), fault: Fault::Force(draw) }
}

/// Checks that all outages end soon after `back`, and that no object is issued more than a few times for that.
fn healed(outcome: &Outcome, back: Timestamp) {
    let within = SignedDuration::from_hours(6);
    for outage in outcome.outages.iter().filter(|outage| outage.from <= back) {
        assert!(outage.to.is_some_and(|to| to <= back + within), "{} lasts to {:?}", outage.edge, outage.to);
    }
    let healing = outcome.story.iter().filter(|entry| back <= entry.at && entry.at <= back + within);
    let mut issues: std::collections::BTreeMap<&str, usize> = Default::default();
    for entry in healing.filter(|entry| matches!(entry.kind, Happening::Signer | Happening::Certificate)) {
        let object = entry.text.split(": ").next().unwrap();
        *issues.entry(object).or_default() += 1;
    }
    let most = issues.iter().max_by_key(|(_, count)| **count);
    assert!(most.is_none_or(|(_, count)| *count <= 3), "{most:?} to heal");
}
