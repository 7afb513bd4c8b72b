//! Other people's readers of what Perennial writes: promtool, kubectl, Graphviz and the openssl command line.

use std::{path::Path, process::Command};

use base64::{Engine, engine::general_purpose::STANDARD};

use crate::{ToolError, kubernetes, tools};

/// Has promtool read a page of metrics; it fails on what Prometheus cannot parse and on names against its conventions.
pub fn promtool_check_metrics(text: &str) -> Result<(), ToolError> {
    tools::ask(Command::new("promtool").args(["check", "metrics"]), text.as_bytes()).map(drop)
}

/// A kubeconfig as kubectl reads it, with keys and certificates in full.
pub fn kubectl_view(kubeconfig: &Path) -> Result<serde_json::Value, ToolError> {
    let mut kubectl = Command::new(kubernetes::program("kubectl")?);
    kubectl.args(["config", "view", "--raw", "--output", "json", "--kubeconfig"]).arg(kubeconfig);
    let answer = tools::ask(&mut kubectl, b"")?;
    serde_json::from_str(&answer).map_err(|_| ToolError::garbled("kubectl config view", "JSON", answer))
}

/// Has Graphviz lay out a graph in its language, and returns the picture as SVG.
pub fn graphviz_svg(dot: &str) -> Result<String, ToolError> {
    tools::ask(Command::new("dot").arg("-Tsvg"), dot.as_bytes())
}

/// Has Python's parser read an XML document, and returns the names of its elements, in order.
pub fn xml_elements(document: &str) -> Result<Vec<String>, ToolError> {
    let script = "import sys, xml.etree.ElementTree as e\n\
                  [print(n.tag.split('}')[-1]) for n in e.fromstring(sys.stdin.buffer.read()).iter()]";
    let answer = tools::ask(Command::new("python3").args(["-c", script]), document.as_bytes())?;
    Ok(answer.lines().map(str::to_owned).collect())
}

/// The certificate in PEM as `openssl x509 -text` prints it.
pub fn openssl_x509_text(pem: &str) -> Result<String, ToolError> {
    tools::ask(Command::new("openssl").args(["x509", "-noout", "-text"]), pem.as_bytes())
}

/// Has OpenSSL check that the private key in a PEM file is consistent, and returns what it prints of the public part.
pub fn openssl_pkey_check(key: &Path) -> Result<String, ToolError> {
    // -noout keeps the private key itself out of what a failing test prints.
    tools::ask(Command::new("openssl").args(["pkey", "-noout", "-check", "-text_pub", "-in"]).arg(key), b"")
}

/// DER in PEM armour.
pub fn pem(label: &str, der: &[u8]) -> String {
    let encoded = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in encoded.as_bytes().chunks(64) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + &format!("-----END {label}-----\n")
}
