//! Tests `perennial crds`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use common::{perennial, texts};
use serde_json::Value;

fn committed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds")
}

/// Returns the files of a directory.
fn files(directory: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap());
    entries.map(|it| (it.file_name().into_string().unwrap(), fs::read_to_string(it.path()).unwrap())).collect()
}

#[test]
fn all_definitions_are_one_stream_of_the_committed_files() {
    let (stdout, stderr, code) = texts(&perennial(&["crds"]));
    assert_eq!((stderr.as_str(), code), ("", 0));
    let documents: Vec<&str> = stdout.split("---\n").collect();
    let mut sorted = documents.clone();
    sorted.sort_unstable();
    let mut committed: Vec<String> = files(&committed()).into_values().collect();
    committed.sort_unstable();
    assert!(sorted == committed, "deploy/crds is out of date: run `make generate`");
    let names = documents.iter().map(|document| serde_norway::from_str::<Value>(document).unwrap());
    assert_eq!(
        names.map(|crd| crd["metadata"]["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>(),
        [
            "pkis.config.openshift.io",
            "clusteroperators.config.openshift.io",
            "featuregates.config.openshift.io",
            "infrastructures.config.openshift.io",
            "networks.config.openshift.io",
            "etcds.operator.openshift.io",
            "kubeapiservers.operator.openshift.io",
            "kubecontrollermanagers.operator.openshift.io",
            "servicecas.operator.openshift.io",
        ]
    );
}

#[test]
fn named_definitions_are_printed_once_and_in_order() {
    let (stdout, stderr, code) = texts(&perennial(&["crds", "pki"]));
    assert_eq!((stderr.as_str(), code), ("", 0));
    assert_eq!(stdout, fs::read_to_string(committed().join("config.openshift.io_pkis.yaml")).unwrap());
    let (two, ..) = texts(&perennial(&["crds", "ServiceCA", "pkis", "PKI"]));
    let service_ca = fs::read_to_string(committed().join("operator.openshift.io_servicecas.yaml")).unwrap();
    assert_eq!(two, format!("{stdout}---\n{service_ca}"));
}

#[test]
fn an_unknown_name_is_wrong_usage() {
    let (stdout, stderr, code) = texts(&perennial(&["crds", "pods"]));
    assert_eq!((stdout.as_str(), code), ("", 2));
    assert!(stderr.contains("'pods'") && stderr.contains("accepted are pkis, clusteroperators, "), "{stderr}");
}

#[test]
fn files_are_written_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let out = directory.path().to_str().unwrap();
    fs::write(directory.path().join("config.openshift.io_pkis.yaml"), "old").unwrap();
    let output = texts(&perennial(&["crds", "--out", out]));
    assert_eq!(output, (String::new(), String::new(), 0));
    assert!(files(directory.path()) == files(&committed()));
    let (_, stderr, code) = texts(&perennial(&["crds", "--out", "/nonexistent/directory"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("/nonexistent/directory/config.openshift.io_pkis.yaml"), "{stderr}");
}

#[test]
fn help_recommends_create_instead_of_apply() {
    let (stdout, ..) = texts(&perennial(&["crds", "--help"]));
    let help = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("perennial crds | kubectl create -f -"), "{help}");
    assert!(help.contains("`apply` would overwrite them"), "{help}");
}
