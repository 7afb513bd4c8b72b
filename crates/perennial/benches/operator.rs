//! Measures the first pass of the operator, compared with bare writes of the same bodies, and the cost of an idle operator.
//! Uses a real kube-apiserver with etcd.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails by panicking")]

#[path = "../tests/common/admin.rs"]
mod admin;
#[path = "../src/clock.rs"]
mod clock;
#[path = "common/operator.rs"]
mod operator;

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, Instant};

use admin::Administrator;
use http::{Method, Request};
use http_body_util::BodyExt;
use kube_client::Client;
use kube_client::client::Body;
use operator::Operator;
use perennial_core::catalog::Catalog;
use perennial_core::plan::Planner;
use perennial_operator::observe::View;
use perennial_operator::run::Runner;
use perennial_testbed::kubernetes::ControlPlane;
use perennial_x509::KeyPool;
use serde_json::{Value, json};
use tower::service_fn;

/// The limit of the time of a first pass, relative to bare writes.
const MOST_TIMES: f64 = 1.5;
/// The limits of an idle operator: percent of a core, and MiB of memory.
const MOST_IDLE: f64 = 0.5;
const MOST_MEMORY: f64 = 60.0;
const IDLE: Duration = Duration::from_secs(60);
/// The number of runs. Each run has its own server, because the operator does not issue existing certificates again.
const RUNS: usize = 3;

const POLICY: &str = "\
apiVersion: config.openshift.io/v1
kind: PKI
metadata: {name: cluster}
spec: {defaults: {key: {algorithm: ECDSA, ecdsa: {curve: P256}}}}
";

/// The recorded writes, in order.
type Written = Arc<Mutex<Vec<(Method, String, Vec<u8>)>>>;

#[tokio::main]
async fn main() -> ExitCode {
    let mut times: Vec<f64> = Vec::new();
    println!(
        "\nFirst installation of all certificates with ECDSA P-256 beside as many bare writes, one after the other"
    );
    println!("{:>6} {:>8} {:>14} {:>12} {:>8}", "run", "writes", "installation", "bare writes", "times");
    let mut last = None;
    for run in 1..=RUNS {
        let real = ControlPlane::start().await.unwrap();
        let top = tempfile::tempdir().unwrap();
        let admin = Administrator::new(real.kubeconfig(), top.path());
        admin.prepare_cluster();
        admin.kubectl_with("apply -f -", POLICY);
        let (installation, written) = install(real.client().await.unwrap()).await;
        let count = written.len();
        let bare = replay(&real.client().await.unwrap(), written).await;
        let ratio = installation.as_secs_f64() / bare.as_secs_f64();
        println!("{run:>6} {count:>8} {:>11.0} ms {:>9.0} ms {ratio:>8.2}", millis(installation), millis(bare));
        times.push(ratio);
        last = Some((real, top, admin));
    }
    times.sort_by(f64::total_cmp);
    let median = times[RUNS / 2];
    let mut is_within = verdict("median of the runs, times", median, MOST_TIMES);

    let (_real, _top, admin) = last.unwrap();
    let operator = Operator::start(&admin, &[]);
    // Wait for the first pass and the watches.
    tokio::time::sleep(Duration::from_secs(20)).await;
    let before = operator.processor_time();
    tokio::time::sleep(IDLE).await;
    let percent = (operator.processor_time() - before).as_secs_f64() / IDLE.as_secs_f64() * 100.0;
    println!("\nperennial run with everything issued, over {} s", IDLE.as_secs());
    is_within &= verdict("of a core, percent", percent, MOST_IDLE);
    is_within &= verdict("resident memory, MiB", operator.resident(), MOST_MEMORY);
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn verdict(what: &str, found: f64, most: f64) -> bool {
    println!("{what}: {found:.2} (at most {most}) {}", if found <= most { "ok" } else { "OVER" });
    found <= most
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Makes one pass, including events and conditions, and records the writes.
async fn install(client: Client) -> (Duration, Vec<(Method, String, Vec<u8>)>) {
    static PLANNER: LazyLock<Planner<'static>> = LazyLock::new(|| Planner::new(Catalog::builtin()));
    let written = Written::default();
    let record = written.clone();
    let service = service_fn(move |request: Request<Body>| {
        let (client, record) = (client.clone(), record.clone());
        async move {
            if request.method() == Method::GET {
                return client.send(request).await;
            }
            let (parts, body) = request.into_parts();
            let body = body.collect().await?.to_bytes().to_vec();
            record.lock().unwrap().push((parts.method.clone(), parts.uri.path().to_owned(), body.clone()));
            client.send(Request::from_parts(parts, Body::from(body))).await
        }
    });
    let keys = Arc::new(KeyPool::eager(std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)).unwrap());
    let runner = Runner::new(&PLANNER, Client::new(service, "default"), keys, View::default(), Arc::new(clock::now));
    let started = Instant::now();
    let passed = runner.once().await.unwrap();
    let took = started.elapsed();
    assert!(passed.failed.is_empty() && passed.written.len() == 47, "{:?}", passed.failed);
    drop(runner);
    let written = std::mem::take(&mut *written.lock().unwrap());
    (took, written)
}

/// Writes the same bodies under other names, one after the other.
async fn replay(client: &Client, written: Vec<(Method, String, Vec<u8>)>) -> Duration {
    let bare: Vec<Request<Vec<u8>>> =
        written.into_iter().enumerate().filter_map(|(number, it)| again(number, it)).collect();
    let started = Instant::now();
    for request in bare {
        client.request::<Value>(request).await.unwrap();
    }
    started.elapsed()
}

/// Returns a create of the same body: of the same kind if it is namespaced, else of a ConfigMap of the same size.
fn again(number: usize, (method, path, body): (Method, String, Vec<u8>)) -> Option<Request<Vec<u8>>> {
    let mut object: Value = serde_json::from_slice(&body).ok()?;
    let name = format!("bare-{number}");
    let (path, object) = if method == Method::POST && path.contains("/namespaces/") {
        object["metadata"]["name"] = json!(name);
        (path, object)
    } else {
        let data = json!({"data": String::from_utf8(body).unwrap()});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
        ("/api/v1/namespaces/default/configmaps".to_owned(), map)
    };
    let request = Request::post(path).header("content-type", "application/json");
    Some(request.body(serde_json::to_vec(&object).unwrap()).unwrap())
}
