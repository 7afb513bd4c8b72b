//! Request bodies.

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use serde_json::Value;

use crate::bounded::{self, Unreadable};
use crate::limits::REQUEST_BYTES;
use crate::protobuf;
use crate::status::{ApiError, Reason};

/// The kind of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    JsonPatch,
    MergePatch,
    StrategicMergePatch,
    Apply,
}

/// Returns the body of a request; null if there is none.
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
        |_| ApiError::new(Reason::RequestEntityTooLarge, format!("Request entity too large: limit is {REQUEST_BYTES}"));
    let bytes = to_bytes(request.into_body(), REQUEST_BYTES).await.map_err(too_large)?;
    if bytes.is_empty() {
        return Ok((Value::Null, kind));
    }
    if media == protobuf::CONTENT_TYPE {
        let wrong = |error| ApiError::new(Reason::UnsupportedMediaType, format!("couldn't read the body: {error}"));
        return Ok((protobuf::decode(&bytes).map_err(wrong)?, kind));
    }
    match (bounded::json(&bytes), kind) {
        (Ok(value), _) => Ok((value, kind)),
        // Most clients send JSON, which also is YAML, and is read much faster.
        (Err(Unreadable::Malformed(_)), Kind::Apply) => {
            Ok((bounded::yaml(&bytes).map_err(|error| refused("YAML", &error))?, kind))
        }
        (Err(error), _) => Err(refused("JSON", &error)),
    }
}

fn refused(format: &str, error: &Unreadable) -> ApiError {
    let reason = match error {
        Unreadable::Malformed(_) => Reason::BadRequest,
        Unreadable::Deep | Unreadable::Many | Unreadable::Brackets { .. } => Reason::RequestEntityTooLarge,
    };
    ApiError::new(reason, format!("couldn't parse the body as {format}: {error}"))
}
