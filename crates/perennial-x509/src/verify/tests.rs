//! Small PKIs as text, and what the verifier accepts.

use der::asn1::AnyRef;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Extension, Host, Validity};

use super::*;
use crate::fixtures::{Ca, Edit, at, fresh_key, reshaped, rewritten, spec, tlv, validity, with_path_length_zero};
use crate::{PublicKey, asn1, cross_sign, issue, self_signed};

const NOW: &str = "2030-06-01T00:00:00Z";

fn server(name: &str) -> Purpose {
    Purpose::Server { name: Some(Host::parse(name)) }
}

/// Returns the subjects of the path, or the error.
fn ask(
    leaf: &Certificate,
    intermediates: &[&Certificate],
    anchors: &[&Certificate],
    now: &str,
    purpose: &Purpose,
) -> String {
    let [intermediates, anchors] = [intermediates, anchors].map(|list| list.iter().map(|c| (*c).clone()).collect());
    let (intermediates, anchors): (Vec<_>, Vec<_>) = (intermediates, anchors);
    let question = Verification { leaf, intermediates: &intermediates, anchors: &anchors, at: at(now), purpose };
    match verify(&question) {
        Ok(path) => {
            let subjects = path.certificates().iter().map(|c| c.facts().subject.common_name().unwrap_or_default());
            subjects.collect::<Vec<_>>().join(" < ")
        }
        // Serial numbers and key identifiers are random.
        Err(error) => format!("{}: {}", error.subject, error.problem),
    }
}

#[test]
fn a_chain_is_accepted_for_its_purpose_and_names_only() {
    let root = Ca::root("root");
    let middle = root.intermediate("middle");
    let leaf = middle.leaf("leaf", Usage::Serving);
    let check = |purpose: &Purpose, expected: &str| {
        assert_eq!(ask(&leaf, &[&middle.certificate], &[&root.certificate], NOW, purpose), expected);
    };
    check(&server("localhost"), "leaf < middle < root");
    check(&server("127.0.0.1"), "leaf < middle < root");
    check(&Purpose::Server { name: None }, "leaf < middle < root");
    check(&Purpose::Any, "leaf < middle < root");
    check(&server("leaf"), "CN=leaf: it is not for leaf, but for localhost, 127.0.0.1");
    check(&Purpose::Client, "CN=leaf: its extended key usage does not allow clientAuth");
}

#[test]
fn every_certificate_of_a_path_must_be_valid_including_the_anchor() {
    let within = |not_before: &str, not_after: &str| validity(not_before, not_after);
    let with = |spec: CertificateSpec, validity: Validity| CertificateSpec { validity, ..spec };
    let root = Ca::root_of(&with(spec("root", Usage::Signer), within("2030-01-01T00:00:00Z", "2030-09-30T23:59:59Z")));
    let leaf = root.issue(
        &with(spec("leaf", Usage::Client), within("2030-02-01T00:00:00Z", "2030-08-31T23:59:59Z")),
        &fresh_key(),
    );
    let check = |now: &str, expected: &str| {
        assert_eq!(ask(&leaf, &[], &[&root.certificate], now, &Purpose::Client), expected);
    };
    check(
        "2030-01-31T23:59:59Z",
        "CN=leaf: it is not valid at 2030-01-31T23:59:59Z, only from 2030-02-01T00:00:00Z on",
    );
    check("2030-02-01T00:00:00Z", "leaf < root");
    check("2030-08-31T23:59:59Z", "leaf < root");
    check("2030-09-01T00:00:00Z", "CN=leaf: it expired at 2030-08-31T23:59:59Z, before 2030-09-01T00:00:00Z");

    // A cross-certificate that expired before its own root.
    let other = Ca::root("other");
    let cross = cross_sign(&other.certificate, within("2030-01-01T00:00:00Z", "2030-03-31T23:59:59Z"), &root.issuer());
    let cross = cross.unwrap();
    let leaf = other.leaf("leaf", Usage::Client);
    let ask = |now| ask(&leaf, &[&cross], &[&root.certificate], now, &Purpose::Client);
    assert_eq!(ask("2030-03-01T00:00:00Z"), "leaf < other < root");
    assert_eq!(
        ask("2030-04-01T00:00:00Z"),
        "CN=other: it expired at 2030-03-31T23:59:59Z, before 2030-04-01T00:00:00Z"
    );
    // The anchor alone has expired.
    let expired = "CN=other: it expired at 2030-12-31T23:59:59Z, before 2031-01-01T00:00:00Z";
    let young = CertificateSpec {
        validity: within("2030-01-01T00:00:00Z", "2031-12-31T23:59:59Z"),
        ..spec("other", Usage::Signer)
    };
    let longer = Ca { certificate: self_signed(&young, &other.key).unwrap(), key: other.key };
    let late = CertificateSpec { validity: young.validity, ..spec("late", Usage::Client) };
    let late = longer.issue(&late, &fresh_key());
    assert_eq!(super::tests::ask(&late, &[], &[&other.certificate], "2031-01-01T00:00:00Z", &Purpose::Client), expired);
    assert_eq!(
        super::tests::ask(
            &late,
            &[],
            &[&other.certificate, &longer.certificate],
            "2031-01-01T00:00:00Z",
            &Purpose::Client
        ),
        "late < other"
    );
}

#[test]
fn a_path_has_a_validity() {
    let root = Ca::root("root");
    let mut short = spec("leaf", Usage::Client);
    short.validity = validity("2030-05-01T00:00:00Z", "2030-07-01T00:00:00Z");
    let leaf = root.issue(&short, &fresh_key());
    let anchors = [root.certificate.clone()];
    let question =
        Verification { leaf: &leaf, intermediates: &[], anchors: &anchors, at: at(NOW), purpose: &Purpose::Client };
    let path = verify(&question).unwrap();
    assert_eq!(path.validity(), short.validity);
    assert_eq!(path.anchor(), &root.certificate);
}

#[test]
fn an_untrusted_leaf_is_rejected_and_the_error_names_the_missing_issuer() {
    let (root, stranger) = (Ca::root("root"), Ca::root("stranger"));
    let leaf = root.leaf("leaf", Usage::Client);
    let refused = ask(&leaf, &[], &[&stranger.certificate], NOW, &Purpose::Client);
    assert!(refused.starts_with("CN=leaf: no issuer \"CN=root\" found (with key "), "{refused}");
    assert!(ask(&leaf, &[], &[], NOW, &Purpose::Client).contains("no issuer"));
    let namesake = Ca::root("root");
    let refused = ask(&leaf, &[], &[&namesake.certificate], NOW, &Purpose::Client);
    assert!(refused.contains("but the known certificates with this subject have the key"), "{refused}");
    let both = [&namesake.certificate, &root.certificate];
    assert_eq!(ask(&leaf, &[], &both, NOW, &Purpose::Client), "leaf < root");
    assert!(signed_by(&leaf, &root.certificate) && !signed_by(&leaf, &namesake.certificate));
}

#[test]
fn a_signature_is_checked_even_if_key_identifiers_match() {
    let root = Ca::root("root");
    let leaf = root.leaf("leaf", Usage::Client);
    let serial = leaf.der().windows(2).position(|window| window == [2, 16]).unwrap() + 10;
    // The last byte belongs to the signature, the serial number to what is signed.
    for position in [leaf.der().len() - 1, serial] {
        let mut der = leaf.der().to_vec();
        der[position] ^= 1;
        let forged = Certificate::from_der(&der).unwrap();
        assert_eq!(
            ask(&forged, &[], &[&root.certificate], NOW, &Purpose::Any),
            "CN=leaf: its signature (ECDSA with SHA-256) was not made with the key of \"CN=root\""
        );
        assert!(!signed_by(&forged, &root.certificate));
    }
}

#[test]
fn only_a_self_signed_leaf_is_its_own_anchor() {
    let root = Ca::root("root");
    let own = self_signed(&spec("own", Usage::Serving), &fresh_key()).unwrap();
    assert_eq!(ask(&own, &[], &[&own], NOW, &server("localhost")), "own");
    assert!(ask(&own, &[&own], &[&root.certificate], NOW, &server("localhost")).contains("no issuer"));
    let mut forged = own.der().to_vec();
    *forged.last_mut().unwrap() ^= 1;
    let forged = Certificate::from_der(&forged).unwrap();
    assert!(ask(&forged, &[], &[&forged], NOW, &server("localhost")).starts_with("CN=own: "));
    let issued = root.leaf("issued", Usage::Serving);
    assert!(ask(&issued, &[], &[&issued], NOW, &server("localhost")).contains("no issuer"));
}

#[test]
fn an_intermediate_in_a_bundle_is_an_anchor() {
    let root = Ca::root("root");
    let middle = root.intermediate("middle");
    let leaf = middle.leaf("leaf", Usage::Client);
    assert_eq!(ask(&leaf, &[], &[&middle.certificate], NOW, &Purpose::Client), "leaf < middle");
    let both = [&middle.certificate, &root.certificate];
    assert_eq!(ask(&leaf, &[], &both, NOW, &Purpose::Client), "leaf < middle", "a path ends in its first anchor");
}

#[test]
fn only_cas_sign() {
    // A leaf that poses as an issuer: its key signs a certificate under its name.
    let root = Ca::root("root");
    let key = fresh_key();
    let impostor = root.issue(&spec("impostor", Usage::Client), &key);
    let pretended = Ca { certificate: self_signed(&spec("impostor", Usage::Signer), &key).unwrap(), key };
    let leaf = pretended.leaf("leaf", Usage::Client);
    assert_eq!(
        ask(&leaf, &[&impostor], &[&root.certificate], NOW, &Purpose::Client),
        "CN=impostor: it signed a certificate, but is not a CA"
    );
    assert_eq!(
        ask(&leaf, &[], &[&impostor], NOW, &Purpose::Client),
        "CN=impostor: it signed a certificate, but is not a CA"
    );
}

#[test]
fn an_anchor_without_key_cert_sign_signs_nothing() {
    let root = Ca::root("root");
    let leaf = root.leaf("leaf", Usage::Client);
    // digitalSignature + keyCertSign becomes digitalSignature + nonRepudiation; an anchor's signature is not checked.
    let anchor = rewritten(&root.certificate, &[3, 2, 2, 0x84], &[3, 2, 6, 0xc0]);
    assert_eq!(
        ask(&leaf, &[], &[&anchor], NOW, &Purpose::Client),
        "CN=root: it signed a certificate, but its key usage lacks keyCertSign"
    );
}

#[test]
fn the_path_length_counts_all_cas_including_self_issued_ones() {
    let root = Ca::root("root");
    let anchor = with_path_length_zero(&root);
    let middle = root.intermediate("middle");
    // The same name with a new key: a rotation under one name.
    let namesake = Ca::root("root");
    let cross = cross_sign(&namesake.certificate, root.certificate.facts().validity, &root.issuer()).unwrap();
    let check = |ca: &Ca, expected: &str| {
        let leaf = ca.leaf("leaf", Usage::Client);
        let others = [&middle.certificate, &cross];
        assert_eq!(ask(&leaf, &others, &[&anchor], NOW, &Purpose::Client), expected);
    };
    check(&root, "leaf < root");
    check(&middle, "CN=root: it allows 0 further CAs below it, the path has 1");
    check(&namesake, "CN=root: it allows 0 further CAs below it, the path has 1");
}

#[test]
fn the_key_usage_of_a_leaf_must_fit_its_purpose() {
    let root = Ca::root("root");
    let (encipherment, agreement) = ([3, 2, 5, 0x20], [3, 2, 3, 8]);
    for usage in [encipherment, agreement] {
        let leaf = reshaped(&root.leaf("leaf", Usage::Peer), &root.key, (15, true, Some(&usage)));
        for purpose in [Purpose::Client, Purpose::Server { name: None }] {
            let lacks = "CN=leaf: its key usage lacks digitalSignature";
            assert_eq!(ask(&leaf, &[], &[&root.certificate], NOW, &purpose), lacks);
        }
        assert_eq!(ask(&leaf, &[], &[&root.certificate], NOW, &Purpose::Any), "leaf < root");
    }
}

#[test]
fn a_ca_is_not_accepted_as_a_leaf_but_has_a_path() {
    let root = Ca::root("root");
    let middle = root.intermediate("middle");
    for (ca, path) in [(&middle, "middle < root"), (&root, "root")] {
        let check = |purpose: &Purpose, expected: &str| {
            assert_eq!(ask(&ca.certificate, &[], &[&root.certificate], NOW, purpose), expected);
        };
        let refused =
            format!("{}: it is a CA, which is not accepted as a server or client", ca.certificate.facts().subject);
        check(&Purpose::Client, &refused);
        check(&Purpose::Server { name: None }, &refused);
        check(&Purpose::Any, path);
    }
}

#[test]
fn any_extended_key_usage_does_not_count_as_a_purpose() {
    let root = Ca::root("root");
    let any = [0x30, 6, 6, 4, 0x55, 0x1d, 37, 0];
    let leaf = reshaped(&root.leaf("leaf", Usage::Peer), &root.key, (37, false, Some(&any)));
    let check = |purpose: &Purpose, expected: &str| {
        assert_eq!(ask(&leaf, &[], &[&root.certificate], NOW, purpose), expected);
    };
    check(&Purpose::Client, "CN=leaf: its extended key usage does not allow clientAuth");
    check(&Purpose::Server { name: None }, "CN=leaf: its extended key usage does not allow serverAuth");
    check(&Purpose::Any, "leaf < root");
}

/// Each has one extension removed or replaced, by its number below 2.5.29.
#[test]
fn irregular_leaves_and_cas_are_rejected() {
    let root = Ca::root("root");
    let check_leaf = |edit: Edit<'_>, expected: &str| {
        let leaf = root.leaf("leaf", Usage::Client);
        let leaf = reshaped(&leaf, &root.key, edit);
        assert_eq!(ask(&leaf, &[], &[&root.certificate], NOW, &Purpose::Client), format!("CN=leaf: {expected}"));
    };
    let authority = root.certificate.facts().authority_key_id.clone().unwrap();
    let authority = [&[0x30, 22, 0x80, 20][..], &authority].concat();
    check_leaf(
        (35, false, None),
        "it has no authority key identifier, which every certificate below another must have",
    );
    check_leaf((35, true, Some(&authority)), "its key identifiers must not be critical");
    check_leaf((14, true, Some(&[4, 1, 1])), "its key identifiers must not be critical");
    check_leaf((15, true, Some(&[3, 2, 2, 0x84])), "its key usage has keyCertSign, but it is not a CA");
    check_leaf((19, true, Some(&[0x30, 3, 2, 1, 0])), "it has a path length, but is not a CA");
    check_leaf((17, false, Some(&[0x30, 0])), "its list of alternative names is empty");
    check_leaf((32, true, Some(&[0x30, 0])), "it has the unknown critical extension 2.5.29.32");

    let check_ca = |edit: Edit<'_>, expected: &str| {
        let anchor = reshaped(&root.certificate, &root.key, edit);
        let leaf = root.leaf("leaf", Usage::Client);
        assert_eq!(ask(&leaf, &[], &[&anchor], NOW, &Purpose::Client), format!("CN=root: {expected}"));
        // A self-signed certificate is exempt.
        assert_eq!(ask(&anchor, &[], &[&anchor], NOW, &Purpose::Any), "root");
    };
    check_ca((14, false, None), "it is a CA without a subject key identifier");
    check_ca((15, true, None), "it is a CA without a key usage");
    let is_ca = [0x30, 3, 1, 1, 0xff];
    check_ca((19, false, Some(&is_ca)), "it is a CA, so its basic constraints must be critical");
}

#[test]
fn a_self_signed_leaf_is_exempt_only_from_checks_of_cas() {
    let key = fresh_key();
    let own = self_signed(&spec("own", Usage::Client), &key).unwrap();
    let check = |edit: Edit<'_>, expected: &str| {
        let own = reshaped(&own, &key, edit);
        assert_eq!(ask(&own, &[], &[&own], NOW, &Purpose::Client), expected);
    };
    check((15, true, Some(&[3, 2, 2, 0x84])), "own");
    check((19, true, Some(&[0x30, 3, 2, 1, 0])), "own");
    check((14, true, Some(&[4, 1, 1])), "CN=own: its key identifiers must not be critical");
    check((17, false, Some(&[0x30, 0])), "CN=own: its list of alternative names is empty");
    let nameless = self_signed(&spec("", Usage::Serving), &key).unwrap();
    let purpose = Purpose::Server { name: None };
    assert_eq!(ask(&nameless, &[], &[&nameless], NOW, &purpose), ": it has no issuer");
}

#[test]
fn irregular_names_are_rejected() {
    let root = Ca::root("root");
    let nameless = root.leaf("", Usage::Serving);
    let check = |leaf: &Certificate, expected: &str| {
        assert_eq!(ask(leaf, &[], &[&root.certificate], NOW, &Purpose::Server { name: None }), expected);
    };
    check(&nameless, " < root");
    let localhost = [&[0x30, 11, 0x82, 9][..], b"localhost"].concat();
    check(
        &reshaped(&nameless, &root.key, (17, false, Some(&localhost))),
        ": it has no subject, so its alternative names must be critical",
    );
    check(&reshaped(&nameless, &root.key, (17, true, None)), ": it has no subject");
}

#[test]
fn a_version_one_certificate_is_rejected() {
    let key = fresh_key();
    let own = self_signed(&spec("own", Usage::Client), &key).unwrap();
    // The signed part without its first element, the version, and without its last, the extensions.
    let [signed, algorithm, _] = asn1::sequence(AnyRef::try_from(own.der()).unwrap()).unwrap()[..] else { panic!() };
    let parts = asn1::sequence(signed).unwrap();
    let parts: Vec<_> = parts[1..parts.len() - 1].iter().map(|part| asn1::whole(*part).unwrap()).collect();
    let signed = tlv(0x30, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
    let signature = key.sign(&signed).unwrap();
    let der = tlv(0x30, &[&signed, &asn1::whole(algorithm).unwrap(), &tlv(3, &[&[0], &signature])]);
    let first = Certificate::from_der(&der).unwrap();
    assert_eq!(ask(&own, &[], &[&own], NOW, &Purpose::Client), "own");
    assert_eq!(ask(&first, &[], &[&first], NOW, &Purpose::Client), "CN=own: it is of version 1, accepted is 3");
}

#[test]
fn weak_and_uncommon_keys_are_rejected_at_every_position() {
    let root = Ca::root("root");
    let certified = |spki: &[u8]| {
        let key = PublicKey::from_spki_der(spki).unwrap();
        issue(&spec("leaf", Usage::Client), &key, &root.issuer()).unwrap()
    };
    let check = |spki: &[u8], expected: &str| {
        let accepted = "accepted are RSA of 2048 to 8192 bits, ECDSA P256, P384, P521, and Ed25519";
        let expected = if expected == "leaf < root" {
            expected.to_owned()
        } else {
            format!("CN=leaf: its key is {expected}, {accepted}")
        };
        assert_eq!(ask(&certified(spki), &[], &[&root.certificate], NOW, &Purpose::Any), expected);
    };
    for (bits, expected) in
        [(1024, "RSA 1024"), (2040, "RSA 2040"), (2048, "leaf < root"), (2056, "leaf < root"), (16384, "RSA 16384")]
    {
        let modulus = [&[0, 0x80][..], &vec![1; bits / 8 - 1]].concat();
        let pkcs1 = tlv(0x30, &[&tlv(2, &[&modulus]), &[2, 3, 1, 0, 1]]);
        let rsa = [0x30, 13, 6, 9, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1, 5, 0];
        check(&tlv(0x30, &[&rsa, &tlv(3, &[&[0], &pkcs1])]), expected);
    }
    let p256 = fresh_key().public_key().spki_der().to_vec();
    check(&p256, "leaf < root");
    let (head, point) = p256.split_at(p256.len() - 65);
    let algorithm = &head[2..head.len() - 3];
    let compressed = tlv(0x30, &[algorithm, &tlv(3, &[&[0, 2], &point[1..33]])]);
    check(&compressed, "ECDSA P256 with a point that is not uncompressed");
    let p224 = [0x30, 16, 6, 7, 0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1, 6, 5, 0x2b, 0x81, 4, 0, 33];
    check(&tlv(0x30, &[&p224, &tlv(3, &[&[0, 4], &[1; 56]])]), "ECDSA P224");
}

#[test]
fn unknown_critical_extensions_are_rejected() {
    let with = |oid: &str, critical| {
        let mut spec = spec("root", Usage::Signer);
        spec.extensions = vec![Extension { oid: oid.to_owned(), critical, value: vec![0x30, 0] }];
        Ca::root_of(&spec)
    };
    let check = |oid: &str, critical, expected: &str| {
        let root = with(oid, critical);
        let leaf = root.leaf("leaf", Usage::Client);
        assert_eq!(ask(&leaf, &[], &[&root.certificate], NOW, &Purpose::Client), expected);
    };
    check("1.2.3.4", false, "leaf < root");
    check("1.2.3.4", true, "CN=root: it has the unknown critical extension 1.2.3.4");
    let restricted = |by| format!("CN=root: it is restricted by {by}, and that is not evaluated");
    for critical in [true, false] {
        check("2.5.29.30", critical, &restricted("name constraints"));
        check("2.5.29.36", critical, &restricted("policy constraints"));
        check("2.16.840.1.113730.1.1", critical, &restricted("a Netscape certificate type"));
    }
    check("2.5.29.32", false, "leaf < root");
}

#[test]
fn cross_certificates_connect_two_pkis_without_loops() {
    let (old, new) = (Ca::root("old"), Ca::root("new"));
    let all = validity("2030-01-01T00:00:00Z", "2030-12-31T23:59:59Z");
    let new_by_old = cross_sign(&new.certificate, all, &old.issuer()).unwrap();
    let old_by_new = cross_sign(&old.certificate, all, &new.issuer()).unwrap();
    let crosses = [&old_by_new, &new_by_old];
    let (old_leaf, new_leaf) = (old.leaf("old leaf", Usage::Client), new.leaf("new leaf", Usage::Client));
    let check = |leaf, anchor, expected: &str| {
        assert_eq!(ask(leaf, &crosses, &[anchor], NOW, &Purpose::Client), expected);
    };
    check(&new_leaf, &old.certificate, "new leaf < new < old");
    check(&old_leaf, &new.certificate, "old leaf < old < new");
    check(&old_leaf, &old.certificate, "old leaf < old");
    let stranger = Ca::root("stranger");
    let refused = ask(&new_leaf, &crosses, &[&stranger.certificate], NOW, &Purpose::Client);
    assert!(refused.contains("no issuer"), "{refused}");
}

#[test]
fn a_path_has_at_most_eight_certificates() {
    let mut cas = vec![Ca::root("ca 0")];
    for depth in 1..8 {
        cas.push(cas[depth - 1].intermediate(&format!("ca {depth}")));
    }
    let middles: Vec<_> = cas[1..].iter().map(|ca| &ca.certificate).collect();
    let (fits, too_long) = (cas[6].leaf("leaf", Usage::Client), cas[7].leaf("leaf", Usage::Client));
    let ask = |leaf| ask(leaf, &middles, &[&cas[0].certificate], NOW, &Purpose::Client);
    assert_eq!(ask(&fits).matches('<').count(), 7);
    assert_eq!(ask(&too_long), "CN=ca 0: the path is longer than 8 certificates");
}

#[test]
fn a_search_through_many_cross_certificates_is_limited() {
    // Seven CAs that all signed one another, several times: factorially many paths, none to the anchor.
    let cas: Vec<_> = (0..7).map(|number| Ca::root(&format!("ca {number}"))).collect();
    let all = validity("2030-01-01T00:00:00Z", "2030-12-31T23:59:59Z");
    let mut thicket = Vec::new();
    for (one, subject) in cas.iter().enumerate() {
        for (other, issuer) in cas.iter().enumerate() {
            for _ in 0..4 {
                if one != other {
                    thicket.push(cross_sign(&subject.certificate, all, &issuer.issuer()).unwrap());
                }
            }
        }
    }
    let leaf = cas[0].leaf("leaf", Usage::Client);
    let anchor = Ca::root("anchor");
    let refused = ask(&leaf, &thicket.iter().collect::<Vec<_>>(), &[&anchor.certificate], NOW, &Purpose::Client);
    assert_eq!(refused, "CN=leaf: no path found within 200 attempts");
}

#[test]
fn a_chain_with_two_intermediates_is_accepted_for_its_names_and_purposes() {
    let root = Ca::root("root");
    let first = root.intermediate("first");
    let second = first.intermediate("second");
    let (serving, client) = (second.leaf("serving", Usage::Serving), second.leaf("client", Usage::Client));
    let beside = [&first.certificate, &second.certificate];
    let check = |leaf: &Certificate, purpose: &Purpose, expected: &str| {
        assert_eq!(ask(leaf, &beside, &[&root.certificate], NOW, purpose), expected);
    };
    for name in ["localhost", "127.0.0.1"] {
        check(&serving, &server(name), "serving < second < first < root");
    }
    check(&serving, &server("127.0.0.2"), "CN=serving: it is not for 127.0.0.2, but for localhost, 127.0.0.1");
    check(&serving, &Purpose::Client, "CN=serving: its extended key usage does not allow clientAuth");
    check(&client, &Purpose::Client, "client < second < first < root");
    let lacking = ask(&serving, &beside[1..], &[&root.certificate], NOW, &Purpose::Any);
    assert!(!lacking.starts_with("serving <"), "{lacking}");
}
