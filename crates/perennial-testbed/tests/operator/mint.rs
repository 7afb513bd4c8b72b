//! Certificates of other issuers.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, Host, Subject, Validity};
use perennial_x509::{Certificate, Issuer, PrivateKey, issue, read_certificates, self_signed};
use serde_json::{Value, json};

/// A certificate with its key.
pub(crate) struct Minted {
    pub(crate) certificate: Certificate,
    pub(crate) key: PrivateKey,
}

fn spec(usage: Usage, name: &str, from: Timestamp, span: SignedDuration) -> CertificateSpec {
    let hosts = if usage.serves() { vec![Host::parse(name)] } else { Vec::new() };
    CertificateSpec {
        subject: Subject::common_name(name).into(),
        usage,
        hosts,
        validity: Validity { not_before: from, not_after: from + span },
        key: "ECDSA P256".parse().unwrap(),
        extensions: Vec::new(),
    }
}

impl Minted {
    /// A certificate authority.
    pub(crate) fn authority(name: &str, from: Timestamp, span: SignedDuration) -> Minted {
        let spec = spec(Usage::Signer, name, from, span);
        let key = PrivateKey::generate(spec.key).unwrap();
        Minted { certificate: self_signed(&spec, &key).unwrap(), key }
    }

    /// The same key with another validity: certificates of one verify with the other.
    pub(crate) fn with_validity(&self, name: &str, from: Timestamp, span: SignedDuration) -> Minted {
        let key = PrivateKey::from_pem(self.key.to_pem().unwrap().as_bytes()).unwrap();
        Minted { certificate: self_signed(&spec(Usage::Signer, name, from, span), &key).unwrap(), key }
    }

    /// Reads the certificate and key from the data of a Secret.
    pub(crate) fn read(data: &std::collections::BTreeMap<String, ByteString>) -> Minted {
        let certificate = read_certificates(&data["tls.crt"].0).unwrap().remove(0);
        Minted { certificate, key: PrivateKey::from_pem(&data["tls.key"].0).unwrap() }
    }

    /// A certificate by it.
    pub(crate) fn issue(&self, usage: Usage, name: &str, from: Timestamp, span: SignedDuration) -> Minted {
        self.issue_spec(&spec(usage, name, from, span))
    }

    /// A serving certificate by it, for both names of a Service.
    pub(crate) fn issue_for_service(&self, service: &str, from: Timestamp, span: SignedDuration) -> Minted {
        let mut spec = spec(Usage::Serving, service, from, span);
        spec.hosts.push(Host::parse(&format!("{service}.cluster.local")));
        self.issue_spec(&spec)
    }

    fn issue_spec(&self, spec: &CertificateSpec) -> Minted {
        let key = PrivateKey::generate(spec.key).unwrap();
        let issuer = Issuer::new(&self.certificate, &self.key).unwrap();
        Minted { certificate: issue(spec, key.public_key(), &issuer).unwrap(), key }
    }

    /// The data of a Secret with it.
    pub(crate) fn data(&self) -> Value {
        let key = self.key.to_pem().unwrap();
        let data = [("tls.crt", self.certificate.to_pem().into_bytes()), ("tls.key", key.as_bytes().to_vec())];
        json!(
            data.into_iter()
                .map(|(name, bytes)| (name, ByteString(bytes)))
                .collect::<std::collections::BTreeMap<_, _>>()
        )
    }
}
