//! `perennial verify`: lists every edge, whether it holds, until when, and the evidence.

use std::collections::BTreeSet;
use std::io::{self, Write};

use anyhow::Context;
use jiff::Timestamp;
use perennial_core::catalog::Catalog;
use perennial_core::plan::Planner;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::trust::{CertificateId, Evidence, Obstacle};
use perennial_core::verify::{Checked, State, verify};
use serde::Serialize;

use crate::exit::Found;
use crate::output::{self, Listing};
use crate::snapshot::From;
use crate::span::{self, Span};
use crate::table::{Table, labelled, section};

/// Verify every edge: whether it holds, until when, and how Perennial knows it
///
/// An edge is a requirement: a verifier must accept the certificate of another process. An edge holds if every version of
/// the bundle that the verifier may still hold accepts every version of the certificate that the other process may still
/// present. Without a renewal, an edge breaks when the first certificate on the best path expires.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial verify                                 the cluster of the current kubectl context\n  \
    perennial verify --from snapshot.json\n  \
    perennial verify --from snapshot.json --warn-within 30d\n  \
    perennial verify --from snapshot.json -o wide    also the place of each bundle and certificate\n  \
    perennial verify --from snapshot.json -o json | jq -r '.edges[] | select(.state.broken) | .edge'\n\n\
    LIMIT, the certificate of the path that expires first:\n  \
    itself     the presented certificate\n  \
    signer     one of its signers\n  \
    earlier    a previous certificate that a process may still hold\n\n\
    EVIDENCE, how Perennial knows the version that a process holds (the weakest evidence of the edge):\n  \
    observed   seen in a running revision or a handshake\n  \
    assumed    the process reloads within the time in the catalog\n  \
    unknown    the process reads its files at its start, which was not observed\n  \
    never      the process never reloads\n\n\
    Exit codes:\n  \
    0   every edge holds\n  \
    1   failure, such as no right to read any Secret\n  \
    2   wrong usage\n  \
    3   an edge breaks within --warn-within without a renewal, or an object could not be read: a warning names it\n  \
    4   an edge is broken")]
pub(crate) struct Args {
    #[command(flatten)]
    from: From,

    /// Warn about edges that break within this time without a renewal
    #[arg(long, value_name = "SPAN", default_value = "7d")]
    warn_within: Span,

    /// The output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Listing,
}

/// The list of edges in the JSON and YAML output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Matrix<'a> {
    at: Timestamp,
    warn_before: Timestamp,
    edges: &'a [Checked],
    #[serde(skip)]
    snapshot: &'a Snapshot,
}

/// Prints the edges.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let (snapshot, found) = args.from.read_and_judge(planner.wiring())?;
    let at = snapshot.taken_at;
    let warn_before =
        at.checked_add(args.warn_within.0).context("--warn-within is too long: dates end with the year 9999")?;
    let mut edges = verify(&planner, &snapshot);
    edges.retain(|edge| args.from.asks_about(edge.row));
    let matrix = Matrix { at, warn_before, edges: &edges, snapshot: &snapshot };
    match args.output {
        Listing::Table => print(&matrix, &table(&matrix), out)?,
        Listing::Wide => print(&matrix, &wide(&matrix), out)?,
        Listing::Json => output::json(&matrix, out)?,
        Listing::Yaml => output::yaml(&matrix, out)?,
    }
    Ok(edges.iter().map(|checked| severity(&matrix, checked)).fold(found, Found::max))
}

fn severity(matrix: &Matrix<'_>, checked: &Checked) -> Found {
    match &checked.state {
        State::Broken(_) => Found::Critical,
        State::Holds { until, .. } if *until < matrix.warn_before => Found::Warnings,
        State::Unknown { .. } => Found::Warnings,
        State::Holds { .. } | State::Nothing => Found::Nothing,
    }
}

fn print(matrix: &Matrix<'_>, table: &Table, out: &mut dyn Write) -> io::Result<()> {
    print_summary(matrix, out)?;
    print_broken(matrix, out)?;
    writeln!(out)?;
    table.print(out)
}

fn print_summary(matrix: &Matrix<'_>, out: &mut dyn Write) -> io::Result<()> {
    let count = |wanted: fn(&State) -> bool| matrix.edges.iter().filter(|it| wanted(&it.state)).count();
    let holds = count(|state| matches!(state, State::Holds { .. }));
    let broken = count(|state| matches!(state, State::Broken(_)));
    let nothing = count(|state| *state == State::Nothing);
    write!(out, "At {}: {} edges, {holds} hold, {broken} broken", span::instant(matrix.at), matrix.edges.len())?;
    let unknown: Vec<&Checked> = matrix.edges.iter().filter(|it| matches!(it.state, State::Unknown { .. })).collect();
    if !unknown.is_empty() {
        write!(out, ", {} unknown", unknown.len())?;
    }
    match nothing {
        0 => writeln!(out, ".")?,
        _ => writeln!(out, ", {nothing} without a bundle or certificate.")?,
    }
    let reasons = unknown.iter().filter_map(|it| match &it.state {
        State::Unknown { object, why } => Some(format!("{object} could not be read: {why}")),
        _ => None,
    });
    for text in reasons.collect::<BTreeSet<_>>() {
        writeln!(out, "{text}")?;
    }
    let until = |checked: &Checked| match checked.state {
        State::Holds { until, .. } => Some(until),
        _ => None,
    };
    if let Some((first, edge)) = matrix.edges.iter().filter_map(|it| Some((until(it)?, &it.edge))).min() {
        writeln!(out, "First edge to break without a renewal: {edge}, {}.", span::from_to(matrix.at, first))?;
    }
    let is_soon = |it: &&Checked| until(it).is_some() && severity(matrix, it) == Found::Warnings;
    let soon = matrix.edges.iter().filter(is_soon).count();
    if soon > 0 {
        let within = span::text(matrix.at.duration_until(matrix.warn_before));
        writeln!(out, "Edges that break within {within} without a renewal: {soon}, marked with *.")?;
    }
    Ok(())
}

fn print_broken(matrix: &Matrix<'_>, out: &mut dyn Write) -> io::Result<()> {
    let broken: Vec<_> = matrix
        .edges
        .iter()
        .filter_map(|checked| match &checked.state {
            State::Broken(broken) => Some((checked, broken)),
            _ => None,
        })
        .collect();
    if broken.is_empty() {
        return Ok(());
    }
    section("BROKEN", out)?;
    for (checked, broken) in broken {
        writeln!(out, "{} rejects {} of {}", checked.verifier, leaf_text(checked), checked.presenter)?;
        labelled("trusts", &broken.bundle, out)?;
        labelled("is presented", &broken.leaf, out)?;
        labelled("because", &broken.obstacle.to_string(), out)?;
        if let Some(since) = since(&broken.obstacle, matrix.at) {
            labelled("since", &format!("{} ({})", span::instant(since), span::from_to(matrix.at, since)), out)?;
        }
    }
    Ok(())
}

/// Returns since when an expired certificate is rejected. No object records since when a signer is not trusted.
fn since(obstacle: &Obstacle, now: Timestamp) -> Option<Timestamp> {
    match obstacle {
        Obstacle::NotValid { not_after, .. } | Obstacle::SignerNotValid { not_after, .. } => {
            Some(*not_after).filter(|end| *end < now)
        }
        Obstacle::Purpose { .. } | Obstacle::Host { .. } | Obstacle::Untrusted { .. } => None,
    }
}

/// Returns the edges, grouped by verifier and bundle.
fn table(matrix: &Matrix<'_>) -> Table {
    let mut groups: Vec<(&str, &Slot, Vec<&Checked>)> = Vec::new();
    for checked in matrix.edges {
        match groups.iter_mut().find(|(verifier, trust, _)| (*verifier, *trust) == (checked.verifier, &checked.trust)) {
            Some((_, _, edges)) => edges.push(checked),
            None => groups.push((checked.verifier, &checked.trust, vec![checked])),
        }
    }
    let mut table = Table::new(&["  ACCEPTS", "OF", "UNTIL", "LEFT", "LIMIT", "EVIDENCE"]);
    for (verifier, trust, edges) in groups {
        table.heading(format!("{verifier}, with {}", place(trust)));
        for checked in edges {
            table.row([
                format!("  {}, {}", leaf_text(checked), checked.purpose),
                checked.presenter.to_owned(),
                short_until(&checked.state),
                left(matrix, checked),
                limit(checked, matrix.snapshot, false),
                evidence(checked).to_owned(),
            ]);
        }
    }
    table
}

fn wide(matrix: &Matrix<'_>) -> Table {
    let mut table = Table::new(&[
        "VERIFIER", "WITH", "ACCEPTS", "OF", "FROM", "AS", "UNTIL", "LEFT", "LIMIT", "EVIDENCE", "VERSIONS",
    ]);
    for checked in matrix.edges {
        let until = match checked.state {
            State::Holds { until, .. } => span::instant(until),
            _ => short_until(&checked.state),
        };
        table.row([
            checked.verifier.to_owned(),
            checked.trust.to_string(),
            leaf_text(checked),
            checked.presenter.to_owned(),
            checked.presented.to_string(),
            checked.purpose.to_string(),
            until,
            left(matrix, checked),
            limit(checked, matrix.snapshot, true),
            evidence(checked).to_owned(),
            format!("{} x {}", checked.versions.0, checked.versions.1),
        ]);
    }
    table
}

/// Returns the name of the presented certificate: its row, and for one of many certificates of the row also its object.
pub(super) fn leaf_text(checked: &Checked) -> String {
    // The name ends with the purpose if two edges differ only in it; another column has the purpose.
    let edge = checked.edge.trim_end_matches(&format!(" as a {}", checked.purpose));
    let of = format!(" of {}", checked.presenter);
    let accepted = edge.strip_prefix(checked.verifier).and_then(|rest| rest.strip_prefix(" accepts "));
    match accepted.and_then(|rest| rest.split_once(&of)) {
        Some((leaf, "")) => leaf.to_owned(),
        Some((leaf, instance)) => format!("{leaf} {}", instance.trim().trim_matches(['(', ')'])),
        None => checked.row.to_owned(),
    }
}

fn place(slot: &Slot) -> String {
    if slot.is_file() { format!("the installation's {}", slot.key()) } else { slot.object_text().to_owned() }
}

fn short_until(state: &State) -> String {
    match state {
        State::Holds { until, .. } => span::day(*until),
        State::Broken(_) => "BROKEN".to_owned(),
        State::Nothing => "nothing yet".to_owned(),
        State::Unknown { .. } => "unknown".to_owned(),
    }
}

fn left(matrix: &Matrix<'_>, checked: &Checked) -> String {
    let State::Holds { until, .. } = checked.state else { return String::new() };
    let mark = if severity(matrix, checked) == Found::Warnings { "*" } else { "" };
    format!("{}{mark}", span::text(matrix.at.duration_until(until)))
}

/// Returns which certificate of the path expires first.
pub(super) fn limit(checked: &Checked, snapshot: &Snapshot, with_name: bool) -> String {
    let State::Holds { limited_by: Some(id), .. } = &checked.state else { return String::new() };
    let presented = snapshot.secrets.get(&checked.presented).and_then(|found| found.present());
    let is_signer = snapshot.certificates.get(id).is_some_and(|it| it.ca.is_some());
    let is_earlier = presented.is_some_and(|it| it.superseded.iter().any(|past| past.certificate == *id));
    let what = match presented {
        _ if is_earlier => "earlier",
        _ if is_signer => "signer",
        Some(presented) if presented.certificate.id == *id => "itself",
        Some(_) | None => "another",
    };
    if with_name { format!("{what}: {}", name_of(snapshot, id)) } else { what.to_owned() }
}

/// Returns the place of a certificate, or else its subject.
fn name_of(snapshot: &Snapshot, id: &CertificateId) -> String {
    let is_it = |slot: &&Slot| {
        snapshot.secrets.get(*slot).and_then(|found| found.present()).is_some_and(|it| it.certificate.id == *id)
    };
    let subject = || snapshot.certificates.get(id).map_or(id.to_string(), |it| it.subject.name.to_string());
    snapshot.secrets.keys().find(is_it).map_or_else(subject, ToString::to_string)
}

fn evidence(checked: &Checked) -> &'static str {
    match checked.evidence {
        Evidence::Observed => "observed",
        Evidence::Assumed => "assumed",
        Evidence::Unknown => "unknown",
        Evidence::Never => "never",
    }
}
