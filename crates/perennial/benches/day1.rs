//! Measures the cost of an installation, and compares each figure with its limit.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails by panicking")]

use std::collections::BTreeMap;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_testbed::tls::{Identity, Pair, Setup};
use perennial_x509::{Certificate, Issuer, PrivateKey, issue, meter, self_signed};

/// The limit of our own time for each leaf, without the crypto library.
const OVERHEAD_LIMIT: Duration = Duration::from_micros(60);

/// The limit of the wall time of an installation, relative to the sum of its generation times divided by the threads.
const INSTALL_LIMIT: f64 = 1.25;
const INSTALL_RUNS: usize = 5;

const HOST: &str = "api.demo.example.com";

fn main() -> ExitCode {
    let within = [issue_overhead(), install_rsa_4096(), handshakes()];
    if within.iter().all(|&within| within) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn issued_at() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn spec(usage: Usage, key: KeySpec) -> CertificateSpec {
    let not_before = issued_at();
    let hosts = if usage == Usage::Signer { Vec::new() } else { vec![Host::Dns(HOST.to_owned())] };
    let subject =
        Subject { organizations: vec!["kube-master".to_owned()], ..Subject::common_name("system:kube-apiserver") };
    let validity = Validity { not_before, not_after: not_before + SignedDuration::from_hours(24) };
    CertificateSpec { subject: subject.into(), usage, hosts, validity, key, extensions: Vec::new() }
}

fn signer(key: KeySpec) -> (Certificate, PrivateKey) {
    let private = PrivateKey::generate(key).unwrap();
    (self_signed(&spec(Usage::Signer, key), &private).unwrap(), private)
}

fn median<T: PartialOrd + Copy>(mut values: Vec<T>) -> T {
    values.sort_by(|a, b| a.partial_cmp(b).unwrap());
    values[values.len() / 2]
}

fn verdict(within: bool) -> &'static str {
    if within { "ok" } else { "OVER" }
}

/// Measures our own time to generate and issue one leaf: the total time minus the time inside the library.
fn issue_overhead() -> bool {
    println!("\nGenerate a key and issue a leaf for it (medians; the signer has the same kind of key)");
    println!("{:<12} {:>7} {:>14} {:>14} {:>10} {:>8}", "key", "leaves", "around", "inside", "ours", "limit");
    let mut all_within = true;
    for key in KeySpec::ALL {
        let leaves = match key.key_size() {
            None => 2000,
            Some(2048) => 60,
            Some(3072) => 20,
            Some(_) => 10,
        };
        let (certificate, private) = signer(key);
        let issuer = Issuer::new(&certificate, &private).unwrap();
        let wanted = spec(Usage::Serving, key);
        let mut samples = Vec::new();
        for _ in 0..leaves {
            let _ = meter::take();
            let started = Instant::now();
            let leaf_key = PrivateKey::generate(key).unwrap();
            std::hint::black_box(issue(&wanted, leaf_key.public_key(), &issuer).unwrap());
            let around = started.elapsed();
            samples.push((around, meter::take()));
        }
        let ours = median(samples.iter().map(|(around, inside)| around.saturating_sub(*inside)).collect());
        let around = median(samples.iter().map(|sample| sample.0).collect());
        let inside = median(samples.iter().map(|sample| sample.1).collect());
        let within = ours <= OVERHEAD_LIMIT;
        all_within &= within;
        println!(
            "{key:<12} {leaves:>7} {:>14} {:>14} {:>10} {:>8} {}",
            format!("{around:.1?}"),
            format!("{inside:.1?}"),
            format!("{ours:.1?}"),
            format!("{OVERHEAD_LIMIT:.0?}"),
            verdict(within),
            key = key.to_string(),
        );
    }
    all_within
}

/// Measures an installation with RSA 4096 signers by the real binary.
fn install_rsa_4096() -> bool {
    let threads = std::thread::available_parallelism().unwrap().get();
    println!("\nperennial install with RSA 4096 signers on {threads} threads");
    println!(
        "{:<5} {:>10} {:>24} {:>14} {:>7} {:>7}",
        "run", "wall", "sum of its generations", "sum/threads", "ratio", "limit"
    );
    let mut ratios = Vec::new();
    for run in 1..=INSTALL_RUNS {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("install-config.yaml");
        let key = "pki: {signerCertificates: {key: {algorithm: RSA, rsa: {keySize: 4096}}}}";
        let text = format!("baseDomain: example.com\nmetadata: {{name: demo}}\nplatform: {{aws: {{}}}}\n{key}\n");
        std::fs::write(&config, text).unwrap();
        let out = directory.path().join("out");
        let started = Instant::now();
        let output = Command::new(env!("CARGO_BIN_EXE_perennial"))
            .arg("install")
            .arg("--install-config")
            .arg(&config)
            .arg("--out")
            .arg(&out)
            .output()
            .unwrap();
        let wall = started.elapsed().as_secs_f64();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metrics = std::fs::read_to_string(out.join("openshift_pki_installer.prom")).unwrap();
        let sum: f64 = metrics
            .lines()
            .filter(|line| line.starts_with("openshift_pki_certificate_generation_duration_seconds_sum"))
            .map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap())
            .sum();
        let even = sum / threads as f64;
        ratios.push(wall / even);
        println!("{run:<5} {wall:>9.2}s {sum:>23.2}s {even:>13.2}s {:>7.2} {INSTALL_LIMIT:>7}", wall / even);
    }
    let ratio = median(ratios);
    println!("median ratio {ratio:.2}, limit {INSTALL_LIMIT} {}", verdict(ratio <= INSTALL_LIMIT));
    ratio <= INSTALL_LIMIT
}

/// Measures full TLS 1.3 handshakes, one after the other. The signer of each server has a P-256 key.
fn handshakes() -> bool {
    println!("\nTLS 1.3 handshakes on loopback, one after the other, no resumption (rustls on both sides)");
    println!("{:<12} {:>12} {:>14}", "server key", "handshakes", "per second");
    let mut per_second = BTreeMap::new();
    let (certificate, private) = signer(KeySpec::ALL[3]);
    let issuer = Issuer::new(&certificate, &private).unwrap();
    for key in KeySpec::ALL {
        let leaf_key = PrivateKey::generate(key).unwrap();
        let leaf = issue(&spec(Usage::Serving, key), leaf_key.public_key(), &issuer).unwrap();
        let pair = Pair::new(&Setup {
            server: Identity { chain: leaf.to_pem(), key: leaf_key.to_pem().unwrap().to_string() },
            server_anchors: certificate.to_pem(),
            name: HOST.to_owned(),
            client: None,
            at: issued_at().as_second().unsigned_abs(),
        })
        .unwrap();
        let count = 500;
        let took = pair.handshakes_on_loopback(count).unwrap().as_secs_f64();
        println!("{:<12} {count:>12} {:>14.0}", key.to_string(), count as f64 / took);
        per_second.insert(key.to_string(), count as f64 / took);
    }
    // At the same strength, ECDSA must cost a server less than RSA.
    let mut all_within = true;
    for (ecdsa, rsa) in [("ECDSA P256", "RSA 3072"), ("ECDSA P384", "RSA 4096")] {
        let gain = per_second[ecdsa] / per_second[rsa];
        all_within &= gain > 1.0;
        println!("{ecdsa} against {rsa}: {gain:.1} times as many, limit 1 {}", verdict(gain > 1.0));
    }
    all_within
}
