//! Connects to pods, and compares the certificate that each serves with the certificate in its Secret.
//!
//! The probe does not verify the certificate. It has to request the whole Secret, but parses only the certificate, not the private key.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube_client::{Client, Resource};
use perennial_core::catalog::ObjectName;
use perennial_core::consumers::{Consumer, Kind, Leaf, Served, served};
use perennial_core::spec::Host;
use perennial_x509::{Certificate, read_certificates};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::Endpoint;
use crate::brief;
use crate::pass::Clock;

/// The time limit for a handshake with a pod.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How many pods are probed at once.
const AT_ONCE: usize = 32;

/// Returns the certificates that pods serve, by pod and name of the Secret, for pods that use a serving certificate.
pub async fn probe(
    client: &Client,
    consumers: &[Consumer<'_>],
    endpoints: &BTreeMap<ObjectName, Endpoint>,
    clock: &Clock,
) -> BTreeMap<(ObjectName, String), Served> {
    let held = consumers.iter().flat_map(|it| it.held.iter().map(|held| (it.pod, held)));
    let asked: Vec<_> = held.filter(|(_, held)| held.source.kind == Kind::Secret).collect();
    let secrets: BTreeSet<&ObjectName> = asked.iter().map(|(_, held)| &held.source.object).collect();
    let read = secrets.into_iter().map(|secret| async move { (secret, current(client, secret).await) });
    let current: BTreeMap<_, _> = stream::iter(read).buffer_unordered(AT_ONCE).collect().await;
    let current = &current;
    let probes = asked.into_iter().map(|(pod, held)| async move {
        let ObjectName { namespace, name } = &held.source.object;
        let found = match &current[&held.source.object] {
            Ok(current) => {
                let service = format!("{}.{namespace}.svc", held.source.service.as_deref().unwrap_or_default());
                served(current, &answers(endpoints.get(&pod.object), &service, clock).await)
            }
            Err(why) => Served::Nothing { why: why.clone() },
        };
        ((pod.object.clone(), name.clone()), found)
    });
    stream::iter(probes).buffer_unordered(AT_ONCE).collect().await
}

/// Returns the certificate that each port of a pod serves for this name, or why there is none.
async fn answers(endpoint: Option<&Endpoint>, name: &str, clock: &Clock) -> Vec<Result<Leaf, String>> {
    let Some(Endpoint { address: Some(address), ports }) = endpoint else {
        return vec![Err("the pod has no address".to_owned())];
    };
    if ports.is_empty() {
        return vec![Err("the pod declares no port".to_owned())];
    }
    let asked = ports.iter().map(|port| async move {
        ask(*address, *port, name, clock).await.map_err(|why| format!("port {port}: {why}"))
    });
    futures_util::future::join_all(asked).await
}

/// Returns the certificate in a Secret.
async fn current(client: &Client, secret: &ObjectName) -> Result<Leaf, String> {
    /// A Secret without its private key.
    #[derive(Deserialize)]
    struct Public {
        #[serde(default)]
        data: Data,
    }
    #[derive(Default, Deserialize)]
    struct Data {
        #[serde(rename = "tls.crt")]
        certificate: Option<ByteString>,
    }
    let failed = |why: &str| format!("Secret {secret}: {why}");
    let path = format!("{}/{}", Secret::url_path(&(), Some(&secret.namespace)), secret.name);
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| failed(&error.to_string()))?;
    let found: Public = client.request(request).await.map_err(|error| failed(&brief(&error)))?;
    let pem = found.data.certificate.ok_or_else(|| failed("data key tls.crt is missing"))?;
    let first = read_certificates(&pem.0).ok().and_then(|all| all.into_iter().next());
    first.map(|it| leaf(&it)).ok_or_else(|| failed("tls.crt has no readable certificate"))
}

fn leaf(certificate: &Certificate) -> Leaf {
    let facts = certificate.facts();
    let dns = |host: &Host| if let Host::Dns(name) = host { Some(name.clone()) } else { None };
    let names: BTreeSet<String> = facts.hosts.iter().filter_map(dns).collect();
    Leaf { fingerprint: facts.fingerprint_hex(), names, not_after: facts.validity.not_after }
}

/// Returns the certificate that a port serves for this name, or why there is none.
async fn ask(address: IpAddr, port: u16, name: &str, clock: &Clock) -> Result<Leaf, String> {
    let look = Arc::new(RecordingVerifier { leaf: Mutex::new(None), provider: Arc::new(default_provider()) });
    let config = ClientConfig::builder_with_details(look.provider.clone(), Arc::new(Now(clock.clone())))
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(look.clone())
        .with_no_client_auth();
    // No client can use a name that is too long for DNS.
    let name = ServerName::try_from(name.to_owned()).unwrap_or(ServerName::IpAddress(address.into()));
    let talk = async {
        let socket = TcpStream::connect(SocketAddr::new(address, port)).await?;
        TlsConnector::from(Arc::new(config)).connect(name, socket).await.map(drop)
    };
    let talked = tokio::time::timeout(TIMEOUT, talk).await;
    // A server that requires a client certificate has sent its own by then.
    let seen = look.leaf.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (seen, talked) {
        (Some(der), _) => {
            let read = Certificate::from_der(&der);
            read.map(|it| leaf(&it)).map_err(|_| "the served certificate cannot be parsed".to_owned())
        }
        (None, Err(_)) => Err(format!("no answer within {} seconds", TIMEOUT.as_secs())),
        (None, Ok(Err(error))) if error.get_ref().is_some_and(|it| it.is::<rustls::Error>()) => {
            Err(format!("no TLS: {error}"))
        }
        (None, Ok(Err(error))) => Err(error.to_string()),
        (None, Ok(Ok(()))) => Err("the handshake had no certificate".to_owned()),
    }
}

/// Records the served certificate, and accepts every certificate.
struct RecordingVerifier {
    leaf: Mutex<Option<Vec<u8>>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for RecordingVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.leaf.lock().unwrap_or_else(PoisonError::into_inner) = Some(leaf.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

impl fmt::Debug for RecordingVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecordingVerifier")
    }
}

struct Now(Clock);

impl TimeProvider for Now {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from((self.0)().as_second()).ok()?;
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

impl fmt::Debug for Now {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Now")
    }
}
