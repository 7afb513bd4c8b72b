//! The options and the response of a deletion.

use axum::body::Body;
use axum::http::{Request, Response};
use serde_json::{Value, json};

use super::body::read;
use super::options::{Options, invalid, unsupported};
use super::query::Query;
use super::respond::{self, Shape, respond};
use crate::api::{Deleted, Deletion, Propagation};
use crate::listen::User;
use crate::resource::Resource;
use crate::status::{ApiError, Reason};

/// Returns the deletion options from the body or the query of a request.
pub(super) async fn deletion(request: Request<Body>, query: &Query) -> Result<Deletion, ApiError> {
    let user = request.extensions().get::<User>().cloned();
    let (mut options, _) = read(request).await?;
    check_kind(&options)?;
    if options.is_null() {
        options = query.delete_options();
    }
    let dry_run = &options["dryRun"];
    let (policy, orphans) = (options["propagationPolicy"].as_str(), options["orphanDependents"].as_bool());
    let mut causes = Vec::new();
    if let Some(policy) = policy.filter(|_| orphans.is_some()) {
        let why = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(invalid("propagationPolicy", &format!("{policy:?}"), why));
    }
    if let Some(policy) = policy.filter(|policy| !POLICIES[..3].contains(policy)) {
        causes.push(unsupported("propagationPolicy", &format!("{policy:?}"), POLICIES));
    }
    if !dry_run.is_null() && *dry_run != json!([]) && *dry_run != json!(["All"]) {
        causes.push(unsupported("dryRun", &dry_run.to_string(), &["All"]));
    }
    Options::Delete.refuse(causes)?;
    let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
    Ok(Deletion {
        uid: text(&options["preconditions"]["uid"]),
        resource_version: text(&options["preconditions"]["resourceVersion"]),
        propagation: match (policy, orphans) {
            (Some("Orphan"), _) | (_, Some(true)) => Some(Propagation::Orphan),
            (Some("Foreground"), _) => Some(Propagation::Foreground),
            (Some(_), _) | (_, Some(false)) => Some(Propagation::Background),
            (None, None) => None,
        },
        // A dry run in either the query or the body is enough.
        dry_run: query.is_dry_run(Options::Delete)? || *dry_run == json!(["All"]),
        user,
    })
}

const POLICIES: &[&str] = &["Foreground", "Background", "Orphan", "nil"];

fn check_kind(options: &Value) -> Result<(), ApiError> {
    let kind = options["kind"].as_str().unwrap_or("DeleteOptions");
    if kind == "DeleteOptions" && (options.is_null() || options.is_object()) {
        return Ok(());
    }
    Err(ApiError::new(Reason::BadRequest, format!("a deletion has DeleteOptions, not a {kind}")))
}

/// Returns the response to a deletion: the object if it waits for finalizers, else a success status.
pub(super) fn deleted(resource: &Resource, shape: Shape, deleted: Deleted) -> Response<Body> {
    match deleted {
        Deleted::Waits(object) => respond(resource, shape, &object),
        Deleted::Gone(object) => {
            let mut details = json!({"name": object["metadata"]["name"], "kind": resource.plural});
            if !resource.group.is_empty() {
                details["group"] = resource.group.as_str().into();
            }
            // An unreadable row has no uid.
            if let Some(uid) = object["metadata"].get("uid") {
                details["uid"] = uid.clone();
            }
            let status = json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details
            });
            respond::json(200, &status)
        }
    }
}
