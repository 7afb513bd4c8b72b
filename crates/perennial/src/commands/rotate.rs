//! `perennial rotate`: asks for new certificates, on the planned path, a few at a time, and waits for them.

mod carry_out;
mod noncompliant;

use std::io::Write;
use std::num::NonZeroUsize;

use anyhow::bail;
use jiff::Timestamp;
use perennial_core::campaign::Candidate;
use perennial_core::catalog::{Catalog, Row};
use perennial_core::key::KeySpec;
use perennial_core::plan::{Planner, Report, Scope};
use perennial_core::policy::Usage;
use perennial_core::rules::Observed;
use perennial_core::service_ca::{self, Clients};
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_operator::observe::Observation;

use crate::cluster::ClusterArgs;
use crate::commands::{names, plan};
use crate::exit::Found;
use crate::span::{self, Span};
use crate::table::section;
use crate::talk;

/// Ask for new certificates before their time: with overlap, a few at a time, and once for each reason
///
/// Without --yes nothing is written: what would follow is printed as `perennial plan` prints it. With --yes the command asks the
/// operator for the rotation of each certificate, waits for it, and prints how many were rotated.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial rotate aggregator-client --reason 'key was copied'\n  \
    perennial rotate kube-control-plane-signer --reason 2026-audit --yes\n  \
    perennial rotate shop/web-tls --reason 'key was copied' --yes       that of one Service\n  \
    perennial rotate service-serving --reason 'policy of March' --yes   those of all Services\n  \
    perennial rotate --noncompliant --reason 'policy of March' --yes\n\n\
    --noncompliant asks for every certificate whose key is not what the PKI resource asks for.\n\n\
    Signers are rotated first, and no more than --at-once are under way at once. Stop the command whenever you like, and\n\
    start it again with the same reason: it goes on, and rotates nothing twice.\n\n\
    Exit codes:\n  \
    0   every certificate was rotated, or had been for this reason; of a dry run: nothing breaks by it\n  \
    1   failed, or some were not rotated: the output says which and why\n  \
    2   wrong usage\n  \
    3   of a dry run: by the rotation, a client will reject a server before waiting can help\n  \
    4   of a dry run: by the rotation, a client rejects a server at once")]
pub(crate) struct Args {
    /// Which certificate: its name or row as `perennial certs --catalog` lists them, or its Secret as namespace/name
    #[arg(value_name = "NAME", required_unless_present = "noncompliant", conflicts_with = "noncompliant")]
    name: Option<String>,

    /// Every certificate whose key is not what the PKI resource asks for
    #[arg(long)]
    noncompliant: bool,

    /// How many may be under way at once
    #[arg(long, value_name = "COUNT", default_value = "5")]
    at_once: NonZeroUsize,

    /// Ask for the first few, and do not wait for them
    #[arg(long)]
    no_wait: bool,

    /// How long to wait while no certificate is rotated
    #[arg(long, value_name = "SPAN", default_value = "10m", conflicts_with = "no_wait")]
    timeout: Span,

    /// Why: the same reason rotates once only
    #[arg(long, value_name = "REASON", value_parser = super::parse_reason)]
    reason: String,

    /// Do it
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// A certificate to rotate.
struct Chosen {
    slot: Slot,
    row: &'static Row,
    /// The key that it is to have; none where any new one will do.
    wanted: Option<KeySpec>,
}

/// Asks, or shows what asking would do.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let observation = args.cluster.observe(planner.wiring())?;
    let chosen = match &args.name {
        Some(name) => named(name, &planner, &observation)?,
        None => noncompliant::chosen(&planner, &observation, out)?,
    };
    if chosen.is_empty() {
        talk::line(format_args!("every certificate has the key that the policy asks for"));
        return Ok(Found::Nothing);
    }
    if chosen.iter().all(|it| used_at(&observation.snapshot, it, &args.reason).is_some()) {
        return used(args, &observation.snapshot, &chosen, out);
    }
    if !args.yes {
        return preview(args, &planner, &observation.snapshot, &chosen, out);
    }
    carry_out::run(args, &planner, &observation, &chosen, out)
}

/// The certificates of the running cluster that are called so.
fn named(name: &str, planner: &Planner<'static>, observation: &Observation) -> anyhow::Result<Vec<Chosen>> {
    let Observation { snapshot, unmanaged, .. } = observation;
    let mut chosen = Vec::new();
    for (row, instance) in names::certificates(name, planner.wiring(), snapshot)? {
        if let Some(why) = unmanaged.get(row.component.owner()) {
            bail!("{} is not rotated: {why}", row.id);
        }
        if snapshot.settings.leaves(row.component, row.id) {
            bail!("{} is not rotated: {} is not managed here", row.id, row.component.owner());
        }
        let slot = planner.wiring().home(row, &instance);
        chosen.push(Chosen { slot, row, wanted: None });
    }
    Ok(chosen)
}

/// When the certificate was issued that is there, if this reason was used before.
fn used_at(snapshot: &Snapshot, chosen: &Chosen, reason: &str) -> Option<Timestamp> {
    let state = snapshot.secrets.get(&chosen.slot)?.present()?;
    let issued_at = state.issued_at.unwrap_or(state.certificate.validity.not_before);
    (state.forced.as_deref() == Some(reason)).then_some(issued_at)
}

/// Nothing is done, because everything was done for this reason before.
fn used(args: &Args, snapshot: &Snapshot, chosen: &[Chosen], out: &mut dyn Write) -> anyhow::Result<Found> {
    let text = match chosen {
        [it] => {
            let date = used_at(snapshot, it, &args.reason).map(span::day).unwrap_or_default();
            let object = it.slot.object_text();
            format!(
                "{object}: not rotated: this reason was used, and the certificate is of {date}; pass another --reason"
            )
        }
        many => format!("{} certificates: not rotated: this reason was used; pass another --reason", many.len()),
    };
    if args.noncompliant {
        bail!("{text}");
    }
    writeln!(out, "{text}")?;
    Ok(Found::Nothing)
}

/// Shows what asking for the first few would lead to, and nothing else of the plan.
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
    let mut asked = snapshot.clone();
    asked.asked.extend(open.iter().take(now).map(|it| (it.slot.clone(), args.reason.clone())));
    let later = match open.len() - now {
        0 => String::new(),
        later => format!(", and for {later} more when these are done"),
    };
    talk::line(format_args!("dry run: --yes asks for {now} new certificate{}{later}", if now == 1 { "" } else { "s" }));
    let before = planner.plan(snapshot, &Scope::All);
    let found = plan::show(&difference(planner.plan(&asked, &Scope::All), &before), out)?;
    if open.iter().take(now).any(|it| it.row.id == service_ca::ROW) {
        print_clients(&service_ca::clients(planner, snapshot, true), out)?;
    }
    Ok(found)
}

/// Prints which clients of Services will not have reloaded the trust bundle, as the operator says it before it rotates.
fn print_clients(clients: &[Clients], out: &mut dyn Write) -> anyhow::Result<()> {
    section("CLIENTS OF SERVICES, after the rotation", out)?;
    clients.iter().try_for_each(|it| writeln!(out, "{it}"))?;
    writeln!(out, "`perennial consumers service-ca` lists the pods to restart.")?;
    Ok(())
}

/// What a plan has and another does not.
fn difference(mut plan: Report, other: &Report) -> Report {
    plan.steps.retain(|step| !other.steps.contains(step));
    plan.waiting.retain(|it| !other.waiting.iter().any(|same| same.slot == it.slot && same.reason == it.reason));
    let others: Vec<&str> = plan::all_risks(other).into_iter().map(|risk| risk.edge.as_str()).collect();
    plan.risks.retain(|risk| !others.contains(&risk.edge.as_str()));
    plan.steps.iter_mut().for_each(|step| step.risks.retain(|risk| !others.contains(&risk.edge.as_str())));
    plan
}

/// What a campaign is about, and what it cannot ask for, with the reason.
fn candidates(chosen: &[Chosen], snapshot: &Snapshot) -> (Vec<Candidate>, Vec<(Slot, String)>) {
    let (mut candidates, mut refused) = (Vec::new(), Vec::new());
    for it in chosen {
        match snapshot.secrets.get(&it.slot) {
            // It may be somebody else's: nothing is written on it.
            Some(Observed::Unknown { why }) => refused.push((it.slot.clone(), why.clone())),
            None | Some(Observed::Absent) => refused.push((it.slot.clone(), "there is no certificate yet".to_owned())),
            Some(Observed::Present(_) | Observed::Unreadable { .. }) => {
                candidates.push(Candidate { slot: it.slot.clone(), is_signer: it.row.usage == Usage::Signer });
            }
        }
    }
    (candidates, refused)
}

#[cfg(test)]
mod tests {
    use perennial_core::plan::Risk;
    use perennial_core::trust::{Broken, Obstacle};

    use super::*;

    fn report(edges: &[&str]) -> Report {
        let at: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let risk = |edge: &&str| Risk {
            edge: (*edge).to_owned(),
            at,
            broken: Broken {
                bundle: "trust".to_owned(),
                leaf: "leaf".to_owned(),
                obstacle: Obstacle::Untrusted { signer: "signer".to_owned() },
            },
        };
        let risks = edges.iter().map(risk).collect();
        Report { at, steps: Vec::new(), waiting: Vec::new(), risks, next_look: at }
    }

    #[test]
    fn a_dry_run_judges_only_what_the_rotation_brings() {
        let found = |before: &[&str], after: &[&str]| {
            plan::show(&difference(report(after), &report(before)), &mut Vec::new()).unwrap()
        };
        assert_eq!(found(&["broken anyway"], &["broken anyway"]), Found::Nothing);
        assert_eq!(found(&["broken anyway"], &["broken anyway", "broken by it"]), Found::Critical);
    }
}
