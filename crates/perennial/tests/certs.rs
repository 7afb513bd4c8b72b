//! Tests `perennial certs --catalog` and its generated pages.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs;

use common::{perennial, texts};
use expect_test::{Expect, expect};
use serde_json::Value;

/// Checks that the committed file is the output of the command.
fn check_generated(path: &str, arguments: &[&str]) {
    let (stdout, stderr, code) = texts(&perennial(arguments));
    assert_eq!((stderr.as_str(), code), ("", 0));
    let committed = fs::read_to_string(format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    assert!(stdout == committed, "{path} is out of date: run `make generate`");
}

#[test]
fn generated_files_are_up_to_date() {
    check_generated("docs/reference/catalog.md", &["certs", "--catalog", "-o", "markdown"]);
    check_generated("docs/reference/trust.svg", &["certs", "--graph", "svg"]);
}

#[test]
fn json_and_yaml_have_the_same_content() {
    let (json, ..) = texts(&perennial(&["certs", "--catalog", "-o", "json"]));
    let (yaml, ..) = texts(&perennial(&["certs", "--catalog", "-o", "yaml"]));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json, serde_norway::from_str::<Value>(&yaml).unwrap());
    let well_known = json["items"].as_array().unwrap().iter().filter(|item| item["wellKnown"] == true).count();
    assert_eq!(well_known, 32);
}

/// Checks the line of a certificate under a policy, and the warnings.
fn check_policy(spec: &str, name: &str, expected: &Expect) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pki.yaml");
    fs::write(
        &file,
        format!("apiVersion: config.openshift.io/v1\nkind: PKI\nmetadata: {{name: cluster}}\nspec: {spec}\n"),
    )
    .unwrap();
    let output = perennial(&["certs", "--catalog", "--policy", file.to_str().unwrap()]);
    let (stdout, stderr, _) = texts(&output);
    let lines = stdout
        .lines()
        .filter(|line| line.starts_with(&format!("{name} ")))
        .chain(stderr.lines().filter(|line| line.contains(name)));
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let text: Vec<String> = lines.map(|line| words(&line.replace(directory.path().to_str().unwrap(), "DIR"))).collect();
    expected.assert_eq(&text.join("\n"));
}

#[test]
fn a_policy_shows_which_key_each_certificate_gets() {
    let spec = "{defaults: {key: {algorithm: RSA, rsa: {keySize: 3072}}}, \
                categories: [{category: ServingCertificate, certificate: {key: {algorithm: ECDSA, ecdsa: {curve: P384}}}}], \
                overrides: [{certificateName: kubelet-signer, certificate: {key: {algorithm: RSA, rsa: {keySize: 4096}}}}]}";
    check_policy(
        spec,
        "kubelet-signer",
        &expect!["kubelet-signer Signer signer RSA 4096 override 60d after 30d (self)"],
    );
    check_policy(
        spec,
        "etcd-server",
        &expect![[r#"
            etcd-server Serving peer ECDSA P384 category 1095d after 803d etcd-signer
            warning: etcd-server: ECDSA P384 is stronger than RSA 3072 of its signer etcd-signer, which limits its strength"#]],
    );
    check_policy(
        spec,
        "service-serving",
        &expect![[r#"
            service-serving Serving serving ECDSA P384 category 730d after 300d service-ca
            warning: service-serving: ECDSA P384 is stronger than RSA 3072 of its signer service-ca, which limits its strength"#]],
    );
    check_policy(
        spec,
        "aggregator-client",
        &expect!["aggregator-client Client client RSA 3072 defaults 30d after 15d aggregator-signer"],
    );
}

#[test]
fn one_certificate_is_listed_with_its_bundles_and_edges() {
    let about = |name: &str| -> (Vec<String>, Vec<String>, Vec<String>) {
        let (stdout, stderr, code) = texts(&perennial(&["certs", "--catalog", name, "-o", "json"]));
        assert_eq!(code, 0, "{stderr}");
        let shown: Value = serde_json::from_str(&stdout).unwrap();
        let list = |list: &str, field: &str| -> Vec<String> {
            let entries = shown[list].as_array().unwrap().iter();
            entries.map(|entry| entry.pointer(field).unwrap().as_str().unwrap().to_owned()).collect()
        };
        (list("items", "/name"), list("bundles", "/id"), list("edges", "/verifier/name"))
    };
    let (names, bundles, verifiers) = about("service-ca");
    assert_eq!((names.join(" "), bundles.join(" ")), ("service-ca".to_owned(), "signing-cabundle".to_owned()));
    assert_eq!(verifiers, ["consumer of the service CA"]);
    // Also by the name of its Secret.
    assert_eq!(about("signing-key").0, ["service-ca"]);
    assert_eq!(about("openshift-service-ca/signing-key").0, ["service-ca"]);

    let (_, stderr, code) = texts(&perennial(&["certs", "--catalog", "nothing"]));
    assert_eq!(code, 1);
    assert!(stderr.contains("unknown name \"nothing\": `perennial certs --catalog` lists the names"), "{stderr}");
}

#[test]
fn an_invalid_policy_is_rejected() {
    check_policy(
        "{defaults: {key: {algorithm: RSA, rsa: {keySize: 512}}}}",
        "keySize",
        &expect![[
            r#"error: cannot use DIR/pki.yaml: PKI "cluster" is invalid: spec.defaults.key.rsa.keySize: Unsupported value: 512: supported values: "2048", "3072", "4096""#
        ]],
    );
}

#[test]
fn every_command_has_help() {
    for arguments in [&["--help"][..], &["install", "--help"], &["certs", "--help"], &["crds", "--help"]] {
        let (stdout, _, code) = texts(&perennial(arguments));
        assert_eq!(code, 0);
        assert!(stdout.contains("Usage: perennial"), "{stdout}");
    }
    let (_, stderr, code) = texts(&perennial(&[]));
    assert_eq!(code, 2);
    assert!(stderr.contains("Usage: perennial"), "{stderr}");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut child = Command::new(env!("CARGO_BIN_EXE_perennial"))
        .args(["certs", "--catalog", "-o", "json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// Returns all commands.
fn commands() -> Vec<String> {
    let (help, ..) = texts(&perennial(&["--help"]));
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1).take_while(|line| !line.is_empty());
    let names = listed.filter_map(|line| line.strip_prefix("  ")?.split(' ').next()).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}

/// Returns the listed exit codes of a help text. A description may continue in the next line.
fn exit_codes(help: &str) -> Vec<u8> {
    let (_, listed) = help.split_once("\nExit codes:\n").unwrap();
    let listed = listed.lines().take_while(|line| !line.is_empty());
    let codes = listed.filter_map(|line| line.strip_prefix("  ")?.split_once("   ")?.0.parse().ok());
    codes.collect()
}

#[test]
fn every_help_lists_the_exit_codes_of_its_command() {
    let expected: [(&str, &[u8]); 15] = [
        ("up", &[0, 1, 2]),
        ("run", &[0, 1, 2, 3, 4]),
        ("install", &[0, 1, 2]),
        ("certs", &[0, 1, 2]),
        ("plan", &[0, 1, 2, 3, 4]),
        ("verify", &[0, 1, 2, 3, 4]),
        ("explain", &[0, 1, 2]),
        ("forecast", &[0, 1, 2, 3]),
        ("rotate", &[0, 1, 2, 3, 4]),
        ("distrust", &[0, 1, 2, 3]),
        ("consumers", &[0, 1, 2, 3]),
        ("snapshot", &[0, 1, 2]),
        ("simulate", &[0, 1, 2, 4]),
        ("crds", &[0, 1, 2]),
        ("manifests", &[0, 1, 2]),
    ];
    let help = |command: &str| texts(&perennial(&[command, "--help"])).0;
    let found: Vec<(String, Vec<u8>)> = commands()
        .into_iter()
        .filter(|it| it != "help")
        .map(|command| {
            let codes = exit_codes(&help(&command));
            (command, codes)
        })
        .collect();
    assert_eq!(found, expected.map(|(command, codes)| (command.to_owned(), codes.to_vec())));
}

#[test]
fn every_help_keeps_examples_and_exit_codes_in_one_line() {
    use std::process::Command;
    assert!(commands().len() > 10);
    for command in commands().iter().filter(|it| *it != "help") {
        let help = |columns: &str| {
            let mut called = Command::new(env!("CARGO_BIN_EXE_perennial"));
            let (stdout, _, code) = texts(&called.args([command, "--help"]).env("COLUMNS", columns).output().unwrap());
            assert_eq!(code, 0);
            stdout
        };
        let (narrow, wide) = (help("50"), help("500"));
        assert!(narrow.contains("\nExit codes:\n  0   "), "{command}: {narrow}");
        let begin = |text: &str| text.find("\nExamples:").or_else(|| text.find("\nExit codes:")).unwrap();
        let after = |text: &str| text[begin(text)..].to_owned();
        assert_eq!(after(&narrow), after(&wide), "{command}");
        // Other text is wrapped.
        assert_ne!(narrow, wide, "{command}");
    }
}

#[test]
fn an_unknown_command_gets_a_similar_name_or_none() {
    let (_, stderr, code) = texts(&perennial(&["status"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("unrecognized subcommand 'status'") && !stderr.contains("distrust"), "{stderr}");
    let (_, stderr, code) = texts(&perennial(&["verfy"]));
    assert_eq!(code, 2);
    assert!(stderr.contains("'verify'"), "{stderr}");
}
