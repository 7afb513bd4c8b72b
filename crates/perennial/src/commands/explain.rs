//! `perennial explain NAME`: shows one certificate: its key, validity, next rotation, wait and verifiers.

mod injected;

use std::io::{self, Write};

use jiff::Timestamp;
use perennial_core::catalog::index::{copy_slot, identity};
use perennial_core::catalog::{Catalog, Custody, Instance, Row, Succession};
use perennial_core::inventory::next_rotation;
use perennial_core::plan::{Pending, Planner, Report, Scope};
use perennial_core::policy::{Policy, PolicySource, Usage};
use perennial_core::rules::Timing;
use perennial_core::snapshot::{Observed, SecretState, Slot, Snapshot};
use perennial_core::trust::{CertificateFacts, Principal};
use perennial_core::verify::{Checked, State, verify};

use crate::commands::names::{Subject, find};
use crate::commands::{plan, verify as matrix};
use crate::snapshot::From;
use crate::span;
use crate::table::{Table, labelled, section};

/// Explain one certificate: its key, its next rotation and the reason, what it waits for, and which processes verify it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial explain csr-signer --from snapshot.json        a row of the catalog\n  \
    perennial explain etcd-server --from snapshot.json       a certificate name of the PKI resource\n  \
    perennial explain shop/web-0-tls --from snapshot.json    an object: a Secret or a ConfigMap\n  \
    perennial explain shop/ca-bundle                         a ConfigMap with the CA bundle of Services (not with --from)\n\n\
    `perennial certs --catalog` lists the names.\n\n\
    Exit codes:\n  \
    0   success\n  \
    1   failure, or unknown name\n  \
    2   wrong usage")]
pub(crate) struct Args {
    /// A certificate, a row or a bundle by its name in the catalog, or a Secret or ConfigMap as namespace/name
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    from: From,
}

/// How many certificates of one row are explained.
const AT_MOST: usize = 5;

/// How many edges of one certificate or bundle are listed.
const EDGES_AT_MOST: usize = 20;

/// The snapshot and everything derived from it.
struct Known<'a> {
    planner: Planner<'a>,
    snapshot: Snapshot,
    report: Report,
    edges: Vec<Checked>,
}

/// Prints the explanation.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<()> {
    let planner = Planner::new(Catalog::builtin());
    let snapshot = args.from.read(planner.wiring())?;
    let subjects = match find(&args.name, planner.wiring(), &snapshot) {
        Ok(subjects) => subjects,
        Err(unknown) => return injected::explain(args, &planner, &snapshot, unknown, out),
    };
    let report = planner.plan(&snapshot, &Scope::All);
    let edges = verify(&planner, &snapshot);
    let known = Known { planner, snapshot, report, edges };
    for (number, subject) in subjects.iter().take(AT_MOST).enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        match subject {
            Subject::Certificate(row, instance) => explain_certificate(&known, row, instance, out)?,
            Subject::Bundle(id, slot) => explain_bundle(&known, id, slot, out)?,
        }
    }
    if subjects.len() > AT_MOST {
        let more = subjects.len() - AT_MOST;
        writeln!(
            out,
            "\n{more} more certificates of this row: pass a Secret as namespace/name to explain one of them."
        )?;
    }
    Ok(())
}

fn explain_certificate(known: &Known<'_>, row: &Row, instance: &Instance, out: &mut dyn Write) -> io::Result<()> {
    let slot = known.planner.wiring().home(row, instance);
    let logical = known.planner.wiring().catalog.logical(row);
    writeln!(out, "{} ({})", place(&slot), row.id)?;
    labelled("is", &format!("{}: {}, {} of {}", row.certificate, logical.purpose, row.usage, row.day), out)?;
    labelled("key", &key(known, row), out)?;
    let found = known.snapshot.secrets.get(&slot).unwrap_or(&Observed::Absent);
    match found {
        Observed::Absent if is_of_installation(row) => labelled("now", &succession(row), out)?,
        Observed::Absent => labelled("now", "absent", out)?,
        Observed::Unreadable { why } => labelled("now", &format!("unreadable: {why}"), out)?,
        Observed::Unknown { why } => labelled("now", &format!("unknown: {why}"), out)?,
        Observed::Present(state) => print_state(known, row, state, out)?,
    }
    print_copies(known, row, instance, found, out)?;
    if let Observed::Present(state) = found {
        print_times(known, row, instance, state, out)?;
    }
    print_next(known, row, instance, &slot, out)?;
    let slots: Vec<Slot> =
        [slot].into_iter().chain(row.copies.iter().map(|copy| copy_slot(row, copy, instance))).collect();
    let is_presented = |edge: &Checked| edge.row == row.id && slots.contains(&edge.presented);
    // Processes verify the certificates of a signer, not the signer itself.
    let is_signed = |edge: &Checked| row.usage == Usage::Signer && is_signed_by(known, edge.row, row);
    print_edges(known, "VERIFIED BY", |edge| is_presented(edge) || is_signed(edge), out)
}

/// Returns whether a signer is on the path of a row's certificates.
fn is_signed_by(known: &Known<'_>, row: &str, signer: &Row) -> bool {
    let catalog = known.planner.wiring().catalog;
    let signers = std::iter::successors(catalog.row(row), |row| catalog.signer_of(row));
    signers.skip(1).any(|it| it.id == signer.id)
}

fn place(slot: &Slot) -> String {
    if slot.is_file() { format!("file of the installation: {}", slot.key()) } else { slot.object_text().to_owned() }
}

fn key(known: &Known<'_>, row: &Row) -> String {
    let (policy, note) = match known.snapshot.key_policy() {
        Observed::Present(policy) => (policy.clone(), String::new()),
        Observed::Absent => (Policy::default(), "; there is no PKI resource".to_owned()),
        Observed::Unreadable { why } | Observed::Unknown { why } => {
            (Policy::default(), format!("; the PKI resource is unreadable: {why}"))
        }
    };
    let catalog = known.planner.wiring().catalog;
    let resolved = catalog.key_of(&policy, row);
    let level = match resolved.source {
        PolicySource::Override => format!("spec.overrides has {}", row.certificate),
        PolicySource::Category => format!("spec.categories has {}", catalog.logical(row).category),
        PolicySource::Defaults => "from spec.defaults".to_owned(),
        PolicySource::Platform => "the platform's default".to_owned(),
    };
    match row.succession {
        Succession::Refresh(_) | Succession::RefreshBefore(_) => {
            format!("{} at its next rotation: {level}{note}", resolved.key)
        }
        _ => "the key of the installation: this certificate does not rotate".to_owned(),
    }
}

/// Describes how a row is replaced.
fn succession(row: &Row) -> String {
    match row.succession {
        Succession::AdoptedBy(heir) => format!("from the installation, taken over by {heir}"),
        Succession::ReplacedBy(heir) => format!("from the installation, replaced by {heir}"),
        Succession::Never => "from the installation, used only there".to_owned(),
        Succession::Refresh(after) => format!("rotates {after} after its issue"),
        Succession::RefreshBefore(left) => format!("rotates {left} before its expiry"),
    }
}

/// Returns whether the running cluster never re-issues the row.
fn is_of_installation(row: &Row) -> bool {
    !matches!(row.succession, Succession::Refresh(_) | Succession::RefreshBefore(_))
}

fn print_state(known: &Known<'_>, row: &Row, state: &SecretState, out: &mut dyn Write) -> io::Result<()> {
    let now = known.snapshot.taken_at;
    let CertificateFacts { id, validity, signed_by, subject, .. } = state.certificate.as_ref();
    labelled("now", &id.to_string(), out)?;
    labelled(
        "valid",
        &format!(
            "{} to {} (expires {})",
            validity.not_before,
            validity.not_after,
            span::from_to(now, validity.not_after)
        ),
        out,
    )?;
    let signer = match (signed_by, known.planner.wiring().catalog.signer_of(row)) {
        (None, _) => "an unknown signer".to_owned(),
        (Some(signer), _) if signer == subject => "itself".to_owned(),
        (Some(signer), Some(expected)) => signer_text(known, signer, expected),
        (Some(signer), None) => format!("{}, but must be self-signed", signer.name),
    };
    labelled("signed by", &signer, out)?;
    if let Some(custody) = row.custody.filter(|custody| *custody != Custody::Cluster) {
        labelled("its key", &format!("{custody}: Perennial cannot rotate it"), out)?;
    }
    for past in &state.superseded {
        labelled("previous", &format!("{} until {}; a process may still hold it", past.certificate, past.at), out)?;
    }
    Ok(())
}

fn signer_text(known: &Known<'_>, signer: &Principal, expected: &Row) -> String {
    let slot = known.planner.wiring().home(expected, &Instance::Cluster);
    let current = known.snapshot.secrets.get(&slot).and_then(|found| found.present());
    match current {
        _ if slot.is_file() => signer.name.to_string(),
        Some(current) if current.certificate.subject == *signer => format!("{}, the current one", expected.id),
        Some(current) if current.certificate.subject.name == signer.name => {
            format!(
                "an earlier {}: {signer}; the current one has key {}",
                expected.id,
                current.certificate.subject.key.short()
            )
        }
        Some(_) => format!("an earlier {}: {}", expected.id, signer.name),
        None => format!("{}, which {slot} does not contain", signer.name),
    }
}

fn print_copies(
    known: &Known<'_>,
    row: &Row,
    instance: &Instance,
    found: &Observed<SecretState>,
    out: &mut dyn Write,
) -> io::Result<()> {
    for copy in row.copies {
        let slot = copy_slot(row, copy, instance);
        let state = match (known.snapshot.secrets.get(&slot), found.present()) {
            (Some(Observed::Present(copied)), Some(state)) if copied.certificate.id == state.certificate.id => {
                "the same".to_owned()
            }
            (Some(Observed::Present(copied)), _) => format!("another: {}", copied.certificate.id),
            (Some(Observed::Unreadable { why }), _) => format!("unreadable: {why}"),
            (Some(Observed::Unknown { why }), _) => format!("unknown: {why}"),
            (Some(Observed::Absent) | None, _) => "absent".to_owned(),
        };
        labelled("copied to", &format!("{slot}: {state} ({})", copy.delivery), out)?;
    }
    Ok(())
}

fn print_times(
    known: &Known<'_>,
    row: &Row,
    instance: &Instance,
    state: &SecretState,
    out: &mut dyn Write,
) -> io::Result<()> {
    let now = known.snapshot.taken_at;
    let timing = timing(known, row, instance, state);
    let at = |at: Timestamp| format!("{} ({})", span::instant(at), span::from_to(now, at));
    if timing.refresh_at == Timestamp::MAX {
        return labelled("refresh", &succession(row), out);
    }
    labelled("refresh", &at(timing.refresh_at), out)?;
    labelled("80% validity", &at(timing.eighty_percent_at), out)?;
    labelled("expiry", &at(timing.not_after), out)
}

fn timing(known: &Known<'_>, row: &Row, instance: &Instance, state: &SecretState) -> Timing {
    let snapshot = &known.snapshot;
    let row = &snapshot.with_validity_override(row);
    Timing::of(row, &identity(row, instance), state, snapshot.time_scale(), snapshot.taken_at)
}

/// Prints the wait and the next rotation, with the same date as `perennial certs`.
fn print_next(known: &Known<'_>, row: &Row, instance: &Instance, slot: &Slot, out: &mut dyn Write) -> io::Result<()> {
    let now = known.snapshot.taken_at;
    let waiting: Vec<&Pending> = known.report.waiting.iter().filter(|it| it.slot.is_beside(slot)).collect();
    for pending in &waiting {
        if let Some(reason) = &pending.reason {
            labelled("is due", &reason.to_string(), out)?;
        }
        plan::print_waiting(now, &pending.waiting, out)?;
    }
    if is_of_installation(row) {
        return Ok(());
    }
    let Some(next) = next_rotation(&known.snapshot, &known.report, (row, instance), slot) else {
        let text = if waiting.is_empty() { "none planned" } else { "after the wait" };
        return labelled("next rotation", text, out);
    };
    let at = if next.at <= now {
        "now".to_owned()
    } else {
        format!("{} ({})", span::instant(next.at), span::from_to(now, next.at))
    };
    let mut text = format!("{at}: {}", next.reason);
    let restarts = known.planner.wiring().row(row.id).map(|wired| &wired.restarts).filter(|it| !it.is_empty());
    if let Some(restarts) = restarts {
        let restarts = restarts.iter().map(|it| (*it).to_owned()).collect();
        text.push_str(&format!("; rolls out {}", plan::restarts(&restarts)));
    }
    labelled("next rotation", &text, out)
}

fn explain_bundle(known: &Known<'_>, id: &str, slot: &Slot, out: &mut dyn Write) -> io::Result<()> {
    let now = known.snapshot.taken_at;
    writeln!(out, "{} ({id})", place(slot))?;
    let Some(wired) = known.planner.wiring().bundle(id) else { return Ok(()) };
    let inputs: Vec<String> = wired.bundle.inputs.iter().map(ToString::to_string).collect();
    labelled("is", &format!("a bundle of {}, {}", inputs.join(", "), wired.bundle.day), out)?;
    match known.snapshot.bundles.get(slot) {
        None | Some(Observed::Absent) => labelled("now", "absent", out)?,
        Some(Observed::Unreadable { why }) => labelled("now", &format!("unreadable: {why}"), out)?,
        Some(Observed::Unknown { why }) => labelled("now", &format!("unknown: {why}"), out)?,
        Some(Observed::Present(state)) => {
            for member in &state.members {
                let facts = known.snapshot.certificates.get(member);
                let subject = facts.map(|it| format!("{}, ", it.subject)).filter(|_| member.is_fingerprint());
                let end = facts.map(|it| it.validity.not_after);
                let end = end.map(|end| format!(", expires {end} ({})", span::from_to(now, end))).unwrap_or_default();
                let since = state
                    .published
                    .get(member)
                    .map(|it| format!(", in the bundle since {}", it.at))
                    .unwrap_or_default();
                labelled("trusts", &format!("{}{member}{since}{end}", subject.unwrap_or_default()), out)?;
            }
            for damage in &state.damage {
                labelled("damaged", damage, out)?;
            }
        }
    }
    for (copy, delivery) in wired.copies.iter().filter(|(copy, _)| copy != slot) {
        labelled("copied to", &format!("{copy} ({delivery})"), out)?;
    }
    if let Some(pending) = known.report.waiting.iter().find(|pending| pending.slot == *slot) {
        plan::print_waiting(now, &pending.waiting, out)?;
    }
    // If no process reads the bundle itself, list the readers of its copies.
    let is_read = known.edges.iter().any(|edge| edge.trust == *slot);
    let is_copy = |edge: &Checked| *slot == wired.home && wired.copies.iter().any(|(copy, _)| *copy == edge.trust);
    print_edges(known, "READ BY", |edge| edge.trust == *slot || !is_read && is_copy(edge), out)
}

fn print_edges(
    known: &Known<'_>,
    title: &str,
    wanted: impl Fn(&Checked) -> bool,
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut table = Table::new(&["VERIFIER", "ACCEPTS", "OF", "UNTIL", "LEFT", "LIMIT"]);
    let mut edges: Vec<&Checked> = known.edges.iter().filter(|edge| wanted(edge)).collect();
    let more = edges.len().saturating_sub(EDGES_AT_MOST);
    if more > 0 {
        // There may be very many Services: list the edges that break first.
        edges.sort_by_key(|edge| match &edge.state {
            State::Broken(_) => (0, None),
            State::Unknown { .. } => (1, None),
            State::Holds { until, .. } => (2, Some(*until)),
            State::Nothing => (3, None),
        });
        edges.truncate(EDGES_AT_MOST);
    }
    for edge in &edges {
        let (until, left) = match &edge.state {
            State::Holds { until, .. } => {
                (span::day(*until), span::text(known.snapshot.taken_at.duration_until(*until)))
            }
            State::Broken(_) => ("BROKEN".to_owned(), String::new()),
            State::Nothing => ("nothing yet".to_owned(), String::new()),
            State::Unknown { .. } => ("unknown".to_owned(), String::new()),
        };
        table.row([
            edge.verifier.to_owned(),
            matrix::leaf_text(edge),
            edge.presenter.to_owned(),
            until,
            left,
            matrix::limit(edge, &known.snapshot, false),
        ]);
    }
    if table.is_empty() {
        return Ok(());
    }
    section(title, out)?;
    table.print(out)?;
    if more > 0 {
        writeln!(out, "{more} more edges, which hold longer: `perennial verify` lists all of them.")?;
    }
    let broken = edges.iter().filter_map(|edge| match &edge.state {
        State::Broken(broken) => Some(broken),
        _ => None,
    });
    broken.into_iter().try_for_each(|broken| labelled("broken", &broken.to_string(), out))
}
