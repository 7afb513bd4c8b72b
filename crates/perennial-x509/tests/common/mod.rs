//! Fixtures for several test files.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "support of tests, which fail by panicking")]

use std::sync::OnceLock;

use perennial_core::key::KeySpec;
use perennial_x509::PrivateKey;

/// Returns the key of this kind and number, generated once per process, because RSA keys take long.
///
/// There are two of each kind, because a CA and its leaf never share one.
pub fn key(kind: KeySpec, number: usize) -> &'static PrivateKey {
    static KEYS: [[OnceLock<PrivateKey>; 2]; KeySpec::ALL.len()] =
        [const { [const { OnceLock::new() }; 2] }; KeySpec::ALL.len()];
    let position = KeySpec::ALL.iter().position(|spec| *spec == kind).unwrap();
    KEYS[position][number].get_or_init(|| PrivateKey::generate(kind).unwrap())
}
