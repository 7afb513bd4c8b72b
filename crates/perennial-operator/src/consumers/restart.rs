//! Evicts pods so that their controllers create them again: within their disruption budgets, and one pod of each controller at a time.

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

/// The timing of evictions.
#[derive(Debug, Clone, Copy)]
pub struct EvictionTiming {
    /// The pause before a retry.
    pub pause: Duration,
    /// The time without an eviction after which the remaining pods stay.
    pub give_up_after: Duration,
}

/// The result for a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The pod was evicted.
    Evicted,
    /// The pod was gone before the eviction.
    Gone,
    /// The pod is not evicted yet, for this reason. Reported again if the reason changes.
    Waits(String),
    /// The pod is not evicted, for this reason.
    Stays(String),
}

/// Evicts pods, and calls `report` with the result for each.
///
/// `client` must not retry by itself after the status "too many requests" (`default_retry` of its configuration). A disruption budget
/// answers with this status, and such a client would wait for minutes without a message.
pub async fn restart(client: &Client, chosen: &[&Pod], timing: EvictionTiming, mut report: impl FnMut(&Pod, &Outcome)) {
    let mut waiting: Vec<&Pod> = chosen.to_vec();
    let mut ready_before: Option<BTreeMap<String, usize>> = None;
    let mut reported: BTreeMap<&str, String> = BTreeMap::new();
    let mut give_up_at = Instant::now() + timing.give_up_after;
    while !waiting.is_empty() {
        let mut failure = None;
        match list_pods(client, &waiting).await {
            Ok(now) => {
                let there: BTreeSet<&str> = now.iter().filter(|it| !it.is_ending).map(|it| it.uid.as_str()).collect();
                waiting.retain(|pod| {
                    let is_there = there.contains(pod.uid.as_str());
                    if !is_there {
                        report(pod, &Outcome::Gone);
                    }
                    is_there
                });
                let ready_now = ready(&now);
                let before = ready_before.get_or_insert_with(|| ready_now.clone());
                for pod in may_go(&waiting, before, &ready_now) {
                    let outcome = evict(client, pod).await;
                    if let Outcome::Waits(why) = outcome {
                        wait(pod, why, &mut reported, &mut report);
                        continue;
                    }
                    report(pod, &outcome);
                    give_up_at = Instant::now() + timing.give_up_after;
                    waiting.retain(|it| it.uid != pod.uid);
                }
            }
            Err(error) => failure = Some(format!("failed to list the pods: {}", brief(&error))),
        }
        for pod in &waiting {
            match &failure {
                Some(why) => wait(pod, why.clone(), &mut reported, &mut report),
                None if reported.contains_key(pod.uid.as_str()) => {}
                None => wait(pod, format!("other pods of {} are evicted first", pod.owner), &mut reported, &mut report),
            }
        }
        if !waiting.is_empty() {
            if Instant::now() + timing.pause > give_up_at {
                break;
            }
            tokio::time::sleep(timing.pause).await;
        }
    }
    for pod in waiting {
        let why = reported.remove(pod.uid.as_str()).unwrap_or_default();
        report(pod, &Outcome::Stays(why));
    }
}

/// Reports why a pod waits, if the reason is new.
fn wait<'p>(
    pod: &'p Pod,
    why: String,
    reported: &mut BTreeMap<&'p str, String>,
    report: &mut impl FnMut(&Pod, &Outcome),
) {
    if reported.get(pod.uid.as_str()) != Some(&why) {
        report(pod, &Outcome::Waits(why.clone()));
        reported.insert(&pod.uid, why);
    }
}

/// Returns the pods of all namespaces with waiting pods.
async fn list_pods(client: &Client, waiting: &[&Pod]) -> Result<Vec<Pod>, Error> {
    let namespaces: BTreeSet<&str> = waiting.iter().map(|pod| pod.object.namespace.as_str()).collect();
    let mut found = Vec::new();
    for namespace in namespaces {
        let api = api::<KubePod>(client, Some(namespace));
        pages(&api, ListParams::default(), |pod| found.extend(pods::readiness(pod))).await?;
    }
    Ok(found)
}

/// Evicts a pod, if its disruption budgets allow it.
async fn evict(client: &Client, pod: &Pod) -> Outcome {
    let api = api::<KubePod>(client, Some(&pod.object.namespace));
    // `Api::evict` sends the options under a name that servers ignore.
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod.object.name, "namespace": pod.object.namespace},
        // Another pod may have this name by now.
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    });
    let params = PostParams::default();
    let evicted: Result<Status, _> = api.create_subresource("eviction", &pod.object.name, &params, &eviction).await;
    match evicted {
        Ok(_) => Outcome::Evicted,
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Gone,
        // The server answers 500 for a pod with several budgets. A retry does not help.
        Err(Error::Api(status)) if !matches!(status.code, 429 | 501..) => Outcome::Stays(message(&status)),
        Err(Error::Api(status)) => Outcome::Waits(message(&status)),
        Err(error) => Outcome::Waits(brief(&error)),
    }
}

/// Returns the message of a server, with the budget that it names.
fn message(status: &Status) -> String {
    let causes = status.details.iter().flat_map(|it| &it.causes).map(|it| it.message.as_str());
    let parts: Vec<&str> = std::iter::once(status.message.as_str()).chain(causes).collect();
    parts.join(" ")
}
