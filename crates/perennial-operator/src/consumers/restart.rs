//! Evicts pods so that they are made again: within their budgets, and of each controller one at a time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod as KubePod;
use kube_client::api::{ListParams, PostParams};
use kube_client::core::Status;
use kube_client::{Client, Error};
use perennial_core::consumers::{Pod, may_go, ready};
use serde_json::json;
use tokio::time::Instant;

use super::{api, pages, pods};
use crate::brief;

/// How patiently pods are evicted.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How long to wait before it is tried again.
    pub pause: Duration,
    /// After which time without any eviction the rest is left.
    pub at_most: Duration,
}

/// What becomes of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It was evicted.
    Evicted,
    /// It was gone before.
    Gone,
    /// It is waited for: why. Told again when that is another reason.
    Waits(String),
    /// It stays: why.
    Stays(String),
}

/// Evicts them, and tells what becomes of each.
///
/// A client that comes back by itself where a server says "too many requests" would do so for minutes where a budget says no, and
/// nobody would know for what it waits: it should not (`default_retry` of its configuration).
pub async fn restart(client: &Client, chosen: &[&Pod], patience: Patience, mut tell: impl FnMut(&Pod, &Outcome)) {
    let mut waiting: Vec<&Pod> = chosen.to_vec();
    let mut ready_before: Option<BTreeMap<String, usize>> = None;
    let mut told: BTreeMap<&str, String> = BTreeMap::new();
    let mut give_up_at = Instant::now() + patience.at_most;
    while !waiting.is_empty() {
        let mut trouble = None;
        match look(client, &waiting).await {
            Ok(now) => {
                let there: BTreeSet<&str> = now.iter().filter(|it| !it.is_ending).map(|it| it.uid.as_str()).collect();
                waiting.retain(|pod| {
                    let is_there = there.contains(pod.uid.as_str());
                    if !is_there {
                        tell(pod, &Outcome::Gone);
                    }
                    is_there
                });
                let ready_now = ready(&now);
                let before = ready_before.get_or_insert_with(|| ready_now.clone());
                for pod in may_go(&waiting, before, &ready_now) {
                    let outcome = evict(client, pod).await;
                    if let Outcome::Waits(why) = outcome {
                        wait(pod, why, &mut told, &mut tell);
                        continue;
                    }
                    tell(pod, &outcome);
                    give_up_at = Instant::now() + patience.at_most;
                    waiting.retain(|it| it.uid != pod.uid);
                }
            }
            Err(error) => trouble = Some(format!("cannot look at pods: {}", brief(&error))),
        }
        for pod in &waiting {
            match &trouble {
                Some(why) => wait(pod, why.clone(), &mut told, &mut tell),
                None if told.contains_key(pod.uid.as_str()) => {}
                None => wait(pod, format!("others of {} go first", pod.owner), &mut told, &mut tell),
            }
        }
        if !waiting.is_empty() {
            if Instant::now() + patience.pause > give_up_at {
                break;
            }
            tokio::time::sleep(patience.pause).await;
        }
    }
    for pod in waiting {
        let why = told.remove(pod.uid.as_str()).unwrap_or_default();
        tell(pod, &Outcome::Stays(why));
    }
}

/// Notes why a pod waits, and tells it where that is new.
fn wait<'p>(pod: &'p Pod, why: String, told: &mut BTreeMap<&'p str, String>, tell: &mut impl FnMut(&Pod, &Outcome)) {
    if told.get(pod.uid.as_str()) != Some(&why) {
        tell(pod, &Outcome::Waits(why.clone()));
        told.insert(&pod.uid, why);
    }
}

/// The pods of all namespaces in which somebody waits.
async fn look(client: &Client, waiting: &[&Pod]) -> Result<Vec<Pod>, Error> {
    let namespaces: BTreeSet<&str> = waiting.iter().map(|pod| pod.object.namespace.as_str()).collect();
    let mut found = Vec::new();
    for namespace in namespaces {
        let api = api::<KubePod>(client, Some(namespace));
        pages(&api, ListParams::default(), |pod| found.extend(pods::readiness(pod))).await?;
    }
    Ok(found)
}

/// Asks for the end of this very pod, which its budgets allow or not.
async fn evict(client: &Client, pod: &Pod) -> Outcome {
    let api = api::<KubePod>(client, Some(&pod.object.namespace));
    // What `Api::evict` sends has another name for the options, which servers ignore.
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.object.name, "namespace": pod.object.namespace},
        // Another one may have its name by now.
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    });
    let params = PostParams::default();
    let evicted: Result<Status, _> = api.create_subresource("eviction", &pod.object.name, &params, &eviction).await;
    match evicted {
        Ok(_) => Outcome::Evicted,
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Gone,
        // 500 is said of a pod with several budgets: that stays so.
        Err(Error::Api(status)) if !matches!(status.code, 429 | 501..) => Outcome::Stays(said(&status)),
        Err(Error::Api(status)) => Outcome::Waits(said(&status)),
        Err(error) => Outcome::Waits(brief(&error)),
    }
}

/// What a server says, and which budget it means.
fn said(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|it| &it.causes).map(|it| it.message.as_str());
    let parts: Vec<&str> = std::iter::once(status.message.as_str()).chain(causes).collect();
    parts.join(" ")
}
