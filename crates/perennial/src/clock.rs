//! The one place that reads the wall clock.

use jiff::Timestamp;

/// Returns the current time.
#[expect(clippy::disallowed_methods, reason = "everything else takes `now` as an argument")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}
