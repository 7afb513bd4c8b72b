//! Serves /metrics, /livez and /readyz: without TLS only on this machine, otherwise with TLS, and metrics only to authorized clients.

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
use perennial_operator::callers::{Caller, Callers, Unknown};
use perennial_operator::metrics::{Metrics, Refusal};
use tokio::net::TcpListener;
use tracing::{debug, warn};

use crate::clock;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";
const PATH: &str = "/metrics";

/// The flags for metrics and probes.
#[derive(Debug, clap::Args)]
pub(crate) struct ProbeArgs {
    /// The address of /metrics, /livez and /readyz; outside this machine with TLS, and metrics only for authorized clients
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9943")]
    metrics: SocketAddr,

    /// Use TLS and require authorization for metrics on this machine, too
    #[arg(long)]
    metrics_tls: bool,

    /// The serving certificate of metrics, in PEM; reloaded when it changes [default: a self-signed certificate, also until the file exists]
    #[arg(long, value_name = "FILE", requires = "metrics_key")]
    metrics_cert: Option<PathBuf>,

    /// The key of --metrics-cert
    #[arg(long, value_name = "FILE", requires = "metrics_cert")]
    metrics_key: Option<PathBuf>,
}

/// The names of the flags in [`ProbeArgs`], for flags that exclude them.
pub(crate) const FLAGS: [&str; 4] = ["metrics", "metrics_tls", "metrics_cert", "metrics_key"];

/// The clients that may read metrics over TLS.
pub(crate) enum Readers {
    /// Clients whose token the cluster authenticates and authorizes.
    OfCluster(Client),
    /// All clients that this authenticator accepts.
    Known(Arc<dyn Authenticator>),
}

impl ProbeArgs {
    /// Returns whether metrics and probes need TLS.
    fn needs_tls(&self) -> bool {
        !self.metrics.ip().is_loopback() || self.metrics_tls || self.metrics_cert.is_some()
    }
}

/// The bound address of metrics and probes, and its TLS configuration.
pub(crate) struct Probes {
    listener: TcpListener,
    tls: Option<tls::Served>,
}

impl Probes {
    /// Binds the address and reads the TLS files.
    pub(crate) async fn bind(args: &ProbeArgs) -> anyhow::Result<Probes> {
        let address = args.metrics;
        let files = args.metrics_cert.clone().zip(args.metrics_key.clone());
        let tls = if args.needs_tls() { Some(tls::Served::new(files)?) } else { None };
        let bound = match TcpListener::bind(address).await {
            // On a machine without IPv6, bind all IPv4 addresses instead.
            Err(_) if address.ip() == Ipv6Addr::UNSPECIFIED => {
                TcpListener::bind((Ipv4Addr::UNSPECIFIED, address.port())).await
            }
            bound => bound,
        };
        let listener =
            bound.with_context(|| format!("cannot serve metrics on {address}; --metrics chooses another address"))?;
        Ok(Probes { listener, tls })
    }

    /// Returns the URL of the metrics.
    pub(crate) fn url(&self) -> anyhow::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}{PATH}", self.listener.local_addr()?))
    }

    /// Serves until the future is dropped. `disk_full` returns the error of a full disk, or none.
    pub(crate) async fn serve(
        self,
        metrics: Arc<Metrics<'static>>,
        readers: Readers,
        disk_full: impl Fn() -> Option<String> + Clone + Send + Sync + 'static,
    ) -> anyhow::Result<()> {
        let (living, ready) = (metrics.clone(), metrics.clone());
        let app = Router::new()
            .route("/livez", get(async move || probe(living.is_alive(), "no pass has ended for ten minutes")))
            .route("/readyz", get(async move || readiness(ready.is_ready(), disk_full())));
        let Some(tls) = self.tls else {
            let app = app.route(PATH, get(async move || text(&metrics)));
            return Ok(axum::serve(self.listener, app).await?);
        };
        let (authenticator, guarded): (Arc<dyn Authenticator>, MethodRouter) = match readers {
            Readers::OfCluster(client) => {
                let callers = Arc::new(Callers::new(client, Arc::new(clock::now)));
                let authenticator = TokenAuthenticator { callers: callers.clone(), metrics: metrics.clone() };
                let answer = async move |Extension(user): Extension<User>| guarded(&callers, user, &metrics).await;
                (Arc::new(authenticator), get(answer))
            }
            Readers::Known(authenticator) => (authenticator, get(async move || text(&metrics))),
        };
        let settings = Settings { tls: tls.subscribe(), authenticator, limits: Limits::default() };
        let serving = listen::serve(self.listener, app.route(PATH, guarded), settings, std::future::pending());
        tokio::select! {
            () = serving => bail!("the server of metrics has stopped"),
            never = tls.keep_fresh() => match never {},
        }
    }
}

/// Authenticates clients by their token with a TokenReview.
struct TokenAuthenticator {
    callers: Arc<Callers>,
    metrics: Arc<Metrics<'static>>,
}

impl Authenticator for TokenAuthenticator {
    fn authenticate<'a>(&'a self, presented: &'a Presented<'_>) -> BoxFuture<'a, Option<User>> {
        Box::pin(async move {
            let caller = match self.callers.who(presented.token?).await {
                Ok(Some(caller)) => caller,
                Ok(None) => {
                    self.metrics.refuse(Refusal::UnknownToken);
                    return None;
                }
                // A flood of tokens must not become a flood of log lines.
                Err(Unknown::TooMany) => {
                    self.metrics.refuse(Refusal::TooManyTokens);
                    debug!("{}", Unknown::TooMany);
                    return None;
                }
                Err(error) => {
                    self.metrics.refuse(Refusal::ReviewFailed);
                    warn!("metrics: failed to authenticate a client with a TokenReview: {error}");
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
            metrics.refuse(Refusal::Forbidden);
            let why =
                format!("{} may not get {PATH}: bind the ClusterRole perennial-metrics-reader to it\n", caller.name);
            (StatusCode::FORBIDDEN, why).into_response()
        }
        Err(error) => {
            metrics.refuse(Refusal::ReviewFailed);
            warn!("metrics: failed to authorize a client with a SubjectAccessReview: {}", brief(&error));
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

fn probe(is_good: bool, otherwise: &str) -> (StatusCode, String) {
    if is_good { (StatusCode::OK, "ok".to_owned()) } else { (StatusCode::SERVICE_UNAVAILABLE, otherwise.to_owned()) }
}

/// Returns the answer of `/readyz`. Reports a full disk with the same text as `/readyz` of the API.
fn readiness(is_ready: bool, disk_full: Option<String>) -> (StatusCode, String) {
    let storage = disk_full.map(|why| format!("[-]storage failed: {why}"));
    let passes = (!is_ready).then(|| "no pass has ended yet".to_owned());
    let failed: Vec<String> = passes.into_iter().chain(storage).collect();
    probe(failed.is_empty(), &failed.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readiness_reports_a_missing_pass_and_a_full_disk() {
        let check = |is_ready, disk_full: Option<&str>, code: u16, text: &str| {
            let (status, body) = readiness(is_ready, disk_full.map(ToOwned::to_owned));
            assert_eq!((status.as_u16(), body.as_str()), (code, text));
        };
        check(true, None, 200, "ok");
        check(false, None, 503, "no pass has ended yet");
        check(true, Some("no space"), 503, "[-]storage failed: no space");
        check(false, Some("no space"), 503, "no pass has ended yet\n[-]storage failed: no space");
    }

    #[test]
    fn tls_is_optional_only_on_this_machine_and_only_by_default() {
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
