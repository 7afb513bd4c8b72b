//! Properties of every certificate that can be specified: it contains what was specified, and verifies.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

mod common;

use common::key;
use jiff::Timestamp;
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, SubjectSpec, Validity};
use perennial_x509::{
    Certificate, Issuer, Name, PrivateKey, Purpose, Verification, issue, read_certificates, self_signed, verify,
};
use proptest::prelude::*;

fn kinds() -> impl Strategy<Value = KeySpec> {
    proptest::sample::select(KeySpec::ALL.to_vec())
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof!["[a-z0-9:.-]{1,20}", "[^\\x00]{1,12}"]
}

fn subjects() -> impl Strategy<Value = Subject> {
    let several = || proptest::collection::btree_set(texts(), 0..4);
    (texts(), several(), several()).prop_map(|(common_name, organizations, units)| Subject {
        common_name,
        organizations: organizations.into_iter().collect(),
        organizational_units: units.into_iter().collect(),
    })
}

fn hosts() -> impl Strategy<Value = Host> {
    prop_oneof![
        "(\\*\\.)?[a-z][a-z0-9-]{0,10}(\\.[a-z0-9]{1,8}){0,3}".prop_map(Host::Dns),
        any::<std::net::Ipv4Addr>().prop_map(|ip| Host::Ip(ip.into())),
        any::<std::net::Ipv6Addr>().prop_map(|ip| Host::Ip(ip.into())),
    ]
}

fn leaves() -> impl Strategy<Value = CertificateSpec> {
    let usages = proptest::sample::select(vec![Usage::Serving, Usage::Client, Usage::Peer]);
    let seconds = (0..LAST - 1).prop_flat_map(|start| (Just(start), start + 1..=LAST));
    (subjects(), usages, proptest::collection::vec(hosts(), 0..5), seconds).prop_map(
        |(subject, usage, hosts, (start, end))| CertificateSpec {
            subject: SubjectSpec::New(subject),
            usage,
            hosts,
            validity: Validity { not_before: instant(start), not_after: instant(end) },
            key: KeySpec::PLATFORM_DEFAULT,
            extensions: Vec::new(),
        },
    )
}

const LAST: i64 = 253_402_207_200;

fn instant(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn root(kind: KeySpec) -> Certificate {
    let spec = CertificateSpec {
        subject: Subject::common_name("root").into(),
        usage: Usage::Signer,
        hosts: Vec::new(),
        validity: Validity { not_before: instant(0), not_after: instant(LAST) },
        key: kind,
        extensions: Vec::new(),
    };
    self_signed(&spec, key(kind, 0)).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_certificate_contains_what_was_specified(spec in leaves(), issuer_kind in kinds(), subject_kind in kinds()) {
        let root = root(issuer_kind);
        let issuer = Issuer::new(&root, key(issuer_kind, 0)).unwrap();
        let leaf = issue(&spec, key(subject_kind, 0).public_key(), &issuer).unwrap();
        let facts = leaf.facts();
        let SubjectSpec::New(subject) = &spec.subject else { unreachable!("leaves() makes new subjects") };
        prop_assert_eq!(facts.subject.common_name(), Some(subject.common_name.clone()));
        let mut organizations = facts.subject.organizations();
        organizations.sort();
        prop_assert_eq!(&organizations, &subject.organizations);
        prop_assert_eq!(&facts.hosts, &spec.hosts);
        prop_assert_eq!(facts.validity, spec.validity);
        prop_assert_eq!(facts.allows_server_auth(), spec.usage.serves());
        prop_assert_eq!(facts.allows_client_auth(), spec.usage.connects());
        prop_assert!(!facts.subject.to_string().contains('\n'));
        prop_assert_eq!(read_certificates(leaf.to_pem().as_bytes()).unwrap(), vec![leaf.clone()]);

        let anchors = [root.clone()];
        let accepted = |at: Timestamp, purpose: &Purpose| {
            verify(&Verification { leaf: &leaf, intermediates: &[], anchors: &anchors, at, purpose }).is_ok()
        };
        let Validity { not_before, not_after } = spec.validity;
        prop_assert!(accepted(not_before, &Purpose::Any) && accepted(not_after, &Purpose::Any));
        let second = jiff::SignedDuration::from_secs(1);
        prop_assert!(!not_before.checked_sub(second).is_ok_and(|before| accepted(before, &Purpose::Any)));
        prop_assert!(!not_after.checked_add(second).is_ok_and(|after| accepted(after, &Purpose::Any)));
        for host in &spec.hosts {
            let purpose = Purpose::Server { name: Some(host.clone()) };
            prop_assert_eq!(accepted(not_before, &purpose), spec.usage.serves(), "{}", host);
        }
    }

    #[test]
    fn a_name_round_trips_through_its_bytes(subject in subjects()) {
        let name = Name::from_subject(&subject).unwrap();
        prop_assert_eq!(Name::from_der(name.der()).unwrap(), name);
    }

    #[test]
    fn any_text_is_read_without_panic(text in "(?s)[ -~\n]{0,200}", label in "[A-Z ]{1,12}") {
        let _ = read_certificates(text.as_bytes());
        let _ = PrivateKey::from_pem(text.as_bytes());
        let block = format!("-----BEGIN {label}-----\n{text}\n-----END {label}-----\n");
        let _ = read_certificates(block.as_bytes());
        let _ = PrivateKey::from_pem(block.as_bytes());
    }
}
