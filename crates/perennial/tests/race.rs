//! Tests optimistic locking: of many writers with the same version, exactly one succeeds.

#![allow(clippy::print_stdout, reason = "prints the number of writes")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod client;
    pub(crate) mod up;
}

use std::time::{Duration, Instant};

use common::client::client;
use common::up::{Up, directory};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube_client::{Error, ResourceExt};
use serde_json::json;

const COUNTERS: usize = 4;
const WRITERS: usize = 16;

/// An acknowledged write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Won {
    counter: usize,
    /// The written version and the count.
    version: u64,
    count: u64,
    /// The version that the writer has read.
    seen: u64,
}

fn version(map: &ConfigMap) -> u64 {
    map.resource_version().unwrap().parse().unwrap()
}

fn count(map: &ConfigMap) -> u64 {
    map.data.as_ref().unwrap()["count"].parse().unwrap()
}

fn name(counter: usize) -> String {
    format!("counter-{counter}")
}

fn counter(name: &str, count: u64) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("count".to_owned(), count.to_string())].into()), ..ConfigMap::default() }
}

/// Increments counters until the deadline. Returns the successful writes and the number of conflicts.
async fn count_up(maps: Api<ConfigMap>, writer: usize, until: Instant) -> (Vec<Won>, usize) {
    let (mut won, mut lost) = (Vec::new(), 0);
    for turn in writer.. {
        if Instant::now() >= until {
            break;
        }
        let it = turn % COUNTERS;
        let mut read = maps.get(&name(it)).await.unwrap();
        let (seen, next) = (version(&read), count(&read) + 1);
        // As an update, and as a patch with a resource version.
        let outcome = if turn % 3 == 0 {
            let patch = json!({
                "metadata": {"resourceVersion": seen.to_string()}, "data": {"count": next.to_string()},
            });
            maps.patch(&name(it), &PatchParams::default(), &Patch::Merge(&patch)).await
        } else {
            read.data = Some([("count".to_owned(), next.to_string())].into());
            maps.replace(&name(it), &PostParams::default(), &read).await
        };
        match outcome {
            Ok(written) => {
                assert_eq!(count(&written), next);
                won.push(Won { counter: it, version: version(&written), count: next, seen });
            }
            Err(Error::Api(refusal)) if refusal.code == 409 => lost += 1,
            Err(error) => panic!("{}: {error}", name(it)),
        }
    }
    (won, lost)
}

async fn exactly_one_wins(time: Duration) {
    let top = directory();
    let running = Up::start(&top.path().join("data"), &[]);
    let maps: Api<ConfigMap> = Api::namespaced(client(&running.kubeconfig()).await, "default");
    let mut firsts = Vec::new();
    for it in 0..COUNTERS {
        firsts.push(version(&maps.create(&PostParams::default(), &counter(&name(it), 0)).await.unwrap()));
    }
    let until = Instant::now() + time;
    let mut writers = Vec::new();
    for writer in 0..WRITERS {
        // Separate connections, because requests of one connection are ordered.
        let maps: Api<ConfigMap> = Api::namespaced(client(&running.kubeconfig()).await, "default");
        writers.push(tokio::spawn(count_up(maps, writer, until)));
    }
    let (mut won, mut lost) = (Vec::new(), 0);
    for writer in writers {
        let (of_writer, losses) = writer.await.unwrap();
        won.extend(of_writer);
        lost += losses;
    }
    won.sort();
    let list = maps.list(&ListParams::default()).await.unwrap();
    for (it, first) in firsts.into_iter().enumerate() {
        let chain: Vec<Won> = won.iter().filter(|won| won.counter == it).copied().collect();
        let mut last = (first, 0);
        for (number, won) in chain.iter().enumerate() {
            // Each writer has read the previous write, so no write was lost.
            assert_eq!((won.seen, won.count), (last.0, number as u64 + 1), "{}: {won:?}", name(it));
            last = (won.version, won.count);
        }
        let found = list.items.iter().find(|map| map.name_any() == name(it)).unwrap();
        assert_eq!((version(found), count(found)), last, "{} is what was written last", name(it));
    }
    println!("{} writes won and {lost} were refused with 409 in {} s", won.len(), time.as_secs());
    assert!(won.len() > COUNTERS && lost > 0, "no conflicts: {} {lost}", won.len());
    assert!(running.stop("-INT").success());
}

#[tokio::test]
async fn exactly_one_of_the_writers_with_the_same_version_succeeds() {
    exactly_one_wins(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: `make test-long`"]
async fn exactly_one_of_the_writers_with_the_same_version_succeeds_for_a_minute() {
    exactly_one_wins(Duration::from_secs(60)).await;
}
