//! The limits of a listener.

use std::time::Duration;

use crate::limits::{CONNECTIONS, REQUEST_BYTES, REQUEST_TIME, REQUESTS, WATCHES};

/// The limits of a listener. The defaults are for one machine with a few dozen clients.
///
/// Only a watch can last forever, and the number of watches is limited. It is lower than the number of connections, so that a
/// place for another connection always becomes free.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Connections at the same time. Further ones wait for a place, or take that of one without credentials.
    pub connections: usize,
    /// Watches at the same time, of all connections together; others get 429.
    pub watches: usize,
    /// Requests that are processed at the same time, of all connections together, each on a thread of the blocking pool. Others wait
    /// for their turn, within `request_time`.
    pub requests: usize,
    /// Requests and watches at the same time on one HTTP/2 connection, as in Go's server.
    pub streams: u32,
    /// Bytes of a request's body. A Kubernetes API server has the same limit of 3 MiB: twice that of etcd.
    pub body: usize,
    /// Bytes of a request's head, at least 8192. Tokens of service accounts have about one thousand.
    pub head: usize,
    /// The time from the connection to the end of the TLS handshake.
    pub handshake_time: Duration,
    /// The time from the handshake to the first request's head; over HTTP/1.1 also from each response to the next head.
    pub head_time: Duration,
    /// The time from a request's head to the end of its response, except for a watch. It limits how slowly a body may arrive, and how
    /// slowly a response may be read. 60 s, as in Kubernetes.
    pub request_time: Duration,
    /// How long a connection may be without request and watch.
    pub idle_time: Duration,
    /// The interval of pings on a silent connection.
    pub ping_interval: Duration,
    /// How long an HTTP/2 client may take to answer a ping.
    pub ping_time: Duration,
    /// How long requests may continue when the server stops or their connection ends.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: CONNECTIONS,
            watches: WATCHES,
            requests: REQUESTS,
            streams: 250,
            body: REQUEST_BYTES,
            head: 64 << 10,
            handshake_time: Duration::from_secs(10),
            head_time: Duration::from_secs(30),
            request_time: REQUEST_TIME,
            idle_time: Duration::from_secs(90),
            ping_interval: Duration::from_secs(30),
            ping_time: Duration::from_secs(15),
            grace: Duration::from_secs(5),
        }
    }
}
