//! A `perennial up` of its own for a test, on a free port, which ends with the test.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running control plane, or another command.
pub(crate) struct Up {
    child: Child,
    /// What it printed until it was up.
    pub(crate) said: String,
    directory: PathBuf,
}

impl Up {
    /// Starts it on this directory, and waits until it is up.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Up {
        let mut command = up(directory, arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        // The last thing that it says is the third thing to try.
        let said = heard(child.stdout.take().unwrap(), "--watch");
        Up { child, said, directory: directory.to_owned() }
    }

    /// Starts any other command, and waits until it says this on its standard error.
    pub(crate) fn begin(mut command: Command, wanted: &str) -> Up {
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let said = heard(child.stderr.take().unwrap(), wanted);
        Up { child, said, directory: PathBuf::new() }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.directory.join("kubeconfig")
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, and waits for the end.
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

/// What is said until this is; nobody listens after it.
fn heard(from: impl Read + Send + 'static, wanted: &str) -> String {
    let mut lines = BufReader::new(from);
    let mut said = String::new();
    while !said.contains(wanted) {
        let count = lines.read_line(&mut said).unwrap();
        assert_ne!(count, 0, "it ended: {said}");
    }
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
    said
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that starts one.
pub(crate) fn up(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
    command.arg("up").arg("--data-dir").arg(directory).args(arguments);
    if !arguments.contains(&"--listen") {
        command.args(["--listen", "127.0.0.1:0"]);
    }
    // Others listen on the usual port, too; who is not up for long has no metrics.
    if !arguments.iter().any(|it| it.starts_with("--metrics") || *it == "--until-ready") {
        command.args(["--metrics", "127.0.0.1:0"]);
    }
    command
}

/// A directory for one, and for the caches of its clients.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}
