//! Request bodies.

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use serde_json::Value;

use crate::protobuf;
use crate::status::{ApiError, Reason};

/// The most that a request may carry: what etcd takes, and some.
const MAX_BODY: usize = 3 << 20;

/// What a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    JsonPatch,
    MergePatch,
    StrategicMergePatch,
    Apply,
}

/// The body of a request; null where there is none.
pub(super) async fn read(request: Request<Body>) -> Result<(Value, Kind), ApiError> {
    let content_type = request.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let media = content_type.unwrap_or("application/json").split(';').next().unwrap_or_default().trim().to_owned();
    let kind = match media.as_str() {
        "application/json" | "" | protobuf::CONTENT_TYPE => Kind::Json,
        "application/json-patch+json" => Kind::JsonPatch,
        "application/merge-patch+json" => Kind::MergePatch,
        "application/strategic-merge-patch+json" => Kind::StrategicMergePatch,
        "application/apply-patch+yaml" => Kind::Apply,
        other => {
            let message = format!(
                "the body of the request was in an unknown format ({other}) - accepted media types include: \
                 application/json"
            );
            return Err(ApiError::new(Reason::UnsupportedMediaType, message));
        }
    };
    let too_large =
        |_| ApiError::new(Reason::RequestEntityTooLarge, format!("Request entity too large: limit is {MAX_BODY}"));
    let bytes = to_bytes(request.into_body(), MAX_BODY).await.map_err(too_large)?;
    if bytes.is_empty() {
        return Ok((Value::Null, kind));
    }
    if media == protobuf::CONTENT_TYPE {
        let wrong = |error| ApiError::new(Reason::UnsupportedMediaType, format!("couldn't read the body: {error}"));
        return Ok((protobuf::decode(&bytes).map_err(wrong)?, kind));
    }
    let wrong = |format: &str, error: &dyn std::fmt::Display| {
        ApiError::new(Reason::BadRequest, format!("couldn't parse the body as {format}: {error}"))
    };
    let json = serde_json::from_slice(&bytes);
    match (json, kind) {
        (Ok(value), _) => Ok((value, kind)),
        // Most clients send JSON, which is YAML too, and is read much faster.
        (Err(_), Kind::Apply) => Ok((serde_norway::from_slice(&bytes).map_err(|error| wrong("YAML", &error))?, kind)),
        (Err(error), _) => Err(wrong("JSON", &error)),
    }
}
