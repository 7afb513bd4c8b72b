//! A server on a loopback port, its certificates, and clients.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::http::Response;
use axum::routing::{get, post};
use axum::{Extension, Router};
use futures_util::future::{BoxFuture, ready};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use perennial_apiserver::api::Api;
use perennial_apiserver::environment::{Environment, counting};
use perennial_apiserver::http::router;
use perennial_apiserver::listen::{Authenticator, Limits, Presented, Settings, Tokens, User, serve, server_config};
use perennial_apiserver::store::Store;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_x509::{Certificate, Issuer, PrivateKey, issue, self_signed};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use zeroize::Zeroizing;

pub type Error = Box<dyn std::error::Error + Send + Sync>;

const NOW: &str = "2030-06-01T00:00:00Z";

pub const TOKEN: &str = "a token that nobody guesses";

/// A CA with its key.
pub struct Ca {
    pub certificate: Certificate,
    key: PrivateKey,
}

/// A certificate with its key, as TLS takes them.
pub struct Identity {
    pub certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

fn spec(name: &str, usage: Usage, not_after: &str) -> CertificateSpec {
    CertificateSpec {
        subject: Subject::common_name(name).into(),
        usage,
        hosts: if usage.serves() { vec![Host::parse("localhost")] } else { Vec::new() },
        validity: Validity {
            not_before: "2030-01-01T00:00:00Z".parse().unwrap(),
            not_after: not_after.parse().unwrap(),
        },
        key: "ECDSA P256".parse().unwrap(),
        extensions: Vec::new(),
    }
}

fn key() -> PrivateKey {
    PrivateKey::generate("ECDSA P256".parse().unwrap()).unwrap()
}

impl Ca {
    pub fn new(name: &str) -> Ca {
        let key = key();
        Ca { certificate: self_signed(&spec(name, Usage::Signer, "2031-01-01T00:00:00Z"), &key).unwrap(), key }
    }

    pub fn issue(&self, name: &str, usage: Usage) -> Identity {
        self.issue_until(name, usage, "2030-12-31T00:00:00Z")
    }

    pub fn issue_until(&self, name: &str, usage: Usage, not_after: &str) -> Identity {
        let key = key();
        let issuer = Issuer::new(&self.certificate, &self.key).unwrap();
        let certificate = issue(&spec(name, usage, not_after), key.public_key(), &issuer).unwrap();
        let pem = key.to_pkcs8_pem().unwrap();
        Identity {
            certificate: certificate.der().to_vec().into(),
            key: PrivateKeyDer::from_pem_slice(pem.as_bytes()).unwrap(),
        }
    }

    fn der(&self) -> CertificateDer<'static> {
        self.certificate.der().to_vec().into()
    }
}

/// Authenticates callers by the subject of their certificate, or by the one token.
struct Known(Tokens);

impl Authenticator for Known {
    fn authenticate<'a>(&'a self, presented: &'a Presented<'_>) -> BoxFuture<'a, Option<User>> {
        let Some(first) = presented.certificates.first() else { return self.0.authenticate(presented) };
        let subject = Certificate::from_der(first).map(|it| it.facts().subject.to_string());
        Box::pin(ready(subject.ok().map(|name| User { name, ..User::default() })))
    }
}

/// A server with its CAs.
pub struct Server {
    pub address: SocketAddr,
    pub serving_ca: Ca,
    pub client_ca: Ca,
    pub tls: watch::Sender<Arc<ServerConfig>>,
    /// Lets the server answer the one request to `/slow`.
    pub go_on: Arc<Notify>,
    stop: Arc<Notify>,
    running: JoinHandle<()>,
}

impl Server {
    pub async fn start() -> Server {
        Server::with(Limits::default()).await
    }

    pub async fn with(limits: Limits) -> Server {
        let (serving_ca, client_ca) = (Ca::new("serving"), Ca::new("clients"));
        let (tls, source) = watch::channel(tls(serving_ca.issue("first", Usage::Serving), &client_ca));
        let user = User { name: "with a token".to_owned(), ..User::default() };
        let authenticator = Known(Tokens::new([(Zeroizing::new(TOKEN.to_owned()), user)]));
        let settings = Settings { limits, ..Settings::new(source, authenticator) };
        let (stop, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let stopped = stop.clone();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = app(go_on.clone());
        let running = tokio::spawn(async move { serve(listener, app, settings, stopped.notified()).await });
        Server { address, serving_ca, client_ca, tls, go_on, stop, running }
    }

    /// Changes the serving certificate.
    pub fn rotate(&self, identity: Identity, client_ca: &Ca) {
        self.tls.send_replace(tls(identity, client_ca));
    }

    pub fn stop(&self) {
        self.stop.notify_one();
    }

    /// Waits until the server has stopped.
    pub async fn stopped(self) {
        soon(self.running).await.unwrap();
    }

    pub fn client(&self) -> Client {
        let certificate = self.client_ca.issue("alice", Usage::Client);
        Client { identity: Some(certificate), ..self.stranger() }
    }

    /// Returns a client without a certificate.
    pub fn stranger(&self) -> Client {
        let trusted = self.serving_ca.der();
        Client { address: self.address, trusted, identity: None, http: Http::Two, versions: rustls::ALL_VERSIONS }
    }
}

fn tls(identity: Identity, client_ca: &Ca) -> Arc<ServerConfig> {
    let now = || NOW.parse().unwrap();
    Arc::new(server_config(vec![identity.certificate], identity.key, &[client_ca.der()], now).unwrap())
}

fn app(go_on: Arc<Notify>) -> Router {
    let environment = Environment::new(|| NOW.parse().unwrap(), counting());
    let who = |user: Option<Extension<User>>, request: Request| async move {
        assert!(!request.headers().contains_key("authorization"));
        user.map(|Extension(user)| user.name).unwrap_or_default()
    };
    let slow = || async move {
        go_on.notified().await;
        "at last"
    };
    let big = || async { "a".repeat(1 << 20) };
    let busy = || async {
        std::thread::sleep(Duration::from_secs(3));
        "done"
    };
    let panics = || async {
        if true {
            panic!("a test");
        }
    };
    let length = |body: Body| async { to_bytes(body, usize::MAX).await.unwrap().len().to_string() };
    Router::new()
        .route("/who", get(who))
        .route("/slow", get(slow))
        .route("/big", get(big))
        .route("/busy", get(busy))
        .route("/panics", get(panics))
        .route("/length", post(length))
        .fallback_service(router(Arc::new(Api::new(Store::memory(), environment))))
}

/// The protocol of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Http {
    One,
    Two,
}

/// The options of a connection.
pub struct Client {
    pub address: SocketAddr,
    pub trusted: CertificateDer<'static>,
    pub identity: Option<Identity>,
    pub http: Http,
    pub versions: &'static [&'static SupportedProtocolVersion],
}

/// A connection.
pub struct Connection {
    sender: Sender,
    pub server_certificate: CertificateDer<'static>,
    /// True if the client hangs.
    pub hangs: Arc<AtomicBool>,
    pub ended: JoinHandle<()>,
}

enum Sender {
    One(http1::SendRequest<Body>),
    Two(http2::SendRequest<Body>),
}

impl Client {
    pub fn speaking(self, http: Http) -> Client {
        Client { http, ..self }
    }

    pub fn config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusted.clone()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_details(provider, Arc::new(Standing))
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match &self.identity {
            None => builder.with_no_client_auth(),
            Some(Identity { certificate, key }) => {
                builder.with_client_auth_cert(vec![certificate.clone()], key.clone_key()).unwrap()
            }
        };
        config.alpn_protocols = vec![if self.http == Http::Two { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
        config
    }

    pub async fn handshake(&self, config: ClientConfig) -> Result<TlsStream<TcpStream>, Error> {
        let stream = TcpStream::connect(self.address).await?;
        let name = ServerName::try_from("localhost").unwrap();
        Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
    }

    pub async fn connect(&self) -> Result<Connection, Error> {
        self.connect_with_window(1 << 20).await
    }

    /// Connects with a limit for unread response bytes over HTTP/2.
    pub async fn connect_with_window(&self, window: u32) -> Result<Connection, Error> {
        let stream = self.handshake(self.config()).await?;
        let server_certificate = stream.get_ref().1.peer_certificates().unwrap()[0].clone().into_owned();
        let hangs = Arc::new(AtomicBool::new(false));
        let io = TokioIo::new(MayHang { stream, hangs: hangs.clone() });
        let (sender, ended) = match self.http {
            Http::One => {
                let (sender, connection) = http1::handshake(io).await?;
                (Sender::One(sender), tokio::spawn(async { drop(connection.await) }))
            }
            Http::Two => {
                let mut builder = http2::Builder::new(TokioExecutor::new());
                let (sender, connection) = builder.initial_stream_window_size(window).handshake(io).await?;
                (Sender::Two(sender), tokio::spawn(async { drop(connection.await) }))
            }
        };
        Ok(Connection { sender, server_certificate, hangs, ended })
    }
}

/// A connection whose client may hang: it stays open, but the client does not read.
struct MayHang {
    stream: TlsStream<TcpStream>,
    hangs: Arc<AtomicBool>,
}

impl AsyncRead for MayHang {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.hangs.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for MayHang {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Connection {
    pub async fn send(
        &mut self,
        request: axum::http::request::Builder,
        body: Body,
    ) -> Result<Response<Incoming>, Error> {
        let request = request.header("host", "localhost").body(body)?;
        Ok(match &mut self.sender {
            Sender::One(sender) => {
                sender.ready().await?;
                sender.send_request(request).await?
            }
            Sender::Two(sender) => {
                sender.ready().await?;
                let (mut parts, body) = request.into_parts();
                parts.uri = format!("https://localhost{}", parts.uri).parse()?;
                parts.headers.remove("host");
                sender.send_request(hyper::Request::from_parts(parts, body)).await?
            }
        })
    }

    pub async fn get(&mut self, path: &str) -> Result<Answer, Error> {
        self.answer(hyper::Request::get(path), Body::empty()).await
    }

    pub async fn get_with(&mut self, path: &str, authorization: &str) -> Result<Answer, Error> {
        self.answer(hyper::Request::get(path).header("authorization", authorization), Body::empty()).await
    }

    pub async fn post(&mut self, path: &str, body: impl Into<Body>) -> Result<Answer, Error> {
        self.answer(hyper::Request::post(path), body.into()).await
    }

    async fn answer(&mut self, request: axum::http::request::Builder, body: Body) -> Result<Answer, Error> {
        soon(async { Answer::of(self.send(request, body).await?).await }).await
    }
}

/// A complete response.
#[derive(Debug)]
pub struct Answer {
    pub code: u16,
    pub retry_after: Option<String>,
    pub text: String,
}

impl Answer {
    pub async fn of(response: Response<Incoming>) -> Result<Answer, Error> {
        let code = response.status().as_u16();
        let retry_after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        let bytes = to_bytes(Body::new(response.into_body()), usize::MAX).await?;
        Ok(Answer { code, retry_after, text: String::from_utf8(bytes.to_vec())? })
    }

    /// Returns the code and the reason of a `Status`.
    pub fn status(&self) -> (u16, String) {
        let status: Value = serde_json::from_str(&self.text).unwrap();
        assert_eq!((&status["kind"], &status["code"]), (&"Status".into(), &self.code.into()));
        (self.code, status["reason"].as_str().unwrap().to_owned())
    }
}

/// Waits for a future that must complete, with a timeout.
pub async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(30), future).await.expect("it comes")
}

/// Returns true if the future does not complete within a short time.
pub async fn is_waiting<T>(future: impl Future<Output = T>) -> bool {
    timeout(Duration::from_millis(300), future).await.is_err()
}

#[derive(Debug)]
struct Standing;

impl TimeProvider for Standing {
    fn current_time(&self) -> Option<UnixTime> {
        let now: jiff::Timestamp = NOW.parse().unwrap();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(now.as_second().try_into().unwrap())))
    }
}
