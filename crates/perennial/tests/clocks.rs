//! Tests operators with wrong clocks on a real API server.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod admin;
    pub(crate) mod dated;
    pub(crate) mod up;
}

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use common::admin::{Administrator, perennial_at, shift_clock};
use common::dated::Dated;
use common::up::Up;
use jiff::SignedDuration;
use perennial_testbed::kubernetes::ControlPlane;
use serde_json::Value;
use tempfile::TempDir;

/// A cluster with all certificates, issued at the correct time.
struct Cluster {
    // Fields are dropped in this order.
    _control_plane: ControlPlane,
    admin: Administrator,
    top: TempDir,
}

/// An operator, and where it serves its metrics.
struct Replica {
    process: Up,
    metrics: u16,
}

const OPERATOR: &str = "openshift-kube-apiserver-operator";

impl Cluster {
    async fn new() -> Cluster {
        let control_plane = ControlPlane::lease().await.unwrap();
        let top = tempfile::tempdir().unwrap();
        let admin = Administrator::new(control_plane.kubeconfig(), top.path());
        admin.prepare_cluster();
        let made = admin.perennial(&["run", "--once"]);
        assert_eq!(made.code, Some(0), "{}{}", made.out, made.err);
        Cluster { _control_plane: control_plane, admin, top }
    }

    /// Starts an operator with a shifted clock, and waits for this log line.
    fn replica(&self, kubeconfig: &Path, name: &str, ahead: &str, until: &str) -> Replica {
        // If another process takes the port, the operator fails with an error.
        let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = perennial_at(ahead);
        command.args(["run", "--log-format", "json", "--metrics", &format!("127.0.0.1:{metrics}"), "--kubeconfig"]);
        command.arg(kubeconfig).env("HOSTNAME", name);
        Replica { process: Up::begin(command, until), metrics }
    }

    /// Returns the version of every Secret.
    fn versions(&self) -> BTreeMap<String, String> {
        let list: Value = serde_json::from_str(&self.admin.kubectl("get secrets -A -o json")).unwrap();
        let version = |it: &Value| {
            let text = |field: &str| it["metadata"][field].as_str().unwrap().to_owned();
            (format!("{}/{}", text("namespace"), text("name")), text("resourceVersion"))
        };
        list["items"].as_array().unwrap().iter().map(version).collect()
    }

    fn holder(&self) -> String {
        self.admin.kubectl(&format!("get lease perennial -n {OPERATOR} -o jsonpath={{.spec.holderIdentity}}"))
    }

    fn condition(&self, type_: &str) -> String {
        let path = format!("jsonpath={{.status.conditions[?(@.type==\"{type_}\")].message}}");
        self.admin.kubectl(&format!("get clusteroperator kube-apiserver -o {path}"))
    }

    /// Returns whether OpenSSL accepts the certificate of the Secret with the bundle of its signer, at a shifted time, and what it
    /// prints.
    fn openssl_accepts(&self, ahead: &str) -> (bool, String) {
        let decoded = |text: String| BASE64_STANDARD.decode(text).unwrap();
        let get = |words: &str| self.admin.kubectl(words);
        let [trust, leaf] = ["trust.pem", "leaf.pem"].map(|name| self.top.path().join(name));
        let leaf_path = "jsonpath={.data.tls\\.crt}";
        fs::write(&leaf, decoded(get(&format!("get secret {SECRET} -n openshift-kube-apiserver -o {leaf_path}"))))
            .unwrap();
        let bundle = "get configmap kube-apiserver-to-kubelet-client-ca -n openshift-kube-apiserver-operator -o json";
        let bundle: Value = serde_json::from_str(&get(bundle)).unwrap();
        fs::write(&trust, bundle["data"]["ca-bundle.crt"].as_str().unwrap()).unwrap();
        let mut openssl = Command::new("openssl");
        shift_clock(&mut openssl, ahead);
        openssl.args(["verify", "-purpose", "sslclient", "-CAfile"]).arg(&trust).arg(&leaf);
        let output = openssl.output().unwrap();
        (output.status.success(), format!("{output:?}"))
    }

    fn events(&self, reason: &str) -> String {
        self.admin.kubectl(&format!("get events -A --field-selector reason={reason} -o jsonpath={{.items[*].message}}"))
    }
}

/// A certificate whose signer is valid for a year.
const SECRET: &str = "kubelet-client";

impl Replica {
    /// Returns the status and the body of an answer.
    fn get(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.metrics)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    fn skew(&self) -> Option<i64> {
        let text = self.get("/metrics");
        text.lines().find_map(|line| line.strip_prefix("perennial_clock_skew_seconds ")?.parse().ok())
    }

    fn is_ready(&self) -> bool {
        self.get("/readyz").starts_with("HTTP/1.1 200")
    }
}

/// Waits for a condition, with a deadline.
fn soon(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < deadline, "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[tokio::test]
async fn a_replica_with_a_wrong_clock_waits_for_the_lease_and_replaces_no_valid_certificate() {
    let cluster = Cluster::new().await;
    let way = Dated::open(cluster.admin.kubeconfig(), cluster.top.path());
    let before = cluster.versions();
    let right = cluster.replica(way.kubeconfig(), "right", "+0", "Starting CertRotation");
    soon("it leads", || cluster.holder().starts_with("right_"));
    for ahead in ["+20d", "+400d", "-400d"] {
        let wrong = cluster.replica(way.kubeconfig(), "wrong", ahead, "waiting for the lease");
        assert!(cluster.holder().starts_with("right_"), "{ahead}: the lease is not over");
        soon("who stands by is ready", || wrong.is_ready());
        assert!(wrong.process.stop("-TERM").success());
        assert_eq!(cluster.versions(), before, "{ahead}");
    }
    assert_eq!(right.skew(), Some(0));
    assert!(right.process.stop("-TERM").success());

    for (ahead, days) in [("+20d", 20_i64), ("+400d", 400), ("-400d", -400)] {
        let before = cluster.versions();
        let wrong = cluster.replica(way.kubeconfig(), "wrong", ahead, "Starting CertRotation");
        soon("its metrics tell the skew", || wrong.skew().is_some_and(|it| it != 0));
        let skew = wrong.skew().unwrap();
        assert!((skew - days * 86_400).abs() < 60, "{ahead}: {skew}");
        soon("it is ready", || wrong.is_ready());
        soon("a condition says so", || !cluster.condition("ClockSkew").is_empty());
        let text = cluster.condition("ClockSkew");
        let direction = if 0 < days { "ahead of the API server's" } else { "behind the API server's" };
        assert!(text.contains(direction), "{ahead}: {text}");
        soon("an event says so", || cluster.events("ClockSkew").contains(direction));
        assert_eq!(cluster.versions(), before, "{ahead}: everything is good by the other clock");

        // A missing certificate is issued: valid by both clocks if its signer is, and always by the server's clock.
        cluster.admin.kubectl(&format!("delete secret {SECRET} -n openshift-kube-apiserver"));
        let name = format!("openshift-kube-apiserver/{SECRET}");
        soon("it is made again", || cluster.versions().contains_key(&name));
        let (is_accepted, output) = cluster.openssl_accepts("+0");
        assert!(is_accepted, "{ahead}: {output}");
        let (is_accepted, output) = cluster.openssl_accepts(ahead);
        assert_eq!(is_accepted, days.abs() < 100, "{ahead}: its signer is valid for a year: {output}");
        assert!(wrong.process.stop("-TERM").success());
        let mut now = cluster.versions();
        now.remove(&name);
        let others = before.iter().filter(|(it, _)| **it != name).map(|(it, at)| (it.clone(), at.clone())).collect();
        assert_eq!(now, others, "{ahead}");

        // An operator with a correct clock has nothing to repair.
        let healed = cluster.admin.perennial(&["run", "--once"]);
        assert!(healed.out.starts_with("0 writes, 0 waiting, 0 risks"), "{ahead}: {}{}", healed.out, healed.err);
        assert_eq!(cluster.condition("ClockSkew"), "", "{ahead}");
    }
}

/// The clock of the API server may be wrong: its answers have other dates, and the operator cannot know which clock is correct.
#[tokio::test]
async fn a_wrong_clock_of_the_api_server_replaces_no_valid_certificate() {
    let cluster = Cluster::new().await;
    let way = Dated::open(cluster.admin.kubeconfig(), cluster.top.path());
    let before = cluster.versions();
    let replica = cluster.replica(way.kubeconfig(), "right", "+0", "Starting CertRotation");
    soon("it is ready", || replica.is_ready());
    for days in [20_i64, 400, -400] {
        way.set(SignedDuration::from_hours(24 * days));
        // The next pass starts after a minute, or after a change.
        cluster
            .admin
            .kubectl(&format!("annotate secret {SECRET} -n openshift-kube-apiserver test/day={days} --overwrite"));
        let expected = -days * 86_400;
        soon("its metrics tell the skew", || replica.skew().is_some_and(|it| (it - expected).abs() < 60));
    }
    way.set(SignedDuration::ZERO);
    cluster.admin.kubectl(&format!("annotate secret {SECRET} -n openshift-kube-apiserver test/day-"));
    soon("the clocks agree again", || replica.skew() == Some(0));
    assert!(replica.process.stop("-TERM").success());
    let name = format!("openshift-kube-apiserver/{SECRET}");
    let others =
        |all: BTreeMap<String, String>| all.into_iter().filter(|(it, _)| *it != name).collect::<BTreeMap<_, _>>();
    assert_eq!(others(cluster.versions()), others(before));
}

/// The certificate of the API server is not valid by the operator's clock.
#[tokio::test]
async fn an_operator_that_rejects_the_api_server_by_its_dates_is_not_ready_and_names_the_clock() {
    let cluster = Cluster::new().await;
    let before = cluster.versions();
    for ahead in ["+400d", "-400d"] {
        let wrong = cluster.replica(cluster.admin.kubeconfig(), "wrong", ahead, "may be wrong");
        assert!(wrong.process.output.contains("the clock of this machine, or that of the server, may be wrong"));
        assert!(!wrong.is_ready(), "{ahead}");
        assert!(wrong.get("/livez").starts_with("HTTP/1.1 200"), "to start again does not help");
        assert!(wrong.process.stop("-TERM").success());
    }
    assert_eq!(cluster.versions(), before);
    let once = cluster.admin.perennial_later(cluster.admin.kubeconfig(), "+400d", &["run", "--once"]);
    assert_eq!(once.code, Some(1));
    assert!(once.err.contains("may be wrong"), "{}", once.err);
}

/// The clock of a running operator is set ahead, and back.
#[tokio::test]
async fn a_clock_jump_and_return_leaves_no_trace() {
    let cluster = Cluster::new().await;
    let way = Dated::open(cluster.admin.kubeconfig(), cluster.top.path());
    let before = cluster.versions();
    let clock = cluster.top.path().join("clock");
    fs::write(&clock, "+0\n").unwrap();
    let metrics = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
    command.args(["run", "--log-format", "json", "--metrics", &format!("127.0.0.1:{metrics}"), "--kubeconfig"]);
    command.arg(way.kubeconfig());
    common::up::with_clock(&mut command, &clock);
    let replica = Replica { process: Up::begin(command, "Starting CertRotation"), metrics };
    soon("it is ready", || replica.is_ready());
    for (ahead, days) in [("+20d", 20_i64), ("+0", 0), ("+400d", 400), ("+0", 0), ("-400d", -400), ("+0", 0)] {
        fs::write(&clock, format!("{ahead}\n")).unwrap();
        // A pass starts after a change, or else after a minute.
        let mut number = 0;
        soon("its metrics tell the skew", || {
            number += 1;
            let note = format!("test/number=number-{number} test/clock=days{days}");
            cluster.admin.kubectl(&format!("annotate secret {SECRET} -n openshift-kube-apiserver {note} --overwrite"));
            replica.skew().is_some_and(|it| (it - days * 86_400).abs() < 60)
        });
    }
    assert!(replica.process.stop("-TERM").success());
    let name = format!("openshift-kube-apiserver/{SECRET}");
    let others =
        |all: BTreeMap<String, String>| all.into_iter().filter(|(it, _)| *it != name).collect::<BTreeMap<_, _>>();
    assert_eq!(others(cluster.versions()), others(before));
    let (is_accepted, output) = cluster.openssl_accepts("+0");
    assert!(is_accepted, "{output}");
}

#[test]
fn a_clock_is_shifted_although_a_killed_process_with_the_same_id_left_its_semaphore() {
    const DAYS: i64 = 400;
    let mut shifted = Command::new("date");
    shift_clock(&mut shifted, &format!("+{DAYS}d"));
    let variables = shifted.get_envs().map(|(name, value)| format!("{}={}", name.display(), value.unwrap().display()));
    let mut shell = Command::new("sh");
    // `exec` keeps the process id of the shell, which is in the names of the files.
    let leave = "for file in faketime_shm_$$ sem.faketime_sem_$$; do head -c 32 /dev/zero > /dev/shm/$file; done";
    shell.args(["-c", &format!("{leave}; exec env \"$@\""), "sh"]).args(variables).args(["date", "+%s"]);
    let child = shell.stdout(Stdio::piped()).spawn().unwrap();
    let id = child.id();
    let output = child.wait_with_output().unwrap();
    for file in [format!("faketime_shm_{id}"), format!("sem.faketime_sem_{id}")] {
        _ = fs::remove_file(Path::new("/dev/shm").join(file));
    }
    assert!(output.status.success(), "{output:?}");
    let seconds = |text: Vec<u8>| String::from_utf8(text).unwrap().trim().parse::<i64>().unwrap();
    let now = seconds(Command::new("date").arg("+%s").output().unwrap().stdout);
    let ahead = seconds(output.stdout) - now;
    assert!((ahead - DAYS * 24 * 3600).abs() < 60, "{ahead} s");
}
