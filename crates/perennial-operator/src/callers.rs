//! Who asks for metrics, and whether they may: the cluster is asked, as its own components do it.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube_client::api::PostParams;
use kube_client::{Api, Client, Error};
use perennial_x509::digest;

use crate::pass::Clock;

/// Asks a cluster about callers.
pub struct Callers {
    client: Client,
    clock: Clock,
    /// By the digest of the token: nobody needs the token itself.
    known: Remembered<[u8; 32], Caller>,
    allowed: Remembered<(Caller, String), ()>,
}

/// Somebody whom the cluster knows.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Caller {
    /// The name.
    pub name: String,
    /// What tells it apart from somebody who had the same name before.
    pub uid: Option<String>,
    /// The groups.
    pub groups: Vec<String>,
    /// What else the cluster knows; it may allow less because of it.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl Callers {
    /// Of this cluster.
    pub fn new(client: Client, clock: Clock) -> Callers {
        Callers { client, clock, known: Remembered::default(), allowed: Remembered::default() }
    }

    /// Whose token it is, if anybody's.
    pub async fn who(&self, token: &str) -> Result<Option<Caller>, Error> {
        let (key, now) = (digest::sha256(token.as_bytes()), (self.clock)());
        if let Some(caller) = self.known.get(&key, now) {
            return Ok(Some(caller));
        }
        let spec = TokenReviewSpec { token: token.to_owned(), audiences: None };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api = Api::<TokenReview>::all(self.client.clone());
        let status = api.create(&PostParams::default(), &review).await?.status.unwrap_or_default();
        let Some(user) = status.user.filter(|_| status.authenticated == Some(true)) else { return Ok(None) };
        let caller = Caller {
            name: user.username.unwrap_or_default(),
            uid: user.uid,
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        };
        self.known.keep(key, caller.clone(), now);
        Ok(Some(caller))
    }

    /// Whether they may read this path.
    pub async fn may_read(&self, caller: &Caller, path: &str) -> Result<bool, Error> {
        let (key, now) = ((caller.clone(), path.to_owned()), (self.clock)());
        if self.allowed.get(&key, now).is_some() {
            return Ok(true);
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
        if is_allowed {
            self.allowed.keep(key, (), now);
        }
        Ok(is_allowed)
    }
}

/// Good answers, for a while: whoever asks every few seconds is not asked about each time. Bad ones are not kept, so that
/// whoever makes up tokens fills nothing.
struct Remembered<K, V>(Mutex<BTreeMap<K, (Timestamp, V)>>);

const REMEMBERED_FOR: SignedDuration = SignedDuration::from_secs(60);
const MOST: usize = 100;

impl<K: Ord, V: Clone> Remembered<K, V> {
    fn get(&self, key: &K, now: Timestamp) -> Option<V> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.get(key).filter(|(until, _)| now < *until).map(|(_, value)| value.clone())
    }

    fn keep(&self, key: K, value: V, now: Timestamp) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.retain(|_, (until, _)| now < *until);
        if kept.len() < MOST {
            kept.insert(key, (now + REMEMBERED_FOR, value));
        }
    }
}

impl<K, V> Default for Remembered<K, V> {
    fn default() -> Remembered<K, V> {
        Remembered(Mutex::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_a_minute_and_there_is_an_end_to_them() {
        let kept = Remembered::<usize, &str>::default();
        let now: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
        kept.keep(1, "somebody", now);
        assert_eq!(kept.get(&1, now + SignedDuration::from_secs(59)), Some("somebody"));
        assert_eq!(kept.get(&1, now + SignedDuration::from_secs(60)), None);
        assert_eq!(kept.get(&2, now), None);
        (0..200).for_each(|it| kept.keep(it, "many", now));
        assert_eq!(kept.0.lock().unwrap().len(), MOST);
        // Who is forgotten leaves room.
        let later = now + SignedDuration::from_secs(60);
        kept.keep(500, "later", later);
        assert_eq!(kept.get(&500, later), Some("later"));
        assert_eq!(kept.0.lock().unwrap().len(), 1);
    }
}
