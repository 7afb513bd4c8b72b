//! The memory that the largest writes take.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use perennial_apiserver::api::Api;
use perennial_apiserver::environment::{Environment, counting};
use perennial_apiserver::http::router;
use perennial_apiserver::store::Store;
use serde_json::{Value, json};
use tower::ServiceExt;

/// Returns the peak memory of this process, in MiB.
fn peak() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

/// The only test in its process, so that it measures only its own memory.
#[tokio::test]
async fn an_apply_of_a_very_long_list_with_two_owners_takes_less_than_150_mib() {
    let environment = Environment::new(|| "2026-03-01T12:00:00Z".parse().unwrap(), counting());
    let service = router(Arc::new(Api::new(Store::memory(), environment)));
    let send = async |method: &str, uri: &str, kind: &str, body: Value| {
        let request = Request::builder().method(method).uri(uri).header("content-type", kind);
        let response = service.clone().oneshot(request.body(Body::from(body.to_string())).unwrap()).await.unwrap();
        response.status().as_u16()
    };
    let list = json!({
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}}},
    });
    let schema = json!({"type": "object", "properties": {"list": list}});
    let definition = json!({
        "metadata": {"name": "shelves.shop.test"},
        "spec": {
            "group": "shop.test", "scope": "Cluster", "names": {"plural": "shelves", "kind": "Shelf"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(send("POST", definitions, "application/json", definition).await, 201);
    let before = peak();
    let shelf = |numbers: &mut dyn Iterator<Item = usize>| {
        let list: Value = numbers.map(|number| json!({"name": format!("n{number:05}")})).collect();
        json!({"apiVersion": "shop.test/v1", "kind": "Shelf", "metadata": {"name": "a"}, "list": list})
    };
    let (forward, backward) = (shelf(&mut (0..12_000)), shelf(&mut (0..12_000).rev()));
    for (manager, body) in [("one", &forward), ("two", &backward), ("one", &forward), ("two", &backward)] {
        let uri = format!("/apis/shop.test/v1/shelves/a?force=true&fieldManager={manager}");
        let code = send("PATCH", &uri, "application/apply-patch+yaml", body.clone()).await;
        assert!(matches!(code, 200 | 201), "{code}");
    }
    let taken = peak() - before;
    assert!(taken < 150, "{taken} MiB");
}
