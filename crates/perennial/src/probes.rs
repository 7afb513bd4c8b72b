//! What watches over an operator asks it: metrics, and whether it lives and is ready. On this machine only.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context, ensure};
use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use perennial_operator::metrics::Metrics;
use tokio::net::TcpListener;

const TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Takes the address. Nobody but this machine may ask without saying who they are.
pub(crate) async fn bind(address: SocketAddr) -> anyhow::Result<TcpListener> {
    ensure!(
        address.ip().is_loopback(),
        "cannot serve metrics on {address}: accepted is an address of this machine alone, such as 127.0.0.1:9943; others need TLS and \
         authentication, which are not there yet"
    );
    TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot serve metrics on {address}; --metrics chooses another address"))
}

/// Answers until it is dropped.
pub(crate) async fn serve(listener: TcpListener, metrics: Arc<Metrics<'static>>) -> std::io::Result<()> {
    let (living, ready) = (metrics.clone(), metrics.clone());
    let app = Router::new()
        .route("/metrics", get(async move || text(&metrics)))
        .route("/livez", get(async move || probe(living.is_alive(), "no pass has ended for ten minutes")))
        .route("/readyz", get(async move || probe(ready.is_ready(), "no pass has ended yet")));
    axum::serve(listener, app).await
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
