//! Requests that exceed a limit.

use std::path::Path;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::*;
use crate::limits::{LIST_BYTES, LIST_READ, OBJECT_BYTES, OBJECT_DEPTH, WATCH_PAGE};

const SHELVES: &str = "/apis/shop.test/v1/shelves";
const APPLY: [(&str, &str); 1] = [("content-type", "application/apply-patch+yaml")];
const STRATEGIC: &str = "application/strategic-merge-patch+json";

/// Returns a server with a resource whose objects accept any fields.
async fn free_form() -> Router {
    let service = shop().await;
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let definition = fixtures::definition("shelves.shop.test", "Shelf", "Cluster", &free);
    assert_eq!(post(&service, DEFINITIONS, definition).await.code, 201);
    service
}

fn nested(levels: usize) -> Value {
    (0..levels).fold(json!({}), |inner, _| json!({"a": inner}))
}

fn shelf(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "shop.test/v1", "kind": "Shelf", "metadata": {"name": name}, "spec": spec})
}

async fn raw(service: &Router, method: &str, uri: &str, kind: &str, body: Vec<u8>) -> (u16, String) {
    let request = Request::builder().method(method).uri(uri).header("content-type", kind);
    let request = request.body(Body::from(body)).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let value: Value = serde_json::from_slice(&bytes).unwrap();
    (code, value["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn limits_every_accepted_depth_can_be_read() {
    let service = free_form().await;
    let mut accepted = 0;
    for levels in 80..130 {
        let name = format!("s{levels}");
        let made = post(&service, SHELVES, shelf(&name, &nested(levels))).await;
        let applied = send(
            &service,
            "PATCH",
            &format!("{SHELVES}/a{levels}?fieldManager=me"),
            &APPLY,
            shelf(&format!("a{levels}"), &nested(levels)),
        )
        .await;
        for (code, name) in [(made.code, name), (applied.code, format!("a{levels}"))] {
            assert!(matches!(code, 201 | 413), "{levels}: {code}");
            let read = get(&service, &format!("{SHELVES}/{name}")).await;
            assert_eq!(read.code, if code == 201 { 200 } else { 404 }, "{levels}");
            if code == 201 {
                accepted += 1;
                assert_eq!(read.value["spec"], nested(levels), "{levels}");
            }
        }
    }
    assert!((10..60).contains(&accepted), "{accepted}");
    let items = get(&service, SHELVES).await.value["items"].as_array().unwrap().len();
    assert_eq!(items, accepted);
    let refused = post(&service, SHELVES, shelf("deep", &nested(96))).await.value;
    let message = refused["message"].as_str().unwrap();
    assert!(message.starts_with("Shelf.shop.test \"deep\" is too large: the object nests 1"), "{message}");
}

#[tokio::test]
async fn limits_patches_cannot_exceed_the_depth() {
    let service = free_form().await;
    post(&service, SHELVES, shelf("a", &nested(1))).await;
    let one = format!("{SHELVES}/a");
    let copies: Vec<Value> = (0..14)
        .map(|it| json!({"op": "copy", "from": "/spec", "path": format!("/spec{}", "/a".repeat(2 << it))}))
        .collect();
    let patched =
        raw(&service, "PATCH", &one, "application/json-patch+json", Value::from(copies).to_string().into_bytes()).await;
    assert_eq!(patched.0, 413, "{patched:?}");
    assert!(patched.1.starts_with("operation 5 of the JSON patch makes an object of"), "{patched:?}");
    for levels in 60..OBJECT_DEPTH {
        let merge = [("content-type", "application/merge-patch+json")];
        let code = send(&service, "PATCH", &one, &merge, json!({"spec": nested(levels)})).await.code;
        assert!(matches!(code, 200 | 413), "{levels}: {code}");
        assert_eq!(get(&service, &one).await.code, 200, "{levels}");
    }
}

#[tokio::test]
async fn limits_the_size_of_an_object_includes_what_a_write_adds() {
    let service = free_form().await;
    let sized = |size: usize| shelf("a", &json!({"k": "x".repeat(size)}));
    let refused = post(&service, SHELVES, sized(OBJECT_BYTES)).await;
    assert_eq!(refused.code, 413, "{}", refused.value);
    let message = refused.value["message"].as_str().unwrap();
    assert!(message.starts_with("Shelf.shop.test \"a\" is too large: the object has 1573"), "{message}");
    assert_eq!(post(&service, SHELVES, sized(OBJECT_BYTES - 1000)).await.code, 201);
    let one = format!("{SHELVES}/a");
    let merge = [("content-type", "application/merge-patch+json")];
    let note = json!({"metadata": {"annotations": {"k": "y".repeat(1000)}}});
    assert_eq!(send(&service, "PATCH", &one, &merge, note).await.code, 413);
    assert_eq!(send(&service, "PATCH", &one, &merge, json!({"spec": {"k": "x"}})).await.code, 200);
}

#[tokio::test]
async fn limits_large_bodies_are_rejected_early() {
    let service = free_form().await;
    let one = format!("{SHELVES}/a?fieldManager=me");
    let apply = "application/apply-patch+yaml";
    let brackets = raw(&service, "PATCH", &one, apply, vec![b'['; 60_000]).await;
    assert_eq!(brackets.0, 413, "{brackets:?}");
    let mut values = b"[0".to_vec();
    values.extend(b",0".repeat(200_000));
    values.push(b']');
    let many = raw(&service, "POST", SHELVES, "application/json", values).await;
    assert_eq!(many, (413, "couldn't parse the body as JSON: it has more than 50000 values".to_owned()));
    let broken = raw(&service, "POST", SHELVES, "application/json", b"{\"a\":".to_vec()).await;
    assert_eq!(broken.0, 400, "{broken:?}");
}

#[tokio::test]
async fn limits_the_time_of_a_watch_is_a_number_of_seconds_within_a_day() {
    let service = shop().await;
    for seconds in ["18446744073709551615", "9223372036854775807", "86401", "-1", "x", "1.5", "%20"] {
        for watch in ["&watch=true", ""] {
            let refused = get(&service, &format!("{MAPS}?timeoutSeconds={seconds}{watch}")).await;
            assert_eq!(refused.code, 400, "{seconds}");
            let message = refused.value["message"].as_str().unwrap();
            assert!(message.ends_with("must be a whole number between 0 and 86400"), "{message}");
        }
    }
    assert_eq!(get(&service, &format!("{MAPS}?timeoutSeconds=86400")).await.code, 200);
}

/// Opens a database that was just in use: the task of its last write may still have it open.
async fn opened(path: &Path) -> Store {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        match Store::open(path) {
            Ok(store) => return store,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Overwrites the rows with a name in the database, without the store.
async fn overwrite(path: &Path, name: &str, body: &str) {
    drop(opened(path).await);
    let database = rusqlite::Connection::open(path).unwrap();
    database.execute("UPDATE objects SET body = ?1 WHERE name = ?2", (body.as_bytes(), name)).unwrap();
}

/// Returns a server whose database has a row that is not an object.
async fn with_row(path: &Path, body: &str) -> Router {
    let store = Store::open(path).unwrap();
    let service = router(Arc::new(Api::new(store.clone(), environment())));
    post(&service, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    post(&service, MAPS, json!({"metadata": {"name": "good"}})).await;
    post(&service, MAPS, json!({"metadata": {"name": "bad"}})).await;
    drop((service, store));
    overwrite(path, "bad", body).await;
    router(Arc::new(Api::new(opened(path).await, environment())))
}

#[tokio::test]
async fn limits_an_unreadable_row_is_an_error_that_names_it() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(20_000), "]".repeat(20_000));
    for body in ["", "{", "[]", "null", "\"text\"", r#"{"metadata":[]}"#, r#"{"metadata":"x"}"#, &deep] {
        let directory = tempfile::tempdir().unwrap();
        let service = with_row(&directory.path().join("test.db"), body).await;
        let one = format!("{MAPS}/bad");
        let merge = [("content-type", "application/merge-patch+json")];
        let expected = "Internal error occurred: the database has configmaps shop/bad, which cannot be read: ";
        for answer in [
            get(&service, &one).await,
            get(&service, MAPS).await,
            send(&service, "PATCH", &one, &merge, json!({"data": {"k": "v"}})).await,
            send(&service, "DELETE", MAPS, &[], Value::Null).await,
        ] {
            assert_eq!(answer.code, 500, "{body:.20}");
            let message = answer.value["message"].as_str().unwrap();
            assert!(message.starts_with(expected), "{message}");
        }
        let watched = events(watch(&service, "").await, 1).await;
        assert_eq!(watched[0].0, "ERROR");
        assert_eq!(get(&service, &format!("{MAPS}/good")).await.code, 200);
    }
}

/// The log output, for tests.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn limits_an_unreadable_row_can_be_deleted_by_name() {
    let logged = Logged::default();
    let writer = logged.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(subscriber);
    for body in ["", "{", "null", r#"{"metadata":"x"}"#] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("test.db");
        let service = with_row(&path, body).await;
        let one = format!("{MAPS}/bad");
        let watches =
            [watch(&service, "resourceVersion=3").await, watch(&service, "resourceVersion=3&labelSelector=a").await];
        let delete = async |options: Value| send(&service, "DELETE", &one, &[], options).await;
        assert_eq!(delete(json!({"preconditions": {"uid": "1"}})).await.code, 409);
        assert_eq!(delete(json!({"preconditions": {"resourceVersion": "1"}})).await.code, 409);
        assert_eq!(delete(json!({"dryRun": ["All"]})).await.code, 200);
        assert_eq!(get(&service, &one).await.code, 500);
        assert!(!String::from_utf8_lossy(&logged.0.lock().unwrap()).contains("audit"), "nothing was deleted yet");

        let mut request = Request::builder().method("DELETE").uri(&one).body(Body::empty()).unwrap();
        request.extensions_mut().insert(User { name: "anna".to_owned(), ..User::default() });
        let response = service.clone().oneshot(request).await.unwrap();
        assert_eq!(response.status(), 200);
        let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let details: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(details["details"], json!({"name": "bad", "kind": "configmaps"}));
        let log = String::from_utf8(std::mem::take(&mut *logged.0.lock().unwrap())).unwrap();
        let line = log.lines().find(|line| line.contains("audit")).unwrap();
        for expected in ["WARN", "user=\"anna\"", "object=configmaps shop/bad", "revision=3", "cannot be read"] {
            assert!(line.contains(expected), "{line}");
        }

        for watch in watches {
            assert_eq!(events(watch, 1).await, pairs(&[("DELETED", "bad")]));
        }
        assert_eq!(get(&service, &one).await.code, 404);
        assert_eq!(get(&service, MAPS).await.value["items"].as_array().unwrap().len(), 1);
        assert_eq!(post(&service, MAPS, json!({"metadata": {"name": "bad"}})).await.code, 201);
        drop(service);
        let again = router(Arc::new(Api::new(opened(&path).await, environment())));
        assert_eq!(get(&again, &one).await.code, 200, "the row on the disk is another");
    }
}

#[tokio::test]
async fn limits_a_protected_namespace_can_be_deleted_only_if_it_is_unreadable() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.db");
    let service = router(Arc::new(Api::new(Store::open(&path).unwrap(), environment())));
    let one = "/api/v1/namespaces/default";
    assert_eq!(post(&service, "/api/v1/namespaces", json!({"metadata": {"name": "default"}})).await.code, 201);
    assert_eq!(send(&service, "DELETE", one, &[], Value::Null).await.code, 403);
    drop(service);
    overwrite(&path, "default", "nothing").await;
    let service = router(Arc::new(Api::new(opened(&path).await, environment())));
    assert_eq!(send(&service, "DELETE", one, &[], Value::Null).await.code, 200);
    assert_eq!(get(&service, one).await.code, 404);
}

#[tokio::test]
async fn limits_a_large_list_in_parts_is_complete() {
    let service = shop().await;
    let text = "x".repeat(LIST_BYTES / 20);
    for number in 0..30 {
        let labels = json!({"even": (number % 2 == 0).to_string()});
        let map = json!({"metadata": {"name": format!("m{number:02}"), "labels": labels}, "data": {"k": text}});
        assert_eq!(post(&service, MAPS, map).await.code, 201);
    }
    let names = |list: &Value, items: &str| -> Vec<String> {
        let of = |it: &Value| {
            it["metadata"]["name"].as_str().or(it["object"]["metadata"]["name"].as_str()).unwrap().to_owned()
        };
        list[items].as_array().unwrap().iter().map(of).collect()
    };
    let all: Vec<String> = (0..30).map(|number| format!("m{number:02}")).collect();
    let whole = get(&service, MAPS).await.value;
    assert_eq!((names(&whole, "items"), &whole["kind"]), (all.clone(), &json!("ConfigMapList")));
    assert_eq!(whole["items"][3]["data"]["k"], text);
    let even = get(&service, &format!("{MAPS}?labelSelector=even%3Dtrue")).await.value;
    assert_eq!(names(&even, "items").len(), 15);
    assert!(names(&get(&service, &format!("{MAPS}?labelSelector=even%3Dno")).await.value, "items").is_empty());
    let table = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = send(&service, "GET", MAPS, &table, Value::Null).await.value;
    assert_eq!((names(&table, "rows"), table["columnDefinitions"].as_array().unwrap().len()), (all.clone(), 3));
    let mut found = Vec::new();
    let mut token = String::new();
    loop {
        let page = get(&service, &format!("{MAPS}?limit=7&labelSelector=even%3Dtrue&continue={token}")).await.value;
        found.extend(names(&page, "items"));
        match page["metadata"]["continue"].as_str() {
            Some(next) => token = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(found, names(&even, "items"));
    let deleted = send(&service, "DELETE", MAPS, &[], Value::Null).await.value;
    assert_eq!(names(&deleted, "items"), all);
}

#[tokio::test]
async fn limits_pages_of_a_selection_of_very_many_are_complete() {
    let service = shop().await;
    let count = 2 * LIST_READ + 100;
    let is_selected = |number: usize| number % 300 == 7 || number + 1 == LIST_READ || number == LIST_READ;
    for number in 0..count {
        let labels = json!({"chosen": is_selected(number).to_string()});
        post(&service, MAPS, json!({"metadata": {"name": format!("m{number:04}"), "labels": labels}})).await;
    }
    let expected: Vec<String> =
        (0..count).filter(|number| is_selected(*number)).map(|number| format!("m{number:04}")).collect();
    for (selector, limit, all) in [("chosen%3Dtrue", 1, &expected), ("chosen%3Dtrue", 4, &expected), ("", 999, &vec![])]
    {
        let (mut found, mut token, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let query = format!("{MAPS}?limit={limit}&labelSelector={selector}&continue={token}");
            let page = get(&service, &query).await.value;
            let items = page["items"].as_array().unwrap();
            assert!(items.len() <= limit);
            found.extend(items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()));
            pages += 1;
            if selector.is_empty() && found.len() < count {
                assert_eq!(page["metadata"]["remainingItemCount"], count - found.len());
            }
            match page["metadata"]["continue"].as_str() {
                Some(next) => token = next.to_owned(),
                None => break,
            }
        }
        if selector.is_empty() {
            assert_eq!((found.len(), pages), (count, count.div_ceil(limit)));
        } else {
            assert_eq!(&found, all, "limit {limit}");
        }
    }
}

#[tokio::test]
async fn limits_a_watch_sends_the_objects_of_its_start() {
    let service = shop().await;
    let count = WATCH_PAGE + 50;
    for number in 0..count {
        post(&service, MAPS, json!({"metadata": {"name": format!("m{number:03}")}})).await;
    }
    let response = watch(&service, "").await;
    // A change before the watcher reads on is sent as the old state first, and then as the new one.
    let merge = [("content-type", "application/merge-patch+json")];
    send(&service, "PATCH", &format!("{MAPS}/m299"), &merge, json!({"data": {"k": "v"}})).await;
    send(&service, "DELETE", &format!("{MAPS}/m298"), &[], Value::Null).await;
    post(&service, MAPS, json!({"metadata": {"name": "m2975"}})).await;
    let found = events(response, count + 3).await;
    let mut expected: Vec<(String, String)> =
        (0..count).map(|number| ("ADDED".to_owned(), format!("m{number:03}"))).collect();
    expected.extend(pairs(&[("MODIFIED", "m299"), ("DELETED", "m298"), ("ADDED", "m2975")]));
    assert_eq!(found, expected);
}

#[tokio::test]
async fn limits_a_full_disk_makes_the_server_not_ready() {
    let store = Store::with_full_disk();
    let service = router(Arc::new(Api::new(store, environment())));
    assert_eq!(get(&service, "/readyz").await.code, 200);
    let refused = post(&service, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    assert_eq!(refused.code, 507, "{}", refused.value);
    let request = Request::builder().uri("/readyz").body(Body::empty()).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 500);
    let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    assert!(String::from_utf8_lossy(&text).contains("[-]storage failed: no space on the disk of the database"));
    assert_eq!(get(&service, "/livez").await.code, 200);
}

/// With two owners, a keyed list of so many entries has almost the largest allowed size.
const ENTRIES: usize = 12_000;

/// The largest processor time of a write of such a list, in a build without optimizations. It takes one or two seconds; comparing
/// every entry with every other took three minutes.
const LONG_LIST_TIME: Duration = Duration::from_secs(10);

/// Returns the processor time of this thread. Unlike wall-clock time, it does not depend on other processes.
fn processor_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split_whitespace().next().unwrap().parse().unwrap())
}

fn entries(key: &str, numbers: impl Iterator<Item = usize>) -> Value {
    numbers.map(|number| json!({key: format!("n{number:05}")})).collect()
}

/// Sends a patch, and checks that the response arrives within the time limit for a long list.
async fn timely(service: &Router, uri: &str, kind: &str, body: Value) -> Answer {
    let begun = processor_time();
    let answer = send(service, "PATCH", uri, &[("content-type", kind)], body).await;
    let message = &answer.value["message"];
    assert!(matches!(answer.code, 200 | 201), "{uri}: {} {message}", answer.code);
    let took = processor_time().saturating_sub(begun);
    assert!(took > Duration::ZERO && took < LONG_LIST_TIME, "{uri} took {took:?}");
    answer
}

#[tokio::test]
async fn limits_apply_of_a_very_long_keyed_list_is_answered_in_time() {
    let service = shop().await;
    let list = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    });
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": list}}}});
    let definition = fixtures::definition("shelves.shop.test", "Shelf", "Cluster", &schema);
    assert_eq!(post(&service, DEFINITIONS, definition).await.code, 201);
    let forward = shelf("a", &json!({"list": entries("name", 0..ENTRIES)}));
    let backward = shelf("a", &json!({"list": entries("name", (0..ENTRIES).rev())}));
    let one = format!("{SHELVES}/a");
    timely(&service, &format!("{one}?fieldManager=one"), APPLY[0].1, forward).await;
    let last = timely(&service, &format!("{one}?fieldManager=two&force=true"), APPLY[0].1, backward.clone()).await;
    assert_eq!(last.value["spec"], backward["spec"]);
}

#[tokio::test]
async fn limits_a_strategic_merge_patch_of_a_very_long_keyed_list_is_answered_in_time() {
    let service = shop().await;
    let accounts = "/api/v1/namespaces/shop/serviceaccounts";
    let finalizer = |number: usize| format!("n{number:05}.test/x");
    let finalizers = |numbers: &mut dyn Iterator<Item = usize>| numbers.map(finalizer).collect::<Value>();
    let made = json!({
        "metadata": {"name": "a", "finalizers": finalizers(&mut (0..ENTRIES / 2))}, "secrets": entries("name", 0..ENTRIES / 2)
    });
    assert_eq!(post(&service, accounts, made).await.code, 201);
    let one = format!("{accounts}/a");
    let patch = json!({
        "metadata": {"finalizers": finalizers(&mut (0..ENTRIES).rev())}, "secrets": entries("name", (0..ENTRIES).rev()),
    });
    let patched = timely(&service, &one, STRATEGIC, patch.clone()).await.value;
    assert_eq!(patched["secrets"], patch["secrets"]);
    assert_eq!(patched["metadata"]["finalizers"], patch["metadata"]["finalizers"]);
    let gone = |number| json!({"name": format!("n{number:05}"), "$patch": "delete"});
    let patch = json!({
        "metadata": {"$deleteFromPrimitiveList/finalizers": finalizers(&mut (1..ENTRIES).rev())},
        "secrets": (1..ENTRIES).map(gone).collect::<Value>(),
    });
    let patched = timely(&service, &one, STRATEGIC, patch).await.value;
    assert_eq!(patched["secrets"], entries("name", 0..1));
    assert_eq!(patched["metadata"]["finalizers"], json!([finalizer(0)]));
}

#[tokio::test]
async fn limits_a_strategic_merge_patch_that_removes_very_many_fields_is_answered_in_time() {
    let service = shop().await;
    let data =
        |value: &Value| (0..3 * ENTRIES).map(|number| (format!("n{number:05}"), value.clone())).collect::<Value>();
    assert_eq!(post(&service, MAPS, json!({"metadata": {"name": "a"}, "data": data(&"".into())})).await.code, 201);
    let patch = json!({"data": data(&Value::Null)});
    let patched = timely(&service, &format!("{MAPS}/a"), STRATEGIC, patch).await.value;
    assert_eq!(patched["data"].as_object().map_or(0, serde_json::Map::len), 0);
}

#[tokio::test]
async fn limits_defaults_cannot_make_an_object_that_is_too_large() {
    let service = shop().await;
    let default: Value = (0..2000).map(|number| (format!("k{number}"), json!("text"))).collect();
    let item = json!({"type": "object", "properties": {
        "all": {"type": "object", "default": default, "x-kubernetes-preserve-unknown-fields": true}}});
    let list = json!({"type": "array", "items": item});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": list}}}});
    let definition = fixtures::definition("shelves.shop.test", "Shelf", "Cluster", &schema);
    assert_eq!(post(&service, DEFINITIONS, definition).await.code, 201);
    let asking = |count: usize| shelf(&format!("s{count}"), &json!({"list": vec![json!({}); count]}));
    assert_eq!(post(&service, SHELVES, asking(5)).await.code, 201);
    // With all defaults, these would be 3 GB.
    let refused = post(&service, SHELVES, asking(40_000)).await;
    assert_eq!(refused.code, 413, "{}", refused.value);
    let message = refused.value["message"].as_str().unwrap();
    let why = "is too large: the defaults of its schema add more than 1572864 bytes";
    assert_eq!(message, format!("Shelf.shop.test \"s40000\" {why}"));
    let one = format!("{SHELVES}/s40000?fieldManager=me");
    assert_eq!(send(&service, "PATCH", &one, &APPLY, asking(40_000)).await.code, 413);
}

#[tokio::test]
async fn limits_a_large_list_ends_at_the_deadline_of_the_request() {
    let service = shop().await;
    for number in 0..4 {
        let data = json!({"k": "x".repeat(LIST_BYTES / 3)});
        assert_eq!(
            post(&service, MAPS, json!({"metadata": {"name": format!("m{number}")}, "data": data})).await.code,
            201
        );
    }
    let list = async |time: Duration| {
        let mut request = Request::builder().uri(MAPS).body(Body::empty()).unwrap();
        // The reader threads serialize the lists of remote callers.
        request.extensions_mut().insert(User::default());
        let deadline = tokio::time::Instant::now() + time;
        let response = crate::deadline::until(deadline, service.clone().oneshot(request)).await.unwrap().unwrap();
        assert_eq!(response.status(), 200);
        to_bytes(response.into_body(), usize::MAX).await
    };
    assert!(list(Duration::from_secs(60)).await.unwrap().len() > LIST_BYTES);
    assert!(list(Duration::ZERO).await.is_err());
}

#[tokio::test]
async fn limits_validation_ends_at_the_deadline_of_the_request() {
    let service = shop().await;
    let rule = json!({"rule": "self.matches('^[a-z0-9]*$') && !self.contains('xyz')"});
    let item = json!({"type": "string", "maxLength": 20, "x-kubernetes-validations": [rule]});
    let list = json!({"type": "array", "maxItems": 5000, "items": item});
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"list": list}}}});
    let definition = fixtures::definition("shelves.shop.test", "Shelf", "Cluster", &schema);
    assert_eq!(post(&service, DEFINITIONS, definition).await.code, 201);
    let object = |name: &str| shelf(name, &json!({"list": vec!["abc"; 5000]}));

    let begun = processor_time();
    assert_eq!(post(&service, SHELVES, object("a")).await.code, 201);
    let whole = processor_time().saturating_sub(begun);

    let begun = processor_time();
    let deadline = tokio::time::Instant::now();
    let late = crate::deadline::until(deadline, post(&service, SHELVES, object("b"))).await.unwrap();
    assert_eq!((late.code, &late.value["reason"]), (504, &json!("Timeout")), "{}", late.value);
    let took = processor_time().saturating_sub(begun);
    assert!(took < whole / 2, "{took:?} after the deadline, {whole:?} without one");
    assert_eq!(get(&service, &format!("{SHELVES}/b")).await.code, 404);
}

#[tokio::test]
async fn limits_a_definition_with_a_rule_of_5000_terms_is_rejected() {
    let service = shop().await;
    let with_rule = |name: &str, kind: &str, terms: usize| {
        let rule = format!("{} == {terms}", vec!["1"; terms].join("+"));
        let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
        let schema = json!({"type": "object", "properties": {"spec": spec}});
        fixtures::definition(name, kind, "Cluster", &schema)
    };
    let refused = post(&service, DEFINITIONS, with_rule("shelves.shop.test", "Shelf", 5000)).await;
    assert_eq!((refused.code, &refused.value["reason"]), (422, &json!("Invalid")), "{}", refused.value);
    let message = refused.value["message"].as_str().unwrap();
    assert!(message.contains("it has 10007 bytes, at most 8192 are accepted"), "{message}");
    // A shorter text, but also too deep.
    let refused = post(&service, DEFINITIONS, with_rule("shelves.shop.test", "Shelf", 2000)).await;
    assert_eq!(refused.code, 422, "{}", refused.value);
    assert_eq!(get(&service, &format!("{DEFINITIONS}/shelves.shop.test")).await.code, 404);
    assert_eq!(post(&service, DEFINITIONS, with_rule("shelves.shop.test", "Shelf", 50)).await.code, 201);
}
