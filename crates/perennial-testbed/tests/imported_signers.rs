//! A signer of another issuer: Perennial's leaves and cross-certificates for it, verified by all judges.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use jiff::{SignedDuration, Timestamp};
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_testbed::judges::{Case, Purpose, expect};
use perennial_x509::{Certificate, Issuer, PrivateKey, cross_sign, issue, read_certificates, self_signed};
use support::{AT, CA, Key, Workshop};

const NAME: &str = "web.example.test";

fn spec(usage: Usage, name: &str) -> CertificateSpec {
    let at = Timestamp::from_second(AT).unwrap();
    let day = SignedDuration::from_hours(24);
    let hosts = if usage == Usage::Serving { vec![Host::Dns(NAME.to_owned())] } else { Vec::new() };
    let validity = Validity { not_before: at - day, not_after: at + day };
    CertificateSpec {
        subject: Subject::common_name(name).into(),
        usage,
        hosts,
        validity,
        key: KeySpec::ALL[3],
        extensions: Vec::new(),
    }
}

/// A signer from the openssl command line with this subject and these extensions.
fn imported(key: Key, subject: &str, extensions: &str) -> (Certificate, PrivateKey) {
    let it = Workshop::new(key);
    it.ca("signer", subject, extensions, "20360101000000Z");
    let certificate = read_certificates(it.text("signer.pem").as_bytes()).unwrap().remove(0);
    (certificate, PrivateKey::from_pem(it.text("signer.key").as_bytes()).unwrap())
}

fn case(id: &str, chain: &[&Certificate], anchor: &Certificate) -> Case {
    Case {
        id: id.to_owned(),
        chain: chain.iter().map(|it| it.der().to_vec()).collect(),
        anchors: vec![anchor.der().to_vec()],
        purpose: Purpose::Server,
        name: Some(NAME.to_owned()),
        at: AT,
    }
}

#[test]
fn foreign_names_and_key_identifiers_are_kept_and_accepted() {
    // OpenSSL's hash differs from Perennial's, a fixed identifier is no hash; its names are UTF-8 strings instead of printable ones.
    let fixed_id = CA.replace("=hash", "=00:11:22:33:44:55:66:77:88:99:AA:BB:CC:DD:EE:FF:00:11:22:33:44:55:66:77");
    let subjects = [
        ("/O=acme/CN=signer", "CN=signer,O=acme"),
        ("/O=Größe/CN=müller@example.test", "CN=müller@example.test,O=Größe"),
        ("/O=a+O=b/CN=signer", "CN=signer,O=a+O=b"),
    ];
    let mut cases = Vec::new();
    for key in [Key::Rsa, Key::Ec] {
        for (number, (subject, shown)) in subjects.iter().enumerate() {
            for (what, extensions) in [("hash", CA), ("fixed", &fixed_id)] {
                let (signer, signer_key) = imported(key, subject, extensions);
                assert_eq!(signer.facts().subject.to_string(), *shown);
                let issuer = Issuer::new(&signer, &signer_key).unwrap();
                let leaf_key = PrivateKey::generate(KeySpec::ALL[3]).unwrap();
                let leaf = issue(&spec(Usage::Serving, "leaf"), leaf_key.public_key(), &issuer).unwrap();
                assert_eq!(leaf.facts().issuer.der(), signer.facts().subject.der());
                assert_eq!(leaf.facts().authority_key_id, signer.facts().subject_key_id);

                let ours_key = PrivateKey::generate(KeySpec::ALL[4]).unwrap();
                let ours = self_signed(&spec(Usage::Signer, "ours"), &ours_key).unwrap();
                let validity = ours.facts().validity;
                let bridge = cross_sign(&signer, validity, &Issuer::new(&ours, &ours_key).unwrap()).unwrap();
                assert_eq!(bridge.facts().subject.der(), signer.facts().subject.der());
                assert_eq!(bridge.facts().subject_key_id, signer.facts().subject_key_id);
                assert_eq!(bridge.facts().public_key.spki_der(), signer.facts().public_key.spki_der());

                let id = format!("{key:?} {number} {what}");
                cases.push(case(&format!("{id}: under the foreign signer"), &[&leaf], &signer).accepted());
                cases.push(case(&format!("{id}: over our bridge"), &[&leaf, &bridge], &ours).accepted());
                cases.push(case(&format!("{id}: without the bridge"), &[&leaf], &ours).refused());
            }
        }
    }
    expect(&cases);
}

/// A verifier that trusts Perennial's CA must not trust an imported CA for more than its direct verifiers.
#[test]
fn a_cross_certificate_keeps_the_path_length_of_a_foreign_signer() {
    let limited = CA.replace("CA:TRUE", "CA:TRUE,pathlen:0");
    let ours_key = PrivateKey::generate(KeySpec::ALL[3]).unwrap();
    let ours = self_signed(&spec(Usage::Signer, "ours"), &ours_key).unwrap();
    let mut cases = Vec::new();
    for (what, extensions, allows_ca) in [("free", CA, true), ("limited", &limited, false)] {
        let it = Workshop::new(Key::Ec);
        it.ca("signer", "/CN=signer", extensions, "20360101000000Z");
        it.issued_ca("below", "/CN=below", "signer", CA);
        it.leaf("far", "/CN=far", "below", support::SERVER);
        it.leaf("near", "/CN=near", "signer", support::SERVER);
        let read = |name: &str| read_certificates(it.text(&format!("{name}.pem")).as_bytes()).unwrap().remove(0);
        let [signer, below, far, near] = ["signer", "below", "far", "near"].map(read);
        let bridge = cross_sign(&signer, ours.facts().validity, &Issuer::new(&ours, &ours_key).unwrap()).unwrap();
        cases.push(case(&format!("{what}: below the signer"), &[&near, &bridge], &ours).accepted());
        let far = case(&format!("{what}: below another CA"), &[&far, &below, &bridge], &ours);
        cases.push(if allows_ca { far.accepted() } else { far.refused() });
    }
    expect(&cases);
}

#[test]
fn a_foreign_signer_with_other_restrictions_gets_no_cross_certificate() {
    let ours_key = PrivateKey::generate(KeySpec::ALL[3]).unwrap();
    let ours = self_signed(&spec(Usage::Signer, "ours"), &ours_key).unwrap();
    for (line, found) in [
        ("extendedKeyUsage=clientAuth", "the extended key usage 1.3.6.1.5.5.7.3.2"),
        ("nameConstraints=critical,permitted;DNS:example.test", "name constraints"),
        ("1.2.3.4=critical,ASN1:NULL", "the unknown critical extension 1.2.3.4"),
    ] {
        let (signer, _) = imported(Key::Ec, "/CN=signer", &format!("{CA}\n{line}"));
        let issuer = Issuer::new(&ours, &ours_key).unwrap();
        let error = cross_sign(&signer, ours.facts().validity, &issuer).unwrap_err().to_string();
        assert_eq!(error, format!("\"CN=signer\" has {found}, which a cross-certificate would not preserve"));
    }
}
