//! Reads a damaged bundle from any text. The strict reader must give the same result if nothing is damaged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perennial_x509::Bundle;

fuzz_target!(|text: &[u8]| {
    let (bundle, damage) = Bundle::salvage(text);
    match Bundle::from_pem(text) {
        Ok(strict) => assert!(damage.is_empty() && strict == bundle && !bundle.certificates().is_empty()),
        Err(error) => assert_eq!(damage.first(), Some(&error)),
    }
    if !bundle.certificates().is_empty() {
        assert_eq!(Bundle::from_pem(bundle.to_pem().as_bytes()).expect("a written bundle can be read"), bundle);
    }
});
