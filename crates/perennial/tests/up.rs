//! Tests `perennial up`: its directory, start, restart and stop.

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
fn up_needs_only_a_directory_which_is_private() {
    let top = directory();
    let data = top.path().join("data");
    let running = Up::start(&data, &[]);
    assert!(running.output.starts_with("Perennial is up at https://127.0.0.1:"), "{}", running.output);
    assert!(running.output.contains("(new)"));
    assert_eq!(running.output.lines().filter(|line| line.starts_with("  kubectl ")).count(), 3);
    assert_eq!(mode(&data), 0o700);
    for file in ["kubeconfig", "token", "perennial.db"] {
        assert_eq!(mode(&data.join(file)), 0o600, "{file}");
    }
    assert!(running.stop("-INT").success());
}

#[test]
fn up_makes_readable_files_private() {
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
fn a_second_server_on_the_same_directory_fails() {
    let top = directory();
    let data = top.path().join("data");
    let running = Up::start(&data, &[]);
    let second = up(&data, &[]).output().unwrap();
    let output = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(output.contains("is in use by another perennial up"), "{output}");
    assert!(running.stop("-TERM").success());
}

#[test]
fn until_ready_exits_and_the_next_start_continues() {
    let top = directory();
    let data = top.path().join("data");
    let ready = up(&data, &["--until-ready"]).output().unwrap();
    assert!(ready.status.success(), "{}", String::from_utf8_lossy(&ready.stderr));
    let before = parts(&data);
    let running = Up::start(&data, &[]);
    assert!(running.output.contains("(existing)"), "{}", running.output);
    let after = parts(&data);
    // The port may differ; the credentials stay the same.
    assert_eq!(before["client-certificate-data"], after["client-certificate-data"]);
    assert_eq!(before["certificate-authority-data"], after["certificate-authority-data"]);
    assert!(running.stop("-INT").success());
}

#[test]
fn up_stops_during_its_start_and_the_next_start_continues() {
    let top = directory();
    let data = top.path().join("data");
    let begun = Up::begin(up(&data, &[]), "issuing the certificates of a new cluster");
    assert!(begun.stop("-TERM").success());
    assert!(!data.join("kubeconfig").exists(), "it was not up yet");
    let begun = Up::begin(up(&data, &["--until-ready", "--node", "n=10.0.0.4"]), "changed:");
    assert_eq!(begun.stop("-INT").code(), Some(1), "the command fails because it is not ready");
    let running = Up::start(&data, &[]);
    assert!(running.output.contains("(existing)"), "{}", running.output);
    assert!(running.stop("-INT").success());
}

#[test]
fn once_fails_while_another_operator_leads() {
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
    let output = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(output.contains("another operator may lead: leader_"), "{output}");
    assert!(leader.stop("-TERM").success());
    assert!(run(&["--once"]).output().unwrap().status.success(), "the Lease was released, twice");
}

#[test]
fn invalid_flags_are_rejected_before_the_directory_is_created() {
    let top = directory();
    let data = top.path().join("data");
    for (arguments, expected) in [
        (["--node", "N=10.0.0.4"], "is not a DNS name"),
        (["--node", "n"], "expected NAME=IP"),
        (["--api-url", "http://api.example.com"], "accepted is https://HOST"),
        (["--service-network", "10.0.0.0/16,10.1.0.0/16"], "one IPv4 and one IPv6"),
        (["--cluster-domain", "Lab"], "is not a DNS name"),
    ] {
        let refused = up(&data, &arguments).output().unwrap();
        let output = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && output.contains(expected), "{arguments:?}: {output}");
    }
    assert!(!data.exists());
    fs::write(top.path().join("letter"), "dear").unwrap();
    let refused = up(top.path(), &[]).output().unwrap();
    let output = String::from_utf8(refused.stderr).unwrap();
    assert!(output.contains("choose a new or empty directory"), "{output}");
}

#[test]
fn the_certificates_of_the_server_are_rows_of_the_catalog() {
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
fn a_failed_start_removes_its_files() {
    let top = directory();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let fails = |data: &Path, arguments: &[&str]| {
        let failed = up(data, arguments).output().unwrap();
        let output = String::from_utf8(failed.stderr).unwrap();
        assert_eq!(failed.status.code(), Some(1), "{output}");
        assert!(output.contains(&taken) && output.contains(" chooses another address"), "{output}");
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
    // Existing files stay.
    assert!(up(&used, &["--until-ready"]).output().unwrap().status.success());
    let before = parts(&used);
    fails(&used, &["--listen", &taken]);
    assert_eq!(parts(&used), before);
    assert!(Up::start(&used, &[]).output.contains("(existing)"));
}

#[test]
fn up_logs_its_start_and_tests_its_crypto() {
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
        "created the initial objects of the cluster",
        "crypto test passed",
        "issuing the certificates of a new cluster",
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

/// The first field of this name in a log of JSON lines.
fn log_field(running: &Up, field: &str) -> String {
    let lines = running.output.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    lines.into_iter().find_map(|line| line[field].as_str().map(ToOwned::to_owned)).unwrap()
}

/// Returns the answer of a server without TLS.
fn ask(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
#[expect(clippy::print_stderr, reason = "says why nothing is judged")]
fn a_full_disk_is_reported_by_readyz_of_the_api_and_of_the_metrics_port() {
    let top = directory();
    let [data, small] = ["data", "small"].map(|name| top.path().join(name));
    assert!(up(&data, &["--until-ready"]).output().unwrap().status.success());
    fs::create_dir(&small).unwrap();
    // A separate disk in a separate mount namespace, which does not need root.
    let in_small = |script: &str| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c"]);
        command.arg(format!("mount -t tmpfs -o size=24m,mode=0700 none {0} && {script}", small.display()));
        command
    };
    if !in_small("true").output().is_ok_and(|output| output.status.success()) {
        assert!(
            std::env::var_os("PERENNIAL_ALLOW_SKIP").is_some(),
            "this test mounts a disk of its own, and the system does not allow that: run the tests as root, allow it with \
             `sysctl -w kernel.unprivileged_userns_clone=1 kernel.apparmor_restrict_unprivileged_userns=0`, or skip the test \
             with PERENNIAL_ALLOW_SKIP=1"
        );
        eprintln!("SKIPPED: the system does not let users mount a disk of their own");
        return;
    }
    let mut command = in_small("cp -a \"$0\" \"$1/data\" && shift && exec \"$@\"");
    let program = up(&small.join("data"), &["--log-format", "json"]);
    command.arg(&data).arg(&small).arg(program.get_program()).args(program.get_args());
    let running = Up::begin(command, "serving the Kubernetes API");
    let metrics =
        log_field(&running, "url").strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
    let api = format!("https://{}", log_field(&running, "address"));
    let token = format!("Authorization: Bearer {}", fs::read_to_string(data.join("token")).unwrap());
    let curl = |arguments: &[&str]| {
        let common = ["--insecure", "--silent", "--write-out", "\n%{http_code}", "--max-time", "60"];
        let output = Command::new("curl").args(common).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(ask(&metrics, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(curl(&[&format!("{api}/readyz")]).ends_with("\n200"));

    let body = top.path().join("map.json");
    let maps = format!("{api}/api/v1/namespaces/default/configmaps");
    let made = (0..40).find(|number| {
        let map = serde_json::json!({
            "metadata": {"name": format!("m{number}")}, "data": {"k": "x".repeat(1_000_000)},
        });
        fs::write(&body, map.to_string()).unwrap();
        let data = format!("@{}", body.display());
        let output = curl(&["-H", &token, "-H", "Content-Type: application/json", "--data-binary", &data, &maps]);
        output.ends_with("\n507")
    });
    let made = made.expect("a disk of 24 MiB is full at some time");
    let of_api = curl(&[&format!("{api}/readyz")]);
    let of_metrics = ask(&metrics, "/readyz");
    assert!(of_api.ends_with("\n500") && of_metrics.starts_with("HTTP/1.1 503"), "{of_api} {of_metrics}");
    for output in [of_api, of_metrics] {
        assert!(output.contains("[-]storage failed: no space on the disk of the database"), "{output}");
    }
    assert!(ask(&metrics, "/livez").starts_with("HTTP/1.1 200"));

    // Deletions free space, and the next successful write makes the server ready again.
    for number in 0..made {
        let output = curl(&["-H", &token, "-X", "DELETE", &format!("{maps}/m{number}")]);
        assert!(output.ends_with("\n200"), "{output}");
    }
    let map = r#"{"metadata": {"name": "after"}}"#;
    let output = curl(&["-H", &token, "-H", "Content-Type: application/json", "--data-binary", map, &maps]);
    assert!(output.ends_with("\n201"), "{output}");
    assert!(ask(&metrics, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(running.stop("-TERM").success());
}

#[test]
fn up_serves_the_metrics_of_the_operator() {
    let top = directory();
    let command = up(&top.path().join("data"), &["--log-format", "json"]);
    let running = Up::begin(command, "serving the Kubernetes API");
    let address =
        log_field(&running, "url").strip_prefix("http://").unwrap().strip_suffix("/metrics").unwrap().to_owned();
    let ask = |path: &str| ask(&address, path);
    let metrics = ask("/metrics");
    // Certificates of the first pass are counted, too.
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

/// Returns the status code of the API for this token.
fn code_for(up: &Up, token: &str) -> String {
    let address = up.output.split_whitespace().find(|word| word.starts_with("https://")).unwrap();
    let header = format!("Authorization: Bearer {token}");
    let url = format!("{address}/api/v1/namespaces");
    let arguments =
        ["--insecure", "--silent", "--output", "/dev/null", "--write-out", "%{http_code}", "-H", &header, &url];
    let output = Command::new("curl").args(arguments).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_rotated_token_replaces_the_previous_one() {
    let top = directory();
    let data = top.path().join("data");
    let token = || fs::read_to_string(data.join("token")).unwrap();
    let running = Up::start(&data, &[]);
    let first = token();
    assert_eq!(code_for(&running, &first), "200");
    assert!(running.stop("-INT").success());
    let running = Up::start(&data, &["--rotate-token"]);
    let second = token();
    assert_ne!(first, second);
    assert_eq!((code_for(&running, &first), code_for(&running, &second)), ("401".to_owned(), "200".to_owned()));
    assert!(running.stop("-INT").success());
    // Without the flag, the token stays.
    let running = Up::start(&data, &[]);
    assert_eq!(token(), second);
    assert!(running.stop("-INT").success());
}

#[test]
fn files_that_another_user_could_have_written_are_rejected_and_unchanged() {
    let top = directory();
    let data = top.path().join("data");
    assert!(up(&data, &["--until-ready"]).output().unwrap().status.success());
    let refused = |expected: &str| {
        let output = up(&data, &["--until-ready"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && error.contains(expected), "{expected}: {error}");
    };
    let open = |path: &Path, mode: u32| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    let token = data.join("token");
    open(&token, 0o666);
    refused("token has mode 0666, so other users can write to it");
    assert_eq!(mode(&token), 0o666, "nothing is changed");
    open(&token, 0o600);
    open(&data, 0o777);
    refused("data has mode 0777");
    assert_eq!(mode(&data), 0o777);
    open(&data, 0o700);
    let kept = top.path().join("kept");
    fs::rename(&token, &kept).unwrap();
    std::os::unix::fs::symlink(&kept, &token).unwrap();
    refused("token is a symbolic link");
    fs::remove_file(&token).unwrap();
    fs::rename(&kept, &token).unwrap();
    assert!(up(&data, &["--until-ready"]).output().unwrap().status.success());
}
