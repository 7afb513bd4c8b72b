//! A rotation of the service CA with real clients: the operator's files from before, during and after it, in every pairing of
//! a server and a client that read them at different times.
//!
//! `service_ca_trust.rs` tests which orders of a chain work; this file tests the order that the operator writes.

mod generations;

use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use perennial_core::policy::Policy;
use perennial_testbed::handshakes::Reason::{Issuer, Name};
use perennial_testbed::handshakes::{Expected, Question, expect};
use perennial_testbed::tls::Identity;
use perennial_x509::{Certificate, PrivateKey, read_certificates};

use crate::cluster::Cluster;
use crate::serving::Shop;

pub(crate) const SECRET_NAME: &str = "service.beta.openshift.io/serving-cert-secret-name";

/// A Service, the name that clients use, and a name that it does not have.
const WEB: (&str, &str, &str) = ("web", "web.shop.svc", "some-statefulset-0.web.shop.svc");
/// A headless Service, whose pods have their own names.
const DB: (&str, &str, &str) = ("db", "some-statefulset-0.db.shop.svc", "some-statefulset-0.web.shop.svc");

/// The files of servers and clients at one time.
struct Found {
    web: Identity,
    db: Identity,
    bundle: String,
}

impl Found {
    async fn now(shop: &Shop) -> Found {
        Found { web: identity(shop, "web-tls").await, db: identity(shop, "db-tls").await, bundle: bundle(shop).await }
    }

    fn identity(&self, service: &str) -> &Identity {
        if service == WEB.0 { &self.web } else { &self.db }
    }
}

/// Creates two Services and rotates from one kind of key to the other; returns the expected answers of clients.
async fn rotation(cluster: Cluster, old: &str, new: &str) -> Vec<Expected> {
    let shop = Shop::new(cluster).await;
    shop.cluster.set_now(today() - SignedDuration::from_hours(24 * 10));
    keys(&shop, old).await;
    shop.service("web", &[(SECRET_NAME, "web-tls")], false).await;
    shop.service("db", &[(SECRET_NAME, "db-tls")], true).await;
    shop.once().await;
    let before = Found::now(&shop).await;
    assert_eq!([kind(&before.web), kind(&before.db), kind(&signing_key(&shop).await)], [old; 3]);

    shop.cluster.set_now(today());
    keys(&shop, new).await;
    shop.force("other keys").await;
    // The rotation writes the bundle, and then no Secret of a Service can be written for a while.
    let way = shop.cluster.way(|method, path| {
        let is_served = path.starts_with("/api/v1/namespaces/shop/secrets");
        (method != Method::GET && is_served).then_some((StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    });
    shop.cluster.runner_through(way).once().await.unwrap();
    let during = Found::now(&shop).await;
    assert_ne!(during.bundle, before.bundle);
    assert_eq!((&during.web.chain, &during.db.chain), (&before.web.chain, &before.db.chain));
    shop.once().await;
    let after = Found::now(&shop).await;

    assert_eq!([kind(&after.web), kind(&after.db), kind(&signing_key(&shop).await)], [new; 3]);
    let root = signer(&shop).await;
    for identity in [&after.web, &after.db] {
        let chain = read_certificates(identity.chain.as_bytes()).unwrap();
        assert_eq!(chain[0].facts().authority_key_id, root.facts().subject_key_id);
        // The chain would break for clients that do not know the CA.
        assert!(!chain.contains(&root), "{old} -> {new}: the new CA itself is served");
    }

    let mut expected = Vec::new();
    for (service, name, other) in [WEB, DB] {
        let ask = |server: (&str, &Found), client: (&str, &str), name: &str| Question {
            id: format!("{old} -> {new}: {service} of {}, trusting {}, as {name}", server.0, client.0),
            server: server.1.identity(service).clone(),
            bundle: client.1.to_owned(),
            name: name.to_owned(),
        };
        let servers = [("before", &before), ("after", &after)];
        let clients = [("before", &before), ("during", &during), ("after", &after)];
        for server in servers {
            for (when, found) in clients {
                expected.push(ask(server, (when, &found.bundle), name).accepted());
                expected.push(ask(server, (when, &found.bundle), other).refused(Name));
            }
        }
        // A client has the new CA without the cross-certificate after the old one is distrusted.
        let alone = root.to_pem();
        expected.push(ask(servers[0], ("the new CA alone", &alone), name).refused(Issuer));
        expected.push(ask(servers[1], ("the new CA alone", &alone), name).accepted());
    }
    expected
}

/// Sets the kind of key of the CA and the Services.
async fn keys(shop: &Shop, kind: &str) {
    let mut policy = Policy { defaults: Some(kind.parse().unwrap()), ..Policy::default() };
    policy.overrides.insert("service-ca".to_owned(), kind.parse().unwrap());
    shop.cluster.put_policy(&policy).await;
}

/// Returns the certificates of a server with this Secret.
pub(crate) async fn identity(shop: &Shop, secret: &str) -> Identity {
    read(shop.served(secret).await.secret)
}

/// Returns the current CA, with its key.
async fn signing_key(shop: &Shop) -> Identity {
    read(shop.cluster.secrets("openshift-service-ca").get("signing-key").await.unwrap())
}

fn read(secret: Secret) -> Identity {
    let data = secret.data.unwrap();
    let text = |name: &str| String::from_utf8(data[name].0.clone()).unwrap();
    Identity { chain: text("tls.crt"), key: text("tls.key") }
}

fn kind(identity: &Identity) -> String {
    PrivateKey::from_pem(identity.key.as_bytes()).unwrap().spec().unwrap().to_string()
}

/// Returns the bundle of clients.
async fn bundle(shop: &Shop) -> String {
    let found = shop.cluster.config_maps("openshift-service-ca").get("signing-cabundle").await.unwrap();
    found.data.unwrap().remove("ca-bundle.crt").unwrap()
}

/// Returns the current CA.
pub(crate) async fn signer(shop: &Shop) -> Certificate {
    read_certificates(signing_key(shop).await.chain.as_bytes()).unwrap().remove(0)
}

#[expect(clippy::disallowed_methods, reason = "the clients live by the real clock")]
pub(crate) fn today() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap()
}

/// Runs the clients, which are other programs.
async fn ask_all(expected: Vec<Expected>) {
    tokio::task::spawn_blocking(move || expect(&expected)).await.unwrap();
}

/// The keys of the CA before and after.
const PAIRS: [(&str, &str); 4] =
    [("RSA 2048", "RSA 2048"), ("RSA 2048", "ECDSA P256"), ("ECDSA P256", "RSA 2048"), ("ECDSA P256", "ECDSA P384")];

mod embedded {
    use super::*;

    #[tokio::test]
    async fn all_clients_accept_the_written_certificates_during_a_rotation() {
        let mut expected = Vec::new();
        for (old, new) in PAIRS {
            expected.extend(rotation(Cluster::embedded().await, old, new).await);
        }
        ask_all(expected).await;
    }
}

mod real {
    use super::*;

    #[tokio::test]
    async fn all_clients_accept_the_written_certificates_during_a_rotation() {
        let mut expected = Vec::new();
        for (old, new) in PAIRS {
            expected.extend(rotation(Cluster::real().await, old, new).await);
        }
        ask_all(expected).await;
    }
}
