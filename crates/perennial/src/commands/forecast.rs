//! `perennial forecast`: lists the coming rotations with their cause, latest time and restarts.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use anyhow::Context;
use jiff::Timestamp;
use perennial_core::catalog::{Catalog, Custody, Scope};
use perennial_core::forecast::{Ending, Forecast, Rotation, forecast};
use perennial_core::plan::Planner;
use perennial_core::rules::Reason;
use perennial_core::snapshot::Slot;

use crate::commands::plan::{pod_name, restarts};
use crate::exit::Found;
use crate::output::{self, Listing};
use crate::snapshot::From;
use crate::span::{self, Span};
use crate::table::{Table, section, wrapped};

/// Forecast the coming rotations: cause, latest time, and restarted static pods
///
/// The command runs the planner on a virtual clock. It assumes that every rollout takes its usual time and that nothing else changes.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial forecast --from snapshot.json\n  \
    perennial forecast --from snapshot.json --within 90d\n  \
    perennial forecast --from snapshot.json -o wide      every rotation, by time\n  \
    perennial forecast --from snapshot.json -o json | jq -r '.rotations[] | [.at, .row] | @tsv'\n\n\
    Exit codes:\n  \
    0   success\n  \
    1   failure\n  \
    2   wrong usage\n  \
    3   a certificate expires that Perennial cannot renew, or renews too late")]
pub(crate) struct Args {
    #[command(flatten)]
    from: From,

    /// The length of the forecast
    #[arg(long, value_name = "SPAN", default_value = "365d")]
    within: Span,

    /// The output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Listing,
}

/// Prints the forecast.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let snapshot = args.from.read(planner.wiring())?;
    let to =
        snapshot.taken_at.checked_add(args.within.0).context("--within is too long: dates end with the year 9999")?;
    let mut forecast = forecast(&planner, &snapshot, to);
    forecast.endings.retain(|ending| args.from.asks_about(ending.row));
    match args.output {
        Listing::Table => print(&forecast, false, out)?,
        Listing::Wide => print(&forecast, true, out)?,
        Listing::Json => output::json(&forecast, out)?,
        Listing::Yaml => output::yaml(&forecast, out)?,
    }
    let is_worrying = !forecast.endings.is_empty() || forecast.rotations.iter().any(is_late);
    Ok(if is_worrying { Found::Warnings } else { Found::Nothing })
}

fn is_late(rotation: &Rotation) -> bool {
    rotation.latest.is_some_and(|latest| latest < rotation.at)
}

fn print(forecast: &Forecast, wide: bool, out: &mut dyn Write) -> io::Result<()> {
    let signers = forecast.rotations.iter().filter(|rotation| rotation.is_signer).count();
    let summary = format!(
        "From {} to {} ({}): {} rotations, {signers} of them of signers; {} rollouts of static pods; {} certificates expire.",
        span::instant(forecast.from),
        span::instant(forecast.to),
        span::text(forecast.from.duration_until(forecast.to)),
        forecast.rotations.len(),
        rollouts(forecast).len(),
        forecast.endings.len()
    );
    wrapped("", &summary, out)?;
    if wide {
        print_section("ROTATIONS", &every_rotation(forecast), out)?;
    } else {
        print_section("SIGNERS", &signer_rotations(forecast), out)?;
        print_section("CERTIFICATES, each with its next rotation", &certificates(forecast), out)?;
    }
    print_section("ROLLOUTS of static pods, by month", &by_month(forecast), out)?;
    print_section("EXPIRING, and Perennial cannot renew them", &endings(forecast), out)?;
    if !forecast.stuck.is_empty() {
        section(&format!("STILL WAITING at {}", span::instant(forecast.to)), out)?;
        forecast.stuck.iter().try_for_each(|stuck| wrapped("", stuck, out))?;
    }
    Ok(())
}

fn print_section(title: &str, table: &Table, out: &mut dyn Write) -> io::Result<()> {
    if table.is_empty() {
        return Ok(());
    }
    section(title, out)?;
    table.print(out)
}

fn signer_rotations(forecast: &Forecast) -> Table {
    let mut table = Table::new(&["WHEN", "SIGNER", "WHY", "LATEST", "ROLLS OUT"]);
    for rotation in forecast.rotations.iter().filter(|rotation| rotation.is_signer) {
        table.row([
            span::instant(rotation.at),
            name(rotation.row, &rotation.slot),
            cause(&rotation.reason),
            date(rotation.latest),
            restarts(&rotation.restarts),
        ]);
    }
    table
}

fn certificates(forecast: &Forecast) -> Table {
    let mut table = Table::new(&["NEXT", "CERTIFICATE", "WHY", "LATEST", "TIMES", "ROLLS OUT"]);
    let mut places: Vec<(&Slot, Vec<&Rotation>)> = Vec::new();
    for rotation in forecast.rotations.iter().filter(|rotation| !rotation.is_signer) {
        match places.iter_mut().find(|(slot, _)| *slot == &rotation.slot) {
            Some((_, rotations)) => rotations.push(rotation),
            None => places.push((&rotation.slot, vec![rotation])),
        }
    }
    for (slot, rotations) in places {
        let Some(next) = rotations.first() else { continue };
        let rolls_out: BTreeSet<String> = rotations.iter().flat_map(|rotation| rotation.restarts.clone()).collect();
        table.row([
            span::instant(next.at),
            name(next.row, slot),
            cause(&next.reason),
            date(next.latest),
            rotations.len().to_string(),
            restarts(&rolls_out),
        ]);
    }
    table
}

fn every_rotation(forecast: &Forecast) -> Table {
    let mut table = Table::new(&["WHEN", "ROW", "OBJECT", "WHY", "LATEST", "SPARE", "ROLLS OUT"]);
    for rotation in &forecast.rotations {
        table.row([
            span::instant(rotation.at),
            rotation.row.to_owned(),
            rotation.slot.object_text().to_owned(),
            rotation.reason.to_string(),
            rotation.latest.map(span::instant).unwrap_or_default(),
            rotation.latest.map(|latest| span::text(rotation.at.duration_until(latest))).unwrap_or_default(),
            restarts(&rotation.restarts),
        ]);
    }
    table
}

/// Returns the rollouts. Rotations at the same instant share one rollout.
fn rollouts(forecast: &Forecast) -> BTreeSet<(Timestamp, &str)> {
    forecast.rotations.iter().flat_map(|it| it.restarts.iter().map(|pod| (it.at, pod.as_str()))).collect()
}

fn by_month(forecast: &Forecast) -> Table {
    let mut months: BTreeMap<String, BTreeMap<&str, usize>> = BTreeMap::new();
    for (at, pod) in rollouts(forecast) {
        *months.entry(at.strftime("%Y-%m").to_string()).or_default().entry(pod).or_default() += 1;
    }
    let mut table = Table::new(&["MONTH", "ROLLOUTS"]);
    for (month, pods) in months {
        let pods = pods.iter().map(|(pod, count)| format!("{count} of {}", pod_name(pod)));
        table.row([month, pods.collect::<Vec<_>>().join(", ")]);
    }
    table
}

fn endings(forecast: &Forecast) -> Table {
    let mut table = Table::new(&["WHEN", "CERTIFICATE", "KEY"]);
    for Ending { at, row, custody } in &forecast.endings {
        let key = match custody {
            Some(Custody::Discarded) => "discarded by the installation",
            Some(Custody::Offline) => "in the files of the installation",
            Some(Custody::Cluster) => "in the cluster",
            None => "",
        };
        table.row([span::instant(*at), (*row).to_owned(), key.to_owned()]);
    }
    table
}

/// Returns the row of a certificate, or its object if the row has many certificates.
pub(super) fn name(row: &str, slot: &Slot) -> String {
    match Catalog::builtin().row(row).map(|row| row.scope) {
        Some(Scope::Node) => slot.object().name,
        Some(Scope::Service) => slot.object_text().to_owned(),
        Some(Scope::Cluster) | None => row.to_owned(),
    }
}

/// Returns a reason in two or three words.
pub(super) fn cause(reason: &Reason) -> String {
    match reason {
        Reason::PastRefresh { .. } => "refresh time".to_owned(),
        Reason::PastEightyPercent { .. } => "80% of validity".to_owned(),
        Reason::SignerChanged => "signer changed".to_owned(),
        Reason::IssuerNotInBundle => "issuer not in bundle".to_owned(),
        Reason::Expired { .. } => "expired".to_owned(),
        Reason::NotYetValid { .. } => "not valid yet".to_owned(),
        Reason::Absent => "absent".to_owned(),
        Reason::HostsDiffer { .. } => "names differ".to_owned(),
        Reason::ChainDiffers { .. } => "chain differs".to_owned(),
        Reason::Unreadable { .. } => "unreadable".to_owned(),
        other => other.to_string(),
    }
}

fn date(at: Option<Timestamp>) -> String {
    at.map(span::day).unwrap_or_default()
}
