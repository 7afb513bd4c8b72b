//! A `perennial run` process that stops with the test.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use super::admin::Administrator;

/// A running operator.
pub(crate) struct Operator {
    child: Child,
    log: PathBuf,
}

impl Operator {
    /// Starts an operator with exactly the rights of the service account in this namespace.
    pub(crate) fn start(admin: &Administrator, namespace: &str, arguments: &[&str], directory: &Path) -> Operator {
        let token = admin.kubectl(&format!("create token perennial -n {namespace}"));
        let mut config: Value = serde_json::from_str(&admin.kubectl("config view --raw -o json")).unwrap();
        config["users"][0]["user"] = json!({"token": token});
        let kubeconfig = directory.join("account.kubeconfig");
        fs::write(&kubeconfig, config.to_string()).unwrap();
        Operator::with(&kubeconfig, arguments, directory)
    }

    /// Starts an operator with this kubeconfig.
    pub(crate) fn with(kubeconfig: &Path, arguments: &[&str], directory: &Path) -> Operator {
        let log = directory.join("operator.log");
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        command.args(["run", "--metrics", "127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log).unwrap());
        Operator { child: command.spawn().unwrap(), log }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    /// Checks that the API server has denied no request.
    pub(crate) fn had_its_rights(&self) {
        let log = self.log();
        assert!(log.contains("INFO"), "{log}");
        assert!(!log.to_lowercase().contains("forbidden"), "{log}");
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
