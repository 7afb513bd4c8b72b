//! TLS servers and a client of each: as many handshakes as possible, until they are stopped. The servers run rustls in
//! threads; half of the clients do too, the others run Go in one process.

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use perennial_testbed::handshakes::{Answer, Called, Caller, Callers};
use perennial_testbed::tls::Identity;
use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName};

/// Whether a process has its initial version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Age {
    Old,
    New,
}

/// The implementation of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stack {
    Rustls,
    Go,
}

/// Servers with their clients, which stop when this is dropped.
pub(crate) struct Hammer {
    pairs: Arc<[Pair]>,
    /// The Go clients; they stop first, so that no client misses its server.
    callers: Mutex<Option<Callers>>,
    ends: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// The results of the handshakes of a pair.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tally {
    /// By the age of the server's certificate and that of the client's bundle.
    pub(crate) accepted: BTreeMap<(Age, Age), usize>,
    /// By the age of the client's bundle.
    pub(crate) failed: BTreeMap<(Age, Failure), usize>,
}

/// Why a handshake failed, in the client's own message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Failure {
    /// The client rejected the server's certificate.
    Refused(String),
    /// Any other failure.
    Broken(String),
}

/// A server, and a client that connects to it by name.
struct Pair {
    name: String,
    port: u16,
    /// The files of either side are replaced as a whole, and apply to later connections.
    server: Mutex<(Age, Arc<ServerConfig>)>,
    /// None of it is here where the client is somewhere else.
    client: Mutex<Option<(Age, Arc<ClientConfig>)>>,
    tally: Mutex<Tally>,
}

impl Hammer {
    /// One pair for each name, with the certificate of its server and the bundle of its client.
    pub(crate) fn start(pairs: Vec<(String, Identity, String)>) -> Hammer {
        let ends = Arc::new(AtomicBool::new(false));
        let (mut listeners, mut all) = (Vec::new(), Vec::new());
        let mut elsewhere = Vec::new();
        for (number, (name, identity, bundle)) in pairs.into_iter().enumerate() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            all.push(Pair {
                name,
                port: listener.local_addr().unwrap().port(),
                server: Mutex::new((Age::Old, server_config(&identity))),
                client: Mutex::new((stack(number) == Stack::Rustls).then(|| (Age::Old, client_config(&bundle)))),
                tally: Mutex::default(),
            });
            listeners.push(listener);
            if stack(number) == Stack::Go {
                elsewhere.push((number, bundle));
            }
        }
        let pairs: Arc<[Pair]> = all.into();
        let mut threads = Vec::new();
        for (number, listener) in listeners.into_iter().enumerate() {
            let (pairs, ends) = (pairs.clone(), ends.clone());
            threads.push(thread::spawn(move || pairs[number].serve(&listener, &ends)));
        }
        for first in 0..CALLERS {
            let (pairs, ends) = (pairs.clone(), ends.clone());
            threads.push(thread::spawn(move || {
                let all = pairs.iter().enumerate().filter(|(number, _)| stack(*number) == Stack::Rustls);
                for (_, pair) in all.skip(first).step_by(CALLERS).cycle() {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    pair.call();
                }
            }));
        }
        let told = pairs.clone();
        let callers = Mutex::new(Some(Callers::start(move |called| told[called.number].note(called)).unwrap()));
        let hammer = Hammer { pairs, callers, ends, threads };
        elsewhere.into_iter().for_each(|(number, bundle)| hammer.refresh_client(number, Age::Old, &bundle));
        hammer
    }

    /// The server of this number takes another certificate.
    pub(crate) fn refresh_server(&self, number: usize, age: Age, identity: &Identity) {
        *self.pairs[number].server.lock().unwrap() = (age, server_config(identity));
    }

    /// The client of this number takes another bundle.
    pub(crate) fn refresh_client(&self, number: usize, age: Age, bundle: &str) {
        let pair = &self.pairs[number];
        match stack(number) {
            Stack::Rustls => *pair.client.lock().unwrap() = Some((age, client_config(bundle))),
            Stack::Go => {
                let caller = Caller { number, port: pair.port, name: &pair.name, mark: age.word(), bundle };
                self.callers.lock().unwrap().as_mut().unwrap().set(caller).unwrap();
            }
        }
    }

    /// Returns the results so far, for each pair.
    pub(crate) fn tallies(&self) -> Vec<Tally> {
        self.pairs.iter().map(|pair| pair.tally.lock().unwrap().clone()).collect()
    }

    /// Waits until every client called so often again.
    pub(crate) async fn go_on(&self, calls: usize) {
        let wanted: Vec<usize> = self.tallies().iter().map(|tally| tally.calls() + calls).collect();
        for _ in 0..PATIENCE.as_millis() / STEP.as_millis() {
            if self.tallies().iter().zip(&wanted).all(|(tally, wanted)| tally.calls() >= *wanted) {
                return;
            }
            tokio::time::sleep(STEP).await;
        }
        panic!("not every client called {calls} times within {PATIENCE:?}");
    }
}

impl Drop for Hammer {
    fn drop(&mut self) {
        drop(self.callers.lock().map(|mut callers| callers.take()));
        self.ends.store(true, Ordering::SeqCst);
        // A server checks for its end at each connection.
        for pair in self.pairs.iter() {
            let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, pair.port));
        }
        for thread in self.threads.drain(..) {
            // The panic is in the test's output, and the count of calls stopped there.
            let _ = thread.join();
        }
    }
}

impl Age {
    /// Returns the word by which servers and clients name this age.
    fn word(self) -> &'static str {
        match self {
            Age::Old => "old",
            Age::New => "new",
        }
    }

    fn read(word: &str) -> Option<Age> {
        [Age::Old, Age::New].into_iter().find(|age| age.word() == word)
    }
}

impl Tally {
    /// Counts a call by a client of this age. A success has the age of the server.
    fn note(&mut self, client: Age, came: Result<Age, Failure>) {
        match came {
            Ok(server) => *self.accepted.entry((server, client)).or_default() += 1,
            Err(failure) => *self.failed.entry((client, failure)).or_default() += 1,
        }
    }

    pub(crate) fn calls(&self) -> usize {
        self.accepted.values().chain(self.failed.values()).sum()
    }

    /// Returns the sum over all pairs.
    pub(crate) fn sum(tallies: &[Tally]) -> Tally {
        let mut sum = Tally::default();
        for tally in tallies {
            tally.accepted.iter().for_each(|(ages, count)| *sum.accepted.entry(*ages).or_default() += count);
            tally.failed.iter().for_each(|(why, count)| *sum.failed.entry(why.clone()).or_default() += count);
        }
        sum
    }
}

impl Pair {
    fn serve(&self, listener: &TcpListener, ends: &AtomicBool) {
        while let Ok((socket, _)) = listener.accept()
            && !ends.load(Ordering::SeqCst)
        {
            let (age, config) = self.server.lock().unwrap().clone();
            // The client reports any error here.
            let _ = greet(config, age, socket);
        }
    }

    fn call(&self) {
        let (age, config) = self.client.lock().unwrap().clone().expect("the client is here");
        self.tally.lock().unwrap().note(age, hear(config, &self.name, self.port));
    }

    /// Counts a call of a client in the Go process.
    fn note(&self, called: Called) {
        let age = Age::read(&called.mark).expect("it says what it was told to");
        let came = match called.answer {
            Ok((Answer::Accepted, said)) => {
                Age::read(&said).ok_or_else(|| Failure::Broken(format!("the server said {said:?}")))
            }
            Ok((Answer::Refused { why, .. }, _)) => Err(Failure::Refused(why)),
            Err(why) => Err(Failure::Broken(why)),
        };
        self.tally.lock().unwrap().note(age, came);
    }
}

/// Sends the age of the certificate.
fn greet(config: Arc<ServerConfig>, age: Age, mut socket: TcpStream) -> io::Result<()> {
    patient(&socket)?;
    let mut server = ServerConnection::new(config).map_err(io::Error::other)?;
    server.complete_io(&mut socket)?;
    server.writer().write_all(age.word().as_bytes())?;
    server.send_close_notify();
    while server.wants_write() {
        server.write_tls(&mut socket)?;
    }
    socket.shutdown(Shutdown::Write)?;
    // The client closes first, so that nothing that was sent is lost.
    io::copy(&mut socket, &mut io::sink()).map(drop)
}

/// Does a full handshake, and reads the age of the server's certificate.
fn hear(config: Arc<ClientConfig>, name: &str, port: u16) -> Result<Age, Failure> {
    let why = |error: io::Error| match error.get_ref().and_then(|it| it.downcast_ref()) {
        Some(rustls::Error::InvalidCertificate(why)) => Failure::Refused(format!("{why:?}")),
        _ => Failure::Broken(error.to_string()),
    };
    let socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).map_err(why)?;
    patient(&socket).map_err(why)?;
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let client = ClientConnection::new(config, name).map_err(|error| Failure::Broken(error.to_string()))?;
    let mut said = String::new();
    StreamOwned::new(client, socket).read_to_string(&mut said).map_err(why)?;
    Age::read(&said).ok_or_else(|| Failure::Broken(format!("the server said {said:?}")))
}

fn patient(socket: &TcpStream) -> io::Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))
}

fn server_config(identity: &Identity) -> Arc<ServerConfig> {
    let chain = CertificateDer::pem_slice_iter(identity.chain.as_bytes()).collect::<Result<_, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let mut config = config
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    config.send_tls13_tickets = 0;
    Arc::new(config)
}

fn client_config(bundle: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for anchor in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(anchor.unwrap()).unwrap();
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
    let mut config = config.with_no_client_auth();
    // Every handshake shall verify certificates again.
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// Returns the implementation of the client with this number.
pub(crate) fn stack(number: usize) -> Stack {
    if number.is_multiple_of(2) { Stack::Rustls } else { Stack::Go }
}

/// Enough to keep two cores busy, and few enough that other processes get their share.
const CALLERS: usize = 4;
/// Longer than a busy machine needs.
const PATIENCE: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(2);
