//! A Kubernetes client that closes connections after requests for Secrets.
//!
//! The buffers of an open connection keep the last data that it read and wrote, which may contain a private key. When the connection is
//! closed, the allocator overwrites its buffers. So requests for Secrets use separate connections, which are closed as soon as they are
//! idle. The other connections (watches, the Lease, conditions) stay open and never carry a key.

use std::time::Duration;

use http::Request;
use hyper_timeout::TimeoutConnector;
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube_client::client::retry::RetryPolicy;
use kube_client::client::{Body, ConfigExt};
use kube_client::{Client, Config, Error};
use tower::retry::RetryLayer;
use tower::{BoxError, ServiceBuilder};

/// How long a connection for Secrets may be idle.
const IDLE: Duration = Duration::from_secs(3);

/// Returns a client that closes idle connections of requests for Secrets.
///
/// For a cluster behind a proxy, returns the default client, which keeps its connections.
pub(crate) fn client(config: Config) -> Result<Client, Error> {
    if config.proxy_url.is_some() {
        return Client::try_from(config);
    }
    let namespace = config.default_namespace.clone();
    let closing = closing(&config)?;
    let keeping = Client::try_from(config)?;
    let service = tower::service_fn(move |request: Request<Body>| {
        let client = if carries_keys(&request) { closing.clone() } else { keeping.clone() };
        async move { client.send(request).await }
    });
    Ok(Client::new(service, namespace))
}

/// Returns whether the request or its answer can contain a Secret.
///
/// Perennial watches only the metadata of Secrets.
fn carries_keys(request: &Request<Body>) -> bool {
    let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|pair| pair == "watch=true"));
    !is_watch && request.uri().path().split('/').any(|segment| segment == "secrets")
}

/// Returns a client that closes idle connections. The default client of `kube` keeps them while the process runs.
fn closing(config: &Config) -> Result<Client, Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(http)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let hyper: legacy::Client<_, Body> = legacy::Builder::new(TokioExecutor::new())
        .pool_idle_timeout(IDLE)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry())))
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(hyper);
    Ok(Client::new(service, config.default_namespace.clone()))
}
