//! Tests `perennial up` on a machine whose clock is or was wrong: the server always accepts its user.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod up;
}

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use common::up::{Up, directory, up, with_clock};

/// The content of a kubeconfig, as files for curl.
struct Credentials {
    server: String,
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Credentials {
    /// Reads the current kubeconfig.
    fn read(kubeconfig: &Path, directory: &Path, name: &str) -> Credentials {
        let text = fs::read_to_string(kubeconfig).unwrap();
        let field = |field: &str| {
            let line =
                text.lines().find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(&format!("{field}: ")));
            line.unwrap_or_else(|| panic!("no {field} in {text}")).trim_matches('"').to_owned()
        };
        let file = |field_name: &str| {
            let path = directory.join(format!("{name}-{field_name}"));
            fs::write(&path, BASE64_STANDARD.decode(field(field_name)).unwrap()).unwrap();
            path
        };
        Credentials {
            server: field("server"),
            authority: file("certificate-authority-data"),
            certificate: file("client-certificate-data"),
            key: file("client-key-data"),
        }
    }

    /// Connects with curl and the clock in this file. Client and server verify each other.
    fn is_accepted(&self, server: &str, clock: &Path) -> Result<(), String> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--fail", "--max-time", "20"]);
        curl.arg("--cacert").arg(&self.authority).arg("--cert").arg(&self.certificate).arg("--key").arg(&self.key);
        curl.arg(format!("{server}/api/v1/namespaces/default"));
        with_clock(&mut curl, clock);
        let output = curl.output().unwrap();
        match output.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// A data directory, and the clock of its server and clients.
struct Machine {
    data: PathBuf,
    clock: PathBuf,
    top: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let top = directory();
        let machine = Machine { data: top.path().join("data"), clock: top.path().join("clock"), top };
        machine.set("+0");
        machine
    }

    fn set(&self, clock: &str) {
        // Replaces the file by a rename, because another process may read it.
        let new = self.top.path().join("new-clock");
        fs::write(&new, format!("{clock}\n")).unwrap();
        fs::rename(new, &self.clock).unwrap();
    }

    fn up(&self) -> Up {
        let mut command = up(&self.data, &[]);
        with_clock(&mut command, &self.clock);
        Up::run(command, &self.data)
    }

    fn credentials(&self, name: &str) -> Credentials {
        Credentials::read(&self.data.join("kubeconfig"), self.top.path(), name)
    }

    /// Returns whether the server accepts the user with the current kubeconfig.
    fn is_accepted(&self) -> Result<(), String> {
        let now = self.credentials("now");
        now.is_accepted(&now.server, &self.clock)
    }
}

#[test]
fn the_user_is_accepted_with_any_clock_and_gets_a_warning() {
    let machine = Machine::new();
    let first = machine.up();
    assert_eq!(machine.is_accepted(), Ok(()));
    assert!(!first.output.contains("THE CLOCK"), "{}", first.output);
    let original = machine.credentials("original");
    assert!(first.stop("-TERM").success());
    let mut is_doubted = false;
    for clock in ["+20d", "+0", "+400d", "+0", "+4000d", "+0", "-400d", "+0", "-1d", "+0"] {
        machine.set(clock);
        let running = machine.up();
        assert_eq!(machine.is_accepted(), Ok(()), "{clock}: {}", running.output);
        // A copy of the first kubeconfig is accepted whenever its certificate is valid by the clock.
        let now = machine.credentials("address");
        if clock == "+0" {
            let (certificate, key) = (original.certificate.clone(), original.key.clone());
            let mixed = Credentials { server: now.server, authority: now.authority, certificate, key };
            assert_eq!(mixed.is_accepted(&mixed.server, &machine.clock), Ok(()), "after {clock}");
        }
        if ["+400d", "-400d"].contains(&clock) {
            assert!(running.output.contains("THE CLOCK IS WRONG, OR WAS WRONG BEFORE"), "{clock}: {}", running.output);
            assert!(running.output.contains("the latest time seen in this directory is 20"), "{}", running.output);
            is_doubted = true;
        }
        assert!(running.stop("-TERM").success(), "{clock}");
    }
    assert!(is_doubted);
}

#[test]
fn a_cluster_created_with_a_wrong_clock_accepts_its_user_when_the_clock_is_correct() {
    for clock in ["+400d", "-400d"] {
        let machine = Machine::new();
        machine.set(clock);
        let running = machine.up();
        assert_eq!(machine.is_accepted(), Ok(()), "{clock}");
        assert!(running.stop("-TERM").success());
        machine.set("+0");
        let running = machine.up();
        assert_eq!(machine.is_accepted(), Ok(()), "{clock}, and right again: {}", running.output);
        assert!(running.output.contains("THE CLOCK IS WRONG, OR WAS WRONG BEFORE"), "{clock}: {}", running.output);
        assert!(running.stop("-TERM").success());
    }
}

#[test]
fn a_clock_jump_locks_out_no_user() {
    let machine = Machine::new();
    machine.set("+400d");
    let running = machine.up();
    assert_eq!(machine.is_accepted(), Ok(()));
    for clock in ["+0", "+20d", "+0", "-400d", "+0"] {
        machine.set(clock);
        let deadline = Instant::now() + Duration::from_secs(45);
        while let Err(why) = machine.is_accepted() {
            assert!(Instant::now() < deadline, "{clock}: {why}");
            std::thread::sleep(Duration::from_millis(500));
        }
    }
    assert!(running.stop("-TERM").success());
}
