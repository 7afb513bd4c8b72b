//! The API on a TLS socket. Every caller is authenticated, and everything is limited.
//!
//! The program that starts the server passes the listener, the certificates, the authenticator and the shutdown signal. This
//! module has only what every server needs: authentication, and the limits of connections and time.

mod caller;
mod connection;
mod gate;
mod limits;
mod places;
mod refuse;
mod response;
mod tls;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

pub use caller::{Authenticator, Presented, Tokens, User};
pub use limits::Limits;
pub use tls::{TlsError, server_config};

use connection::Connections;
use gate::Gate;
use places::Places;

/// The settings of a listener.
#[derive(Clone)]
pub struct Settings {
    /// The TLS configuration, for example from [`server_config`]. A connection uses the value at its start, so that a new
    /// certificate or new client CAs need no restart and end no connection.
    pub tls: watch::Receiver<Arc<ServerConfig>>,
    /// The authenticator.
    pub authenticator: Arc<dyn Authenticator>,
    /// The limits.
    pub limits: Limits,
}

impl Settings {
    /// Returns settings with the default limits.
    pub fn new(tls: watch::Receiver<Arc<ServerConfig>>, authenticator: impl Authenticator) -> Settings {
        Settings { tls, authenticator: Arc::new(authenticator), limits: Limits::default() }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Serves until `shutdown`. Then it accepts no more connections, ends watches, lets requests finish for a while, and returns.
///
/// Dropping the future ends everything at once.
pub async fn serve(listener: TcpListener, app: Router, settings: Settings, shutdown: impl Future<Output = ()>) {
    let Settings { tls, authenticator, limits } = settings;
    let (stop, stopping) = watch::channel(false);
    let places = Places::new(limits.connections);
    let gate = Arc::new(Gate::new(app, authenticator, limits.clone(), stopping.clone()));
    let connections = Connections::new(gate, &limits, stopping);
    let mut open = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    'serving: loop {
        let stream = tokio::select! {
            () = &mut shutdown => break,
            stream = accept(&listener) => stream,
            Some(_) = open.join_next() => continue,
        };
        // An accepted connection waits for its place: others may have to end first.
        let mut place = std::pin::pin!(places.take());
        let place = loop {
            tokio::select! {
                () = &mut shutdown => break 'serving,
                place = &mut place => break place,
                Some(_) = open.join_next() => {}
            }
        };
        open.spawn(connections.clone().serve(stream, tls.borrow().clone(), place));
    }
    drop(listener);
    stop.send_replace(true);
    let all = async { while open.join_next().await.is_some() {} };
    if timeout(limits.grace, all).await.is_err() {
        debug!(connections = open.len(), "closing what did not finish");
        open.shutdown().await;
    }
}

/// Returns the next connection. Further ones wait in the queue of the system.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                debug!(%error, "accepting failed");
                // A client that is already gone is harmless; without file descriptors, an immediate retry would loop.
                if !is_about_the_client(&error) {
                    sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

fn is_about_the_client(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Waits until the server stops.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    // Without a sender the server is gone, and everything ends too.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
