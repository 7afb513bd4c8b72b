//! Handshakes between real TLS servers and clients of other implementations, on loopback.
//!
//! A [`Question`] is what a server presents, what a client trusts, and the name to which it connects. [`ask`] starts the servers,
//! lets every [`Client`] connect, and returns for each whether it accepted the server, or why it rejected the certificate. Any other
//! failure, such as a refused connection or a server that hangs up, is an [`AskError`] and never a rejection: a test that expects
//! a rejection must not pass with a broken setup. [`expect`] also compares the answers with those that a test expects.
//!
//! [`Callers`] are clients that connect repeatedly, to servers that a test starts itself.
//!
//! All handshakes happen now, because clients have their own clocks. For other instants, and for client certificates,
//! use the [judges](crate::judges).

mod callers;
mod clients;
mod expect;
mod servers;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io, thread,
};

pub use callers::{Called, Caller, Callers};
pub use expect::{Expected, expect};

use crate::{
    ToolError,
    tls::{Identity, TlsError},
};

/// A question: does a client with this bundle accept this server with this name?
#[derive(Debug, Clone)]
pub struct Question {
    /// The name in reports; unique among the questions of one call.
    pub id: String,
    /// The certificate and key of the server.
    pub server: Identity,
    /// The bundle of the client, as PEM.
    pub bundle: String,
    /// The DNS name to which the client connects.
    pub name: String,
}

/// The implementation of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// rustls, in this process.
    Rustls,
    /// Go's crypto/tls.
    Go,
}

/// The implementation of the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// `openssl s_client`, with its defaults.
    OpenSsl,
    /// Go's crypto/tls: Kubernetes, etcd and Prometheus.
    Go,
    /// The JDK's sockets, configured as for HTTPS, with a trust store from the bundle.
    Java,
    /// `gnutls-cli`, with its defaults.
    GnuTls,
    /// Python's `ssl.create_default_context`, as before Python 3.13.
    Python,
    /// The same, as from Python 3.13 on: OpenSSL with strict checks, and any certificate of the bundle ends a path.
    Python313,
    /// rustls, in this process, as in Perennial's own clients.
    Rustls,
}

/// The answer of a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It completed the handshake and read the server's message.
    Accepted,
    /// It rejected the server's certificate.
    Refused {
        /// The reason.
        reason: Reason,
        /// The client's own message, on one line.
        why: String,
    },
}

/// Why a certificate was rejected. If a path has several faults, clients differ in which one they name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No path leads to a certificate of the bundle.
    Issuer,
    /// A certificate on the path is not valid now.
    Time,
    /// The certificate has another name.
    Name,
    /// Another reason.
    Other,
}

/// All answers to all questions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(BTreeMap<(String, Client), Answer>);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A program is missing or failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// rustls rejects its own configuration.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no free port.
    #[error("failed to listen on loopback")]
    Listen(#[source] io::Error),
    /// The client neither accepted nor rejected the certificate.
    #[error("{client} neither accepted nor rejected the certificate in {id:?}; it said {said:?}")]
    Broken {
        /// The client.
        client: Client,
        /// The question.
        id: String,
        /// The client's own message.
        said: String,
    },
}

impl Server {
    /// Every server.
    pub const ALL: [Server; 2] = [Server::Rustls, Server::Go];
}

impl Client {
    /// Every client.
    pub const ALL: [Client; 7] =
        [Client::OpenSsl, Client::Go, Client::Java, Client::GnuTls, Client::Python, Client::Python313, Client::Rustls];
}

/// Lets every client answer every question with servers of this kind, which stop before this returns.
///
/// # Panics
/// If two questions have the same id.
pub fn ask(server: Server, questions: &[Question]) -> Result<Report, AskError> {
    let mut ids = BTreeSet::new();
    questions
        .iter()
        .for_each(|question| assert!(ids.insert(&question.id), "two questions are called {:?}", question.id));
    let servers = servers::start(server, questions)?;
    let calls: Vec<Call<'_>> =
        questions.iter().map(|question| Call { question, port: servers.port(&question.server) }).collect();
    let calls = calls.as_slice();
    let answers = thread::scope(|scope| {
        let asked = Client::ALL.map(|client| (client, scope.spawn(move || clients::dial(client, calls))));
        let all = asked.into_iter().map(|(client, thread)| {
            let answers = thread.join().expect("a client does not panic")?;
            Ok(questions.iter().zip(answers).map(move |(question, answer)| ((question.id.clone(), client), answer)))
        });
        all.collect::<Result<Vec<_>, AskError>>()
    })?;
    Ok(Report(answers.into_iter().flatten().collect()))
}

/// A question, and the loopback port of its server.
struct Call<'a> {
    question: &'a Question,
    port: u16,
}

/// The message of servers to accepted clients.
const GREETING: &str = "hello from the testbed";

impl Report {
    /// Returns the answer of this client to the question with this id, if there is one.
    pub fn answer(&self, client: Client, id: &str) -> Option<&Answer> {
        self.0.get(&(id.to_owned(), client))
    }
}

impl fmt::Display for Report {
    /// One line for each question and client.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|((id, client), answer)| writeln!(f, "{id}  {client:11}  {answer}"))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Answer::Accepted => f.pad("accepted"),
            Answer::Refused { reason, why } => f.pad(&format!("refused by {reason}: {why}")),
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Reason::Issuer => "issuer",
            Reason::Time => "time",
            Reason::Name => "name",
            Reason::Other => "other",
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Server::Rustls => "rustls",
            Server::Go => "Go",
        })
    }
}

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Client::OpenSsl => "OpenSSL",
            Client::Go => "Go",
            Client::Java => "Java",
            Client::GnuTls => "GnuTLS",
            Client::Python => "Python",
            Client::Python313 => "Python 3.13",
            Client::Rustls => "rustls",
        })
    }
}
