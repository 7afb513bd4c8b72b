//! `perennial rotate --noncompliant`: every certificate whose key the policy does not want, a few at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use jiff::Timestamp;
use perennial_core::campaign::{Candidate, Wave, wave};
use perennial_core::catalog::Catalog;
use perennial_core::inventory::{Entry, inventory};
use perennial_core::key::KeySpec;
use perennial_core::plan::{Planner, Scope};
use perennial_core::rules::Observed;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_operator::ask;
use perennial_operator::library::Library;
use perennial_operator::observe::Observation;

use super::Args;
use crate::cluster::runtime;
use crate::commands::plan;
use crate::exit::Found;
use crate::table::Table;
use crate::talk;

/// How often the cluster is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Who has heard nothing for so long is told what may be wrong.
const QUIET_FOR: Duration = Duration::from_secs(90);

/// Asks for all of them and waits until they are there, or shows which they are.
pub(super) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let observation = args.cluster.observe(planner.wiring())?;
    let (found, wave) = stand(&planner, &observation, args)?;
    if found.is_empty() {
        talk::line(format_args!("every certificate has the key that the policy asks for"));
        return Ok(Found::Nothing);
    }
    table(&found).print(out)?;
    if !args.yes {
        return preview(&planner, observation.snapshot, &found, &wave, args, out);
    }
    campaign(&planner, args, out)
}

/// A certificate whose key is another than the policy asks for.
struct Wrong {
    slot: Slot,
    row: &'static perennial_core::catalog::Row,
    has: String,
    wants: KeySpec,
    from: String,
}

/// What is wrong, and what can be done about it now.
fn stand(planner: &Planner<'static>, observation: &Observation, args: &Args) -> anyhow::Result<(Vec<Wrong>, Wave)> {
    if let Observed::Unreadable { why } | Observed::Unknown { why } = &observation.snapshot.policy {
        bail!("the PKI resource cannot be read, so nobody knows which keys are wanted: {why}");
    }
    let report = planner.plan(&observation.snapshot, &Scope::All);
    let entries = inventory(planner, &observation.snapshot, &report);
    let settings = &observation.snapshot.settings;
    let kept = entries.iter().filter(|entry| !settings.leaves(entry.row.component, entry.row.id));
    let found: Vec<Wrong> = kept.filter_map(|entry| wrong(entry, &observation.library)).collect();
    let candidates: Vec<Candidate<'_>> = found.iter().map(|it| Candidate { row: it.row, slot: &it.slot }).collect();
    let wave = wave(&candidates, &observation.snapshot, &args.reason, args.at_once.get());
    Ok((found, wave))
}

fn wrong(entry: &Entry<'_>, library: &Library) -> Option<Wrong> {
    let certificate = library.get(&entry.found.present()?.certificate.id)?;
    let has = certificate.facts().public_key.kind().spec();
    let wanted = entry.wanted?;
    (has != Some(wanted.key)).then(|| Wrong {
        slot: entry.slot.clone(),
        row: Catalog::builtin().row(entry.row.id).expect("an entry is about a row of the catalog"),
        has: has.map_or_else(|| "another kind".to_owned(), |key| key.to_string()),
        wants: wanted.key,
        from: wanted.source.to_string(),
    })
}

fn table(found: &[Wrong]) -> Table {
    let mut table = Table::new(&["NAME", "KEY", "WANTED", "POLICY", "SECRET"]);
    for it in found {
        let secret = it.slot.object_text().to_owned();
        table.row([it.row.id.to_owned(), it.has.clone(), it.wants.to_string(), it.from.clone(), secret]);
    }
    table
}

fn preview(
    planner: &Planner<'_>,
    mut snapshot: Snapshot,
    found: &[Wrong],
    wave: &Wave,
    args: &Args,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    tell_spent(wave);
    let first: BTreeSet<&Slot> = wave.ask.iter().collect();
    for it in found.iter().filter(|it| first.contains(&it.slot)) {
        snapshot.settings.forced.insert(it.row.id.to_owned(), args.reason.clone());
    }
    talk::line(format_args!(
        "dry run: --yes asks for {} of them now and for {} when others are done; this follows from asking:",
        wave.ask.len(),
        wave.later.len()
    ));
    writeln!(out)?;
    plan::show(&planner.plan(&snapshot, &Scope::All), out)
}

fn tell_spent(wave: &Wave) {
    for slot in &wave.spent {
        let object = slot.object_text();
        talk::line(format_args!("{object} was rotated for this reason before, and is not again: choose another"));
    }
}

/// Asks and looks, until nothing is left.
fn campaign(planner: &Planner<'static>, args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let runtime = runtime()?;
    let client = runtime.block_on(args.cluster.client())?;
    let mut told = BTreeMap::new();
    let mut under_way: BTreeSet<Slot> = BTreeSet::new();
    let mut heard_at = Instant::now();
    loop {
        let observation = args.cluster.observe(planner.wiring())?;
        let (found, wave) = stand(planner, &observation, args)?;
        let still: BTreeSet<&Slot> = found.iter().map(|it| &it.slot).collect();
        for slot in under_way.iter().filter(|slot| !wave.in_flight.contains(slot)) {
            let is_right = !still.contains(slot);
            writeln!(out, "{} {}", slot.object_text(), if is_right { "is as it should be" } else { "was rotated" })?;
            heard_at = Instant::now();
        }
        if wave.is_over() {
            tell_spent(&wave);
            return Ok(if wave.spent.is_empty() { Found::Nothing } else { Found::Warnings });
        }
        for slot in &wave.ask {
            let object = slot.object();
            let asked = runtime.block_on(ask::rotate(&client, &object, &args.reason));
            asked.with_context(|| format!("failed to ask for a new certificate in {object}"))?;
            writeln!(out, "asked for a new certificate in {object}")?;
            heard_at = Instant::now();
        }
        out.flush()?;
        if args.no_wait {
            let later = wave.later.len();
            talk::line(format_args!("{later} more are to be asked for: the same command does when these are done"));
            return Ok(Found::Nothing);
        }
        under_way = wave.in_flight.iter().chain(&wave.ask).cloned().collect();
        if tell_waiting(planner, &observation, &under_way, &mut told) {
            heard_at = Instant::now();
        }
        if heard_at.elapsed() >= QUIET_FOR && told.is_empty() {
            talk::line(format_args!("nothing happens: is `perennial run` or `perennial up` running for this cluster?"));
            heard_at = Instant::now();
        }
        std::thread::sleep(LOOK_EVERY);
    }
}

/// Says what waits for what, once for each instant until which it waits. Says whether there was something to say.
fn tell_waiting(
    planner: &Planner<'_>,
    observation: &Observation,
    under_way: &BTreeSet<Slot>,
    told: &mut BTreeMap<Slot, Option<Timestamp>>,
) -> bool {
    let report = planner.plan(&observation.snapshot, &Scope::All);
    let mut said_something = false;
    for pending in report.waiting.iter().filter(|it| under_way.contains(&it.slot)) {
        let until = pending.waiting.until();
        if told.insert(pending.slot.clone(), until) != Some(until) {
            talk::line(format_args!("{} waits: {}", pending.slot.object_text(), pending.waiting));
            said_something = true;
        }
    }
    told.retain(|slot, _| report.waiting.iter().any(|it| it.slot == *slot));
    said_something
}
