//! The linter reports nothing for valid certificates, finds planted defects, and skips explained findings.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod support;

use std::panic::catch_unwind;

use perennial_testbed::lint::{Finding, Severity, expect_clean, lint, unexplained};
use support::{CA, CLIENT, Key, SERVER, Workshop};

fn findings(it: &Workshop, names: &[&str]) -> Vec<Finding> {
    lint(&certificates(it, names)).unwrap()
}

fn certificates(it: &Workshop, names: &[&str]) -> Vec<(String, Vec<u8>)> {
    names.iter().map(|name| ((*name).to_owned(), it.der(name))).collect()
}

fn codes(findings: &[Finding]) -> Vec<(&str, &str)> {
    findings.iter().map(|it| (it.id.as_str(), it.code.as_str())).collect()
}

#[test]
fn a_clean_chain_has_no_finding() {
    let it = Workshop::with_chain(Key::Ec);
    it.leaf("plain", "/CN=plain", "middle", &SERVER.replace("DNS:*.web.example.test,", ""));
    assert_eq!(findings(&it, &["root", "middle", "plain", "client"]), []);
}

#[test]
fn planted_defects_are_found_where_they_are() {
    let it = Workshop::with_chain(Key::Ec);
    it.self_signed("no ski", &CA.replace("hash", "none"));
    it.leaf("bad name", "/CN=it", "middle", &SERVER.replace("DNS:web.example.test", "DNS:web..example.test"));
    it.leaf("may sign", "/CN=it", "middle", &CLIENT.replace("digitalSignature", "digitalSignature,keyCertSign"));
    let found = findings(&it, &["root", "no ski", "bad name", "may sign"]);
    let unexplained: Vec<Finding> = unexplained(&found).into_iter().cloned().collect();
    let expected = [
        ("no ski", "pkix.certificate_skid_ca_missing"),
        ("bad name", "pkix.invalid_domain_name_syntax"),
        ("may sign", "pkix.ee_certificate_keycertsign_keyusage_set"),
    ];
    assert_eq!(codes(&unexplained), expected);
    assert!(unexplained.iter().all(|it| it.severity == Severity::Error));
}

#[test]
fn explained_findings_do_not_fail_a_test() {
    let it = Workshop::with_chain(Key::Ec);
    it.leaf("groups", "/O=etcd-client+O=system:etcd/CN=etcd-client", "middle", CLIENT);
    it.leaf("names", "/CN=names", "middle", &SERVER.replace("DNS:web", "DNS:kubernetes,DNS:localhost,DNS:web"));
    it.ca("etcd-signer", "/CN=openshift-etcd_etcd-signer@1720003641", CA, "20360101000000Z");
    it.leaf("member", "/CN=10.0.0.4", "etcd-signer", &SERVER.replace("DNS:web", "DNS:10.0.0.4,DNS:\\:\\:1,DNS:web"));
    it.node_bootstrapper("bootstrapper", "root");
    let names = ["groups", "names", "member", "bootstrapper"];
    let found = findings(&it, &names);
    for name in names {
        assert!(found.iter().any(|it| it.id == name), "pkilint no longer minds {name}");
    }
    expect_clean(&certificates(&it, &names));
    assert_eq!(perennial_testbed::lint::unused_exceptions(&found), Vec::<&_>::new());
}

#[test]
fn a_long_name_does_not_hide_other_defects() {
    let it = Workshop::with_chain(Key::Ec);
    it.node_bootstrapper("bootstrapper", "root");
    let mut certificate = it.der("bootstrapper");
    // The OID of the subject key identifier becomes an unknown one.
    let oid = [0x55, 0x1d, 0x0e];
    let position = certificate.windows(3).position(|bytes| bytes == oid).unwrap();
    certificate[position + 2] = 0x7f;
    let found = lint(&[("bootstrapper".into(), certificate)]).unwrap();
    let unexplained: Vec<Finding> = unexplained(&found).into_iter().cloned().collect();
    assert_eq!(codes(&unexplained), [("bootstrapper", "pkix.certificate_skid_end_entity_missing")]);
}

#[test]
fn garbage_is_a_finding() {
    let found = lint(&[("garbage".into(), b"garbage".to_vec())]).unwrap();
    assert_eq!(codes(&found), [("garbage", "unreadable")]);
    assert_eq!(unexplained(&found).len(), 1);
}

#[test]
fn an_unexplained_finding_fails_the_test_with_its_details() {
    let it = Workshop::with_chain(Key::Ec);
    it.leaf("it", "/CN=it", "middle", &CLIENT.replace("digitalSignature", "digitalSignature,keyCertSign"));
    let panic = catch_unwind(|| expect_clean(&certificates(&it, &["it"]))).unwrap_err();
    let expected = "1 unexplained findings\nit (CN=it): Error pkix.ee_certificate_keycertsign_keyusage_set at \
                    certificate.tbsCertificate.extensions.1.extnValue.keyUsage: ";
    assert_eq!(panic.downcast_ref::<String>().unwrap(), expected);
}
