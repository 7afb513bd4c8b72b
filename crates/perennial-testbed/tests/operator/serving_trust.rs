//! A rotation of the service CA as real clients see it: what the operator wrote before, during and after it, in every pairing of
//! a server and a client that took it from the cluster at another time.
//!
//! Which orders of a chain would do is the question of `service_ca_trust.rs`; here it is whether the one that is written does.

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

/// A Service, the name that clients ask for, and a name that it does not have.
const WEB: (&str, &str, &str) = ("web", "web.shop.svc", "some-statefulset-0.web.shop.svc");
/// A headless one, whose pods have names of their own.
const DB: (&str, &str, &str) = ("db", "some-statefulset-0.db.shop.svc", "some-statefulset-0.web.shop.svc");

/// What servers and clients find in the cluster at one time.
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

/// Makes two Services and rotates from one kind of key to the other: what is to be expected of clients then.
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
    // It comes as far as the bundle, and then no Secret of a Service can be written for a while.
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
        // It would end the path of clients that do not know it.
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
        // The new CA without the bridge is what a client has when the old one is distrusted.
        let alone = root.to_pem();
        expected.push(ask(servers[0], ("the new CA alone", &alone), name).refused(Issuer));
        expected.push(ask(servers[1], ("the new CA alone", &alone), name).accepted());
    }
    expected
}

/// The kind of key that the CA and the Services get from now on.
async fn keys(shop: &Shop, kind: &str) {
    let mut policy = Policy { defaults: Some(kind.parse().unwrap()), ..Policy::default() };
    policy.overrides.insert("service-ca".to_owned(), kind.parse().unwrap());
    shop.cluster.put_policy(&policy).await;
}

/// What a server with this Secret serves.
pub(crate) async fn identity(shop: &Shop, secret: &str) -> Identity {
    read(shop.served(secret).await.secret)
}

/// The CA that signs now, with its key.
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

/// What clients trust.
async fn bundle(shop: &Shop) -> String {
    let found = shop.cluster.config_maps("openshift-service-ca").get("signing-cabundle").await.unwrap();
    found.data.unwrap().remove("ca-bundle.crt").unwrap()
}

/// The CA that signs now.
pub(crate) async fn signer(shop: &Shop) -> Certificate {
    read_certificates(signing_key(shop).await.chain.as_bytes()).unwrap().remove(0)
}

#[expect(clippy::disallowed_methods, reason = "the clients live by the real clock")]
pub(crate) fn today() -> Timestamp {
    Timestamp::from_second(Timestamp::now().as_second()).unwrap()
}

/// Clients are other programs, which are waited for.
async fn ask_all(expected: Vec<Expected>) {
    tokio::task::spawn_blocking(move || expect(&expected)).await.unwrap();
}

/// The keys of the CA before and after.
const PAIRS: [(&str, &str); 4] =
    [("RSA 2048", "RSA 2048"), ("RSA 2048", "ECDSA P256"), ("ECDSA P256", "RSA 2048"), ("ECDSA P256", "ECDSA P384")];

mod embedded {
    use super::*;

    #[tokio::test]
    async fn clients_of_all_kinds_accept_what_is_written_through_a_rotation() {
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
    async fn clients_of_all_kinds_accept_what_is_written_through_a_rotation() {
        let mut expected = Vec::new();
        for (old, new) in PAIRS {
            expected.extend(rotation(Cluster::real().await, old, new).await);
        }
        ask_all(expected).await;
    }
}
