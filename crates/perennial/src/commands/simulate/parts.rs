//! Restricts the catalog to some components and their dependencies.

use std::collections::BTreeSet;

use anyhow::bail;
use perennial_core::catalog::{
    Bundle, BundleInput, Catalog, Component, Day, Edge, Leaf, Row, Signer, Succession, Trust,
};

/// Parses the name of a component.
pub(super) fn component(name: &str) -> Result<Component, String> {
    let known = || Component::operated().map(Component::owner).collect::<Vec<_>>().join(", ");
    let found = Component::operated().find(|component| component.owner() == name);
    found.ok_or_else(|| format!("{name:?} is not a component of the catalog: expected one of {}", known()))
}

/// Returns the rows of the components with their signers and bundles, and the rows of the installation.
pub(super) fn restrict(catalog: &Catalog, components: &[Component]) -> anyhow::Result<Catalog> {
    let rows = rows(catalog, components);
    let bundles = bundles(catalog, components, &rows);
    let edges: Vec<Edge> = catalog.edges.iter().filter(|edge| is_complete(edge, &rows, &bundles)).copied().collect();
    let is_accepted = |row: &Row| edges.iter().any(|edge| leaf(edge) == row.id);
    let rows: Vec<Row> = rows.into_iter().filter(|row| row.custody.is_some() || is_accepted(row)).collect();
    let has_row = |name: &str| rows.iter().any(|row| row.certificate == name);
    let certificates = catalog.certificates.iter().filter(|it| has_row(it.name)).copied().collect();
    let part = Catalog { certificates, bundles, edges, rows };
    match part.defects().as_slice() {
        [] => Ok(part),
        [defect, ..] => bail!("these components cannot be simulated alone: {defect}"),
    }
}

/// Returns the rows of the components with all their signers, and the rows of the installation.
fn rows(catalog: &Catalog, components: &[Component]) -> Vec<Row> {
    let owned = |row: &&Row| row.day == Day::One || components.contains(&row.component);
    let mut wanted: BTreeSet<&str> = catalog.rows.iter().filter(owned).map(|row| row.id).collect();
    // Signers come before their certificates, so one loop from the end finds all signers.
    for row in catalog.rows.iter().rev().filter(|row| row.day == Day::Two) {
        if let (true, Signer::Row(signer)) = (wanted.contains(row.id), row.signer) {
            wanted.insert(signer);
        }
    }
    let followed = |row: &Row| match row.succession {
        Succession::AdoptedBy(heir) | Succession::ReplacedBy(heir) => wanted.contains(heir),
        Succession::Refresh(_) | Succession::RefreshBefore(_) | Succession::Never => true,
    };
    let kept = catalog.rows.iter().filter(|row| wanted.contains(row.id));
    kept.map(|row| if followed(row) { *row } else { Row { succession: Succession::Never, ..*row } }).collect()
}

/// Returns the bundles that contain the rows, without absent inputs.
fn bundles(catalog: &Catalog, components: &[Component], rows: &[Row]) -> Vec<Bundle> {
    let mut kept: Vec<Bundle> = Vec::new();
    for bundle in &catalog.bundles {
        let is_there = |input: &&BundleInput| match **input {
            BundleInput::History(id) => rows.iter().any(|row| row.id == id),
            BundleInput::Bundle(id) | BundleInput::First(id) => kept.iter().any(|bundle| bundle.id == id),
            BundleInput::Foreign(_) => components.contains(&bundle.component),
        };
        let inputs: Vec<BundleInput> = bundle.inputs.iter().filter(is_there).copied().collect();
        let is_ours = |input: &BundleInput| !matches!(input, BundleInput::Foreign(_));
        if inputs.iter().any(is_ours) {
            // The tables of a catalog are static, so the inputs must be, too.
            kept.push(Bundle { inputs: inputs.leak(), ..*bundle });
        }
    }
    kept
}

/// Returns whether both sides of an edge exist.
fn is_complete(edge: &Edge, rows: &[Row], bundles: &[Bundle]) -> bool {
    let is_presented = rows.iter().any(|row| row.id == leaf(edge));
    let is_trusted = match edge.trust {
        Trust::Bundle(id) => bundles.iter().any(|bundle| bundle.id == id),
        Trust::Row(id) => rows.iter().any(|row| row.id == id),
    };
    is_presented && is_trusted
}

fn leaf(edge: &Edge) -> &'static str {
    let (Leaf::Row(id) | Leaf::AnyBy(id)) = edge.leaf;
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_components_is_a_catalog() {
        for choice in 1_u32..16 {
            let chosen: Vec<Component> = (0..4)
                .filter(|bit| choice & (1 << bit) != 0)
                .filter_map(|bit| Component::operated().nth(bit))
                .collect();
            let part = restrict(Catalog::builtin(), &chosen).unwrap_or_else(|error| panic!("{chosen:?}: {error}"));
            let owned = |row: &&Row| chosen.contains(&row.component);
            let expected = Catalog::builtin().rows.iter().filter(owned).count();
            assert_eq!(part.rows.iter().filter(owned).count(), expected, "{chosen:?}");
        }
    }
}
