//! `perennial rotate --noncompliant`: the certificates whose key does not follow the policy.

use std::io::Write;

use anyhow::bail;
use perennial_core::catalog::Catalog;
use perennial_core::inventory::{Entry, inventory};
use perennial_core::plan::{Planner, Scope};
use perennial_core::snapshot::Observed;
use perennial_operator::library::Library;
use perennial_operator::observe::Observation;

use super::Chosen;
use crate::table::Table;

/// Returns and prints the certificates whose key does not follow the policy.
pub(super) fn chosen(
    planner: &Planner<'static>,
    observation: &Observation,
    out: &mut dyn Write,
) -> anyhow::Result<Vec<Chosen>> {
    if let Observed::Unreadable { why } | Observed::Unknown { why } = observation.snapshot.key_policy() {
        bail!("cannot compare keys with the policy: the PKI resource is unreadable: {why}");
    }
    let report = planner.plan(&observation.snapshot, &Scope::All);
    let entries = inventory(planner, &observation.snapshot, &report);
    let (snapshot, catalog) = (&observation.snapshot, planner.wiring().catalog);
    let kept = entries.iter().filter(|entry| !snapshot.leaves(catalog, entry.row.component, entry.row.id));
    let mut table = Table::new(&["NAME", "KEY", "WANTED", "POLICY", "SECRET"]);
    let chosen: Vec<Chosen> = kept.filter_map(|entry| noncompliant(entry, &observation.library, &mut table)).collect();
    if !chosen.is_empty() {
        table.print(out)?;
        writeln!(out)?;
    }
    Ok(chosen)
}

fn noncompliant(entry: &Entry<'_>, library: &Library, table: &mut Table) -> Option<Chosen> {
    let certificate = library.get(&entry.found.present()?.certificate.id)?;
    let has = certificate.facts().public_key.kind().spec();
    let wanted = entry.wanted?;
    if has == Some(wanted.key) {
        return None;
    }
    table.row([
        entry.row.id.to_owned(),
        has.map_or_else(|| "another kind".to_owned(), |key| key.to_string()),
        wanted.key.to_string(),
        wanted.source.to_string(),
        entry.slot.object_text().to_owned(),
    ]);
    let row = Catalog::builtin().row(entry.row.id).expect("every entry has a row of the catalog");
    Some(Chosen { slot: entry.slot.clone(), row, wanted: Some(wanted.key) })
}
