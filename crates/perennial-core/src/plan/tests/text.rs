//! Reports as text, with days for instants.

use std::fmt::Write as _;

use jiff::Timestamp;

use super::fixture::day;
use crate::plan::{Pending, Report, Step};
use crate::rules::{Waiting, first_few};

/// Returns everything in a report, one line each.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    report.steps.iter().for_each(|it| _ = writeln!(text, "{}", step(it)));
    report.waiting.iter().for_each(|it| _ = writeln!(text, "{}", pending(it)));
    report.risks.iter().for_each(|it| _ = writeln!(text, "risk: {}", it.edge));
    _ = writeln!(text, "look again {}", instant(report.next_look));
    days(&text)
}

/// Returns only the writes.
pub(super) fn steps(steps: &[Step]) -> String {
    days(&steps.iter().map(|it| step(it) + "\n").collect::<String>())
}

/// Returns only the waits.
pub(super) fn waiting(report: &Report) -> String {
    days(&report.waiting.iter().map(|it| pending(it) + "\n").collect::<String>())
}

fn step(step: &Step) -> String {
    let mut text = step.to_string();
    if !step.restarts.is_empty() {
        let restarts: Vec<&str> = step.restarts.iter().map(String::as_str).collect();
        _ = write!(text, " (restarts {})", restarts.join(", "));
    }
    for risk in &step.risks {
        let kind = if step.consented.contains(&risk.edge) { "consented" } else { "risk" };
        _ = write!(text, " [{kind}: {}]", risk.edge);
    }
    text
}

pub(super) fn pending(pending: &Pending) -> String {
    let due = pending.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    days(&format!("wait {}{due}: {}", pending.slot.object_text(), short(&pending.waiting)))
}

/// Returns the wait without the details of the edge that would break.
pub(super) fn short(waiting: &Waiting) -> String {
    let end = |until: &Option<Timestamp>| until.map_or("something changes".to_owned(), instant);
    match waiting {
        Waiting::Trust { until, refusal } => format!("until {}, because it would break: {}", end(until), refusal.edge),
        Waiting::Rollout { lacking, until, .. } => {
            format!("rollout of {}; at most until {}", first_few(lacking), end(until))
        }
        other => other.to_string(),
    }
}

fn instant(at: Timestamp) -> String {
    if at == Timestamp::MAX { "never".to_owned() } else { at.to_string() }
}

/// Returns the text with `day 3` or `day 3+00:15` for every time.
pub(super) fn days(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(position) = rest.find('Z') {
        let (before, after) = rest.split_at(position + 1);
        let start = before
            .rfind(|it: char| !(it.is_ascii_digit() || "-:.TZ".contains(it)))
            .map_or(0, |at| at + before[at..].chars().next().map_or(1, char::len_utf8));
        match before[start..].parse::<Timestamp>() {
            Ok(at) => _ = write!(out, "{}{}", &before[..start], in_days(at)),
            Err(_) => out.push_str(before),
        }
        rest = after;
    }
    out + rest
}

fn in_days(at: Timestamp) -> String {
    let seconds = day(0).duration_until(at).as_secs();
    let (number, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (hours, minutes, seconds) = (rest / 3600, rest % 3600 / 60, rest % 60);
    match (hours, minutes, seconds) {
        (0, 0, 0) => format!("day {number}"),
        (_, _, 0) => format!("day {number}+{hours:02}:{minutes:02}"),
        _ => format!("day {number}+{hours:02}:{minutes:02}:{seconds:02}"),
    }
}

#[test]
fn instants_read_as_days() {
    let text = format!("{} and it@{}, by Z {}", day(3), day(0) - super::fixture::SECOND, day(1) + super::fixture::HOUR);
    assert_eq!(days(&text), "day 3 and it@day -1+23:59:59, by Z day 1+01:00");
}
