//! Which edges a write touches, and the state of each.

use std::sync::Arc;

use super::draft::Draft;
use crate::catalog::index::{EdgeWiring, Presents, Wiring, instances};
use crate::catalog::{Instance, Row};
use crate::snapshot::Slot;
use crate::spec::Host;
use crate::trust::EdgeState;

/// An edge with the certificate of one instance.
#[derive(Debug, Clone)]
pub(crate) struct Touched {
    pub(crate) edge: usize,
    pub(crate) instance: Instance,
    pub(crate) hosts: Arc<[Host]>,
    /// True if the administrator accepts that the edge breaks.
    pub(crate) is_consented: bool,
}

/// Returns the edges on which a certificate of a row is presented from these slots.
pub(crate) fn edges_of_leaf(
    wiring: &Wiring<'_>,
    draft: &Draft<'_>,
    row: &Row,
    instance: &Instance,
    presented: &[Presents],
) -> Vec<Touched> {
    let Some(wired) = wiring.row(row.id) else { return Vec::new() };
    let edges = wired.edges.iter().copied().filter(|edge| presented.contains(&wiring.edges()[*edge].presents));
    touch(wiring, draft, edges, row, instance)
}

/// Returns every edge with every certificate of its row, in the order of the catalog.
pub(crate) fn every_edge(wiring: &Wiring<'_>, draft: &Draft<'_>) -> Vec<Touched> {
    let mut touched = Vec::new();
    for (number, edge) in wiring.edges().iter().enumerate() {
        let Some(row) = wiring.row(edge.row).map(|wired| wired.row) else { continue };
        for instance in instances(row, draft.snapshot()) {
            touched.extend(touch(wiring, draft, [number], row, &instance));
        }
    }
    touched
}

fn touch(
    wiring: &Wiring<'_>,
    draft: &Draft<'_>,
    edges: impl IntoIterator<Item = usize>,
    row: &Row,
    instance: &Instance,
) -> Vec<Touched> {
    let hosts: Arc<[Host]> =
        row.resolve_hosts(&draft.snapshot().cluster, instance).map(Arc::from).unwrap_or_else(|_| Arc::from([]));
    let consent = &draft.snapshot().settings.consent;
    // Consent may name all instances of an edge, or one.
    let is_consented = |edge: &EdgeWiring<'_>| {
        consent.contains(edge.name.as_ref()) || consent.contains(edge.name_of(instance).as_ref())
    };
    let touched = |edge| Touched {
        edge,
        instance: instance.clone(),
        hosts: hosts.clone(),
        is_consented: !consent.is_empty() && is_consented(&wiring.edges()[edge]),
    };
    edges.into_iter().map(touched).collect()
}

/// Returns the edges whose verifier reads a bundle in this place.
pub(crate) fn edges_of_bundle(wiring: &Wiring<'_>, draft: &Draft<'_>, slot: &Slot) -> Vec<Touched> {
    let mut touched = Vec::new();
    for edge in wiring.readers(slot) {
        let edge = &wiring.edges()[*edge];
        let Some(row) = wiring.row(edge.row).map(|wired| wired.row) else { continue };
        for instance in instances(row, draft.snapshot()) {
            let of_row = edges_of_leaf(wiring, draft, row, &instance, &[edge.presents]);
            touched.extend(of_row.into_iter().filter(|touched| wiring.edges()[touched.edge].trust == *slot));
        }
    }
    touched
}

pub(crate) fn states(wiring: &Wiring<'_>, draft: &Draft<'_>, touched: &[Touched]) -> Vec<EdgeState> {
    let state = |touched: &Touched| {
        let edge = &wiring.edges()[touched.edge];
        let row = wiring.row(edge.row)?.row;
        Some(draft.edge_state(edge, row, &touched.instance, &touched.hosts))
    };
    touched.iter().filter_map(state).collect()
}
