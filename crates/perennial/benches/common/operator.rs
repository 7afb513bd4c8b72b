//! A `perennial run` process, and its processor time and memory.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::admin::Administrator;

/// An operator that stops with the bench.
pub(crate) struct Operator(Child);

impl Operator {
    /// Starts an operator on the administrator's cluster, with additional arguments.
    pub(crate) fn start(admin: &Administrator, arguments: &[&str]) -> Operator {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        command.args(["run", "--metrics", "127.0.0.1:0"]).args(arguments).env("KUBECONFIG", admin.kubeconfig());
        Operator(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let _ = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
    }

    /// Returns the used processor time.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        // The process name may contain spaces; the fields after it do not.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = [11, 12].into_iter().map(|field: usize| fields[field].parse::<u64>().unwrap()).sum();
        // Linux reports hundredths of a second, independent of the kernel's tick.
        Duration::from_millis(ticks * 10)
    }

    /// Returns the resident memory in MiB.
    pub(crate) fn resident(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // SIGTERM, so that the operator releases its Lease.
        self.signal("-TERM");
        let _ = self.0.wait();
    }
}
