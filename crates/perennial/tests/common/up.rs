//! A `perennial up` of its own for a test, on a free port, which ends with the test.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A running control plane.
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
        let mut said = String::new();
        let mut lines = BufReader::new(child.stdout.take().unwrap());
        // The last thing that it says is the third thing to try.
        while !said.contains("--watch") {
            let count = lines.read_line(&mut said).unwrap();
            assert_ne!(count, 0, "it ended: {said}");
        }
        Up { child, said, directory: directory.to_owned() }
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

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The command that starts one.
pub(crate) fn up(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
    command.arg("up").arg("--data-dir").arg(directory).args(["--listen", "127.0.0.1:0"]).args(arguments);
    command
}

/// A directory for one, and for the caches of its clients.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}
