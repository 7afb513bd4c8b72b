//! Which generations of the CA clients accept and reject, with the operator's files: two rotations apart, after the expiry of the
//! first, and after a distrust.
//!
//! `M` is the first CA, `O` the second and `N` the third. rustls and Java do not check the expiry of an anchor, so they reject
//! for another certificate on the path.

use jiff::SignedDuration;
use perennial_testbed::handshakes::Client::{GnuTls, Go, Java, OpenSsl, Python, Python313, Rustls};
use perennial_testbed::handshakes::Reason::{Issuer, Time};
use perennial_testbed::handshakes::{Client, Expected, Question, Reason};
use perennial_testbed::tls::Identity;
use perennial_x509::{Certificate, read_certificates};

use super::{SECRET_NAME, ask_all, bundle, identity, keys, signer, today};
use crate::cluster::Cluster;
use crate::serving::Shop;

const NAME: &str = "web.shop.svc";
/// The sent certificates have expired and lead to no anchor: each client names the first problem that it finds.
const OVER_AND_UNKNOWN: &[(Client, Reason)] = &[
    (OpenSsl, Issuer),
    (Go, Time),
    (Java, Issuer),
    (GnuTls, Issuer),
    (Python, Issuer),
    (Python313, Issuer),
    (Rustls, Time),
];

/// The files of a server and a client at one time, and the CA of that time.
struct Generation {
    server: Identity,
    bundle: String,
    ca: Certificate,
}

impl Generation {
    async fn now(shop: &Shop) -> Generation {
        Generation { server: identity(shop, "web-tls").await, bundle: bundle(shop).await, ca: signer(shop).await }
    }

    /// Returns true if the current bundle has this CA as a root.
    fn trusts(&self, ca: &Certificate) -> bool {
        read_certificates(self.bundle.as_bytes()).unwrap().contains(ca)
    }

    /// A server that sends every CA that was ever sent or trusted beside its certificate.
    fn sending_all_of(&self, all: &[&Generation]) -> Identity {
        let mut chain = read_certificates(self.server.chain.as_bytes()).unwrap();
        for found in all {
            for pem in [&found.server.chain, &found.bundle] {
                for it in read_certificates(pem.as_bytes()).unwrap() {
                    if it.facts().may_sign() && !chain.contains(&it) {
                        chain.push(it);
                    }
                }
            }
        }
        let is_ca = |it: &&Certificate| it.facts().may_sign();
        assert!(chain.iter().filter(is_ca).count() >= 4, "two roots, and a bridge each way");
        Identity { chain: chain.iter().map(Certificate::to_pem).collect(), key: self.server.key.clone() }
    }
}

/// A server of the first time, with a client of the second.
fn ask(server: (&str, &Identity), client: (&str, &str)) -> Question {
    Question {
        id: format!("served by {}, trusting {}", server.0, client.0),
        server: server.1.clone(),
        bundle: client.1.to_owned(),
        name: NAME.to_owned(),
    }
}

/// A cluster with one Service, this many days ago.
async fn shop(cluster: Cluster, days_ago: i64) -> Shop {
    let shop = Shop::new(cluster).await;
    go_to(&shop, days_ago);
    shop.service("web", &[(SECRET_NAME, "web-tls")], false).await;
    shop
}

fn go_to(shop: &Shop, days_ago: i64) {
    shop.cluster.set_now(today() - SignedDuration::from_hours(24 * days_ago));
}

/// Forces a rotation.
async fn rotated(shop: &Shop, days_ago: i64, kind: &str) -> Generation {
    go_to(shop, days_ago);
    keys(shop, kind).await;
    let before = signer(shop).await;
    shop.force(&format!("{days_ago} days ago")).await;
    shop.once().await;
    let found = Generation::now(shop).await;
    assert_ne!(found.ca, before);
    let leaf = read_certificates(found.server.chain.as_bytes()).unwrap().remove(0);
    assert_eq!(leaf.facts().authority_key_id, found.ca.facts().subject_key_id);
    found
}

/// The original operator rejects clients that are two rotations behind. Perennial trusts an earlier CA until it expires, and the chain of a
/// server has a cross-certificate for each; a client with only the newest CA rejects both others.
async fn clients_two_rotations_behind_are_accepted_until_the_first_ca_expires(cluster: Cluster) {
    let shop = shop(cluster, 20).await;
    keys(&shop, "RSA 2048").await;
    shop.once().await;
    let m = Generation::now(&shop).await;
    let o = rotated(&shop, 10, "ECDSA P256").await;
    let n = rotated(&shop, 0, "ECDSA P384").await;
    assert!(n.trusts(&m.ca) && n.trusts(&n.ca));
    let all = [("M", &m), ("O", &o), ("N", &n)];
    let mut expected = Vec::new();
    for (server, has) in all {
        for (client, trusts) in all {
            expected.push(ask((server, &has.server), (client, &trusts.bundle)).accepted());
        }
        let alone = ask((server, &has.server), ("N alone", &n.ca.to_pem()));
        expected.push(if server == "N" { alone.accepted() } else { alone.refused(Issuer) });
    }
    ask_all(expected).await;
}

/// The first CA expired yesterday, and all its leaves with it.
async fn clients_two_rotations_behind_are_rejected_after_the_first_ca_expires(cluster: Cluster) {
    let shop = shop(cluster, 791).await;
    shop.once().await;
    // Its certificate is re-issued in time, and then expires with its signer.
    go_to(&shop, 460);
    shop.once().await;
    let m = Generation::now(&shop).await;
    let leaf = read_certificates(m.server.chain.as_bytes()).unwrap().remove(0);
    assert_eq!(leaf.facts().validity.not_after, m.ca.facts().validity.not_after);
    assert!(m.ca.facts().validity.not_after < today());
    let o = rotated(&shop, 397, "ECDSA P256").await;
    let n = rotated(&shop, 10, "ECDSA P256").await;
    go_to(&shop, 0);
    shop.once().await;
    let now = Generation::now(&shop).await;
    assert_eq!((&now.ca, &now.server.chain), (&n.ca, &n.server.chain));
    assert!(n.trusts(&m.ca) && !now.trusts(&m.ca), "it is trusted until it ends");
    let (m_server, o_server, n_server) = (("M", &m.server), ("O", &o.server), ("N", &n.server));
    let expected: Vec<Expected> = vec![
        // A client with this CA names its expiry, whatever else it has.
        ask(m_server, ("M", &m.bundle)).refused(Time),
        ask(m_server, ("N while M lasted", &n.bundle)).refused(Time),
        ask(m_server, ("N", &now.bundle)).refused_by(OVER_AND_UNKNOWN),
        ask(o_server, ("N alone", &n.ca.to_pem())).refused_by(OVER_AND_UNKNOWN),
        // A cross-certificate expires with its signer.
        ask(o_server, ("M", &m.bundle)).refused(Time),
        ask(n_server, ("M", &m.bundle)).refused(Time),
        // All others are accepted.
        ask(o_server, ("O", &o.bundle)).accepted(),
        ask(o_server, ("N while M lasted", &n.bundle)).accepted(),
        ask(o_server, ("N", &now.bundle)).accepted(),
        ask(n_server, ("O", &o.bundle)).accepted(),
        ask(n_server, ("N while M lasted", &n.bundle)).accepted(),
        ask(n_server, ("N", &now.bundle)).accepted(),
    ];
    ask_all(expected).await;
}

/// After a distrust no client with the new bundle accepts an earlier certificate, whatever chain a server sends.
async fn all_clients_reject_a_distrusted_ca(cluster: Cluster) {
    let shop = shop(cluster, 10).await;
    keys(&shop, "RSA 2048").await;
    shop.once().await;
    let m = Generation::now(&shop).await;
    let o = rotated(&shop, 0, "ECDSA P256").await;
    shop.distrust("leaked").await;
    let is_over = async || Generation::now(&shop).await.bundle.matches("BEGIN CERTIFICATE").count() == 1;
    for _ in 0..5 {
        shop.once().await;
        if is_over().await {
            break;
        }
    }
    assert!(is_over().await);
    let n = Generation::now(&shop).await;
    assert!(n.trusts(&n.ca));
    let mut expected = vec![ask(("N", &n.server), ("N", &n.bundle)).accepted()];
    for (name, old) in [("M", &m), ("O", &o)] {
        expected.push(ask((name, &old.server), ("N", &n.bundle)).refused(Issuer));
        let sends_all = old.sending_all_of(&[&m, &o]);
        expected.push(ask((&format!("{name} with everything"), &sends_all), ("N", &n.bundle)).refused(Issuer));
        // A client that has not loaded the new bundle yet accepts a server with a new certificate.
        expected.push(ask(("N", &n.server), (name, &old.bundle)).accepted());
    }
    ask_all(expected).await;
}

on_both! {
    clients_two_rotations_behind_are_accepted_until_the_first_ca_expires
    clients_two_rotations_behind_are_rejected_after_the_first_ca_expires
    all_clients_reject_a_distrusted_ca
}
