//! Independent readers of Perennial's output: promtool, kubectl, Graphviz and the openssl command line.

use std::{path::Path, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{ToolError, kubernetes, tools};

/// Checks a page of metrics with promtool, which fails on what Prometheus cannot parse and on unconventional names.
pub fn promtool_check_metrics(text: &str) -> Result<(), ToolError> {
    tools::ask(Command::new("promtool").args(["check", "metrics"]), text.as_bytes()).map(drop)
}

/// Returns a kubeconfig as kubectl reads it, with keys and certificates.
pub fn kubectl_view(kubeconfig: &Path) -> Result<serde_json::Value, ToolError> {
    let mut kubectl = Command::new(kubernetes::program("kubectl")?);
    kubectl.args(["config", "view", "--raw", "--output", "json", "--kubeconfig"]).arg(kubeconfig);
    let answer = tools::ask(&mut kubectl, b"")?;
    serde_json::from_str(&answer).map_err(|_| ToolError::garbled("kubectl config view", "JSON", answer))
}

/// Lays out a graph with Graphviz, and returns the SVG.
pub fn graphviz_svg(dot: &str) -> Result<String, ToolError> {
    tools::ask(Command::new("dot").arg("-Tsvg"), dot.as_bytes())
}

/// Parses an XML document with Python, and returns the names of its elements, in order.
pub fn xml_elements(document: &str) -> Result<Vec<String>, ToolError> {
    let script = "import sys, xml.etree.ElementTree as e\n\
                  [print(n.tag.split('}')[-1]) for n in e.fromstring(sys.stdin.buffer.read()).iter()]";
    let answer = tools::ask(Command::new("python3").args(["-c", script]), document.as_bytes())?;
    Ok(answer.lines().map(str::to_owned).collect())
}

/// Returns a PEM certificate as `openssl x509 -text` prints it.
pub fn openssl_x509_text(pem: &str) -> Result<String, ToolError> {
    tools::ask(Command::new("openssl").args(["x509", "-noout", "-text"]), pem.as_bytes())
}

/// Checks the private key in a PEM file with OpenSSL, and returns its output for the public part.
pub fn openssl_pkey_check(key: &Path) -> Result<String, ToolError> {
    // -noout keeps the private key out of the output of a failing test.
    tools::ask(Command::new("openssl").args(["pkey", "-noout", "-check", "-text_pub", "-in"]).arg(key), b"")
}

/// Returns DER as PEM.
pub fn pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
