//! Compares the operator's clock with the API server's clock, which is in the `Date` header of every answer.
//!
//! Between two answers, the operator continues the server's clock with its monotonic clock. So it notices at once if the wall clock is
//! set. A cluster may have several API servers, one of them with a wrong clock, so the median of the last answers counts.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use http::header::DATE;
use http::{HeaderMap, Request};
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};
use kube_client::Client;
use kube_client::client::Body;
use perennial_core::clocks::{TOLERANCE, shifted};
use tokio::time::Instant;

use crate::pass::Clock;

/// Smaller differences do not count: a `Date` has whole seconds, and time servers adjust clocks a little.
const PRECISION: SignedDuration = SignedDuration::from_secs(2);
/// The reported skew changes only if the skew changes by more seconds than this, so that conditions are not written in every pass.
const SKEW_STEP: i64 = 30;

/// How many answers count: enough that one wrong clock of three hardly ever has the majority.
const ANSWERS: usize = 99;

/// The operator's clock and the API server's clock.
pub struct ServerClock {
    own: Clock,
    measured: Mutex<Option<Measured>>,
    /// The last answers.
    answers: Mutex<VecDeque<Measured>>,
    /// The last reported skew, in seconds.
    reported: AtomicI64,
}

/// A time of the API server's clock, and the instant of the monotonic clock at which it was received.
#[derive(Debug, Clone, Copy)]
struct Measured {
    server: Timestamp,
    at: Instant,
}

impl ServerClock {
    /// Returns a clock that follows `own` until the first answer of the API server.
    pub fn new(own: Clock) -> Arc<ServerClock> {
        Arc::new(ServerClock {
            own,
            measured: Mutex::default(),
            answers: Mutex::default(),
            reported: AtomicI64::new(0),
        })
    }

    /// Returns a client that records the `Date` of every answer.
    pub fn recording(self: &Arc<ServerClock>, client: Client) -> Client {
        let (clock, namespace) = (self.clone(), client.default_namespace().to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, clock) = (client.clone(), clock.clone());
            async move {
                let sent = Instant::now();
                let response = client.send(request).await?;
                // A proxy that answers for an absent server has its own clock.
                if !response.status().is_server_error() {
                    clock.note(response.headers(), sent);
                }
                Ok::<_, kube_client::Error>(response)
            }
        });
        Client::new(service, namespace)
    }

    /// Returns the effective clock: the operator's, or the API server's while they differ by more than [`TOLERANCE`].
    pub fn clock(self: &Arc<ServerClock>) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }

    /// Returns the time of the effective clock.
    pub fn now(&self) -> Timestamp {
        let own = (self.own)();
        self.server().filter(|server| is_apart(own, *server)).unwrap_or(own)
    }

    /// Returns how many seconds the operator's clock is ahead of the API server's; negative if behind, 0 while they agree.
    pub fn skew_seconds(&self) -> i64 {
        let own = (self.own)();
        let skew = self.server().filter(|server| is_apart(own, *server)).map_or(0, |server| {
            let ahead = server.duration_until(own).as_secs();
            let reported = self.reported.load(Ordering::Relaxed);
            if reported != 0 && ahead.abs_diff(reported) <= SKEW_STEP.unsigned_abs() { reported } else { ahead }
        });
        self.reported.store(skew, Ordering::Relaxed);
        skew
    }

    /// Returns the API server's time, if known.
    fn server(&self) -> Option<Timestamp> {
        let measured = *self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        measured.map(|it| continued(it, Instant::now()))
    }

    fn note(&self, headers: &HeaderMap, sent: Instant) {
        let Some(date) = headers.get(DATE).and_then(|it| it.to_str().ok()) else { return };
        let Ok(server) = rfc2822::DateTimeParser::new().parse_timestamp(date) else { return };
        let now = Instant::now();
        let took = SignedDuration::try_from(now.duration_since(sent)).unwrap_or(SignedDuration::MAX);
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let median = self.median(Measured { server, at: now }, *measured);
        // The server dated the answer at some time between the request and the answer.
        let is_as_known = measured.is_some_and(|it| {
            let (known, says) = (continued(it, now), continued(median, now));
            shifted(says, -PRECISION) <= known && known <= shifted(shifted(says, took), PRECISION)
        });
        if !is_as_known {
            *measured = Some(median);
        }
    }

    /// Returns the median of the last answers and this one. If the two middle answers differ, the known value wins.
    fn median(&self, answer: Measured, known: Option<Measured>) -> Measured {
        let is_same = |one: &Measured, other: &Measured| {
            continued(*one, answer.at).duration_until(continued(*other, answer.at)).abs() <= PRECISION
        };
        let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        answers.truncate(ANSWERS - 1);
        answers.push_front(answer);
        let mut sorted: Vec<Measured> = answers.iter().copied().collect();
        sorted.sort_by_key(|it| continued(*it, answer.at));
        let middles = [sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]];
        let middle = middles.into_iter().find(|it| known.is_some_and(|known| is_same(it, &known)));
        let middle = middle.unwrap_or(middles[0]);
        // Of equal answers, the newest counts, because clocks drift.
        answers.iter().find(|it| is_same(it, &middle)).copied().unwrap_or(middle)
    }
}

fn continued(measured: Measured, now: Instant) -> Timestamp {
    let since = now.saturating_duration_since(measured.at);
    shifted(measured.server, SignedDuration::try_from(since).unwrap_or(SignedDuration::MAX))
}

fn is_apart(one: Timestamp, other: Timestamp) -> bool {
    TOLERANCE < one.duration_until(other).abs()
}

impl fmt::Debug for ServerClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerClock").field("server", &self.server()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::Response;
    use tokio::time::advance;

    use super::*;

    /// A server with a settable clock, a client that records it, and the operator's own clock.
    struct Lab {
        server: Arc<Mutex<Option<String>>>,
        own: Arc<Mutex<Timestamp>>,
        clock: Arc<ServerClock>,
        client: Client,
    }

    fn lab() -> Lab {
        let (server, own) = (Arc::new(Mutex::new(None::<String>)), Arc::new(Mutex::new(at("12:00:00"))));
        let (says, ours) = (server.clone(), own.clone());
        let clock = ServerClock::new(Arc::new(move || *ours.lock().unwrap()));
        let service = tower::service_fn(move |_: Request<Body>| {
            let date = says.lock().unwrap().clone();
            async move {
                let mut response = Response::new(Body::empty());
                date.into_iter().for_each(|it| _ = response.headers_mut().insert(DATE, it.parse().unwrap()));
                Ok::<_, kube_client::Error>(response)
            }
        });
        let client = clock.recording(Client::new(service, "default"));
        Lab { server, own, clock, client }
    }

    fn at(time: &str) -> Timestamp {
        format!("2026-11-16T{time}Z").parse().unwrap()
    }

    impl Lab {
        /// Sends enough answers with this date to outvote the previous ones.
        async fn says(&self, date: &str) {
            for _ in 0..ANSWERS {
                self.says_once(date).await;
            }
        }

        async fn says_once(&self, date: &str) {
            *self.server.lock().unwrap() = Some(date.to_owned());
            self.client.send(Request::new(Body::empty())).await.unwrap();
        }

        fn own(&self, time: &str) {
            *self.own.lock().unwrap() = at(time);
        }

        fn effective(&self) -> (Timestamp, i64) {
            (self.clock.now(), self.clock.skew_seconds())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn clock_of_the_server_counts_if_the_clocks_differ_by_more_than_five_minutes() {
        let lab = lab();
        assert_eq!(lab.effective(), (at("12:00:00"), 0), "no answer yet");
        lab.says("Mon, 16 Nov 2026 12:05:00 GMT").await;
        assert_eq!(lab.effective(), (at("12:00:00"), 0));
        lab.says("Mon, 16 Nov 2026 12:05:03 GMT").await;
        assert_eq!(lab.effective(), (at("12:05:03"), -303));
        lab.says("Mon, 16 Nov 2026 11:00:00 GMT").await;
        assert_eq!(lab.effective(), (at("11:00:00"), 3600));
        for nonsense in ["", "yesterday", "Mon, 99 Nov 2026 11:00:00 GMT"] {
            lab.says(nonsense).await;
            assert_eq!(lab.effective(), (at("11:00:00"), 3600), "{nonsense}");
        }
        lab.says("Mon, 16 Nov 2026 12:00:01 GMT").await;
        assert_eq!(lab.effective(), (at("12:00:00"), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_clock_of_one_server_of_three_is_ignored() {
        let lab = lab();
        lab.says_once("Mon, 16 Nov 2026 12:00:00 GMT").await;
        for _ in 0..100 {
            lab.says_once("Mon, 16 Nov 2026 15:00:00 GMT").await;
            assert_eq!(lab.effective().1, 0);
            lab.says_once("Mon, 16 Nov 2026 12:00:00 GMT").await;
            lab.says_once("Mon, 16 Nov 2026 12:00:01 GMT").await;
            assert_eq!(lab.effective().1, 0);
        }
        // The first answer counts at once.
        let lab = self::lab();
        lab.says_once("Mon, 16 Nov 2026 15:00:00 GMT").await;
        assert_eq!(lab.effective().1, -3 * 3600);
    }

    #[tokio::test(start_paused = true)]
    async fn set_wall_clock_is_noticed_before_the_next_answer() {
        let lab = lab();
        lab.says("Mon, 16 Nov 2026 12:00:00 GMT").await;
        advance(Duration::from_secs(60)).await;
        lab.own("13:01:00");
        assert_eq!(lab.effective(), (at("12:01:00"), 3600));
        lab.own("11:01:00");
        assert_eq!(lab.effective(), (at("12:01:00"), -3600));
        lab.own("12:01:00");
        assert_eq!(lab.effective(), (at("12:01:00"), 0));
    }

    #[tokio::test(start_paused = true)]
    async fn reported_skew_ignores_changes_of_a_few_seconds() {
        let lab = lab();
        lab.says("Mon, 16 Nov 2026 11:00:00 GMT").await;
        assert_eq!(lab.effective().1, 3600);
        for seconds in ["59:50", "59:40", "59:31"] {
            lab.says(&format!("Mon, 16 Nov 2026 10:{seconds} GMT")).await;
            assert_eq!(lab.effective().1, 3600);
        }
        lab.says("Mon, 16 Nov 2026 10:59:00 GMT").await;
        assert_eq!(lab.effective().1, 3660);
    }
}
