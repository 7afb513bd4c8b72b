//! Tests durability: `kill -9` during concurrent writes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod client;
    pub(crate) mod up;
}

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::client::client;
use common::up::{Up, directory};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::ResourceExt;
use kube_client::api::{Api, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};

const WRITERS: usize = 8;
const ACKNOWLEDGED: usize = 200;
/// A slow disk takes some milliseconds for a write.
const PATIENCE: Duration = Duration::from_secs(60);

fn map(name: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("text".to_owned(), name.repeat(100))].into()), ..ConfigMap::default() }
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, future).await.expect("the server answers")
}

fn version(map: &ConfigMap) -> u64 {
    map.resource_version().unwrap().parse().unwrap()
}

#[tokio::test]
async fn after_a_kill_every_acknowledged_write_exists_and_versions_increase() {
    let top = directory();
    killed_while_it_writes(&top.path().join("data"), 0).await;
}

/// Kills a server on the same database forty times, after more writes each time.
#[tokio::test]
#[ignore = "takes minutes: `make test-long`"]
async fn no_acknowledged_write_is_lost_in_forty_kills() {
    let top = directory();
    for round in 0..40 {
        killed_while_it_writes(&top.path().join("data"), round).await;
    }
}

async fn killed_while_it_writes(data: &Path, round: usize) {
    let running = Up::start(data, &[]);
    let maps: Api<ConfigMap> = Api::namespaced(client(&running.kubeconfig()).await, "default");
    let acknowledged = Arc::new(Mutex::new(BTreeMap::new()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (maps, acknowledged) = (maps.clone(), acknowledged.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    let name = format!("w{round}-{writer}-{number}");
                    let Ok(made) = maps.create(&PostParams::default(), &map(&name)).await else { return };
                    acknowledged.lock().unwrap().insert(name, version(&made));
                }
            })
        })
        .collect();
    let deadline = Instant::now() + PATIENCE;
    while acknowledged.lock().unwrap().len() < ACKNOWLEDGED + 13 * round {
        let count = acknowledged.lock().unwrap().len();
        assert!(writers.iter().any(|writer| !writer.is_finished()), "no writer runs after {count} writes");
        assert!(Instant::now() < deadline, "only {count} writes were acknowledged");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!running.stop("-KILL").success());
    for writer in writers {
        writer.await.unwrap();
    }

    let running = Up::start(data, &[]);
    let maps: Api<ConfigMap> = Api::namespaced(client(&running.kubeconfig()).await, "default");
    let list = maps.list(&ListParams::default()).await.unwrap();
    let found: BTreeMap<String, u64> = list.items.iter().map(|map| (map.name_any(), version(map))).collect();
    let acknowledged = acknowledged.lock().unwrap().clone();
    for (name, at) in &acknowledged {
        assert_eq!(found.get(name), Some(at), "{name} was acknowledged");
    }
    for found in &list.items {
        assert_eq!(found.data, map(&found.name_any()).data, "no half write");
    }
    // A watch continues from the last version of a client …
    let last = list.metadata.resource_version.unwrap();
    let after = format!("after-{round}");
    let new = maps.create(&PostParams::default(), &map(&after)).await.unwrap();
    assert!(acknowledged.values().all(|at| *at < version(&new)));
    let mut events = maps.watch(&WatchParams::default(), &last).await.unwrap().boxed();
    let Some(WatchEvent::Added(seen)) = soon(events.try_next()).await.unwrap() else { panic!("the new object") };
    assert_eq!(seen.name_any(), after);
    // … and gets 410 if the server no longer has the changes in between.
    let first = acknowledged.values().min().unwrap().to_string();
    let mut events = maps.watch(&WatchParams::default(), &first).await.unwrap().boxed();
    let Some(WatchEvent::Error(error)) = soon(events.try_next()).await.unwrap() else { panic!("an error") };
    assert_eq!((error.code, error.reason.as_str()), (410, "Expired"));
}
