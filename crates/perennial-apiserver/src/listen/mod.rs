//! The API on a socket: TLS only, every caller known, and everything bounded.
//!
//! Whoever starts it gives the listener and says when to stop; it gives the certificates and says who a caller is, too.
//! Here is only what any server needs: who is let in, how many at once, and for how long.

mod caller;
mod connection;
mod gate;
mod limits;
mod tls;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::debug;

pub use caller::{Authenticator, Presented, Tokens, User};
pub use limits::Limits;
pub use tls::{TlsError, server_config};

use connection::Connections;
use gate::Gate;

/// How a listener serves.
#[derive(Clone)]
pub struct Settings {
    /// What TLS serves with, such as [`server_config`] makes it. A connection takes what is here when it begins, so that a
    /// new certificate, or new CAs of clients, need no restart and end no connection.
    pub tls: watch::Receiver<Arc<ServerConfig>>,
    /// Who a caller is.
    pub authenticator: Arc<dyn Authenticator>,
    /// How much of everything.
    pub limits: Limits,
}

impl Settings {
    /// With the usual limits.
    pub fn new(tls: watch::Receiver<Arc<ServerConfig>>, authenticator: impl Authenticator) -> Settings {
        Settings { tls, authenticator: Arc::new(authenticator), limits: Limits::default() }
    }
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").field("limits", &self.limits).finish_non_exhaustive()
    }
}

/// Serves until `shutdown`. Then it accepts nothing more, ends watches, lets requests finish for a while, and returns.
///
/// Who drops it ends everything at once.
pub async fn serve(listener: TcpListener, app: Router, settings: Settings, shutdown: impl Future<Output = ()>) {
    let Settings { tls, authenticator, limits } = settings;
    let (stop, stopping) = watch::channel(false);
    let places = Arc::new(Semaphore::new(limits.connections));
    let gate = Arc::new(Gate::new(app, authenticator, limits.clone(), stopping.clone()));
    let connections = Connections::new(gate, &limits, stopping);
    let mut open = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (stream, place) = accept(&listener, &places) => {
                let connection = connections.clone().serve(stream, tls.borrow().clone());
                open.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Some(_) = open.join_next() => {}
        }
    }
    drop(listener);
    stop.send_replace(true);
    let all = async { while open.join_next().await.is_some() {} };
    if timeout(limits.grace, all).await.is_err() {
        debug!(connections = open.len(), "closing what did not finish");
        open.shutdown().await;
    }
}

/// The next connection, once there is a place for one: until then clients wait, in the queue that the system keeps.
async fn accept(listener: &TcpListener, places: &Arc<Semaphore>) -> (TcpStream, OwnedSemaphorePermit) {
    let place = places.clone().acquire_owned().await.expect("this semaphore is never closed");
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            Err(error) => {
                debug!(%error, "accepting failed");
                // A client that is gone already is no trouble; without file descriptors, asking again at once is.
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

/// Waits until everything is to end.
async fn stopped(mut stopping: watch::Receiver<bool>) {
    // Without a sender the server is gone, and everything ends as well.
    let _ = stopping.wait_for(|stopping| *stopping).await;
}
