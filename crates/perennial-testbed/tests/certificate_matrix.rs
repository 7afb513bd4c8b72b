//! Every shape of certificate that Perennial issues, with every pairing of issuer and subject key, verified by all judges.
//!
//! The keys are real and generated here; the instants are fixed, so that the results do not depend on the date.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use jiff::{SignedDuration, Timestamp};
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Extension, Host, Subject, Validity};
use perennial_testbed::judges::{Case, Expected, Judge, Purpose, expect};
use perennial_testbed::lint;
use perennial_x509::{Certificate, Issuer, PrivateKey, cross_sign, issue, self_signed};
use support::keys;

const DNS: &str = "api.demo.example.com";
const IPV4: &str = "192.0.2.7";
const IPV6: &str = "2001:db8::7";

fn now() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

fn life(days: i64) -> Validity {
    let minute = SignedDuration::from_mins(5);
    Validity { not_before: now() - minute, not_after: now() + SignedDuration::from_hours(24 * days) }
}

fn spec(usage: Usage, subject: Subject, key: KeySpec, days: i64) -> CertificateSpec {
    let hosts = if usage.serves() {
        vec![Host::Dns(DNS.to_owned()), Host::Ip(IPV4.parse().unwrap()), Host::Ip(IPV6.parse().unwrap())]
    } else {
        Vec::new()
    };
    CertificateSpec { subject: subject.into(), usage, hosts, validity: life(days), key, extensions: Vec::new() }
}

fn ca(name: &str, kind: KeySpec, key: &PrivateKey) -> Certificate {
    self_signed(&spec(Usage::Signer, Subject::common_name(name), kind, 365), key).unwrap()
}

/// A user in two groups, in one multi-valued RDN.
fn user() -> Subject {
    Subject {
        common_name: "system:admin".to_owned(),
        organizations: vec!["system:masters".to_owned(), "dev".to_owned()],
        organizational_units: Vec::new(),
    }
}

fn case(id: String, chain: &[&Certificate], anchors: &[&Certificate], purpose: Purpose, name: Option<&str>) -> Case {
    let ders = |certificates: &[&Certificate]| certificates.iter().map(|it| it.der().to_vec()).collect();
    Case {
        id,
        chain: ders(chain),
        anchors: ders(anchors),
        purpose,
        name: name.map(str::to_owned),
        at: now().as_second(),
    }
}

/// The right purpose and every name are accepted; the wrong purpose, name and time are rejected.
fn leaf_cases(id: &str, usage: Usage, chain: &[&Certificate], anchors: &[&Certificate]) -> Vec<Expected> {
    let mut cases = Vec::new();
    let ask = |what: &str, purpose, name| case(format!("{id}: {what}"), chain, anchors, purpose, name);
    if usage.serves() {
        for name in [DNS, IPV4, IPV6] {
            cases.push(ask(&format!("serves {name}"), Purpose::Server, Some(name)).accepted());
        }
        cases.push(ask("serves another name", Purpose::Server, Some("other.example.com")).refused());
        cases.push(ask("serves another address", Purpose::Server, Some("192.0.2.8")).refused());
    } else {
        cases.push(ask("serves", Purpose::Server, None).refused());
    }
    // A leaf that is its own anchor is beyond doubt for Java, whatever its date and, as a client, its usage.
    let own_anchor = anchors.iter().any(|anchor| anchor.der() == chain[0].der());
    let doubters: Vec<Judge> = Judge::ALL.into_iter().filter(|judge| !own_anchor || *judge != Judge::Java).collect();
    if usage.connects() {
        cases.push(ask("connects", Purpose::Client, None).accepted());
    } else {
        cases.push(ask("connects", Purpose::Client, None).refused_by(&doubters));
    }
    let (purpose, name) = if usage.serves() { (Purpose::Server, Some(DNS)) } else { (Purpose::Client, None) };
    let late = Case { at: now().as_second() + 31 * 86_400, ..ask("after its end", purpose, name) };
    let early = Case { at: now().as_second() - 600, ..ask("before its beginning", purpose, name) };
    cases.extend([late.refused_by(&doubters), early.refused_by(&doubters)]);
    cases
}

#[test]
fn all_judges_accept_every_leaf_for_its_purpose_only_under_every_pairing_of_keys() {
    let mut cases = Vec::new();
    let mut certificates = Vec::new();
    for (issuer_kind, issuer_keys) in KeySpec::ALL.map(|kind| (kind, keys(kind))) {
        let root = ca("root", issuer_kind, &issuer_keys.root);
        let issuer = Issuer::new(&root, &issuer_keys.root).unwrap();
        for (kind, keys) in KeySpec::ALL.map(|kind| (kind, keys(kind))) {
            let pair = format!("{kind} by {issuer_kind}");
            for usage in [Usage::Serving, Usage::Client, Usage::Peer] {
                let leaf = issue(&spec(usage, user(), kind, 30), keys.leaf.public_key(), &issuer).unwrap();
                cases.extend(leaf_cases(&format!("{usage} {pair}"), usage, &[&leaf], &[&root]));
                certificates.push((format!("{usage} {pair}"), leaf.der().to_vec()));
            }
            // A signer under a signer, and a leaf under both.
            let middle = spec(Usage::Signer, Subject::common_name("intermediate"), kind, 60);
            let middle = issue(&middle, keys.subject.public_key(), &issuer).unwrap();
            let middle_issuer = Issuer::new(&middle, &keys.subject).unwrap();
            let leaf = issue(&spec(Usage::Serving, user(), kind, 30), keys.leaf.public_key(), &middle_issuer).unwrap();
            let id = format!("serving {kind} by {pair}");
            cases.extend(leaf_cases(&id, Usage::Serving, &[&leaf, &middle], &[&root]));
            let incomplete = case(format!("{id}: without its intermediate"), &[&leaf], &[&root], Purpose::Server, None);
            cases.push(incomplete.refused());
            certificates.push((format!("intermediate {pair}"), middle.der().to_vec()));
        }
        certificates.push((format!("root {issuer_kind}"), root.der().to_vec()));
    }
    expect(&cases);
    lint::expect_clean(&certificates);
}

#[test]
fn all_judges_accept_cross_certificates_in_both_directions_under_every_pairing_of_keys() {
    let mut cases = Vec::new();
    let mut certificates = Vec::new();
    for (old_kind, old_keys) in KeySpec::ALL.map(|kind| (kind, keys(kind))) {
        for (new_kind, new_keys) in KeySpec::ALL.map(|kind| (kind, keys(kind))) {
            // The hard case: old and new have the same subject, as in a rotation that keeps it.
            for (old_name, new_name) in [("signer", "signer"), ("old", "new")] {
                let pair = format!("{old_name}->{new_name} {old_kind}->{new_kind}");
                let old = ca(old_name, old_kind, &old_keys.root);
                let new = ca(new_name, new_kind, &new_keys.other_root);
                let old_issuer = Issuer::new(&old, &old_keys.root).unwrap();
                let new_issuer = Issuer::new(&new, &new_keys.other_root).unwrap();
                let old_by_new = cross_sign(&old, life(300), &new_issuer).unwrap();
                let new_by_old = cross_sign(&new, life(300), &old_issuer).unwrap();
                let serving = spec(Usage::Serving, Subject::common_name("server"), KeySpec::PLATFORM_DEFAULT, 30);
                let key = keys(KeySpec::PLATFORM_DEFAULT).leaf.public_key();
                let old_leaf = issue(&serving, key, &old_issuer).unwrap();
                let new_leaf = issue(&serving, key, &new_issuer).unwrap();
                let mut ask = |what: &str, chain: &[&Certificate], anchors: &[&Certificate], accepted: bool| {
                    let case = case(format!("{pair}: {what}"), chain, anchors, Purpose::Server, Some(DNS));
                    cases.push(if accepted { case.accepted() } else { case.refused() });
                };
                ask("old leaf, new trust", &[&old_leaf], &[&new], false);
                ask("old leaf with its bridge, new trust", &[&old_leaf, &old_by_new], &[&new], true);
                ask("new leaf, old trust", &[&new_leaf], &[&old], false);
                ask("new leaf with its bridge, old trust", &[&new_leaf, &new_by_old], &[&old], true);
                ask("old leaf, both trusted", &[&old_leaf], &[&new, &old], true);
                ask("new leaf, both trusted", &[&new_leaf], &[&old, &new], true);
                ask("new leaf with a bridge it does not need", &[&new_leaf, &new_by_old], &[&new], true);
                certificates.push((format!("{pair}: old by new"), old_by_new.der().to_vec()));
                certificates.push((format!("{pair}: new by old"), new_by_old.der().to_vec()));
            }
        }
    }
    expect(&cases);
    lint::expect_clean(&certificates);
}

#[test]
fn all_judges_accept_a_self_signed_leaf_that_is_trusted_itself() {
    let mut cases = Vec::new();
    let mut certificates = Vec::new();
    for (kind, keys) in KeySpec::ALL.map(|kind| (kind, keys(kind))) {
        let subject = Subject { organizational_units: vec!["openshift".to_owned()], ..Subject::common_name("ironic") };
        let leaf = self_signed(&spec(Usage::Serving, subject, kind, 30), &keys.leaf).unwrap();
        cases.extend(leaf_cases(&format!("self-signed {kind}"), Usage::Serving, &[&leaf], &[&leaf]));
        certificates.push((format!("self-signed {kind}"), leaf.der().to_vec()));
    }
    expect(&cases);
    lint::expect_clean(&certificates);
}

#[test]
fn all_judges_ignore_a_custom_extension_and_reject_a_critical_one() {
    let keys = keys(KeySpec::ALL[3]);
    let root = ca("root", KeySpec::ALL[3], &keys.root);
    let issuer = Issuer::new(&root, &keys.root).unwrap();
    let leaf = |critical| {
        // The UID of a Service, as an UTF8String.
        let extension =
            Extension { oid: "1.3.6.1.4.1.2312.17.100.2.1".to_owned(), critical, value: b"\x0c\x03uid".to_vec() };
        let spec = spec(Usage::Serving, Subject::common_name("server"), KeySpec::ALL[3], 30);
        issue(&CertificateSpec { extensions: vec![extension], ..spec }, keys.leaf.public_key(), &issuer).unwrap()
    };
    let (ignored, heeded) = (leaf(false), leaf(true));
    expect(&[
        case("not critical".to_owned(), &[&ignored], &[&root], Purpose::Server, Some(DNS)).accepted(),
        case("critical".to_owned(), &[&heeded], &[&root], Purpose::Server, Some(DNS)).refused(),
    ]);
}

#[test]
fn judges_that_check_anchors_reject_an_expired_signer() {
    let keys = keys(KeySpec::ALL[3]);
    let root = ca("root", KeySpec::ALL[3], &keys.root);
    let issuer = Issuer::new(&root, &keys.root).unwrap();
    let spec = CertificateSpec { validity: life(365), ..spec(Usage::Client, user(), KeySpec::ALL[3], 1) };
    let leaf = issue(&spec, keys.leaf.public_key(), &issuer).unwrap();
    let mut asked = case("both expired".to_owned(), &[&leaf], &[&root], Purpose::Client, None);
    asked.at = now().as_second() + 366 * 86_400;
    expect(&[asked.refused()]);
}
