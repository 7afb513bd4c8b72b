//! A controller, a reflector and a watcher of `kube` on the embedded server, in one process, for a simulated year.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kube_client::{Client, Resource, ResourceExt};
use kube_runtime::controller::{Action, Controller};
use kube_runtime::{WatchStreamExt, reflector, watcher};
use perennial_apiserver::api::Api as Server;
use perennial_apiserver::environment::{Environment, counting};
use perennial_apiserver::http::router;
use perennial_apiserver::store::Store;
use tokio::time::Instant;

const OBJECTS: usize = 100;
const LIFE: SignedDuration = SignedDuration::from_hours(30 * 24);
/// A certificate is renewed when this much of its validity is left.
const MARGIN: SignedDuration = SignedDuration::from_hours(10 * 24);
const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// The state of the controller, and its actions.
struct World {
    client: Client,
    start: Instant,
    renewals: AtomicUsize,
    late: Mutex<Vec<String>>,
}

impl World {
    fn now(&self) -> Timestamp {
        now(self.start)
    }
}

fn now(start: Instant) -> Timestamp {
    let began: Timestamp = "2026-03-01T12:00:00Z".parse().unwrap();
    began + SignedDuration::try_from(start.elapsed()).unwrap()
}

/// A server on the paused clock of the runtime, which jumps to the next timer.
fn serve(start: Instant) -> Client {
    let server = Arc::new(Server::new(Store::memory(), Environment::new(move || now(start), counting())));
    tokio::spawn(server.clone().collect_forever());
    Client::new(router(server), "default")
}

const NOT_AFTER: &str = "test/not-after";

fn not_after(secret: &Secret) -> Option<Timestamp> {
    secret.annotations().get(NOT_AFTER)?.parse().ok()
}

async fn reconcile(map: Arc<ConfigMap>, world: Arc<World>) -> Result<Action, kube_client::Error> {
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), "shop");
    let found = secrets.get_opt(&map.name_any()).await?;
    let now = world.now();
    let due = |end: Timestamp| end - MARGIN;
    let end = match found.as_ref().and_then(not_after) {
        Some(end) if now < due(end) => end,
        found => {
            if let Some(end) = found.filter(|end| *end <= now) {
                world.late.lock().unwrap().push(format!("{} ended at {end}", map.name_any()));
            }
            let end = now + LIFE;
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(map.name_any()),
                    owner_references: Some(vec![map.controller_owner_ref(&()).unwrap()]),
                    annotations: Some(BTreeMap::from([(NOT_AFTER.to_owned(), end.to_string())])),
                    ..ObjectMeta::default()
                },
                ..Secret::default()
            };
            secrets.patch(&map.name_any(), &PatchParams::apply("renewer"), &Patch::Apply(secret)).await?;
            world.renewals.fetch_add(1, Ordering::Relaxed);
            end
        }
    };
    Ok(Action::requeue(Duration::try_from(now.duration_until(due(end))).unwrap_or_default()))
}

#[tokio::test(start_paused = true)]
async fn a_controller_renews_in_time_for_a_year() {
    let start = Instant::now();
    let client = serve(start);
    let namespace = Namespace {
        metadata: ObjectMeta { name: Some("shop".to_owned()), ..ObjectMeta::default() },
        ..Namespace::default()
    };
    Api::all(client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "shop");
    let secrets: Api<Secret> = Api::namespaced(client.clone(), "shop");
    // Without a deadline of their own, watches do not wake the clock.
    let quiet = watcher::Config::default().timeout(0);
    let world = Arc::new(World { client, start, renewals: AtomicUsize::new(0), late: Mutex::new(Vec::new()) });
    let running = Controller::new(maps.clone(), quiet.clone())
        .owns(secrets.clone(), quiet.clone())
        .run(reconcile, |_, error, _| panic!("{error}"), world.clone())
        .for_each(async |done| drop(done.unwrap()));
    let running = tokio::spawn(running);
    let (seen, writer) = reflector::store::<Secret>();
    let events = watcher(secrets.clone(), quiet).default_backoff();
    let reflecting = tokio::spawn(reflector(writer, events).applied_objects().try_for_each(async |_| Ok(())));

    for number in 0..OBJECTS {
        let metadata = ObjectMeta { name: Some(format!("m{number}")), ..ObjectMeta::default() };
        maps.create(&PostParams::default(), &ConfigMap { metadata, ..ConfigMap::default() }).await.unwrap();
    }
    tokio::time::sleep(YEAR).await;

    // Every 20 days, from the first day on.
    assert_eq!(world.renewals.load(Ordering::Relaxed), OBJECTS * (1 + 365 / 20));
    assert_eq!(*world.late.lock().unwrap(), Vec::<String>::new());
    assert_eq!(seen.state().len(), OBJECTS);
    assert!(seen.state().iter().all(|secret| not_after(secret).unwrap() > world.now()));

    maps.delete("m0", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(secrets.get_opt("m0").await.unwrap(), None);
    assert_eq!(seen.state().len(), OBJECTS - 1);
    running.abort();
    reflecting.abort();
}
