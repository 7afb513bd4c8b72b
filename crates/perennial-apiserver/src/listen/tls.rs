//! The TLS configuration of the API server.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::{NoServerSessionStorage, VerifierBuilderError, WebPkiClientVerifier};
use rustls::time_provider::TimeProvider;
use rustls::{RootCertStore, ServerConfig};

/// Why TLS cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate or its key is invalid.
    #[error("TLS cannot serve with this certificate and key")]
    Serving(#[source] rustls::Error),
    /// A client CA is invalid.
    #[error("TLS cannot verify clients with these CAs")]
    ClientCa(#[source] rustls::Error),
    /// The set of client CAs is invalid.
    #[error("TLS cannot verify clients with these CAs")]
    ClientCas(#[source] VerifierBuilderError),
}

/// Returns a configuration with this certificate, which verifies client certificates by these CAs at the time `now`.
///
/// TLS 1.2 or 1.3, with HTTP/2 or HTTP/1.1. A client certificate is optional, because the client may have a token; without
/// CAs, none is requested. Sessions are not resumed: a resumed session would not verify the certificate again, which may have expired.
pub fn server_config(
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    client_cas: &[CertificateDer<'_>],
    now: impl Fn() -> Timestamp + Send + Sync + 'static,
) -> Result<ServerConfig, TlsError> {
    let provider = Arc::new(default_provider());
    let builder = ServerConfig::builder_with_details(provider.clone(), Arc::new(Clock(now)))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::Serving)?;
    let builder = if client_cas.is_empty() {
        builder.with_no_client_auth()
    } else {
        let mut roots = RootCertStore::empty();
        for ca in client_cas {
            roots.add(ca.clone().into_owned()).map_err(TlsError::ClientCa)?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        builder.with_client_cert_verifier(verifier.allow_unauthenticated().build().map_err(TlsError::ClientCas)?)
    };
    let mut config = builder.with_single_cert(chain, key).map_err(TlsError::Serving)?;
    config.alpn_protocols = vec![HTTP_2.to_vec(), b"http/1.1".to_vec()];
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(config)
}

/// HTTP/2 in ALPN (RFC 9113 section 3.1).
pub(super) const HTTP_2: &[u8] = b"h2";

struct Clock<F>(F);

impl<F: Fn() -> Timestamp + Send + Sync> TimeProvider for Clock<F> {
    fn current_time(&self) -> Option<UnixTime> {
        // Without a time, TLS rejects every certificate.
        let seconds = u64::try_from((self.0)().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)))
    }
}

impl<F> fmt::Debug for Clock<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
