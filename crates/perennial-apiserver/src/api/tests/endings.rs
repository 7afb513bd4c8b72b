//! Tests of deletion.

use std::sync::Mutex;

use futures_util::FutureExt;

use super::*;

/// An API with a second writer: when armed, that writer changes every object of a namespace in the middle of the
/// next request, when the request reads the clock.
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
            // An object with a finalizer makes the request read the clock.
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

/// Returns true if the object is being deleted and has the change of the second writer.
fn is_both(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string() && object["data"]["meddled"] == "yes"
}

#[tokio::test]
async fn a_deletion_that_lost_a_race_is_retried() {
    let world = Meddled::new().await;
    let one = at("configmaps", "shop", "a");
    world.arm();
    let Deleted::Waits(object) = world.api.delete(&one, &Deletion::default()).await.unwrap() else { panic!("held") };
    assert!(is_both(&object), "{object}");
}

#[tokio::test]
async fn a_deletion_with_a_resource_version_is_rejected_after_a_lost_race() {
    let world = Meddled::new().await;
    let one = at("configmaps", "shop", "a");
    let seen = text(&world.api.get(&one).unwrap(), "resourceVersion").to_owned();
    world.arm();
    let refused = world.api.delete(&one, &Deletion { resource_version: Some(seen), ..Deletion::default() }).await;
    assert_eq!(refused.unwrap_err().reason, Reason::Conflict);
    assert!(world.api.get(&one).unwrap()["metadata"]["deletionTimestamp"].is_null());
}

#[tokio::test]
async fn a_collection_deletion_that_lost_races_is_retried() {
    let world = Meddled::new().await;
    world.arm();
    let (all, selector) = (at("configmaps", "shop", ""), Selector::default());
    let deleted = world.api.delete_collection(&all, &selector, &Deletion::default()).await.unwrap();
    assert_eq!(deleted.len(), 2);
    let left = world.api.list(&all, &selector, None, None).unwrap().items;
    assert!(left.len() == 2 && left.iter().all(is_both), "{left:?}");
}

/// Creates objects with owners: `b<a` is a blocking dependent of `a`, `b-a` a dependent, and `!` has a finalizer.
async fn family(members: &str) -> Api {
    let api = with_namespace().await;
    for member in members.split_whitespace() {
        let (member, held) = member.strip_suffix('!').map_or((member, false), |member| (member, true));
        let (name, owners) = member.split_at(1);
        let finalizers = if held { json!(["shop.test/hold"]) } else { json!([]) };
        let map = json!({"metadata": {"name": name, "finalizers": finalizers}});
        api.create(&at("configmaps", "shop", ""), map, &options()).await.unwrap();
        let owner = |it: &[u8]| (it[0] == b'<', char::from(it[1]).to_string());
        own(&api, name, &owners.as_bytes().chunks(2).map(owner).collect::<Vec<_>>()).await;
    }
    api
}

async fn own(api: &Api, name: &str, owners: &[(bool, String)]) {
    let reference = |(blocks, owner): &(bool, String)| {
        let uid = text(&api.get(&at("configmaps", "shop", owner)).unwrap(), "uid").to_owned();
        json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid, "blockOwnerDeletion": blocks})
    };
    let references: Vec<Value> = owners.iter().map(reference).collect();
    let patch = json!({"metadata": {"ownerReferences": references}});
    api.merge(&at("configmaps", "shop", name), &patch, &options()).await.unwrap();
}

/// Collects garbage, and returns the remaining objects: with `+` those that are being deleted.
async fn left(api: &Api) -> String {
    api.collect().await.unwrap();
    let items = api.list(&at("configmaps", "shop", ""), &Selector::default(), None, None).unwrap().items;
    let name = |item: &Value| {
        let is_going = item["metadata"]["deletionTimestamp"].is_string();
        format!("{}{}", text(item, "name"), if is_going { "+" } else { "" })
    };
    items.iter().map(name).collect::<Vec<_>>().join(" ")
}

async fn delete(api: &Api, name: &str, propagation: Propagation) -> Deleted {
    let deletion = Deletion { propagation: Some(propagation), ..Deletion::default() };
    api.delete(&at("configmaps", "shop", name), &deletion).await.unwrap()
}

async fn release(api: &Api, name: &str) {
    let patch = json!({"metadata": {"finalizers": null}});
    api.merge(&at("configmaps", "shop", name), &patch, &options()).await.unwrap();
}

#[tokio::test]
async fn in_the_foreground_an_owner_waits_for_blocking_dependents() {
    let api = family("a b<a! c-a d").await;
    let Deleted::Waits(owner) = delete(&api, "a", Propagation::Foreground).await else { panic!("it waits") };
    assert_eq!(owner["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    assert_eq!(left(&api).await, "a+ b+ d");
    release(&api, "b").await;
    assert_eq!(left(&api).await, "d");
}

#[tokio::test]
async fn in_the_foreground_other_dependents_may_stay_longer() {
    let api = family("a b-a!").await;
    delete(&api, "a", Propagation::Foreground).await;
    assert_eq!(left(&api).await, "b+");
}

#[tokio::test]
async fn in_the_foreground_the_last_in_a_chain_is_deleted_first() {
    let api = family("a b<a c<b!").await;
    delete(&api, "a", Propagation::Foreground).await;
    assert_eq!(left(&api).await, "a+ b+ c+");
    let between = api.get(&at("configmaps", "shop", "b")).unwrap();
    assert_eq!(between["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    release(&api, "c").await;
    assert_eq!(left(&api).await, "");
}

#[tokio::test]
async fn a_dependent_with_another_owner_stays_and_does_not_block() {
    let api = family("a b c<a<b").await;
    delete(&api, "a", Propagation::Foreground).await;
    assert_eq!(left(&api).await, "b c");
    let kept = api.get(&at("configmaps", "shop", "c")).unwrap();
    let owners: Vec<&Value> =
        kept["metadata"]["ownerReferences"].as_array().unwrap().iter().map(|it| &it["name"]).collect();
    assert_eq!(owners, ["b"]);
}

#[tokio::test]
async fn objects_that_own_each_other_are_deleted_together() {
    let api = family("a b<a").await;
    own(&api, "a", &[(true, "b".to_owned())]).await;
    delete(&api, "a", Propagation::Foreground).await;
    assert_eq!(left(&api).await, "");
}

#[tokio::test]
async fn an_object_that_waits_in_the_foreground_may_be_deleted_at_once() {
    let api = family("a b<a!").await;
    delete(&api, "a", Propagation::Foreground).await;
    assert!(matches!(delete(&api, "a", Propagation::Background).await, Deleted::Gone(_)));
    assert_eq!(left(&api).await, "b+");
    // An object that was deleted in the foreground stays so if a later deletion has no propagation policy.
    let api = family("a b<a!").await;
    let patch = json!({"metadata": {"finalizers": ["foregroundDeletion"]}});
    api.merge(&at("configmaps", "shop", "a"), &patch, &options()).await.unwrap();
    api.delete(&at("configmaps", "shop", "a"), &Deletion::default()).await.unwrap();
    assert_eq!(left(&api).await, "a+ b+");
}

#[tokio::test]
async fn a_deleted_namespace_removes_objects_that_wait_for_dependents() {
    let api = family("a b<a").await;
    delete(&api, "a", Propagation::Foreground).await;
    let whole = Deletion { propagation: Some(Propagation::Foreground), ..Deletion::default() };
    let Deleted::Waits(namespace) = api.delete(&at("namespaces", "", "shop"), &whole).await.unwrap() else { panic!() };
    assert_eq!(namespace["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    api.collect().await.unwrap();
    assert_eq!(api.get(&at("namespaces", "", "shop")).unwrap_err().reason, Reason::NotFound);
}
