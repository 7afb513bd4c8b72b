//! Rejections of requests whose body has not been read.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt;
use hyper::body::{Body as _, Incoming};
use tokio::time::timeout;

use crate::http::refusal;
use crate::limits::{DROPPED_BYTES, DROPPED_TIME};
use crate::status::ApiError;

/// Returns the response to an HTTP/1.1 request whose body has not arrived yet.
///
/// The connection ends with it. If it ended at once, the system would reset it because of unread bytes, and the client
/// could lose the response. So the rest of the body is read and dropped, up to a limit.
pub(super) fn refusal_before_body(error: &ApiError, headers: &HeaderMap, body: Incoming) -> Response<Body> {
    let mut response = refusal(error);
    if body.is_end_stream() {
        return response;
    }
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    // A client with `Expect: 100-continue` gets the response and sends no body.
    if !headers.contains_key(header::EXPECT) {
        tokio::spawn(timeout(DROPPED_TIME, discard(body)));
    }
    response
}

async fn discard(mut body: Incoming) {
    let mut left = DROPPED_BYTES;
    while let Some(Ok(frame)) = body.frame().await {
        let length = frame.data_ref().map_or(0, |data| data.len());
        let Some(rest) = left.checked_sub(length) else { return };
        left = rest;
    }
}
