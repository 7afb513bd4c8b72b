//! Small random PKIs with faults, on which `openssl verify` and Perennial must agree;
//! and keys of OpenSSL in every format.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs;
use std::path::Path;
use std::process::Command;

use jiff::Timestamp;
use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_x509::{
    Bundle, Certificate, Issuer, PrivateKey, Problem, Purpose, Verification, cross_sign, issue, self_signed, verify,
};
use proptest::prelude::*;
use proptest::sample::Index;

/// One certificate to issue; signers are indices of earlier certificates.
#[derive(Debug, Clone)]
struct Planned {
    shape: Shape,
    issuer: Index,
    subject: Index,
    /// A name shared with others now and then, so that several candidates have one subject.
    name: u8,
    days: (i64, i64),
}

#[derive(Debug, Clone, Copy)]
enum Shape {
    Root,
    Intermediate,
    Cross,
    Leaf(Usage),
}

fn planned() -> impl Strategy<Value = Planned> {
    let shapes = prop_oneof![
        2 => Just(Shape::Root),
        3 => Just(Shape::Intermediate),
        2 => Just(Shape::Cross),
        3 => proptest::sample::select(vec![Usage::Serving, Usage::Client, Usage::Peer]).prop_map(Shape::Leaf),
    ];
    (shapes, any::<Index>(), any::<Index>(), 0..4_u8, (0..20_i64, 60..100_i64))
        .prop_map(|(shape, issuer, subject, name, days)| Planned { shape, issuer, subject, name, days })
}

struct Made {
    certificate: Certificate,
    key: PrivateKey,
}

/// Issues the planned certificates, except those that issuing rejects.
fn make(plan: &[Planned]) -> (Vec<Made>, Vec<Certificate>) {
    let (mut cas, mut leaves): (Vec<Made>, Vec<Certificate>) = (Vec::new(), Vec::new());
    for planned in plan {
        let key = PrivateKey::generate("ECDSA P256".parse().unwrap()).unwrap();
        let spec = |usage, days: (i64, i64)| CertificateSpec {
            subject: Subject::common_name(format!("name {}", planned.name)).into(),
            usage,
            hosts: vec![Host::parse("localhost")],
            validity: Validity { not_before: day(days.0), not_after: day(days.1) },
            key: KeySpec::PLATFORM_DEFAULT,
            extensions: Vec::new(),
        };
        if cas.is_empty() || matches!(planned.shape, Shape::Root) {
            let certificate = self_signed(&spec(Usage::Signer, planned.days), &key).unwrap();
            cas.push(Made { certificate, key });
            continue;
        }
        let signer = planned.issuer.get(&cas);
        let issuer = Issuer::new(&signer.certificate, &signer.key).unwrap();
        let within = signer.certificate.facts().validity;
        let mut spec = spec(Usage::Signer, planned.days);
        spec.validity.not_before = spec.validity.not_before.max(within.not_before);
        spec.validity.not_after = spec.validity.not_after.min(within.not_after);
        match planned.shape {
            Shape::Leaf(usage) => {
                spec.usage = usage;
                leaves.push(issue(&spec, key.public_key(), &issuer).unwrap());
            }
            Shape::Cross => {
                let subject = planned.subject.get(&cas);
                let certificate = cross_sign(&subject.certificate, spec.validity, &issuer).unwrap();
                let key = PrivateKey::from_pem(subject.key.to_pem().unwrap().as_bytes()).unwrap();
                cas.push(Made { certificate, key });
            }
            _ => {
                let certificate = issue(&spec, key.public_key(), &issuer).unwrap();
                cas.push(Made { certificate, key });
            }
        }
    }
    (cas, leaves)
}

fn day(number: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + number * 86_400).unwrap()
}

/// Never the last second of a certificate, which is valid for Perennial and invalid for OpenSSL.
fn noon(number: i64) -> Timestamp {
    Timestamp::from_second(day(number).as_second() + 43_200).unwrap()
}

fn openssl(arguments: &[&str]) -> (bool, String) {
    let output = Command::new("openssl").args(arguments).output().expect("openssl runs: apt-get install openssl");
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn write(folder: &Path, name: &str, contents: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, contents).unwrap();
    path.to_str().unwrap().to_owned()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn openssl_and_perennial_agree_on_random_pkis(
        plan in proptest::collection::vec(planned(), 3..12),
        trusted in proptest::collection::vec(any::<bool>(), 12),
        presented in proptest::collection::vec(any::<bool>(), 12),
        at in -5..110_i64,
    ) {
        let (cas, leaves) = make(&plan);
        let pick = |mask: &[bool]| -> Vec<Certificate> {
            cas.iter().zip(mask).filter(|(_, chosen)| **chosen).map(|(ca, _)| ca.certificate.clone()).collect()
        };
        let (anchors, intermediates) = (pick(&trusted), pick(&presented));
        let folder = tempfile::tempdir().unwrap();
        let bundle = |list: &[Certificate]| list.iter().cloned().collect::<Bundle>().to_pem();
        let trust_file = write(folder.path(), "anchors.pem", &bundle(&anchors));
        let other_file = write(folder.path(), "intermediates.pem", &bundle(&intermediates));
        for leaf in &leaves {
            let leaf_file = write(folder.path(), "leaf.pem", &leaf.to_pem());
            let time = noon(at).as_second().to_string();
            for (purpose, flag) in
                [(Purpose::Client, "sslclient"), (Purpose::Server { name: Some(Host::parse("localhost")) }, "sslserver")]
            {
                let ours = verify(&Verification {
                    leaf, intermediates: &intermediates, anchors: &anchors, at: noon(at), purpose: &purpose,
                });
                let mut arguments =
                    vec!["verify", "-partial_chain", "-no-CApath", "-no-CAstore", "-attime", &time, "-purpose", flag];
                if !anchors.is_empty() { arguments.extend(["-CAfile", &trust_file]); } else { arguments.push("-no-CAfile"); }
                if !intermediates.is_empty() { arguments.extend(["-untrusted", &other_file]); }
                arguments.push(&leaf_file);
                let (accepted, message) = openssl(&arguments);
                // OpenSSL follows one chain and gives up where it fails; we look further.
                // It accepts more only where we, like Java and webpki, follow no longer path.
                if accepted {
                    let is_too_long =
                        ours.as_ref().is_err_and(|error| matches!(error.problem, Problem::TooLong { .. }));
                    prop_assert!(ours.is_ok() || is_too_long, "only OpenSSL accepts: {ours:?}");
                }
                if let Ok(path) = &ours {
                    // Given just the path that we found, OpenSSL must accept it.
                    let chain: Vec<_> = path.certificates()[1..].iter().map(|ca| (*ca).clone()).collect();
                    let anchor_file = write(folder.path(), "anchor.pem", &path.anchor().to_pem());
                    let chain_file = write(folder.path(), "chain.pem", &bundle(&chain));
                    let (accepted_path, why) = openssl(&[
                        "verify", "-partial_chain", "-no-CApath", "-no-CAstore", "-x509_strict", "-attime", &time,
                        "-purpose", flag, "-CAfile", &anchor_file, "-untrusted", &chain_file, &leaf_file,
                    ]);
                    prop_assert!(accepted_path, "only we accept {path:?}: {why} (first: {message})");
                }
            }
        }
    }
}

#[test]
fn keys_written_by_openssl_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let run = |line: &str| {
        let replaced = line.replace("@", folder.path().to_str().unwrap());
        let arguments: Vec<_> = replaced.split(' ').collect();
        let (done, message) = openssl(&arguments);
        assert!(done, "openssl {line}: {message}");
    };
    let check = |name: &str, expected: Result<&str, &str>| {
        let read = PrivateKey::from_pem(&fs::read(path(name)).unwrap());
        let read = read.map(|key| key.public_key().kind().to_string()).map_err(|error| error.to_string());
        match expected {
            Ok(kind) => assert_eq!(read.as_deref(), Ok(kind), "{name}"),
            Err(part) => assert!(read.as_ref().is_err_and(|error| error.contains(part)), "{name}: {read:?}"),
        }
    };
    for (curve, kind) in [("P-256", "ECDSA P256"), ("P-384", "ECDSA P384"), ("P-521", "ECDSA P521")] {
        run(&format!("ecparam -name {curve} -genkey -out @/with-parameters"));
        check("with-parameters", Ok(kind));
        run("pkcs8 -topk8 -nocrypt -in @/with-parameters -out @/pkcs8");
        check("pkcs8", Ok(kind));
        run("ec -in @/with-parameters -no_public -out @/no-public");
        check("no-public", Ok(kind));
        run("ec -in @/with-parameters -conv_form compressed -out @/compressed");
        check("compressed", Ok(kind));
        run("ec -in @/with-parameters -param_enc explicit -out @/explicit");
        check("explicit", Ok(kind));
        run("ec -in @/with-parameters -aes128 -passout pass:secret -out @/encrypted");
        check("encrypted", Err("is encrypted"));
    }
    run("genrsa -out @/rsa 2560");
    check("rsa", Ok("RSA 2560"));
    run("rsa -in @/rsa -traditional -out @/pkcs1");
    check("pkcs1", Ok("RSA 2560"));
    run("pkcs8 -topk8 -in @/rsa -passout pass:secret -out @/encrypted");
    check("encrypted", Err("is encrypted"));
    run("genrsa -out @/small 1024");
    check("small", Err("RSA 1024: accepted are"));
    run("genpkey -algorithm RSA-PSS -out @/pss");
    check("pss", Err("RSA-PSS: accepted are"));
    run("genpkey -algorithm ED25519 -out @/ed25519");
    check("ed25519", Err("Ed25519: accepted are"));
    run("ecparam -name secp256k1 -genkey -noout -out @/bitcoin");
    check("bitcoin", Err("ECDSA secp256k1: accepted are"));
    run("genpkey -algorithm DSA -pkeyopt dsa_paramgen_bits:1024 -genparam -out @/dsa-parameters");
    check("dsa-parameters", Err("no private key found"));
}

#[test]
fn openssl_reads_keys_written_by_perennial() {
    let folder = tempfile::tempdir().unwrap();
    for kind in KeySpec::ALL {
        let key = PrivateKey::generate(kind).unwrap();
        for text in [key.to_pem().unwrap(), key.to_pkcs8_pem().unwrap()] {
            let file = write(folder.path(), "key.pem", &text);
            let (good, message) = openssl(&["pkey", "-check", "-noout", "-in", &file]);
            assert!(good, "{kind}: {message}");
        }
    }
}
