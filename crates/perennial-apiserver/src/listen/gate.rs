//! What every request goes through before it is answered: who sent it, is it small enough, is there a place for it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::http::{HeaderValue, Method, Request, Response, header};
use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, StreamExt, TakeUntil};
use http_body_util::Limited;
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::timeout;
use tower::ServiceExt;

use super::caller::{Authenticator, Presented, User};
use super::connection::{Activity, Busy};
use super::limits::Limits;
use super::stopped;
use crate::status::{ApiError, Reason};

/// What every request goes through.
pub(super) struct Gate {
    app: Router,
    authenticator: Arc<dyn Authenticator>,
    limits: Limits,
    requests: Semaphore,
    watches: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
}

/// The other end of a connection.
pub(super) struct Peer {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) activity: Activity,
}

impl Gate {
    pub(super) fn new(
        app: Router,
        authenticator: Arc<dyn Authenticator>,
        limits: Limits,
        stopping: watch::Receiver<bool>,
    ) -> Gate {
        let requests = Semaphore::new(limits.requests);
        let watches = Arc::new(Semaphore::new(limits.watches));
        Gate { app, authenticator, limits, requests, watches, stopping }
    }

    pub(super) async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Response<Body> {
        let admitted = async {
            let user = self.identify(peer, &request).await?;
            // Who is not known does not keep a connection by asking again and again: others need the place.
            let busy = user.is_some().then(|| peer.activity.begin());
            self.admit(user, request, busy).await
        };
        match timeout(self.limits.request_time, admitted).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => refusal(&error),
            Err(_) => too_late(),
        }
    }

    async fn admit(
        &self,
        user: Option<User>,
        mut request: Request<Incoming>,
        busy: Option<Busy>,
    ) -> Result<Response<Body>, ApiError> {
        if request.body().size_hint().lower() > self.limits.body as u64 {
            let message = format!("Request entity too large: limit is {}", self.limits.body);
            return Err(ApiError::new(Reason::RequestEntityTooLarge, message));
        }
        // Who is not known gets no place: whoever has one may keep its connection for ever.
        let place = if user.is_some() && is_watch(&request) { Some(self.place_for_watch()?) } else { None };
        // Whether the server lives can be asked however much there is to do.
        let _turn = if user.is_some() { self.requests.acquire().await.ok() } else { None };
        // Nothing behind here needs the token, so nothing can tell it.
        request.headers_mut().remove(header::AUTHORIZATION);
        if let Some(user) = user {
            request.extensions_mut().insert(user);
        }
        let request = request.map(|body| Body::new(Limited::new(body, self.limits.body)));
        let Ok(response) = self.app.clone().oneshot(request).await;
        Ok(match place {
            None => response,
            Some(place) => response.map(|body| self.watching(body, place, busy)),
        })
    }

    /// Who sent this. Nobody is good enough for some paths; wrong credentials are not, as on a real server.
    async fn identify(&self, peer: &Peer, request: &Request<Incoming>) -> Result<Option<User>, ApiError> {
        let presented = Presented::new(&peer.certificates, request.headers());
        if presented.is_nothing() && is_for_everybody(request) {
            return Ok(None);
        }
        let user = self.authenticator.authenticate(&presented).await;
        user.map(Some).ok_or_else(|| ApiError::new(Reason::Unauthorized, "Unauthorized"))
    }

    fn place_for_watch(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        let full = |_| ApiError::new(Reason::TooManyRequests, "too many watches, please try again later");
        self.watches.clone().try_acquire_owned().map_err(full)
    }

    fn watching(&self, body: Body, place: OwnedSemaphorePermit, busy: Option<Busy>) -> Body {
        let stopped: BoxFuture<'static, ()> = Box::pin(stopped(self.stopping.clone()));
        Body::from_stream(Watching { events: body.into_data_stream().take_until(stopped), _place: place, _busy: busy })
    }
}

/// The events of a watch, until the server stops. Its place is free when nobody reads them any more.
struct Watching {
    events: TakeUntil<BodyDataStream, BoxFuture<'static, ()>>,
    _place: OwnedSemaphorePermit,
    _busy: Option<Busy>,
}

impl Stream for Watching {
    type Item = Result<Bytes, axum::Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.events.poll_next_unpin(cx)
    }
}

/// What tells nothing but that the server is there.
fn is_for_everybody<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD)
        && matches!(request.uri().path(), "/livez" | "/readyz" | "/healthz" | "/version")
}

/// Whether the answer may go on for ever.
fn is_watch<B>(request: &Request<B>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    request.method() == Method::GET
        && parameters.any(|(name, value)| name == "watch" && matches!(&*value, "true" | "1"))
}

fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = crate::http::refusal(error);
    if error.reason == Reason::TooManyRequests {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn too_late() -> Response<Body> {
    let message =
        "the server was unable to return a response in the time allotted, but may still be processing the request";
    refusal(&ApiError::new(Reason::Timeout, message))
}
