//! The end of objects.

use std::sync::Mutex;

use futures_util::FutureExt;

use super::*;

/// An API on whose objects somebody else works, too: armed, it changes every object of a namespace in the middle of the
/// next request, when that asks for the time.
struct Meddled {
    api: Api,
    armed: Arc<Mutex<bool>>,
}

impl Meddled {
    async fn new() -> Meddled {
        let (store, armed) = (Store::memory(), Arc::new(Mutex::new(false)));
        let meddler = (store.clone(), armed.clone());
        let now = move || {
            let (store, armed) = &meddler;
            if std::mem::take(&mut *armed.lock().unwrap()) {
                meddle(store);
            }
            "2026-03-01T12:00:00Z".parse().unwrap()
        };
        let api = Api::new(store, Environment::new(now, || [7; 16]));
        api.create(&at("namespaces", "", ""), json!({"metadata": {"name": "shop"}}), &options()).await.unwrap();
        for name in ["a", "b"] {
            // Who holds it makes the request ask for the time.
            let map = json!({"metadata": {"name": name, "finalizers": ["shop.test/hold"]}});
            api.create(&at("configmaps", "shop", ""), map, &options()).await.unwrap();
        }
        Meddled { api, armed }
    }

    fn arm(&self) {
        *self.armed.lock().unwrap() = true;
    }
}

fn meddle(store: &Store) {
    for (key, stored) in store.list("configmaps", Some("shop"), None).1 {
        let mut object: Value = serde_json::from_slice(&stored.body).unwrap();
        object["data"] = json!({"meddled": "yes"});
        let body = Some(object.to_string().into_bytes().into());
        let write = Write { key, expect: Expect::Revision(stored.revision), body };
        store.write(write).now_or_never().expect("without a disk there is nothing to wait for").unwrap();
    }
}

/// Whether it is to be deleted, and is what the meddler made of it.
fn is_both(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string() && object["data"]["meddled"] == "yes"
}

#[tokio::test]
async fn a_deletion_that_lost_a_race_is_made_again() {
    let world = Meddled::new().await;
    let one = at("configmaps", "shop", "a");
    world.arm();
    let Deleted::Waits(object) = world.api.delete(&one, &Deletion::default()).await.unwrap() else { panic!("held") };
    assert!(is_both(&object), "{object}");
}

#[tokio::test]
async fn a_deletion_of_one_state_is_refused_after_a_lost_race() {
    let world = Meddled::new().await;
    let one = at("configmaps", "shop", "a");
    let seen = text(&world.api.get(&one).unwrap(), "resourceVersion").to_owned();
    world.arm();
    let refused = world.api.delete(&one, &Deletion { resource_version: Some(seen), ..Deletion::default() }).await;
    assert_eq!(refused.unwrap_err().reason, Reason::Conflict);
    assert!(world.api.get(&one).unwrap()["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn a_deletion_of_many_that_lost_races_is_made_again() {
    let world = Meddled::new().await;
    world.arm();
    let (all, selector) = (at("configmaps", "shop", ""), Selector::default());
    let deleted = world.api.delete_collection(&all, &selector, &Deletion::default()).await.unwrap();
    assert_eq!(deleted.len(), 2);
    assert!(deleted.iter().all(is_both), "{deleted:?}");
}
