//! Which generations of the CA clients accept and refuse, by what the operator wrote: two rotations apart, after the end of the
//! first, and after somebody ended the trust on purpose.
//!
//! `M` is the first CA, `O` the second and `N` the third. rustls and Java do not ask whether an anchor is over, so what they refuse
//! they refuse for something else on the path.

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
/// What is sent is over and leads to nothing that is trusted: each client names what it comes to first.
const OVER_AND_UNKNOWN: &[(Client, Reason)] = &[
    (OpenSsl, Issuer),
    (Go, Time),
    (Java, Issuer),
    (GnuTls, Issuer),
    (Python, Issuer),
    (Python313, Issuer),
    (Rustls, Time),
];

/// What a server and a client find in the cluster at one time, and the CA of that time.
struct Generation {
    server: Identity,
    bundle: String,
    ca: Certificate,
}

impl Generation {
    async fn now(shop: &Shop) -> Generation {
        Generation { server: identity(shop, "web-tls").await, bundle: bundle(shop).await, ca: signer(shop).await }
    }

    /// Whether whoever takes the bundle of now trusts this CA as a root.
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

/// A server of the first, with a client of the second.
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

/// Rotates because somebody insists on it.
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

/// The original operator refuses who is two rotations behind. Here an earlier CA is trusted until it ends, and in the chain of a server
/// there is a way from each; whoever has the newest CA alone refuses both others.
async fn who_is_two_rotations_behind_is_accepted_while_the_first_ca_has_not_ended(cluster: Cluster) {
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

/// The first CA is over since yesterday, and with it everything that it signed.
async fn who_is_two_rotations_behind_is_refused_after_the_first_ca_ended(cluster: Cluster) {
    let shop = shop(cluster, 791).await;
    shop.once().await;
    // Its certificate is made again in time, and then ends with its signer.
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
        // Who knows it is told that it is over, whatever else it knows.
        ask(m_server, ("M", &m.bundle)).refused(Time),
        ask(m_server, ("N while M lasted", &n.bundle)).refused(Time),
        ask(m_server, ("N", &now.bundle)).refused_by(OVER_AND_UNKNOWN),
        ask(o_server, ("N alone", &n.ca.to_pem())).refused_by(OVER_AND_UNKNOWN),
        // A bridge ends with who signed it.
        ask(o_server, ("M", &m.bundle)).refused(Time),
        ask(n_server, ("M", &m.bundle)).refused(Time),
        // Everybody else goes on.
        ask(o_server, ("O", &o.bundle)).accepted(),
        ask(o_server, ("N while M lasted", &n.bundle)).accepted(),
        ask(o_server, ("N", &now.bundle)).accepted(),
        ask(n_server, ("O", &o.bundle)).accepted(),
        ask(n_server, ("N while M lasted", &n.bundle)).accepted(),
        ask(n_server, ("N", &now.bundle)).accepted(),
    ];
    ask_all(expected).await;
}

/// After a distrust nobody who has the new bundle accepts anything of before, whatever a server sends with it.
async fn a_distrusted_ca_is_refused_by_clients_of_all_kinds(cluster: Cluster) {
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
        // Who has not read the new bundle yet is not cut off from who has a new certificate.
        expected.push(ask(("N", &n.server), (name, &old.bundle)).accepted());
    }
    ask_all(expected).await;
}

on_both! {
    who_is_two_rotations_behind_is_accepted_while_the_first_ca_has_not_ended
    who_is_two_rotations_behind_is_refused_after_the_first_ca_ended
    a_distrusted_ca_is_refused_by_clients_of_all_kinds
}
