//! Leader election: one of several operators is active, and a graceful shutdown.

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
    // The clock of the runtime, which jumps to the next timer.
    let (began, start) = (cluster.now(), Instant::now());
    let clock = Arc::new(move || began + SignedDuration::try_from(start.elapsed()).unwrap());
    Leadership::new(cluster.client.clone(), NAMESPACE, "perennial", identity.to_owned(), clock)
}

async fn holder(cluster: &Cluster) -> Option<String> {
    let lease = Api::<Lease>::namespaced(cluster.client.clone(), NAMESPACE).get("perennial").await.unwrap();
    lease.spec.unwrap().holder_identity
}

#[tokio::test(start_paused = true)]
async fn a_stopping_leader_releases_its_lease_at_once() {
    let cluster = Cluster::embedded().await;
    let (mut one, mut other) = (leadership(&cluster, "one"), leadership(&cluster, "other"));
    one.acquire(|_| {}).await;
    assert_eq!(holder(&cluster).await.as_deref(), Some("one"));
    assert!(
        timeout(Duration::from_secs(600), async { tokio::join!(one.hold(), other.acquire(|_| {})) }).await.is_err()
    );
    assert_eq!(holder(&cluster).await.as_deref(), Some("one"), "a holder that renews keeps the lease");
    one.release().await.unwrap();
    let begun = Instant::now();
    other.acquire(|_| {}).await;
    assert!(begun.elapsed() < Duration::from_secs(30));
    assert_eq!(holder(&cluster).await.as_deref(), Some("other"));
    one.release().await.unwrap();
    assert_eq!(holder(&cluster).await.as_deref(), Some("other"), "a replica does not release the lease of another");
}

#[tokio::test(start_paused = true)]
async fn a_silent_leader_is_replaced_and_notices() {
    let cluster = Cluster::embedded().await;
    let (mut one, mut other) = (leadership(&cluster, "one"), leadership(&cluster, "other"));
    one.acquire(|_| {}).await;
    // The replica is gone, or its machine sleeps.
    let begun = Instant::now();
    other.acquire(|_| {}).await;
    let waited = begun.elapsed();
    assert!(Duration::from_secs(137) <= waited && waited < Duration::from_secs(200), "{waited:?}");
    assert_eq!(holder(&cluster).await.as_deref(), Some("other"));
    timeout(Duration::from_secs(60), one.hold()).await.expect("a replica that wakes up notices that another leads");
}

#[tokio::test]
async fn a_stopping_operator_ends_between_two_writes() {
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
async fn a_stopping_single_pass_ends_between_two_writes() {
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
async fn a_single_pass_fails_as_soon_as_the_holder_renews_the_lease() {
    let cluster = Cluster::embedded().await;
    let (mut one, mut other) = (leadership(&cluster, "one"), leadership(&cluster, "other"));
    one.acquire(|_| {}).await;
    let begun = Instant::now();
    let refused = tokio::select! {
        refused = other.acquire_soon() => refused,
        () = one.hold() => panic!("it keeps the lease"),
    };
    assert_eq!(refused, Err("one has the lease perennial, and renews it".to_owned()));
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    let (given, taken) = tokio::join!(one.release(), other.acquire_soon());
    assert_eq!((given.is_ok(), taken), (true, Ok(())));
}

#[tokio::test(start_paused = true)]
async fn a_single_pass_waits_for_the_lease_of_a_dead_holder_to_expire() {
    let cluster = Cluster::embedded().await;
    leadership(&cluster, "gone").acquire(|_| {}).await;
    let (mut other, begun) = (leadership(&cluster, "other"), Instant::now());
    other.acquire_soon().await.unwrap();
    let waited = begun.elapsed();
    assert!(Duration::from_secs(137) <= waited && waited < Duration::from_secs(145), "{waited:?}");
    assert_eq!(holder(&cluster).await.as_deref(), Some("other"));
    // The wait would take years, so it fails with the remaining time.
    let leases = Api::<Lease>::namespaced(cluster.client.clone(), NAMESPACE);
    let change = json!({"spec": {"holderIdentity": "gone", "leaseDurationSeconds": i32::MAX}});
    leases.patch("perennial", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
    let refused = leadership(&cluster, "third").acquire_soon().await.unwrap_err();
    assert!(refused.contains("gone has the lease perennial, which ends in 2147483647 s"), "{refused}");
}

/// Neither a local clock that is ahead nor times at the ends of the calendar change the duration of a lease.
#[tokio::test(start_paused = true)]
async fn a_lease_lasts_for_its_duration_with_any_clocks() {
    let leases = |cluster: &Cluster| Api::<Lease>::namespaced(cluster.client.clone(), NAMESPACE);
    for (renewed, ahead_hours) in [
        (None, 24 * 400),
        (None, -24 * 400),
        (Some("9999-12-30T22:00:00.000000Z"), 0),
        (Some("9999-12-30T22:00:00.000000Z"), 24 * 400),
        (Some("0001-01-01T00:00:00.000000Z"), 0),
    ] {
        let cluster = Cluster::embedded().await;
        leadership(&cluster, "one").acquire(|_| {}).await;
        if let Some(at) = renewed {
            let change = json!({"spec": {"renewTime": at, "acquireTime": at}});
            leases(&cluster).patch("perennial", &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        }
        let at = cluster.now() + SignedDuration::from_hours(ahead_hours);
        let client = cluster.client.clone();
        let mut other = Leadership::new(client, NAMESPACE, "perennial", "other".to_owned(), Arc::new(move || at));
        let begun = Instant::now();
        other.acquire(|_| {}).await;
        let waited = begun.elapsed();
        let expected = Duration::from_secs(137)..Duration::from_secs(200);
        assert!(expected.contains(&waited), "renewed {renewed:?}, {ahead_hours} h ahead: {waited:?}");
        assert_eq!(holder(&cluster).await.as_deref(), Some("other"));
    }
}

/// The new leader serves Services; the operator that lost the lease writes nothing, although one of its reads still runs.
#[tokio::test(start_paused = true)]
async fn an_operator_without_the_lease_serves_no_service() {
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
    lease.acquire(|_| {}).await;
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
    soon("the leader serves", || async { shop.secrets().get_opt("early-tls").await.unwrap().is_some() }).await;
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
