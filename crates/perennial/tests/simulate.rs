//! Tests `perennial simulate`.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{perennial, texts};
use serde_json::Value;

fn simulate(arguments: &[&str]) -> (String, i32) {
    let (stdout, stderr, code) = texts(&perennial(&[&["simulate"], arguments].concat()));
    assert_eq!(stderr, "", "there is no bar without a terminal");
    (stdout, code)
}

#[test]
fn years_without_faults_have_no_violation() {
    let (text, code) = simulate(&["--years", "3"]);
    assert_eq!(code, 0);
    assert!(text.starts_with("Seed 1: 3 years from 2026-01-01T00:00:00Z to 2028-12-31T00:00:00Z\n"), "{text}");
    assert!(text.ends_with("RESULT: every verifier accepted every certificate for 3 years.\n"), "{text}");
    assert!(text.contains("Faults: none (0 of them)"));
    for part in [
        "\n2026\n",
        "\n2028\n",
        "\nSHORTEST REMAINING VALIDITY",
        "\nISSUED\n",
        "openshift-etcd/etcd-signer: secret doesn't exist",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 120).collect();
    assert_eq!(long, Vec::<&str>::new());
    // Certificates are counted, and listed only with --verbose.
    let issued = "issued     openshift-kube-apiserver/kubelet-client";
    assert!(text.contains("kubelet-client:") && !text.contains("  issued  "), "{text}");
    let (verbose, _) = simulate(&["--years", "3", "--verbose"]);
    assert!(verbose.contains("  issued  ") && verbose.contains("a process that holds"), "{issued} is not in {verbose}");
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let of = |seed: &str| simulate(&["--years", "1", "--faults", "deletions,crashes", "--seed", seed]);
    assert_eq!(of("5"), of("5"));
    assert_ne!(of("5"), of("6"));
}

#[test]
fn faults_are_printed() {
    let (text, _) = simulate(&["--years", "1", "--faults", "deletions,membership"]);
    assert!(text.contains("Faults: deletions, membership ("), "{text}");
    assert!(text.contains("  FAULT      a user deletes a "), "{text}");
    assert!(!text.contains("Perennial dies"), "{text}");
}

#[test]
fn json_output_has_all_fields() {
    let (text, code) =
        simulate(&["--years", "1", "--nodes", "1", "--services", "0", "--start", "2030-06-01", "-o", "json"]);
    let run: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, 0);
    assert_eq!(
        (&run["nodes"], &run["services"], &run["outcome"]["from"]),
        (&1.into(), &0.into(), &"2030-06-01T00:00:00Z".into())
    );
    assert_eq!((&run["outcome"]["violations"], &run["reproduction"]), (&Value::Array(Vec::new()), &Value::Null));
    let issued = run["outcome"]["issued"].as_object().unwrap();
    assert!(issued.contains_key("kubelet-client") && !issued.contains_key("service-serving"));
}

#[test]
fn one_component_can_be_simulated() {
    let (text, code) = simulate(&["--years", "2", "--catalog", "etcd,service-ca"]);
    assert_eq!(code, 0);
    assert!(text.contains("certificates of: etcd, service-ca"), "{text}");
    assert!(
        text.contains("etcd-signer:1") && text.contains("service-serving:") && !text.contains("csr-signer"),
        "{text}"
    );
}

#[test]
fn a_snapshot_can_be_taken_during_the_simulation() {
    let (text, _) = simulate(&["--years", "1", "--snapshot-at", "100d"]);
    let snapshot: Value = serde_json::from_str(&text).unwrap();
    assert!(snapshot["takenAt"].as_str().unwrap() >= "2026-04-11T00:00:00Z");
    let (_, stderr, code) = texts(&perennial(&["simulate", "--years", "1", "--snapshot-at", "2y"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("no pass between 2028-01-01T00:00:00Z and the end"), "{stderr}");
}

#[test]
fn invalid_arguments_are_rejected() {
    let check = |arguments: &[&str], expected: &str| {
        let (_, stderr, code) = texts(&perennial(&[&["simulate"], arguments].concat()));
        assert_eq!(code, 2, "{stderr}");
        assert!(stderr.contains(expected), "{stderr}");
    };
    check(&["--faults", "floods"], "\"floods\" is not a kind of fault: expected one of outages, long-outages");
    check(&["--faults", "floods"], "; also accepted are all and none");
    check(&["--catalog", "dns"], "\"dns\" is not a component of the catalog: expected one of kube-apiserver");
    check(&["--start", "tomorrow"], "\"tomorrow\" is not a time: expected a day such as 2026-01-01");
    check(&["--start", "9990-01-01"], "before the year 9000");
    check(&["--years", "0"], "0 is not in 1..=100");
}
