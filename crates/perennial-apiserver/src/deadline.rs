//! The deadline of a request, for work that does not yield.

use tokio::time::{Instant, timeout_at};

use crate::status::{ApiError, Reason};

tokio::task_local! {
    static DEADLINE: Instant;
}

/// Runs a future until it is done or the deadline has passed. Work that does not yield calls [`check`].
pub(crate) async fn until<F: Future>(deadline: Instant, work: F) -> Result<F::Output, ApiError> {
    timeout_at(deadline, DEADLINE.scope(deadline, work)).await.map_err(|_| exceeded())
}

/// Returns the deadline of the current request; none outside a request.
pub(crate) fn current() -> Option<Instant> {
    DEADLINE.try_with(|deadline| *deadline).ok()
}

/// Returns an error after the deadline of the current request. Without a deadline, it never does.
pub(crate) fn check() -> Result<(), ApiError> {
    check_at(current())
}

/// Returns an error after this deadline, for work that continues outside the task of its request.
pub(crate) fn check_at(deadline: Option<Instant>) -> Result<(), ApiError> {
    let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
    if is_over { Err(exceeded()) } else { Ok(()) }
}

/// Returns the error of a request that took too long.
pub(crate) fn exceeded() -> ApiError {
    let message =
        "the server was unable to return a response in the time allotted, but may still be processing the request";
    ApiError::new(Reason::Timeout, message)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn after(milliseconds: u64) -> Instant {
        Instant::now() + Duration::from_millis(milliseconds)
    }

    #[tokio::test]
    async fn work_ends_at_its_deadline() {
        assert_eq!(check(), Ok(()));
        assert_eq!(until(after(60_000), async { check() }).await, Ok(Ok(())));
        let busy = async {
            loop {
                check()?;
            }
        };
        let outcome: Result<Result<(), ApiError>, ApiError> = until(after(20), busy).await;
        assert_eq!(outcome.unwrap().unwrap_err().code, 504);
        let waiting = std::future::pending::<()>();
        assert_eq!(until(after(20), waiting).await.unwrap_err().code, 504);
    }
}
