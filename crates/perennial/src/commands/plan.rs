//! `perennial plan`: shows the due writes in their order, and what waits.

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

/// Show the plan: the due writes in their order, what waits, and for what
///
/// The command writes nothing. The same snapshot always gives the same plan, byte for byte.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial plan                                 the cluster of the current kubectl context\n  \
    perennial plan --from snapshot.json            a snapshot\n  \
    perennial plan --from snapshot.json -o wide    also key, signer and expiry of each new certificate\n  \
    perennial plan --from snapshot.json -o json | jq -r '.steps[].object'\n\n\
    Exit codes:\n  \
    0   no risk; writes may wait\n  \
    1   failure\n  \
    2   wrong usage\n  \
    3   a client will reject a server later, and waiting cannot prevent it\n  \
    4   a client rejects a server from now on")]
pub(crate) struct Args {
    #[command(flatten)]
    from: From,

    /// The output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Listing,
}

/// Prints the plan.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let snapshot = args.from.read(planner.wiring())?;
    let mut report = planner.plan(&snapshot, &Scope::All);
    // Leave out risks of components that are not in --controllers.
    report.risks.retain(|risk| row_of(&planner, risk).is_none_or(|row| args.from.asks_about(row)));
    match args.output {
        Listing::Table => print(&report, false, out)?,
        Listing::Wide => print(&report, true, out)?,
        Listing::Json => output::json(&report, out)?,
        Listing::Yaml => output::yaml(&report, out)?,
    }
    Ok(found(&report))
}

/// Returns the row of a risk.
pub(super) fn row_of(planner: &Planner<'_>, risk: &Risk) -> Option<&'static str> {
    planner.wiring().edge_called(&risk.edge).map(|edge| edge.row)
}

/// Prints a plan as a table.
pub(super) fn show(report: &Report, out: &mut dyn Write) -> anyhow::Result<Found> {
    print(report, false, out)?;
    Ok(found(report))
}

fn found(report: &Report) -> Found {
    let severity = |risk: &&Risk| if risk.at <= report.at { Found::Critical } else { Found::Warnings };
    all_risks(report).into_iter().map(|risk| severity(&risk)).max().unwrap_or(Found::Nothing)
}

/// Returns the risks of the plan and of its steps, each once, earliest first.
fn all_risks(report: &Report) -> Vec<&Risk> {
    let mut seen = BTreeSet::new();
    let mut risks: Vec<&Risk> = report.all_risks().filter(|risk| seen.insert((risk.edge.as_str(), risk.at))).collect();
    risks.sort_by_key(|risk| (risk.at, risk.edge.as_str()));
    risks
}

fn print(report: &Report, wide: bool, out: &mut dyn Write) -> io::Result<()> {
    let risks = all_risks(report);
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    writeln!(
        out,
        "At {}: {} due now, {} waiting, {}.",
        span::instant(report.at),
        count(report.steps.len(), "write"),
        report.waiting.len(),
        count(risks.len(), "risk")
    )?;
    if !report.steps.is_empty() {
        section("TO WRITE, in this order; then plan again", out)?;
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
        writeln!(out, "\nNext pass: after these writes.")
    } else if next == Timestamp::MAX {
        writeln!(out, "\nNext pass: after a change in the cluster; nothing is due by time.")
    } else {
        writeln!(
            out,
            "\nNext pass: {} ({}), or after a change in the cluster.",
            span::instant(next),
            span::from_to(report.at, next)
        )
    }
}

fn steps(report: &Report) -> Table {
    let mut table = Table::new(&["#", "DO", "OBJECT", "WHY"]);
    for (number, step) in report.steps.iter().enumerate() {
        table.row([(number + 1).to_string(), step.verb().to_string(), step.object.clone(), why(report, step)]);
    }
    table
}

/// Prints the rollouts of static pods and the steps that cause them.
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
            step.verb().to_string(),
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

/// Returns the reason of a step in a few words. Counts the certificates of a bundle; `-o wide` lists their hashes.
fn why(report: &Report, step: &Step) -> String {
    match &step.action {
        Action::Issue(issue) => cause(&issue.reason),
        Action::Publish(bundles) => {
            let reasons: BTreeSet<String> = bundles.iter().map(|bundle| bundle_cause(&bundle.reason)).collect();
            reasons.into_iter().collect::<Vec<_>>().join("; ")
        }
        Action::CopySecret(items) => copied(report, items),
        Action::CopyBundle(item) => copied(report, std::slice::from_ref(item)),
        Action::Describe(described) if described.is_replaced => "wrong type".to_owned(),
        Action::Describe(_) => "labels and annotations".to_owned(),
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
        BundleReason::Unremembered | BundleReason::DatedAhead => "record the publication time".to_owned(),
        BundleReason::Reached => "record that all readers have it".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the source of a copy: the step that writes the source, or else the object.
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
        _ => step.to_string(),
    }
}

/// Returns the names of static pods.
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

/// Prints what a write waits for, until when, and what would break without the wait.
pub(super) fn print_waiting(now: Timestamp, waiting: &Waiting, out: &mut dyn Write) -> io::Result<()> {
    let (cause, refusal) = match waiting {
        Waiting::Trust { refusal, .. } => ("every verifier to trust it".to_owned(), Some(refusal)),
        Waiting::Rollout { lacking, refusal, .. } => {
            (format!("the restart of static pods that still hold {}", rules::first_few(lacking)), Some(refusal))
        }
        Waiting::SignerTooYoung { .. } => ("every verifier to have its new signer".to_owned(), None),
        other => (other.to_string(), None),
    };
    labelled("waits for", &cause, out)?;
    let until = match waiting.until() {
        Some(until) => format!("{} ({}) at the latest", span::instant(until), span::from_to(now, until)),
        None => "the cause of the wait is gone; time alone does not end it".to_owned(),
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
    fn a_future_risk_is_a_warning_and_a_present_risk_is_critical() {
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
                obstacle: Obstacle::Untrusted { signer: "signer".to_owned(), namesake: None },
            },
        };
        assert_eq!(found(&report(Vec::new())), Found::Nothing);
        assert_eq!(found(&report(vec![risk("2026-01-01T12:00:01Z")])), Found::Warnings);
        assert_eq!(found(&report(vec![risk("2026-01-01T12:00:01Z"), risk("2026-01-01T12:00:00Z")])), Found::Critical);
    }
}
