//! Real TLS servers and real TLS clients of other implementations, on loopback: who can talk to whom?
//!
//! A [`Question`] is what a server presents, what a client trusts and whom it asks for. [`ask`] starts the servers, has every
//! [`Client`] connect, and says for each whether it accepted the server, or why it refused its certificate. Whatever else goes
//! wrong, from a port where nobody listens to a server that hangs up, is an [`AskError`] and never a refusal: a test that expects
//! a refusal must not be content with a broken set-up. [`expect`] also compares the answers with what a test expects.
//!
//! [`Callers`] are clients that call again and again, for servers that a test starts itself.
//!
//! All of it happens now, as clients have their own clocks. For questions about other instants, and about clients'
//! certificates, there are the [judges](crate::judges).

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

/// Does a client with this bundle accept this server under this name?
#[derive(Debug, Clone)]
pub struct Question {
    /// What a report calls it; unique among those that are asked together.
    pub id: String,
    /// What the server presents.
    pub server: Identity,
    /// What the client trusts, as PEM.
    pub bundle: String,
    /// The DNS name that the client asks for.
    pub name: String,
}

/// What the server runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// rustls, in this process.
    Rustls,
    /// Go's crypto/tls.
    Go,
}

/// What the client runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Client {
    /// `openssl s_client`, with its defaults.
    OpenSsl,
    /// Go's crypto/tls: Kubernetes, etcd and Prometheus.
    Go,
    /// The JDK's sockets, configured as for HTTPS, with a trust store made of the bundle.
    Java,
    /// `gnutls-cli`, with its defaults.
    GnuTls,
    /// Python's `ssl.create_default_context`, as it is before Python 3.13.
    Python,
    /// The same, as it is from Python 3.13 on: OpenSSL with strict checks, and any certificate of the bundle ends a path.
    Python313,
    /// rustls, in this process: our own clients.
    Rustls,
}

/// What a client made of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It finished the handshake and read what the server said.
    Accepted,
    /// It refused the server's certificate.
    Refused {
        /// In one word.
        reason: Reason,
        /// In the client's own words, on one line.
        why: String,
    },
}

/// Why a certificate was refused. Where a path has several faults, clients differ in which one they name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// No path leads to something in the bundle.
    Issuer,
    /// Something on the path is not valid now.
    Time,
    /// It is somebody else's certificate.
    Name,
    /// Whatever else there is.
    Other,
}

/// Every answer to every question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(BTreeMap<(String, Client), Answer>);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// A program is not what it should be.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// A side of ours cannot use what it was given.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// There is no port to listen on.
    #[error("failed to listen on loopback")]
    Listen(#[source] io::Error),
    /// Neither accepted nor refused.
    #[error("{client} got as far as neither accepting nor refusing in {id:?}; it said {said:?}")]
    Broken {
        /// Who.
        client: Client,
        /// Which question.
        id: String,
        /// What went wrong, in the client's own words.
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

/// Has every client ask every question of servers of this kind, which end before this returns.
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

/// A question, and the port of loopback where its server is.
struct Call<'a> {
    question: &'a Question,
    port: u16,
}

/// What servers say to whoever accepts them.
const GREETING: &str = "hello from the testbed";

impl Report {
    /// What this client made of the question of this id, if there is one.
    pub fn answer(&self, client: Client, id: &str) -> Option<&Answer> {
        self.0.get(&(id.to_owned(), client))
    }
}

impl fmt::Display for Report {
    /// A line for each question and client.
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
