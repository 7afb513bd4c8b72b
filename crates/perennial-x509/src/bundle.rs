//! CA bundles: every certificate once, in a given order.

use crate::certificate::Certificate;
use crate::pem::{self, PemError};

/// Certificates in their order, none of them twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bundle {
    /// Different by their bytes.
    certificates: Vec<Certificate>,
}

impl Bundle {
    /// Reads a bundle of at least one certificate; anything damaged in it is an error.
    pub fn from_pem(text: &[u8]) -> Result<Bundle, PemError> {
        Ok(pem::read_certificates(text)?.into_iter().collect())
    }

    /// Reads every certificate that parses, and returns the errors of the rest. So a damaged bundle can be repaired without
    /// distrusting its intact CAs. A bundle without any certificate is damaged.
    pub fn salvage(text: &[u8]) -> (Bundle, Vec<PemError>) {
        let (certificates, damage) = pem::read_what_parses(text);
        (certificates.into_iter().collect(), damage)
    }

    /// Appends a certificate, unless the bundle contains it. Returns whether it was appended.
    pub fn push(&mut self, certificate: Certificate) -> bool {
        let is_new = !self.contains(&certificate);
        if is_new {
            self.certificates.push(certificate);
        }
        is_new
    }

    /// Returns true if the bundle contains the certificate, byte for byte.
    pub fn contains(&self, certificate: &Certificate) -> bool {
        self.certificates.contains(certificate)
    }

    /// Returns the certificates in their order.
    pub fn certificates(&self) -> &[Certificate] {
        &self.certificates
    }

    /// Returns the `CERTIFICATE` blocks; empty for an empty bundle.
    pub fn to_pem(&self) -> String {
        self.certificates.iter().map(Certificate::to_pem).collect()
    }
}

impl FromIterator<Certificate> for Bundle {
    fn from_iter<I: IntoIterator<Item = Certificate>>(certificates: I) -> Bundle {
        let mut seen = std::collections::HashSet::new();
        let certificates =
            certificates.into_iter().filter(|certificate| seen.insert(certificate.facts().fingerprint)).collect();
        Bundle { certificates }
    }
}

impl IntoIterator for Bundle {
    type Item = Certificate;
    type IntoIter = std::vec::IntoIter<Certificate>;

    fn into_iter(self) -> Self::IntoIter {
        self.certificates.into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::Ca;

    #[test]
    fn a_bundle_has_each_certificate_once_in_the_order_given() {
        let [a, b] = ["a", "b"].map(|name| Ca::root(name).certificate);
        let mut bundle: Bundle = [b.clone(), a.clone(), b.clone()].into_iter().collect();
        assert_eq!(bundle.certificates(), [b.clone(), a.clone()]);
        assert!(!bundle.push(a.clone()));
        let read = Bundle::from_pem(bundle.to_pem().repeat(2).as_bytes()).unwrap();
        assert_eq!(read, bundle);
        assert!(bundle.contains(&a) && bundle.contains(&b));
    }

    #[test]
    fn a_damaged_bundle_keeps_its_readable_certificates() {
        let [a, b] = ["a", "b"].map(|name| Ca::root(name).certificate);
        let check = |text: &str, kept: &[&Certificate], damage: &[&str]| {
            let text = text.replace("<A>", a.to_pem().trim_end()).replace("<B>", b.to_pem().trim_end());
            let (bundle, found) = Bundle::salvage(text.as_bytes());
            let found: Vec<_> = found.iter().map(ToString::to_string).collect();
            assert_eq!(found, damage);
            assert_eq!(bundle.certificates().iter().collect::<Vec<_>>(), kept);
            assert_eq!(Bundle::from_pem(text.as_bytes()).is_ok(), damage.is_empty());
        };
        check("<A>\n<B>", &[&a, &b], &[]);
        check("", &[], &["no certificate found: the text is empty"]);
        check(
            "<A>\n-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n<B>",
            &[&a, &b],
            &["PEM block 2 of 3 (CERTIFICATE, line 11): not base64"],
        );
        check(
            "<A><B>",
            &[&a, &b],
            &["line 10: \"-----BEGIN\" follows \"-----END\" on the same line, the line break is missing"],
        );
        check(
            "-----BEGIN CERTIFICATE-----\nMIIB\n<B>",
            &[&b],
            &["PEM block 1 of 2 (CERTIFICATE, line 1): no END line"],
        );
        check("\u{feff}<A>", &[&a], &["the text starts with a UTF-8 byte order mark, which PEM readers do not skip"]);
    }
}
