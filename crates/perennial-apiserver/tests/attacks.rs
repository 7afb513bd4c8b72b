//! The memory that large lists and stalled watchers take.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, Response};
use futures_util::future::join_all;
use http_body_util::BodyExt;
use perennial_apiserver::api::Api;
use perennial_apiserver::environment::{Environment, counting};
use perennial_apiserver::http::router;
use perennial_apiserver::listen::User;
use perennial_apiserver::store::{Expect, Key, Store, Write};
use tower::ServiceExt;

const OBJECTS: usize = 100_000;
const WATCHES: usize = 256;
const MAPS: &str = "/api/v1/configmaps";

/// Returns the resident memory of this process, in MiB.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() >> 10
}

async fn put(store: &Store, name: &str, expect: Expect, text: &str) -> u64 {
    let key = Key { resource: "configmaps".into(), namespace: "shop".into(), name: name.into() };
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","namespace":"shop"}},"data":{{"k":"{text}"}}}}"#
    );
    store.write(Write { key, expect, body: Some(body.into_bytes().into()) }).await.unwrap()
}

/// Sends a request as a listener passes it on.
async fn get(service: &Router, path: &str) -> Response<Body> {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(User::default());
    service.clone().oneshot(request).await.unwrap()
}

/// The only test in its process, so that it measures only its own memory.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn six_lists_of_everything_and_256_stalled_watchers_fit_in_300_mib() {
    let store = Store::memory();
    for number in 0..OBJECTS {
        put(&store, &format!("m{number:06}"), Expect::Absent, &"x".repeat(300)).await;
    }
    let environment = Environment::new(|| "2026-03-01T12:00:00Z".parse().unwrap(), counting());
    let service = router(Arc::new(Api::new(store.clone(), environment)));

    // All responses begin before any client reads.
    let answers = join_all((0..6).map(|_| get(&service, MAPS))).await;
    let mut codes: Vec<u16> = answers.iter().map(|answer| answer.status().as_u16()).collect();
    codes.sort_unstable();
    assert_eq!(codes, [200, 200, 200, 200, 429, 429]);
    let lengths = join_all(answers.into_iter().map(|answer| async {
        let (mut body, mut length) = (answer.into_body(), 0);
        while let Some(frame) = body.frame().await {
            length += frame.unwrap().data_ref().map_or(0, |data| data.len());
        }
        length
    }))
    .await;
    assert_eq!(lengths.iter().filter(|length| **length > OBJECTS * 300).count(), 4, "{lengths:?}");
    assert!(resident() < 300, "{} MiB after the lists", resident());
    assert_eq!(get(&service, MAPS).await.status(), 200, "the places are free again");

    let mut watches = Vec::new();
    for number in 0..WATCHES {
        let path = if number % 2 == 0 {
            format!("{MAPS}?watch=true")
        } else {
            format!("{MAPS}?watch=true&resourceVersion={OBJECTS}")
        };
        watches.push(get(&service, &path).await.into_body());
    }
    let mut revision = put(&store, "large", Expect::Absent, "").await;
    for number in 0..60_u8 {
        let text = char::from(b'a' + number % 26).to_string().repeat(500_000);
        revision = put(&store, "large", Expect::Revision(revision), &text).await;
        // Each client has read a little, and then stops.
        if number == 5 {
            for watch in &mut watches {
                assert!(watch.frame().await.is_some());
            }
        }
    }
    assert!(resident() < 300, "{} MiB with the watchers", resident());
}
