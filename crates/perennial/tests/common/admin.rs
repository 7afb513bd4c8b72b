//! An administrator with kubectl and perennial.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use perennial_testbed::kubernetes::program;
use serde_json::{Value, json};

/// A user with a kubeconfig.
pub(crate) struct Administrator {
    kubeconfig: PathBuf,
    cache: PathBuf,
}

/// The output of a command.
pub(crate) struct CommandOutput {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

impl Administrator {
    /// Returns an administrator with this kubeconfig and a cache directory for kubectl.
    pub(crate) fn new(kubeconfig: PathBuf, directory: &Path) -> Administrator {
        // kubectl caches discovery by address, and ports are reused.
        Administrator { kubeconfig, cache: directory.join("cache") }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl, which must succeed, and returns its output.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        self.kubectl_with(words, "")
    }

    pub(crate) fn kubectl_with(&self, words: &str, input: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        let output = self.kubectl_words(&words, input);
        assert_eq!(output.code, Some(0), "kubectl {words:?}: {}", output.err);
        output.out.trim().to_owned()
    }

    pub(crate) fn kubectl_words(&self, words: &[&str], input: &str) -> CommandOutput {
        let mut kubectl = Command::new(program("kubectl").unwrap_or_else(|error| panic!("{error}")));
        kubectl.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache).args(words);
        let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        command_output(child.wait_with_output().unwrap())
    }

    /// Creates all namespaces of the catalog.
    pub(crate) fn make_namespaces(&self) {
        let manifests = self.perennial(&["manifests"]).out;
        let named = manifests.lines().filter_map(|line| line.strip_prefix("  namespace: "));
        for namespace in named.filter(|name| !["default", "kube-system"].contains(name)).collect::<BTreeSet<_>>() {
            self.kubectl(&format!("create namespace {namespace}"));
        }
    }

    /// Creates definitions, namespaces, addresses and a control-plane node.
    pub(crate) fn prepare_cluster(&self) {
        self.kubectl_with("apply -f -", &self.perennial(&["crds"]).out);
        for kind in ["pkis", "infrastructures", "networks"] {
            self.kubectl(&format!("wait --for=condition=Established crd/{kind}.config.openshift.io --timeout=60s"));
        }
        self.make_namespaces();
        let config = |kind: &str, spec: Value| {
            let metadata = json!({"name": "cluster"});
            json!({"apiVersion": "config.openshift.io/v1", "kind": kind, "metadata": metadata, "spec": spec})
                .to_string()
        };
        self.kubectl_with("apply -f -", &config("Infrastructure", json!({})));
        self.kubectl_with("apply -f -", &config("Network", json!({"serviceNetwork": ["172.30.0.0/16"]})));
        let status = json!({"status": {
            "apiServerURL": "https://api.shop.example.com:6443",
            "apiServerInternalURI": "https://api-int.shop.example.com:6443",
        }});
        let to =
            ["patch", "infrastructure", "cluster", "--subresource=status", "--type=merge", "-p", &status.to_string()];
        let patched = self.kubectl_words(&to, "");
        assert_eq!(patched.code, Some(0), "{}", patched.err);
        let labels = json!({"node-role.kubernetes.io/control-plane": ""});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "cp-0", "labels": labels}});
        self.kubectl_with("apply -f -", &node.to_string());
    }

    /// Runs perennial with a shifted clock, such as `+20h`: one number and one unit.
    pub(crate) fn perennial_later(&self, kubeconfig: &Path, ahead: &str, arguments: &[&str]) -> CommandOutput {
        command_output(perennial_at(ahead).args(arguments).env("KUBECONFIG", kubeconfig).output().unwrap())
    }

    /// Runs perennial on the cluster.
    pub(crate) fn perennial(&self, arguments: &[&str]) -> CommandOutput {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        command_output(command.args(arguments).env("KUBECONFIG", &self.kubeconfig).output().unwrap())
    }
}

/// Returns perennial with a shifted wall clock. The monotonic clock is not changed.
pub(crate) fn perennial_at(ahead: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
    shift_clock(&mut command, ahead);
    command
}

/// Shifts the wall clock of a command, such as by `+20h`: one number and one unit. The monotonic clock is not changed.
///
/// The program `faketime` is not used: it would stay as a parent process and would not pass on signals. It also fails if a killed process
/// with the same id left its semaphore; the library continues without the semaphore.
pub(crate) fn shift_clock(command: &mut Command, ahead: &str) {
    // The loader replaces `$LIB` with the directory of libraries, such as `lib/x86_64-linux-gnu` or `lib64`.
    command.env("LD_PRELOAD", "/usr/$LIB/faketime/libfaketimeMT.so.1").env("FAKETIME", ahead);
    command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
}

fn command_output(output: Output) -> CommandOutput {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    CommandOutput { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
}
