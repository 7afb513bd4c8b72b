//! The TLS endpoint of the server, the authentication of its clients, the administrator's kubeconfig and the token.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use axum::Router;
use futures_util::future::{BoxFuture, ready};
use perennial_apiserver::listen::{self, Authenticator, Presented, Settings, Tokens, User, server_config};
use perennial_core::spec::Host;
use perennial_x509::{Certificate, random};
use rustls::ServerConfig;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use tokio::net::TcpListener;
use tokio::sync::watch;
use zeroize::Zeroizing;

use super::directory::{KUBECONFIG, TOKEN, keep_secret_file};
use super::identity::{Credential, Identity};
use crate::clock;
use crate::install::kubeconfig;

/// The TLS endpoint of the server. Clones share the same endpoint.
#[derive(Debug, Clone)]
pub(crate) struct Endpoint {
    directory: PathBuf,
    address: SocketAddr,
    cluster: String,
    tls: watch::Sender<Arc<ServerConfig>>,
    open: watch::Sender<bool>,
    token: Arc<Zeroizing<String>>,
}

impl Endpoint {
    /// Creates the endpoint, and writes the kubeconfig and the token.
    pub(crate) fn new(
        directory: &Path,
        address: SocketAddr,
        cluster: &str,
        identity: &Identity,
    ) -> anyhow::Result<Endpoint> {
        let endpoint = Endpoint {
            directory: directory.to_owned(),
            address,
            cluster: cluster.to_owned(),
            tls: watch::Sender::new(tls(identity)?),
            open: watch::Sender::new(true),
            token: Arc::new(token(directory)?),
        };
        endpoint.write_kubeconfig(identity)?;
        Ok(endpoint)
    }

    /// Serves until the endpoint is closed.
    pub(crate) fn serve(&self, listener: TcpListener, app: Router) -> impl Future<Output = ()> + Send + use<> {
        let settings = Settings::new(self.tls.subscribe(), Callers::with_token(&self.token));
        let mut open = self.open.subscribe();
        let closed = async move { drop(open.wait_for(|open| !open).await) };
        listen::serve(listener, app, settings, closed)
    }

    /// Presents new certificates to new connections.
    pub(crate) fn renew(&self, identity: &Identity) -> anyhow::Result<()> {
        self.write_kubeconfig(identity)?;
        self.tls.send_replace(tls(identity)?);
        Ok(())
    }

    /// Stops accepting connections.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }

    fn write_kubeconfig(&self, identity: &Identity) -> anyhow::Result<()> {
        let Credential { certificates, key } = &identity.admin;
        // If the certificate does not have the address, the kubeconfig sets the server name.
        let ip = if self.address.ip().is_unspecified() { Ipv4Addr::LOCALHOST.into() } else { self.address.ip() };
        let url = format!("https://{}", SocketAddr::new(ip, self.address.port()));
        let parts = kubeconfig::Parts {
            cluster: &self.cluster,
            server: &url,
            server_name: (!identity.is_for(&Host::Ip(ip))).then_some("localhost"),
            bundle_pem: &identity.server_trust.to_pem(),
            user: "admin",
            certificate_pem: &certificates.iter().map(Certificate::to_pem).collect::<String>(),
        };
        keep_secret_file(&self.directory.join(KUBECONFIG), &kubeconfig::render(&parts, &key.to_pem()?))
    }
}

fn tls(identity: &Identity) -> anyhow::Result<Arc<ServerConfig>> {
    let Credential { certificates, key } = &*identity.server;
    let der = |certificate: &Certificate| CertificateDer::from(certificate.der().to_vec());
    let chain = certificates.iter().map(der).collect();
    let key = PrivateKeyDer::from_pem_slice(key.to_pkcs8_pem()?.as_bytes()).context("cannot read the server's key")?;
    let clients: Vec<_> = identity.client_trust.certificates().iter().map(der).collect();
    Ok(Arc::new(server_config(chain, key, &clients, clock::now)?))
}

/// Authenticates clients by a client certificate or by the token.
#[derive(Debug)]
pub(super) struct Callers {
    tokens: Tokens,
}

impl Authenticator for Callers {
    fn authenticate<'a>(&'a self, presented: &'a Presented<'_>) -> BoxFuture<'a, Option<User>> {
        Box::pin(ready(self.user(presented)))
    }
}

impl Callers {
    /// Returns the authenticator with the token in the directory.
    pub(super) fn from_directory(directory: &Path) -> anyhow::Result<Callers> {
        Ok(Callers::with_token(&token(directory)?))
    }

    fn with_token(token: &Zeroizing<String>) -> Callers {
        Callers { tokens: Tokens::new([(token.clone(), administrator())]) }
    }

    fn user(&self, presented: &Presented<'_>) -> Option<User> {
        let certificate = presented.certificates.first().and_then(|der| Certificate::from_der(der).ok());
        let Some(certificate) = certificate else { return self.tokens.owner(presented) };
        // TLS has checked the certificate when the connection was opened, which may be long ago.
        if !certificate.facts().validity.contains(clock::now()) {
            return None;
        }
        let subject = &certificate.facts().subject;
        Some(User { name: subject.common_name()?, groups: subject.organizations(), ..User::default() })
    }
}

fn administrator() -> User {
    User { name: "system:admin".to_owned(), groups: vec!["system:masters".to_owned()], ..User::default() }
}

/// Reads the token in the directory, or generates one.
fn token(directory: &Path) -> anyhow::Result<Zeroizing<String>> {
    let path = directory.join(TOKEN);
    if let Ok(found) = fs::read_to_string(&path) {
        let found = Zeroizing::new(found);
        if found.trim().len() >= 32 {
            let token = Zeroizing::new(found.trim().to_owned());
            keep_secret_file(&path, token.as_bytes())?;
            return Ok(token);
        }
    }
    rotate_token(directory)
}

/// Generates a new token, which replaces the previous one.
pub(super) fn rotate_token(directory: &Path) -> anyhow::Result<Zeroizing<String>> {
    let bytes = Zeroizing::new(random::bytes::<32>()?);
    let token: Zeroizing<String> = Zeroizing::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
    keep_secret_file(&directory.join(TOKEN), token.as_bytes())?;
    Ok(token)
}
