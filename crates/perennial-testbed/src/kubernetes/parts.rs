//! etcd and kube-apiservers one by one, for tests that restart them and give them their certificates.

use std::io;
use std::path::Path;
use std::process::ExitStatus;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::process::{Port, Process};
use super::{StartError, program};
use crate::ToolError;

/// A single etcd that speaks TLS with everybody, and only with who has a client certificate.
#[derive(Debug)]
pub struct Etcd {
    process: Process,
    ports: [Port; 2],
}

/// A kube-apiserver. It is killed when this is dropped.
#[derive(Debug)]
pub struct ApiServer {
    process: Process,
    port: Port,
}

/// How long a kube-apiserver may take to answer who is waiting when it is asked to end.
const END_WITHIN: Duration = Duration::from_secs(60);

impl Etcd {
    /// Starts one with its data and its log in this directory. Whoever connects must show a certificate that the authority
    /// signed; it shows the one of these files itself, to clients and as a peer.
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

    /// Where clients find it.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.ports[1].number())
    }

    /// The last lines that it wrote.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }
}

impl ApiServer {
    /// Starts one with these arguments, apart from those about its port, and its log in this file.
    pub fn start(arguments: &[String], log: &Path) -> Result<ApiServer, StartError> {
        let port = Port::reserve().map_err(StartError::Port)?;
        let mut arguments = arguments.to_vec();
        arguments.push("--bind-address=127.0.0.1".into());
        arguments.push(format!("--secure-port={}", port.number()));
        arguments.push("--permit-port-sharing".into());
        let process = Process::start(&program("kube-apiserver")?, &arguments, log.to_owned())?;
        Ok(ApiServer { process, port })
    }

    /// Where it is.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// How it ended, if it has.
    pub fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process.ended()
    }

    /// Asks it to end, and waits until it has answered everybody.
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

    /// The last lines that it wrote.
    pub fn last_words(&self) -> String {
        self.process.last_words()
    }
}
