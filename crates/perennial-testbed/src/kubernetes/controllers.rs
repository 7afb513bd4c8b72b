//! A kube-controller-manager that runs only the controllers that a test needs, such as the garbage collector.

use std::path::Path;

use super::process::{Port, Process};
use super::{Credentials, Program, StartError, ask_until_ready, client, fetch, kubeconfig, program, read_kubeconfig};
use crate::ToolError;

/// A running kube-controller-manager. The process is killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Controllers {
    process: Process,
    _port: Port,
}

impl Controllers {
    /// Starts these controllers, and waits until all of them run.
    ///
    /// The directory gets their log and their serving certificate. The kubeconfig names the API server and has the credentials.
    /// Each controller uses its own service account, as in a cluster, and has only the permissions of its role.
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
            // There is only one instance, so no leader election is needed.
            "--leader-elect=false".into(),
        ];
        let log = dir.join("kube-controller-manager.log");
        let mut process = Process::start(&program(PROGRAM)?, &arguments, log)?;
        let ask = async || running(&serving, port.number(), names).await;
        ask_until_ready(&mut [(PROGRAM, &mut process)], ask).await?;
        Ok(Controllers { process, _port: port })
    }

    /// Returns the last lines of the log.
    pub(super) fn last_words(&self) -> String {
        self.process.last_words()
    }
}

const PROGRAM: &str = "kube-controller-manager";

/// Returns `Ok` if the health check lists all of these controllers; otherwise its answer.
async fn running(serving: &Path, port: u16, names: &[&str]) -> Result<Result<(), String>, StartError> {
    // kube-controller-manager writes its certificate before its key.
    if !serving.join("kube-controller-manager.key").is_file() {
        return Ok(Err("nothing".to_owned()));
    }
    let certificate = serving.join("kube-controller-manager.crt");
    let authority = std::fs::read(&certificate).map_err(ToolError::file(&certificate))?;
    // The health check needs no credentials.
    let config = kubeconfig(port, &authority, Credentials { user: "nobody", token: None });
    let answer = fetch(&client(&read_kubeconfig(&config)).await?, "/healthz?verbose").await;
    Ok(answer.and_then(|text| {
        let healthy = |name: &&str| text.lines().any(|line| line == format!("[+]{name} ok"));
        if names.iter().all(healthy) { Ok(()) } else { Err(text) }
    }))
}
