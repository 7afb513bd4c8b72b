//! Reads a private key from any text. A readable key must be able to sign, and must survive a write and another read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perennial_x509::PrivateKey;

fuzz_target!(|text: &[u8]| {
    match PrivateKey::from_pem(text) {
        Ok(key) => {
            let again = PrivateKey::from_pem(key.to_pem().expect("a key can be written").as_bytes());
            assert_eq!(again.expect("a written key can be read").public_key(), key.public_key());
            let again = PrivateKey::from_pem(key.to_pkcs8_pem().expect("a key can be written").as_bytes());
            assert_eq!(again.expect("a written key can be read").public_key(), key.public_key());
            assert!(format!("{key:?}").ends_with(", redacted)"));
            let _ = key.sign(text);
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});
