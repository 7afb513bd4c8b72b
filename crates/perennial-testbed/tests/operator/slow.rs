//! A slow server: minutes pass between an observation and its writes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, Request};
use jiff::Timestamp;
use kube_client::Client;
use kube_client::client::Body;
use perennial_api::annotations::{ISSUES, PUBLISHED};
use perennial_core::verify::{self, State};
use serde_json::Value;
use tower::service_fn;

use crate::cluster::{Cluster, PLANNER};

/// The seconds of a read, and of a write.
const READ: i64 = 3;
const WRITE: i64 = 40;

/// The recorded requests.
#[derive(Default)]
struct Seen {
    /// How many seconds a recorded time is before its write.
    early: Mutex<Vec<(String, i64)>>,
    /// The number of writes since the last observation, and its maximum.
    writes: AtomicUsize,
    most: AtomicUsize,
}

/// Returns the latest time of issue or publication in an object's annotations.
fn stamp(body: &[u8]) -> Option<Timestamp> {
    let object: Value = serde_json::from_slice(body).unwrap();
    let by_key = |name: &str| {
        let text = object["metadata"]["annotations"][name].as_str().unwrap_or("{}");
        let by_key: BTreeMap<String, Value> = serde_json::from_str(text).unwrap();
        by_key.into_values().collect::<Vec<_>>()
    };
    let instant = |value: &Value| value.as_str().unwrap().parse::<Timestamp>().unwrap();
    let issued = by_key(ISSUES).into_iter().flat_map(|it| it.as_array().unwrap().iter().map(instant).max());
    let published = by_key(PUBLISHED).into_iter();
    let published = published.flat_map(|it| it.as_object().unwrap().values().map(|it| instant(&it["at"])).max());
    issued.chain(published).max()
}

fn slow(cluster: &Cluster, seen: &Arc<Seen>) -> Client {
    let (client, clock, seen) = (cluster.client.clone(), cluster.now.clone(), seen.clone());
    let pass = |clock: &AtomicI64, seconds| clock.fetch_add(seconds, Ordering::Relaxed);
    let service = service_fn(move |request: Request<Body>| {
        let (client, clock, seen) = (client.clone(), clock.clone(), seen.clone());
        async move {
            if request.method() == Method::GET {
                pass(&clock, READ);
                if request.uri().path().ends_with("/pkis/cluster") {
                    seen.writes.store(0, Ordering::Relaxed);
                }
                return client.send(request).await;
            }
            let writes = seen.writes.fetch_add(1, Ordering::Relaxed) + 1;
            seen.most.fetch_max(writes, Ordering::Relaxed);
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await.unwrap();
            let now = Timestamp::from_second(clock.load(Ordering::Relaxed)).unwrap();
            if let Some(at) = stamp(&body) {
                let name = format!("{} {}", head.method, head.uri.path());
                seen.early.lock().unwrap().push((name, at.duration_until(now).as_secs()));
            }
            let answered = client.send(Request::from_parts(head, Body::from(body.to_vec()))).await;
            pass(&clock, WRITE);
            answered
        }
    });
    Client::new(service, "default")
}

#[tokio::test]
async fn recorded_times_are_those_of_the_write_and_not_of_the_observation() {
    let cluster = Cluster::embedded().await;
    let seen = Arc::new(Seen::default());
    let reconciler = cluster.reconciler_through(slow(&cluster, &seen));
    let mut written = 0;
    loop {
        let passed = reconciler.pass(&[]).await.unwrap();
        assert!(passed.failed.is_empty(), "{:?}", passed.failed);
        written += passed.written.len();
        if passed.written.is_empty() {
            break;
        }
    }
    assert!(written > 45, "only {written} writes");
    let early = seen.early.lock().unwrap().clone();
    assert!(early.len() > 40, "only {} say when", early.len());
    let wrong: Vec<_> = early.iter().filter(|(_, seconds)| *seconds != 0).collect();
    assert_eq!(wrong, Vec::<&(String, i64)>::new());
    // The first may take as long as it wants; after a minute the next one rests on a new look.
    assert_eq!(seen.most.load(Ordering::Relaxed), 2);
    let (passed, _) = cluster.pass().await;
    for edge in verify::verify(&PLANNER, &passed.observation.snapshot) {
        assert!(!matches!(edge.state, State::Broken(_)), "{edge:?}");
    }
}
