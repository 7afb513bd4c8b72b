//! The OpenAPI documents that kubectl asks for before it writes: which kinds there are, and that the server validates.

use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use crate::resource::Resource;
use crate::status::ApiError;

/// The answer to a path below `/openapi/v3`.
pub(super) fn answer(resources: &[&Resource], path: &str) -> Result<Value, ApiError> {
    let rest = path.trim_start_matches("/openapi/v3").trim_matches('/');
    if rest.is_empty() {
        return Ok(root(resources));
    }
    let of_document: Vec<&Resource> = resources.iter().copied().filter(|it| place(it) == rest).collect();
    if of_document.is_empty() {
        return Err(ApiError::no_such_path());
    }
    Ok(document(&of_document))
}

/// `api/v1`, or `apis/apps/v1`.
fn place(resource: &Resource) -> String {
    if resource.group.is_empty() {
        format!("api/{}", resource.version)
    } else {
        format!("apis/{}/{}", resource.group, resource.version)
    }
}

fn root(resources: &[&Resource]) -> Value {
    let mut paths = Map::new();
    for resource in resources {
        let place = place(resource);
        if !paths.contains_key(&place) {
            let same: Vec<&Resource> = resources
                .iter()
                .copied()
                .filter(|it| it.group == resource.group && it.version == resource.version)
                .collect();
            // Clients keep a document as long as its address stays the same.
            let mut hash = DefaultHasher::new();
            document(&same).to_string().hash(&mut hash);
            let url = format!("/openapi/v3/{place}?hash={:016x}", hash.finish());
            paths.insert(place, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn document(resources: &[&Resource]) -> Value {
    let (mut paths, mut schemas) = (Map::new(), Map::new());
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
        let mut schema = match &resource.openapi {
            Some(openapi) => (**openapi).clone(),
            None => json!({"type": "object", "description": format!("A {}.", resource.kind)}),
        };
        schema["x-kubernetes-group-version-kind"] = json!([kind]);
        let reversed: Vec<&str> = resource.group.split('.').rev().filter(|part| !part.is_empty()).collect();
        let group = if reversed.is_empty() { "io.k8s.api.core".to_owned() } else { reversed.join(".") };
        schemas.insert(format!("{group}.{}.{}", resource.version, resource.kind), schema);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Kubernetes", "version": "v1.36.0"},
        "paths": paths,
        "components": {"schemas": schemas}
    })
}
