//! Authenticates and authorizes the clients that read metrics, with TokenReview and SubjectAccessReview, as other cluster
//! components do.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube_client::api::PostParams;
use kube_client::{Api, Client, Error};
use perennial_core::clocks::shifted;
use perennial_x509::digest;

use crate::pass::Clock;

/// Authenticates and authorizes clients with the API of a cluster.
pub struct Callers {
    client: Client,
    clock: Clock,
    /// The clients by the digest of their token; the token itself is not needed. `None` is a token that the cluster rejected.
    known: Remembered<[u8; 32], Option<Caller>>,
    allowed: Remembered<(Caller, String), bool>,
    /// The tokens that the cluster accepted within the last hour. The operator asks the cluster about them even if the budget for
    /// unknown tokens is used up.
    accepted: Remembered<[u8; 32], ()>,
    budget: Mutex<Budget>,
}

/// The reason why a client is not known.
#[derive(Debug, thiserror::Error)]
pub enum Unknown {
    /// The request to the cluster failed.
    #[error("{}", crate::brief(.0))]
    Failed(#[from] Error),
    /// The budget for unknown tokens is used up.
    #[error("more than {PER_WINDOW} unknown tokens within {} seconds: the cluster is not asked about more", WINDOW.as_secs())]
    TooMany,
}

/// The number of requests to the cluster about unknown tokens in the current window.
#[derive(Debug, Default)]
struct Budget {
    since: Option<Timestamp>,
    asked: usize,
}

const PER_WINDOW: usize = 30;
const WINDOW: SignedDuration = SignedDuration::from_secs(10);

impl Budget {
    /// Takes one request from the budget. Returns false if none is left.
    fn take(&mut self, now: Timestamp) -> bool {
        // If the clock was set back, a new window begins.
        let is_over = |since: Timestamp| now < since || WINDOW <= since.duration_until(now);
        if self.since.is_none_or(is_over) {
            *self = Budget { since: Some(now), asked: 0 };
        }
        self.asked += 1;
        self.asked <= PER_WINDOW
    }
}

/// A client that the cluster has authenticated.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The user name.
    pub name: String,
    /// The uid, which distinguishes the user from an earlier user with the same name.
    pub uid: Option<String>,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// The extra attributes of the user. The cluster may allow less because of them.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Callers {
    /// Returns the callers of this cluster, with empty caches and a full budget.
    pub fn new(client: Client, clock: Clock) -> Callers {
        Callers {
            client,
            clock,
            known: Remembered::default(),
            allowed: Remembered::default(),
            accepted: Remembered::default(),
            budget: Mutex::default(),
        }
    }

    /// Returns the client that a token belongs to; none if the cluster rejects the token.
    pub async fn who(&self, token: &str) -> Result<Option<Caller>, Unknown> {
        let (key, now) = (digest::sha256(token.as_bytes()), (self.clock)());
        if let Some(caller) = self.known.get(&key, now) {
            return Ok(caller);
        }
        let was_accepted = self.accepted.get(&key, now).is_some();
        if !was_accepted && !self.budget.lock().unwrap_or_else(PoisonError::into_inner).take(now) {
            return Err(Unknown::TooMany);
        }
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api = Api::<TokenReview>::all(self.client.clone());
        let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let caller = user.map(|user| Caller {
            name: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        });
        if caller.is_some() {
            self.accepted.keep_for(ACCEPTED_FOR, key, (), now);
        }
        self.known.keep(key, caller.clone(), now);
        Ok(caller)
    }

    /// True if the client may read this path.
    pub async fn may_read(&self, caller: &Caller, path: &str) -> Result<bool, Error> {
        let (key, now) = ((caller.clone(), path.to_owned()), (self.clock)());
        if let Some(is_allowed) = self.allowed.get(&key, now) {
            return Ok(is_allowed);
        }
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec {
            user: Some(caller.name.clone()),
            uid: caller.uid.clone(),
            groups: Some(caller.groups.clone()),
            extra: Some(caller.extra.clone()),
            non_resource_attributes: Some(attributes),
            ..SubjectAccessReviewSpec::default()
        };
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let api = Api::<SubjectAccessReview>::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        let is_allowed = answer.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        self.allowed.keep(key, is_allowed, now);
        Ok(is_allowed)
    }
}

/// A cache of answers of the cluster, usually for one minute: frequent requests of one client cause one review.
///
/// The cache holds at most `MOST` answers. The answer that expires first makes room for a new one.
struct Remembered<K, V>(Mutex<BTreeMap<K, (Timestamp, V)>>);

const REMEMBERED_FOR: SignedDuration = SignedDuration::from_secs(60);
const ACCEPTED_FOR: SignedDuration = SignedDuration::from_hours(1);
const MOST: usize = 1000;

impl<K: Ord + Clone, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K, now: Timestamp) -> Option<V> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // An answer that expires too late is ignored: the clock was set back after the answer was cached.
        let latest = shifted(now, ACCEPTED_FOR);
        kept.get(key).filter(|(until, _)| now < *until && *until <= latest).map(|(_, value)| value.clone())
    }

    fn keep(&self, key: K, value: V, now: Timestamp) {
        self.keep_for(REMEMBERED_FOR, key, value, now);
    }

    fn keep_for(&self, span: SignedDuration, key: K, value: V, now: Timestamp) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (until, _)| now < *until);
        if MOST <= kept.len() && !kept.contains_key(&key) {
            let first = kept.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| key.clone());
            first.into_iter().for_each(|first| _ = kept.remove(&first));
        }
        kept.insert(key, (shifted(now, span), value));
    }
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Remembered<K, V> {
        Remembered(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use kube_client::client::Body;
    use serde_json::json;

    use super::*;

    /// A cluster that accepts only the token `good`, counts the reviews, and has a clock for tests.
    struct Cluster {
        callers: Callers,
        reviews: Arc<AtomicUsize>,
        now: Arc<Mutex<Timestamp>>,
    }

    impl Cluster {
        fn new() -> Cluster {
            let reviews = Arc::new(AtomicUsize::new(0));
            let count = reviews.clone();
            let service = tower::service_fn(move |request: Request<Body>| {
                let count = count.clone();
                async move {
                    assert_eq!(request.uri().path(), "/apis/authentication.k8s.io/v1/tokenreviews");
                    count.fetch_add(1, Ordering::SeqCst);
                    let body = request.into_body().collect_bytes().await.unwrap();
                    let mut review: serde_json::Value = serde_json::from_slice(&body).unwrap();
                    let is_good = review["spec"]["token"] == "good";
                    review["status"] = json!({"authenticated": is_good, "user": {"username": "prometheus"}});
                    Ok::<_, Infallible>(
                        Response::builder().status(201).body(Body::from(review.to_string().into_bytes())).unwrap(),
                    )
                }
            });
            let now = Arc::new(Mutex::new("2026-03-01T12:00:00Z".parse().unwrap()));
            let shown = now.clone();
            let clock: Clock = Arc::new(move || *shown.lock().unwrap());
            Cluster { callers: Callers::new(Client::new(service, "default"), clock), reviews, now }
        }

        fn advance(&self, seconds: i64) {
            let mut now = self.now.lock().unwrap();
            *now = shifted(*now, SignedDuration::from_secs(seconds));
        }

        /// Returns the answer about a token as a word, and the number of reviews that it caused.
        async fn ask(&self, token: &str) -> (&'static str, usize) {
            let before = self.reviews.load(Ordering::SeqCst);
            let answer = match self.callers.who(token).await {
                Ok(Some(caller)) if caller.name == "prometheus" => "accepted",
                Ok(Some(_)) => "accepted as another user",
                Ok(None) => "rejected",
                Err(Unknown::TooMany) => "too many",
                Err(Unknown::Failed(_)) => "failed",
            };
            (answer, self.reviews.load(Ordering::SeqCst) - before)
        }
    }

    #[tokio::test]
    async fn a_rejected_token_is_reviewed_again_after_a_minute() {
        let cluster = Cluster::new();
        assert_eq!(cluster.ask("bad").await, ("rejected", 1));
        cluster.advance(59);
        assert_eq!(cluster.ask("bad").await, ("rejected", 0));
        cluster.advance(1);
        assert_eq!(cluster.ask("bad").await, ("rejected", 1));
    }

    #[tokio::test]
    async fn unknown_tokens_are_reviewed_at_a_limited_rate_and_accepted_tokens_always() {
        let cluster = Cluster::new();
        assert_eq!(cluster.ask("good").await, ("accepted", 1));
        // The review of the accepted token expires, and the budget for unknown tokens is full again.
        cluster.advance(60);
        for number in 0..PER_WINDOW {
            assert_eq!(cluster.ask(&format!("bad-{number}")).await, ("rejected", 1), "{number}");
        }
        assert_eq!(cluster.ask("bad-next").await, ("too many", 0));
        assert_eq!(cluster.ask("bad-0").await, ("rejected", 0), "the operator remembers the answer");
        assert_eq!(cluster.ask("good").await, ("accepted", 1));
        assert_eq!(cluster.ask("good").await, ("accepted", 0));
        cluster.advance(WINDOW.as_secs());
        assert_eq!(cluster.ask("bad-next").await, ("rejected", 1));
    }

    #[test]
    fn an_answer_counts_for_a_minute_and_there_is_an_end_to_them() {
        let kept = Remembered::<usize, &str>::default();
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        kept.keep(1, "alice", now);
        assert_eq!(kept.get(&1, now + SignedDuration::from_secs(59)), Some("alice"));
        assert_eq!(kept.get(&1, now + SignedDuration::from_secs(60)), None);
        assert_eq!(kept.get(&2, now), None);
        (0..2 * MOST).for_each(|it| kept.keep(it, "many", now));
        assert_eq!(kept.0.lock().unwrap().len(), MOST);
        // An expired answer leaves room.
        let later = now + SignedDuration::from_secs(60);
        kept.keep(500, "later", later);
        assert_eq!(kept.get(&500, later), Some("later"));
        assert_eq!(kept.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn the_cluster_is_asked_about_so_many_unknown_tokens_and_again_after_a_while() {
        let (mut budget, now) = (Budget::default(), "2026-03-01T12:00:00Z".parse::<Timestamp>().unwrap());
        let taken = |budget: &mut Budget, now| (0..100).filter(|_| budget.take(now)).count();
        assert_eq!(taken(&mut budget, now), PER_WINDOW);
        assert_eq!(taken(&mut budget, now + SignedDuration::from_secs(9)), 0);
        assert_eq!(taken(&mut budget, now + WINDOW), PER_WINDOW);
        assert_eq!(taken(&mut budget, now - SignedDuration::from_hours(1)), PER_WINDOW);
    }
}
