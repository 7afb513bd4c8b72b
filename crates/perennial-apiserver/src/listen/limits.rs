//! How much of everything a listener allows.

use std::time::Duration;

/// How much of everything a listener allows. The defaults are for one machine with a few dozen clients.
///
/// Nothing that a client starts lasts for ever but a watch, and of those there are only so many. Fewer watches than
/// connections are allowed, so that a place for another connection always becomes free in the end.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at once; more wait to be accepted. Half of the 1024 files that a process may usually have open.
    pub connections: usize,
    /// Watches at once, of all connections together; more are told to come back, with 429.
    pub watches: usize,
    /// Requests at once, of all connections together; more wait for their turn, within `request_time`. Together with
    /// `body` this is how much memory bodies may take: 600 MB.
    pub requests: usize,
    /// Requests and watches at once of one HTTP/2 connection, as Go's server has it.
    pub streams: u32,
    /// Bytes of a request's body. A real server has the same 3 MiB: twice what etcd takes.
    pub body: usize,
    /// Bytes of a request's head, at least 8192. Tokens of service accounts have about one thousand.
    pub head: usize,
    /// From the connection to the end of the TLS handshake.
    pub handshake_time: Duration,
    /// From the handshake to the first request's head. Over HTTP/1.1 from each answer to the next head, too.
    pub head_time: Duration,
    /// From a request's head to its answer: this bounds how slowly a body may come. 60 s as on a real server.
    pub request_time: Duration,
    /// How long a connection may be without request and watch. This bounds how slowly an answer may be read, too.
    pub idle_time: Duration,
    /// How often a silent connection is asked whether its client is there.
    pub ping_interval: Duration,
    /// How long an HTTP/2 client may take to say that it is there.
    pub ping_time: Duration,
    /// How long requests may go on when the server stops, or their connection is to end.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 512,
            watches: 256,
            requests: 200,
            streams: 250,
            body: 3 << 20,
            head: 64 << 10,
            handshake_time: Duration::from_secs(10),
            head_time: Duration::from_secs(30),
            request_time: Duration::from_secs(60),
            idle_time: Duration::from_secs(90),
            ping_interval: Duration::from_secs(30),
            ping_time: Duration::from_secs(15),
            grace: Duration::from_secs(5),
        }
    }
}
