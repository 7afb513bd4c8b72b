//! One of several operators at a time, and a graceful end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::coordination::v1::Lease;
use kube_client::Api;
use kube_client::api::{Patch, PatchParams};
use perennial_operator::lease::Leadership;
use serde_json::json;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::cluster::{Cluster, soon};
use crate::serving::Shop;

const NAMESPACE: &str = "openshift-kube-apiserver-operator";

fn leadership(cluster: &Cluster, identity: &str) -> Leadership {
    // The clock of the runtime, which jumps to the next thing that somebody waits for.
    let (began, start) = (cluster.now(), Instant::now());
    let clock = Arc::new(move || began + SignedDuration::try_from(start.elapsed()).unwrap());
    Leadership::new(cluster.client.clone(), NAMESPACE, "perennial", identity.to_owned(), clock)
}

async fn holder(cluster: &Cluster) -> Option<String> {
    let lease = Api::<Lease>::namespaced(cluster.client.clone(), NAMESPACE).get("perennial").await.unwrap();
    lease.spec.unwrap().holder_identity
}

#[tokio::test(start_paused = true)]
async fn who_stops_lets_the_next_one_lead_at_once() {
    let cluster = Cluster::embedded().await;
    let (mut one, mut other) = (leadership(&cluster, "one"), leadership(&cluster, "other"));
    one.acquire(|| {}).await;
    assert_eq!(holder(&cluster).await.as_deref(), Some("one"));
    assert!(timeout(Duration::from_secs(600), async { tokio::join!(one.hold(), other.acquire(|| {})) }).await.is_err());
    assert_eq!(holder(&cluster).await.as_deref(), Some("one"), "who renews it keeps it");
    one.release().await.unwrap();
    let begun = Instant::now();
    other.acquire(|| {}).await;
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(holder(&cluster).await.as_deref(), Some("other"));
    one.release().await.unwrap();
    assert_eq!(holder(&cluster).await.as_deref(), Some("other"), "nobody gives back what is not theirs");
}

#[tokio::test(start_paused = true)]
async fn who_is_not_heard_of_is_followed_and_hears_of_it() {
    let cluster = Cluster::embedded().await;
    let (mut one, mut other) = (leadership(&cluster, "one"), leadership(&cluster, "other"));
    one.acquire(|| {}).await;
    // It is gone, or its machine sleeps.
    let begun = Instant::now();
    other.acquire(|| {}).await;
    let waited = begun.elapsed();
    assert!(Duration::from_secs(137) <= waited && waited < Duration::from_secs(200), "{waited:?}");
    assert_eq!(holder(&cluster).await.as_deref(), Some("other"));
    timeout(Duration::from_secs(60), one.hold()).await.expect("who wakes up hears that another leads");
}

#[tokio::test]
async fn who_is_told_to_stop_ends_between_two_writes() {
    let cluster = Cluster::embedded().await;
    let runner = cluster.runner();
    let secrets = cluster.secrets(NAMESPACE);
    let stop = async {
        while secrets.get_opt("aggregator-client-signer").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    runner.run(|_| panic!("it was told to stop"), stop).await;
    let written = cluster.versions().await.len();
    assert!((1..45).contains(&written), "{written} objects were written");
    let (passed, _) = cluster.pass().await;
    assert!(passed.report.waiting.is_empty() && passed.report.risks.is_empty());
}

#[tokio::test]
async fn a_single_pass_that_is_told_to_stop_ends_between_two_writes() {
    let cluster = Cluster::embedded().await;
    let secrets = cluster.secrets(NAMESPACE);
    let stop = async {
        while secrets.get_opt("aggregator-client-signer").await.unwrap().is_none() {
            tokio::task::yield_now().await;
        }
    };
    let (passed, is_stopped) = cluster.runner().once_until(stop).await;
    let passed = passed.unwrap();
    assert!(is_stopped && !passed.report.steps.is_empty());
    assert_eq!(cluster.versions().await.len(), passed.written.len(), "it knows what it wrote");
    let (passed, is_stopped) = cluster.runner().once_until(std::future::pending()).await;
    assert!(!is_stopped && passed.unwrap().report.steps.is_empty());
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_one_pass_waits_only_a_little() {
    let cluster = Cluster::embedded().await;
    let (mut one, mut other) = (leadership(&cluster, "one"), leadership(&cluster, "other"));
    one.acquire(|| {}).await;
    let begun = Instant::now();
    assert_eq!(other.acquire_soon().await, Err("one has the lease perennial".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(20));
    let (given, taken) = tokio::join!(one.release(), other.acquire_soon());
    assert_eq!((given.is_ok(), taken), (true, Ok(())));
    other.release().await.unwrap();
    // It ended without a word, long ago.
    one.acquire(|| {}).await;
    tokio::time::advance(Duration::from_secs(3600)).await;
    let mut third = leadership(&cluster, "third");
    third.acquire_soon().await.unwrap_err();
    let (began, start) = (cluster.now() + SignedDuration::from_hours(1), Instant::now());
    let later = Arc::new(move || began + SignedDuration::try_from(start.elapsed()).unwrap());
    let mut third = Leadership::new(cluster.client.clone(), NAMESPACE, "perennial", "third".to_owned(), later);
    third.acquire_soon().await.unwrap();
    assert_eq!(holder(&cluster).await.as_deref(), Some("third"));
}

/// Whoever leads now serves Services, too: nothing is written by who lost the lease, although one of its looks goes on and on.
#[tokio::test(start_paused = true)]
async fn who_lost_the_lease_serves_nobody_any_more() {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.asks("web", "web-tls").await;
    let (is_stuck, stuck) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (sticks, count) = (is_stuck.clone(), stuck.clone());
    let way = shop.cluster.way_of(move |client, request| {
        let is_it = request.uri().path().ends_with("/infrastructures/cluster") && sticks.load(Ordering::SeqCst);
        let (sticks, count) = (sticks.clone(), count.clone());
        async move {
            if is_it {
                count.fetch_add(1, Ordering::SeqCst);
                while sticks.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
            client.send(request).await
        }
    });
    let mut lease = leadership(&shop.cluster, "one");
    lease.acquire(|| {}).await;
    let runner = shop.cluster.runner_through(way);
    let (lost, hears) = oneshot::channel();
    let stop = async move {
        lease.hold().await;
        lost.send(()).unwrap();
    };
    let task = tokio::spawn(async move { runner.run(|_| {}, stop).await });
    soon("web is served", || async { shop.secrets().get_opt("web-tls").await.unwrap().is_some() }).await;
    is_stuck.store(true, Ordering::SeqCst);
    // A look begins each minute at the latest.
    while stuck.load(Ordering::SeqCst) == 0 {
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    shop.asks("early", "early-tls").await;
    soon("who leads serves", || async { shop.secrets().get_opt("early-tls").await.unwrap().is_some() }).await;
    let other = json!({"spec": {"holderIdentity": "other"}});
    let leases = Api::<Lease>::namespaced(shop.cluster.client.clone(), NAMESPACE);
    leases.patch("perennial", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    hears.await.unwrap();
    let late = shop.asks("late", "late-tls").await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(!task.is_finished(), "the look goes on");
    assert!(shop.secrets().get_opt("late-tls").await.unwrap().is_none());
    let found = shop.services().get("late").await.unwrap();
    assert_eq!(found.metadata.resource_version, late.metadata.resource_version);
    is_stuck.store(false, Ordering::SeqCst);
    task.await.unwrap();
    assert!(shop.secrets().get_opt("late-tls").await.unwrap().is_none());
}
