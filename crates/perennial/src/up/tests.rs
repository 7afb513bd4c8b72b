//! The server's own certificates, renewed while it runs.
//!
//! Nobody turns the clock: the certificates are made in the past, such that they are due in a moment.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use futures_util::{StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config, ResourceExt};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;
use tokio::sync::{Notify, mpsc};

use super::*;

/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn api(store: Store) -> Arc<Api> {
    Arc::new(Api::new(store, Environment::new(clock::now, || random::bytes().unwrap())))
}

/// Certificates of a server that are due in so many seconds.
async fn due_in(api: &Api, seconds: i64) -> Identity {
    cluster::prepare(api, &Wishes::default()).await.unwrap();
    // In whole seconds, as certificates have it.
    let now = Timestamp::from_second(clock::now().as_second()).unwrap();
    let time = now + SignedDuration::from_secs(seconds);
    // How long they are good for is seen at those of another server.
    let other = self::api(Store::memory());
    cluster::prepare(&other, &Wishes::default()).await.unwrap();
    let good = Identity::ensure(&other, now).await.unwrap();
    let mut spans = [&good.server, &good.admin].map(|credential| now.duration_until(credential.refresh_at));
    spans.sort();
    // What is good for longer was made earlier; then the other one is due, and made again.
    let [short, long] = spans;
    Identity::ensure(api, time - long).await.unwrap();
    let made = Identity::ensure(api, time - short).await.unwrap();
    assert_eq!([made.server.refresh_at, made.admin.refresh_at], [time; 2]);
    made
}

/// What a kubeconfig says, and what a server presents to who trusts it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    client_certificate: String,
    server_certificate: Vec<u8>,
}

fn kubeconfig(directory: &Path) -> Kubeconfig {
    Kubeconfig::read_from(directory.join("kubeconfig")).unwrap()
}

async fn client(directory: &Path) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig(directory), &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Opens a connection of its own to see.
async fn seen(directory: &Path) -> Seen {
    let config = kubeconfig(directory);
    let cluster = config.clusters[0].cluster.clone().unwrap();
    let client_certificate = config.auth_infos[0].auth_info.clone().unwrap().client_certificate_data.unwrap();
    let address: SocketAddr = cluster.server.unwrap().trim_start_matches("https://").parse().unwrap();
    let mut roots = RootCertStore::empty();
    let bundle = BASE64_STANDARD.decode(cluster.certificate_authority_data.unwrap()).unwrap();
    CertificateDer::pem_slice_iter(&bundle).for_each(|ca| roots.add(ca.unwrap()).unwrap());
    let shaken_hands = tokio::task::spawn_blocking(move || {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let mut connection = ClientConnection::new(config, ServerName::from(address.ip())).unwrap();
        let mut stream = TcpStream::connect(address).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).unwrap();
        }
        connection.peer_certificates().unwrap()[0].to_vec()
    });
    Seen { client_certificate, server_certificate: shaken_hands.await.unwrap() }
}

/// Looks until what is seen is something else, in both ways.
async fn renewed(directory: &Path, before: &Seen) -> Seen {
    let looked = async {
        loop {
            let now = seen(directory).await;
            if now.client_certificate != before.client_certificate
                && now.server_certificate != before.server_certificate
            {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, looked).await.expect("certificates that are due are renewed")
}

#[tokio::test]
async fn certificates_are_renewed_while_it_runs_and_connections_go_on() {
    for seconds in [5, 20, 60] {
        if sees_renewal(seconds).await {
            return;
        }
    }
    panic!("it is not up within a minute");
}

/// Sees certificates renewed that are due in so many seconds, unless it was not up by then.
async fn sees_renewal(seconds: i64) -> bool {
    let top = TempDir::new().unwrap();
    let directory = prepare_directory(&top.path().join("data")).unwrap();
    let made = due_in(&api(open(&directory).unwrap()), seconds).await;
    while open(&directory).is_err() {
        tokio::task::yield_now().await;
    }
    let wishes = Wishes::default();
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let request = Request { data_dir: &directory, listen, wishes: &wishes, until_ready: false };
    let announced = Arc::new(Notify::new());
    let mut out = Announced { told: announced.clone() };
    let watched = async {
        announced.notified().await;
        let before = seen(&directory).await;
        if before.server_certificate != made.server.certificate.der() {
            return false;
        }
        let maps: kube_client::Api<ConfigMap> = kube_client::Api::namespaced(client(&directory).await, "default");
        let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        renewed(&directory, &before).await;
        // Who comes now has the new certificate, and who is there still hears of it.
        let maps: kube_client::Api<ConfigMap> = kube_client::Api::namespaced(client(&directory).await, "default");
        let metadata = ObjectMeta { name: Some("after".to_owned()), ..ObjectMeta::default() };
        maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap();
        loop {
            match tokio::time::timeout(PATIENCE, events.try_next()).await.unwrap().unwrap() {
                Some(WatchEvent::Added(map)) if map.name_any() == "after" => return true,
                Some(_) => {}
                None => panic!("the connection ended"),
            }
        }
    };
    tokio::select! {
        ended = run(&request, &mut out) => panic!("it ended: {ended:?}"),
        has_seen = watched => has_seen,
    }
}

/// Tells when everything was said that is said in the beginning.
struct Announced {
    told: Arc<Notify>,
}

impl Write for Announced {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.told.notify_one();
        Ok(())
    }
}

#[tokio::test]
async fn a_renewal_that_cannot_be_written_is_told_and_tried_again() {
    let top = TempDir::new().unwrap();
    let directory = top.path().to_owned();
    let api = api(Store::memory());
    let identity = due_in(&api, 1).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = Door::new(&directory, listener.local_addr().unwrap(), "lab", &identity).unwrap();
    let serving = tokio::spawn(door.serve(listener, perennial_apiserver::http::router(api.clone())));
    let before = seen(&directory).await;
    let client = client(&directory).await;
    // Nothing can be written where a directory is in the way, not even by root.
    let file = directory.join("kubeconfig");
    fs::rename(&file, directory.join("saved")).unwrap();
    fs::create_dir(&file).unwrap();
    let (tell, mut told) = mpsc::unbounded_channel();
    let warn = move |error: &anyhow::Error| tell.send(format!("{error:#}")).unwrap();
    let caretaker = tokio::spawn(take_care(api, door.clone(), identity, Duration::from_millis(100), warn));
    for _ in 0..2 {
        let warning = tokio::time::timeout(PATIENCE, told.recv()).await.unwrap().unwrap();
        assert!(warning.contains("failed to write") && warning.contains("kubeconfig"), "{warning}");
    }
    // It goes on with what it has.
    client.apiserver_version().await.unwrap();
    fs::remove_dir(&file).unwrap();
    fs::rename(directory.join("saved"), &file).unwrap();
    renewed(&directory, &before).await;
    assert!(!caretaker.is_finished());
    caretaker.abort();
    door.close();
    serving.await.unwrap();
}
