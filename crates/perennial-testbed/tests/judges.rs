//! The judges accept valid chains, reject invalid ones for the right reason, and differ only as documented.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use std::panic::catch_unwind;

use perennial_testbed::judges::{
    Case,
    Judge::{self, GnuTls, Go, Java, OpenSsl, Webpki},
    Purpose, expect, judge_all,
};
use support::{CA, CLIENT, Key, LEAF_EXPIRED, SERVER, TOO_EARLY, Workshop};

const NAME: &str = "web.example.test";
const CHAIN: [&str; 2] = ["server", "middle"];

#[test]
fn all_judges_accept_the_right_purpose_and_name_of_an_rsa_chain() {
    accept_good_chain(Key::Rsa);
}

#[test]
fn all_judges_accept_the_right_purpose_and_name_of_an_ec_chain() {
    accept_good_chain(Key::Ec);
}

fn accept_good_chain(key: Key) {
    let it = Workshop::with_chain(key);
    let no_name = Case { name: None, ..it.server_case("no name", &CHAIN, &["root"], NAME) };
    expect(&[
        it.server_case("dns", &CHAIN, &["root"], NAME).accepted(),
        it.server_case("wildcard", &CHAIN, &["root"], "a.web.example.test").accepted(),
        it.server_case("ipv4", &CHAIN, &["root"], "192.0.2.7").accepted(),
        it.server_case("ipv6", &CHAIN, &["root"], "2001:db8::7").accepted(),
        no_name.accepted(),
        it.server_case("middle in the bundle", &["server"], &["root", "middle"], NAME).accepted(),
        it.client_case("client", &["client", "middle"], &["root"]).accepted(),
    ]);
}

#[test]
fn all_judges_refuse_a_bad_rsa_chain_for_the_right_reason() {
    refuse_bad_chain(Key::Rsa);
}

#[test]
fn all_judges_refuse_a_bad_ec_chain_for_the_right_reason() {
    refuse_bad_chain(Key::Ec);
}

/// Every case is the valid one with one fault, and has the messages of each judge, in the order of `Judge::ALL`.
fn refuse_bad_chain(key: Key) {
    let it = Workshop::with_chain(key);
    it.self_signed("stranger", CA);
    let good = |id: &str| it.server_case(id, &CHAIN, &["root"], NAME);
    let mut broken = good("broken signature");
    *broken.chain[0].last_mut().unwrap() ^= 1;
    let names = |name: &str| Case { name: Some(name.into()), ..good(name) };

    let table: Vec<(Case, [&str; 5])> = vec![
        (
            Case { purpose: Purpose::Client, name: None, ..good("wrong purpose") },
            [
                "purpose",
                "incompatible key usage",
                "does not permit use for TLS client",
                "purpose",
                "RequiredEkuNotFound",
            ],
        ),
        (
            Case { purpose: Purpose::Server, ..it.client_case("client as server", &["client", "middle"], &["root"]) },
            [
                "purpose",
                "incompatible key usage",
                "does not permit use for TLS server",
                "purpose",
                "RequiredEkuNotFound",
            ],
        ),
        (
            names("other.example.test"),
            [
                "hostname mismatch",
                "is valid for",
                "No subject alternative DNS name",
                "does not match",
                "CertNotValidForName",
            ],
        ),
        (
            names("192.0.2.8"),
            [
                "IP address mismatch",
                "is valid for",
                "No subject alternative names matching IP",
                "does not match",
                "CertNotValidForName",
            ],
        ),
        (
            names("2001:db8::8"),
            [
                "IP address mismatch",
                "is valid for",
                "No subject alternative names matching IP",
                "does not match",
                "CertNotValidForName",
            ],
        ),
        (
            Case { at: LEAF_EXPIRED, ..good("expired leaf") },
            ["has expired", "expired", "NotAfter", "expired", "CertExpired"],
        ),
        (
            Case { at: TOO_EARLY, ..good("not yet valid") },
            ["not yet valid", "not yet valid", "NotBefore", "not yet valid", "CertNotValidYet"],
        ),
        (
            it.server_case("unknown anchor", &CHAIN, &["stranger"], NAME),
            [
                "unable to get local issuer",
                "unknown authority",
                "unable to find valid",
                "issuer is unknown",
                "UnknownIssuer",
            ],
        ),
        (
            it.server_case("no anchors", &CHAIN, &[], NAME),
            ["unable to get local issuer", "unknown authority", "no anchors", "issuer is unknown", "UnknownIssuer"],
        ),
        (
            it.server_case("no intermediate", &["server"], &["root"], NAME),
            [
                "unable to get local issuer",
                "unknown authority",
                "unable to find valid",
                "issuer is unknown",
                "UnknownIssuer",
            ],
        ),
        (broken, ["signature failure", "verification", "ignature", "signature", "InvalidSignatureForPublicKey"]),
    ];
    let cases: Vec<Case> = table.iter().map(|(case, _)| case.clone()).collect();
    let report = judge_all(&cases).unwrap();
    for (case, words) in &table {
        for (judge, words) in Judge::ALL.into_iter().zip(words) {
            let verdict = report.verdict(judge, &case.id).unwrap();
            let right = !verdict.accepted && verdict.why.contains(words);
            assert!(right, "{judge} on {} was to say {words:?}: {verdict:?}\n\n{report}", case.id);
        }
    }
}

/// The table in the documentation of `judges`.
#[test]
fn the_judges_differ_as_documented() {
    let mut it = Workshop::with_chain(Key::Ec);
    it.ca("old root", "/O=test/CN=old", CA, "20260401000000Z");
    it.leaf("of old root", "/CN=of old root", "old root", SERVER);
    it.self_signed("self", SERVER);
    it.self_signed("self signing", &SERVER.replace("digitalSignature", "digitalSignature,keyCertSign"));
    it.self_signed(
        "self ca",
        &SERVER.replace("CA:FALSE", "CA:TRUE").replace("digitalSignature", "digitalSignature,keyCertSign"),
    );
    it.leaf("no san", "/CN=web.example.test", "middle", &CLIENT.replace("clientAuth", "serverAuth"));
    it.leaf("no signing", "/CN=server", "middle", &SERVER.replace("digitalSignature", "keyEncipherment"));
    it.same_key("middle", "middle of other id");
    let other_id = CA.replace("hash", "01:02:03");
    it.issued_ca("middle of other id", "/O=test/CN=middle", "root", &other_id);
    it.leaf_without_aki("no aki", "/CN=server", "middle", SERVER);
    it.key = Key::SmallRsa;
    it.leaf("rsa 1024", "/CN=server", "middle", SERVER);

    let alone = |id: &str| it.server_case(id, &[id], &[id], NAME);
    let expired = |id: &str, case: Case| Case { id: id.into(), at: LEAF_EXPIRED, ..case };
    let through_middle = |id: &str| it.server_case(id, &[id, "middle"], &["root"], NAME);
    expect(&[
        it.server_case("expired anchor", &["of old root"], &["old root"], NAME).refused_by(&[OpenSsl, Go, GnuTls]),
        alone("self").accepted(),
        alone("self signing").accepted(),
        alone("self ca").refused_by(&[Webpki]),
        expired("expired self", alone("self")).refused_by(&[OpenSsl, Go, GnuTls, Webpki]),
        it.server_case("issued leaf as anchor", &["server"], &["server"], NAME).refused_by(&[OpenSsl, Webpki]),
        it.server_case("intermediate as the only anchor", &["server"], &["middle"], NAME).refused_by(&[OpenSsl]),
        it.server_case("wrong aki", &["server", "middle of other id"], &["root"], NAME).refused_by(&[OpenSsl, GnuTls]),
        through_middle("no aki").refused_by(&[OpenSsl]),
        through_middle("rsa 1024").refused_by(&[OpenSsl, GnuTls]),
        through_middle("no san").refused_by(&[Go, Webpki]),
        through_middle("no signing").refused_by(&[Java]),
    ]);
}

#[test]
fn ip_addresses_count_only_as_ip_names() {
    let it = Workshop::with_chain(Key::Ec);
    let peer = CLIENT.replace("clientAuth", "clientAuth,serverAuth");
    let named = |names: &str| format!("{peer}\nsubjectAltName={names}");
    it.leaf("both", "/CN=both", "middle", &named("DNS:localhost,DNS:192.0.2.7,DNS:\\:\\:1,IP:192.0.2.7,IP:::1"));
    it.leaf("text", "/CN=text", "middle", &named("DNS:localhost,DNS:192.0.2.7"));
    expect(&[
        it.server_case("name beside ip text", &["both", "middle"], &["root"], "localhost").accepted(),
        it.server_case("ipv4", &["both", "middle"], &["root"], "192.0.2.7").accepted(),
        it.server_case("ipv6", &["both", "middle"], &["root"], "::1").accepted(),
        it.client_case("client with ip text", &["both", "middle"], &["root"]).accepted(),
        it.server_case("ip only as text", &["text", "middle"], &["root"], "192.0.2.7").refused(),
    ]);
}

#[test]
fn all_judges_accept_a_common_name_of_73_characters() {
    let it = Workshop::with_chain(Key::Ec);
    it.node_bootstrapper("bootstrapper", "root");
    expect(&[it.client_case("node bootstrapper", &["bootstrapper"], &["root"]).accepted()]);
}

#[test]
fn bytes_that_are_not_a_certificate_are_rejected_without_failing_the_batch() {
    let it = Workshop::with_chain(Key::Ec);
    let good = it.server_case("good", &CHAIN, &["root"], NAME);
    let garbage = vec![0x30, 0];
    let bad_leaf = Case { id: "bad leaf".into(), chain: vec![garbage.clone()], ..good.clone() };
    let bad_bundle = Case { id: "bad bundle".into(), anchors: vec![it.der("root"), garbage], ..good.clone() };
    let nothing = Case { id: "nothing".into(), chain: vec![], ..good.clone() };
    expect(&[bad_leaf.refused(), bad_bundle.refused(), nothing.refused(), good.accepted()]);
}

#[test]
fn a_failed_expectation_names_the_judge_and_its_reason() {
    let it = Workshop::with_chain(Key::Ec);
    let wrong = it.server_case("accepted by all", &CHAIN, &["root"], NAME).refused_by(&[Go]);
    let late =
        Case { id: "late".into(), at: LEAF_EXPIRED, ..wrong.case.clone() }.refused_by(&[OpenSsl, Java, GnuTls, Webpki]);
    let panic = catch_unwind(|| expect(&[wrong, late])).unwrap_err();
    let table = panic.downcast_ref::<String>().unwrap();
    let expected = "2 of 10 verdicts are not the expected ones
case             judge    expected  got       why
accepted by all  Go       refused   accepted  ok
late             Go       accepted  refused   x509: certificate has expired or is not yet valid: current time \
2028-01-01T00:00:00Z is after 2027-01-01T00:00:00Z";
    assert_eq!(table, expected);
}

#[test]
#[should_panic(expected = "nothing was judged")]
fn a_batch_without_cases_is_an_error() {
    expect(&[]);
}
