//! The API over HTTP: a tower service, for a socket or for a client in the same process.

mod body;
mod caller;
mod deletion;
mod discovery;
mod list;
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
use axum::body::{Body, HttpBody};
use axum::extract::State;
use axum::http::{Method, Request, Response};
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tracing::debug;

use crate::api::{Api, WriteOptions, Written, internal};
use crate::listen::User;
use crate::path::{Objects, Target};
use crate::resource::Resource;
use crate::selector::Selector;
use crate::status::{About, ApiError, Reason};
use body::{Kind, read};
use caller::Caller;
use deletion::{deleted, deletion};
use options::Options;
use query::{Query, Writer};
use respond::{Shape, respond};

pub(crate) use respond::refusal;

/// Returns the API as a service.
pub fn router(api: Arc<Api>) -> Router {
    Router::new().fallback(serve).with_state(api)
}

async fn serve(State(api): State<Arc<Api>>, request: Request<Body>) -> Response<Body> {
    // The query is not logged: a selector may contain values of an object.
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

/// Rejects a request with impersonation, as `kubectl --as` sends it.
///
/// Every caller may do everything, so the answer would be wrong for that user. Discovery is answered, because it is the same
/// for all users and kubectl shows no message of a rejection there.
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

/// Answers requests for objects. For remote callers, a few threads read and write large objects.
async fn objects(api: &Arc<Api>, at: &Objects, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let bytes = usize::try_from(request.body().size_hint().lower()).unwrap_or(usize::MAX);
    let is_of_one = match *request.method() {
        Method::POST | Method::PUT | Method::PATCH => true,
        Method::GET | Method::DELETE => at.name.is_some(),
        _ => false,
    };
    if !is_of_one || Caller::of(&request) == Caller::InProcess || !api.is_large(at, bytes)? {
        return process(api, at, request).await;
    }
    let (of_thread, at) = (api.clone(), at.clone());
    if request.method() == Method::GET {
        let runtime = Handle::current();
        let work = move || runtime.block_on(process(&of_thread, &at, request));
        return api.readers().run(work).await.unwrap_or_else(|| Err(internal("the request was not processed")));
    }
    api.large_writes().run(async move { process(&of_thread, &at, request).await }).await?
}

async fn process(api: &Arc<Api>, at: &Objects, request: Request<Body>) -> Result<Response<Body>, ApiError> {
    let resource = api.resource(at)?;
    node_only::refuse(api, &resource, at)?;
    let query = Query::parse(request.uri().query().unwrap_or_default());
    let shape = Shape::wanted(&request, &query, api.now())?;
    let writer = Writer::of(&request);
    check_subresource(&resource, at)?;
    if !resource.is_stored {
        return review(&resource, at, request).await;
    }
    let caller = Caller::of(&request);
    match (request.method().clone(), &at.name) {
        (Method::GET, Some(_)) => {
            shape.check_one(&resource)?;
            Ok(respond(&resource, shape, &api.get(at)?))
        }
        (Method::GET, None) if query.is_watch() => watch::watch(api, &resource, at, &query, shape, caller),
        (Method::GET, None) => list::list(api, &resource, at, &query, shape, caller),
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
        // Only custom resources name the verb that a subresource does not support.
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
            let rows = api.delete_collection(at, &selector, &deletion).await?;
            let metadata = json!({"resourceVersion": api.store().revision().to_string()});
            list::answer(api, &resource, rows, &metadata, (Selector::default(), Shape::Object), (caller, None))
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

/// Answers reviews, which are not stored: the identity of the caller, and that every authenticated user may do everything.
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
        // A client in the same process has no user.
        let user = user.unwrap_or_else(|| User { name: "system:unsecured".to_owned(), ..User::default() });
        json!({"userInfo": {"username": user.name, "groups": user.groups}})
    } else {
        json!({"allowed": true})
    };
    Ok(respond::json(201, &body))
}
