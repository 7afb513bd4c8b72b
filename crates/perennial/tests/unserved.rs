//! Tests commands against a server that rejects requests, is silent or is not an API server: they fail in time, with address and cause.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// The behaviour of a test server.
#[derive(Clone, Copy)]
enum Answer {
    Says(&'static str),
    Nothing,
}

/// The kubeconfig of a test server, and its address.
struct Cluster {
    directory: TempDir,
    address: SocketAddr,
}

impl Cluster {
    fn new(answer: Answer) -> Cluster {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let cluster = Cluster::at(listener.local_addr().unwrap());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                std::thread::spawn(move || serve(stream.unwrap(), answer));
            }
        });
        cluster
    }

    fn at(address: SocketAddr) -> Cluster {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
             clusters: [{{name: one, cluster: {{server: 'http://{address}'}}}}]\n\
             contexts: [{{name: one, context: {{cluster: one, user: one}}}}]\nusers: [{{name: one, user: {{token: any}}}}]\n"
        );
        fs::write(directory.path().join("kubeconfig"), config).unwrap();
        Cluster { directory, address }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        command.args(words).arg("--kubeconfig").arg(self.directory.path().join("kubeconfig"));
        command
    }

    /// Runs a command, which must fail in time, and returns its error.
    fn fails(&self, words: &[&str]) -> String {
        let began = Instant::now();
        let output = self.command(words).args(["--request-timeout", "2s"]).output().unwrap();
        // The start of a process takes a while on a busy machine.
        assert!(began.elapsed() < Duration::from_secs(12), "{words:?} took {:?}", began.elapsed());
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {err}");
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "", "{words:?}");
        assert!(err.contains(&format!("http://{}", self.address)), "{words:?}: {err}");
        err
    }
}

/// Answers the requests of a connection.
fn serve(stream: TcpStream, answer: Answer) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if stream.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        let _ = stream.read_exact(&mut body);
        match answer {
            Answer::Says(text) => drop(stream.get_mut().write_all(text.as_bytes())),
            Answer::Nothing => std::thread::sleep(Duration::from_secs(120)),
        }
    }
}

const UNAVAILABLE: &str =
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain\r\ncontent-length: 9\r\n\r\nnot ready";
const BUSY: &str = "HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
const PAGE: &str =
    "HTTP/1.1 404 Not Found\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: 6\r\n\r\n<html>";

const COMMANDS: [&[&str]; 10] = [
    &["certs"],
    &["plan"],
    &["verify"],
    &["forecast"],
    &["snapshot"],
    &["explain", "service-ca"],
    &["rotate", "service-ca", "--reason", "a test", "--yes"],
    &["distrust", "service-ca", "--reason", "a test", "--yes"],
    &["consumers", "service-ca"],
    &["run", "--once"],
];

#[test]
fn every_command_reports_the_address_and_the_error_of_the_server() {
    let cluster = Cluster::new(Answer::Says(UNAVAILABLE));
    for words in COMMANDS {
        let err = cluster.fails(words);
        assert!(err.contains("answered 503 Service Unavailable: not ready"), "{words:?}: {err}");
    }
    let cluster = Cluster::new(Answer::Says(BUSY));
    assert!(cluster.fails(&["certs"]).contains("answered 429 Too Many Requests"));
}

#[test]
fn a_silent_server_fails_after_the_request_timeout() {
    let cluster = Cluster::new(Answer::Nothing);
    for words in [COMMANDS[0], COMMANDS[9]] {
        assert!(cluster.fails(words).contains("did not answer within 2 s"));
    }
}

#[test]
fn an_unreachable_or_wrong_server_is_reported_at_once() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let cluster = Cluster::at(closed.local_addr().unwrap());
    drop(closed);
    let err = cluster.fails(&["certs"]);
    assert!(err.contains("cannot be reached") && err.contains("onnection refused"), "{err}");
    let cluster = Cluster::new(Answer::Says(PAGE));
    assert!(cluster.fails(&["certs"]).contains("answered text/html, not a Kubernetes API"));
}

#[test]
fn the_operator_logs_the_error_and_keeps_waiting() {
    let cluster = Cluster::new(Answer::Says(UNAVAILABLE));
    let mut command = cluster.command(&["run", "--metrics", "127.0.0.1:0"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let expected = format!("waiting for the API server: http://{} answered 503 Service Unavailable", cluster.address);
    // The second line shows that the operator still runs.
    for _ in 0..2 {
        assert!(lines.by_ref().any(|line| line.unwrap().contains(&expected)), "it ended");
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_request_timeout_of_zero_is_rejected() {
    for wrong in ["0s", "soon", "-1s"] {
        let output = Command::new(env!("CARGO_BIN_EXE_perennial"))
            .args(["certs", &format!("--request-timeout={wrong}")])
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong}");
    }
    let help = Command::new(env!("CARGO_BIN_EXE_perennial")).args(["certs", "--help"]).output().unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let (_, timeout) = help.split_once("--request-timeout").unwrap();
    assert!(timeout.split("\n\n").next().unwrap().contains("[default: 30s]"), "{help}");
}
