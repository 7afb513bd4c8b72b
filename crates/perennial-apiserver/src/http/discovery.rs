//! What a server says about itself.

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::{Value, json};

use super::respond;
use crate::api::Api;
use crate::path::Target;
use crate::resource::Resource;
use crate::status::ApiError;

/// Answers about groups, versions and resources.
pub(super) fn answer(api: &Api, target: &Target, request: &Request<Body>) -> Result<Response<Body>, ApiError> {
    let _ = request;
    let registry = api.registry();
    let resources: Vec<&Resource> = registry.iter().map(AsRef::as_ref).collect();
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
            "/version" => json!({"major": "1", "minor": "36", "gitVersion": "v1.36.0-perennial", "platform": "linux"}),
            "/livez" | "/readyz" | "/healthz" => return Ok(Response::new(Body::from("ok"))),
            _ => return Err(ApiError::no_such_path()),
        },
        Target::Objects(_) => return Err(ApiError::no_such_path()),
    };
    Ok(respond::json(200, &value))
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

/// Stable versions first, and newer before older.
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
        let verbs: &[&str] = if resource.is_stored {
            &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
        } else {
            &["create"]
        };
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": verbs,
        });
        for (field, values) in [("shortNames", &resource.short_names), ("categories", &resource.categories)] {
            if !values.is_empty() {
                entry[field] = json!(values);
            }
        }
        list.push(entry);
        if resource.has_status {
            list.push(json!({
                "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": resource.namespaced,
                "kind": resource.kind, "verbs": ["get", "patch", "update"],
            }));
        }
    }
    if list.is_empty() {
        return Err(ApiError::no_such_path());
    }
    Ok(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": list}))
}
