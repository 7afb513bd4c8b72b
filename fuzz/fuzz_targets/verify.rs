//! Verifies a path from any bundle: the first certificate is the leaf, the last half are trust anchors. The verifier must return a result.
#![no_main]

use libfuzzer_sys::fuzz_target;
use perennial_core::spec::Host;
use perennial_x509::{Bundle, Purpose, Verification, verify};

fuzz_target!(|text: &[u8]| {
    let (bundle, _) = Bundle::salvage(text);
    let Some((leaf, others)) = bundle.certificates().split_first() else { return };
    let (intermediates, anchors) = others.split_at(others.len() / 2);
    let at = leaf.facts().validity.not_before;
    let named = Purpose::Server { name: Some(Host::parse("localhost")) };
    for purpose in [&named, &Purpose::Client, &Purpose::Any] {
        match verify(&Verification { leaf, intermediates, anchors, at, purpose }) {
            Ok(path) => {
                assert!(path.validity().contains(at));
                assert!(path.certificates().iter().skip(1).all(|ca| ca.facts().may_sign()));
                assert_eq!(path.certificates().first(), Some(&leaf));
                assert!(anchors.contains(path.anchor()));
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
});
