//! Reads certificates from any text. Readable certificates must survive a write and another read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perennial_x509::{Certificate, read_certificates};

fuzz_target!(|text: &[u8]| {
    match read_certificates(text) {
        Ok(certificates) => {
            assert!(!certificates.is_empty());
            let written: String = certificates.iter().map(Certificate::to_pem).collect();
            assert_eq!(read_certificates(written.as_bytes()).expect("what was written can be read"), certificates);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
