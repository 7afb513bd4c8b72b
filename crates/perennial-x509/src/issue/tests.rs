//! Tests of issuing: which certificates are issued, and which are rejected.

use expect_test::expect;
use perennial_core::key::KeySpec;
use perennial_core::spec::{Extension, Host, Subject};

use super::*;
use crate::asn1::hex;
use crate::fixtures::{Ca, Edit, at, fresh_key, key, reshaped, rewritten, spec, tlv, validity, with_path_length_zero};

fn describe(certificate: &Certificate) -> String {
    let facts = certificate.facts();
    let flags = |set: der::flagset::FlagSet<x509_cert::ext::pkix::KeyUsages>| format!("{set:?}");
    format!(
        "{} by {}\n{} to {}\nca {} pathLen {:?}\nusage {}\nextended {:?}\nhosts {:?}\n{}\n",
        facts.subject,
        facts.issuer,
        facts.validity.not_before,
        facts.validity.not_after,
        facts.is_ca,
        facts.path_len,
        facts.key_usage.map(flags).unwrap_or_default(),
        facts.extended_key_usage.clone().unwrap_or_default(),
        facts.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
        facts.signature_algorithm,
    )
}

#[test]
fn a_root_has_the_extensions_of_a_ca() {
    let key = key("RSA 2048".parse().unwrap());
    let root = self_signed(&spec("root", Usage::Signer), key).unwrap();
    expect![[r#"
        CN=root by CN=root
        2030-01-01T00:00:00Z to 2030-12-31T23:59:59Z
        ca true pathLen None
        usage FlagSet(DigitalSignature | KeyEncipherment | KeyCertSign)
        extended []
        hosts []
        RSA with SHA-256
    "#]]
    .assert_eq(&describe(&root));
    let facts = root.facts();
    assert_eq!(facts.subject_key_id, Some(key.public_key().key_id()));
    assert_eq!(facts.authority_key_id, facts.subject_key_id);
    assert_eq!(facts.subject_key_id.as_ref().map(Vec::len), Some(20));
}

#[test]
fn a_peer_serves_and_connects() {
    let root = Ca::root("root");
    let leaf = root.issue(&spec("etcd", Usage::Peer), key("RSA 2048".parse().unwrap()));
    expect![[r#"
        CN=etcd by CN=root
        2030-01-01T00:00:00Z to 2030-12-31T23:59:59Z
        ca false pathLen None
        usage FlagSet(DigitalSignature | KeyEncipherment)
        extended ["1.3.6.1.5.5.7.3.1", "1.3.6.1.5.5.7.3.2"]
        hosts ["localhost", "127.0.0.1"]
        ECDSA with SHA-256
    "#]]
    .assert_eq(&describe(&leaf));
    assert_eq!(leaf.facts().authority_key_id, root.certificate.facts().subject_key_id);
    let intermediate = root.intermediate("intermediate");
    expect![[r#"
        CN=intermediate by CN=root
        2030-01-01T00:00:00Z to 2030-12-31T23:59:59Z
        ca true pathLen None
        usage FlagSet(DigitalSignature | KeyCertSign)
        extended []
        hosts []
        ECDSA with SHA-256
    "#]]
    .assert_eq(&describe(&intermediate.certificate));
}

#[test]
fn a_cross_certificate_has_the_identity_of_the_other_ca() {
    let (old, new) = (Ca::root("old"), Ca::root("new"));
    let cross = cross_sign(&new.certificate, spec("", Usage::Signer).validity, &old.issuer()).unwrap();
    let (facts, other, ours) = (cross.facts(), new.certificate.facts(), old.certificate.facts());
    assert_eq!((&facts.subject, &facts.issuer), (&other.subject, &ours.subject));
    assert_eq!(facts.public_key, other.public_key);
    assert_eq!(facts.subject_key_id, other.subject_key_id);
    assert_eq!(facts.authority_key_id, ours.subject_key_id);
    assert_ne!(facts.serial, other.serial);
    assert!(facts.is_ca && facts.path_len.is_none());
    let leaf = new.leaf("leaf", Usage::Client);
    let error = cross_sign(&leaf, spec("", Usage::Signer).validity, &old.issuer()).unwrap_err();
    assert_eq!(error.to_string(), "\"CN=leaf\" is not a CA, so it cannot be cross-signed");
}

#[test]
fn a_cross_certificate_allows_no_more_than_the_ca_itself() {
    let (ours, other) = (Ca::root("ours"), Ca::root("other"));
    let crossed = |edit: Edit<'_>| {
        let limited = reshaped(&other.certificate, &other.key, edit);
        let cross = cross_sign(&limited, limited.facts().validity, &ours.issuer());
        cross.map(|cross| describe(&cross).lines().skip(2).take(3).collect::<Vec<_>>().join(", "))
    };
    let check = |edit: Edit<'_>, expected: &str| assert_eq!(crossed(edit).unwrap(), expected);
    let (length_two, certificates_and_lists) = ([0x30, 6, 1, 1, 0xff, 2, 1, 2], [3, 2, 1, 6]);
    check(
        (19, true, Some(&length_two)),
        "ca true pathLen Some(2), usage FlagSet(DigitalSignature | KeyCertSign), extended []",
    );
    check(
        (15, true, Some(&certificates_and_lists)),
        "ca true pathLen None, usage FlagSet(KeyCertSign | CRLSign), extended []",
    );
    check((15, true, None), "ca true pathLen None, usage FlagSet(DigitalSignature | KeyCertSign), extended []");

    let refused = |edit: Edit<'_>, found: &str| {
        let expected = format!("\"CN=other\" has {found}, which a cross-certificate would not preserve");
        assert_eq!(crossed(edit).unwrap_err().to_string(), expected);
    };
    let client_auth = [0x30, 10, 6, 8, 0x2b, 6, 1, 5, 5, 7, 3, 2];
    refused((37, false, Some(&client_auth)), "the extended key usage 1.3.6.1.5.5.7.3.2");
    refused((30, true, Some(&[0x30, 0])), "name constraints");
    refused((36, false, Some(&[0x30, 0])), "policy constraints");
    refused((99, true, Some(&[5, 0])), "the unknown critical extension 2.5.29.99");
}

#[test]
fn an_issuer_is_a_ca_with_its_own_key() {
    let (one, two) = (Ca::root("one"), Ca::root("two"));
    let check = |certificate, key, expected: &str| {
        assert_eq!(Issuer::new(certificate, key).unwrap_err().to_string(), expected);
    };
    check(&one.certificate, &two.key, "the key of \"CN=one\" is not the one in its certificate");
    let leaf = self_signed(&spec("leaf", Usage::Serving), &one.key).unwrap();
    check(&leaf, &one.key, "\"CN=leaf\" is not a CA that may sign certificates");
}

#[test]
fn a_signer_with_path_length_zero_issues_no_ca() {
    let root = Ca::root("root");
    let limited = with_path_length_zero(&root);
    let issuer = Issuer::new(&limited, &root.key).unwrap();
    let expected = "the signer \"CN=root\" has path length 0, so no verifier accepts a CA below it";
    let key = fresh_key();
    let error = issue(&spec("middle", Usage::Signer), key.public_key(), &issuer).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let other = Ca::root("other");
    let error = cross_sign(&other.certificate, limited.facts().validity, &issuer).unwrap_err();
    assert_eq!(error.to_string(), expected);
    issue(&spec("leaf", Usage::Client), key.public_key(), &issuer).unwrap();
}

/// Names that x509-cert would sort, and a subject key identifier that Perennial would compute differently.
#[test]
fn an_imported_issuer_is_copied_byte_for_byte() {
    let mut two = spec("root", Usage::Signer);
    let organizations = vec!["aa".to_owned(), "bb".to_owned()];
    two.subject = Subject { organizations, ..Subject::common_name("root") }.into();
    let root = Ca::root_of(&two);
    let unsorted = [b"\x13\x02aa", b"\x13\x02bb"];
    let imported = rewritten(&root.certificate, unsorted[0], b"\x13\x02zz");
    let id = root.certificate.facts().subject_key_id.clone().unwrap();
    let imported = {
        // The first occurrence is the subject key identifier's, so it differs from the key's own.
        let mut other = id.clone();
        other[0] ^= 1;
        rewritten(&imported, &[&[4, 20][..], &id].concat(), &[&[4, 20][..], &other].concat())
    };
    // The names of issuer and subject are changed one after the other.
    let imported = rewritten(&imported, unsorted[0], b"\x13\x02zz");
    let leaf =
        issue(&spec("leaf", Usage::Client), fresh_key().public_key(), &Issuer::new(&imported, &root.key).unwrap())
            .unwrap();
    assert_eq!(leaf.facts().issuer.der(), imported.facts().subject.der());
    assert_eq!(leaf.facts().issuer.to_string(), "CN=root,O=zz+O=bb");
    assert_eq!(leaf.facts().authority_key_id, imported.facts().subject_key_id);
    assert_ne!(leaf.facts().authority_key_id, Some(id));
    assert!(crate::signed_by(&leaf, &imported));
}

fn check_refused(change: impl Fn(&mut CertificateSpec), expected: &str) {
    let mut spec = spec("leaf", Usage::Serving);
    change(&mut spec);
    let error = issue(&spec, fresh_key().public_key(), &Ca::root("root").issuer()).unwrap_err();
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_impossible_validity_is_rejected_with_both_instants() {
    check_refused(
        |spec| spec.validity.not_after = at("2031-01-01T00:00:00Z"),
        "not_after 2031-01-01T00:00:00Z is after that of the signer \"CN=root\", 2030-12-31T23:59:59Z",
    );
    check_refused(
        |spec| spec.validity.not_before = at("2029-12-31T23:59:59Z"),
        "not_before 2029-12-31T23:59:59Z is before that of the signer \"CN=root\", 2030-01-01T00:00:00Z",
    );
    check_refused(
        |spec| spec.validity.not_after = spec.validity.not_before,
        "not_after 2030-01-01T00:00:00Z is not after not_before 2030-01-01T00:00:00Z",
    );
    check_refused(
        |spec| spec.validity.not_before = at("2030-01-01T00:00:00.5Z"),
        "not_before 2030-01-01T00:00:00.5Z is not a whole second",
    );
    check_refused(
        |spec| spec.validity.not_before = at("1969-12-31T23:59:59Z"),
        "not_before 1969-12-31T23:59:59Z is before 1970",
    );
}

#[test]
fn invalid_names_and_extensions_are_rejected() {
    check_refused(
        |spec| spec.hosts.push(Host::Dns(String::new())),
        "DNS name \"\" is empty or has characters other than visible ASCII",
    );
    check_refused(
        |spec| spec.hosts.push(Host::Dns("bücher.svc".to_owned())),
        "DNS name \"bücher.svc\" is empty or has characters other than visible ASCII",
    );
    let extension = |oid: &str| Extension { oid: oid.to_owned(), critical: false, value: vec![5, 0] };
    check_refused(|spec| spec.extensions = vec![extension("nonsense")], "\"nonsense\" is not an object identifier");
    for clash in ["2.5.29.19", "1.2.3.4"] {
        check_refused(
            |spec| spec.extensions = vec![extension("1.2.3.4"), extension(clash)],
            &format!("extension {clash} is requested, but is already present or follows from the usage"),
        );
    }
    check_refused(
        |spec| *spec = CertificateSpec { subject: Subject::default().into(), hosts: Vec::new(), ..spec.clone() },
        "the certificate has neither a subject nor a host name",
    );
    check_refused(
        |spec| *spec = CertificateSpec { subject: Subject::default().into(), usage: Usage::Signer, ..spec.clone() },
        "a CA needs a subject",
    );
}

#[test]
fn additional_extensions_are_unchanged() {
    let root = Ca::root("root");
    let mut spec = spec("leaf", Usage::Serving);
    spec.extensions = vec![Extension { oid: "1.2.3.4".to_owned(), critical: true, value: vec![4, 1, 7] }];
    let leaf = root.issue(&spec, &fresh_key());
    assert_eq!(leaf.facts().unknown_critical, ["1.2.3.4"]);
    assert!(hex(leaf.der()).contains("06032a03040101ff0403040107"), "{}", hex(leaf.der()));
}

/// SubjectAltName is 2.5.29.17; critical is the BOOLEAN TRUE after it.
#[test]
fn alternative_names_are_critical_only_without_a_subject() {
    let root = Ca::root("root");
    for (subject, critical) in [("leaf", false), ("", true)] {
        let leaf = root.issue(&spec(subject, Usage::Serving), &fresh_key());
        assert_eq!(hex(leaf.der()).contains("0603551d110101ff"), critical);
    }
}

#[test]
fn times_are_utc_time_through_2049_and_generalized_time_after() {
    for (not_after, encoded) in [
        ("2049-12-31T23:59:59Z", "170d3439313233313233353935395a"),
        ("2050-01-01T00:00:00Z", "180f32303530303130313030303030305a"),
        ("9999-12-30T21:59:59Z", "180f39393939313233303231353935395a"),
    ] {
        let mut spec = spec("root", Usage::Signer);
        spec.validity = validity("1970-01-01T00:00:00Z", not_after);
        let root = self_signed(&spec, &fresh_key()).unwrap();
        assert!(hex(root.der()).contains(&format!("170d3730303130313030303030305a{encoded}")), "{not_after}");
        assert_eq!(root.facts().validity, spec.validity);
    }
}

#[test]
fn the_key_of_the_issuer_decides_the_signature_algorithm() {
    for issuer_kind in KeySpec::ALL {
        let root = self_signed(&spec("root", Usage::Signer), key(issuer_kind)).unwrap();
        let issuer = Issuer::new(&root, key(issuer_kind)).unwrap();
        for subject_kind in KeySpec::ALL {
            let leaf = issue(&spec("leaf", Usage::Client), key(subject_kind).public_key(), &issuer).unwrap();
            assert_eq!(leaf.facts().signature_algorithm, key(issuer_kind).signature_algorithm());
            assert_eq!(leaf.facts().public_key.kind().spec(), Some(subject_kind));
            assert!(leaf.is_signed_with_key_of(&root));
            assert!(key(subject_kind).matches(&leaf));
        }
    }
}

#[test]
fn a_kept_subject_is_kept_byte_for_byte() {
    let root = Ca::root("root");
    // A name that Perennial would write differently: UTF-8 for printable characters.
    let attribute = tlv(0x30, &[&[6, 3, 0x55, 4, 3], &tlv(0x0c, &[b"plain"])]);
    let name = tlv(0x30, &[&tlv(0x31, &[&attribute])]);
    let kept = CertificateSpec { subject: SubjectSpec::Kept(name.clone()), ..spec("", Usage::Client) };
    let leaf = issue(&kept, fresh_key().public_key(), &root.issuer()).unwrap();
    assert_eq!(leaf.facts().subject.der(), name);
    assert_ne!(Name::from_subject(&Subject::common_name("plain")).unwrap().der(), name);
    let garbled = CertificateSpec { subject: SubjectSpec::Kept(vec![1, 2, 3]), ..spec("", Usage::Client) };
    assert!(matches!(issue(&garbled, fresh_key().public_key(), &root.issuer()), Err(IssueError::Subject(_))));
}

/// An RSA key may also encipher a session key; an ECDSA key cannot.
#[test]
fn key_usage_follows_the_key_and_the_authority_key_id_is_the_issuers() {
    for issuer_kind in KeySpec::ALL {
        let root = self_signed(&spec("root", Usage::Signer), key(issuer_kind)).unwrap();
        let issuer = Issuer::new(&root, key(issuer_kind)).unwrap();
        for subject_kind in KeySpec::ALL {
            for usage in [Usage::Signer, Usage::Serving, Usage::Client, Usage::Peer] {
                let what = format!("{usage} {subject_kind} by {issuer_kind}");
                let made = issue(&spec("made", usage), key(subject_kind).public_key(), &issuer).unwrap();
                let facts = made.facts();
                let encipherment = if subject_kind.to_string().starts_with("RSA") { " | KeyEncipherment" } else { "" };
                let signs = if usage == Usage::Signer { " | KeyCertSign" } else { "" };
                let expected = format!("FlagSet(DigitalSignature{encipherment}{signs})");
                assert_eq!(format!("{:?}", facts.key_usage.unwrap()), expected, "{what}");
                assert_eq!(facts.is_ca, usage == Usage::Signer, "{what}");
                assert_eq!(facts.authority_key_id, root.facts().subject_key_id, "{what}");
                assert_eq!(facts.subject_key_id.as_ref().map(Vec::len), Some(20), "{what}");
            }
        }
    }
}
