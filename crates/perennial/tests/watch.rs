//! Tests watches during many random writes, reconnects and `kill -9`: no event is lost, repeated or out of order.

#![allow(clippy::print_stdout, reason = "prints the number of checked events")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common {
    pub(crate) mod client;
    pub(crate) mod history;
    pub(crate) mod up;
}

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::client::client;
use common::history::{Chance, Event, History, Kind, Listed, Seen, state};
use common::up::{Up, directory};
use futures_util::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::ConfigMap;
use kube_client::api::{Api, DeleteParams, ListParams, ObjectMeta, PostParams, Preconditions, WatchEvent, WatchParams};
use kube_client::{Error, ResourceExt};
use tokio::sync::watch;
use tokio::time::timeout;

const WRITERS: usize = 8;
const WATCHERS: usize = 6;
const NAMES: u64 = 60;
/// The last written object. A watcher that has seen it has seen all writes.
const LAST: &str = "zz-last";
const PATIENCE: Duration = Duration::from_secs(120);

/// The API of the running server; none while no server runs.
type Server = watch::Receiver<Option<Api<ConfigMap>>>;

fn map(name: &str, value: &str) -> ConfigMap {
    let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
    ConfigMap { metadata, data: Some([("v".to_owned(), value.to_owned())].into()), ..ConfigMap::default() }
}

fn version(map: &ConfigMap) -> u64 {
    map.resource_version().unwrap().parse().unwrap()
}

fn value(map: &ConfigMap) -> String {
    map.data.as_ref().unwrap()["v"].clone()
}

async fn running(server: &mut Server) -> Api<ConfigMap> {
    let found = timeout(PATIENCE, server.wait_for(Option::is_some)).await.expect("a server starts").unwrap();
    found.clone().unwrap()
}

/// Creates, updates and deletes random objects until this number of writes was acknowledged.
async fn write(mut server: Server, writer: u64, history: Arc<History>, goal: usize, done: Arc<AtomicUsize>) {
    let mut chance = Chance::new(writer);
    for number in 0.. {
        if done.load(Ordering::Relaxed) >= goal {
            return;
        }
        let maps = running(&mut server).await;
        let (name, new) = (format!("m{:02}", chance.below(NAMES)), format!("w{writer}-{number}"));
        let Ok(found) = maps.get_opt(&name).await else { continue };
        let outcome = match found {
            None => {
                history.sends(&name, &new);
                maps.create(&PostParams::default(), &map(&name, &new)).await.map(|made| Some(version(&made)))
            }
            Some(mut found) if chance.below(4) > 0 => {
                history.sends(&name, &new);
                found.data = Some([("v".to_owned(), new.clone())].into());
                maps.replace(&name, &PostParams::default(), &found).await.map(|it| Some(version(&it)))
            }
            Some(found) => {
                let seen = version(&found);
                let preconditions = Preconditions { resource_version: found.resource_version(), uid: None };
                let only = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
                history.sends_delete(&name, seen);
                match maps.delete(&name, &only).await {
                    Ok(_) => history.deleted(&name, seen),
                    Err(Error::Api(refusal)) => {
                        assert!(matches!(refusal.code, 404 | 409), "{name}: {refusal:?}");
                        history.refused_delete(&name, seen);
                        continue;
                    }
                    // The result of the write is unknown.
                    Err(_) => continue,
                }
                done.fetch_add(1, Ordering::Relaxed);
                continue;
            }
        };
        match outcome {
            Ok(written) => {
                history.wrote(&name, written.unwrap(), &new);
                done.fetch_add(1, Ordering::Relaxed);
            }
            Err(Error::Api(refusal)) => {
                assert!(matches!(refusal.code, 404 | 409), "{name}: {refusal:?}");
                history.refused(&new);
            }
            Err(_) => {}
        }
    }
}

/// Lists and watches until it sees the last object. Returns all events in order, and the number of repeated reads.
async fn follow(mut server: Server, watcher: usize, history: Arc<History>) -> (Vec<Seen>, usize) {
    let mut chance = Chance::new(1000 + watcher as u64);
    let mut seen: Vec<Seen> = Vec::new();
    // The version from which to continue; none if the watcher must list.
    let mut cursor: Option<u64> = None;
    let mut read_again = 0;
    loop {
        let maps = running(&mut server).await;
        let Some(known) = cursor else {
            let began = Instant::now();
            let Ok(list) = maps.list(&ListParams::default()).await else { continue };
            let at: u64 = list.metadata.resource_version.unwrap().parse().unwrap();
            let ours = list.items.iter().filter(|map| history.is_ours(&map.name_any()));
            let objects = ours.map(|map| (map.name_any(), (version(map), value(map)))).collect();
            seen.push(Seen::Listed(Listed { at, objects, began }));
            cursor = Some(at);
            continue;
        };
        if state(&seen).contains_key(LAST) {
            return (seen, read_again);
        }
        // Some watchers start from an earlier version and get the same events again.
        let events: Vec<Event> = seen.iter().rev().map_while(Seen::event).take(500).cloned().collect();
        let back = if watcher % 2 == 1 { chance.below(events.len() as u64 + 1) as usize } else { 0 };
        let from = if back == 0 { known } else { events.get(back).map_or(known, |event| event.version) };
        let mut expected: Vec<Event> = events.into_iter().take_while(|event| event.version > from).collect();
        let Ok(stream) = maps.watch(&WatchParams::default(), &from.to_string()).await else { continue };
        let mut stream = stream.boxed();
        // Watchers with an even number stay connected; the others reconnect.
        let reads = if watcher % 2 == 1 { chance.below(400) } else { u64::MAX };
        for _ in 0..reads {
            // A slow reader still gets all events.
            if watcher == 2 && chance.below(20) == 0 {
                tokio::time::sleep(Duration::from_millis(30)).await;
            }
            let Ok(Ok(Some(event))) = timeout(Duration::from_secs(5), stream.try_next()).await else { break };
            let (kind, map) = match event {
                WatchEvent::Added(map) => (Kind::Added, map),
                WatchEvent::Modified(map) => (Kind::Modified, map),
                WatchEvent::Deleted(map) => (Kind::Deleted, map),
                WatchEvent::Bookmark(_) => continue,
                WatchEvent::Error(error) => {
                    assert_eq!(error.code, 410, "{error:?}");
                    cursor = None;
                    break;
                }
            };
            if !history.is_ours(&map.name_any()) {
                continue;
            }
            let event = Event { version: version(&map), kind, name: map.name_any(), value: value(&map) };
            if let Some(before) = expected.pop() {
                assert_eq!(event, before, "watcher {watcher} reads from {from} what it has read before");
                read_again += 1;
                continue;
            }
            cursor = Some(event.version);
            let is_last = event.name == LAST;
            seen.push(Seen::Event(event));
            if is_last {
                return (seen, read_again);
            }
        }
    }
}

/// Runs writers and watchers for some rounds. Each round ends with `kill -9`.
async fn followed(data: &Path, rounds: usize, writes: usize) {
    let (sender, server) = watch::channel(None);
    let history = Arc::new(History::default());
    let watchers: Vec<_> =
        (0..WATCHERS).map(|watcher| tokio::spawn(follow(server.clone(), watcher, history.clone()))).collect();
    let begun = Instant::now();
    let mut up = None;
    let mut acknowledged = 0;
    for round in 0..=rounds {
        let started = Up::start(data, &[]);
        let maps: Api<ConfigMap> = Api::namespaced(client(&started.kubeconfig()).await, "default");
        sender.send_replace(Some(maps));
        up = Some(started);
        if round == rounds {
            break;
        }
        let done = Arc::new(AtomicUsize::new(0));
        // Writers run longer than the server, so it is killed during writes.
        let (mut writers, goal) = (Vec::new(), writes + 1_000_000);
        for writer in 0..WRITERS as u64 {
            let id = round as u64 * WRITERS as u64 + writer;
            writers.push(tokio::spawn(write(server.clone(), id, history.clone(), goal, done.clone())));
        }
        let deadline = Instant::now() + PATIENCE + Duration::from_millis(20) * u32::try_from(writes).unwrap();
        while done.load(Ordering::Relaxed) < writes {
            assert!(Instant::now() < deadline, "round {round}: only {done:?} writes were acknowledged");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(!up.take().unwrap().stop("-KILL").success());
        sender.send_replace(None);
        // Stop tasks that wait for the next server or for an answer.
        done.fetch_add(goal, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(1)).await;
        for writer in &writers {
            writer.abort();
        }
        for writer in writers {
            drop(writer.await);
        }
        acknowledged += done.load(Ordering::Relaxed) - goal;
    }
    let maps = server.borrow().clone().unwrap();
    history.sends(LAST, "last");
    let made = maps.create(&PostParams::default(), &map(LAST, "last")).await.unwrap();
    history.wrote(LAST, version(&made), "last");
    let list = maps.list(&ListParams::default()).await.unwrap();
    let ours = list.items.iter().filter(|map| history.is_ours(&map.name_any()));
    let last = ours.map(|map| (map.name_any(), (version(map), value(map)))).collect();
    let (mut events, mut lists, mut read_again) = (0, 0, 0);
    for (number, watcher) in watchers.into_iter().enumerate() {
        let (seen, again) = timeout(PATIENCE, watcher).await.expect("a watcher comes to the end").unwrap();
        history.check(number, &seen);
        assert_eq!(state(&seen), last, "watcher {number} knows what is there in the end");
        events += seen.iter().filter(|seen| seen.event().is_some()).count();
        lists += seen.iter().filter(|seen| seen.event().is_none()).count();
        read_again += again;
    }
    println!(
        "{acknowledged} writes were acknowledged, {events} events and {lists} lists were seen by {WATCHERS} watchers, and {read_again} \
         events were read again, with {rounds} kills in {} s",
        begun.elapsed().as_secs()
    );
    assert!(events > acknowledged && read_again > 0, "{events} events, {read_again} of them again");
    assert!(up.unwrap().stop("-INT").success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_get_every_event_once_and_in_order() {
    let top = directory();
    followed(&top.path().join("data"), 1, 600).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: `make test-long`"]
async fn watchers_get_every_event_once_and_in_order_through_kills() {
    let top = directory();
    followed(&top.path().join("data"), 6, 5_000).await;
}
