//! Certificates by the ids by which decisions know them.

use std::collections::HashMap;

use perennial_core::trust::CertificateId;
use perennial_x509::{Certificate, trust};

/// Every certificate that was seen or made, by its fingerprint and by the name that a plan gave it.
#[derive(Debug, Clone, Default)]
pub struct Library {
    certificates: HashMap<CertificateId, Certificate>,
}

impl Library {
    /// Keeps a certificate, and says how decisions call it.
    pub fn add(&mut self, certificate: Certificate) -> CertificateId {
        let id = trust::id(&certificate);
        self.certificates.entry(id.clone()).or_insert(certificate);
        id
    }

    /// Keeps a certificate that a plan called something before it existed.
    pub fn add_as(&mut self, planned: CertificateId, certificate: Certificate) {
        self.certificates.insert(planned, certificate.clone());
        self.add(certificate);
    }

    /// The certificate that decisions call so.
    pub fn get(&self, id: &CertificateId) -> Option<&Certificate> {
        self.certificates.get(id)
    }

    /// All certificates, some of them twice.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.values()
    }
}
