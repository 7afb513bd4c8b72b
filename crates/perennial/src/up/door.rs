//! Who is let in, and how: TLS, the administrator's kubeconfig, and a token for who prefers one.

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

/// The way into a server. Clones are the same door.
#[derive(Debug, Clone)]
pub(crate) struct Door {
    directory: PathBuf,
    address: SocketAddr,
    cluster: String,
    tls: watch::Sender<Arc<ServerConfig>>,
    open: watch::Sender<bool>,
    token: Arc<Zeroizing<String>>,
}

impl Door {
    /// A door to this address, with its kubeconfig and token written.
    pub(crate) fn new(
        directory: &Path,
        address: SocketAddr,
        cluster: &str,
        identity: &Identity,
    ) -> anyhow::Result<Door> {
        let door = Door {
            directory: directory.to_owned(),
            address,
            cluster: cluster.to_owned(),
            tls: watch::Sender::new(tls(identity)?),
            open: watch::Sender::new(true),
            token: Arc::new(token(directory)?),
        };
        door.write_kubeconfig(identity)?;
        Ok(door)
    }

    /// Serves until it is closed.
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

    /// Lets nobody in any more.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }

    fn write_kubeconfig(&self, identity: &Identity) -> anyhow::Result<()> {
        let Credential { certificates, key } = &identity.admin;
        // Where its certificate is not for the address, clients ask for the name that it is for.
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
    let key = PrivateKeyDer::from_pem_slice(key.to_pkcs8_pem()?.as_bytes()).context("the server's key")?;
    let clients: Vec<_> = identity.client_trust.certificates().iter().map(der).collect();
    Ok(Arc::new(server_config(chain, key, &clients, clock::now)?))
}

/// Those who have a certificate of ours, or a token.
#[derive(Debug)]
pub(super) struct Callers {
    tokens: Tokens,
}

impl Authenticator for Callers {
    fn authenticate<'a>(&'a self, presented: &'a Presented<'_>) -> BoxFuture<'a, Option<User>> {
        Box::pin(ready(self.who(presented)))
    }
}

impl Callers {
    /// Those who have a certificate of ours, or the token in the directory.
    pub(super) fn of(directory: &Path) -> anyhow::Result<Callers> {
        Ok(Callers::with_token(&token(directory)?))
    }

    fn with_token(token: &Zeroizing<String>) -> Callers {
        Callers { tokens: Tokens::new([(token.clone(), administrator())]) }
    }

    fn who(&self, presented: &Presented<'_>) -> Option<User> {
        let certificate = presented.certificates.first().and_then(|der| Certificate::from_der(der).ok());
        let Some(certificate) = certificate else { return self.tokens.owner(presented) };
        // TLS looked at it when the connection began, which may be long ago.
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

/// The token in the directory, which is drawn where there is none.
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
    let bytes = Zeroizing::new(random::bytes::<32>()?);
    let token: Zeroizing<String> = Zeroizing::new(bytes.iter().map(|byte| format!("{byte:02x}")).collect());
    keep_secret_file(&path, token.as_bytes())?;
    Ok(token)
}
