//! Hashes.

use aws_lc_rs::digest;

/// Returns the SHA-256 of bytes.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest::digest(&digest::SHA256, bytes).as_ref());
    sum
}
