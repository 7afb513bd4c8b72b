//! `perennial rotate`: asks for new certificates, on the planned path.

mod noncompliant;

use std::io::Write;
use std::num::NonZeroUsize;

use anyhow::{Context, bail};
use perennial_core::catalog::{Catalog, Day, Row};
use perennial_core::plan::{Planner, Scope};
use perennial_core::snapshot::Snapshot;
use perennial_core::wiring::instances;
use perennial_operator::ask;
use perennial_operator::observe::Observation;

use crate::cluster::{ClusterArgs, runtime};
use crate::commands::plan;
use crate::exit::Found;
use crate::talk;

/// Ask for new certificates before their time: on the planned path, with overlap, at most once per reason
///
/// Without --yes nothing is written: what would follow is printed as `perennial plan` prints it. The operator does the rest.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial rotate aggregator-client --reason 'key was copied'\n  \
    perennial rotate kube-control-plane-signer --reason 2026-audit --yes\n  \
    perennial rotate --noncompliant --reason 'policy of March' --yes\n\n\
    A name is that of a certificate, as `perennial certs` lists it, or that of its Secret.\n\n\
    --noncompliant asks for every certificate whose key is not what the PKI resource asks for: signers first, a few at a\n\
    time, and waits for them. Stop it whenever you like, and start it again with the same reason: it goes on.")]
pub(crate) struct Args {
    /// Which certificate
    #[arg(value_name = "NAME", required_unless_present = "noncompliant", conflicts_with = "noncompliant")]
    name: Option<String>,

    /// Every certificate whose key is not what the PKI resource asks for
    #[arg(long)]
    noncompliant: bool,

    /// How many may be under way at once
    #[arg(long, value_name = "COUNT", default_value = "5", requires = "noncompliant")]
    at_once: NonZeroUsize,

    /// Ask for the first few, and do not wait for them
    #[arg(long, requires = "noncompliant")]
    no_wait: bool,

    /// Why: the same reason rotates once only
    #[arg(long, value_name = "REASON", value_parser = super::parse_reason)]
    reason: String,

    /// Do it
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Asks, or shows what asking would do.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    match &args.name {
        Some(name) => one(args, name, out),
        None => noncompliant::run(args, out),
    }
}

fn one(args: &Args, name: &str, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let rows = rows(name)?;
    let Observation { mut snapshot, unmanaged, .. } = args.cluster.observe(planner.wiring())?;
    for row in &rows {
        if let Some(why) = unmanaged.get(row.component.owner()) {
            bail!("{} is left as it is: {why}", row.id);
        }
        if snapshot.settings.left_alone.contains(row.component.owner()) {
            bail!("{} belongs to {}, whose certificates are not kept here", row.id, row.component.owner());
        }
        if is_done(&planner, &snapshot, row, &args.reason) {
            talk::line(format_args!("{} was rotated for this reason before, and is not again: choose another", row.id));
        }
        snapshot.settings.forced.insert(row.id.to_owned(), args.reason.clone());
    }
    if !args.yes {
        let report = planner.plan(&snapshot, &Scope::All);
        talk::line(format_args!("dry run: --yes asks for it"));
        return plan::show(&report, out);
    }
    let runtime = runtime()?;
    let client = runtime.block_on(args.cluster.client())?;
    for row in &rows {
        for instance in instances(row, &snapshot) {
            let object = planner.wiring().home(row, &instance).object();
            let asked = runtime.block_on(ask::rotate(&client, &object, &args.reason));
            asked.with_context(|| format!("failed to ask for a new certificate in {object}"))?;
            writeln!(out, "asked for a new certificate in {object}")?;
        }
    }
    Ok(Found::Nothing)
}

/// The rows of the running cluster that hold a certificate of this name.
fn rows(name: &str) -> anyhow::Result<Vec<&'static Row>> {
    let catalog = Catalog::builtin();
    let rows = || catalog.rows.iter().filter(|row| row.day == Day::Two);
    let mut found: Vec<&Row> = rows().filter(|row| row.id == name).collect();
    if found.is_empty() {
        found = rows().filter(|row| row.certificate == name).collect();
    }
    if found.is_empty() {
        let names: Vec<&str> = rows().map(|row| row.id).collect();
        bail!("no certificate of a running cluster is called {name:?}: there are {}", names.join(", "));
    }
    Ok(found)
}

fn is_done(planner: &Planner<'_>, snapshot: &Snapshot, row: &Row, reason: &str) -> bool {
    let states = instances(row, snapshot).into_iter().filter_map(|instance| {
        let slot = planner.wiring().home(row, &instance);
        snapshot.secrets.get(&slot).and_then(|found| found.present())
    });
    let mut states = states.peekable();
    states.peek().is_some() && states.all(|state| state.forced.as_deref() == Some(reason))
}
