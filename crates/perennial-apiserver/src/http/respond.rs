//! Responses: objects, tables, or only metadata, as the client requests.

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::Query;
use crate::api::Written;
use crate::resource::Resource;
use crate::status::{ApiError, Reason};
use crate::table::{self, Include};

/// The format of objects in a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Whole objects.
    Object,
    /// A table, with ages at this instant.
    Table(Timestamp, Include),
    /// Only the metadata, of one object or of a list.
    Metadata(Of),
}

/// Whether a client expects metadata of one object or of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    One,
    Many,
}

impl Shape {
    /// Returns the first supported format of the Accept header.
    pub(super) fn wanted(request: &Request<Body>, query: &Query, now: Timestamp) -> Result<Shape, ApiError> {
        let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        for media in accept.split(',').map(str::trim) {
            let mut parts = media.split(';').map(str::trim);
            let kind = parts.next().unwrap_or_default();
            if !matches!(kind, "application/json" | "*/*" | "application/*" | "") {
                continue;
            }
            return Ok(match parts.find_map(|part| part.strip_prefix("as=")) {
                Some("Table") => Shape::Table(now, query.include_object()?),
                Some("PartialObjectMetadata") => Shape::Metadata(Of::One),
                Some("PartialObjectMetadataList") => Shape::Metadata(Of::Many),
                _ => Shape::Object,
            });
        }
        Ok(Shape::Object)
    }

    /// Rejects a request for list metadata on one object.
    pub(super) fn check_one(self, resource: &Resource) -> Result<(), ApiError> {
        if self != Shape::Metadata(Of::Many) {
            return Ok(());
        }
        let kind = &resource.kind;
        let why = format!("you requested PartialObjectMetadataList, but the requested object is not a list ({kind})");
        Err(ApiError::new(Reason::NotAcceptable, why))
    }

    /// Rejects a request for object metadata on a list.
    pub(super) fn check_list(self, resource: &Resource) -> Result<(), ApiError> {
        if self != Shape::Metadata(Of::One) {
            return Ok(());
        }
        let kind = &resource.kind;
        let why = format!("you requested PartialObjectMetadata, but the requested object is a list ({kind}List)");
        Err(ApiError::new(Reason::NotAcceptable, why))
    }

    /// Returns an object in this format.
    pub(super) fn form(self, resource: &Resource, object: &Value) -> Value {
        match self {
            Shape::Object => object.clone(),
            Shape::Table(now, include) => {
                table::table(resource, std::slice::from_ref(object), &object["metadata"], now, include)
            }
            Shape::Metadata(_) => metadata_only(object),
        }
    }

    /// Returns the start of a list in this format, up to its first object.
    pub(super) fn list_head(self, resource: &Resource, metadata: &Value) -> String {
        let (value, items) = match self {
            Shape::Table(now, include) => (table::table(resource, &[], metadata, now, include), "rows"),
            Shape::Object => {
                let kind = format!("{}List", resource.kind);
                (
                    json!({"kind": kind, "apiVersion": resource.api_version(), "metadata": metadata, "items": []}),
                    "items",
                )
            }
            Shape::Metadata(_) => {
                let (kind, version) = ("PartialObjectMetadataList", "meta.k8s.io/v1");
                (json!({"kind": kind, "apiVersion": version, "metadata": metadata, "items": []}), "items")
            }
        };
        let mut text = value.to_string();
        debug_assert!(text.ends_with(&format!("\"{items}\":[]}}")), "{text}");
        // Without the end, which comes after the last object.
        text.truncate(text.len() - 2);
        text
    }

    /// Returns an object of a list in this format.
    pub(super) fn list_item(self, resource: &Resource, object: Value) -> Value {
        match self {
            Shape::Table(now, include) => table::row(resource, &object, now, include),
            Shape::Object => as_item(resource, object),
            Shape::Metadata(_) => metadata_only(&object),
        }
    }
}

/// Returns a JSON response.
pub(super) fn json(code: u16, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = axum::http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// Returns the response for an error.
pub(crate) fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = json(error.code, &error.to_status());
    if error.reason == Reason::TooManyRequests {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

pub(super) fn respond(resource: &Resource, shape: Shape, object: &Value) -> Response<Body> {
    json(200, &shape.form(resource, object))
}

/// Returns the response to a write, with its warnings.
pub(super) fn written(resource: &Resource, shape: Shape, written: &Written) -> Response<Body> {
    let code = if written.is_new { 201 } else { 200 };
    let mut response = json(code, &shape.form(resource, &written.object));
    for warning in &written.warnings {
        // RFC 7234 section 5.5: 299 is a persistent warning.
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    response
}

/// The items of built-in lists have no kind; custom resources keep theirs.
fn as_item(resource: &Resource, mut item: Value) -> Value {
    if resource.schema.is_none()
        && let Some(fields) = item.as_object_mut()
    {
        fields.shift_remove("apiVersion");
        fields.shift_remove("kind");
    }
    item
}

fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"]})
}
