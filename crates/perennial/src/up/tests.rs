//! Tests the renewal of the server's own certificates while it runs.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine};
use futures_util::{StreamExt, TryStreamExt};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret, Service};
use kube_client::api::{ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Config, ResourceExt};
use perennial_apiserver::store::Store;
use perennial_core::catalog::ObjectName;
use perennial_core::clocks::shifted;
use perennial_operator::ask;
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tempfile::TempDir;
use tokio::sync::Notify;

use super::*;

/// The timeout of all waits.
const TIMEOUT: Duration = Duration::from_secs(60);

fn api(store: Store) -> Arc<Api> {
    Arc::new(Api::new(store, Environment::new(clock::now, || random::bytes().unwrap())))
}

/// The client certificate in the kubeconfig, and the certificate that the server presents.
#[derive(Debug, PartialEq, Eq)]
struct Presented {
    client_certificate: String,
    server_certificate: Vec<u8>,
}

/// Returns the arguments of a control plane in this directory, on a free port, without metrics.
fn request<'r>(directory: &'r Directory, config: &'r ClusterConfig, until_ready: bool) -> Request<'r> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Request { directory, listen, names: &[], config, probes: None, until_ready, rotate_token: false }
}

fn kubeconfig(directory: &Path) -> Kubeconfig {
    Kubeconfig::read_from(directory.join("kubeconfig")).unwrap()
}

async fn client(directory: &Path) -> Client {
    let config = Config::from_custom_kubeconfig(kubeconfig(directory), &KubeConfigOptions::default()).await.unwrap();
    Client::try_from(config).unwrap()
}

/// Opens a new connection, and returns the current certificates.
async fn presented_now(directory: &Path) -> Presented {
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
    Presented { client_certificate, server_certificate: shaken_hands.await.unwrap() }
}

/// Waits until both certificates have changed.
async fn renewed(directory: &Path, before: &Presented) -> Presented {
    let looked = async {
        loop {
            let now = presented_now(directory).await;
            if now.client_certificate != before.client_certificate
                && now.server_certificate != before.server_certificate
            {
                return now;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, looked).await.expect("both certificates are renewed")
}

/// Forces a rotation of the certificates of the server and the administrator.
async fn force_rotations(client: &Client, reason: &str) {
    for (namespace, name) in [
        ("openshift-kube-apiserver", "localhost-serving-cert-certkey"),
        ("openshift-kube-apiserver-operator", "node-system-admin-client"),
    ] {
        let secret = ObjectName { namespace: namespace.to_owned(), name: name.to_owned() };
        ask::rotate(client, &secret, reason).await.unwrap();
    }
}

#[tokio::test]
async fn certificates_are_renewed_while_connections_stay_open() {
    let top = TempDir::new().unwrap();
    let (prepared, config) = (Directory::prepare(&top.path().join("data")).unwrap(), ClusterConfig::default());
    let (directory, request) = (prepared.path(), request(&prepared, &config, false));
    let announced = Arc::new(Notify::new());
    let mut out = Announced { notify: announced.clone() };
    let watched = async {
        announced.notified().await;
        let before = presented_now(directory).await;
        let maps: kube_client::Api<ConfigMap> = kube_client::Api::namespaced(client(directory).await, "default");
        let mut events = maps.watch(&WatchParams::default(), "0").await.unwrap().boxed();
        force_rotations(&client(directory).await, "a test").await;
        renewed(directory, &before).await;
        // A new connection uses the new certificate, and the open watch still gets events.
        let maps: kube_client::Api<ConfigMap> = kube_client::Api::namespaced(client(directory).await, "default");
        let metadata = ObjectMeta { name: Some("after".to_owned()), ..ObjectMeta::default() };
        maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap();
        loop {
            match tokio::time::timeout(TIMEOUT, events.try_next()).await.unwrap().unwrap() {
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

/// Notifies when the server has printed its start message.
struct Announced {
    notify: Arc<Notify>,
}

impl Write for Announced {
    fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
        Ok(text.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.notify.notify_one();
        Ok(())
    }
}

#[tokio::test]
async fn a_failed_renewal_is_reported_and_retried() {
    let top = TempDir::new().unwrap();
    let directory = top.path().to_owned();
    let api = api(Store::memory());
    cluster::prepare(&api, &ClusterConfig::default()).await.unwrap();
    let planner = Planner::new(Catalog::builtin());
    let inside = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    let keys = Arc::new(KeyPool::eager(threads(None)).unwrap());
    let runner = Runner::new(&planner, inside.clone(), keys, View::default(), Arc::new(clock::now));
    runner.once().await.unwrap();
    let identity = Identity::read(&api).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = Endpoint::new(&directory, listener.local_addr().unwrap(), "lab", &identity).unwrap();
    let serving = tokio::spawn(endpoint.serve(listener, perennial_apiserver::http::router(api.clone())));
    let before = presented_now(&directory).await;
    let client = client(&directory).await;
    let addresses = Addresses { listen: SocketAddr::from(([127, 0, 0, 1], 0)), more: Vec::new() };
    let mut refresher = EndpointRefresher { api, endpoint: endpoint.clone(), identity, addresses };
    refresher.refresh().unwrap();
    assert_eq!(presented_now(&directory).await, before, "nothing has changed");
    // A directory in place of the file makes the write fail, also for root.
    let file = directory.join("kubeconfig");
    fs::rename(&file, directory.join("saved")).unwrap();
    fs::create_dir(&file).unwrap();
    force_rotations(&inside, "a test").await;
    runner.once().await.unwrap();
    for _ in 0..2 {
        let warning = format!("{:#}", refresher.refresh().unwrap_err());
        assert!(warning.contains("failed to write") && warning.contains("kubeconfig"), "{warning}");
    }
    // The server still works with the previous certificates.
    client.apiserver_version().await.unwrap();
    fs::remove_dir(&file).unwrap();
    fs::rename(directory.join("saved"), &file).unwrap();
    refresher.refresh().unwrap();
    renewed(&directory, &before).await;
    endpoint.close();
    serving.await.unwrap();
}

#[tokio::test]
async fn until_ready_fails_after_a_failed_write() {
    let top = TempDir::new().unwrap();
    let (directory, config) = (Directory::prepare(&top.path().join("data")).unwrap(), ClusterConfig::default());
    let request = request(&directory, &config, true);
    run(&request, &mut Vec::new()).await.unwrap();
    let released = async {
        loop {
            match directory.open() {
                Ok(store) => return store,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    // Force a rotation of an immutable Secret.
    let api = api(tokio::time::timeout(TIMEOUT, released).await.unwrap());
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
    let error = tokio::time::timeout(TIMEOUT, again).await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "not ready: 1 writes failed; the warnings have the reasons");
}

#[tokio::test]
async fn the_api_starts_after_the_first_pass_and_before_all_services_have_certificates() {
    const SERVICES: usize = 20;
    let top = TempDir::new().unwrap();
    let (prepared, config) = (Directory::prepare(&top.path().join("data")).unwrap(), ClusterConfig::default());
    let api = api(prepared.open().unwrap());
    cluster::prepare(&api, &config).await.unwrap();
    let inside = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    let services: kube_client::Api<Service> = kube_client::Api::default_namespaced(inside.clone());
    for number in 0..SERVICES {
        let name = format!("web-{number}");
        let asks = serde_json::json!({"service.beta.openshift.io/serving-cert-secret-name": format!("{name}-tls")});
        let service = serde_json::json!({
            "metadata": {"name": name, "annotations": asks}, "spec": {"ports": [{"port": 443}]},
        });
        services.create(&PostParams::default(), &serde_json::from_value(service).unwrap()).await.unwrap();
    }
    drop((api, inside, services));
    let request = request(&prepared, &config, false);
    let announced = Arc::new(Notify::new());
    let mut out = Announced { notify: announced.clone() };
    let looked = async {
        announced.notified().await;
        let secrets: kube_client::Api<Secret> = kube_client::Api::namespaced(client(prepared.path()).await, "default");
        let served = async || secrets.list_metadata(&ListParams::default()).await.unwrap().items.len();
        let at_first = served().await;
        assert!(at_first < SERVICES / 2, "the API was opened when {at_first} of {SERVICES} Services had been served");
        // The other Services get their certificates later.
        let all = async {
            while served().await < SERVICES {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT, all).await.expect("every Service is served in the end");
    };
    tokio::select! {
        ended = run_when_released(&request, &mut out) => panic!("it ended: {ended:?}"),
        () = looked => {}
    }
}

/// Runs the control plane as soon as its database is free: the task of the last write may still have the database open.
async fn run_when_released(request: &Request<'_>, out: &mut Announced) -> anyhow::Result<()> {
    loop {
        match run(request, out).await {
            Err(error) if error.to_string().contains("in use") => tokio::task::yield_now().await,
            ended => return ended,
        }
    }
}

#[tokio::test]
async fn events_are_deleted_an_hour_after_their_last_write() {
    let top = TempDir::new().unwrap();
    let (prepared, config) = (Directory::prepare(&top.path().join("data")).unwrap(), ClusterConfig::default());
    let store = prepared.open().unwrap();
    // The two APIs have the same database and different clocks.
    let now = api(store.clone());
    let two_hours_ago = || shifted(clock::now(), SignedDuration::from_hours(-2));
    let before = Arc::new(Api::new(store, Environment::new(two_hours_ago, || random::bytes().unwrap())));
    cluster::prepare(&before, &config).await.unwrap();
    for (api, name) in [(&before, "old"), (&now, "young")] {
        let inside = Client::new(perennial_apiserver::http::router(api.clone()), "default");
        let events: kube_client::Api<Event> = kube_client::Api::default_namespaced(inside);
        let event = serde_json::json!({
            "metadata": {"name": name}, "involvedObject": {"kind": "Service", "namespace": "default", "name": "web"},
        });
        events.create(&PostParams::default(), &serde_json::from_value(event).unwrap()).await.unwrap();
    }
    drop((before, now));
    let request = request(&prepared, &config, false);
    let announced = Arc::new(Notify::new());
    let mut out = Announced { notify: announced.clone() };
    let looked = async {
        announced.notified().await;
        let events: kube_client::Api<Event> = kube_client::Api::namespaced(client(prepared.path()).await, "default");
        let old_is_deleted = async {
            while events.get_opt("old").await.unwrap().is_some() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(TIMEOUT / 2, old_is_deleted).await.expect("the server deletes an Event of two hours ago");
        assert!(events.get_opt("young").await.unwrap().is_some());
    };
    tokio::select! {
        ended = run_when_released(&request, &mut out) => panic!("it ended: {ended:?}"),
        () = looked => {}
    }
}

#[tokio::test]
async fn the_certificate_with_additional_names_is_kept_until_the_names_or_the_localhost_certificate_change() {
    use perennial_core::spec::Host;
    let top = TempDir::new().unwrap();
    let directory = Directory::prepare(&top.path().join("data")).unwrap();
    let api = api(Store::memory());
    cluster::prepare(&api, &ClusterConfig::default()).await.unwrap();
    let planner = Planner::new(Catalog::builtin());
    let inside = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    let keys = Arc::new(KeyPool::eager(threads(None)).unwrap());
    let runner = Runner::new(&planner, inside.clone(), keys, View::default(), Arc::new(clock::now));
    runner.once().await.unwrap();
    let addresses = Addresses { listen: SocketAddr::from(([127, 0, 0, 1], 0)), more: vec![Host::parse("lab.test")] };
    let mut refresher = EndpointRefresher::new(api, &directory, addresses).unwrap();
    let presented = |it: &EndpointRefresher| it.identity.server.certificates[0].der().to_vec();
    let first = presented(&refresher);
    assert_eq!(refresher.names(), "localhost, 127.0.0.1, lab.test");
    // A new certificate of the administrator does not change the certificate of the server.
    let namespace = "openshift-kube-apiserver-operator".to_owned();
    let admin = ObjectName { namespace, name: "node-system-admin-client".to_owned() };
    ask::rotate(&inside, &admin, "a test").await.unwrap();
    runner.once().await.unwrap();
    let before = refresher.identity.admin.certificates.clone();
    refresher.refresh().unwrap();
    assert_ne!(refresher.identity.admin.certificates, before);
    assert_eq!(presented(&refresher), first);
    refresher.addresses.more.push(Host::parse("192.0.2.7"));
    refresher.refresh().unwrap();
    let second = presented(&refresher);
    assert_ne!(second, first);
    assert_eq!(refresher.names(), "localhost, 127.0.0.1, lab.test, 192.0.2.7");
    force_rotations(&inside, "another test").await;
    runner.once().await.unwrap();
    refresher.refresh().unwrap();
    assert_ne!(presented(&refresher), second);
    assert_eq!(refresher.names(), "localhost, 127.0.0.1, lab.test, 192.0.2.7");
}
