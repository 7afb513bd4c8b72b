//! Pseudo-random numbers that are the same for the same seed, on every machine and in every version.

use jiff::SignedDuration;

/// SplitMix64, by Steele, Lea and Flood: small, fast, and good enough to draw delays.
#[derive(Debug, Clone)]
pub(super) struct Chance(u64);

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to, but not including, `limit`.
    pub(super) fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    /// Returns one element; none of an empty list.
    pub(super) fn pick<'t, T>(&mut self, list: &'t [T]) -> Option<&'t T> {
        let number = self.below(list.len() as u64);
        list.get(usize::try_from(number).unwrap_or(0))
    }

    /// Returns true `times` out of a hundred.
    pub(super) fn percent(&mut self, times: u64) -> bool {
        self.below(100) < times
    }

    /// Returns whole seconds from `from` to `to`, both included.
    pub(super) fn seconds(&mut self, from: i64, to: i64) -> SignedDuration {
        let range = u64::try_from(to - from).unwrap_or(0);
        SignedDuration::from_secs(from + i64::try_from(self.below(range + 1)).unwrap_or(0))
    }
}
