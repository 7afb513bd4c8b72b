//! TLS handshakes in memory between a server with a certificate and a client with a bundle.

use std::io::{self, Read, Write};
use std::ops::DerefMut;
use std::sync::Arc;

use anyhow::{Context, anyhow};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::{Api, Client};
use perennial_core::catalog::ObjectName;
use perennial_core::snapshot::Slot;
use perennial_core::spec::Host;
use perennial_operator::brief;
use perennial_x509::read_certificates;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::time_provider::TimeProvider;
use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConfig, ServerConnection, SideData,
};

/// A certificate chain and its key.
pub(super) struct Pair {
    /// The Secret, serial number and fingerprint.
    pub(super) name: String,
    host: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Pair {
    /// Reads a Secret.
    pub(super) async fn read(client: &Client, secret: &ObjectName) -> anyhow::Result<Pair> {
        let api = Api::<Secret>::namespaced(client.clone(), &secret.namespace);
        let found = api.get(&secret.name).await;
        let data = found.map_err(|error| anyhow!("failed to read Secret {secret}: {}", brief(&error)))?.data;
        let data = data.unwrap_or_default();
        let part = |name: &str| {
            data.get(name).map(|it| it.0.as_slice()).with_context(|| format!("Secret {secret} has no {name}"))
        };
        let certificates = read_certificates(part("tls.crt")?)?;
        let leaf = certificates.first().with_context(|| format!("Secret {secret} has no certificate"))?;
        let named = leaf.facts().hosts.iter().find_map(|host| match host {
            Host::Dns(name) => Some(name.replace('*', "any")),
            Host::Ip(_) => None,
        });
        let host = named.with_context(|| format!("the certificate of Secret {secret} has no DNS name"))?;
        let fingerprint = leaf.facts().fingerprint_hex();
        let name = format!("{secret}, serial {}, fingerprint {fingerprint}", leaf.facts().serial);
        let chain = CertificateDer::pem_slice_iter(part("tls.crt")?).collect::<Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(part("tls.key")?)
            .map_err(|_| anyhow!("Secret {secret}: tls.key is not a private key"))?;
        Ok(Pair { name, host, chain, key })
    }
}

/// Reads a bundle.
pub(super) async fn trusted(client: &Client, bundle: &Slot) -> anyhow::Result<Arc<RootCertStore>> {
    let object = bundle.object();
    let api = Api::<ConfigMap>::namespaced(client.clone(), &object.namespace);
    let found = api.get(&object.name).await;
    let data = found.map_err(|error| anyhow!("failed to read ConfigMap {object}: {}", brief(&error)))?.data;
    let text = data.unwrap_or_default().remove(bundle.key()).unwrap_or_default();
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
        roots.add(certificate?)?;
    }
    Ok(Arc::new(roots))
}

/// A fixed time for rustls.
#[derive(Debug)]
struct At(UnixTime);

impl TimeProvider for At {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

/// Makes a handshake, and returns whether the client accepts the server, or why not.
pub(super) fn shake(pair: &Pair, trusted: &Arc<RootCertStore>, now: Timestamp) -> anyhow::Result<Result<(), String>> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    let at = Arc::new(At(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds))));
    let server = ServerConfig::builder_with_details(provider.clone(), at.clone())
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(pair.chain.clone(), pair.key.clone_key())?;
    let client = ClientConfig::builder_with_details(provider, at)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(trusted.clone())
        .with_no_client_auth();
    let mut server = ServerConnection::new(Arc::new(server))?;
    let name = ServerName::try_from(pair.host.clone()).with_context(|| format!("{:?} is not a DNS name", pair.host))?;
    let mut client = ClientConnection::new(Arc::new(client), name)?;
    // A handshake takes a few messages each way.
    for _ in 0..10 {
        if let Err(error) = carry(&mut client, &mut server)? {
            return Ok(Err(format!("the server fails: {error}")));
        }
        match carry(&mut server, &mut client)? {
            Ok(()) => {}
            Err(rustls::Error::InvalidCertificate(why)) => return Ok(Err(why.to_string())),
            Err(other) => return Err(other.into()),
        }
        if !client.is_handshaking() && !server.is_handshaking() {
            // Check that the connection carries data.
            server.writer().write_all(b"hello")?;
            carry(&mut server, &mut client)??;
            let mut received = [0; 5];
            client.reader().read_exact(&mut received)?;
            return Ok(Ok(()));
        }
    }
    Err(anyhow!("the handshake did not complete"))
}

/// Transfers all pending TLS data from one side to the other, and returns the error of the receiver.
fn carry<A, B, S, T>(from: &mut A, to: &mut B) -> io::Result<Result<(), rustls::Error>>
where
    A: DerefMut<Target = ConnectionCommon<S>>,
    B: DerefMut<Target = ConnectionCommon<T>>,
    S: SideData,
    T: SideData,
{
    let mut wire = Vec::new();
    while from.wants_write() {
        from.write_tls(&mut wire)?;
    }
    let mut rest = wire.as_slice();
    while !rest.is_empty() {
        to.read_tls(&mut rest)?;
        if let Err(error) = to.process_new_packets() {
            return Ok(Err(error));
        }
    }
    Ok(Ok(()))
}
