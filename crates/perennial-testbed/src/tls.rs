//! A full TLS 1.3 handshake between a rustls server and a rustls client, in memory, from PEM.
//!
//! [`Pair::handshake`] involves no socket; [`Pair::handshakes_on_loopback`] does what a network would see.

use std::{
    fmt, io,
    net::{Ipv4Addr, TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::{self, Duration},
};

use rustls::{
    ClientConfig, ClientConnection, ConnectionCommon, RootCertStore, ServerConfig, ServerConnection, SideData,
    client::Resumption,
    crypto::aws_lc_rs,
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
    time_provider::TimeProvider,
    version::TLS13,
};
use rustls_pki_types::{CertificateDer, InvalidDnsNameError, PrivateKeyDer, ServerName, UnixTime, pem::PemObject};

/// A certificate chain and its key, as PEM.
#[derive(Clone)]
pub struct Identity {
    /// The leaf first, then the intermediates.
    pub chain: String,
    /// The leaf's key in PKCS#1, SEC1 or PKCS#8.
    pub key: String,
}

/// Who talks to whom, and when.
#[derive(Debug, Clone)]
pub struct Setup {
    /// What the server presents.
    pub server: Identity,
    /// The bundle, as PEM, that the client reads.
    pub server_anchors: String,
    /// The DNS name or IP address that the client dials.
    pub name: String,
    /// With mutual TLS: what the client presents, and the bundle that the server reads.
    pub client: Option<(Identity, String)>,
    /// The instant of the handshake in unix seconds.
    pub at: u64,
}

/// Both sides, ready for any number of handshakes.
#[derive(Debug)]
pub struct Pair {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
    name: ServerName<'static>,
}

/// Why there was no handshake.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Some PEM cannot be read.
    #[error("failed to read PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    /// The name is neither a DNS name nor an IP address.
    #[error("failed to read the server's name")]
    Name(#[from] InvalidDnsNameError),
    /// The anchors for client certificates are of no use.
    #[error("failed to set up the check of client certificates")]
    ClientAnchors(#[from] rustls::server::VerifierBuilderError),
    /// A side cannot use what it was given.
    #[error("failed to set up TLS")]
    Setup(#[source] rustls::Error),
    /// The client refused the server or the conversation.
    #[error("the client refused")]
    Client(#[source] rustls::Error),
    /// The server refused the client or the conversation.
    #[error("the server refused")]
    Server(#[source] rustls::Error),
    /// Bytes did not get from one side to the other.
    #[error("failed to carry bytes from one side to the other")]
    Carry(#[from] io::Error),
}

impl Pair {
    /// Reads the PEM and prepares both sides.
    pub fn new(setup: &Setup) -> Result<Pair, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let clock = Arc::new(Instant(UnixTime::since_unix_epoch(Duration::from_secs(setup.at))));

        let server = ServerConfig::builder_with_details(provider.clone(), clock.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(TlsError::Setup)?;
        let (chain, key) = setup.server.read()?;
        let server = match &setup.client {
            None => server.with_no_client_auth(),
            Some((_, anchors)) => server.with_client_cert_verifier(client_verifier(anchors, provider.clone())?),
        }
        .with_single_cert(chain, key)
        .map_err(TlsError::Setup)?;

        let client = ClientConfig::builder_with_details(provider, clock)
            .with_protocol_versions(&[&TLS13])
            .map_err(TlsError::Setup)?
            .with_root_certificates(roots(&setup.server_anchors)?);
        let mut client = match &setup.client {
            None => client.with_no_client_auth(),
            Some((identity, _)) => {
                let (chain, key) = identity.read()?;
                client.with_client_auth_cert(chain, key).map_err(TlsError::Setup)?
            }
        };
        // Every handshake shall verify certificates again.
        client.resumption = Resumption::disabled();
        let name = ServerName::try_from(setup.name.clone())?;
        Ok(Pair { server: Arc::new(server), client: Arc::new(client), name })
    }

    /// Does one full handshake.
    pub fn handshake(&self) -> Result<(), TlsError> {
        let mut client = ClientConnection::new(self.client.clone(), self.name.clone()).map_err(TlsError::Setup)?;
        let mut server = ServerConnection::new(self.server.clone()).map_err(TlsError::Setup)?;
        while client.is_handshaking() || server.is_handshaking() {
            carry(&mut client, &mut server)?.map_err(TlsError::Server)?;
            carry(&mut server, &mut client)?.map_err(TlsError::Client)?;
        }
        Ok(())
    }

    /// Does this many full handshakes one after the other over TCP on loopback, and returns how long they took.
    pub fn handshakes_on_loopback(&self, count: usize) -> Result<Duration, TlsError> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let config = self.server.clone();
        let server = thread::spawn(move || -> Result<(), TlsError> {
            for _ in 0..count {
                let (mut socket, _) = listener.accept()?;
                socket.set_nodelay(true)?;
                let mut server = ServerConnection::new(config.clone()).map_err(TlsError::Setup)?;
                while server.is_handshaking() {
                    server.complete_io(&mut socket)?;
                }
            }
            Ok(())
        });
        let started = time::Instant::now();
        for _ in 0..count {
            let mut socket = TcpStream::connect(address)?;
            socket.set_nodelay(true)?;
            let mut client = ClientConnection::new(self.client.clone(), self.name.clone()).map_err(TlsError::Setup)?;
            while client.is_handshaking() {
                client.complete_io(&mut socket)?;
            }
        }
        server.join().expect("the server's thread does not panic")?;
        Ok(started.elapsed())
    }
}

/// Moves what one side has to say to the other, and returns what the other thinks of it.
fn carry<A: SideData, B: SideData>(
    from: &mut ConnectionCommon<A>,
    to: &mut ConnectionCommon<B>,
) -> io::Result<Result<(), rustls::Error>> {
    while from.wants_write() {
        let mut bytes = Vec::new();
        from.write_tls(&mut bytes)?;
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            to.read_tls(&mut rest)?;
            if let Err(error) = to.process_new_packets() {
                return Ok(Err(error));
            }
        }
    }
    Ok(Ok(()))
}

fn client_verifier(
    anchors: &str,
    provider: Arc<rustls::crypto::CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    Ok(WebPkiClientVerifier::builder_with_provider(Arc::new(roots(anchors)?), provider).build()?)
}

pub(crate) fn roots(anchors: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for anchor in CertificateDer::pem_slice_iter(anchors.as_bytes()) {
        roots.add(anchor?).map_err(TlsError::Setup)?;
    }
    Ok(roots)
}

impl Identity {
    pub(crate) fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsError> {
        let chain = CertificateDer::pem_slice_iter(self.chain.as_bytes()).collect::<Result<_, _>>()?;
        Ok((chain, PrivateKeyDer::from_pem_slice(self.key.as_bytes())?))
    }
}

impl fmt::Debug for Identity {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").field("chain", &self.chain).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Instant(UnixTime);

impl TimeProvider for Instant {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}
