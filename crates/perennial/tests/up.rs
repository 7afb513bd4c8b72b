//! `perennial up` from outside: what is in its directory, how it starts, goes on and stops.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod up;
}

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::up::{Up, directory, up};
use perennial_x509::{Certificate, Purpose, Verification, read_certificates, verify};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_directory_is_all_it_needs_and_nobody_else_can_read_it() {
    let top = directory();
    let data = top.path().join("data");
    let running = Up::start(&data, &[]);
    assert!(running.said.starts_with("Perennial is up at https://127.0.0.1:"), "{}", running.said);
    assert!(running.said.contains("(new)"));
    assert_eq!(running.said.lines().filter(|line| line.starts_with("  kubectl ")).count(), 3);
    assert_eq!(mode(&data), 0o700);
    for file in ["kubeconfig", "token", "perennial.db"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    assert!(running.stop("-INT").success());
}

#[test]
fn what_everybody_could_read_is_private_again() {
    let top = directory();
    let data = top.path().join("data");
    // Killed, it leaves the log of its database behind.
    assert!(!Up::start(&data, &[]).stop("-KILL").success());
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let files: Vec<_> = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.iter().any(|file| file.ends_with("perennial.db-wal")), "{files:?}");
    files.iter().for_each(|file| open(file, 0o644));
    open(&data, 0o755);
    let running = Up::start(&data, &[]);
    assert_eq!(mode(&data), 0o700);
    for file in fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().path()) {
        assert_eq!(mode(&file), 0o600, "{}", file.display());
    }
    assert!(running.stop("-INT").success());
}

#[test]
fn two_at_once_are_refused_and_the_first_goes_on() {
    let top = directory();
    let data = top.path().join("data");
    let running = Up::start(&data, &[]);
    let second = up(&data, &[]).output().unwrap();
    let said = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(said.contains("is in use: perennial up runs on it already"), "{said}");
    assert!(running.stop("-TERM").success());
}

#[test]
fn until_ready_returns_and_the_next_one_goes_on() {
    let top = directory();
    let data = top.path().join("data");
    let ready = up(&data, &["--until-ready"]).output().unwrap();
    assert!(ready.status.success(), "{}", String::from_utf8_lossy(&ready.stderr));
    let before = parts(&data);
    let running = Up::start(&data, &[]);
    assert!(running.said.contains("(continued)"), "{}", running.said);
    let after = parts(&data);
    // The port may be another; who everybody is stays.
    assert_eq!(before["client-certificate-data"], after["client-certificate-data"]);
    assert_eq!(before["certificate-authority-data"], after["certificate-authority-data"]);
    assert!(running.stop("-INT").success());
}

#[test]
fn who_is_told_to_stop_before_it_is_up_stops_and_the_next_one_goes_on() {
    let top = directory();
    let data = top.path().join("data");
    let begun = Up::begin(up(&data, &[]), "making the certificates of a new cluster");
    assert!(begun.stop("-TERM").success());
    assert!(!data.join("kubeconfig").exists(), "it was not up yet");
    let begun = Up::begin(up(&data, &["--until-ready", "--node", "n=10.0.0.4"]), "changed:");
    assert_eq!(begun.stop("-INT").code(), Some(1), "who waits for it is told that it is not ready");
    let running = Up::start(&data, &[]);
    assert!(running.said.contains("(continued)"), "{}", running.said);
    assert!(running.stop("-INT").success());
}

#[test]
fn one_pass_is_not_made_while_another_operator_leads() {
    let top = directory();
    let running = Up::start(&top.path().join("data"), &[]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        command.arg("run").arg("--kubeconfig").arg(running.kubeconfig()).args(arguments);
        command
    };
    let once = run(&["--once"]).output().unwrap();
    assert!(once.status.success(), "{}", String::from_utf8_lossy(&once.stderr));
    let mut command = run(&["--metrics", "127.0.0.1:0"]);
    command.env("HOSTNAME", "leader");
    let leader = Up::begin(command, "Starting CertRotation");
    let refused = run(&["--once"]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(said.contains("another operator may be leading: leader_"), "{said}");
    assert!(leader.stop("-TERM").success());
    assert!(run(&["--once"]).output().unwrap().status.success(), "the lease was given back, twice");
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_made() {
    let top = directory();
    let data = top.path().join("data");
    for (arguments, expected) in [
        (["--node", "N=10.0.0.4"], "is no DNS name"),
        (["--node", "n"], "expected NAME=IP"),
        (["--api-url", "http://api.example.com"], "accepted is https://HOST"),
        (["--service-network", "10.0.0.0/16,10.1.0.0/16"], "one IPv4 and one IPv6"),
        (["--cluster-domain", "Lab"], "is no DNS name"),
    ] {
        let refused = up(&data, &arguments).output().unwrap();
        let said = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
    assert!(!data.exists());
    fs::write(top.path().join("letter"), "dear").unwrap();
    let refused = up(top.path(), &[]).output().unwrap();
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("choose a new or empty directory"), "{said}");
}

#[test]
fn its_own_certificates_are_rows_of_the_catalog() {
    let top = directory();
    let data = top.path().join("data");
    assert!(up(&data, &["--until-ready"]).output().unwrap().status.success());
    let parts = parts(&data);
    let certificate = |name: &str| -> Certificate { read_certificates(&decoded(&parts[name])).unwrap().remove(0) };
    let admin = certificate("client-certificate-data");
    assert_eq!(admin.facts().subject.common_name().as_deref(), Some("system:admin"));
    assert_eq!(admin.facts().subject.organizations(), ["system:masters"]);
    assert!(!admin.facts().allows_server_auth());
    let ca = certificate("certificate-authority-data");
    assert!(ca.facts().may_sign() && ca.facts().subject.common_name().unwrap().contains("localhost-serving-signer"));
    let wrong = Verification {
        leaf: &admin,
        intermediates: &[],
        anchors: &[ca],
        at: admin.facts().validity.not_before,
        purpose: &Purpose::Client,
    };
    assert!(verify(&wrong).is_err(), "clients and servers have different signers");
}

#[test]
fn a_failed_start_leaves_nothing_behind() {
    let top = directory();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let fails = |data: &Path, arguments: &[&str]| {
        let failed = up(data, arguments).output().unwrap();
        let said = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(1), "{said}");
        assert!(said.contains(&taken) && said.contains(" chooses another address"), "{said}");
    };
    let is_empty = |path: &Path| fs::read_dir(path).unwrap().next().is_none();
    let [absent, empty, used] = ["absent", "empty", "used"].map(|name| top.path().join(name));
    fs::create_dir(&empty).unwrap();
    for arguments in [["--listen", &taken], ["--metrics", &taken]] {
        fails(&absent, &arguments);
        assert!(!absent.exists(), "{arguments:?}");
        fails(&empty, &arguments);
        assert!(is_empty(&empty), "{arguments:?}");
    }
    // What was there before stays.
    assert!(up(&used, &["--until-ready"]).output().unwrap().status.success());
    let before = parts(&used);
    fails(&used, &["--listen", &taken]);
    assert_eq!(parts(&used), before);
    assert!(Up::start(&used, &[]).said.contains("(continued)"));
}

#[test]
fn it_logs_what_it_does_and_tests_its_crypto() {
    let top = directory();
    let run = |name: &str, format: &str, chosen: Option<&str>| {
        let mut command = up(&top.path().join(name), &["--until-ready", "--log-format", format]);
        command.env_remove("RUST_LOG").envs(chosen.map(|chosen| ("RUST_LOG", chosen)));
        let output = command.output().unwrap();
        assert!(output.status.success());
        let log = String::from_utf8(output.stderr).unwrap();
        assert!(!log.contains("PRIVATE KEY"));
        log
    };
    let log = run("json", "json", None);
    for line in log.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(line["level"].is_string() && line["message"].is_string(), "{line}");
    }
    let steps = [
        "opened the database",
        "listening",
        "created the objects that every cluster begins with",
        "crypto test passed",
        "making the certificates of a new cluster",
        "requires a new signing cert/key pair",
    ];
    let places: Vec<usize> = steps.iter().map(|it| log.find(it).unwrap_or_else(|| panic!("{it}: {log}"))).collect();
    assert!(places.is_sorted(), "{places:?}");
    let log = run("text", "text", None);
    assert!(log.contains("crypto test passed") && !log.contains('{'), "{log}");
    assert_eq!(run("json", "json", Some("off")), "");
    let requests = run("json", "json", Some("perennial_apiserver=debug"));
    assert!(requests.contains("answered a request"), "{requests}");
}

#[test]
fn it_serves_metrics_as_the_operator_does() {
    let top = directory();
    let command = up(&top.path().join("data"), &["--log-format", "json"]);
    let running = Up::begin(command, "serving the Kubernetes API");
    let lines = running.said.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let url = lines.into_iter().find_map(|line| line["url"].as_str().map(ToOwned::to_owned)).unwrap();
    let address = url.strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics")).unwrap();
    let ask = |path: &str| {
        let mut stream = TcpStream::connect(address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let metrics = ask("/metrics");
    // What was made before it was up counts, too.
    let made = "openshift_pki_certificate_generated_total{certificate_name=\"aggregator-client\"";
    let made = metrics.lines().find(|line| line.starts_with(made)).unwrap_or_else(|| panic!("{metrics}"));
    assert!(made.ends_with(" 1"), "{made}");
    assert!(metrics.contains("openshift_pki_certificate_info{"), "{metrics}");
    for probe in ["/livez", "/readyz"] {
        assert!(ask(probe).starts_with("HTTP/1.1 200"), "{probe}");
    }
    assert!(running.stop("-TERM").success());
}

/// The scalars of a kubeconfig that hold something in base64.
fn parts(data: &Path) -> BTreeMap<String, String> {
    let text = fs::read_to_string(data.join("kubeconfig")).unwrap();
    let lines = text.lines().filter_map(|line| line.trim().split_once(": "));
    lines.filter(|(name, _)| name.ends_with("-data")).map(|(name, value)| (name.into(), value.into())).collect()
}

fn decoded(text: &str) -> Vec<u8> {
    use base64::prelude::{BASE64_STANDARD, Engine};
    BASE64_STANDARD.decode(text.trim_matches('"')).unwrap()
}
