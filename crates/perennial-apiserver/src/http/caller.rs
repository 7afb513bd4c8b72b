//! The origin of a request, and the thread for its work.

use axum::body::Body;
use axum::http::Request;

use crate::api::Api;
use crate::listen::User;

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Caller {
    /// A client in the same process, which is trusted and may run with a simulated clock.
    InProcess,
    /// A socket.
    Remote,
}

impl Caller {
    /// Returns the origin: the listener marks each request from a socket with its user.
    pub(super) fn of(request: &Request<Body>) -> Caller {
        if request.extensions().get::<User>().is_some() { Caller::Remote } else { Caller::InProcess }
    }

    /// Runs long work: for remote callers on the reader threads, so that no request blocks a thread that serves
    /// connections. Returns none if it panics.
    pub(super) async fn run<T: Send + 'static>(
        self,
        api: &Api,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        match self {
            Caller::InProcess => Some(work()),
            Caller::Remote => api.readers().run(work).await,
        }
    }
}
