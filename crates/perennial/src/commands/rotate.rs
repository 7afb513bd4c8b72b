//! `perennial rotate`: asks the operator to rotate certificates, a few at a time, and waits for them.

mod execute;
mod noncompliant;

use std::io::Write;
use std::num::NonZeroUsize;

use anyhow::bail;
use jiff::Timestamp;
use perennial_core::campaign::Candidate;
use perennial_core::catalog::{Catalog, Row};
use perennial_core::key::KeySpec;
use perennial_core::plan::Planner;
use perennial_core::policy::Usage;
use perennial_core::service_ca::{self, Clients};
use perennial_core::snapshot::{Observed, Slot, Snapshot};
use perennial_operator::observe::Observation;

use crate::cluster::ClusterArgs;
use crate::commands::{names, plan};
use crate::exit::Found;
use crate::span::{self, Span};
use crate::table::section;
use crate::talk;

/// Rotate certificates early: with overlap, a few at a time, and once for each reason
///
/// Without --yes, the command writes nothing and prints the plan of the rotation. With --yes, the command asks the operator to rotate each
/// certificate, waits for the rotations, and prints how many succeeded.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial rotate aggregator-client --reason 'key was copied'\n  \
    perennial rotate kube-control-plane-signer --reason 2026-audit --yes\n  \
    perennial rotate shop/web-tls --reason 'key was copied' --yes       the certificate of one Service\n  \
    perennial rotate service-serving --reason 'policy of March' --yes   the certificates of all Services\n  \
    perennial rotate --noncompliant --reason 'policy of March' --yes\n\n\
    --noncompliant rotates every certificate whose key does not follow the PKI resource.\n\n\
    The command rotates signers first. At most --at-once rotations are in progress at once. You can stop the command and\n\
    start it again with the same reason: it continues, and rotates no certificate twice.\n\n\
    Exit codes:\n  \
    0   every certificate is rotated for this reason; dry run: the rotation breaks no edge\n  \
    1   failure, or some certificates are not rotated: the output names them and the reasons\n  \
    2   wrong usage\n  \
    3   dry run: after the rotation, a client will reject a server later, and waiting cannot prevent it\n  \
    4   dry run: after the rotation, a client rejects a server at once")]
pub(crate) struct Args {
    /// The certificate: a name or row of `perennial certs --catalog`, or a Secret as namespace/name
    #[arg(value_name = "NAME", required_unless_present = "noncompliant", conflicts_with = "noncompliant")]
    name: Option<String>,

    /// Rotate every certificate whose key does not follow the PKI resource
    #[arg(long)]
    noncompliant: bool,

    /// How many rotations may be in progress at once
    #[arg(long, value_name = "COUNT", default_value = "5")]
    at_once: NonZeroUsize,

    /// Ask for the first --at-once rotations, and do not wait for them
    #[arg(long)]
    no_wait: bool,

    /// How long to wait without any progress
    #[arg(long, value_name = "SPAN", default_value = "10m", conflicts_with = "no_wait")]
    timeout: Span,

    /// The reason of the rotation. The same reason rotates a certificate only once
    #[arg(long, value_name = "REASON", value_parser = super::parse_reason)]
    reason: String,

    /// Rotate the certificates [default: dry run]
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// A certificate to rotate.
struct Chosen {
    slot: Slot,
    row: &'static Row,
    /// The key that the policy asks for; none if any new key is accepted.
    wanted: Option<KeySpec>,
}

/// Rotates the certificates, or prints the plan of a dry run.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let observation = args.cluster.observe(planner.wiring())?;
    let chosen = match &args.name {
        Some(name) => named(name, &planner, &observation)?,
        None => noncompliant::chosen(&planner, &observation, out)?,
    };
    if chosen.is_empty() {
        talk::line(format_args!("nothing to rotate: every key follows the policy"));
        return Ok(Found::Nothing);
    }
    if chosen.iter().all(|it| used_at(&observation.snapshot, it, &args.reason).is_some()) {
        return used(args, &observation.snapshot, &chosen, out);
    }
    if !args.yes {
        return preview(args, &planner, &observation.snapshot, &chosen, out);
    }
    execute::run(args, &planner, &observation, &chosen, out)
}

/// Returns the certificates of the running cluster with this name.
fn named(name: &str, planner: &Planner<'static>, observation: &Observation) -> anyhow::Result<Vec<Chosen>> {
    let snapshot = &observation.snapshot;
    let mut chosen = Vec::new();
    for (row, instance) in names::certificates(name, planner.wiring(), snapshot)? {
        if let Some(why) = snapshot.unmanaged(row.component) {
            bail!("{} is not rotated: {why}", row.id);
        }
        if snapshot.leaves(planner.wiring().catalog, row.component, row.id) {
            bail!("{} is not rotated: {} is not managed here", row.id, row.component.owner());
        }
        let slot = planner.wiring().home(row, &instance);
        chosen.push(Chosen { slot, row, wanted: None });
    }
    Ok(chosen)
}

/// Returns the issue time of the current certificate if it was rotated for this reason.
fn used_at(snapshot: &Snapshot, chosen: &Chosen, reason: &str) -> Option<Timestamp> {
    let state = snapshot.secrets.get(&chosen.slot)?.present()?;
    let issued_at = state.issued_at.unwrap_or(state.certificate.validity.not_before);
    (state.forced.as_deref() == Some(reason)).then_some(issued_at)
}

/// Reports that all certificates were rotated for this reason before.
fn used(args: &Args, snapshot: &Snapshot, chosen: &[Chosen], out: &mut dyn Write) -> anyhow::Result<Found> {
    let text = match chosen {
        [it] => {
            let date = used_at(snapshot, it, &args.reason).map(span::day).unwrap_or_default();
            let object = it.slot.object_text();
            format!(
                "{object}: not rotated: this reason was used before, and the certificate was issued on {date}; pass another --reason"
            )
        }
        many => format!("{} certificates: not rotated: this reason was used before; pass another --reason", many.len()),
    };
    if args.noncompliant {
        bail!("{text}");
    }
    writeln!(out, "{text}")?;
    Ok(Found::Nothing)
}

/// Prints the plan of the first rotations.
fn preview(
    args: &Args,
    planner: &Planner<'_>,
    snapshot: &Snapshot,
    chosen: &[Chosen],
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let mut open: Vec<&Chosen> = chosen.iter().filter(|it| used_at(snapshot, it, &args.reason).is_none()).collect();
    // A stable sort: otherwise the order of the catalog stays.
    open.sort_by_key(|it| it.row.usage != Usage::Signer);
    let now = open.len().min(args.at_once.get());
    let asked = open.iter().take(now).map(|it| (it.slot.clone(), args.reason.clone())).collect();
    let later = match open.len() - now {
        0 => String::new(),
        later => format!(", then for {later} more"),
    };
    talk::line(format_args!("dry run: --yes asks for {now} new certificate{}{later}", if now == 1 { "" } else { "s" }));
    let found = plan::show(&planner.consequences(snapshot, asked), out)?;
    if open.iter().take(now).any(|it| it.row.id == service_ca::ROW) {
        print_clients(&service_ca::clients(planner, snapshot, true), out)?;
    }
    Ok(found)
}

/// Prints the clients of Services that will not have reloaded the trust bundle, with the text of the operator's event.
fn print_clients(clients: &[Clients], out: &mut dyn Write) -> anyhow::Result<()> {
    section("CLIENTS OF SERVICES, after the rotation", out)?;
    clients.iter().try_for_each(|it| writeln!(out, "{it}"))?;
    writeln!(out, "`perennial consumers service-ca` lists the pods to restart.")?;
    Ok(())
}

/// Returns the certificates to rotate, and those that cannot be rotated with the reason.
fn candidates(chosen: &[Chosen], snapshot: &Snapshot) -> (Vec<Candidate>, Vec<(Slot, String)>) {
    let (mut candidates, mut refused) = (Vec::new(), Vec::new());
    for it in chosen {
        match snapshot.secrets.get(&it.slot) {
            // The Secret may belong to another owner, so the command does not write to it.
            Some(Observed::Unknown { why }) => refused.push((it.slot.clone(), why.clone())),
            None | Some(Observed::Absent) => {
                refused.push((it.slot.clone(), "the Secret has no certificate yet".to_owned()));
            }
            Some(Observed::Present(_) | Observed::Unreadable { .. }) => {
                candidates.push(Candidate { slot: it.slot.clone(), is_signer: it.row.usage == Usage::Signer });
            }
        }
    }
    (candidates, refused)
}
