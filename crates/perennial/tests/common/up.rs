//! A `perennial up` process on a free port that stops with the test.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running control plane, or another command.
pub(crate) struct Up {
    child: Child,
    /// The output until the server was up.
    pub(crate) output: String,
    directory: PathBuf,
}

impl Up {
    /// Starts a server with this directory, and waits until it is up.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Up {
        Up::run(up(directory, arguments), directory)
    }

    /// Starts this command with this directory, and waits until it is up.
    pub(crate) fn run(mut command: Command, directory: &Path) -> Up {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        // The last line of the start message.
        let output = output_until(child.stdout.take().unwrap(), "--watch");
        Up { child, output, directory: directory.to_owned() }
    }

    /// Starts another command, and waits for this text on stderr.
    pub(crate) fn begin(mut command: Command, wanted: &str) -> Up {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let output = output_until(child.stderr.take().unwrap(), wanted);
        Up { child, output, directory: PathBuf::new() }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, and waits until the process has ended.
    pub(crate) fn stop(mut self, signal: &str) -> ExitStatus {
        let sent = Command::new("kill").args([signal, &self.child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns the output up to this text, and then discards the rest.
fn output_until(from: impl Read + Send + 'static, wanted: &str) -> String {
    let mut lines = BufReader::new(from);
    let mut output = String::new();
    while !output.contains(wanted) {
        let count = lines.read_line(&mut output).unwrap();
        assert_ne!(count, 0, "it ended: {output}");
    }
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    output
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the command that starts a server.
pub(crate) fn up(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
    command.arg("up").arg("--data-dir").arg(directory).args(arguments);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    // Other tests use the default port of metrics, too; --until-ready has no metrics.
    if !arguments.iter().any(|it| it.starts_with("--metrics") || *it == "--until-ready") {
        command.args(["--metrics", "127.0.0.1:0"]);
    }
    command
}

/// Returns a directory for a server and the caches of its clients.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Sets the clock of a command to the offset in a file, such as `+400d`. The command notices changes of the file.
pub(crate) fn with_clock(command: &mut Command, file: &Path) {
    command
        .env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1")
        .env("FAKETIME_TIMESTAMP_FILE", file)
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}
