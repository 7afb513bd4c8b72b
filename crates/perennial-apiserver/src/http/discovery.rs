//! Discovery: the groups, versions and resources of the server, its version and its health.

use axum::body::Body;
use axum::http::{HeaderValue, Request, Response, StatusCode, header};
use serde_json::{Value, json};

use super::respond;
use crate::api::Api;
use crate::path::Target;
use crate::resource::Resource;
use crate::status::ApiError;

/// Answers a request for groups, versions or resources.
pub(super) fn answer(api: &Api, target: &Target, request: &Request<Body>) -> Result<Response<Body>, ApiError> {
    if let Target::Other(path) = target
        && let Some(response) = about_itself(api, path)
    {
        return Ok(response);
    }
    let registry = api.registry();
    let resources: Vec<&Resource> = registry.iter().map(AsRef::as_ref).collect();
    if wants_aggregated(request)
        && let Target::CoreVersions | Target::Groups = target
    {
        return Ok(aggregated(&resources, *target == Target::CoreVersions));
    }
    let value = match target {
        Target::CoreVersions => json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}),
        Target::Groups => {
            json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups(&resources).collect::<Vec<_>>()})
        }
        Target::Group(name) => {
            let found = groups(&resources).find(|group| group["name"] == name.as_str());
            let mut group = found.ok_or_else(ApiError::no_such_path)?;
            group["kind"] = "APIGroup".into();
            group["apiVersion"] = "v1".into();
            group
        }
        Target::GroupVersion { group, version } => group_version(&resources, group, version)?,
        Target::Other(path) => match path.as_str() {
            path if path.starts_with("/openapi/v3") => {
                return super::openapi::answer(api.schemas(), &resources, request);
            }
            _ => return Err(ApiError::no_such_path()),
        },
        Target::Objects(_) => return Err(ApiError::no_such_path()),
    };
    Ok(respond::json(200, &value))
}

/// Answers the requests that need no credentials. They wait for nothing, not even for the objects, which a large list locks for a while.
fn about_itself(api: &Api, path: &str) -> Option<Response<Body>> {
    match path {
        "/livez" | "/healthz" => Some(Response::new(Body::from("ok"))),
        "/readyz" => Some(readiness(api.store().disk_full())),
        "/version" => {
            let version = json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0-perennial", "platform": "linux"});
            Some(respond::json(200, &version))
        }
        _ => None,
    }
}

/// Returns the readiness, in the format of a Kubernetes API server.
fn readiness(disk_full: Option<String>) -> Response<Body> {
    let Some(why) = disk_full else { return Response::new(Body::from("ok")) };
    let text = format!("[+]ping ok\n[-]storage failed: {why}\nreadyz check failed\n");
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
    response
}

/// Aggregated discovery: one response instead of one per group version.
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

fn wants_aggregated(request: &Request<Body>) -> bool {
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accept.split(',').map(|media| media.replace(' ', "")).any(|media| {
        media.starts_with("application/json")
            && media.contains("as=APIGroupDiscoveryList")
            && media.contains("v=v2")
            && !media.contains("v=v2beta1")
    })
}

fn aggregated(resources: &[&Resource], is_core: bool) -> Response<Body> {
    let mut names: Vec<&str> =
        resources.iter().map(|it| it.group.as_str()).filter(|it| it.is_empty() == is_core).collect();
    names.sort_unstable();
    names.dedup();
    let items: Vec<Value> = names.iter().map(|name| aggregated_group(resources, name)).collect();
    let list = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items
    });
    let mut response = respond::json(200, &list);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(AGGREGATED));
    response.headers_mut().insert(header::VARY, HeaderValue::from_static("Accept"));
    response
}

fn aggregated_group(resources: &[&Resource], name: &str) -> Value {
    let mut versions: Vec<&str> =
        resources.iter().filter(|it| it.group == name).map(|it| it.version.as_str()).collect();
    versions.sort_unstable_by_key(|version| stability(version));
    versions.dedup();
    let version = |version: &&str| {
        let of_version = resources.iter().filter(|it| it.group == name && it.version == *version);
        let entries: Vec<Value> = of_version.map(|it| aggregated_resource(it)).collect();
        json!({"version": version, "resources": entries, "freshness": "Current"})
    };
    json!({"metadata": {"name": name}, "versions": versions.iter().map(version).collect::<Vec<_>>()})
}

fn aggregated_resource(resource: &Resource) -> Value {
    let kind = json!({"group": resource.group, "version": resource.version, "kind": resource.kind});
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": verbs(resource),
    });
    for (field, values) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
        if !values.is_empty() {
            entry[field] = json!(values);
        }
    }
    let subresource = |name| json!({"subresource": name, "responseKind": kind, "verbs": ["get", "patch", "update"]});
    let mut subresources: Vec<Value> = resource.subresources().map(subresource).collect();
    if resource.has_scale() {
        let kind = json!({"group": "autoscaling", "version": "v1", "kind": "Scale"});
        subresources.push(json!({"subresource": "scale", "responseKind": kind, "verbs": ["get", "patch", "update"]}));
    }
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

fn verbs(resource: &Resource) -> &'static [&'static str] {
    if resource.is_stored {
        &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    } else {
        &["create"]
    }
}

fn groups<'a>(resources: &'a [&Resource]) -> impl Iterator<Item = Value> + 'a {
    let mut names: Vec<&str> = resources.iter().map(|it| it.group.as_str()).filter(|it| !it.is_empty()).collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(|name| {
        let mut versions: Vec<&str> =
            resources.iter().filter(|it| it.group == name).map(|it| it.version.as_str()).collect();
        versions.sort_unstable_by_key(|version| stability(version));
        versions.dedup();
        let version = |version: &&str| json!({"groupVersion": format!("{name}/{version}"), "version": version});
        let versions: Vec<Value> = versions.iter().map(version).collect();
        json!({"name": name, "versions": versions, "preferredVersion": versions.first()})
    })
}

/// Sorts stable versions first, and newer before older.
fn stability(version: &str) -> (u8, std::cmp::Reverse<u32>, &str) {
    let kind = if version.contains("alpha") {
        2
    } else if version.contains("beta") {
        1
    } else {
        0
    };
    let digits: String = version.trim_start_matches('v').chars().take_while(char::is_ascii_digit).collect();
    (kind, std::cmp::Reverse(digits.parse().unwrap_or(0)), version)
}

fn group_version(resources: &[&Resource], group: &str, version: &str) -> Result<Value, ApiError> {
    let of_version = resources.iter().filter(|it| it.group == group && it.version == version);
    let mut list = Vec::new();
    let mut name = String::new();
    for resource in of_version {
        name = resource.api_version();
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs(resource),
        });
        for (field, values) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
            if !values.is_empty() {
                entry[field] = json!(values);
            }
        }
        list.push(entry);
        list.extend(resource.subresources().map(|name| {
            json!({
                "name": format!("{}/{name}", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": ["get", "patch", "update"],
            })
        }));
        if resource.has_scale() {
            list.push(json!({
                "name": format!("{}/scale", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "group": "autoscaling", "version": "v1", "kind": "Scale", "verbs": ["get", "patch", "update"],
            }));
        }
    }
    if list.is_empty() {
        return Err(ApiError::no_such_path());
    }
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list}))
}
