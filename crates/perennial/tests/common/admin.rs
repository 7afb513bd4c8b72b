//! An administrator at a terminal, with kubectl and perennial.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use perennial_testbed::kubernetes::program;
use serde_json::{Value, json};

/// Who has a kubeconfig.
pub(crate) struct Administrator {
    kubeconfig: PathBuf,
    cache: PathBuf,
}

/// What a command said.
pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

impl Administrator {
    /// With this kubeconfig, and a directory for what kubectl keeps.
    pub(crate) fn new(kubeconfig: PathBuf, directory: &Path) -> Administrator {
        // What kubectl knows of a server goes by address, and ports come again.
        Administrator { kubeconfig, cache: directory.join("cache") }
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// What kubectl says where it succeeds.
    pub(crate) fn kubectl(&self, words: &str) -> String {
        self.kubectl_with(words, "")
    }

    pub(crate) fn kubectl_with(&self, words: &str, input: &str) -> String {
        let words: Vec<&str> = words.split_whitespace().collect();
        let said = self.kubectl_words(&words, input);
        assert_eq!(said.code, Some(0), "kubectl {words:?}: {}", said.err);
        said.out.trim().to_owned()
    }

    pub(crate) fn kubectl_words(&self, words: &[&str], input: &str) -> Said {
        let mut kubectl = Command::new(program("kubectl").unwrap_or_else(|error| panic!("{error}")));
        kubectl.env("KUBECONFIG", &self.kubeconfig).env("KUBECACHEDIR", &self.cache).args(words);
        let mut child = kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        said(child.wait_with_output().unwrap())
    }

    /// Makes every namespace in which something is kept.
    pub(crate) fn make_namespaces(&self) {
        let manifests = self.perennial(&["manifests"]).out;
        let named = manifests.lines().filter_map(|line| line.strip_prefix("  namespace: "));
        for namespace in named.filter(|name| !["default", "kube-system"].contains(name)).collect::<BTreeSet<_>>() {
            self.kubectl(&format!("create namespace {namespace}"));
        }
    }

    /// Gives a new cluster definitions, namespaces, addresses and a node of the control plane.
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

    /// What perennial says about the cluster when its clock is ahead by so much, such as `+20h`: one number and one unit.
    pub(crate) fn perennial_later(&self, ahead: &str, arguments: &[&str]) -> Said {
        let mut command = Command::new("faketime");
        command.args(["-f", ahead, env!("CARGO_BIN_EXE_perennial")]).args(arguments);
        // It still waits as long as it waits.
        command.env("FAKETIME_DONT_FAKE_MONOTONIC", "1").env("KUBECONFIG", &self.kubeconfig);
        said(command.output().unwrap())
    }

    /// What perennial says about the cluster.
    pub(crate) fn perennial(&self, arguments: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_perennial"));
        said(command.args(arguments).env("KUBECONFIG", &self.kubeconfig).output().unwrap())
    }
}

fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    Said { out: text(output.stdout), err: text(output.stderr), code: output.status.code() }
}
