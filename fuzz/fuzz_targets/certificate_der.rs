//! Reads a certificate from any bytes. A readable certificate must keep its bytes and must be printable.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perennial_x509::{Certificate, signed_by};

fuzz_target!(|der: &[u8]| {
    match Certificate::from_der(der) {
        Ok(certificate) => {
            assert_eq!(certificate.der(), der);
            let facts = certificate.facts();
            for name in [&facts.issuer, &facts.subject] {
                assert!(!name.to_string().contains('\n'));
            }
            let _ = (format!("{certificate:?} {facts:?}"), signed_by(&certificate, &certificate));
            assert!(Certificate::from_der(&[der, b"\0"].concat()).is_err(), "trailing bytes are an error");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
