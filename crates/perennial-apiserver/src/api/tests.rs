//! Tests of the verbs on plain values.

mod endings;
mod rules;

use serde_json::json;

use super::*;
use crate::fixtures::{self, environment};

fn api() -> Api {
    Api::new(Store::memory(), environment())
}

fn at(plural: &str, namespace: &str, name: &str) -> Objects {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Objects {
        group: String::new(),
        version: "v1".to_owned(),
        plural: plural.to_owned(),
        namespace: some(namespace),
        name: some(name),
        subresource: None,
    }
}

fn definitions(name: &str) -> Objects {
    Objects { group: "apiextensions.k8s.io".to_owned(), ..at("customresourcedefinitions", "", name) }
}

async fn with_namespace() -> Api {
    let api = api();
    let namespace = json!({"metadata": {"name": "shop"}});
    api.create(&at("namespaces", "", ""), namespace, &WriteOptions::default()).await.unwrap();
    api
}

fn options() -> WriteOptions {
    WriteOptions::default()
}

#[tokio::test]
async fn an_object_is_created_read_updated_and_deleted() {
    let api = with_namespace().await;
    let secrets = at("secrets", "shop", "");
    let made = api.create(&secrets, json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}}), &options()).await;
    let made = made.unwrap().object;
    assert_eq!(made["type"], "Opaque");
    assert_eq!(made["data"], json!({"k": "dg=="}));
    assert_eq!(made["metadata"]["creationTimestamp"], "2026-03-01T12:00:00Z");
    assert_eq!(made["metadata"]["resourceVersion"], "2");
    let one = at("secrets", "shop", "a");
    assert_eq!(api.get(&one).unwrap(), made);
    let mut changed = made.clone();
    changed["data"] = json!({"k": "dw=="});
    let changed = api.update(&one, changed, &options()).await.unwrap().object;
    assert_eq!(changed["metadata"]["resourceVersion"], "3");
    assert_eq!(changed["metadata"]["uid"], made["metadata"]["uid"]);
    assert!(matches!(api.delete(&one, &Deletion::default()).await.unwrap(), Deleted::Gone(_)));
    assert_eq!(api.get(&one).unwrap_err().message, "secrets \"a\" not found");
}

#[tokio::test]
async fn a_write_that_changes_nothing_leaves_the_resource_version() {
    let api = with_namespace().await;
    let made = api.create(&at("configmaps", "shop", ""), json!({"metadata": {"name": "a"}}), &options()).await.unwrap();
    let again = api.update(&at("configmaps", "shop", "a"), made.object.clone(), &options()).await.unwrap();
    assert_eq!(again.object, made.object);
}

#[tokio::test]
async fn an_update_with_an_older_resource_version_is_rejected() {
    let api = with_namespace().await;
    let made = api.create(&at("configmaps", "shop", ""), json!({"metadata": {"name": "a"}}), &options()).await.unwrap();
    let one = at("configmaps", "shop", "a");
    let change = |text: &str| {
        let mut object = made.object.clone();
        object["data"] = json!({"k": text});
        object
    };
    api.update(&one, change("1"), &options()).await.unwrap();
    let refused = api.update(&one, change("2"), &options()).await.unwrap_err();
    assert_eq!((refused.code, refused.reason), (409, Reason::Conflict));
    // Without a resource version, the last write wins.
    let mut blind = change("3");
    remove(&mut blind, "resourceVersion");
    api.update(&one, blind, &options()).await.unwrap();
}

#[tokio::test]
async fn the_type_of_a_secret_is_immutable_and_tls_secrets_need_their_keys() {
    let api = with_namespace().await;
    let secrets = at("secrets", "shop", "");
    let tls = |data: Value| json!({"metadata": {"name": "t"}, "type": "kubernetes.io/tls", "data": data});
    let refused = api.create(&secrets, tls(json!({"tls.crt": ""})), &options()).await.unwrap_err();
    assert_eq!(refused.message, "Secret \"t\" is invalid: data[tls.key]: Required value");
    let made = api.create(&secrets, tls(json!({"tls.crt": "", "tls.key": ""})), &options()).await.unwrap();
    let mut other = made.object;
    other["type"] = "Opaque".into();
    let refused = api.update(&at("secrets", "shop", "t"), other, &options()).await.unwrap_err();
    assert_eq!(refused.message, "Secret \"t\" is invalid: type: Invalid value: \"Opaque\": field is immutable");
}

#[tokio::test]
async fn objects_need_an_existing_namespace() {
    let api = with_namespace().await;
    let made = |namespace: &str| at("configmaps", namespace, "");
    let refused = api.create(&made("nowhere"), json!({"metadata": {"name": "a"}}), &options()).await.unwrap_err();
    assert_eq!(refused.message, "namespaces \"nowhere\" not found");
    assert!(matches!(api.delete(&at("namespaces", "", "shop"), &Deletion::default()).await, Ok(Deleted::Waits(_))));
    let refused = api.create(&made("shop"), json!({"metadata": {"name": "a"}}), &options()).await.unwrap_err();
    assert_eq!(refused.reason, Reason::Forbidden);
}

#[tokio::test]
async fn names_are_generated_and_validated() {
    let api = with_namespace().await;
    let maps = at("configmaps", "shop", "");
    let made = api.create(&maps, json!({"metadata": {"generateName": "web-"}}), &options()).await.unwrap();
    let name = text(&made.object, "name").to_owned();
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");
    let wrong = api.create(&maps, json!({"metadata": {"name": "Web"}}), &options()).await.unwrap_err();
    assert_eq!(wrong.causes[0].field, "metadata.name");
    let none = api.create(&maps, json!({"metadata": {}}), &options()).await.unwrap_err();
    assert_eq!(none.code, 422);
    let twice = api.create(&maps, json!({"metadata": {"name": name}}), &options()).await.unwrap_err();
    assert_eq!(twice.reason, Reason::AlreadyExists);
}

#[tokio::test]
async fn a_finalizer_keeps_an_object_until_it_is_removed() {
    let api = with_namespace().await;
    let held = json!({"metadata": {"name": "a", "finalizers": ["test/hold"]}});
    api.create(&at("configmaps", "shop", ""), held, &options()).await.unwrap();
    let one = at("configmaps", "shop", "a");
    let Deleted::Waits(waiting) = api.delete(&one, &Deletion::default()).await.unwrap() else { panic!("it is held") };
    assert_eq!(waiting["metadata"]["deletionTimestamp"], "2026-03-01T12:00:00Z");
    let mut let_go = waiting;
    let_go["metadata"]["finalizers"] = json!([]);
    api.update(&one, let_go, &options()).await.unwrap();
    assert_eq!(api.get(&one).unwrap_err().reason, Reason::NotFound);
}

#[tokio::test]
async fn a_deletion_may_have_a_uid_precondition() {
    let api = with_namespace().await;
    api.create(&at("configmaps", "shop", ""), json!({"metadata": {"name": "a"}}), &options()).await.unwrap();
    let other = Deletion { uid: Some("another".to_owned()), ..Deletion::default() };
    let refused = api.delete(&at("configmaps", "shop", "a"), &other).await.unwrap_err();
    assert_eq!(refused.reason, Reason::Conflict);
}

#[tokio::test]
async fn a_dry_run_stores_nothing() {
    let api = with_namespace().await;
    let dry = WriteOptions { dry_run: true, ..options() };
    api.create(&at("configmaps", "shop", ""), json!({"metadata": {"name": "a"}}), &dry).await.unwrap();
    assert_eq!(api.get(&at("configmaps", "shop", "a")).unwrap_err().reason, Reason::NotFound);
}

#[tokio::test]
async fn a_long_list_comes_in_parts() {
    let api = with_namespace().await;
    let maps = at("configmaps", "shop", "");
    for number in 0..5 {
        let labels = json!({"even": (number % 2 == 0).to_string()});
        let body = json!({"metadata": {"name": format!("m{number}"), "labels": labels}});
        api.create(&maps, body, &options()).await.unwrap();
    }
    let names = |list: &List| list.items.iter().map(|item| text(item, "name").to_owned()).collect::<Vec<_>>();
    let first = api.list(&maps, &Selector::default(), None, Some(2)).unwrap();
    assert_eq!(names(&first), ["m0", "m1"]);
    let (after, remaining) = first.rest.unwrap();
    assert_eq!(remaining, 3);
    let second = api.list(&maps, &Selector::default(), Some(&after), None).unwrap();
    assert_eq!((names(&second), second.rest.is_none()), (vec!["m2".into(), "m3".into(), "m4".into()], true));
    let even = Selector::parse("even=true", "", &[]).unwrap();
    assert_eq!(names(&api.list(&maps, &even, None, None).unwrap()), ["m0", "m2", "m4"]);
}

#[tokio::test]
async fn a_definition_defines_a_resource() {
    let api = with_namespace().await;
    let definitions = definitions("");
    let schema = json!({"type": "object", "properties": {
        "spec": {"type": "object", "required": ["size"], "properties": {
            "size": {"type": "integer", "maximum": 9}, "wood": {"type": "string", "default": "oak"}}},
        "status": {"type": "object", "properties": {"full": {"type": "boolean"}}}}});
    let mut definition = fixtures::definition("shelves.shop.test", "Shelf", "Namespaced", &schema);
    definition["spec"]["versions"][0]["subresources"] = json!({"status": {}});
    api.create(&definitions, definition, &options()).await.unwrap();
    let shelves = |name: &str| Objects { group: "shop.test".to_owned(), ..at("shelves", "shop", name) };
    let shelf = |spec: Value| json!({"metadata": {"name": "a"}, "spec": spec, "status": {"full": true}});
    let refused = api.create(&shelves(""), shelf(json!({"size": 10})), &options()).await.unwrap_err();
    assert!(refused.message.starts_with("Shelf.shop.test \"a\" is invalid: spec.size: Invalid value"), "{refused}");
    let strict = WriteOptions { field_validation: FieldValidation::Strict, ..options() };
    let refused = api.create(&shelves(""), shelf(json!({"size": 1, "x": 2})), &strict).await.unwrap_err();
    assert!(refused.message.ends_with("strict decoding error: unknown field \"spec.x\""), "{refused}");
    let made = api.create(&shelves(""), shelf(json!({"size": 1, "x": 2})), &options()).await.unwrap();
    assert_eq!(made.warnings, ["unknown field \"spec.x\""]);
    assert_eq!(made.object["spec"], json!({"size": 1, "wood": "oak"}));
    assert_eq!((&made.object["status"], &made.object["metadata"]["generation"]), (&Value::Null, &json!(1)));
    // An update of a custom resource needs its resource version.
    let mut blind = made.object.clone();
    remove(&mut blind, "resourceVersion");
    let refused = api.update(&shelves("a"), blind, &options()).await.unwrap_err();
    assert_eq!(refused.causes[0].field, "metadata.resourceVersion");
    // The status subresource changes only the status, and an update never does.
    let mut with_status = made.object.clone();
    with_status["status"] = json!({"full": true});
    with_status["spec"]["size"] = 5.into();
    let at_status = Objects { subresource: Some("status".to_owned()), ..shelves("a") };
    let after = api.update(&at_status, with_status.clone(), &options()).await.unwrap().object;
    assert_eq!((&after["status"]["full"], &after["spec"]["size"]), (&json!(true), &json!(1)));
    assert_eq!(after["metadata"]["generation"], 1);
    let mut bigger = after;
    bigger["spec"]["size"] = 5.into();
    bigger["status"] = json!({});
    let after = api.update(&shelves("a"), bigger, &options()).await.unwrap().object;
    assert_eq!((&after["metadata"]["generation"], &after["status"]["full"]), (&json!(2), &json!(true)));
    // Without the definition there is no resource, and there are no objects of it.
    let one = Objects { name: Some("shelves.shop.test".to_owned()), ..definitions };
    assert!(matches!(api.delete(&one, &Deletion::default()).await, Ok(Deleted::Waits(_))));
    let refused = api.create(&shelves(""), shelf(json!({"size": 1})), &options()).await.unwrap_err();
    assert_eq!(refused.reason, Reason::MethodNotAllowed);
    api.collect().await.unwrap();
    assert_eq!(api.get(&shelves("a")).unwrap_err(), ApiError::no_such_path());
    assert!(api.get(&one).is_err());
    assert!(api.store().list("shelves.shop.test", None, None).1.is_empty());
}

#[tokio::test]
async fn a_definition_is_established_at_once_and_validated() {
    let api = with_namespace().await;
    let definitions = definitions("");
    let definition = fixtures::shelves();
    let made = api.create(&definitions, definition.clone(), &options()).await.unwrap().object;
    let conditions = made["status"]["conditions"].as_array().unwrap();
    let conditions: Vec<_> = conditions.iter().map(|it| (it["type"].as_str().unwrap(), &it["status"])).collect();
    assert_eq!(conditions, [("NamesAccepted", &json!("True")), ("Established", &json!("True"))]);
    assert_eq!(made["spec"]["names"]["singular"], "shelf");
    assert_eq!(made["status"]["storedVersions"], json!(["v1"]));

    let refused = async |pointer: &str, value: Value| {
        let mut wrong = definition.clone();
        *wrong.pointer_mut(pointer).unwrap() = value;
        let error = api.create(&definitions, wrong, &options()).await.unwrap_err();
        assert_eq!(error.reason, Reason::Invalid, "{error}");
        error.causes.iter().map(|cause| cause.field.clone()).collect::<Vec<_>>()
    };
    assert_eq!(refused("/metadata/name", json!("shelf.shop.test")).await, ["metadata.name"]);
    assert_eq!(refused("/spec/scope", json!("World")).await, ["spec.scope"]);
    assert_eq!(refused("/spec/versions", json!([])).await, ["spec.versions"]);
    assert_eq!(refused("/spec/versions/0/storage", json!(false)).await, ["spec.versions"]);
    assert_eq!(refused("/spec/versions/0/schema", json!({})).await, ["spec.versions[0].schema.openAPIV3Schema"]);
    let broken = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-validations": [{"rule": "self.("}]}});
    assert_eq!(refused("/spec/versions/0/schema", broken).await, ["spec.versions[0].schema.openAPIV3Schema"]);
}

async fn owned(api: &Api, name: &str, owner: &Value) -> Value {
    let reference = json!([{
        "apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]
    }]);
    let body = json!({"metadata": {"name": name, "ownerReferences": reference}});
    api.create(&at("configmaps", "shop", ""), body, &options()).await.unwrap().object
}

#[tokio::test]
async fn dependents_are_deleted_after_their_owner() {
    let api = with_namespace().await;
    let plain = json!({"metadata": {"name": "owner"}});
    let owner = api.create(&at("configmaps", "shop", ""), plain, &options()).await.unwrap().object;
    let child = owned(&api, "child", &owner).await;
    owned(&api, "grandchild", &child).await;
    assert_eq!(api.collect().await.unwrap(), 0);
    api.delete(&at("configmaps", "shop", "owner"), &Deletion::default()).await.unwrap();
    assert_eq!(api.collect().await.unwrap(), 2);
    assert_eq!(
        api.list(&at("configmaps", "shop", ""), &Selector::default(), None, None).unwrap().items,
        Vec::<Value>::new()
    );
}

#[tokio::test]
async fn an_owner_with_another_uid_is_not_the_owner() {
    let api = with_namespace().await;
    let plain = || json!({"metadata": {"name": "owner"}});
    let owner = api.create(&at("configmaps", "shop", ""), plain(), &options()).await.unwrap().object;
    owned(&api, "child", &owner).await;
    api.delete(&at("configmaps", "shop", "owner"), &Deletion::default()).await.unwrap();
    api.create(&at("configmaps", "shop", ""), plain(), &options()).await.unwrap();
    assert_eq!(api.collect().await.unwrap(), 1);
}

#[tokio::test]
async fn dependents_of_an_unknown_kind_of_owner_stay() {
    let api = with_namespace().await;
    let reference = json!([{"apiVersion": "far.test/v1", "kind": "Away", "name": "x", "uid": "u"}]);
    let body = json!({"metadata": {"name": "a", "ownerReferences": reference}});
    api.create(&at("configmaps", "shop", ""), body, &options()).await.unwrap();
    assert_eq!(api.collect().await.unwrap(), 0);
}

#[tokio::test]
async fn a_namespace_is_removed_when_it_is_empty() {
    let api = with_namespace().await;
    api.create(&at("configmaps", "shop", ""), json!({"metadata": {"name": "a"}}), &options()).await.unwrap();
    let held = json!({"metadata": {"name": "b", "finalizers": ["test/hold"]}});
    api.create(&at("configmaps", "shop", ""), held, &options()).await.unwrap();
    api.delete(&at("namespaces", "", "shop"), &Deletion::default()).await.unwrap();
    api.collect().await.unwrap();
    assert!(api.get(&at("configmaps", "shop", "a")).is_err());
    let mut held = api.get(&at("configmaps", "shop", "b")).unwrap();
    assert!(api.get(&at("namespaces", "", "shop")).is_ok());
    held["metadata"]["finalizers"] = json!([]);
    api.update(&at("configmaps", "shop", "b"), held, &options()).await.unwrap();
    api.collect().await.unwrap();
    assert_eq!(api.get(&at("namespaces", "", "shop")).unwrap_err().reason, Reason::NotFound);
}

#[tokio::test]
async fn the_collector_runs_after_changes() {
    let api = Arc::new(with_namespace().await);
    let collector = tokio::spawn(api.clone().collect_forever());
    let plain = json!({"metadata": {"name": "owner"}});
    let owner = api.create(&at("configmaps", "shop", ""), plain, &options()).await.unwrap().object;
    owned(&api, "child", &owner).await;
    api.delete(&at("configmaps", "shop", "owner"), &Deletion::default()).await.unwrap();
    let mut acknowledged = api.store().acknowledged();
    while api.get(&at("configmaps", "shop", "child")).is_ok() {
        acknowledged.changed().await.unwrap();
    }
    collector.abort();
}

fn on_disk(directory: &std::path::Path) -> Arc<Api> {
    Arc::new(Api::new(Store::open(&directory.join("db")).unwrap(), environment()))
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_patches_without_a_resource_version_all_succeed() {
    const WRITERS: usize = 12;
    const WRITES: usize = 10;
    let directory = tempfile::tempdir().unwrap();
    let api = on_disk(directory.path());
    api.create(&at("namespaces", "", ""), json!({"metadata": {"name": "shop"}}), &options()).await.unwrap();
    let map = json!({"metadata": {"name": "m"}});
    api.create(&at("configmaps", "shop", ""), map, &options()).await.unwrap();
    let writers = (0..WRITERS).map(|writer| {
        let api = api.clone();
        tokio::spawn(async move {
            for number in 0..WRITES {
                let patch = json!({"data": {format!("w{writer}-{number}"): "x"}});
                api.merge(&at("configmaps", "shop", "m"), &patch, &options()).await.unwrap();
                let applied = json!({
                    "apiVersion": "v1", "kind": "ConfigMap", "data": {format!("a{writer}"): number.to_string()}
                });
                let manager = WriteOptions { manager: format!("a{writer}"), ..options() };
                api.apply(&at("configmaps", "shop", "m"), applied, false, &manager).await.unwrap();
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.unwrap();
    }
    let data = &api.get(&at("configmaps", "shop", "m")).unwrap()["data"];
    assert_eq!(data.as_object().unwrap().len(), WRITERS * WRITES + WRITERS);
}

#[tokio::test]
async fn a_definition_is_served_even_if_its_request_was_cancelled() {
    let directory = tempfile::tempdir().unwrap();
    let api = on_disk(directory.path());
    let definitions = definitions("");
    let definition = fixtures::shelves();
    let options = options();
    tokio::select! {
        biased;
        _ = api.create(&definitions, definition, &options) => panic!("a disk takes longer than that"),
        () = tokio::task::yield_now() => {}
    }
    while api.store().revision() == 0 {
        tokio::task::yield_now().await;
    }
    assert!(api.registry().get("shop.test", "v1", "shelves").is_some());
}

#[tokio::test]
async fn namespaces_cannot_be_deleted_as_a_collection() {
    let api = with_namespace().await;
    let refused = api.delete_collection(&at("namespaces", "", ""), &Selector::default(), &Deletion::default()).await;
    assert_eq!(refused.unwrap_err().reason, Reason::MethodNotAllowed);
    assert!(api.get(&at("namespaces", "", "shop")).is_ok());
}
