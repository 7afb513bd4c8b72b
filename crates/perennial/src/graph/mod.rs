//! The catalog as a graph: from certificates, through signers and bundles, to verifiers.

mod dot;
mod svg;

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::catalog::{BundleInput, Catalog, Day, Delivery, Leaf, Party, Row, Succession, Trust};
use perennial_core::policy::Usage;

pub(crate) use dot::dot;
pub(crate) use svg::svg;

/// Nodes in layers, and links. Every link points to a later layer or stays within its layer.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<String, Node>,
    links: BTreeSet<Link>,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    /// The name and the place.
    lines: [String; 2],
    layer: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Leaf,
    Signer,
    Bundle,
    Verifier,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Link {
    from: String,
    to: String,
    /// How a change is delivered; none if no process has to load it.
    delivery: Option<Speed>,
}

/// The kinds of delivery in the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Speed {
    Reloaded,
    Revisioned,
    Never,
}

const LEAVES: usize = 0;
const SIGNERS: usize = 1;
/// The first layer of bundles. Deeper bundles have later layers, and verifiers have the last layer.
const BUNDLES: usize = 2;

impl Graph {
    /// Returns the graph of Day-1 or Day-2.
    pub(crate) fn of(catalog: &Catalog, day: Day) -> Graph {
        let mut graph = Graph::default();
        let last = BUNDLES + 1 + catalog.bundles.iter().map(|bundle| depth(catalog, bundle.id)).max().unwrap_or(0);
        for edge in &catalog.edges {
            let (Leaf::Row(id) | Leaf::AnyBy(id)) = edge.leaf;
            let Some(row) = catalog.row(id) else { continue };
            if edge_day(catalog, row, &edge.trust) != day {
                continue;
            }
            let verifier = format!("verifier {} {}", edge.verifier.name, edge.verifier.place);
            graph.node(
                &verifier,
                Kind::Verifier,
                last,
                [edge.verifier.name.to_owned(), edge.verifier.place.to_string()],
            );
            let trusted = match edge.trust {
                Trust::Bundle(id) => graph.bundle(catalog, id),
                Trust::Row(id) => catalog.row(id).map(|row| graph.row(catalog, row)).unwrap_or_default(),
            };
            graph.link(&trusted, &verifier, speed(edge.verifier.delivery));
            graph.leaf(catalog, row, &edge.leaf, &edge.presenter);
        }
        graph
    }

    fn leaf(&mut self, catalog: &Catalog, row: &Row, leaf: &Leaf, presenter: &Party) {
        let key = format!("leaf {leaf} {}", presenter.name);
        self.node(&key, Kind::Leaf, LEAVES, [presenter.name.to_owned(), leaf.to_string()]);
        let signer = match leaf {
            Leaf::AnyBy(_) => row,
            Leaf::Row(_) => catalog.signer_of(row).unwrap_or(row),
        };
        let signer = self.row(catalog, signer);
        self.link(&key, &signer, speed(presenter.delivery));
    }

    /// Adds a signer and its own signer, or a leaf that is trusted itself. A Day-1 row that Day-2 takes over is shown as the Day-2 row.
    fn row(&mut self, catalog: &Catalog, row: &Row) -> String {
        if let Succession::AdoptedBy(heir) = row.succession
            && let Some(heir) = catalog.row(heir)
        {
            return self.row(catalog, heir);
        }
        let key = format!("row {}", row.id);
        let kind = if row.usage == Usage::Signer { Kind::Signer } else { Kind::Leaf };
        let place = catalog.secret_of(row).map(|object| object.to_string()).unwrap_or_default();
        self.node(&key, kind, SIGNERS, [row.certificate.to_owned(), place]);
        if let Some(above) = catalog.signer_of(row) {
            let above = self.row(catalog, above);
            self.link(&key, &above, None);
        }
        key
    }

    fn bundle(&mut self, catalog: &Catalog, id: &str) -> String {
        let key = format!("bundle {id}");
        let Some(bundle) = catalog.bundle(id) else { return key };
        self.node(&key, Kind::Bundle, BUNDLES + depth(catalog, id), [id.to_owned(), String::new()]);
        for input in bundle.inputs {
            match *input {
                BundleInput::History(row) => {
                    if let Some(row) = catalog.row(row) {
                        let signer = self.row(catalog, row);
                        self.link(&signer, &key, None);
                    }
                }
                BundleInput::Bundle(id) | BundleInput::First(id) => {
                    let input = self.bundle(catalog, id);
                    self.link(&input, &key, None);
                }
                BundleInput::Foreign(_) => {}
            }
        }
        key
    }

    fn node(&mut self, key: &str, kind: Kind, layer: usize, lines: [String; 2]) {
        self.nodes.entry(key.to_owned()).or_insert(Node { kind, lines, layer });
    }

    fn link(&mut self, from: &str, to: &str, delivery: Option<Speed>) {
        self.links.insert(Link { from: from.to_owned(), to: to.to_owned(), delivery });
    }
}

/// Returns the day of an edge. Certificates of Day-1 that Day-2 still uses belong to Day-2.
fn edge_day(catalog: &Catalog, row: &Row, trust: &Trust) -> Day {
    let trust = match trust {
        Trust::Bundle(id) => catalog.bundle(id).map(|bundle| bundle.day),
        Trust::Row(id) => catalog.row(id).map(|row| row.day),
    };
    trust.unwrap_or(row.day).max(row.day)
}

/// Returns the number of bundles between this one and the signers.
fn depth(catalog: &Catalog, id: &str) -> usize {
    let below = |input: &BundleInput| match *input {
        BundleInput::Bundle(id) | BundleInput::First(id) => Some(1 + depth(catalog, id)),
        BundleInput::History(_) | BundleInput::Foreign(_) => None,
    };
    catalog.bundle(id).and_then(|bundle| bundle.inputs.iter().filter_map(below).max()).unwrap_or(0)
}

fn speed(delivery: Delivery) -> Option<Speed> {
    match delivery {
        Delivery::Reloaded { .. } => Some(Speed::Reloaded),
        Delivery::Revisioned | Delivery::Relayed { .. } => Some(Speed::Revisioned),
        Delivery::Never => Some(Speed::Never),
        Delivery::Indirect => None,
    }
}

impl Kind {
    /// Returns the name in the legend.
    fn title(self) -> &'static str {
        match self {
            Kind::Leaf => "certificate",
            Kind::Signer => "signer",
            Kind::Bundle => "bundle",
            Kind::Verifier => "verifier",
        }
    }

    fn fill(self) -> &'static str {
        match self {
            Kind::Leaf => "#e8f1fb",
            Kind::Signer => "#fdeccd",
            Kind::Bundle => "#e6f4e2",
            Kind::Verifier => "#f3e8f7",
        }
    }
}

impl Speed {
    /// Returns the name in the legend.
    fn title(self) -> &'static str {
        match self {
            Speed::Reloaded => "reloaded",
            Speed::Revisioned => "revisioned: restart",
            Speed::Never => "never",
        }
    }

    fn colour(self) -> &'static str {
        match self {
            Speed::Reloaded => "#2e7d32",
            Speed::Revisioned => "#c77700",
            Speed::Never => "#c62828",
        }
    }
}

/// Returns the colour of a link.
fn colour(speed: Option<Speed>) -> &'static str {
    speed.map_or("#8a8a8a", Speed::colour)
}
