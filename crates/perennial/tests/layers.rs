//! Compares the layers in `ARCHITECTURE.md` with the dependencies of the crates.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, PackageId};

/// A crate, the crates of ours that it may import, and the crates that it must never depend on.
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

/// Returns the names of all normal dependencies of `root`, direct and indirect.
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
fn the_table_in_architecture_md_is_correct() {
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

/// Returns the production code of a file, without comments and tests.
fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let is_code = |line: &&str| !line.trim_start().starts_with("//");
    code.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

/// Returns all production files below a directory.
fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        let is_for_tests = ["tests", "tests.rs", "fixtures.rs"].iter().any(|it| name.to_str() == Some(it));
        if is_for_tests {
            continue;
        }
        if path.is_dir() { files.extend(files_below(&path)) } else { files.push(path) }
    }
    files
}

fn source(of: &str) -> PathBuf {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).join(of)
}

/// Returns all identifiers of the code.
fn words(code: &str) -> BTreeSet<&str> {
    code.split(|it: char| !(it.is_alphanumeric() || it == '_')).collect()
}

#[test]
fn the_executor_uses_no_component_policy_or_rule() {
    let act = source("perennial-operator/src/act");
    let files = files_below(&act).into_iter().chain([act.with_extension("rs")]);
    for file in files {
        let code = code_of(&file);
        let decides =
            ["Component", "policy", "rules", "Wiring", "Catalog"].map(|it| words(&code).contains(it).then_some(it));
        let decides: Vec<&str> = decides.into_iter().flatten().collect();
        assert!(decides.is_empty(), "{}: {decides:?} is for core to know", file.display());
    }
}

/// The modules of core. Each imports only from modules before it. A module of a folder may have a place of its own.
const ROOMS: &[&str] = &[
    "key",
    "policy",
    "spec",
    "catalog",
    "annotations",
    "nearest",
    "clocks",
    "service_ca::reloads",
    "trust",
    "snapshot",
    "issuance",
    "rules",
    "service_ca::serving",
    "description",
    "plan",
    "service_ca",
    "verify",
    "conditions",
    "service_ca::consumers",
    "service_ca::distrust",
    "inventory",
    "forecast",
    "campaign",
    "warning",
    "install",
    "simulate",
];

/// The place of a path in that order: of the module itself, or of the folder that it is in.
fn place_of(path: &str) -> Option<usize> {
    let is_in = |room: &str| path.strip_prefix(room).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let rooms = ROOMS.iter().enumerate().filter(|(_, room)| is_in(room));
    rooms.max_by_key(|(_, room)| room.len()).map(|(place, _)| place)
}

fn is_of_path(it: char) -> bool {
    it.is_alphanumeric() || it == '_' || it == ':'
}

#[test]
fn the_modules_of_core_import_one_way() {
    let core = source("perennial-core/src");
    let mut found = BTreeSet::new();
    let mut violations = Vec::new();
    for file in files_below(&core) {
        let below = file.strip_prefix(&core).unwrap();
        let module = below.with_extension("").to_str().unwrap().replace('/', "::");
        if module == "lib" {
            continue;
        }
        let place = place_of(&module).unwrap_or_else(|| panic!("the order of modules lacks {module}"));
        let room = ROOMS[place];
        let code = code_of(&file);
        assert!(!code.contains("use crate::{"), "{}: one line for each module", below.display());
        for used in code.split("crate::").skip(1).filter_map(|it| it.split(|c: char| !is_of_path(c)).next()) {
            match place_of(used) {
                Some(after) if place < after => {
                    violations.push(format!("{}: {room} comes before {}", below.display(), ROOMS[after]));
                }
                Some(_) => {}
                None => violations.push(format!("{}: {used} is named without its folder", below.display())),
            }
        }
        found.insert(room);
    }
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert_eq!(found.len(), ROOMS.len());
}
