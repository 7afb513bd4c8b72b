//! A client with a time limit, for commands that a person waits for.
//!
//! A command fails within the limit, and names the server and the reason. If the server asks to retry later, the client retries within
//! the limit. The operator has no such limit: it waits for its cluster.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kube_client::client::Body;
use kube_client::{Client, Error};
use tokio::time::Instant;

/// The first and the longest pause before a retry. Each pause is twice as long as the previous one.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// How many characters of an answer an error repeats.
const REPEATED: usize = 200;

/// Why a server did not serve a request in time.
#[derive(Debug, thiserror::Error)]
pub enum Unserved {
    /// The server cannot be reached.
    #[error("{server} cannot be reached: {why}")]
    Unreachable {
        /// The address of the server.
        server: String,
        /// The reason.
        why: String,
    },
    /// The server sent no complete answer.
    #[error("{server} did not answer within {} s", .within.as_secs_f32())]
    Silent {
        /// The address of the server.
        server: String,
        /// The time limit.
        within: Duration,
    },
    /// The server is not a Kubernetes API.
    #[error("{server} answered {content_type}, not a Kubernetes API")]
    Foreign {
        /// The address of the server.
        server: String,
        /// The content type of the answer.
        content_type: String,
    },
    /// The server answered that it cannot serve now.
    #[error("{server} answered {status}{}", .message.as_ref().map(|it| format!(": {it}")).unwrap_or_default())]
    Refused {
        /// The address of the server.
        server: String,
        /// The status code.
        status: StatusCode,
        /// The message in the answer.
        message: Option<String>,
    },
}

/// The time limit of a client, and whether it retries if a server cannot serve now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// The time for each request, and for all refused requests together.
    pub within: Duration,
    /// True if the client retries.
    pub retries: bool,
}

/// A client's state of one server.
#[derive(Debug)]
struct Limited {
    server: String,
    limit: Limit,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// True if the server has served a request.
    has_served: bool,
    /// When retries of refused requests end; none while the server refuses none.
    repeat_until: Option<Instant>,
}

/// Returns a client that fails within this limit, with the server and the reason.
///
/// `client` must not retry by itself. The limit applies to the start of a watch, not to its duration.
pub fn limited(client: Client, server: String, limit: Limit) -> Client {
    let namespace = client.default_namespace().to_owned();
    let limited = Arc::new(Limited { server, limit, state: Mutex::default() });
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, limited) = (client.clone(), limited.clone());
        async move { limited.send(&client, request).await }
    });
    Client::new(service, namespace)
}

impl Limited {
    async fn send(&self, client: &Client, mut request: Request<Body>) -> Result<Response<Body>, Error> {
        let deadline = Instant::now() + self.limit.within;
        let mut pause = PAUSES.0;
        loop {
            let again = if self.limit.retries { copy(&request) } else { None };
            let response = match tokio::time::timeout_at(deadline, whole(client, request)).await {
                Err(_) => {
                    let within = self.limit.within;
                    return Err(unserved(Unserved::Silent { server: self.server.clone(), within }));
                }
                Ok(Err(error)) => return Err(self.explained(error)),
                Ok(Ok(response)) => response,
            };
            if let Some(content_type) = foreign(&response) {
                return Err(unserved(Unserved::Foreign { server: self.server.clone(), content_type }));
            }
            if !is_refused(response.status()) {
                let mut state = self.state();
                state.has_served = true;
                if pause != PAUSES.0 {
                    // The server has recovered, so the next refusal has the full time.
                    state.repeat_until = None;
                }
                return Ok(response);
            }
            let wait = retry_after(&response).unwrap_or(pause).max(pause);
            let (has_served, until) = {
                let mut state = self.state();
                (state.has_served, *state.repeat_until.get_or_insert(deadline))
            };
            match again.filter(|_| Instant::now() + wait < until.min(deadline)) {
                Some(again) => request = again,
                // The server works and refuses this request: the caller handles the answer.
                None if has_served || !self.limit.retries => return Ok(response),
                None => return Err(unserved(self.refused(response).await)),
            }
            tokio::time::sleep(wait).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn explained(&self, error: Error) -> Error {
        match error {
            Error::Service(_) | Error::HyperError(_) => {
                let why = crate::brief(&error);
                unserved(Unserved::Unreachable { server: self.server.clone(), why })
            }
            other => other,
        }
    }

    async fn refused(&self, response: Response<Body>) -> Unserved {
        let status = response.status();
        let text = response.into_body().collect_bytes().await.unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let message = serde_json::from_str::<serde_json::Value>(&text)
            .ok()
            .and_then(|it| it["message"].as_str().map(str::to_owned))
            .unwrap_or_else(|| text.into_owned());
        let message: String = message.split_whitespace().collect::<Vec<_>>().join(" ");
        let message: String = message.chars().filter(|it| !it.is_control()).take(REPEATED).collect();
        Unserved::Refused { server: self.server.clone(), status, message: Some(message).filter(|it| !it.is_empty()) }
    }
}

/// Returns an answer with its complete body, except that of a watch, which has no end.
async fn whole(client: &Client, request: Request<Body>) -> Result<Response<Body>, Error> {
    let is_watch = request.uri().query().is_some_and(|query| query.split('&').any(|it| it.starts_with("watch=")));
    let response = client.send(request).await?;
    if is_watch {
        return Ok(response);
    }
    let (parts, body) = response.into_parts();
    Ok(Response::from_parts(parts, Body::from(body.collect_bytes().await?.to_vec())))
}

fn unserved(why: Unserved) -> Error {
    Error::Service(Box::new(why))
}

/// True if the status says that the server cannot serve now, and the request may be retried.
fn is_refused(status: StatusCode) -> bool {
    matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT)
}

/// Returns the content type if the answer is not from a Kubernetes API: an HTML page, or a success without JSON.
fn foreign(response: &Response<Body>) -> Option<String> {
    let found = response.headers().get(http::header::CONTENT_TYPE)?.to_str().ok()?;
    let found = found.split(';').next().unwrap_or_default().trim();
    let is_foreign = found == "text/html" || (response.status().is_success() && !found.contains("json"));
    is_foreign.then(|| found.chars().filter(|it| !it.is_control()).take(REPEATED).collect())
}

fn retry_after(response: &Response<Body>) -> Option<Duration> {
    let seconds: u64 = response.headers().get(http::header::RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    // A longer wait exceeds every limit.
    Some(Duration::from_secs(seconds.min(86_400)))
}

fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    copy.method_mut().clone_from(request.method());
    copy.uri_mut().clone_from(request.uri());
    copy.headers_mut().clone_from(request.headers());
    copy.extensions_mut().clone_from(request.extensions());
    Some(copy)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube_client::Api;

    use super::*;

    const LIMIT: Limit = Limit { within: Duration::from_secs(30), retries: true };

    /// Returns a client of a server with these answers, and the number of requests.
    fn server<F>(answer: F, limit: Limit) -> (Client, Arc<AtomicU32>)
    where
        F: Fn(u32) -> Option<(u16, &'static str)> + Send + Sync + 'static,
    {
        let asked = Arc::new(AtomicU32::new(0));
        let (count, answer) = (asked.clone(), Arc::new(answer));
        let service = tower::service_fn(move |_: Request<Body>| {
            let (number, answer) = (count.fetch_add(1, Ordering::Relaxed), answer.clone());
            async move {
                let Some((status, body)) = answer(number) else { std::future::pending().await };
                let response = Response::builder().status(status).body(Body::from(body.as_bytes().to_vec()));
                Ok::<_, Error>(response.unwrap())
            }
        });
        (limited(Client::new(service, "default"), "https://cluster.test:6443".to_owned(), limit), asked)
    }

    async fn read(client: &Client) -> Result<(), String> {
        let map = Api::<ConfigMap>::default_namespaced(client.clone()).get("any").await;
        map.map(drop).map_err(|error| crate::brief(&error))
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_cannot_serve_is_named_with_its_answer_within_the_limit() {
        for status in [429, 503, 504] {
            let (client, asked) = server(move |_| Some((status, r#"{"message": "try later"}"#)), LIMIT);
            let began = Instant::now();
            let error = read(&client).await.unwrap_err();
            assert!(began.elapsed() <= LIMIT.within, "{:?}", began.elapsed());
            assert!(asked.load(Ordering::Relaxed) > 3);
            assert!(error.contains("https://cluster.test:6443 answered") && error.contains("try later"), "{error}");
            assert!(error.contains(&status.to_string()), "{error}");
            // The next request does not wait for the full limit again.
            assert!(read(&client).await.unwrap_err().contains("try later"));
            assert!(began.elapsed() <= LIMIT.within, "{:?}", began.elapsed());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_does_not_answer_is_named_within_the_limit() {
        let (client, asked) = server(|_| None, LIMIT);
        let began = Instant::now();
        let error = read(&client).await.unwrap_err();
        assert!(error.contains("https://cluster.test:6443 did not answer within 30 s"), "{error}");
        assert!(began.elapsed() <= LIMIT.within + Duration::from_secs(1));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn request_succeeds_after_the_server_recovers() {
        const MAP: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "any"}}"#;
        let (client, asked) = server(|number| Some(if number < 4 { (503, "") } else { (200, MAP) }), LIMIT);
        assert_eq!(read(&client).await, Ok(()));
        assert_eq!(asked.load(Ordering::Relaxed), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_of_a_working_server_is_returned_unchanged() {
        const MAP: &str = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "any"}}"#;
        const REFUSAL: &str = r#"{"kind": "Status", "message": "no endpoints", "code": 503}"#;
        let (client, _) = server(|number| Some(if number == 0 { (200, MAP) } else { (503, REFUSAL) }), LIMIT);
        assert_eq!(read(&client).await, Ok(()));
        let began = Instant::now();
        for _ in 0..5 {
            assert_eq!(read(&client).await, Err("no endpoints".to_owned()));
        }
        assert!(began.elapsed() <= LIMIT.within, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn client_without_retries_returns_the_first_refusal() {
        let once = Limit { retries: false, ..LIMIT };
        let (client, asked) = server(|_| Some((429, r#"{"message": "the budget is spent", "code": 429}"#)), once);
        let error = read(&client).await.unwrap_err();
        assert!(error.contains("the budget is spent"), "{error}");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
