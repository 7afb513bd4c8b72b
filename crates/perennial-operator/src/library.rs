//! The certificates of an observation, by the ids that a snapshot and a plan use.

use std::collections::HashMap;

use perennial_core::trust::CertificateId;
use perennial_x509::{Certificate, trust};

/// Every certificate that was read or issued, by its fingerprint and by the id that a plan gave it.
#[derive(Debug, Clone, Default)]
pub struct Library {
    certificates: HashMap<CertificateId, Certificate>,
}

impl Library {
    /// Adds a certificate, and returns its id.
    pub fn add(&mut self, certificate: Certificate) -> CertificateId {
        let id = trust::id(&certificate);
        self.certificates.entry(id.clone()).or_insert(certificate);
        id
    }

    /// Adds an issued certificate under the id that the plan gave it.
    pub fn add_as(&mut self, planned: CertificateId, certificate: Certificate) {
        self.certificates.insert(planned, certificate.clone());
        self.add(certificate);
    }

    /// Returns the certificate with this id.
    pub fn get(&self, id: &CertificateId) -> Option<&Certificate> {
        self.certificates.get(id)
    }

    /// Returns all certificates, some of them twice.
    pub fn certificates(&self) -> impl Iterator<Item = &Certificate> {
        self.certificates.values()
    }
}
