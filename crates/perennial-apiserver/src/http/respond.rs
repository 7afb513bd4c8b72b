//! Responses: objects, tables, or only metadata, as the client prefers.

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::continue_token;
use crate::api::{List, Written};
use crate::resource::Resource;
use crate::status::ApiError;
use crate::table;

/// In which form a client wants objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As they are.
    Object,
    /// As a table, with ages as of this instant.
    Table(Timestamp),
    /// Only their metadata.
    Metadata,
}

impl Shape {
    /// The first form in the Accept header that we have.
    pub(super) fn wanted(request: &Request<Body>, now: Timestamp) -> Shape {
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        for media in accept.split(',').map(str::trim) {
            let mut parts = media.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            if !matches!(kind, "application/json" | "*/*" | "application/*" | "") {
                continue;
            }
            return match parts.find_map(|part| part.strip_prefix("as=")) {
                Some("Table") => Shape::Table(now),
                Some("PartialObjectMetadata" | "PartialObjectMetadataList") => Shape::Metadata,
                _ => Shape::Object,
            };
        }
        Shape::Object
    }

    /// An object in this form.
    pub(super) fn form(self, resource: &Resource, object: &Value) -> Value {
        match self {
            Shape::Object => object.clone(),
            Shape::Table(now) => table::table(resource, std::slice::from_ref(object), &object["metadata"], now),
            Shape::Metadata => metadata_only(object),
        }
    }
}

/// Sends JSON.
pub(super) fn json(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = axum::http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

pub(super) fn error(error: &ApiError) -> Response<Body> {
    json(error.code, &error.to_status())
}

pub(super) fn respond(resource: &Resource, shape: Shape, object: &Value) -> Response<Body> {
    json(200, &shape.form(resource, object))
}

/// Sends what was written, with what the caller should know.
pub(super) fn written(resource: &Resource, shape: Shape, written: &Written) -> Response<Body> {
    let code = if written.is_new { 201 } else { 200 };
    let mut response = json(code, &shape.form(resource, &written.object));
    for warning in &written.warnings {
        // RFC 7234 section 5.5: 299 is a warning that stays.
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

pub(super) fn list(resource: &Resource, shape: Shape, list: &List) -> Response<Body> {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some((after, remaining)) = &list.rest {
        metadata["continue"] = continue_token(after).into();
        metadata["remainingItemCount"] = (*remaining).into();
    }
    let value = match shape {
        Shape::Table(now) => table::table(resource, &list.items, &metadata, now),
        Shape::Object => json!({
            "kind": format!("{}List", resource.kind),
            "apiVersion": resource.api_version(),
            "metadata": metadata,
            "items": list.items,
        }),
        Shape::Metadata => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": list.items.iter().map(metadata_only).collect::<Vec<_>>(),
        }),
    };
    json(200, &value)
}

fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
