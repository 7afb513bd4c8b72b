//! `perennial plan`: what would be written now, in which order, and what waits for what.

use std::collections::BTreeSet;
use std::io::{self, Write};

use jiff::Timestamp;
use perennial_core::catalog::Catalog;
use perennial_core::plan::{Action, CopyItem, Pending, Planner, Report, Risk, Scope, Step};
use perennial_core::rules::{self, BundleReason, Waiting};

use crate::commands::forecast::cause;
use crate::exit::Found;
use crate::output::{self, Listing};
use crate::snapshot::From;
use crate::span;
use crate::table::{Table, labelled, section, wrapped};

/// Plan: what would be written now and in which order, and what waits for what
///
/// Nothing is written. The same snapshot always gives the same plan, byte for byte.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial plan                                 the cluster of the current kubectl context\n  \
    perennial plan --from snapshot.json            a snapshot\n  \
    perennial plan --from snapshot.json -o wide    also key, signer and end of each new certificate\n  \
    perennial plan --from snapshot.json -o json | jq -r '.steps[].object'\n\n\
    Exit codes:\n  \
    0   no risk; what merely waits is none\n  \
    1   failed\n  \
    2   wrong usage\n  \
    3   a client will reject a server before waiting can help\n  \
    4   a client rejects a server from now on")]
pub(crate) struct Args {
    #[command(flatten)]
    from: From,

    /// How to print
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Listing,
}

/// Prints the plan.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let snapshot = args.from.read(planner.wiring())?;
    let mut report = planner.plan(&snapshot, &Scope::All);
    // What is broken elsewhere is no answer to what was asked.
    report.risks.retain(|risk| row_of(&planner, risk).is_none_or(|row| args.from.asks_about(row)));
    match args.output {
        Listing::Table => print(&report, false, out)?,
        Listing::Wide => print(&report, true, out)?,
        Listing::Json => output::json(&report, out)?,
        Listing::Yaml => output::yaml(&report, out)?,
    }
    Ok(found(&report))
}

/// The row that a risk is about.
pub(super) fn row_of(planner: &Planner<'_>, risk: &Risk) -> Option<&'static str> {
    planner.wiring().edge_called(&risk.edge).map(|edge| edge.row)
}

/// Prints a plan for people.
pub(super) fn show(report: &Report, out: &mut dyn Write) -> anyhow::Result<Found> {
    print(report, false, out)?;
    Ok(found(report))
}

fn found(report: &Report) -> Found {
    let severity = |risk: &&Risk| if risk.at <= report.at { Found::Critical } else { Found::Warnings };
    all_risks(report).into_iter().map(|risk| severity(&risk)).max().unwrap_or(Found::Nothing)
}

/// Those of the whole plan and those of its steps, each once, the earliest first.
pub(super) fn all_risks(report: &Report) -> Vec<&Risk> {
    let of_steps = report.steps.iter().flat_map(|step| &step.risks);
    let mut seen = BTreeSet::new();
    let mut risks: Vec<&Risk> =
        report.risks.iter().chain(of_steps).filter(|risk| seen.insert((risk.edge.as_str(), risk.at))).collect();
    risks.sort_by_key(|risk| (risk.at, risk.edge.as_str()));
    risks
}

fn print(report: &Report, wide: bool, out: &mut dyn Write) -> io::Result<()> {
    let risks = all_risks(report);
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    writeln!(
        out,
        "At {}: {} to make now, {} waiting, {}.",
        span::instant(report.at),
        count(report.steps.len(), "write"),
        report.waiting.len(),
        count(risks.len(), "risk")
    )?;
    if !report.steps.is_empty() {
        section("TO WRITE, in this order; then look again", out)?;
        let table = if wide { wide_steps(report) } else { steps(report) };
        table.print(out)?;
        print_rollouts(report, out)?;
    }
    if !report.waiting.is_empty() {
        section("WAITING", out)?;
        report.waiting.iter().try_for_each(|pending| print_pending(report, pending, out))?;
    }
    if !risks.is_empty() {
        section("AT RISK", out)?;
        risks.into_iter().try_for_each(|risk| print_risk(report, risk, out))?;
    }
    let next = report.next_look;
    if !report.steps.is_empty() {
        writeln!(out, "\nNext look: as soon as this is written.")
    } else if next == Timestamp::MAX {
        writeln!(out, "\nNext look: when something happens; nothing changes by itself.")
    } else {
        writeln!(
            out,
            "\nNext look: {} ({}), or when something happens.",
            span::instant(next),
            span::from_to(report.at, next)
        )
    }
}

fn steps(report: &Report) -> Table {
    let mut table = Table::new(&["#", "DO", "OBJECT", "WHY"]);
    for (number, step) in report.steps.iter().enumerate() {
        table.row([(number + 1).to_string(), verb(step).to_owned(), step.object.clone(), why(report, step)]);
    }
    table
}

/// Which static pods roll out, and because of which steps.
fn print_rollouts(report: &Report, out: &mut dyn Write) -> io::Result<()> {
    let pods: BTreeSet<&String> = report.steps.iter().flat_map(|step| &step.restarts).collect();
    for pod in pods {
        let causes = report.steps.iter().enumerate().filter(|(_, step)| step.restarts.contains(pod));
        let causes: Vec<String> = causes.map(|(number, _)| format!("#{}", number + 1)).collect();
        let text = format!("{} restarts, node by node, for {}", pod_name(pod), causes.join(", "));
        wrapped("rollout: ", &text, out)?;
    }
    Ok(())
}

fn wide_steps(report: &Report) -> Table {
    let mut table =
        Table::new(&["#", "DO", "OBJECT", "WHY", "KEY", "FROM", "SIGNER", "NOT AFTER", "RESTARTS", "AT RISK"]);
    for (number, step) in report.steps.iter().enumerate() {
        let [key, source, signer, not_after] = match &step.action {
            Action::Issue(issue) => [
                issue.spec.key.to_string(),
                issue.key_source.to_string(),
                issue.signer.as_ref().map_or("(self)", |(slot, _)| slot.object_text()).to_owned(),
                issue.spec.validity.not_after.to_string(),
            ],
            _ => Default::default(),
        };
        let risks: Vec<&str> = step.risks.iter().map(|risk| risk.edge.as_str()).collect();
        table.row([
            (number + 1).to_string(),
            verb(step).to_owned(),
            step.object.clone(),
            full_why(step),
            key,
            source,
            signer,
            not_after,
            restarts(&step.restarts),
            risks.join("; "),
        ]);
    }
    table
}

fn verb(step: &Step) -> &'static str {
    match step.action {
        Action::Issue(_) => "issue",
        Action::Publish(_) => "publish",
        Action::CopySecret(_) | Action::CopyBundle(_) => "copy",
        Action::Retype(_) => "replace",
        Action::Describe(_) => "describe",
    }
}

/// In a few words. Names of certificates are hashes in real life: they are counted here, and told in `wide`.
fn why(report: &Report, step: &Step) -> String {
    match &step.action {
        Action::Issue(issue) => cause(&issue.reason),
        Action::Publish(bundles) => {
            let reasons: BTreeSet<String> = bundles.iter().map(|bundle| bundle_cause(&bundle.reason)).collect();
            reasons.into_iter().collect::<Vec<_>>().join("; ")
        }
        Action::CopySecret(items) => copied(report, items),
        Action::CopyBundle(item) => copied(report, std::slice::from_ref(item)),
        Action::Retype(_) => "its type".to_owned(),
        Action::Describe(_) => "its labels and annotations".to_owned(),
    }
}

fn bundle_cause(reason: &BundleReason) -> String {
    match reason {
        BundleReason::SignerUpdate { added, removed } => {
            let change = [(added.len(), "added"), (removed.len(), "removed")].into_iter();
            let change = change.filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}"));
            change.collect::<Vec<_>>().join(", ")
        }
        BundleReason::Absent => "absent".to_owned(),
        BundleReason::Unremembered => "to note since when".to_owned(),
        BundleReason::Reached => "to note its reach".to_owned(),
        other => other.to_string(),
    }
}

/// From where a copy comes: the step that writes it, or else the object.
fn copied(report: &Report, items: &[CopyItem]) -> String {
    let source = |item: &CopyItem| {
        let Some(from) = &item.from else { return "nothing".to_owned() };
        let step = report.steps.iter().position(|step| step.object == from.object_text());
        step.map_or_else(|| from.object().name, |number| format!("#{}", number + 1))
    };
    let sources: BTreeSet<String> = items.iter().map(source).collect();
    match sources.len() {
        0..=3 => format!("from {}", sources.into_iter().collect::<Vec<_>>().join(", ")),
        several => format!("from {several} Secrets"),
    }
}

fn full_why(step: &Step) -> String {
    match &step.action {
        Action::Issue(issue) => issue.reason.to_string(),
        Action::Publish(bundles) => {
            bundles.iter().map(|bundle| bundle.reason.to_string()).collect::<Vec<_>>().join("; ")
        }
        Action::CopySecret(_) | Action::CopyBundle(_) | Action::Retype(_) | Action::Describe(_) => step.to_string(),
    }
}

/// Static pods by the names that people use for them.
pub(super) fn restarts(namespaces: &BTreeSet<String>) -> String {
    namespaces.iter().map(|it| pod_name(it)).collect::<Vec<_>>().join(", ")
}

pub(super) fn pod_name(namespace: &str) -> &str {
    namespace.trim_start_matches("openshift-")
}

fn print_pending(report: &Report, pending: &Pending, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{} ({})", pending.slot.object_text(), pending.name)?;
    if let Some(reason) = &pending.reason {
        labelled("is due", &reason.to_string(), out)?;
    }
    print_waiting(report.at, &pending.waiting, out)
}

/// What something waits for, and what would happen if it did not.
pub(super) fn print_waiting(now: Timestamp, waiting: &Waiting, out: &mut dyn Write) -> io::Result<()> {
    let (cause, refusal) = match waiting {
        Waiting::Trust { refusal, .. } => ("everybody to trust it".to_owned(), Some(refusal)),
        Waiting::Rollout { lacking, refusal, .. } => {
            (format!("rollout on {}", rules::first_few(lacking)), Some(refusal))
        }
        Waiting::SignerTooYoung { .. } => ("its new signer to reach everybody who verifies it".to_owned(), None),
        other => (other.to_string(), None),
    };
    labelled("waits for", &cause, out)?;
    let until = match waiting.until() {
        Some(until) => format!("{} ({}) at the latest", span::instant(until), span::from_to(now, until)),
        None => "it happens: time alone does not end this".to_owned(),
    };
    labelled("until", &until, out)?;
    match refusal {
        Some(refusal) => labelled("otherwise", &refusal.to_string(), out),
        None => Ok(()),
    }
}

fn print_risk(report: &Report, risk: &Risk, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{}", risk.edge)?;
    let since = match risk.at <= report.at {
        true => format!("{}: from now on", span::instant(risk.at)),
        false => format!("{} ({})", span::instant(risk.at), span::from_to(report.at, risk.at)),
    };
    labelled("broken from", &since, out)?;
    labelled("because", &risk.broken.to_string(), out)
}

#[cfg(test)]
mod tests {
    use perennial_core::trust::{Broken, Obstacle};

    use super::*;

    #[test]
    fn a_risk_is_a_warning_until_it_is_there() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let now = at("2026-01-01T12:00:00Z");
        let report =
            |risks: Vec<Risk>| Report { at: now, steps: Vec::new(), waiting: Vec::new(), risks, next_look: now };
        let risk = |time: &str| Risk {
            edge: "one accepts another".to_owned(),
            at: at(time),
            broken: Broken {
                bundle: "trust".to_owned(),
                leaf: "leaf".to_owned(),
                obstacle: Obstacle::Untrusted { signer: "signer".to_owned() },
            },
        };
        assert_eq!(found(&report(Vec::new())), Found::Nothing);
        assert_eq!(found(&report(vec![risk("2026-01-01T12:00:01Z")])), Found::Warnings);
        assert_eq!(found(&report(vec![risk("2026-01-01T12:00:01Z"), risk("2026-01-01T12:00:00Z")])), Found::Critical);
    }
}
