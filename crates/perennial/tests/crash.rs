//! `kill -9` in the middle of concurrent writes, and what is there afterwards.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod up;
}

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::up::{Up, directory};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, ListParams, ObjectMeta, PostParams, WatchEvent, WatchParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config, ResourceExt};

const WRITERS: usize = 8;
const ACKNOWLEDGED: usize = 200;
/// A slow disk takes some milliseconds for a write.
const PATIENCE: Duration = Duration::from_secs(60);

async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap()).unwrap()
}

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
async fn after_a_kill_everything_that_was_acknowledged_is_there_and_versions_go_on() {
    let top = directory();
    let data = top.path().join("data");
    let running = Up::start(&data, &[]);
    let maps: Api<ConfigMap> = Api::namespaced(client(&running.kubeconfig()).await, "default");
    let acknowledged = Arc::new(Mutex::new(BTreeMap::new()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let (maps, acknowledged) = (maps.clone(), acknowledged.clone());
            tokio::spawn(async move {
                for number in 0.. {
                    let name = format!("w{writer}-{number}");
                    let Ok(made) = maps.create(&PostParams::default(), &map(&name)).await else { return };
                    acknowledged.lock().unwrap().insert(name, version(&made));
                }
            })
        })
        .collect();
    let deadline = Instant::now() + PATIENCE;
    while acknowledged.lock().unwrap().len() < ACKNOWLEDGED {
        let count = acknowledged.lock().unwrap().len();
        assert!(writers.iter().any(|writer| !writer.is_finished()), "nobody writes any more after {count} writes");
        assert!(Instant::now() < deadline, "only {count} writes were acknowledged");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!running.stop("-KILL").success());
    for writer in writers {
        writer.await.unwrap();
    }

    let running = Up::start(&data, &[]);
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
    // A watch goes on from what a client has seen last …
    let last = list.metadata.resource_version.unwrap();
    let new = maps.create(&PostParams::default(), &map("after")).await.unwrap();
    assert!(acknowledged.values().all(|at| *at < version(&new)));
    let mut events = maps.watch(&WatchParams::default(), &last).await.unwrap().boxed();
    let Some(WatchEvent::Added(seen)) = soon(events.try_next()).await.unwrap() else { panic!("the new object") };
    assert_eq!(seen.name_any(), "after");
    // … and is told to start again where the server does not know any more what came in between.
    let first = acknowledged.values().min().unwrap().to_string();
    let mut events = maps.watch(&WatchParams::default(), &first).await.unwrap().boxed();
    let Some(WatchEvent::Error(error)) = soon(events.try_next()).await.unwrap() else { panic!("an error") };
    assert_eq!((error.code, error.reason.as_str()), (410, "Expired"));
}
