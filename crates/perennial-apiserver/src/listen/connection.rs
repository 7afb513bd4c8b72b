//! One connection: its handshake, its requests and its end.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use rustls::ServerConfig;
use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::gate::{Gate, Peer};
use super::limits::Limits;
use super::places::Place;
use super::stopped;
use super::tls::HTTP_2;

/// The state that all connections share.
#[derive(Clone)]
pub(super) struct Connections {
    gate: Arc<Gate>,
    http: Builder<TokioExecutor>,
    limits: Limits,
    stopping: watch::Receiver<bool>,
}

impl Connections {
    pub(super) fn new(gate: Arc<Gate>, limits: &Limits, stopping: watch::Receiver<bool>) -> Connections {
        let mut http = Builder::new(TokioExecutor::new());
        // The library requires at least this for HTTP/1.1.
        let head = limits.head.max(8192);
        http.http1().timer(TokioTimer::new()).header_read_timeout(limits.head_time).max_buf_size(head);
        http.http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(limits.streams)
            .max_header_list_size(head.try_into().unwrap_or(u32::MAX))
            .keep_alive_interval(limits.ping_interval)
            .keep_alive_timeout(limits.ping_time);
        Connections { gate, http, limits: limits.clone(), stopping }
    }

    /// Serves a connection until either side ends it.
    pub(super) async fn serve(self, stream: TcpStream, config: Arc<ServerConfig>, place: Place) {
        self.find_dead_peers(&stream);
        let place = Arc::new(place);
        let handshake = timeout(self.limits.handshake_time, TlsAcceptor::from(config).accept(stream));
        let handshake = tokio::select! {
            handshake = handshake => handshake,
            () = stopped(self.stopping.clone()) => return,
            () = place.given_up() => return,
        };
        match handshake {
            Ok(Ok(stream)) => self.serve_http(stream, place).await,
            Ok(Err(error)) => debug!(%error, "no TLS handshake"),
            Err(_) => debug!("no TLS handshake in time"),
        }
    }

    /// Enables keep-alive: over HTTP/1.1 only the system can detect a dead peer.
    fn find_dead_peers(&self, stream: &TcpStream) {
        let keep_alive = TcpKeepalive::new().with_time(self.limits.ping_interval).with_interval(self.limits.ping_time);
        let set = SockRef::from(stream).set_tcp_keepalive(&keep_alive).and_then(|()| stream.set_nodelay(true));
        if let Err(error) = set {
            debug!(%error, "setting options of a connection failed");
        }
    }

    async fn serve_http(self, stream: TlsStream<TcpStream>, place: Arc<Place>) {
        let session = stream.get_ref().1;
        // The ALPN protocol decides. Looking at the first bytes would wait for a client that sends none.
        let is_http2 = session.alpn_protocol() == Some(HTTP_2);
        let http = if is_http2 { self.http.http2_only() } else { self.http.http1_only() };
        let activity = Activity::default();
        let certificates = session.peer_certificates().unwrap_or_default().to_vec();
        if !certificates.is_empty() {
            place.keep();
        }
        let peer = Arc::new(Peer { certificates, activity: activity.clone(), place: place.clone(), is_http2 });
        let service = service_fn(|request| {
            let (gate, peer) = (self.gate.clone(), peer.clone());
            async move { Ok::<_, std::convert::Infallible>(gate.answer(&peer, request).await) }
        });
        let mut connection = pin!(http.serve_connection(TokioIo::new(stream), service));
        tokio::select! {
            ended = connection.as_mut() => {
                if let Err(error) = ended {
                    debug!(error, "a connection broke");
                }
                return;
            }
            () = activity.idle(self.limits.head_time, self.limits.idle_time) => debug!("a connection is idle"),
            () = stopped(self.stopping.clone()) => {}
            () = place.given_up() => {
                debug!("a connection without credentials ends for another");
                return;
            }
        }
        connection.as_mut().graceful_shutdown();
        if timeout(self.limits.grace, connection).await.is_err() {
            debug!("a connection did not end in time");
        }
    }
}

/// The number of unanswered requests and of watches on a connection.
#[derive(Clone, Default)]
pub(super) struct Activity(watch::Sender<usize>);

impl Activity {
    /// Starts an activity, which lasts until the result is dropped.
    pub(super) fn begin(&self) -> Busy {
        self.0.send_modify(|count| *count += 1);
        Busy(self.0.clone())
    }

    /// Waits until nothing has started for `first`, or nothing has been active for `then` after that.
    async fn idle(&self, first: Duration, then: Duration) {
        let mut count = self.0.subscribe();
        let mut limit = first;
        while timeout(limit, count.changed()).await.is_ok() {
            // Neither fails: `self` has the other end.
            let _ = count.wait_for(|count| *count == 0).await;
            limit = then;
        }
    }
}

/// An activity on a connection.
pub(super) struct Busy(watch::Sender<usize>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
