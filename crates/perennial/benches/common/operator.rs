//! `perennial run` as a process, and what it uses.

use std::fs;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::admin::Administrator;

/// It ends with the bench.
pub(crate) struct Operator(Child);

impl Operator {
    /// On the administrator's cluster, with these arguments besides.
    pub(crate) fn start(admin: &Administrator, arguments: &[&str]) -> Operator {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        command.args(["run", "--metrics", "127.0.0.1:0"]).args(arguments).env("KUBECONFIG", admin.kubeconfig());
        Operator(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }

    pub(crate) fn signal(&self, signal: &str) {
        let _ = Command::new("kill").args([signal, &self.0.id().to_string()]).status();
    }

    /// What it has used of the processors so far.
    pub(crate) fn processor_time(&self) -> Duration {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        // The name may have spaces in it; what comes behind it has none.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: u64 = [11, 12].into_iter().map(|field: usize| fields[field].parse::<u64>().unwrap()).sum();
        // Linux counts in hundredths of a second, whatever the kernel does.
        Duration::from_millis(ticks * 10)
    }

    /// In MiB.
    pub(crate) fn resident(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").trim().parse::<f64>().unwrap() / 1024.0
    }
}

impl Drop for Operator {
    fn drop(&mut self) {
        // As an administrator stops it, so that the next one need not wait for its lease.
        self.signal("-TERM");
        let _ = self.0.wait();
    }
}
