//! The gate in front of every request: authentication, size limits, and the limits of concurrent requests.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, BodyDataStream, Bytes, HttpBody};
use axum::http::request::Parts;
use axum::http::{Method, Request, Response, header};
use futures_util::future::BoxFuture;
use futures_util::stream::{Stream, StreamExt, TakeUntil};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rustls::pki_types::CertificateDer;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout_at};
use tower::ServiceExt;

use super::caller::{Authenticator, Presented, User};
use super::connection::{Activity, Busy};
use super::limits::Limits;
use super::places::Place;
use super::refuse::refusal_before_body;
use super::response;
use super::stopped;
use crate::deadline;
use crate::http::refusal;
use crate::limits::BODIES_BYTES;
use crate::status::{ApiError, Reason};

/// The checks before every request.
pub(super) struct Gate {
    app: Router,
    authenticator: Arc<dyn Authenticator>,
    limits: Limits,
    requests: Arc<Semaphore>,
    /// The memory for all bodies.
    memory: Arc<Semaphore>,
    units: u32,
    watches: Arc<Semaphore>,
    stopping: watch::Receiver<bool>,
}

/// The peer of a connection.
pub(super) struct Peer {
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) activity: Activity,
    pub(super) place: Arc<Place>,
    pub(super) is_http2: bool,
}

/// An authenticated request with its body.
struct Admitted {
    user: Option<User>,
    busy: Option<Busy>,
    watch: Option<OwnedSemaphorePermit>,
    bytes: Bytes,
    _memory: Option<OwnedSemaphorePermit>,
}

impl Gate {
    pub(super) fn new(
        app: Router,
        authenticator: Arc<dyn Authenticator>,
        limits: Limits,
        stopping: watch::Receiver<bool>,
    ) -> Gate {
        let places = |count: usize| Arc::new(Semaphore::new(count));
        let (requests, watches) = (places(limits.requests), places(limits.watches));
        // Always enough for one body.
        let units = BODIES_BYTES.max(limits.body).div_ceil(UNIT as usize);
        let memory = places(units);
        let units = u32::try_from(units).unwrap_or(u32::MAX);
        Gate { app, authenticator, limits, requests, memory, units, watches, stopping }
    }

    pub(super) async fn answer(&self, peer: &Peer, request: Request<Incoming>) -> Response<Body> {
        let (head, mut body) = request.into_parts();
        let deadline = Instant::now() + self.limits.request_time;
        let admitted = timeout_at(deadline, self.admit(peer, &head, &mut body)).await;
        match admitted.unwrap_or_else(|_| Err(deadline::exceeded())) {
            Ok(admitted) => self.process(head, admitted, deadline).await.unwrap_or_else(|error| refusal(&error)),
            Err(error) if peer.is_http2 => refusal(&error),
            Err(error) => refusal_before_body(&error, &head.headers, body),
        }
    }

    /// Authenticates a request, and reads its body.
    async fn admit(&self, peer: &Peer, head: &Parts, body: &mut Incoming) -> Result<Admitted, ApiError> {
        let user = self.identify(peer, head).await?;
        if user.is_some() {
            peer.place.keep();
        }
        // Requests without credentials do not keep a connection open: others need the place.
        let busy = user.is_some().then(|| peer.activity.begin());
        let hint = body.size_hint();
        let most = self.limits.body as u64;
        if hint.lower() > most {
            return Err(self.too_large());
        }
        // A caller without credentials gets no place for a watch, which could keep its connection forever.
        let watch = if user.is_some() && is_watch(head) { Some(self.place_for_watch()?) } else { None };
        let memory = self.memory_for(hint.upper().unwrap_or(most).min(most)).await?;
        let bytes = if user.is_some() { self.read(body).await? } else { Bytes::new() };
        Ok(Admitted { user, busy, watch, bytes, _memory: memory })
    }

    fn too_large(&self) -> ApiError {
        let message = format!("Request entity too large: limit is {}", self.limits.body);
        ApiError::new(Reason::RequestEntityTooLarge, message)
    }

    /// Waits until there is memory for a body of so many bytes.
    async fn memory_for(&self, bytes: u64) -> Result<Option<OwnedSemaphorePermit>, ApiError> {
        let units = u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX).min(self.units);
        if units == 0 {
            return Ok(None);
        }
        Ok(self.memory.clone().acquire_many_owned(units).await.ok())
    }

    async fn read(&self, body: &mut Incoming) -> Result<Bytes, ApiError> {
        let mut bytes = Vec::new();
        while let Some(frame) = body.frame().await {
            let broken = |error| ApiError::new(Reason::BadRequest, format!("couldn't read the body: {error}"));
            let frame = frame.map_err(broken)?;
            let Some(data) = frame.data_ref() else { continue };
            if bytes.len() + data.len() > self.limits.body {
                return Err(self.too_large());
            }
            bytes.extend_from_slice(data);
        }
        Ok(bytes.into())
    }

    /// Processes a request on its own thread, so that it cannot block the threads that serve connections.
    async fn process(&self, head: Parts, admitted: Admitted, deadline: Instant) -> Result<Response<Body>, ApiError> {
        let Admitted { user, busy, watch, bytes, _memory: memory } = admitted;
        let waits = user.is_some() && !is_for_everybody(&head);
        let mut request = Request::from_parts(head, Body::from(bytes));
        // The token is not needed any more, so nothing can leak it.
        request.headers_mut().remove(header::AUTHORIZATION);
        if let Some(user) = user {
            request.extensions_mut().insert(user);
        }
        let answer = self.app.clone().oneshot(request);
        // Health checks are always answered, and take no time.
        if !waits {
            let Ok(response) = answer.await;
            return Ok(response);
        }
        let turn = timeout_at(deadline, self.requests.clone().acquire_owned()).await;
        let turn = turn.map_err(|_| deadline::exceeded())?.ok();
        let runtime = Handle::current();
        let work = spawn_blocking(move || {
            let answered = runtime.block_on(deadline::until(deadline, answer));
            drop((turn, memory));
            answered
        });
        // Work that does not yield checks the deadline regularly; the client does not wait for that.
        let answered = timeout_at(deadline + GRACE, work).await.map_err(|_| deadline::exceeded())?;
        let failed = |_| ApiError::new(Reason::InternalError, "Internal error occurred: the request was not processed");
        let Ok(response) = answered.map_err(failed)??;
        Ok(match watch {
            None => response.map(|body| response::until(deadline, body)),
            Some(place) => response.map(|body| self.watching(body, place, busy)),
        })
    }

    /// Returns the user of a request. Some paths need no credentials, but wrong credentials are always rejected, as in Kubernetes.
    async fn identify(&self, peer: &Peer, head: &Parts) -> Result<Option<User>, ApiError> {
        let presented = Presented::new(&peer.certificates, &head.headers);
        if presented.is_nothing() && is_for_everybody(head) {
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

/// The events of a watch, until the server stops. Its place is released when it is dropped.
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

/// Returns true for health checks, which need no credentials.
fn is_for_everybody(head: &Parts) -> bool {
    matches!(head.method, Method::GET | Method::HEAD)
        && matches!(head.uri.path(), "/livez" | "/readyz" | "/healthz" | "/version")
}

/// Returns true if the response may last forever.
fn is_watch(head: &Parts) -> bool {
    let query = head.uri.query().unwrap_or_default();
    let mut parameters = form_urlencoded::parse(query.as_bytes());
    head.method == Method::GET && parameters.any(|(name, value)| name == "watch" && matches!(&*value, "true" | "1"))
}

/// The unit in bytes in which the memory of bodies is counted.
const UNIT: u64 = 1024;

/// How long after its deadline a request may end by itself, before its client gets an error.
const GRACE: Duration = Duration::from_millis(100);
