//! Requests as clients send them, and the responses.

mod limits;
mod rules;

use axum::body::to_bytes;
use serde_json::Value;
use tower::ServiceExt;

use super::*;
use crate::fixtures::{self, environment};
use crate::store::Store;

fn service() -> Router {
    router(Arc::new(Api::new(Store::memory(), environment())))
}

struct Answer {
    code: u16,
    value: Value,
    warnings: Vec<String>,
}

async fn send(service: &Router, method: &str, uri: &str, headers: &[(&str, &str)], body: Value) -> Answer {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() { Body::empty() } else { Body::from(body.to_string()) };
    let response = service.clone().oneshot(request.body(body).unwrap()).await.unwrap();
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter().map(|it| it.to_str().unwrap().to_owned()).collect();
    let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
    Answer { code, value: serde_json::from_slice(&bytes).unwrap_or(Value::Null), warnings }
}

async fn get(service: &Router, uri: &str) -> Answer {
    send(service, "GET", uri, &[], Value::Null).await
}

async fn post(service: &Router, uri: &str, body: Value) -> Answer {
    send(service, "POST", uri, &[], body).await
}

const MAPS: &str = "/api/v1/namespaces/shop/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

async fn shop() -> Router {
    let service = service();
    assert_eq!(post(&service, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await.code, 201);
    service
}

#[tokio::test]
async fn an_object_round_trips_over_http() {
    let service = shop().await;
    let made = post(&service, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    assert_eq!(made.code, 201);
    let one = format!("{MAPS}/a");
    assert_eq!(get(&service, &one).await.value, made.value);
    let list = get(&service, "/api/v1/configmaps?limit=500").await.value;
    assert_eq!((&list["kind"], &list["items"][0]["data"]), (&json!("ConfigMapList"), &made.value["data"]));
    let deleted = send(&service, "DELETE", &one, &[], json!({"propagationPolicy": "Background"})).await.value;
    assert_eq!((&deleted["status"], &deleted["details"]["uid"]), (&json!("Success"), &made.value["metadata"]["uid"]));
    let gone = get(&service, &one).await;
    assert_eq!((gone.code, &gone.value["reason"]), (404, &json!("NotFound")));
}

#[tokio::test]
async fn a_client_gets_the_format_of_its_accept_header() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v", "l": "w"}})).await;
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1,application/json";
    let table = send(&service, "GET", MAPS, &[("accept", table)], Value::Null).await.value;
    let columns: Vec<&str> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Data", "Age"]);
    assert_eq!(table["rows"][0]["cells"], json!(["a", 2, "0s"]));
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let partial = send(&service, "GET", MAPS, &[("accept", partial)], Value::Null).await.value;
    assert_eq!(partial["items"][0].get("data"), None);
    assert_eq!(partial["items"][0]["metadata"]["name"], "a");
}

#[tokio::test]
async fn patches_are_of_three_kinds() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let one = format!("{MAPS}/a");
    let patch = async |kind: &str, body: Value| send(&service, "PATCH", &one, &[("content-type", kind)], body).await;
    let merged = patch("application/merge-patch+json", json!({"data": {"l": "w", "k": null}})).await;
    assert_eq!((merged.code, &merged.value["data"]), (200, &json!({"l": "w"})));
    let json = patch("application/json-patch+json", json!([{"op": "add", "path": "/data/m", "value": "x"}])).await;
    assert_eq!(json.value["data"], json!({"l": "w", "m": "x"}));
    let labels = json!({"metadata": {"labels": {"app": "web"}}});
    let strategic = patch("application/strategic-merge-patch+json", labels).await;
    assert_eq!(strategic.value["metadata"]["labels"]["app"], "web");
    assert_eq!(patch("text/plain", json!({})).await.code, 415);
    let impossible = patch("application/json-patch+json", json!([{"op": "remove", "path": "/nothing"}])).await;
    assert_eq!(impossible.code, 422);
}

const APPLY: (&str, &str) = ("content-type", "application/apply-patch+yaml");

/// Returns the field owners of an object: `one Apply {"f:data":…}`.
fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    entries.iter().map(|it| format!("{} {} {}", text(&it["manager"]), text(&it["operation"]), it["fieldsV1"])).collect()
}

#[tokio::test]
async fn an_apply_creates_an_object_and_then_merges() {
    let service = shop().await;
    let one = format!("{MAPS}/a");
    let body = |data: Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "data": data});
    let apply =
        async |query: &str, data: Value| send(&service, "PATCH", &format!("{one}?{query}"), &[APPLY], body(data)).await;
    let made = apply("fieldManager=one", json!({"k": "v", "l": "w"})).await;
    assert_eq!((made.code, &made.value["data"]), (201, &json!({"k": "v", "l": "w"})));
    assert_eq!(owners(&made.value), [r#"one Apply {"f:data":{"f:k":{},"f:l":{}}}"#]);
    let conflict = apply("fieldManager=two", json!({"k": "x"})).await;
    assert_eq!((conflict.code, &conflict.value["reason"]), (409, &json!("Conflict")));
    assert_eq!(conflict.value["details"]["causes"][0]["field"], ".data.k");
    let forced = apply("fieldManager=two&force=true", json!({"k": "x"})).await;
    assert_eq!((forced.code, &forced.value["data"]), (200, &json!({"k": "x", "l": "w"})));
    let dropped = apply("fieldManager=one", json!({})).await;
    assert_eq!(dropped.value["data"], json!({"k": "x"}));
    assert_eq!(owners(&dropped.value), [r#"one Apply {"f:data":{}}"#, r#"two Apply {"f:data":{"f:k":{}}}"#]);
    let again = apply("fieldManager=two", json!({"k": "x"})).await;
    assert_eq!(again.value["metadata"]["resourceVersion"], dropped.value["metadata"]["resourceVersion"]);
    let nobody = apply("", json!({})).await;
    assert_eq!((nobody.code, &nobody.value["details"]["causes"][0]["field"]), (422, &json!("fieldManager")));
}

#[tokio::test]
async fn yaml_can_be_applied() {
    let service = shop().await;
    let text = "apiVersion: v1\nkind: ConfigMap\ndata:\n  k: v\n";
    let request = Request::patch(format!("{MAPS}/a?fieldManager=one")).header(APPLY.0, APPLY.1).body(Body::from(text));
    assert_eq!(service.clone().oneshot(request.unwrap()).await.unwrap().status(), 201);
    assert_eq!(get(&service, &format!("{MAPS}/a")).await.value["data"], json!({"k": "v"}));
}

#[tokio::test]
async fn a_writer_owns_its_fields_and_an_apply_of_them_conflicts() {
    let service = shop().await;
    let agent = [("user-agent", "kubectl/v1.36.0 (linux/amd64)")];
    let made = send(&service, "POST", MAPS, &agent, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    assert_eq!(owners(&made.value), [r#"kubectl Update {"f:data":{".":{},"f:k":{}}}"#]);
    let one = format!("{MAPS}/a");
    let label = [("content-type", "application/merge-patch+json")];
    let patched = json!({"metadata": {"labels": {"app": "web"}}});
    let labelled = send(&service, "PATCH", &format!("{one}?fieldManager=labeller"), &label, patched.clone()).await;
    assert_eq!(owners(&labelled.value)[1], r#"labeller Update {"f:metadata":{"f:labels":{".":{},"f:app":{}}}}"#);
    let mine = json!({"apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "mine"}});
    let refused = send(&service, "PATCH", &format!("{one}?fieldManager=me"), &[APPLY], mine).await;
    assert_eq!(refused.code, 409);
    assert!(refused.value["message"].as_str().unwrap().contains("conflict with \"kubectl\" using v1"));
    let forced = send(&service, "PATCH", &format!("{one}?force=true"), &label, patched).await;
    assert_eq!((forced.code, &forced.value["details"]["causes"][0]["field"]), (422, &json!("force")));
}

#[tokio::test]
async fn a_long_list_is_continued() {
    let service = shop().await;
    for name in ["a", "b", "c"] {
        post(&service, MAPS, json!({"metadata": {"name": name}})).await;
    }
    let first = get(&service, &format!("{MAPS}?limit=2")).await.value;
    assert_eq!(first["metadata"]["remainingItemCount"], 1);
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = get(&service, &format!("{MAPS}?limit=2&continue={token}")).await.value;
    assert_eq!(rest["items"][0]["metadata"]["name"], "c");
    assert_eq!(rest["metadata"].get("continue"), None);
    assert_eq!(get(&service, &format!("{MAPS}?continue=!")).await.code, 400);
}

/// Returns the next events of a watch.
async fn events(response: Response<Body>, count: usize) -> Vec<(String, String)> {
    use futures_util::StreamExt;
    let mut lines = response.into_body().into_data_stream();
    let mut found = Vec::new();
    while found.len() < count {
        let line = lines.next().await.unwrap().unwrap();
        let event: Value = serde_json::from_slice(&line).unwrap();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        found.push((text(&event["type"]), text(&event["object"]["metadata"]["name"])));
    }
    found
}

async fn watch(service: &Router, query: &str) -> Response<Body> {
    let request = Request::builder().uri(format!("{MAPS}?watch=true&{query}")).body(Body::empty()).unwrap();
    service.clone().oneshot(request).await.unwrap()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(kind, name)| ((*kind).to_owned(), (*name).to_owned())).collect()
}

#[tokio::test]
async fn a_watch_sends_changes_after_a_resource_version() {
    let service = shop().await;
    let made = post(&service, MAPS, json!({"metadata": {"name": "a"}})).await.value;
    let version = made["metadata"]["resourceVersion"].as_str().unwrap();
    let response = watch(&service, &format!("resourceVersion={version}")).await;
    post(&service, MAPS, json!({"metadata": {"name": "b"}})).await;
    let label = json!({"metadata": {"labels": {"x": "y"}}});
    let merge = [("content-type", "application/merge-patch+json")];
    send(&service, "PATCH", &format!("{MAPS}/a"), &merge, label).await;
    send(&service, "DELETE", &format!("{MAPS}/a"), &[], Value::Null).await;
    assert_eq!(events(response, 3).await, pairs(&[("ADDED", "b"), ("MODIFIED", "a"), ("DELETED", "a")]));
}

#[tokio::test]
async fn a_watch_without_a_resource_version_begins_with_the_existing_objects() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}})).await;
    assert_eq!(events(watch(&service, "").await, 1).await, pairs(&[("ADDED", "a")]));
    let list = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    assert_eq!(events(watch(&service, list).await, 2).await, pairs(&[("ADDED", "a"), ("BOOKMARK", "")]));
}

#[tokio::test]
async fn an_object_that_leaves_the_selection_is_deleted_for_its_watcher() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a", "labels": {"app": "web"}}})).await;
    let response = watch(&service, "labelSelector=app%3Dweb").await;
    let merge = [("content-type", "application/merge-patch+json")];
    for app in ["api", "web"] {
        let body = json!({"metadata": {"labels": {"app": app}}});
        send(&service, "PATCH", &format!("{MAPS}/a"), &merge, body).await;
    }
    assert_eq!(events(response, 3).await, pairs(&[("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]));
}

#[tokio::test(start_paused = true)]
async fn a_quiet_watch_gets_bookmarks() {
    let environment = environment().with_bookmarks(std::time::Duration::from_secs(60));
    let service = router(Arc::new(Api::new(Store::memory(), environment)));
    post(&service, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    let started = tokio::time::Instant::now();
    let response = watch(&service, "resourceVersion=1&allowWatchBookmarks=true").await;
    assert_eq!(events(response, 3).await, pairs(&[("BOOKMARK", ""); 3]));
    assert_eq!(started.elapsed().as_secs(), 180);
}

#[tokio::test]
async fn events_have_two_names_and_one_store() {
    let service = shop().await;
    let new = json!({
        "metadata": {"generateName": "rotated-"}, "note": "a new signer", "reason": "Rotated", "type": "Normal",
        "regarding": {"kind": "Secret", "namespace": "shop", "name": "signer"},
        "reportingController": "perennial", "reportingInstance": "one", "action": "Rotate",
        "eventTime": "2026-03-01T12:00:00.000000Z"
    });
    let made = post(&service, "/apis/events.k8s.io/v1/namespaces/shop/events", new).await;
    assert_eq!((made.code, &made.value["note"]), (201, &json!("a new signer")));
    let old = get(&service, "/api/v1/namespaces/shop/events?fieldSelector=involvedObject.name%3Dsigner").await.value;
    let event = &old["items"][0];
    assert_eq!((&event["message"], &old["apiVersion"]), (&json!("a new signer"), &json!("v1")));
    assert_eq!((&event["reportingComponent"], event.get("note")), (&json!("perennial"), None));
    let name = event["metadata"]["name"].as_str().unwrap();
    let one = get(&service, &format!("/apis/events.k8s.io/v1/namespaces/shop/events/{name}")).await.value;
    assert_eq!((&one["regarding"]["name"], one.get("involvedObject")), (&json!("signer"), None));
}

#[tokio::test(start_paused = true)]
async fn a_watch_ends_in_time() {
    use futures_util::StreamExt;
    let service = shop().await;
    let mut lines = watch(&service, "resourceVersion=1&timeoutSeconds=30").await.into_body().into_data_stream();
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn discovery_lists_the_resources() {
    let service = service();
    assert_eq!(get(&service, "/api").await.value["versions"], json!(["v1"]));
    let groups = get(&service, "/apis").await.value;
    let names: Vec<&str> = groups["groups"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(names.contains(&"apps") && names.contains(&"rbac.authorization.k8s.io"), "{names:?}");
    let core = get(&service, "/api/v1").await.value;
    let secret = core["resources"].as_array().unwrap().iter().find(|it| it["name"] == "secrets").unwrap();
    assert_eq!((&secret["kind"], &secret["namespaced"]), (&json!("Secret"), &json!(true)));
    assert_eq!(get(&service, "/apis/nowhere").await.code, 404);
    assert_eq!(get(&service, "/api/v1/nothing").await.code, 404);
    assert_eq!(get(&service, "/version").await.value["major"], "1");
}

#[tokio::test]
async fn a_rejected_write_names_the_reason() {
    let service = shop().await;
    let wrong = post(&service, MAPS, json!({"metadata": {"name": "A"}})).await;
    assert_eq!((wrong.code, &wrong.value["details"]["causes"][0]["field"]), (422, &json!("metadata.name")));
    assert_eq!(send(&service, "PUT", MAPS, &[], json!({})).await.code, 405);
    assert!(wrong.warnings.is_empty());
}

#[tokio::test]
async fn discovery_is_aggregated_on_request() {
    let service = service();
    let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
    let request = Request::builder().uri("/apis").header("accept", accept).body(Body::empty()).unwrap();
    let response = service.clone().oneshot(request).await.unwrap();
    let content_type = response.headers()["content-type"].to_str().unwrap().to_owned();
    assert_eq!(content_type, "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList");
    let found = send(&service, "GET", "/apis", &[("accept", accept)], Value::Null).await.value;
    let apps = found["items"].as_array().unwrap().iter().find(|it| it["metadata"]["name"] == "apps").unwrap();
    let deployments = &apps["versions"][0]["resources"][0];
    assert_eq!((&deployments["resource"], &deployments["scope"]), (&json!("deployments"), &json!("Namespaced")));
    assert_eq!(deployments["subresources"][0]["subresource"], "status");
}

#[tokio::test]
async fn every_kind_is_in_an_openapi_document() {
    let service = service();
    let root = get(&service, "/openapi/v3").await.value;
    let url = root["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = get(&service, url).await.value;
    let operation = &document["paths"]["/api/v1/namespaces/{namespace}/configmaps/{name}"]["patch"];
    assert_eq!(operation["x-kubernetes-group-version-kind"]["kind"], "ConfigMap");
    assert_eq!(operation["parameters"][0]["name"], "fieldValidation");
    assert_eq!(get(&service, "/openapi/v3/apis/nowhere/v1").await.code, 404);
}

#[tokio::test]
async fn a_watch_from_the_end_of_a_long_list_misses_nothing() {
    let service = shop().await;
    for name in ["b", "d", "f", "h"] {
        post(&service, MAPS, json!({"metadata": {"name": name}})).await;
    }
    let first = get(&service, &format!("{MAPS}?limit=2")).await.value;
    post(&service, MAPS, json!({"metadata": {"name": "a"}})).await;
    send(&service, "DELETE", &format!("{MAPS}/b"), &[], Value::Null).await;
    let token = first["metadata"]["continue"].as_str().unwrap();
    let rest = get(&service, &format!("{MAPS}?limit=2&continue={token}")).await.value;
    assert_eq!(rest["metadata"]["resourceVersion"], first["metadata"]["resourceVersion"]);
    let version = rest["metadata"]["resourceVersion"].as_str().unwrap();
    let response = watch(&service, &format!("resourceVersion={version}")).await;
    assert_eq!(events(response, 2).await, pairs(&[("ADDED", "a"), ("DELETED", "b")]));
}

#[tokio::test]
async fn a_watch_from_a_future_resource_version_is_rejected() {
    let service = shop().await;
    let refused = get(&service, &format!("{MAPS}?watch=true&resourceVersion=99999")).await;
    assert_eq!((refused.code, &refused.value["reason"]), (504, &json!("Timeout")));
}

#[tokio::test]
async fn a_review_without_an_object_is_rejected() {
    let service = service();
    let reviews = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    for wrong in [json!([]), json!("x"), json!(5)] {
        assert_eq!(post(&service, reviews, wrong).await.code, 400);
    }
}

#[tokio::test]
async fn a_watch_ends_with_the_definition_of_its_resource() {
    let api = Arc::new(Api::new(Store::memory(), environment()));
    let service = router(api.clone());
    assert_eq!(post(&service, DEFINITIONS, fixtures::shelves()).await.code, 201);
    let request = Request::get("/apis/shop.test/v1/shelves?watch=true").body(Body::empty()).unwrap();
    let watch = service.clone().oneshot(request).await.unwrap();
    send(&service, "DELETE", &format!("{DEFINITIONS}/shelves.shop.test"), &[], Value::Null).await;
    api.collect().await.unwrap();
    let whole = tokio::time::timeout(std::time::Duration::from_secs(10), to_bytes(watch.into_body(), usize::MAX));
    assert!(whole.await.expect("the watch ends").unwrap().is_empty());
}

#[tokio::test]
async fn a_request_with_impersonation_is_rejected() {
    let service = shop().await;
    for headers in [&[("Impersonate-User", "bob")][..], &[("Impersonate-User", "bob"), ("Impersonate-Group", "staff")]]
    {
        let refused = send(&service, "GET", MAPS, headers, Value::Null).await;
        assert_eq!((refused.code, &refused.value["reason"]), (403, &json!("Forbidden")));
        let message = refused.value["message"].as_str().unwrap();
        assert!(message.starts_with("users \"bob\" is forbidden: this API server does not impersonate"), "{message}");
    }
    for header in ["Impersonate-Group", "Impersonate-Uid", "Impersonate-Extra-Scopes"] {
        let refused = send(&service, "GET", MAPS, &[(header, "x")], Value::Null).await;
        assert_eq!(refused.code, 403, "{header}");
    }
    let review = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    assert_eq!(send(&service, "POST", review, &[("Impersonate-User", "bob")], json!({"spec": {}})).await.code, 403);
    // Discovery is the same for all users.
    assert_eq!(send(&service, "GET", "/api/v1", &[("Impersonate-User", "bob")], Value::Null).await.code, 200);
    assert_eq!(get(&service, MAPS).await.code, 200);
}

#[tokio::test]
async fn a_request_that_needs_a_node_is_rejected_with_that_reason() {
    let service = shop().await;
    let pods = "/api/v1/namespaces/shop/pods";
    let spec = json!({"containers": [{"name": "c", "image": "example.test/web"}]});
    let made = post(&service, pods, json!({"metadata": {"name": "web"}, "spec": spec})).await;
    assert_eq!(made.value["status"]["phase"], "Pending");
    for (method, part) in
        [("GET", "log"), ("GET", "exec"), ("POST", "exec"), ("POST", "attach"), ("POST", "portforward")]
    {
        let refused = send(&service, method, &format!("{pods}/web/{part}"), &[], Value::Null).await;
        let message = refused.value["message"].as_str().unwrap();
        assert_eq!((refused.code, &refused.value["reason"]), (400, &json!("BadRequest")), "{part}");
        assert!(message.starts_with("pod \"web\" ") && message.contains("has no nodes"), "{message}");
        let absent = send(&service, method, &format!("{pods}/none/{part}"), &[], Value::Null).await;
        assert_eq!((absent.code, &absent.value["message"]), (404, &json!("pods \"none\" not found")));
    }
    assert_eq!(get(&service, &format!("{pods}/web/riddle")).await.code, 404);
    let deployments = "/apis/apps/v1/namespaces/shop/deployments";
    post(&service, deployments, json!({"metadata": {"name": "web"}, "spec": {"replicas": 1}})).await;
    for method in ["GET", "PUT", "PATCH"] {
        let refused = send(&service, method, &format!("{deployments}/web/scale"), &[], Value::Null).await;
        let message = refused.value["message"].as_str().unwrap();
        assert_eq!(refused.code, 405);
        assert!(
            message.starts_with("deployments.apps \"web\" cannot be scaled: this API server has no nodes"),
            "{message}"
        );
    }
    // kubectl asks for it only if it is listed.
    let listed = get(&service, "/apis/apps/v1").await.value;
    let is_scale =
        |it: &&Value| it["name"] == "deployments/scale" && it["group"] == "autoscaling" && it["kind"] == "Scale";
    assert_eq!(listed["resources"].as_array().unwrap().iter().filter(is_scale).count(), 1);
}

#[tokio::test]
async fn a_pod_keeps_its_reported_phase() {
    let service = shop().await;
    let pods = "/api/v1/namespaces/shop/pods";
    post(&service, pods, json!({"metadata": {"name": "web"}, "spec": {"nodeName": "n"}})).await;
    let merge = [("content-type", "application/merge-patch+json")];
    let running = json!({"status": {"phase": "Running"}});
    send(&service, "PATCH", &format!("{pods}/web/status"), &merge, running).await;
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    let changed = send(&service, "PATCH", &format!("{pods}/web"), &merge, labelled).await;
    assert_eq!(changed.value["status"]["phase"], "Running");
}

#[tokio::test]
async fn fields_of_built_in_and_custom_kinds_are_explained() {
    use crate::schemas::Schemas;
    let meta = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let to_meta = json!({"allOf": [{"$ref": format!("#/components/schemas/{meta}")}]});
    let map = json!({"type": "object", "properties": {"data": {"type": "object"}, "metadata": to_meta}});
    let components =
        [("K".to_owned(), map), (meta.to_owned(), json!({"type": "object"})), ("Other".to_owned(), json!({}))];
    let kind = (String::new(), "v1".to_owned(), "ConfigMap".to_owned());
    let api = Api::new(Store::memory(), environment()).with_schemas(Schemas::new(components, [(kind, "K".to_owned())]));
    let service = router(Arc::new(api));
    let root = get(&service, "/openapi/v3").await.value;
    let url = root["paths"]["api/v1"]["serverRelativeURL"].as_str().unwrap();
    let schemas = get(&service, url).await.value["components"]["schemas"].take();
    assert_eq!(schemas["K"]["x-kubernetes-group-version-kind"][0]["kind"], "ConfigMap");
    assert!(schemas["K"]["properties"]["data"].is_object() && schemas[meta].is_object());
    assert!(schemas.get("Other").is_none(), "nothing refers to it");
    // A document may be cached only under the address with its hash.
    let cached = |uri: String| {
        let service = service.clone();
        async move {
            let request = Request::builder().uri(uri).body(Body::empty()).unwrap();
            service.oneshot(request).await.unwrap().headers().contains_key("cache-control")
        }
    };
    assert!(cached(url.to_owned()).await && !cached("/openapi/v3/api/v1?hash=0".to_owned()).await);

    post(&service, DEFINITIONS, fixtures::shelves()).await;
    let root = get(&service, "/openapi/v3").await.value;
    let url = root["paths"]["apis/shop.test/v1"]["serverRelativeURL"].as_str().unwrap();
    let schemas = get(&service, url).await.value["components"]["schemas"].take();
    let shelf = &schemas["test.shop.v1.Shelf"]["properties"];
    assert_eq!(shelf["metadata"]["allOf"], to_meta["allOf"]);
    assert!(shelf["kind"]["description"].is_string() && schemas[meta].is_object());
}
