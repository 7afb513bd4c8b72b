//! Writes a seed corpus next to this crate, so that the fuzzer starts with valid PEM.
//!
//! The keys are new in each run and are never committed.

use std::error::Error;
use std::fs;
use std::path::Path;

use perennial_core::key::KeySpec;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Extension, Host, Subject, Validity};
use perennial_x509::{Bundle, Certificate, Issuer, PrivateKey, cross_sign, issue, self_signed};

fn main() -> Result<(), Box<dyn Error>> {
    let mut pki = Vec::new();
    for (number, kind) in KeySpec::ALL.into_iter().enumerate() {
        let (key, other_key, leaf_key) =
            (PrivateKey::generate(kind)?, PrivateKey::generate(kind)?, PrivateKey::generate(kind)?);
        seed("private_key_pem", &format!("{number}-own"), key.to_pem()?.as_bytes())?;
        seed("private_key_pem", &format!("{number}-pkcs8"), key.to_pkcs8_pem()?.as_bytes())?;
        let root = self_signed(&spec("root", Usage::Signer), &key)?;
        let other = self_signed(&spec("other", Usage::Signer), &other_key)?;
        let cross = cross_sign(&root, root.facts().validity, &Issuer::new(&other, &other_key)?)?;
        let by_root = Issuer::new(&root, &key)?;
        let middle = issue(&spec("middle", Usage::Signer), other_key.public_key(), &by_root)?;
        let by_middle = Issuer::new(&middle, &other_key)?;
        let leaf = issue(&spec("leaf", Usage::Peer), leaf_key.public_key(), &by_root)?;
        let below = issue(&spec("leaf", Usage::Peer), leaf_key.public_key(), &by_middle)?;
        pki.push(vec![leaf.clone(), root.clone()]);
        pki.push(vec![leaf, cross, other]);
        pki.push(vec![below, middle, root]);
    }
    for (number, chain) in pki.into_iter().enumerate() {
        for (position, certificate) in chain.iter().enumerate() {
            let name = format!("{number}-{position}");
            seed("certificate_der", &name, certificate.der())?;
            seed("name_der", &name, certificate.facts().subject.der())?;
            seed("certificates_pem", &name, certificate.to_pem().as_bytes())?;
        }
        let chain: Vec<Certificate> = chain;
        let text = chain.into_iter().collect::<Bundle>().to_pem();
        for target in ["bundle_pem", "certificates_pem", "verify"] {
            seed(target, &format!("{number}-chain"), text.as_bytes())?;
            seed(target, &format!("{number}-cut"), &text.as_bytes()[..text.len() - 100])?;
        }
    }
    Ok(())
}

fn spec(name: &str, usage: Usage) -> CertificateSpec {
    let hosts = ["localhost", "*.apps.example.com", "127.0.0.1", "fd00::1"].map(Host::parse);
    CertificateSpec {
        subject: Subject {
            common_name: name.to_owned(),
            organizations: vec!["system:masters".to_owned(), "dev@example".to_owned()],
            organizational_units: vec!["unit".to_owned()],
        }
        .into(),
        usage,
        hosts: if usage.serves() { hosts.into() } else { Vec::new() },
        validity: Validity {
            not_before: jiff::Timestamp::constant(1_900_000_000, 0),
            not_after: jiff::Timestamp::constant(2_600_000_000, 0),
        },
        key: KeySpec::PLATFORM_DEFAULT,
        extensions: vec![Extension { oid: "1.2.3.4".to_owned(), critical: false, value: vec![5, 0] }],
    }
}

fn seed(target: &str, name: &str, bytes: &[u8]) -> Result<(), Box<dyn Error>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)?;
    Ok(())
}
