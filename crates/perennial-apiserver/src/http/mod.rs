//! The API over HTTP: a tower service, for a socket or for a client in the same process.

mod body;
mod deletion;
mod discovery;
mod node_only;
mod openapi;
mod options;
mod query;
mod respond;
#[cfg(test)]
mod tests;
mod watch;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Method, Request, Response};
use serde_json::{Value, json};
use tracing::debug;

use crate::api::{Api, WriteOptions, Written};
use crate::listen::User;
use crate::path::{Objects, Target};
use crate::resource::Resource;
use crate::status::{About, ApiError, Reason};
use body::{Kind, read};
use deletion::{deleted, deletion};
use options::Options;
use query::{Query, Writer};
use respond::{Rest, Shape, respond};

pub(crate) use respond::refusal;

/// The API as a service.
pub fn router(api: Arc<Api>) -> Router {
    Router::new().fallback(serve).with_state(api)
}

async fn serve(State(api): State<Arc<Api>>, request: Request<Body>) -> Response<Body> {
    // The query is left out: a label selector or a field selector may tell what an object holds.
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = match answer(&api, request).await {
        Ok(response) => response,
        Err(error) => refusal(&error),
    };
    debug!(%method, path, status = response.status().as_u16(), "answered a request");
    response
}

async fn answer(api: &Arc<Api>, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    // Over HTTP/2 the URI is absolute.
    match Target::parse(request.uri().path()) {
        Target::Objects(at) => {
            refuse_impersonation(&request)?;
            objects(api, &at, request).await
        }
        target => discovery::answer(api, &target, &request),
    }
}

/// Refuses a request in the name of another user, as `kubectl --as` sends it.
///
/// Every caller may do everything, so the answer would say nothing about the rights of that user. What the server has is the same
/// for everybody, so it is told: kubectl shows no message of a refusal there.
fn refuse_impersonation(request: &Request<Body>) -> Result<(), ApiError> {
    const WHY: &str = "this API server does not impersonate users: it does not authorize requests, so every user could do \
                       everything; test the rights of a user on a cluster with RBAC";
    if !request.headers().keys().any(|name| name.as_str().starts_with("impersonate-")) {
        return Ok(());
    }
    let user = request.headers().get("impersonate-user").and_then(|value| value.to_str().ok()).unwrap_or_default();
    Err(match user {
        "" => ApiError::new(Reason::Forbidden, WHY),
        user => {
            let about = About { group: String::new(), kind: "users".to_owned(), name: user.to_owned() };
            ApiError::forbidden(about, WHY)
        }
    })
}

async fn objects(api: &Arc<Api>, at: &Objects, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let resource = api.resource(at)?;
    node_only::refuse(api, &resource, at)?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let shape = Shape::wanted(&request, &query, api.now())?;
    let writer = Writer::of(&request);
    check_subresource(&resource, at)?;
    if !resource.is_stored {
        return review(&resource, at, request).await;
    }
    match (request.method().clone(), &at.name) {
        (Method::GET, Some(_)) => {
            shape.check_one(&resource)?;
            Ok(respond(&resource, shape, &api.get(at)?))
        }
        (Method::GET, None) if query.is_watch() => watch::watch(api, &resource, at, &query, shape),
        (Method::GET, None) => list(api, &resource, at, &query, shape),
        (Method::POST, None) => {
            let (body, _) = read(request).await?;
            let written = api.create(at, body, &query.write_options(Options::Create, &writer)?).await?;
            Ok(respond::written(&resource, shape, &written))
        }
        (Method::PUT, Some(_)) => {
            let (body, _) = read(request).await?;
            let written = api.update(at, body, &query.write_options(Options::Update, &writer)?).await?;
            Ok(respond::written(&resource, shape, &written))
        }
        (Method::PATCH, Some(_)) => {
            let (body, kind) = read(request).await?;
            let options = query.write_options(Options::Patch, &writer)?;
            let written = if kind == Kind::Apply {
                api.apply(at, body, query.apply_force()?, &options).await?
            } else {
                query.check_no_force()?;
                patch(api, &resource, at, &body, kind, &options).await?
            };
            Ok(respond::written(&resource, shape, &written))
        }
        // Of a part of an object only custom resources say what cannot be done.
        (Method::DELETE, Some(_)) if at.subresource.is_some() && resource.schema.is_some() => {
            Err(ApiError::unsupported_verb(crate::api::about(&resource, ""), "delete"))
        }
        (Method::DELETE, Some(_)) if at.subresource.is_none() => {
            let deletion = deletion(request, &query).await?;
            Ok(deleted(&resource, shape, api.delete(at, &deletion).await?))
        }
        (Method::DELETE, None) => {
            let deletion = deletion(request, &query).await?;
            let selector = query.selector(&resource)?;
            let items = api.delete_collection(at, &selector, &deletion).await?;
            let list = crate::api::List { items, revision: api.store().revision(), rest: None };
            Ok(respond::list(&resource, Shape::Object, &list, None))
        }
        _ => Err(wrong_method()),
    }
}

fn wrong_method() -> ApiError {
    ApiError::new(Reason::MethodNotAllowed, "the server does not allow this method on the requested resource")
}

fn check_subresource(resource: &Resource, at: &Objects) -> Result<(), ApiError> {
    match at.subresource.as_deref() {
        None => Ok(()),
        Some(name) if resource.subresources().any(|it| it == name) => Ok(()),
        Some(_) if resource.schema.is_some() => {
            Err(ApiError::not_found(crate::api::about(resource, at.name.as_deref().unwrap_or_default())))
        }
        Some(_) => Err(ApiError::no_such_path()),
    }
}

fn list(api: &Api, resource: &Resource, at: &Objects, query: &Query, shape: Shape) -> Result<Response<Body>, ApiError> {
    shape.check_list(resource)?;
    query.check_list()?;
    let selector = query.selector(resource)?;
    let asked = query.resource_version()?;
    let begun = query.continue_after(resource)?;
    let mut list = api.list(at, &selector, begun.as_ref().map(|(after, _)| after), query.limit()?)?;
    if let Some((_, revision)) = begun {
        // Who then watches from where the list began is told of everything that changed while it was read.
        list.revision = revision;
    }
    if query.wants_exact_version() && asked != Some(list.revision) {
        return Err(ApiError::new(
            Reason::Expired,
            "The provided resource version is unavailable: only the newest is kept",
        ));
    }
    // Of a selection nobody knows how many are left without looking at all of them.
    let rest = list.rest.as_ref().map(|(after, count)| Rest { after, count: selector.is_empty().then_some(*count) });
    Ok(respond::list(resource, shape, &list, rest))
}

async fn patch(
    api: &Api,
    resource: &Resource,
    at: &Objects,
    body: &Value,
    kind: Kind,
    options: &WriteOptions,
) -> Result<Written, ApiError> {
    match kind {
        Kind::MergePatch => api.merge(at, body, options).await,
        Kind::JsonPatch => api.patch(at, |object| crate::patch::json(object, body), options).await,
        Kind::StrategicMergePatch if resource.schema.is_none() => {
            api.patch(at, |object| crate::patch::strategic(object, body), options).await
        }
        Kind::StrategicMergePatch | Kind::Json | Kind::Apply => Err(unsupported()),
    }
}

fn unsupported() -> ApiError {
    let accepted = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
    let message =
        format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
    ApiError::new(Reason::UnsupportedMediaType, message)
}

/// What is asked and answered, and never stored: who the caller is, and that everybody who was let in may do everything.
async fn review(resource: &Resource, at: &Objects, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    if at.name.is_some() {
        return Err(ApiError::no_such_path());
    }
    if request.method() != Method::POST {
        return Err(wrong_method());
    }
    let user = request.extensions().get::<User>().cloned();
    let (mut body, _) = read(request).await?;
    if !body.is_object() {
        let why = "the object provided is unrecognized (must be of type object)";
        return Err(ApiError::new(Reason::BadRequest, why));
    }
    body["apiVersion"] = resource.api_version().into();
    body["kind"] = resource.kind.as_str().into();
    body["status"] = if resource.kind == "SelfSubjectReview" {
        // Nobody stands between a client in the same process and the server.
        let user = user.unwrap_or_else(|| User { name: "system:unsecured".to_owned(), ..User::default() });
        json!({"userInfo": {"username": user.name, "groups": user.groups}})
    } else {
        json!({"allowed": true})
    };
    Ok(respond::json(201, &body))
}
