//! The server's own certificates, renewed while it runs.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Config, ResourceExt};
use perennial_apiserver::store::Store;
use perennial_core::catalog::ObjectName;
use perennial_operator::ask;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;

/// Nothing here takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn api(store: Store) -> Arc<Api> {
    Arc::new(Api::new(store, Environment::new(clock::now, || random::bytes().unwrap())))
}

/// What a kubeconfig says, and what a server presents to who trusts it.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    client_certificate: String,
    server_certificate: Vec<u8>,
}

/// A control plane in this directory, on a free port, without metrics.
fn request<'r>(directory: &'r Directory, wishes: &'r Wishes, until_ready: bool) -> Request<'r> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Request { directory, listen, names: &[], wishes, probes: None, until_ready }
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

/// Asks for new certificates of the server and of its administrator.
async fn ask_for_new_ones(client: &Client, reason: &str) {
    for (namespace, name) in [
        ("openshift-kube-apiserver", "localhost-serving-cert-certkey"),
        ("openshift-kube-apiserver-operator", "node-system-admin-client"),
    ] {
        let secret = ObjectName { namespace: namespace.to_owned(), name: name.to_owned() };
        ask::rotate(client, &secret, reason).await.unwrap();
    }
}

#[tokio::test]
async fn certificates_are_renewed_while_it_runs_and_connections_go_on() {
    let top = TempDir::new().unwrap();
    let (prepared, wishes) = (Directory::prepare(&top.path().join("data")).unwrap(), Wishes::default());
    let (directory, request) = (prepared.path(), request(&prepared, &wishes, false));
    let announced = Arc::new(Notify::new());
    let mut out = Announced { told: announced.clone() };
    let watched = async {
        announced.notified().await;
        let before = seen(directory).await;
        let maps: kube_client::Api<ConfigMap> = kube_client::Api::namespaced(client(directory).await, "default");
        let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        ask_for_new_ones(&client(directory).await, "a test").await;
        renewed(directory, &before).await;
        // Who comes now has the new certificate, and who is there still hears of it.
        let maps: kube_client::Api<ConfigMap> = kube_client::Api::namespaced(client(directory).await, "default");
        let metadata = ObjectMeta { name: Some("after".to_owned()), ..ObjectMeta::default() };
        maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap();
        loop {
            match tokio::time::timeout(PATIENCE, events.try_next()).await.unwrap().unwrap() {
                Some(WatchEvent::Added(map)) if map.name_any() == "after" => return,
                Some(_) => {}
                None => panic!("the connection ended"),
            }
        }
    };
    tokio::select! {
        ended = run(&request, &mut out) => panic!("it ended: {ended:?}"),
        () = watched => {}
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
    cluster::prepare(&api, &Wishes::default()).await.unwrap();
    let planner = Planner::new(Catalog::builtin());
    let inside = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    let keys = Arc::new(KeyPool::eager(threads(None)).unwrap());
    let runner = Runner::new(&planner, inside.clone(), keys, View::default(), Arc::new(clock::now));
    runner.once().await.unwrap();
    let identity = Identity::read(&api).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let door = Door::new(&directory, listener.local_addr().unwrap(), "lab", &identity).unwrap();
    let serving = tokio::spawn(door.serve(listener, perennial_apiserver::http::router(api.clone())));
    let before = seen(&directory).await;
    let client = client(&directory).await;
    let addresses = Addresses { listen: SocketAddr::from(([127, 0, 0, 1], 0)), more: Vec::new() };
    let mut doorkeeper = Doorkeeper { api, door: door.clone(), identity, addresses };
    doorkeeper.look().unwrap();
    assert_eq!(seen(&directory).await, before, "nothing new is nothing new");
    // Nothing can be written where a directory is in the way, not even by root.
    let file = directory.join("kubeconfig");
    fs::rename(&file, directory.join("saved")).unwrap();
    fs::create_dir(&file).unwrap();
    ask_for_new_ones(&inside, "a test").await;
    runner.once().await.unwrap();
    for _ in 0..2 {
        let warning = format!("{:#}", doorkeeper.look().unwrap_err());
        assert!(warning.contains("failed to write") && warning.contains("kubeconfig"), "{warning}");
    }
    // It goes on with what it has.
    client.apiserver_version().await.unwrap();
    fs::remove_dir(&file).unwrap();
    fs::rename(directory.join("saved"), &file).unwrap();
    doorkeeper.look().unwrap();
    renewed(&directory, &before).await;
    door.close();
    serving.await.unwrap();
}

#[tokio::test]
async fn until_ready_does_not_call_ready_what_could_not_be_written() {
    let top = TempDir::new().unwrap();
    let (directory, wishes) = (Directory::prepare(&top.path().join("data")).unwrap(), Wishes::default());
    let request = request(&directory, &wishes, true);
    run(&request, &mut Vec::new()).await.unwrap();
    let released = async {
        loop {
            match directory.open() {
                Ok(store) => return store,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    // Somebody asks for a new certificate where none can be written.
    let api = api(tokio::time::timeout(PATIENCE, released).await.unwrap());
    let inside = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    let secrets: kube_client::Api<Secret> = kube_client::Api::namespaced(inside.clone(), "openshift-kube-apiserver");
    let fixed = serde_json::json!({"immutable": true});
    secrets.patch("aggregator-client", &PatchParams::default(), &Patch::Merge(&fixed)).await.unwrap();
    let name = ObjectName { namespace: "openshift-kube-apiserver".to_owned(), name: "aggregator-client".to_owned() };
    ask::rotate(&inside, &name, "a test").await.unwrap();
    drop((api, inside, secrets));
    let again = async {
        loop {
            match run(&request, &mut Vec::new()).await {
                Err(error) if error.to_string().contains("in use") => tokio::task::yield_now().await,
                ended => return ended,
            }
        }
    };
    let error = tokio::time::timeout(PATIENCE, again).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "not everything is in place: writes that failed: 1; the warnings say why");
}

#[tokio::test]
async fn a_certificate_for_more_names_stays_until_the_names_or_the_one_for_localhost_change() {
    use perennial_core::spec::Host;
    let top = TempDir::new().unwrap();
    let directory = Directory::prepare(&top.path().join("data")).unwrap();
    let api = api(Store::memory());
    cluster::prepare(&api, &Wishes::default()).await.unwrap();
    let planner = Planner::new(Catalog::builtin());
    let inside = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    let keys = Arc::new(KeyPool::eager(threads(None)).unwrap());
    let runner = Runner::new(&planner, inside.clone(), keys, View::default(), Arc::new(clock::now));
    runner.once().await.unwrap();
    let addresses = Addresses { listen: SocketAddr::from(([127, 0, 0, 1], 0)), more: vec![Host::parse("lab.test")] };
    let mut doorkeeper = Doorkeeper::new(api, &directory, addresses).unwrap();
    let presented = |it: &Doorkeeper| it.identity.server.certificates[0].der().to_vec();
    let first = presented(&doorkeeper);
    assert_eq!(doorkeeper.names(), "localhost, 127.0.0.1, lab.test");
    // Another certificate of the administrator is no reason for another one of the server.
    let namespace = "openshift-kube-apiserver-operator".to_owned();
    let admin = ObjectName { namespace, name: "node-system-admin-client".to_owned() };
    ask::rotate(&inside, &admin, "a test").await.unwrap();
    runner.once().await.unwrap();
    let before = doorkeeper.identity.admin.certificates.clone();
    doorkeeper.look().unwrap();
    assert_ne!(doorkeeper.identity.admin.certificates, before);
    assert_eq!(presented(&doorkeeper), first);
    doorkeeper.addresses.more.push(Host::parse("192.0.2.7"));
    doorkeeper.look().unwrap();
    let second = presented(&doorkeeper);
    assert_ne!(second, first);
    assert_eq!(doorkeeper.names(), "localhost, 127.0.0.1, lab.test, 192.0.2.7");
    ask_for_new_ones(&inside, "another test").await;
    runner.once().await.unwrap();
    doorkeeper.look().unwrap();
    assert_ne!(presented(&doorkeeper), second);
    assert_eq!(doorkeeper.names(), "localhost, 127.0.0.1, lab.test, 192.0.2.7");
}
