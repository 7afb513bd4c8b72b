//! `perennial simulate`: runs the planner for decades on a virtual clock, with faults, and checks every write.

mod parts;
mod story;

use std::borrow::Cow;
use std::cell::RefCell;
use std::io::Write;
use std::str::FromStr;

use anyhow::Context;
use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressStyle};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use perennial_core::catalog::{Catalog, Component};
use perennial_core::clocks::shifted;
use perennial_core::plan::{Planner, Report, Scope};
use perennial_core::simulate::{Decide, FaultKind, Options, Outcome, Reproduction, Simulation, shortest};
use perennial_core::snapshot::Snapshot;
use serde::Serialize;

use crate::exit::Found;
use crate::output;
use crate::span::Span;

/// Simulate years of a cluster: the real planner on a virtual clock, optionally with faults
///
/// Keys are symbols, and processes reload late. After every write, an independent checker, which shares no code with the planner, checks
/// that no client has lost trust in a server. After every pass, it checks that no write waits needlessly, and that the conditions report
/// every wait. The same arguments give the same output, byte for byte.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial simulate --years 10 --seed 7\n  \
    perennial simulate --years 3 --faults deletions,corruption --verbose\n  \
    perennial simulate --years 30 --catalog etcd,service-ca\n  \
    perennial simulate --snapshot-at 200d > snapshot.json    a snapshot for plan --from\n\n\
    Kinds of faults:\n  \
    outages, long-outages, deletions, corruption, crashes, clocks, membership, administrators\n\n\
    Exit codes:\n  \
    0   no violation\n  \
    1   failure\n  \
    2   wrong usage\n  \
    4   a violation: a write broke trust, a write waited needlessly, or the conditions did not report a wait; the output has\n      \
        the shortest reproduction")]
pub(crate) struct Args {
    /// The number of years, of 365 days each
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=100))]
    years: u32,

    /// The seed of all random choices
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,

    /// Kinds of faults, or all, or none
    #[arg(long, value_name = "KIND,...", default_value = "none")]
    faults: Faults,

    /// Simulate only these components: kube-apiserver, kube-controller-manager, etcd, service-ca
    #[arg(long, value_name = "COMPONENT,...", value_delimiter = ',', value_parser = parts::component)]
    catalog: Vec<Component>,

    /// The number of control-plane nodes at the start
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    nodes: u32,

    /// The number of Services with a certificate at the start
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    services: u32,

    /// The first day or instant
    #[arg(long, value_name = "TIME", default_value = "2026-01-01", value_parser = parse_start)]
    start: Timestamp,

    /// Print every certificate, and the full reason of every wait
    #[arg(long, conflicts_with_all = ["snapshot_at", "output"])]
    verbose: bool,

    /// Print the snapshot of the first pass after this time, instead of the story
    #[arg(long, value_name = "SPAN", conflicts_with = "output")]
    snapshot_at: Option<Span>,

    /// The output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Table,
    Json,
}

/// The kinds of faults from the command line.
#[derive(Debug, Clone)]
struct Faults(Vec<FaultKind>);

/// The arguments and the result of a simulation.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Simulated {
    years: u32,
    nodes: usize,
    services: usize,
    fault_kinds: Vec<FaultKind>,
    /// The components in `--catalog`.
    catalog: Vec<Component>,
    outcome: Outcome,
    /// The shortest reproduction of a violation.
    reproduction: Option<Reproduction>,
}

/// Runs a simulation, and prints its story.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let builtin = Catalog::builtin();
    let catalog = match args.catalog.as_slice() {
        [] => Cow::Borrowed(builtin),
        components => Cow::Owned(parts::restrict(builtin, components)?),
    };
    let simulation = Simulation::new(&catalog);
    let plan = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| planner.plan(snapshot, scope);
    if let Some(at) = args.snapshot_at {
        let snapshot = snapshot_at(&simulation, &options(args), at.0)?;
        output::json(&snapshot, out)?;
        return Ok(Found::Nothing);
    }
    let simulated = simulate(args, &simulation, &plan);
    match args.output {
        Format::Table => story::print(&simulated, &catalog, args.verbose, out)?,
        Format::Json => output::json(&simulated, out)?,
    }
    Ok(if simulated.outcome.violations.is_empty() { Found::Nothing } else { Found::Critical })
}

fn options(args: &Args) -> Options {
    Options {
        faults: args.faults.0.clone(),
        nodes: usize::try_from(args.nodes).unwrap_or(usize::MAX),
        services: usize::try_from(args.services).unwrap_or(usize::MAX),
        ..Options::years(args.years, args.seed, args.start)
    }
}

fn simulate(args: &Args, simulation: &Simulation<'_>, decide: &Decide<'_>) -> Simulated {
    let options = options(args);
    let script = options.script();
    let bar = progress(&options);
    let outcome = simulation.run_with(&options, script.clone(), &|planner, snapshot, scope| {
        show(&bar, &options, snapshot);
        decide(planner, snapshot, scope)
    });
    let reproduction = if outcome.violations.is_empty() {
        None
    } else {
        bar.set_message("searching for the shortest reproduction");
        shortest(simulation, &options, &script, decide)
    };
    bar.finish_and_clear();
    Simulated {
        years: args.years,
        nodes: options.nodes,
        services: options.services,
        fault_kinds: options.faults,
        catalog: args.catalog.clone(),
        outcome,
        reproduction,
    }
}

/// Returns the snapshot of the first pass at or after this time.
fn snapshot_at(simulation: &Simulation<'_>, options: &Options, after: SignedDuration) -> anyhow::Result<Snapshot> {
    let wanted = shifted(options.start, after);
    let seen = RefCell::new(None);
    let decide = |planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope| -> Report {
        let mut seen = seen.borrow_mut();
        if seen.is_none() && wanted <= snapshot.taken_at {
            *seen = Some(snapshot.clone());
        }
        planner.plan(snapshot, scope)
    };
    simulation.run_with(options, options.script(), &decide);
    let last = shifted(options.start, options.length);
    seen.into_inner()
        .with_context(|| format!("no pass between {wanted} and the end of the simulation, {last}: pass more --years"))
}

/// Returns a progress bar, which is visible only on a terminal.
fn progress(options: &Options) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} [{bar:40}] {percent}%, {elapsed}")
        .expect("the template is valid")
        .progress_chars("=> ");
    let hours = u64::try_from(options.length.as_hours()).unwrap_or(0);
    ProgressBar::new(hours).with_style(style).with_message("simulating")
}

fn show(bar: &ProgressBar, options: &Options, snapshot: &Snapshot) {
    let hours = options.start.duration_until(snapshot.taken_at).as_hours();
    bar.set_position(u64::try_from(hours).unwrap_or(0));
}

impl FromStr for Faults {
    type Err = String;

    fn from_str(text: &str) -> Result<Faults, String> {
        match text {
            "all" => Ok(Faults(FaultKind::ALL.to_vec())),
            "none" => Ok(Faults(Vec::new())),
            list => {
                let kinds: Result<Vec<FaultKind>, String> = list.split(',').map(str::parse).collect();
                Ok(Faults(kinds.map_err(|error| format!("{error}; also accepted are all and none"))?))
            }
        }
    }
}

/// The latest accepted start. The planner computes dates decades ahead, and dates end with the year 9999.
const LAST_START: &str = "9000-01-01T00:00:00Z";

fn parse_start(text: &str) -> Result<Timestamp, String> {
    let wrong = || {
        format!(
            "{text:?} is not a time: expected a day such as 2026-01-01, or 2026-01-01T12:00:00Z, before the year 9000"
        )
    };
    let day = || text.parse::<Date>().ok()?.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp());
    let start = text.parse::<Timestamp>().ok().or_else(day).ok_or_else(wrong)?;
    let last: Timestamp = LAST_START.parse().map_err(|_| wrong())?;
    if start < Timestamp::UNIX_EPOCH || last < start { Err(wrong()) } else { Ok(start) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    /// Plans as if every edge had consent, and so breaks edges.
    fn careless(planner: &Planner<'_>, snapshot: &Snapshot, scope: &Scope) -> Report {
        let mut blind = snapshot.clone();
        let names = planner.wiring().edges().iter().map(|edge| edge.name.to_string());
        blind.settings.consent = names.collect();
        planner.plan(&blind, scope)
    }

    #[test]
    fn a_violation_is_printed_with_its_shortest_reproduction() {
        let args = Line::parse_from(["simulate", "--years", "1", "--faults", "crashes"]).args;
        let catalog = Catalog::builtin();
        let simulated = simulate(&args, &Simulation::new(catalog), &careless);
        let reproduction = simulated.reproduction.as_ref().unwrap();
        assert!(reproduction.faults.len() < simulated.outcome.faults.len());
        let mut text = Vec::new();
        story::print(&simulated, catalog, false, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        let end = text.split_once("SHORTEST REPRODUCTION").map(|(_, end)| end.to_owned()).unwrap();
        assert!(end.contains("Violation:"), "{text}");
        let words: Vec<&str> = end.split_once("RESULT: ").unwrap().1.split_whitespace().collect();
        let violations = simulated.outcome.violations.len();
        let verdict = "a write broke trust, a write waited needlessly, or the conditions did not report a wait. This must never happen.";
        let number = if violations == 1 { "1 violation".to_owned() } else { format!("{violations} violations") };
        assert_eq!(words.join(" "), format!("{number}: {verdict}"));
    }
}
