//! One connection per request, with the current versions of both sides.

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::objects::Material;

/// The address and the identity of a connection.
pub(crate) struct Call<'a> {
    pub(crate) port: u16,
    pub(crate) server_name: &'a str,
    pub(crate) trust: &'a str,
    pub(crate) identity: Option<&'a Material>,
    /// The whole request; it asks the server to close the connection.
    pub(crate) request: &'a str,
}

/// Longer than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(30);

impl Call<'_> {
    /// The whole answer, or the error.
    pub(crate) async fn make(&self) -> Result<String, String> {
        match tokio::time::timeout(PATIENCE, self.try_it()).await {
            Ok(answer) => answer.map_err(|error| error.to_string()),
            Err(_) => Err("no answer".to_owned()),
        }
    }

    async fn try_it(&self) -> io::Result<String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let config = config.map_err(io::Error::other)?.with_root_certificates(roots(self.trust)?);
        let config = match self.identity {
            Some(it) => config.with_client_auth_cert(chain(&it.chain)?, key(&it.key)?).map_err(io::Error::other)?,
            None => config.with_no_client_auth(),
        };
        let name = ServerName::try_from(self.server_name.to_owned()).map_err(io::Error::other)?;
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
        let mut stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
        stream.write_all(self.request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }
}

/// Answers one request of a client with a certificate that this bundle trusts. A rejected certificate is an error of the kind
/// `InvalidData`.
pub(crate) async fn serve(
    stream: TcpStream,
    identity: &Material,
    clients: &str,
    answer: impl FnOnce(&str, &CertificateDer<'_>) -> String,
) -> io::Result<()> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots(clients)?), provider.clone()).build();
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(io::Error::other)?.with_client_cert_verifier(verifier.map_err(io::Error::other)?);
    let config = config.with_single_cert(chain(&identity.chain)?, key(&identity.key)?).map_err(io::Error::other)?;
    let mut stream = TlsAcceptor::from(Arc::new(config)).accept(stream).await?;
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let request = String::from_utf8_lossy(&request).into_owned();
    let path = request.split_whitespace().nth(1).unwrap_or_default();
    let client = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first()).expect("clients are verified");
    let answer = answer(path, client);
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await
}

/// An HTTP response.
pub(crate) fn http(status: &str, kind: &str, body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn roots(pem: &str) -> io::Result<RootCertStore> {
    let mut roots = RootCertStore::empty();
    for certificate in chain(pem)? {
        roots.add(certificate).map_err(io::Error::other)?;
    }
    Ok(roots)
}

fn chain(pem: &str) -> io::Result<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().map_err(io::Error::other)
}

fn key(pem: &str) -> io::Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(io::Error::other)
}
