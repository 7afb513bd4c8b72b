//! A proxy that shifts the `Date` of answers of a real API server, as if the server's clock were wrong.
//!
//! The proxy uses HTTP without TLS, so that no certificate is rejected because of its dates.

#![allow(dead_code, reason = "each test file uses its part")]

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use http::header::{DATE, HOST, HeaderValue};
use http::{StatusCode, header};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use tokio::sync::oneshot;

/// The proxy, which stops when dropped.
pub(crate) struct Dated {
    ahead: Arc<AtomicI64>,
    kubeconfig: PathBuf,
    _open: oneshot::Sender<()>,
}

#[derive(Clone)]
struct Server {
    client: Client,
    ahead: Arc<AtomicI64>,
}

impl Dated {
    /// Starts a proxy to the server of this kubeconfig, with the rights of its user.
    pub(crate) fn open(to: &Path, directory: &Path) -> Dated {
        let (ahead, to) = (Arc::new(AtomicI64::new(0)), Kubeconfig::read_from(to).unwrap());
        let (open, closed) = oneshot::channel::<()>();
        let (listens, address) = std::sync::mpsc::channel::<SocketAddr>();
        let seconds = ahead.clone();
        // A separate runtime, because tests block their threads while they wait for commands.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let config = Config::from_custom_kubeconfig(to, &KubeConfigOptions::default()).await.unwrap();
                let server = Server { client: Client::try_from(config).unwrap(), ahead: seconds };
                let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
                listens.send(listener.local_addr().unwrap()).unwrap();
                let app = Router::new().fallback(forward).with_state(server);
                tokio::select! {
                    served = async { axum::serve(listener, app).await } => served.unwrap(),
                    _ = closed => {}
                }
            });
        });
        let address = address.recv().unwrap();
        let kubeconfig = directory.join(format!("dated-{}.kubeconfig", address.port()));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: one\n\
             clusters: [{{name: one, cluster: {{server: 'http://{address}'}}}}]\n\
             contexts: [{{name: one, context: {{cluster: one, user: one}}}}]\nusers: [{{name: one, user: {{}}}}]\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        Dated { ahead, kubeconfig, _open: open }
    }

    /// Shifts the dates of all further answers.
    pub(crate) fn set(&self, ahead: SignedDuration) {
        self.ahead.store(ahead.as_secs(), Ordering::SeqCst);
    }

    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }
}

async fn forward(State(server): State<Server>, request: Request) -> Response {
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(HOST);
    parts.headers.remove(header::AUTHORIZATION);
    let body = to_bytes(body, 16 << 20).await.unwrap().to_vec();
    let answer = server.client.send(http::Request::from_parts(parts, body.into())).await;
    let mut response = match answer {
        Ok(answer) => answer.map(Body::new),
        Err(error) => {
            let mut response = Response::new(Body::from(error.to_string()));
            *response.status_mut() = StatusCode::BAD_GATEWAY;
            response
        }
    };
    #[expect(clippy::disallowed_methods, reason = "this is the clock of the server")]
    let now = Timestamp::now() + SignedDuration::from_secs(server.ahead.load(Ordering::SeqCst));
    let date = rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now).unwrap();
    response.headers_mut().remove(header::TRANSFER_ENCODING);
    response.headers_mut().insert(DATE, HeaderValue::from_str(&date).unwrap());
    response
}
