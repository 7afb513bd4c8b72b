//! The body of a response with a deadline, so that a client that does not read cannot keep memory and places.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::deadline;

/// Returns a body that ends with an error at the deadline. The rest of the original body is dropped then, even if nothing polls it:
/// over HTTP/2, a stream without a window is not polled.
pub(super) fn until(deadline: Instant, body: Body) -> Body {
    let held = Arc::new(Held(Mutex::new(Unread { body: Some(body), waiting: None })));
    let of_timer = held.clone();
    let timer = tokio::spawn(async move {
        sleep_until(deadline).await;
        of_timer.release();
    });
    Body::new(Limited { held, timer })
}

/// The body that the connection and the timer share.
struct Held(Mutex<Unread>);

struct Unread {
    /// None after the deadline.
    body: Option<Body>,
    /// The task that waits for the next frame.
    waiting: Option<Waker>,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self) {
        let (body, waiting) = {
            let mut unread = self.lock();
            (unread.body.take(), unread.waiting.take())
        };
        drop(body);
        waiting.into_iter().for_each(Waker::wake);
    }
}

struct Limited {
    held: Arc<Held>,
    timer: JoinHandle<()>,
}

impl HttpBody for Limited {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let mut unread = self.held.lock();
        let Some(body) = &mut unread.body else {
            return Poll::Ready(Some(Err(axum::Error::new(deadline::exceeded()))));
        };
        let polled = Pin::new(body).poll_frame(cx);
        unread.waiting = polled.is_pending().then(|| cx.waker().clone());
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.held.lock().body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.held.lock().body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint)
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::to_bytes;
    use futures_util::stream;
    use http_body_util::BodyExt;

    use super::*;

    fn after(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_nobody_polls_is_dropped_at_its_deadline() {
        let place = Arc::new(());
        let held = place.clone();
        let parts = stream::repeat_with(move || Ok::<_, axum::Error>(Bytes::from(vec![0; Arc::strong_count(&held)])));
        let mut body = until(after(60), Body::from_stream(parts));
        assert!(body.frame().await.unwrap().is_ok());
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert_eq!(Arc::strong_count(&place), 2);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(Arc::strong_count(&place), 1);
        assert!(body.frame().await.unwrap().is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_waits_for_the_next_part_gets_an_error_at_the_deadline() {
        let mut body = until(after(60), Body::from_stream(stream::pending::<Result<Bytes, axum::Error>>()));
        let waited = tokio::time::timeout(Duration::from_secs(61), body.frame()).await;
        assert!(waited.unwrap().unwrap().is_err());
    }

    #[tokio::test]
    async fn a_response_that_is_read_in_time_is_complete_and_has_its_length() {
        let body = until(after(60), Body::from("text"));
        assert_eq!(HttpBody::size_hint(&body).exact(), Some(4));
        assert_eq!(to_bytes(body, usize::MAX).await.unwrap(), "text");
        assert!(HttpBody::is_end_stream(&until(after(60), Body::empty())));
    }
}
