//! The OpenAPI documents for kubectl, which reads them before a write and to explain fields: the kinds, their schemas, and
//! that the server validates.

use std::hash::{DefaultHasher, Hash, Hasher};

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, header};
use serde_json::{Map, Value, json};

use super::respond;
use crate::resource::Resource;
use crate::schemas::{COMPONENTS, Schemas};
use crate::status::ApiError;

/// Answers a request below `/openapi/v3`.
pub(super) fn answer(
    schemas: &Schemas,
    resources: &[&Resource],
    request: &Request<Body>,
) -> Result<Response<Body>, ApiError> {
    let place = request.uri().path().trim_start_matches("/openapi/v3").trim_matches('/');
    if place.is_empty() {
        return Ok(respond::json(200, &root(schemas, resources)));
    }
    let of_document = at_place(resources, place);
    if of_document.is_empty() {
        return Err(ApiError::no_such_path());
    }
    let mut response = respond::json(200, &document(schemas, &of_document));
    let hash = hash(schemas, &of_document);
    let query = request.uri().query().unwrap_or_default();
    if form_urlencoded::parse(query.as_bytes()).any(|(name, value)| name == "hash" && value == hash) {
        // A document with other content has another address, so a client may cache this one.
        let kept = HeaderValue::from_static("public, immutable, max-age=31536000");
        response.headers_mut().insert(header::CACHE_CONTROL, kept);
        if let Ok(tag) = HeaderValue::from_str(&format!("\"{hash}\"")) {
            response.headers_mut().insert(header::ETAG, tag);
        }
    }
    Ok(response)
}

/// Returns `api/v1`, or `apis/apps/v1`.
fn place(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

fn at_place<'r>(resources: &[&'r Resource], wanted: &str) -> Vec<&'r Resource> {
    resources.iter().copied().filter(|it| place(it) == wanted).collect()
}

fn root(schemas: &Schemas, resources: &[&Resource]) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        let place = place(resource);
        if !paths.contains_key(&place) {
            let hash = hash(schemas, &at_place(resources, &place));
            let url = format!("/openapi/v3/{place}?hash={hash}");
            paths.insert(place, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// Returns a hash of the document. Clients cache a document as long as its address is the same.
fn hash(schemas: &Schemas, resources: &[&Resource]) -> String {
    let mut hash = DefaultHasher::new();
    schemas.fingerprint().hash(&mut hash);
    for it in resources {
        (&it.group, &it.version, &it.kind, &it.plural, it.namespaced).hash(&mut hash);
        it.openapi.as_ref().map(ToString::to_string).hash(&mut hash);
    }
    format!("{:016x}", hash.finish())
}

fn document(schemas: &Schemas, resources: &[&Resource]) -> Value {
    let (mut paths, mut components) = (Map::new(), Map::new());
    for resource in resources {
        let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
        let namespaced = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
        let path = format!("/{}/{namespaced}{}/{{name}}", place(resource), resource.plural);
        let operation = json!({
            "x-kubernetes-group-version-kind": kind,
            "parameters": [
                {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
                {"name": "dryRun", "in": "query", "schema": {"type": "string"}}
            ],
            "responses": {}
        });
        paths.insert(path, json!({"patch": operation, "put": operation}));
        let (name, schema, references) = described(schemas, resource);
        for (name, schema) in references.into_iter().flat_map(|of| schemas.with_references(of)) {
            // A described kind keeps the extension below.
            components.entry(name).or_insert_with(|| schema.clone());
        }
        let schema = components.entry(name).or_insert(schema);
        schema["x-kubernetes-group-version-kind"] = json!([kind]);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": components}
    })
}

/// Returns the name and the schema of a kind, and the referenced schema.
fn described<'s>(schemas: &'s Schemas, resource: &Resource) -> (String, Value, Option<&'s str>) {
    if let Some(name) = schemas.of_kind(resource) {
        return (name.to_owned(), json!({}), Some(name));
    }
    let reversed: Vec<&str> = resource.group.split('.').rev().filter(|part| !part.is_empty()).collect();
    let group = if reversed.is_empty() { "io.k8s.api.core".to_owned() } else { reversed.join(".") };
    let name = format!("{group}.{}.{}", resource.version, resource.kind);
    match &resource.openapi {
        Some(openapi) => {
            let metadata = schemas.metadata();
            (name, with_common_fields(openapi, metadata), metadata)
        }
        None => (name, json!({"type": "object", "description": format!("A {}.", resource.kind)}), None),
    }
}

/// Returns the schema of a custom resource with the common fields of all objects, which definitions leave out.
fn with_common_fields(openapi: &Value, metadata_schema: Option<&str>) -> Value {
    const CONVENTIONS: &str = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    let more = |what: &str, at: &str| format!("{what} More info: {CONVENTIONS}#{at}");
    let mut metadata = match metadata_schema {
        Some(name) => json!({"allOf": [{"$ref": format!("{COMPONENTS}{name}")}]}),
        None => json!({"type": "object"}),
    };
    metadata["description"] = more("Standard object's metadata.", "metadata").into();
    let mut schema = openapi.clone();
    let text = |what: &str, at: &str| json!({"type": "string", "description": more(what, at)});
    let common = [
        ("apiVersion", text("The version of the schema of this object.", "resources")),
        ("kind", text("The kind of this object.", "types-kinds")),
    ];
    for (field, described) in common {
        if schema["properties"][field]["description"].is_null() {
            schema["properties"][field] = described;
        }
    }
    // A definition may say only that metadata is an object with a name.
    if schema["properties"]["metadata"]["properties"].is_null() {
        schema["properties"]["metadata"] = metadata;
    }
    schema
}
