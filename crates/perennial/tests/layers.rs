//! The layers of `ARCHITECTURE.md`, checked against what the crates really depend on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

/// A crate, which of ours it may import, and what must not be anywhere below it.
struct Layer {
    name: &'static str,
    may_import: &'static [&'static str],
    never: &'static [&'static str],
}

const CRYPTO: &[&str] = &["aws-lc-rs", "aws-lc-sys", "rustls", "x509-cert", "ring", "rsa", "p256"];
const CLUSTER: &[&str] = &["kube-client", "kube-runtime", "tokio", "hyper", "reqwest"];
const RANDOM: &[&str] = &["rand", "getrandom", "fastrand"];

const LAYERS: &[Layer] = &[
    Layer { name: "perennial-core", may_import: &[], never: &["kube-core", "k8s-openapi", "tracing"] },
    Layer { name: "perennial-schema", may_import: &[], never: &["k8s-openapi"] },
    Layer { name: "perennial-x509", may_import: &["perennial-core"], never: &["kube-core", "k8s-openapi"] },
    Layer { name: "perennial-api", may_import: &["perennial-core", "perennial-schema"], never: &[] },
    Layer { name: "perennial-apiserver", may_import: &["perennial-schema"], never: &["kube-core", "k8s-openapi"] },
    Layer {
        name: "perennial-operator",
        may_import: &["perennial-core", "perennial-x509", "perennial-api", "perennial-schema"],
        never: &["clap", "axum", "perennial-apiserver"],
    },
    Layer { name: "perennial-testbed", may_import: &["*"], never: &[] },
    Layer { name: "perennial", may_import: &["*"], never: &[] },
];

fn metadata() -> Metadata {
    MetadataCommand::new().exec().expect("cargo metadata answers")
}

/// Every crate below `root` through normal dependencies, by name.
fn below(metadata: &Metadata, root: &PackageId) -> BTreeSet<String> {
    let resolve = metadata.resolve.as_ref().expect("cargo metadata resolves");
    let nodes: BTreeMap<&PackageId, _> = resolve.nodes.iter().map(|node| (&node.id, node)).collect();
    let (mut seen, mut todo) = (BTreeSet::new(), vec![root]);
    while let Some(id) = todo.pop() {
        for dependency in &nodes[id].deps {
            let normal = dependency.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal);
            if normal && seen.insert(&dependency.pkg) {
                todo.push(&dependency.pkg);
            }
        }
    }
    seen.into_iter().map(|id| metadata[id].name.to_string()).collect()
}

#[test]
fn every_crate_has_its_layer() {
    let metadata = metadata();
    let found: BTreeSet<&str> = metadata.workspace_packages().iter().map(|package| package.name.as_str()).collect();
    let listed: BTreeSet<&str> = LAYERS.iter().map(|layer| layer.name).collect();
    assert_eq!(found, listed, "a new crate needs a line here and in ARCHITECTURE.md");
}

#[test]
fn no_crate_reaches_above_its_layer() {
    let metadata = metadata();
    let ours: BTreeSet<&str> = LAYERS.iter().map(|layer| layer.name).collect();
    let mut violations = Vec::new();
    for layer in LAYERS {
        let package = metadata.workspace_packages().into_iter().find(|package| package.name == layer.name);
        let below = below(&metadata, &package.expect("the other test finds missing crates").id);
        for name in below.iter().map(String::as_str) {
            let allowed = !ours.contains(name) || layer.may_import.contains(&name) || layer.may_import == ["*"];
            let tests_only = name == "perennial-testbed";
            if !allowed || tests_only || forbidden(layer).contains(name) {
                violations.push(format!("{} must not depend on {name}", layer.name));
            }
        }
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

fn forbidden(layer: &Layer) -> BTreeSet<&'static str> {
    let groups: &[&[&str]] = match layer.name {
        "perennial-core" => &[CRYPTO, CLUSTER, RANDOM],
        "perennial-schema" => &[CRYPTO, CLUSTER],
        "perennial-x509" => &[CLUSTER],
        "perennial-api" => &[CRYPTO, CLUSTER],
        _ => &[],
    };
    groups.iter().chain([&layer.never]).copied().flatten().copied().collect()
}

#[test]
fn the_table_in_the_documentation_says_the_same() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md")).unwrap();
    for layer in LAYERS {
        let line = page.lines().find(|line| line.starts_with(&format!("| `{}` |", layer.name)));
        let line = line.unwrap_or_else(|| panic!("ARCHITECTURE.md lacks {}", layer.name));
        let imports = line.split('|').nth(3).unwrap().trim();
        let expected: Vec<&str> = layer.may_import.iter().map(|name| name.trim_start_matches("perennial-")).collect();
        let expected = match expected[..] {
            [] => "none".to_owned(),
            ["*"] => "any".to_owned(),
            _ => expected.join(", "),
        };
        assert_eq!(imports, expected, "what {} may import", layer.name);
    }
}
