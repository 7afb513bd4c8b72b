//! A rotation of the service CA with real clients of other implementations: which chains each client accepts.
//!
//! `O` is the old CA and `N` the new one, with the same subject and each self-signed; `M` is the one
//! before. `O*n` is O's name and key signed by N's key, for the bundle; `N*o` is N's signed by O's key, for the served chain.
//! In a chain, `o` is a leaf of O, and so on.
//!
//! The chain of a server after a rotation must work for clients with the old bundle `O` and for those with a new one. Only
//! orders work in which each certificate is followed by its issuer, and the last one is O or issued by it:
//!
//! | served | refused by clients that trust `O` | by those that trust `N O*n` or `N O O*n` |
//! |---|---|---|
//! | `n N*o` | none | none |
//! | `n N N*o` | OpenSSL and Python: they follow the first matching issuer, which is self-signed and unknown | none |
//! | `n N*o N` | Java: the last issuer has the name of an anchor, so it keeps this order | none |
//! | `n N*o O` | none | none |
//!
//! The last one is for clients that use the served file as a bundle, as some clients of the original operator do.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use jiff::{SignedDuration, Timestamp};
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_testbed::handshakes::Client::{GnuTls, Go, Java, OpenSsl, Python, Python313};
use perennial_testbed::handshakes::Reason::{self, Issuer, Name, Time};
use perennial_testbed::handshakes::{Client, Expected, Question, expect};
use perennial_testbed::tls::Identity;
use perennial_x509::{Certificate, Issuer as Signer, PrivateKey, cross_sign, issue, self_signed};
use support::keys;

/// The served chain, the bundle, and the clients that reject it, with the reason.
type Row = (&'static str, &'static str, &'static [(&'static [Client], Reason)]);

const ALL: &[Client] = &Client::ALL;
/// All clients that use OpenSSL.
const OPENSSLS: &[Client] = &[OpenSsl, Python, Python313];
/// All clients that check the validity of an anchor.
const LOOK_AT_ANCHORS: &[Client] = &[OpenSsl, Go, GnuTls, Python, Python313];

/// Servers and clients with their files from before and after the rotation.
const PAIRS: &[Row] = &[
    ("o O", "O", &[]),
    ("o O", "N O*n", &[]),
    ("o O", "N O O*n", &[]),
    ("n N*o", "O", &[]),
    ("n N*o", "N O*n", &[]),
    ("n N*o", "N O O*n", &[]),
];

const ORDERS: &[Row] = &[
    // The order of the original operator.
    ("n N N*o", "O", &[(OPENSSLS, Issuer)]),
    ("n N N*o", "N O*n", &[]),
    ("n N N*o", "N O O*n", &[]),
    ("n N*o N", "O", &[(&[Java], Issuer)]),
    ("n N*o N", "N O*n", &[]),
    ("n N*o N", "N O O*n", &[]),
    ("n N*o O", "O", &[]),
    ("n N*o O", "N O*n", &[]),
    ("n N*o O", "N O O*n", &[]),
    ("n N*o O", "N", &[]),
    // A server that got its chain in the rotation before.
    ("o O*m", "M", &[]),
    ("o O*m", "N O*n", &[]),
    ("o O*m", "N O O*n", &[]),
    // Without N the cross-certificate ends the path only for clients that do not require a self-signed root.
    ("o O", "O*n", &[(&[OpenSsl, Python], Issuer)]),
];

/// Clients that use the file of their server as a bundle. The order of the original operator was made for them, and works for those
/// with the new file and a server that has it too.
const FILES_AS_BUNDLES: &[Row] = &[
    ("o O", "o O", &[]),
    ("n N*o", "o O", &[]),
    ("n N N*o", "o O", &[(OPENSSLS, Issuer)]),
    ("n N*o O", "o O", &[]),
    ("n N*o", "n N*o", &[(&[OpenSsl, Python], Issuer)]),
    ("n N N*o", "n N N*o", &[]),
    ("n N*o N", "n N*o N", &[(&[OpenSsl, Python], Issuer)]),
    ("n N*o O", "n N*o O", &[]),
    ("o O", "n N*o", &[(ALL, Issuer)]),
    ("o O", "n N N*o", &[(ALL, Issuer)]),
    ("o O", "n N*o N", &[(ALL, Issuer)]),
    ("o O", "n N*o O", &[]),
];

const REFUSALS: &[Row] = &[
    // Two rotations apart, and no bridge is left.
    ("m M", "N O*n", &[(ALL, Issuer)]),
    ("m M", "N O O*n", &[(ALL, Issuer)]),
    ("n N*o", "M", &[(ALL, Issuer)]),
    // Distrusted: the new CA alone.
    ("o O", "N", &[(ALL, Issuer)]),
    ("o O*m", "N", &[(ALL, Issuer)]),
    // But an attacker with the old key can serve the cross-certificate from any bundle: it cannot be revoked.
    ("o O*n", "N", &[]),
];

/// A day after the expiry of O. `o` expires later, like leaves of the original operator, and so does the cross-certificate `N*o+`.
const AFTER_THE_END: &[Row] = &[
    ("n N*o", "O", &[(ALL, Time)]),
    ("n N*o+", "O", &[(LOOK_AT_ANCHORS, Time)]),
    ("n N N*o+", "O", &[(OPENSSLS, Issuer), (&[Go, GnuTls], Time)]),
    ("o O", "O", &[(LOOK_AT_ANCHORS, Time)]),
    // The bridge in the bundle lasts longer, and an expired one in the chain does no harm.
    ("o O", "N O*n", &[]),
    ("n N*o", "N O*n", &[]),
    ("n N*o O", "N O*n", &[]),
    ("n N*o", "N", &[]),
];

#[test]
fn all_clients_accept_and_reject_the_expected_chains_during_a_rotation() {
    let (rsa, p256, p384) = (kind("RSA 2048"), kind("ECDSA P256"), kind("ECDSA P384"));
    let mut expected = Vec::new();
    for (old, new) in [(rsa, rsa), (rsa, p256), (p256, rsa), (p256, p384)] {
        let during = World::new(old, new, 395);
        for rows in [PAIRS, ORDERS, FILES_AS_BUNDLES, REFUSALS] {
            expected.extend(during.questions("", &WEB, rows));
        }
        expected.extend(during.questions("", &DB, PAIRS));
        for (service, names, refused) in [(&WEB, WEB.names, WEB.others), (&DB, DB.names, DB.others)] {
            let ask = |name: &str| during.question("by name: ", service, "n N*o", "N O*n", name);
            expected.extend(names.iter().map(|name| ask(&name.replace('*', "db-2")).accepted()));
            expected.extend(refused.iter().map(|name| ask(name).refused(Name)));
        }
        expected.extend(World::new(old, new, -1).questions("later: ", &WEB, AFTER_THE_END));
    }
    expect(&expected);
}

/// A Service with the names of its certificate, the first of which clients use, and some that it does not have.
struct Service {
    asked_for: &'static str,
    names: &'static [&'static str],
    others: &'static [&'static str],
}

const WEB: Service = Service {
    asked_for: "web.shop.svc",
    names: &["web.shop.svc", "web.shop.svc.cluster.local"],
    others: &["db.shop.svc", "web-0.web.shop.svc", "web.shop", "shop.svc"],
};
/// A headless Service, whose pods have their own names.
const DB: Service = Service {
    asked_for: "db-0.db.shop.svc",
    names: &["*.db.shop.svc", "*.db.shop.svc.cluster.local", "db.shop.svc", "db.shop.svc.cluster.local"],
    others: &["web.shop.svc", "a.db-0.db.shop.svc", "db-0.other.shop.svc"],
};

/// Three generations of a CA with the same subject, and their cross-certificates.
struct World {
    id: String,
    certificates: Vec<(&'static str, Certificate)>,
    old: KeySpec,
    new: KeySpec,
}

impl World {
    /// With an old CA that has this many days left and a new one that was issued when the old one had 395.
    fn new(old: KeySpec, new: KeySpec, days_left: i64) -> World {
        let [m_key, o_key, n_key] = [&keys(old).subject, &keys(old).root, &keys(new).other_root];
        let rotated = days_left - 395;
        let m = ca(old, m_key, days(rotated - 790, days_left));
        let o = ca(old, o_key, days(rotated - 395, days_left));
        let n = ca(new, n_key, days(rotated, rotated + 790));
        // A leaf and a cross-certificate that expire after their issuer are issued by a copy of it with a longer validity.
        let lasting = ca(old, o_key, days(rotated - 395, rotated + 790));
        let [by_m, by_o, by_n, by_lasting] =
            [(&m, m_key), (&o, o_key), (&n, n_key), (&lasting, o_key)].map(|(ca, key)| Signer::new(ca, key).unwrap());
        let certificates = vec![
            ("O*m", cross_sign(&o, days(rotated - 395, days_left), &by_m).unwrap()),
            ("O*n", cross_sign(&o, days(rotated, rotated + 395 + 10), &by_n).unwrap()),
            ("N*o", cross_sign(&n, days(rotated, days_left), &by_o).unwrap()),
            ("N*o+", cross_sign(&n, days(rotated, rotated + 790), &by_lasting).unwrap()),
            ("m web", leaf(&WEB, old, days(rotated - 30, days_left), &by_m)),
            ("o web", leaf(&WEB, old, days(rotated - 30, rotated + 700), &by_lasting)),
            ("o db", leaf(&DB, old, days(rotated - 30, rotated + 700), &by_lasting)),
            ("n web", leaf(&WEB, new, days(rotated, rotated + 700), &by_n)),
            ("n db", leaf(&DB, new, days(rotated, rotated + 700), &by_n)),
            ("M", m),
            ("O", o),
            ("N", n),
        ];
        let world = World { id: format!("{old}->{new}"), certificates, old, new };
        world.check();
        world
    }

    /// The difficulty: all CAs have the same name, and only key identifiers and serial numbers distinguish them.
    fn check(&self) {
        let facts = |name: &str| self.certificate(name).facts();
        for name in ["N", "M", "O*m", "O*n", "N*o", "N*o+"] {
            assert_eq!(facts(name).subject.der(), facts("O").subject.der());
            assert_eq!(facts(name).issuer.der(), facts("O").subject.der());
        }
        for (bridge, subject, issuer) in [("O*m", "O", "M"), ("O*n", "O", "N"), ("N*o", "N", "O")] {
            assert_eq!(facts(bridge).subject_key_id, facts(subject).subject_key_id);
            assert_eq!(facts(bridge).authority_key_id, facts(issuer).subject_key_id);
            assert_ne!(facts(bridge).serial, facts(subject).serial);
        }
    }

    fn certificate(&self, name: &str) -> &Certificate {
        &self.certificates.iter().find(|(known, _)| *known == name).unwrap_or_else(|| panic!("no {name}")).1
    }

    fn questions(&self, what: &str, service: &Service, rows: &[Row]) -> Vec<Expected> {
        let expected = |(chain, bundle, refused): &Row| {
            let refused: Vec<_> =
                refused.iter().flat_map(|(who, why)| who.iter().map(|client| (*client, *why))).collect();
            self.question(what, service, chain, bundle, service.asked_for).refused_by(&refused)
        };
        rows.iter().map(expected).collect()
    }

    fn question(&self, what: &str, service: &Service, chain: &str, bundle: &str, name: &str) -> Question {
        let of = if service.asked_for == WEB.asked_for { "web" } else { "db" };
        // A small letter is a leaf, of which each Service has its own.
        let read = |word: &str| match word {
            "m" | "o" | "n" => self.certificate(&format!("{word} {of}")).to_pem(),
            _ => self.certificate(word).to_pem(),
        };
        let pem = |words: &str| words.split(' ').map(read).collect::<String>();
        let kind = if chain.starts_with('n') { self.new } else { self.old };
        Question {
            id: format!("{}: {what}{of} [{chain}] trusting [{bundle}] as {name}", self.id),
            server: Identity { chain: pem(chain), key: keys(kind).leaf.to_pem().unwrap().to_string() },
            bundle: pem(bundle),
            name: name.to_owned(),
        }
    }
}

fn ca(kind: KeySpec, key: &PrivateKey, validity: Validity) -> Certificate {
    let subject = Subject::common_name("openshift-service-serving-signer@1700000000");
    self_signed(&spec(subject, Usage::Signer, &[], kind, validity), key).unwrap()
}

fn leaf(service: &Service, kind: KeySpec, validity: Validity, signer: &Signer<'_>) -> Certificate {
    let spec = spec(Subject::common_name(service.names[0]), Usage::Serving, service.names, kind, validity);
    issue(&spec, keys(kind).leaf.public_key(), signer).unwrap()
}

fn spec(subject: Subject, usage: Usage, names: &[&str], key: KeySpec, validity: Validity) -> CertificateSpec {
    let hosts = names.iter().map(|name| Host::Dns((*name).to_owned())).collect();
    CertificateSpec { subject: subject.into(), usage, hosts, validity, key, extensions: Vec::new() }
}

fn kind(text: &str) -> KeySpec {
    text.parse().unwrap()
}

/// From and until this many days after today.
fn days(from: i64, until: i64) -> Validity {
    let day = |number| *TODAY + SignedDuration::from_hours(24 * number);
    Validity { not_before: day(from) - SignedDuration::from_mins(5), not_after: day(until) }
}

#[expect(clippy::disallowed_methods, reason = "the clients live by the real clock")]
static TODAY: std::sync::LazyLock<Timestamp> =
    std::sync::LazyLock::new(|| Timestamp::from_second(Timestamp::now().as_second()).unwrap());
