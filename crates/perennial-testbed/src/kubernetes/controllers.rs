//! A kube-controller-manager with the few controllers that a test is about, such as the garbage collector.

use std::path::Path;

use super::process::{Port, Process};
use super::{Credentials, StartError, ask_until_ready, client, fetch, kubeconfig, program, read_kubeconfig};
use crate::ToolError;

/// A running kube-controller-manager. It is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Controllers {
    process: Process,
    _port: Port,
}

impl Controllers {
    /// Starts these controllers, and waits until all of them are there. What they write and the certificate that they serve with
    /// are in this directory; this kubeconfig says to whom they talk, and who they are.
    ///
    /// Each then acts by its own service account, as in a cluster, and may do what its role allows.
    pub(super) async fn start(dir: &Path, kubeconfig: &Path, names: &[&str]) -> Result<Controllers, StartError> {
        let port = Port::reserve().map_err(StartError::Port)?;
        let serving = dir.join("controllers");
        let arguments = [
            format!("--kubeconfig={}", kubeconfig.display()),
            format!("--controllers={}", names.join(",")),
            "--use-service-account-credentials".into(),
            "--bind-address=127.0.0.1".into(),
            format!("--secure-port={}", port.number()),
            "--permit-port-sharing".into(),
            format!("--cert-dir={}", serving.display()),
            // There is one, so nobody needs to agree on who it is.
            "--leader-elect=false".into(),
        ];
        let log = dir.join("kube-controller-manager.log");
        let mut process = Process::start(&program(PROGRAM)?, &arguments, log)?;
        let ask = async || running(&serving, port.number(), names).await;
        ask_until_ready(&mut [(PROGRAM, &mut process)], ask).await?;
        Ok(Controllers { process, _port: port })
    }

    /// The last lines that it wrote.
    pub(super) fn last_words(&self) -> String {
        self.process.last_words()
    }
}

const PROGRAM: &str = "kube-controller-manager";

/// Whether all of these have joined those whose health it tells of; if not, what it says instead.
async fn running(serving: &Path, port: u16, names: &[&str]) -> Result<Result<(), String>, StartError> {
    // It writes its certificate before its key.
    if !serving.join("kube-controller-manager.key").is_file() {
        return Ok(Err("nothing".to_owned()));
    }
    let certificate = serving.join("kube-controller-manager.crt");
    let authority = std::fs::read(&certificate).map_err(ToolError::file(&certificate))?;
    // Everybody may ask about its health, so it is not told who asks.
    let config = kubeconfig(port, &authority, Credentials { user: "nobody", token: None });
    let answer = fetch(&client(&read_kubeconfig(&config)).await?, "/healthz?verbose").await;
    Ok(answer.and_then(|text| {
        let healthy = |name: &&str| text.lines().any(|line| line == format!("[+]{name} ok"));
        if names.iter().all(healthy) { Ok(()) } else { Err(text) }
    }))
}
