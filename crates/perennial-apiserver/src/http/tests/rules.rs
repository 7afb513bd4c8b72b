//! Tests of request validation, and of the errors.

use super::*;

const MERGE: (&str, &str) = ("content-type", "application/merge-patch+json");

async fn delete(service: &Router, name: &str, options: Value) -> Answer {
    send(service, "DELETE", &format!("{MAPS}/{name}"), &[], options).await
}

/// Returns the code of a response, and the faulty field.
fn refused(answer: &Answer) -> (u16, &str) {
    (answer.code, answer.value["details"]["causes"][0]["field"].as_str().unwrap_or_default())
}

#[tokio::test]
async fn a_status_cannot_be_made_or_deleted() {
    let service = shop().await;
    let status = "/api/v1/namespaces/shop/status";
    assert_eq!(get(&service, status).await.code, 200);
    for method in ["DELETE", "POST"] {
        let answer = send(&service, method, status, &[], Value::Null).await;
        assert_eq!((answer.code, &answer.value["reason"]), (405, &json!("MethodNotAllowed")), "{method}");
    }
    let shop = get(&service, "/api/v1/namespaces/shop").await;
    assert_eq!(shop.value["metadata"].get("deletionTimestamp"), None);
    let none = send(&service, "DELETE", &format!("{MAPS}/a/status"), &[], Value::Null).await;
    assert_eq!(none.code, 404);
}

#[tokio::test]
async fn reviews_support_only_create() {
    let service = service();
    let reviews = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    assert_eq!(post(&service, reviews, json!({})).await.code, 201);
    assert_eq!(get(&service, reviews).await.code, 405);
    assert_eq!(send(&service, "DELETE", reviews, &[], Value::Null).await.code, 405);
    assert_eq!(get(&service, &format!("{reviews}/a")).await.code, 404);
}

#[tokio::test]
async fn wrong_options_of_a_deletion_are_rejected() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}})).await;
    let sideways = delete(&service, "a", json!({"propagationPolicy": "Sideways"})).await;
    assert_eq!(refused(&sideways), (422, "propagationPolicy"));
    assert_eq!(sideways.value["details"]["kind"], "DeleteOptions");
    let both = delete(&service, "a", json!({"propagationPolicy": "Orphan", "orphanDependents": true})).await;
    assert_eq!(refused(&both), (422, "propagationPolicy"));
    assert_eq!(refused(&delete(&service, "a", json!({"dryRun": ["Some"]})).await), (422, "dryRun"));
    assert_eq!(delete(&service, "a", json!({"kind": "ConfigMap", "apiVersion": "v1"})).await.code, 400);
    assert_eq!(delete(&service, "a?propagationPolicy=Sideways", Value::Null).await.code, 422);
    assert_eq!(get(&service, &format!("{MAPS}/a")).await.code, 200);
    let kind = json!({"kind": "DeleteOptions", "apiVersion": "v1"});
    assert_eq!(delete(&service, "a", kind).await.code, 200);
}

#[tokio::test]
async fn protected_namespaces_cannot_be_deleted() {
    let service = service();
    post(&service, "/api/v1/namespaces", json!({"metadata": {"name": "kube-system"}})).await;
    let system = "/api/v1/namespaces/kube-system";
    let answer = send(&service, "DELETE", system, &[], Value::Null).await;
    assert_eq!((answer.code, &answer.value["reason"]), (403, &json!("Forbidden")));
    assert_eq!(get(&service, system).await.value["metadata"].get("deletionTimestamp"), None);
}

#[tokio::test]
async fn a_deletion_checks_its_preconditions() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}})).await;
    let other = delete(&service, "a", json!({"preconditions": {"uid": "another"}})).await;
    assert_eq!((other.code, &other.value["details"]["kind"]), (409, &json!("ConfigMap")));
    let message = other.value["message"].as_str().unwrap();
    assert!(message.contains("the UID in the precondition (another) does not match the UID in record ("), "{message}");
    let old = delete(&service, "a", json!({"preconditions": {"resourceVersion": "1"}})).await;
    assert!(old.value["message"].as_str().unwrap().ends_with("The object might have been modified"));
}

#[tokio::test]
async fn an_object_with_finalizers_has_no_grace_period() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a", "finalizers": ["example.test/a"]}})).await;
    let waits = delete(&service, "a", Value::Null).await.value;
    assert_eq!(waits["metadata"]["deletionGracePeriodSeconds"], 0);
    let patched = send(&service, "PATCH", &format!("{MAPS}/a"), &[MERGE], json!({"data": {"k": "v"}})).await.value;
    assert_eq!(patched["metadata"]["deletionGracePeriodSeconds"], 0);
}

#[tokio::test]
async fn an_orphaned_dependent_loses_its_owner_reference_and_stays() {
    let api = Arc::new(Api::new(Store::memory(), environment()));
    let service = router(api.clone());
    post(&service, "/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    let owner = |made: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": made["metadata"]["name"], "uid": made["metadata"]["uid"]});
    let a = owner(&post(&service, MAPS, json!({"metadata": {"name": "a"}})).await.value);
    let b = owner(&post(&service, MAPS, json!({"metadata": {"name": "b"}})).await.value);
    let secrets = "/api/v1/namespaces/shop/secrets";
    post(&service, secrets, json!({"metadata": {"name": "of-a", "ownerReferences": [a]}})).await;
    post(&service, secrets, json!({"metadata": {"name": "of-both", "ownerReferences": [a, b]}})).await;
    let policy = json!({"propagationPolicy": "Orphan"});
    delete(&service, "a?dryRun=All", policy.clone()).await;
    let still = get(&service, &format!("{secrets}/of-a")).await.value;
    assert_eq!(still["metadata"]["ownerReferences"], json!([a]));
    assert_eq!(delete(&service, "a", policy).await.code, 200);
    api.collect().await.unwrap();
    let free = get(&service, &format!("{secrets}/of-a")).await;
    assert_eq!((free.code, free.value["metadata"].get("ownerReferences")), (200, None));
    let of_b = get(&service, &format!("{secrets}/of-both")).await.value;
    assert_eq!(of_b["metadata"]["ownerReferences"], json!([b]));
    delete(&service, "b", json!({"propagationPolicy": "Background"})).await;
    api.collect().await.unwrap();
    assert_eq!(get(&service, &format!("{secrets}/of-both")).await.code, 404);
}

#[tokio::test]
async fn wrong_options_of_a_write_are_reported_like_those_of_an_object() {
    let service = shop().await;
    let body = json!({"metadata": {"name": "a"}});
    let odd = post(&service, &format!("{MAPS}?dryRun=Some"), body.clone()).await;
    assert_eq!(refused(&odd), (422, "dryRun"));
    assert_eq!(odd.value["details"]["kind"], "CreateOptions");
    let sometimes = send(&service, "PUT", &format!("{MAPS}/a?fieldValidation=Sometimes"), &[], body).await;
    assert_eq!(refused(&sometimes), (422, "fieldValidation"));
    assert_eq!(sometimes.value["details"]["kind"], "UpdateOptions");
}

#[tokio::test]
async fn contradicting_parameters_of_a_list_are_rejected() {
    let service = shop().await;
    let ask = async |query: &str| get(&service, &format!("{MAPS}?{query}")).await;
    for query in ["limit=x", "resourceVersion=x", "labelSelector=-app"] {
        let answer = ask(query).await;
        assert_eq!((answer.code, &answer.value["reason"]), (400, &json!("BadRequest")), "{query}");
    }
    for query in [
        "resourceVersionMatch=NotOlderThan",
        "resourceVersion=1&resourceVersionMatch=Sometimes",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=1&resourceVersionMatch=Exact&continue=eC95",
    ] {
        assert_eq!(refused(&ask(query).await), (422, "resourceVersionMatch"), "{query}");
    }
    assert_eq!(refused(&ask("sendInitialEvents=true").await), (422, "sendInitialEvents"));
    assert_eq!(ask("resourceVersion=1&resourceVersionMatch=NotOlderThan&limit=-1").await.code, 200);
    assert_eq!(ask("resourceVersion=1&resourceVersionMatch=Exact").await.code, 200);
    post(&service, MAPS, json!({"metadata": {"name": "a"}})).await;
    let past = ask("resourceVersion=1&resourceVersionMatch=Exact").await;
    assert_eq!((past.code, &past.value["reason"]), (410, &json!("Expired")));
}

#[tokio::test]
async fn contradicting_parameters_of_a_watch_are_rejected() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}})).await;
    for query in ["sendInitialEvents=true", "resourceVersion=1&resourceVersionMatch=NotOlderThan"] {
        assert_eq!(watch(&service, query).await.status(), 422, "{query}");
    }
    let response = watch(&service, "sendInitialEvents=false&resourceVersionMatch=NotOlderThan").await;
    post(&service, MAPS, json!({"metadata": {"name": "b"}})).await;
    assert_eq!(events(response, 1).await, pairs(&[("ADDED", "b")]));
    let one = get(&service, &format!("{MAPS}/a?watch=true")).await.value;
    assert_eq!(one["metadata"]["name"], "a");
}

#[tokio::test]
async fn items_of_a_built_in_list_have_no_kind() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}})).await;
    let list = get(&service, MAPS).await.value;
    assert_eq!((&list["kind"], &list["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert_eq!((list["items"][0].get("kind"), list["items"][0].get("apiVersion")), (None, None));
}

#[tokio::test]
async fn a_part_of_a_selection_has_no_remaining_count() {
    let service = shop().await;
    for name in ["a", "b", "c"] {
        post(&service, MAPS, json!({"metadata": {"name": name, "labels": {"app": "web"}}})).await;
    }
    let first = get(&service, &format!("{MAPS}?limit=2&labelSelector=app%3Dweb")).await.value;
    assert!(first["metadata"]["continue"].is_string());
    assert_eq!(first["metadata"].get("remainingItemCount"), None);
}

const TABLE: (&str, &str) = ("accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json");

#[tokio::test]
async fn a_table_contains_as_much_of_its_objects_as_requested() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let table = async |include: &str| {
        send(&service, "GET", &format!("{MAPS}?includeObject={include}"), &[TABLE], Value::Null).await
    };
    let metadata = table("Metadata").await.value;
    assert_eq!(metadata["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(table("None").await.value["rows"][0]["object"], Value::Null);
    let whole = table("Object").await.value;
    assert_eq!(whole["rows"][0]["object"]["data"], json!({"k": "v"}));
    assert_eq!(table("Some").await.code, 400);
    assert_eq!(metadata["columnDefinitions"][1]["type"], "string");
}

#[tokio::test]
async fn an_unknown_protobuf_field_is_rejected_and_named() {
    let service = shop().await;
    // A ConfigMap with a name, and an unknown field 9.
    let object = b"\x0a\x03\x0a\x01a\x4a\x01x";
    let sent = async |object: &[u8]| {
        let envelope = &b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12"[..];
        let body = [envelope, &[u8::try_from(object.len()).unwrap()], object];
        let request = Request::post(MAPS).header("content-type", "application/vnd.kubernetes.protobuf");
        let response = service.clone().oneshot(request.body(Body::from(body.concat())).unwrap()).await.unwrap();
        let code = response.status().as_u16();
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (code, serde_json::from_slice::<Value>(&bytes).unwrap())
    };
    let (code, status) = sent(object).await;
    assert_eq!((code, &status["reason"]), (415, &json!("UnsupportedMediaType")));
    let message = status["message"].as_str().unwrap();
    assert!(message.contains("field 9 of ConfigMap is not known"), "{message}");
    assert_eq!(get(&service, &format!("{MAPS}/a")).await.code, 404);
    assert_eq!(sent(&object[..5]).await.0, 201);
}

/// Returns a service with a definition of things that have these subresources.
async fn service_with_things(subresources: Value) -> Router {
    let service = service();
    let mut definition = fixtures::definition("things.example.test", "Thing", "Namespaced", &json!({"type": "object"}));
    definition["spec"]["versions"][0]["subresources"] = subresources;
    assert_eq!(post(&service, DEFINITIONS, definition).await.code, 201);
    service
}

#[tokio::test]
async fn the_table_of_a_definition_shows_its_creation_time() {
    let service = service_with_things(json!({})).await;
    let table = send(&service, "GET", DEFINITIONS, &[TABLE], Value::Null).await.value;
    assert_eq!(table["rows"][0]["cells"], json!(["things.example.test", "2026-03-01T12:00:00Z"]));
}

#[tokio::test]
async fn an_unsupported_verb_on_a_custom_resource_is_named() {
    let status = "/apis/example.test/v1/namespaces/shop/things/a/status";
    let service = service_with_things(json!({})).await;
    let absent = get(&service, status).await;
    assert_eq!((absent.code, &absent.value["message"]), (404, &json!("things.example.test \"a\" not found")));
    let service = service_with_things(json!({"status": {}})).await;
    let refused = send(&service, "DELETE", status, &[], Value::Null).await;
    let message = "delete is not supported on resources of kind \"things.example.test\"";
    assert_eq!((refused.code, &refused.value["message"]), (405, &json!(message)));
}

#[tokio::test]
async fn partial_metadata_is_for_one_object_or_for_a_list() {
    let service = shop().await;
    post(&service, MAPS, json!({"metadata": {"name": "a"}})).await;
    let as_kind = async |uri: &str, kind: &str| {
        let accept = format!("application/json;as={kind};g=meta.k8s.io;v=v1");
        send(&service, "GET", uri, &[("accept", &accept)], Value::Null).await
    };
    let one = format!("{MAPS}/a");
    assert_eq!(as_kind(&one, "PartialObjectMetadata").await.code, 200);
    assert_eq!(as_kind(MAPS, "PartialObjectMetadataList").await.code, 200);
    let refused = as_kind(MAPS, "PartialObjectMetadata").await;
    assert_eq!((refused.code, &refused.value["reason"]), (406, &json!("NotAcceptable")));
    assert_eq!(as_kind(&one, "PartialObjectMetadataList").await.code, 406);
}
