//! Single etcd and kube-apiserver processes, for tests that restart them and supply their certificates.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::process::{Port, Process};
use super::{Program, StartError, program};
use crate::ToolError;

/// A single etcd with TLS that requires client certificates.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    ports: [Port; 2],
}

/// A kube-apiserver. The process is killed when this value is dropped.
#[derive(Debug)]
pub struct ApiServer {
    process: Process,
    port: Port,
}

/// The maximum time for a kube-apiserver to finish its requests at shutdown.
const END_WITHIN: Duration = Duration::from_secs(60);

impl Etcd {
    /// Starts an etcd with its data and its log in this directory.
    ///
    /// Every client and peer must present a certificate that `authority` signed. etcd itself presents `certificate`, both to
    /// clients and to peers.
    pub fn start(dir: &Path, authority: &Path, certificate: &Path, key: &Path) -> Result<Etcd, StartError> {
        let ports = [Port::reserve().map_err(StartError::Port)?, Port::reserve().map_err(StartError::Port)?];
        let [peers, clients] = [&ports[0], &ports[1]].map(|port| format!("https://127.0.0.1:{}", port.number()));
        let mut arguments = super::etcd_arguments_at(dir, &peers, &clients);
        for prefix in ["", "peer-"] {
            arguments.push(format!("--{prefix}client-cert-auth"));
            for (name, file) in [("trusted-ca-file", authority), ("cert-file", certificate), ("key-file", key)] {
                arguments.push(format!("--{prefix}{name}={}", file.display()));
            }
        }
        let process = Process::start(&program("etcd")?, &arguments, dir.join("etcd.log"))?;
        Ok(Etcd { process, ports })
    }

    /// Returns the URL for clients.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[1].number())
    }

    /// Returns the last lines of the log.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }
}

impl ApiServer {
    /// Starts a kube-apiserver with these arguments, with its log in this file. The arguments for its port are added.
    pub fn start(arguments: &[String], log: &Path) -> Result<ApiServer, StartError> {
        let port = Port::reserve().map_err(StartError::Port)?;
        let mut arguments = arguments.to_vec();
        arguments.push("--bind-address=127.0.0.1".into());
        arguments.push(format!("--secure-port={}", port.number()));
        arguments.push("--permit-port-sharing".into());
        let process = Process::start(&program("kube-apiserver")?, &arguments, log.to_owned())?;
        Ok(ApiServer { process, port })
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Returns the exit status of the kube-apiserver, if it has exited.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.ended()
    }

    /// Stops the kube-apiserver, and waits until it has finished its requests.
    pub async fn end(mut self) -> Result<(), StartError> {
        self.process.ask_to_end()?;
        let deadline = Instant::now() + END_WITHIN;
        while Instant::now() < deadline {
            if self.process.ended().map_err(ToolError::file(Path::new("kube-apiserver")))?.is_some() {
                return Ok(());
            }
            sleep(Duration::from_millis(100)).await;
        }
        Err(StartError::NotReady { program: "kube-apiserver", answer: "nothing".to_owned(), log: self.last_words() })
    }

    /// Returns the last lines of the log.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }
}
