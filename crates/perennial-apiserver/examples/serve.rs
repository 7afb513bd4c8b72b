//! Serves an empty API in memory on a port of loopback, for looking at it with kubectl: `--server http://127.0.0.1:PORT`.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "an example prints, and fails by panicking")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use perennial_apiserver::api::Api;
use perennial_apiserver::environment::Environment;
use perennial_apiserver::http::router;
use perennial_apiserver::store::Store;

#[tokio::main(flavor = "current_thread")]
async fn main() {
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let start: jiff::Timestamp =
        std::env::args().nth(1).expect("the time, such as 2026-03-01T12:00:00Z").parse().unwrap();
    let random = || {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        [mixed.to_be_bytes(), number.to_be_bytes()].concat().try_into().unwrap()
    };
    let api = Arc::new(Api::new(Store::memory(), Environment::new(move || start, random)));
    tokio::spawn(api.clone().collect_forever());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    axum::serve(listener, router(api)).await.unwrap();
}
