//! The OpenSSL judge: one `openssl verify` per case.

use std::{
    collections::BTreeMap,
    fs,
    net::IpAddr,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Case, Purpose, Verdict, in_parallel};
use crate::{
    ToolError,
    check::pem,
    tools::{self, ToolError as Error},
};

pub(super) fn judge(cases: &[Case]) -> Result<Vec<Verdict>, ToolError> {
    let dir = tempfile::tempdir().map_err(Error::file(&std::env::temp_dir()))?;
    let files = Files::write(dir.path(), cases)?;
    in_parallel(cases, |case| judge_one(&files, case)).into_iter().collect()
}

fn judge_one(files: &Files<'_>, case: &Case) -> Result<Verdict, ToolError> {
    let Some((leaf, intermediates)) = case.chain.split_first() else {
        return Ok(Verdict::refused("the chain is empty"));
    };
    let mut command = Command::new("openssl");
    // Only these anchors count, not those of the machine; level 2 is the default of TLS on Debian.
    command.args(["verify", "-x509_strict", "-auth_level", "2", "-no-CApath", "-no-CAstore"]);
    command.args(["-purpose", if case.purpose == Purpose::Server { "sslserver" } else { "sslclient" }]);
    command.args(["-attime", &case.at.to_string()]);
    if let Some(name) = &case.name {
        let option = if name.parse::<IpAddr>().is_ok() { "-verify_ip" } else { "-verify_hostname" };
        command.args([option, name]);
    }
    // OpenSSL rejects an empty file, but an empty bundle is a valid case.
    match case.anchors.as_slice() {
        [] => command.arg("-no-CAfile"),
        anchors => command.arg("-CAfile").arg(files.path(anchors)),
    };
    if !intermediates.is_empty() {
        command.arg("-untrusted").arg(files.path(intermediates));
    }
    let output = tools::run(command.arg(files.path(std::slice::from_ref(leaf))))?;
    if output.status.success() {
        return Ok(Verdict::accepted());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let reasons: Vec<&str> = said.lines().filter(|line| is_reason(line)).collect();
    if reasons.is_empty() {
        return Err(Error::garbled("openssl verify", format!("a verdict on {}", case.id), said));
    }
    Ok(Verdict::refused(reasons.join("; ")))
}

/// Returns a line such as "error 10 at 0 depth lookup: certificate has expired", or that a file has no certificate.
fn is_reason(line: &str) -> bool {
    const UNREADABLE: [&str; 3] = ["Could not read", "Unable to load", "Error loading file"];
    line.contains(" depth lookup: ") || UNREADABLE.iter().any(|start| line.starts_with(start))
}

/// Writes each distinct list of certificates to one PEM file, because hundreds of cases share their anchors.
struct Files<'a>(BTreeMap<&'a [Vec<u8>], PathBuf>);

impl<'a> Files<'a> {
    fn write(dir: &Path, cases: &'a [Case]) -> Result<Files<'a>, ToolError> {
        let mut files = BTreeMap::new();
        for case in cases {
            let (leaf, intermediates) = case.chain.split_at(case.chain.len().min(1));
            for certificates in [leaf, intermediates, &case.anchors] {
                if files.contains_key(certificates) {
                    continue;
                }
                let path = dir.join(format!("{}.pem", files.len()));
                let text: String = certificates.iter().map(|der| pem("CERTIFICATE", der)).collect();
                fs::write(&path, text).map_err(Error::file(&path))?;
                files.insert(certificates, path);
            }
        }
        Ok(Files(files))
    }

    fn path(&self, certificates: &[Vec<u8>]) -> &Path {
        self.0.get(certificates).expect("every list of every case was written")
    }
}
