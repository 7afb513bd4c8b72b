//! Prints a simulation: rotations, waits, faults, the shortest remaining validities, and the result.

use std::collections::BTreeMap;
use std::io::{self, Write};

use perennial_core::catalog::{Catalog, Component, Home, Scope};
use perennial_core::simulate::{Entry, FaultKind, Happening, Outcome, Reproduction};

use super::Simulated;
use crate::span;
use crate::table::{Table, section, wrapped};

/// How many entries before a violation are printed with its shortest reproduction.
const LAST_ENTRIES: usize = 20;

/// Prints the simulation.
pub(super) fn print(simulated: &Simulated, catalog: &Catalog, verbose: bool, out: &mut dyn Write) -> io::Result<()> {
    let outcome = &simulated.outcome;
    print_header(simulated, out)?;
    section("STORY", out)?;
    print_years(outcome, catalog, verbose, out)?;
    section("SHORTEST REMAINING VALIDITY of a certificate when a process loaded the next one", out)?;
    shortest_validity(outcome).print(out)?;
    section("ISSUED", out)?;
    wrapped("", &counts(&outcome.issued), out)?;
    if let Some(reproduction) = &simulated.reproduction {
        print_reproduction(simulated, reproduction, out)?;
    }
    print_verdict(simulated, out)
}

fn print_header(simulated: &Simulated, out: &mut dyn Write) -> io::Result<()> {
    let outcome = &simulated.outcome;
    let list = |names: Vec<&str>, none: &str| if names.is_empty() { none.to_owned() } else { names.join(", ") };
    let faults = list(simulated.fault_kinds.iter().map(|kind| FaultKind::name(*kind)).collect(), "none");
    let catalog = list(simulated.catalog.iter().map(|it| Component::owner(*it)).collect(), "everything");
    let Simulated { years, nodes, services, .. } = simulated;
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
        // Violations that are found only at the end are sorted by their time.
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

/// Returns the text of an entry without the content of bundles and without times; `--verbose` prints them.
fn shortened(entry: &Entry) -> String {
    let text = entry.text.as_str();
    let shorter = match entry.kind {
        Happening::Signer | Happening::Certificate => shortened_issue(text),
        Happening::Waited => shortened_wait(text),
        Happening::Risk => text.split_once(": a process that holds ").map(|(risk, _)| risk.to_owned()),
        Happening::Trust => text.split_once(": ").map(|(edge, _)| edge.to_owned()),
        Happening::Fault | Happening::Ended | Happening::Violation => None,
    };
    shorter.unwrap_or_else(|| text.to_owned())
}

fn shortened_issue(text: &str) -> Option<String> {
    let (object, reason) = issued(text)?;
    // The due time is almost always the time of the entry.
    let of_time = ["past its refresh time", "past refresh time (80% of validity)"];
    let reason = of_time.into_iter().find(|known| reason.starts_with(known)).unwrap_or(reason);
    Some(format!("{object}: {reason}"))
}

/// Returns the object and the reason of an issue.
fn issued(text: &str) -> Option<(&str, &str)> {
    let what = text.strip_prefix("issue of ").or_else(|| text.strip_prefix("issue "))?;
    what.split_once(": ")
}

fn shortened_wait(text: &str) -> Option<String> {
    let (slot, rest) = text.split_once(" waited ")?;
    let (span, why) = rest.split_once(": ")?;
    let (verifier, rest) = why.split_once(" would reject ")?;
    let (_, verifier) = verifier.rsplit_once(": ")?;
    let (rejected, _) = rest.split_once(" from ")?;
    let object = slot.split(':').next()?;
    Some(format!("{object} waited {span}: {verifier} would have rejected {rejected}"))
}

/// Returns the row of an entry, found by its Secret.
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
    // The longest prefix wins, because the Secret of a Service can be in any namespace.
    let found = exact.or_else(|| rows().max_by_key(|row| if row.scope == Scope::Node { row.id.len() } else { 0 }));
    found.map_or(object.to_owned(), |row| row.id.to_owned())
}

fn counts(rows: &BTreeMap<String, u64>) -> String {
    rows.iter().map(|(row, count)| format!("{row}:{count}")).collect::<Vec<_>>().join(", ")
}

fn shortest_validity(outcome: &Outcome) -> Table {
    let mut shortest: Vec<_> = outcome.shortest_validity.iter().collect();
    shortest.sort_by_key(|(edge, it)| (it.left, edge.as_str()));
    let mut table = Table::new(&["LEFT", "WHEN", "EDGE"]);
    for (edge, it) in shortest {
        table.row([span::text(it.left()), span::day(it.at), edge.clone()]);
    }
    table
}

fn print_reproduction(simulated: &Simulated, reproduction: &Reproduction, out: &mut dyn Write) -> io::Result<()> {
    section("SHORTEST REPRODUCTION", out)?;
    let (needed, all) = (reproduction.faults.len(), simulated.outcome.faults.len());
    writeln!(out, "With seed {} and {needed} of {all} faults:", reproduction.seed)?;
    for scheduled in &reproduction.faults {
        wrapped(&format!("  {}  ", scheduled.at), &scheduled.fault.to_string(), out)?;
    }
    let first = reproduction.outcome.violations.iter().map(|violation| violation.at).min();
    let before = |entry: &&Entry| entry.kind != Happening::Violation && first.is_none_or(|first| entry.at <= first);
    let story: Vec<&Entry> = reproduction.outcome.story.iter().filter(before).collect();
    writeln!(out, "Last events before the violation:")?;
    for entry in &story[story.len().saturating_sub(LAST_ENTRIES)..] {
        wrapped(&format!("  {}  {:<9}  ", entry.at, word(entry.kind)), &shortened(entry), out)?;
    }
    writeln!(out, "Violation:")?;
    for violation in reproduction.outcome.violations.iter().filter(|violation| Some(violation.at) == first) {
        wrapped("  ", &violation.to_string(), out)?;
    }
    Ok(())
}

fn print_verdict(simulated: &Simulated, out: &mut dyn Write) -> io::Result<()> {
    let outcome = &simulated.outcome;
    let issued: u64 = outcome.issued.values().sum();
    writeln!(out)?;
    let work = format!(
        "{} writes, {issued} certificates issued, {} restarts of static pods, {} passes.",
        outcome.writes, outcome.restarts, outcome.looks
    );
    wrapped("", &work, out)?;
    let verdict = match (outcome.violations.len(), outcome.outages.len()) {
        (0, 0) => format!("RESULT: every verifier accepted every certificate for {} years.", simulated.years),
        (0, outages) => format!(
            "RESULT: no write broke trust in {} years. Verifiers rejected certificates on {outages} occasions, each time because of \
             a fault that no write could have prevented, and Perennial repaired it.",
            simulated.years
        ),
        (violations, _) => format!(
            "RESULT: {violations} violation{}: a write broke trust, a write waited needlessly, or the conditions did not report a \
             wait. This must never happen.",
            if violations == 1 { "" } else { "s" }
        ),
    };
    wrapped("", &verdict, out)
}
