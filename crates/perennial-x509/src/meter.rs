//! Measures the time in the crypto library, for benchmarks.
//!
//! Without the feature `meter` nothing is measured.

/// Runs a call of the crypto library.
#[cfg(not(feature = "meter"))]
pub(crate) fn crypto<T>(call: impl FnOnce() -> T) -> T {
    call()
}

#[cfg(feature = "meter")]
pub(crate) use metered::crypto;
#[cfg(feature = "meter")]
pub use metered::take;

#[cfg(feature = "meter")]
mod metered {
    use std::cell::Cell;
    use std::time::{Duration, Instant};

    thread_local! {
        static INSIDE: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    }

    /// Runs a call of the crypto library and adds its time to the result of [`take`].
    pub(crate) fn crypto<T>(call: impl FnOnce() -> T) -> T {
        let started = Instant::now();
        let result = call();
        INSIDE.set(INSIDE.get() + started.elapsed());
        result
    }

    /// Returns the time that this thread has spent inside the library since the last call.
    pub fn take() -> Duration {
        INSIDE.replace(Duration::ZERO)
    }
}
