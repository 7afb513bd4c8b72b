//! Responses: objects, tables, or only metadata, as the client prefers.

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::query::{Query, continue_token};
use crate::api::{List, Written};
use crate::resource::Resource;
use crate::status::{ApiError, Reason};
use crate::store::Key;
use crate::table::{self, Include};

/// In which form a client wants objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// As they are.
    Object,
    /// As a table, with ages as of this instant.
    Table(Timestamp, Include),
    /// Only their metadata, of one object or of many.
    Metadata(Of),
}

/// What a client expects metadata of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Of {
    One,
    Many,
}

/// What a list has not told.
pub(super) struct Rest<'l> {
    /// The last object that it has told.
    pub(super) after: &'l Key,
    /// How many there are, where that is known.
    pub(super) count: Option<usize>,
}

impl Shape {
    /// The first form in the Accept header that we have.
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

    /// Refuses metadata of many where one object is asked for.
    pub(super) fn check_one(self, resource: &Resource) -> Result<(), ApiError> {
        if self != Shape::Metadata(Of::Many) {
            return Ok(());
        }
        let kind = &resource.kind;
        let why = format!("you requested PartialObjectMetadataList, but the requested object is not a list ({kind})");
        Err(ApiError::new(Reason::NotAcceptable, why))
    }

    /// Refuses metadata of one object where many are asked for.
    pub(super) fn check_list(self, resource: &Resource) -> Result<(), ApiError> {
        if self != Shape::Metadata(Of::One) {
            return Ok(());
        }
        let kind = &resource.kind;
        let why = format!("you requested PartialObjectMetadata, but the requested object is a list ({kind}List)");
        Err(ApiError::new(Reason::NotAcceptable, why))
    }

    /// An object in this form.
    pub(super) fn form(self, resource: &Resource, object: &Value) -> Value {
        match self {
            Shape::Object => object.clone(),
            Shape::Table(now, include) => {
                table::table(resource, std::slice::from_ref(object), &object["metadata"], now, include)
            }
            Shape::Metadata(_) => metadata_only(object),
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

/// Sends why something is refused.
pub(crate) fn refusal(error: &ApiError) -> Response<Body> {
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

pub(super) fn list(resource: &Resource, shape: Shape, list: &List, rest: Option<Rest<'_>>) -> Response<Body> {
    let mut metadata = json!({"resourceVersion": list.revision.to_string()});
    if let Some(rest) = rest {
        metadata["continue"] = continue_token(rest.after, list.revision).into();
        if let Some(count) = rest.count {
            metadata["remainingItemCount"] = count.into();
        }
    }
    let value = match shape {
        Shape::Table(now, include) => table::table(resource, &list.items, &metadata, now, include),
        Shape::Object => json!({
            "kind": format!("{}List", resource.kind),
            "apiVersion": resource.api_version(),
            "metadata": metadata,
            "items": list.items.iter().map(|item| as_item(resource, item)).collect::<Vec<_>>(),
        }),
        Shape::Metadata(_) => json!({
            "kind": "PartialObjectMetadataList",
            "apiVersion": "meta.k8s.io/v1",
            "metadata": metadata,
            "items": list.items.iter().map(metadata_only).collect::<Vec<_>>(),
        }),
    };
    json(200, &value)
}

/// Of built-in objects the list says what they are; custom resources say it themselves, too.
fn as_item(resource: &Resource, object: &Value) -> Value {
    let mut item = object.clone();
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
