//! The catalog as a graph: from what is presented, through signers and bundles, to who verifies it.

mod dot;
mod svg;

use std::collections::{BTreeMap, BTreeSet};

use perennial_core::catalog::{BundleInput, Catalog, Day, Delivery, Leaf, Party, Row, Succession, Trust};
use perennial_core::policy::Usage;

pub(crate) use dot::dot;
pub(crate) use svg::svg;

/// Nodes in layers, and the links between them, which all point from a layer to a later one or stay within it.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    nodes: BTreeMap<String, Node>,
    links: BTreeSet<Link>,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    /// What it is called, and where it is found.
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
    /// How a change gets along it; links without are there as soon as they are made.
    delivery: Option<Speed>,
}

/// A delivery as far as a picture shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Speed {
    Reloaded,
    Revisioned,
    Never,
}

const LEAVES: usize = 0;
const SIGNERS: usize = 1;
/// Bundles take the layers from here on, deeper ones later; verifiers come behind all of them.
const BUNDLES: usize = 2;

impl Graph {
    /// The part of the catalog that belongs to a day.
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

    /// A signer, and the signer above it; or a leaf that is trusted itself. What Day-2 adopts is shown as its heir.
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

/// The day whose trust it is: what Day-1 made and Day-2 still relies on belongs to Day-2.
fn edge_day(catalog: &Catalog, row: &Row, trust: &Trust) -> Day {
    let trust = match trust {
        Trust::Bundle(id) => catalog.bundle(id).map(|bundle| bundle.day),
        Trust::Row(id) => catalog.row(id).map(|row| row.day),
    };
    trust.unwrap_or(row.day).max(row.day)
}

/// How many bundles lie between this one and the signers.
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
    /// What the legend calls it.
    fn title(self) -> &'static str {
        match self {
            Kind::Leaf => "presented",
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
    /// What the legend calls it.
    fn title(self) -> &'static str {
        match self {
            Speed::Reloaded => "reloaded",
            Speed::Revisioned => "revisioned: restarts",
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

/// The colour of a link.
fn colour(speed: Option<Speed>) -> &'static str {
    speed.map_or("#8a8a8a", Speed::colour)
}
