//! The displayed part of the catalog, and the keys that a policy chooses.

use perennial_core::catalog::{Bundle, Catalog, Certificate, Edge, Leaf, Row};
use perennial_core::policy::{Policy, PolicySource, Resolved};
use perennial_core::warning::{KeyWarning, policy_warnings};
use serde::Serialize;

use crate::item::CertificateItem;

/// The displayed part of the catalog.
#[derive(Debug)]
pub(super) struct View {
    pub(super) certificates: Vec<&'static Certificate>,
    pub(super) rows: Vec<&'static Row>,
    pub(super) bundles: Vec<&'static Bundle>,
    pub(super) edges: Vec<&'static Edge>,
}

impl View {
    /// Returns the whole catalog.
    pub(super) fn whole() -> View {
        let catalog = catalog();
        View {
            certificates: catalog.certificates.iter().collect(),
            rows: catalog.rows.iter().collect(),
            bundles: catalog.bundles.iter().collect(),
            edges: catalog.edges.iter().collect(),
        }
    }

    /// Returns a certificate, the bundles that contain its signer, and the edges that depend on it.
    pub(super) fn about(certificate: &'static Certificate) -> View {
        let catalog = catalog();
        let rows: Vec<&'static Row> = catalog.rows_of(certificate).collect();
        let signers: Vec<&str> = rows.iter().map(|row| catalog.signer_of(row).unwrap_or(row).id).collect();
        let depends = |edge: &&Edge| {
            let (Leaf::Row(id) | Leaf::AnyBy(id)) = edge.leaf;
            let leaf = catalog.row(id);
            let by = leaf.map(|leaf| catalog.signer_of(leaf).unwrap_or(leaf).certificate);
            leaf.is_some_and(|leaf| leaf.certificate == certificate.name) || by == Some(certificate.name)
        };
        View {
            certificates: vec![certificate],
            bundles: catalog
                .bundles
                .iter()
                .filter(|bundle| catalog.signers_in(bundle).iter().any(|signer| signers.contains(signer)))
                .collect(),
            edges: catalog.edges.iter().filter(depends).collect(),
            rows,
        }
    }
}

/// A certificate with its rows in the JSON and YAML output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CatalogItem {
    #[serde(flatten)]
    certificate: &'static Certificate,
    algorithm: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    curve: Option<&'static str>,
    signer: &'static str,
    policy_source: PolicySource,
    rows: Vec<&'static Row>,
}

#[derive(Debug, Serialize)]
pub(super) struct CatalogItems {
    items: Vec<CatalogItem>,
    bundles: Vec<&'static Bundle>,
    edges: Vec<&'static Edge>,
}

/// Returns the built-in catalog.
pub(super) fn catalog() -> &'static Catalog {
    Catalog::builtin()
}

/// Returns the key of a row, and the level that chooses it.
pub(super) fn resolve(policy: &Policy, row: &Row) -> Resolved {
    catalog().key_of(policy, row)
}

/// Returns the row that follows the policy: the Day-2 row, or else the only row.
pub(super) fn governed(certificate: &Certificate) -> &'static Row {
    let rows = catalog().rows_of(certificate);
    rows.max_by_key(|row| row.day).expect("a catalog without defects has a row for every certificate")
}

/// Returns warnings about doubtful keys.
pub(super) fn warnings(view: &View, policy: &Policy) -> Vec<KeyWarning> {
    let warnings = |certificate: &Certificate| policy_warnings(catalog(), policy, governed(certificate));
    view.certificates.iter().copied().flat_map(warnings).collect()
}

/// Returns the data of the JSON and YAML output.
pub(super) fn items(view: &View, policy: &Policy) -> CatalogItems {
    let item = |certificate: &'static Certificate| {
        let resolved = resolve(policy, governed(certificate));
        let (algorithm, key_size, curve) = CertificateItem::key(resolved.key);
        CatalogItem {
            certificate,
            algorithm,
            key_size,
            curve,
            policy_source: resolved.source,
            signer: catalog().signer_of(governed(certificate)).map_or(certificate.name, |signer| signer.certificate),
            rows: catalog().rows_of(certificate).collect(),
        }
    };
    CatalogItems {
        items: view.certificates.iter().copied().map(item).collect(),
        bundles: view.bundles.clone(),
        edges: view.edges.clone(),
    }
}
