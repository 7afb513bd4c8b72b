//! Runs the real binary, and reads its files.

#![allow(dead_code, reason = "each test file uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use perennial_x509::{Certificate, PrivateKey, read_certificates};
use serde_json::Value;
use tempfile::TempDir;

/// An installation in a temporary directory.
pub(crate) struct Installation {
    temporary: TempDir,
    /// The output of `-o json`.
    pub(crate) items: Vec<Value>,
    /// The text on stderr.
    pub(crate) talk: String,
}

/// Runs `perennial` with these arguments.
pub(crate) fn perennial(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_perennial")).args(arguments).output().unwrap()
}

/// Returns stdout, stderr and exit code.
pub(crate) fn texts(output: &Output) -> (String, String, i32) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    (text(&output.stdout), text(&output.stderr), output.status.code().unwrap())
}

/// Returns an install-config of a bare-metal, dual-stack cluster, with additional lines.
pub(crate) fn config(more: &str) -> String {
    format!(
        "apiVersion: v1\nbaseDomain: example.com\nmetadata: {{name: demo}}\ncompute: [{{name: worker}}]\n\
         networking:\n  serviceNetwork: [172.30.0.0/16, 'fd02::/112']\n  machineNetwork: [{{cidr: 192.0.2.0/24}}]\n\
         platform:\n  baremetal:\n    apiVIPs: [192.0.2.5]\n    bootstrapProvisioningIP: 172.22.0.2\n{more}\n"
    )
}

/// Returns the lines that choose this key for signers.
pub(crate) fn signer_key(key: &str) -> String {
    let member = match key.split_once(' ').unwrap() {
        ("RSA", size) => format!("algorithm: RSA, rsa: {{keySize: {size}}}"),
        (_, curve) => format!("algorithm: ECDSA, ecdsa: {{curve: {curve}}}"),
    };
    format!("pki: {{signerCertificates: {{key: {{{member}}}}}}}")
}

impl Installation {
    /// Runs an installation, which must succeed.
    pub(crate) fn new(config: &str, arguments: &[&str]) -> Installation {
        let temporary = tempfile::tempdir().unwrap();
        let file = temporary.path().join("install-config.yaml");
        fs::write(&file, config).unwrap();
        let out = temporary.path().join("out");
        let fixed =
            ["install", "--install-config", file.to_str().unwrap(), "--out", out.to_str().unwrap(), "-o", "json"];
        let (stdout, talk, code) = texts(&perennial(&[&fixed, arguments].concat()));
        assert_eq!(code, 0, "{talk}");
        let listed: Value = serde_json::from_str(&stdout).unwrap();
        Installation { temporary, items: listed["items"].as_array().unwrap().clone(), talk }
    }

    /// Returns a path below the output directory.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        self.temporary.path().join("out").join(path)
    }

    /// Returns the content of a file below the output directory.
    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    }

    /// Returns the certificates in `tls/<name>.crt`.
    pub(crate) fn certificates(&self, name: &str) -> Vec<Certificate> {
        read_certificates(self.text(&format!("tls/{name}.crt")).as_bytes()).unwrap()
    }

    /// Returns the certificate with this name.
    pub(crate) fn certificate(&self, name: &str) -> Certificate {
        self.certificates(name).remove(0)
    }

    /// Returns the key with this name.
    pub(crate) fn key(&self, name: &str) -> PrivateKey {
        PrivateKey::from_pem(self.text(&format!("tls/{name}.key")).as_bytes()).unwrap()
    }

    /// Returns a manifest as JSON.
    pub(crate) fn manifest(&self, file: &str) -> Value {
        serde_norway::from_str(&self.text(&format!("manifests/{file}"))).unwrap()
    }

    /// Returns all files below the output directory.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        fn walk(directory: &Path, found: &mut Vec<PathBuf>) {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() { walk(&path, found) } else { found.push(path) }
            }
        }
        let mut found = Vec::new();
        walk(&self.path(""), &mut found);
        found.sort();
        found
    }

    /// Returns the names of the listed certificates.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.items.iter().map(|item| item["name"].as_str().unwrap()).collect()
    }
}
