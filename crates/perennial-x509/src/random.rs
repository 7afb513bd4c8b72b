//! The only source of randomness, besides key generation inside the crypto library.

use aws_lc_rs::rand::SystemRandom;

use crate::meter;

/// The operating system or the crypto library could not provide random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("failed to draw random bytes")]
pub struct RandomError;

/// Returns a new serial number: 16 bytes, positive, never with a leading zero byte.
///
/// The first two bits are fixed to 01, so 126 random bits remain: more than the 64 that keep
/// issuer and serial unique and hard to predict, and always within the 20 bytes of RFC 5280.
pub fn serial() -> Result<[u8; 16], RandomError> {
    let mut bytes = bytes()?;
    bytes[0] = bytes[0] & 0x3f | 0x40;
    Ok(bytes)
}

/// Returns random bytes.
pub fn bytes<const COUNT: usize>() -> Result<[u8; COUNT], RandomError> {
    let mut bytes = [0; COUNT];
    #[expect(clippy::disallowed_methods, reason = "this module is the one place that draws randomness")]
    meter::crypto(|| aws_lc_rs::rand::fill(&mut bytes)).map_err(|_| RandomError)?;
    Ok(bytes)
}

/// Returns the source for signing.
#[expect(clippy::disallowed_methods, reason = "this module is the one place that draws randomness")]
pub(crate) fn source() -> SystemRandom {
    SystemRandom::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serials_are_positive_full_length_and_different() {
        let serials: std::collections::BTreeSet<_> = (0..1000).map(|_| serial().unwrap()).collect();
        assert_eq!(serials.len(), 1000);
        assert!(serials.iter().all(|serial| (0x40..0x80).contains(&serial[0])));
    }
}
