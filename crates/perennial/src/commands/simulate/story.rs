//! A simulation as a story: what rotated and why, what waited, what went wrong, how close it was, and a verdict.

use std::collections::BTreeMap;
use std::io::{self, Write};

use perennial_core::catalog::{Catalog, Component, Home, Scope};
use perennial_core::simulate::{Entry, FaultKind, Happening, Outcome, Reproduction};

use super::Rehearsal;
use crate::span;
use crate::table::{Table, section, wrapped};

/// How much of the story before a violation is told again with its shortest reproduction.
const LAST_ENTRIES: usize = 20;

/// Tells it.
pub(super) fn print(rehearsal: &Rehearsal, catalog: &Catalog, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let outcome = &rehearsal.outcome;
    print_header(rehearsal, out)?;
    section("STORY", out)?;
    print_years(outcome, catalog, verbose, out)?;
    section("CLOSEST CALLS: how long each certificate was still good for when its holder took the next one", out)?;
    closest(outcome).print(out)?;
    section("ISSUED", out)?;
    wrapped("", &counts(&outcome.issued), out)?;
    if let Some(reproduction) = &rehearsal.reproduction {
        print_reproduction(rehearsal, reproduction, out)?;
    }
    print_verdict(rehearsal, out)
}

fn print_header(rehearsal: &Rehearsal, out: &mut dyn Write) -> io::Result<()> {
    let outcome = &rehearsal.outcome;
    let list = |names: Vec<&str>, none: &str| if names.is_empty() { none.to_owned() } else { names.join(", ") };
    let faults = list(rehearsal.fault_kinds.iter().map(|kind| FaultKind::name(*kind)).collect(), "none");
    let catalog = list(rehearsal.catalog.iter().map(|it| Component::owner(*it)).collect(), "everything");
    let Rehearsal { years, nodes, services, .. } = rehearsal;
    writeln!(out, "Seed {}: {years} years from {} to {}", outcome.seed, outcome.from, outcome.to)?;
    writeln!(out, "Cluster: {nodes} control-plane nodes, {services} Services; certificates of: {catalog}")?;
    writeln!(out, "Faults: {faults} ({} of them)", outcome.faults.len())
}

fn print_years(outcome: &Outcome, catalog: &Catalog, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let mut years: BTreeMap<String, Vec<&Entry>> = BTreeMap::new();
    for entry in &outcome.story {
        years.entry(entry.at.strftime("%Y").to_string()).or_default().push(entry);
    }
    for (year, mut entries) in years {
        // Violations that show only at the end are told where they belong.
        entries.sort_by_key(|entry| entry.at);
        writeln!(out, "{year}")?;
        for entry in entries.iter().filter(|entry| verbose || entry.kind != Happening::Certificate) {
            print_entry(entry, verbose, out)?;
        }
        let certificates = entries.iter().filter(|entry| entry.kind == Happening::Certificate);
        let mut rows: BTreeMap<String, u64> = BTreeMap::new();
        certificates.for_each(|entry| *rows.entry(row_of(catalog, entry)).or_default() += 1);
        let total: u64 = rows.values().sum();
        if !verbose && total > 0 {
            wrapped("  and          ", &format!("{total} certificates: {}", counts(&rows)), out)?;
        }
    }
    Ok(())
}

fn print_entry(entry: &Entry, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let text = if verbose { entry.text.clone() } else { shortened(entry) };
    let prefix = format!("  {}  {:<9}  ", entry.at.strftime("%m-%d %H:%M"), word(entry.kind));
    wrapped(&prefix, &text, out)
}

fn word(kind: Happening) -> &'static str {
    match kind {
        Happening::Signer => "signer",
        Happening::Certificate => "issued",
        Happening::Waited => "waited",
        Happening::Fault => "FAULT",
        Happening::Risk => "RISK",
        Happening::Trust => "TRUST",
        Happening::Ended => "ended",
        Happening::Violation => "VIOLATION",
    }
}

/// Without the contents of bundles, and without times that are its own: `--verbose` has them.
fn shortened(entry: &Entry) -> String {
    let text = entry.text.as_str();
    let shorter = match entry.kind {
        Happening::Signer | Happening::Certificate => shortened_issue(text),
        Happening::Waited => shortened_wait(text),
        Happening::Risk => text.split_once(": whoever reads ").map(|(risk, _)| risk.to_owned()),
        Happening::Trust => text.split_once(" is down: ").map(|(edge, _)| format!("{edge} is down")),
        Happening::Fault | Happening::Ended | Happening::Violation => None,
    };
    shorter.unwrap_or_else(|| text.to_owned())
}

fn shortened_issue(text: &str) -> Option<String> {
    let (object, reason) = issued(text)?;
    // Since when it was due is hardly ever another time than that of the entry.
    let of_time = ["past its refresh time", "past refresh time (80% of validity)"];
    let reason = of_time.into_iter().find(|known| reason.starts_with(known)).unwrap_or(reason);
    Some(format!("{object}: {reason}"))
}

/// The object and the reason of an issue.
fn issued(text: &str) -> Option<(&str, &str)> {
    let what = text.strip_prefix("issue of ").or_else(|| text.strip_prefix("issue "))?;
    what.split_once(": ")
}

fn shortened_wait(text: &str) -> Option<String> {
    let (slot, rest) = text.split_once(" waited ")?;
    let (span, why) = rest.split_once(": ")?;
    let (edge, _) = why.split_once(" would break at ")?;
    let (_, edge) = edge.rsplit_once(": ")?;
    let object = slot.split(':').next()?;
    Some(format!("{object} waited {span}: {edge} would have broken"))
}

/// The row whose certificate an entry is about, by its Secret.
fn row_of(catalog: &Catalog, entry: &Entry) -> String {
    let object = issued(&entry.text).map_or(entry.text.as_str(), |(object, _)| object);
    let fits = |home: Home| match home {
        Home::Secret(pattern) => {
            let pattern = pattern.to_string();
            match pattern.split_once('<') {
                None => pattern == object,
                Some((before, _)) => object.starts_with(before),
            }
        }
        Home::Files { .. } => false,
    };
    let is_cluster = |scope: Scope| scope == Scope::Cluster;
    let rows = || catalog.rows.iter().filter(|row| fits(row.home));
    let exact = rows().find(|row| is_cluster(row.scope));
    // The longest beginning fits best: a Service may want its certificate anywhere.
    let found = exact.or_else(|| rows().max_by_key(|row| if row.scope == Scope::Node { row.id.len() } else { 0 }));
    found.map_or(object.to_owned(), |row| row.id.to_owned())
}

fn counts(rows: &BTreeMap<String, u64>) -> String {
    rows.iter().map(|(row, count)| format!("{row}:{count}")).collect::<Vec<_>>().join(", ")
}

fn closest(outcome: &Outcome) -> Table {
    let mut calls: Vec<_> = outcome.closest.iter().collect();
    calls.sort_by_key(|(edge, call)| (call.left, edge.as_str()));
    let mut table = Table::new(&["LEFT", "WHEN", "EDGE"]);
    for (edge, call) in calls {
        table.row([span::text(call.left()), span::day(call.at), edge.clone()]);
    }
    table
}

fn print_reproduction(rehearsal: &Rehearsal, reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
    section("SHORTEST WAY TO SEE IT", out)?;
    let (needed, all) = (reproduction.faults.len(), rehearsal.outcome.faults.len());
    writeln!(out, "With seed {} and {needed} of {all} faults:", reproduction.seed)?;
    for scheduled in &reproduction.faults {
        wrapped(&format!("  {}  ", scheduled.at), &scheduled.fault.to_string(), out)?;
    }
    let first = reproduction.outcome.violations.iter().map(|violation| violation.at).min();
    let before = |entry: &&Entry| entry.kind != Happening::Violation && first.is_none_or(|first| entry.at <= first);
    let story: Vec<&Entry> = reproduction.outcome.story.iter().filter(before).collect();
    writeln!(out, "The last of what happens before:")?;
    for entry in &story[story.len().saturating_sub(LAST_ENTRIES)..] {
        wrapped(&format!("  {}  {:<9}  ", entry.at, word(entry.kind)), &shortened(entry), out)?;
    }
    writeln!(out, "And then:")?;
    for violation in reproduction.outcome.violations.iter().filter(|violation| Some(violation.at) == first) {
        wrapped("  ", &violation.to_string(), out)?;
    }
    Ok(())
}

fn print_verdict(rehearsal: &Rehearsal, out: &mut dyn Write) -> io::Result<()> {
    let outcome = &rehearsal.outcome;
    let issued: u64 = outcome.issued.values().sum();
    writeln!(out)?;
    let work = format!(
        "{} writes, {issued} certificates issued, {} restarts of static pods, {} looks.",
        outcome.writes, outcome.restarts, outcome.looks
    );
    wrapped("", &work, out)?;
    let verdict = match (outcome.violations.len(), outcome.outages.len()) {
        (0, 0) => format!("VERDICT: everybody trusted everybody, for {} years.", rehearsal.years),
        (0, outages) => format!(
            "VERDICT: no write broke trust in {} years. On {outages} occasions somebody refused somebody, each time because of \
             trouble from outside that no write could have prevented, and it healed.",
            rehearsal.years
        ),
        (1, _) => "VERDICT: trust broke. This must never happen.".to_owned(),
        (violations, _) => format!("VERDICT: trust broke {violations} times. This must never happen."),
    };
    wrapped("", &verdict, out)
}
