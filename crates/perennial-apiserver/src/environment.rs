//! The environment of a server: its clock, its random bytes, and the interval of its bookmarks.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;

/// The clock and the source of randomness of a server.
#[derive(Clone)]
pub struct Environment {
    now: Arc<dyn Fn() -> Timestamp + Send + Sync>,
    random: Arc<dyn Fn() -> [u8; 16] + Send + Sync>,
    bookmark_every: Option<Duration>,
}

impl Environment {
    /// Returns an environment with this clock and this source of random bytes.
    pub fn new(
        now: impl Fn() -> Timestamp + Send + Sync + 'static,
        random: impl Fn() -> [u8; 16] + Send + Sync + 'static,
    ) -> Environment {
        Environment { now: Arc::new(now), random: Arc::new(random), bookmark_every: None }
    }

    /// Sends a bookmark to quiet watchers in this interval, so that they can continue after a pause. Simulations do not use this:
    /// it would be one more event every minute.
    #[must_use]
    pub fn with_bookmarks(mut self, every: Duration) -> Environment {
        self.bookmark_every = Some(every);
        self
    }

    pub(crate) fn bookmark_every(&self) -> Option<Duration> {
        self.bookmark_every
    }

    /// Returns the time in whole seconds, as objects contain it: `2026-03-01T12:00:00Z`.
    pub(crate) fn now_text(&self) -> String {
        let now = self.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.now)()
    }

    /// Returns a version 4 UUID (RFC 9562 section 5.4).
    pub(crate) fn uid(&self) -> String {
        let mut bytes = (self.random)();
        bytes[6] = bytes[6] & 0x0f | 0x40;
        bytes[8] = bytes[8] & 0x3f | 0x80;
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
    }

    /// Returns five characters that make a generated name unique; without vowels, so that no words appear.
    pub(crate) fn suffix(&self) -> String {
        const CHARACTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        let pick = |byte: &u8| char::from(CHARACTERS[usize::from(*byte) % CHARACTERS.len()]);
        (self.random)()[..5].iter().map(pick).collect()
    }
}

/// Returns pseudo-random bytes for tests and simulations: a counter, so that no value repeats and every run is the same.
pub fn counting() -> impl Fn() -> [u8; 16] + Send + Sync + 'static {
    let count = AtomicU64::new(1);
    move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        // Names use the first bytes, which should look different.
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&mixed.to_be_bytes());
        bytes[8..].copy_from_slice(&number.to_be_bytes());
        bytes
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Environment")
    }
}
