//! The servers: each distinct identity has its own port, and accepted clients get a message.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Write},
    net::{Ipv4Addr, Shutdown, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use rustls::{ServerConfig, ServerConnection, crypto::aws_lc_rs};

use super::{AskError, GREETING, Question, Server, clients};
use crate::{
    ToolError,
    tls::{Identity, TlsError},
    tools,
};

/// Running servers. They stop when this is dropped.
pub(super) struct Servers<'a> {
    ports: BTreeMap<(&'a str, &'a str), u16>,
    _running: Vec<Running>,
}

enum Running {
    Rustls { _it: Listening },
    Go { _it: Serving },
}

/// Starts one server for each identity of the questions.
pub(super) fn start(server: Server, questions: &[Question]) -> Result<Servers<'_>, AskError> {
    let identities: BTreeMap<_, _> = questions.iter().map(|it| (key(&it.server), &it.server)).collect();
    let mut ports = BTreeMap::new();
    let mut running = Vec::new();
    match server {
        Server::Rustls => {
            for (key, identity) in identities {
                let listening = Listening::start(identity)?;
                ports.insert(key, listening.port);
                running.push(Running::Rustls { _it: listening });
            }
        }
        Server::Go => {
            let mut serving = Serving::start()?;
            for (key, identity) in identities {
                ports.insert(key, serving.serve(identity)?);
            }
            running.push(Running::Go { _it: serving });
        }
    }
    Ok(Servers { ports, _running: running })
}

impl Servers<'_> {
    /// Returns the port of this identity.
    pub(super) fn port(&self, identity: &Identity) -> u16 {
        *self.ports.get(&key(identity)).expect("each identity has a server")
    }
}

fn key(identity: &Identity) -> (&str, &str) {
    (&identity.chain, &identity.key)
}

/// A rustls server in threads of this process.
struct Listening {
    port: u16,
    ends: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl Listening {
    fn start(identity: &Identity) -> Result<Listening, AskError> {
        let (chain, key) = identity.read()?;
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key))
            .map_err(TlsError::Setup)?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(AskError::Listen)?;
        let port = listener.local_addr().map_err(AskError::Listen)?.port();
        let (config, ends) = (Arc::new(config), Arc::new(AtomicBool::new(false)));
        let accepting = Some(thread::spawn({
            let ends = ends.clone();
            move || {
                while let Ok((socket, _)) = listener.accept()
                    && !ends.load(Ordering::SeqCst)
                {
                    let config = config.clone();
                    // The client reports any error here.
                    thread::spawn(move || greet(config, socket).ok());
                }
            }
        }));
        Ok(Listening { port, ends, accepting })
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        // The server checks for its end at each connection.
        if TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
            && let Some(accepting) = self.accepting.take()
        {
            let _ = accepting.join();
        }
    }
}

fn greet(config: Arc<ServerConfig>, mut socket: TcpStream) -> io::Result<()> {
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.set_write_timeout(Some(TIMEOUT))?;
    let mut server = ServerConnection::new(config).map_err(io::Error::other)?;
    // An alert with the reason is sent even if the handshake fails.
    server.complete_io(&mut socket)?;
    server.writer().write_all(format!("{GREETING}\n").as_bytes())?;
    server.send_close_notify();
    while server.wants_write() {
        server.write_tls(&mut socket)?;
    }
    socket.shutdown(Shutdown::Write)?;
    // The client closes first, so that nothing is lost.
    io::copy(&mut socket, &mut io::sink()).map(drop)
}

/// Longer than a busy machine needs.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);

/// A Go process that serves all identities. It ends with its standard input, so also when this process is killed.
struct Serving {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Serving {
    fn start() -> Result<Serving, AskError> {
        let program = clients::go_program()?;
        let mut command = Command::new(&program);
        command.args(["serve", GREETING]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let name = program.to_string_lossy().into_owned();
        let mut child = command.spawn().map_err(|source| tools::not_started(name, source))?;
        let answers = BufReader::new(child.stdout.take().expect("its output is a pipe"));
        Ok(Serving { child, answers })
    }

    /// Serves one more identity, and returns its port.
    fn serve(&mut self, identity: &Identity) -> Result<u16, AskError> {
        let [chain, key] = [&identity.chain, &identity.key].map(|text| STANDARD.encode(text));
        let mut answer = String::new();
        let mut ask = || -> io::Result<()> {
            let input = self.child.stdin.as_mut().expect("its input is a pipe");
            writeln!(input, "{chain}\t{key}")?;
            self.answers.read_line(&mut answer).map(drop)
        };
        ask().map_err(AskError::Listen)?;
        Ok(answer.trim().parse().map_err(|_| ToolError::garbled("the Go server", "a port", answer))?)
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
