//! The body of a response with a deadline, so that a client that does not read cannot keep memory and places.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use crate::deadline;

/// The largest part that the connection gets at once. Over HTTP/2, it keeps a part for as long as the client does not read.
const PART: usize = 16 * 1024;

/// Returns a body that ends with an error at the deadline. The rest of the original body is dropped then, even if nothing polls it:
/// over HTTP/2, a connection with a part for a stream without a window does not poll the body.
pub(super) fn until(deadline: Instant, body: Body) -> Body {
    let held = Arc::new(Held(Mutex::new(Unread { body: Some(body), rest: Bytes::new(), waiting: None })));
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
    /// The rest of the last part of the body.
    rest: Bytes,
    /// The task that waits for the next frame.
    waiting: Option<Waker>,
}

impl Held {
    fn lock(&self) -> MutexGuard<'_, Unread> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn release(&self) {
        let (unread, waiting) = {
            let mut unread = self.lock();
            ((unread.body.take(), std::mem::take(&mut unread.rest)), unread.waiting.take())
        };
        drop(unread);
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
        let unread = &mut *self.held.lock();
        let Some(body) = &mut unread.body else {
            return Poll::Ready(Some(Err(axum::Error::new(deadline::exceeded()))));
        };
        if unread.rest.is_empty() {
            let polled = Pin::new(body).poll_frame(cx);
            unread.waiting = polled.is_pending().then(|| cx.waker().clone());
            let data = match polled {
                Poll::Ready(Some(Ok(frame))) => frame.into_data(),
                other => return other,
            };
            match data {
                Ok(data) if PART < data.len() => unread.rest = data,
                Ok(data) => return Poll::Ready(Some(Ok(Frame::data(data)))),
                Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
            }
        }
        let length = PART.min(unread.rest.len());
        // A copy: a slice would keep all of the original part in memory.
        let part = Bytes::copy_from_slice(&unread.rest.split_to(length));
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        let unread = self.held.lock();
        unread.rest.is_empty() && unread.body.as_ref().is_some_and(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let unread = self.held.lock();
        let mut hint = unread.body.as_ref().map_or_else(SizeHint::default, HttpBody::size_hint);
        let rest = u64::try_from(unread.rest.len()).unwrap_or(u64::MAX);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(hint.lower().saturating_add(rest));
        hint
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

    /// Text that tells whether it is still in memory.
    struct Tracked(Vec<u8>, #[allow(dead_code, reason = "counted")] Arc<()>);

    impl AsRef<[u8]> for Tracked {
        fn as_ref(&self) -> &[u8] {
            &self.0
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_part_is_handed_out_in_small_ones_and_the_rest_is_dropped_at_the_deadline() {
        let place = Arc::new(());
        let large = || Body::from(Bytes::from_owner(Tracked(vec![7; 1024 * 1024], place.clone())));
        let mut body = until(after(60), large());
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        assert_eq!((first.len(), Arc::strong_count(&place)), (PART, 2));
        assert_eq!(HttpBody::size_hint(&body).exact(), Some((1024 * 1024 - PART) as u64));
        tokio::time::sleep(Duration::from_secs(61)).await;
        assert_eq!(Arc::strong_count(&place), 1, "the part that the connection has is a copy");
        assert!(body.frame().await.unwrap().is_err());
        let whole = to_bytes(until(after(60), large()), usize::MAX).await.unwrap();
        assert!(whole.len() == 1024 * 1024 && whole.iter().all(|byte| *byte == 7));
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
