//! The memory that many slow readers take.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Arc;

use axum::body::Body;
use axum::http::Request;
use perennial_apiserver::api::{Api, WriteOptions};
use perennial_apiserver::environment::{Environment, counting};
use perennial_apiserver::http::router;
use perennial_apiserver::path::Target;
use perennial_apiserver::store::Store;
use serde_json::json;
use tower::ServiceExt;

const OBJECTS: usize = 20;
const SIZE: usize = 200 << 10;
const WATCHES: usize = 64;

/// Returns the resident memory of this process, in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// The only test in its process, so that it measures only its own memory.
#[tokio::test]
async fn an_unread_watch_keeps_no_text_of_its_initial_objects() {
    let environment = Environment::new(|| "2026-03-01T12:00:00Z".parse().unwrap(), counting());
    let api = Arc::new(Api::new(Store::memory(), environment));
    let make = async |path: &str, object| {
        let Target::Objects(at) = Target::parse(path) else { panic!("{path}") };
        api.create(&at, object, &WriteOptions::default()).await.unwrap();
    };
    make("/api/v1/namespaces", json!({"metadata": {"name": "shop"}})).await;
    for number in 0..OBJECTS {
        let map = json!({"metadata": {"name": format!("m{number}")}, "data": {"k": "x".repeat(SIZE)}});
        make("/api/v1/namespaces/shop/configmaps", map).await;
    }
    let before = resident();
    let mut watches = Vec::new();
    for _ in 0..WATCHES {
        let request = Request::get("/api/v1/namespaces/shop/configmaps?watch=true").body(Body::empty()).unwrap();
        watches.push(router(api.clone()).oneshot(request).await.unwrap());
    }
    let grown = resident().saturating_sub(before);
    // As text, all events would take 256 MiB.
    assert!(grown < WATCHES * OBJECTS * SIZE / 10, "{WATCHES} watches have taken {} KiB", grown >> 10);
    drop(watches);
}
