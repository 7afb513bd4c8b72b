//! What watches over an operator asks it: metrics, and whether it lives and is ready. In the clear on this machine only;
//! elsewhere over TLS, and metrics for those whom the cluster lets read them.

mod tls;

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, bail};
use axum::Router;
use axum::extract::Extension;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use futures_util::future::BoxFuture;
use kube_client::Client;
use perennial_apiserver::listen::{self, Authenticator, Limits, Presented, Settings, User};
use perennial_operator::brief;
use perennial_operator::callers::{Caller, Callers};
use perennial_operator::metrics::Metrics;
use tokio::net::TcpListener;
use tracing::warn;

use crate::clock;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PATH: &str = "/metrics";

/// Where and how metrics are served.
#[derive(Debug, clap::Args)]
pub(crate) struct ProbeArgs {
    /// Where to serve /metrics, /livez and /readyz; off this machine with TLS, and metrics for those who may read them
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9943")]
    metrics: SocketAddr,

    /// Serve them with TLS, and ask who they are for, on this machine, too
    #[arg(long)]
    metrics_tls: bool,

    /// The certificate to serve metrics with, in PEM; read again when it changes [default: one that signs itself]
    #[arg(long, value_name = "FILE", requires = "metrics_key")]
    metrics_cert: Option<PathBuf>,

    /// The key of --metrics-cert
    #[arg(long, value_name = "FILE", requires = "metrics_cert")]
    metrics_key: Option<PathBuf>,
}

/// The flags of [`ProbeArgs`], for a command that returns before anybody could ask.
pub(crate) const FLAGS: [&str; 4] = ["metrics", "metrics_tls", "metrics_cert", "metrics_key"];

/// Who may read metrics where they are not for everybody on this machine.
pub(crate) enum Readers {
    /// Those whom the cluster knows by their token, and allows to.
    OfCluster(Client),
    /// Everybody whom this authenticator knows.
    Known(Arc<dyn Authenticator>),
}

impl ProbeArgs {
    /// Whoever may come from elsewhere says who they are, and nobody listens to it.
    fn needs_tls(&self) -> bool {
        !self.metrics.ip().is_loopback() || self.metrics_tls || self.metrics_cert.is_some()
    }
}

/// An address that is ours, and what is served there.
pub(crate) struct Probes {
    listener: TcpListener,
    tls: Option<tls::Served>,
}

impl Probes {
    /// Takes the address, and reads what TLS serves with.
    pub(crate) async fn bind(args: &ProbeArgs) -> anyhow::Result<Probes> {
        let address = args.metrics;
        let files = args.metrics_cert.clone().zip(args.metrics_key.clone());
        let tls = if args.needs_tls() { Some(tls::Served::new(files)?) } else { None };
        let bound = match TcpListener::bind(address).await {
            // A machine without IPv6 has all addresses under this name.
            Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        let listener =
            bound.with_context(|| format!("cannot serve metrics on {address}; --metrics chooses another address"))?;
        Ok(Probes { listener, tls })
    }

    /// Where that is, as a URL.
    pub(crate) fn url(&self) -> anyhow::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}{PATH}", self.listener.local_addr()?))
    }

    /// Answers until it is dropped.
    pub(crate) async fn serve(self, metrics: Arc<Metrics<'static>>, readers: Readers) -> anyhow::Result<()> {
        let (living, ready) = (metrics.clone(), metrics.clone());
        let app = Router::new()
            .route("/livez", get(async move || probe(living.is_alive(), "no pass has ended for ten minutes")))
            .route("/readyz", get(async move || probe(ready.is_ready(), "no pass has ended yet")));
        let Some(tls) = self.tls else {
            let app = app.route(PATH, get(async move || text(&metrics)));
            return Ok(axum::serve(self.listener, app).await?);
        };
        let (authenticator, guarded): (Arc<dyn Authenticator>, MethodRouter) = match readers {
            Readers::OfCluster(client) => {
                let callers = Arc::new(Callers::new(client, Arc::new(clock::now)));
                let doorkeeper = Doorkeeper { callers: callers.clone() };
                let answer = async move |Extension(user): Extension<User>| guarded(&callers, user, &metrics).await;
                (Arc::new(doorkeeper), get(answer))
            }
            Readers::Known(authenticator) => (authenticator, get(async move || text(&metrics))),
        };
        let settings = Settings { tls: tls.subscribe(), authenticator, limits: Limits::default() };
        let serving = listen::serve(self.listener, app.route(PATH, guarded), settings, std::future::pending());
        tokio::select! {
            () = serving => bail!("metrics are not served any more"),
            never = tls.keep_fresh() => match never {},
        }
    }
}

/// Knows whom the cluster knows.
struct Doorkeeper {
    callers: Arc<Callers>,
}

impl Authenticator for Doorkeeper {
    fn authenticate<'a>(&'a self, presented: &'a Presented<'_>) -> BoxFuture<'a, Option<User>> {
        Box::pin(async move {
            let caller = match self.callers.who(presented.token?).await {
                Ok(caller) => caller?,
                Err(error) => {
                    warn!("cannot ask the cluster who wants metrics: {}", brief(&error));
                    return None;
                }
            };
            let Caller { name, uid, groups, extra } = caller;
            Some(User { name, groups, uid, extra })
        })
    }
}

async fn guarded(callers: &Callers, user: User, metrics: &Metrics<'_>) -> Response {
    let User { name, groups, uid, extra } = user;
    let caller = Caller { name, uid, groups, extra };
    match callers.may_read(&caller, PATH).await {
        Ok(true) => text(metrics),
        Ok(false) => {
            let why = format!("{} may not get {PATH}: ClusterRole perennial-metrics-reader allows it\n", caller.name);
            (StatusCode::FORBIDDEN, why).into_response()
        }
        Err(error) => {
            warn!("cannot ask the cluster who may read metrics: {}", brief(&error));
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

fn text(metrics: &Metrics<'_>) -> Response {
    match metrics.text() {
        Ok(text) => ([(header::CONTENT_TYPE, TEXT)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

fn probe(is_good: bool, otherwise: &'static str) -> (StatusCode, &'static str) {
    if is_good { (StatusCode::OK, "ok") } else { (StatusCode::SERVICE_UNAVAILABLE, otherwise) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_on_this_machine_and_only_by_default_is_anything_in_the_clear() {
        let needs_tls = |metrics: &str, metrics_tls, file: Option<&str>| {
            let [metrics_cert, metrics_key] = [file, file].map(|it| it.map(PathBuf::from));
            let args = ProbeArgs { metrics: metrics.parse().unwrap(), metrics_tls, metrics_cert, metrics_key };
            args.needs_tls()
        };
        for local in ["127.0.0.1:9943", "127.0.0.2:1", "[::1]:9943"] {
            assert!(!needs_tls(local, false, None), "{local}");
            assert!(needs_tls(local, true, None) && needs_tls(local, false, Some("tls.pem")), "{local}");
        }
        for elsewhere in ["0.0.0.0:9943", "[::]:9943", "192.0.2.1:9943", "[2001:db8::1]:9943"] {
            assert!(needs_tls(elsewhere, false, None), "{elsewhere}");
        }
    }
}
