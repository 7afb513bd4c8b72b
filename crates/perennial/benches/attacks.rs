//! Attacks a `perennial up` process over TLS, and measures the latency of `/livez` and the peak memory meanwhile.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails by panicking")]

#[path = "../tests/common/up.rs"]
mod up;

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube_client::client::Body;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use serde_json::{Value, json};

const LATENCY: Duration = Duration::from_millis(200);
const MEMORY_MIB: usize = 300;
const PROBE_EVERY: Duration = Duration::from_millis(20);

/// How long an attack is repeated at least, so that enough probes run meanwhile.
const ATTACKED: Duration = Duration::from_secs(2);
/// How many attacks of one request run at the same time.
const AT_ONCE: usize = 4;
/// The ConfigMaps in the lists. Each has one byte of data besides its metadata.
const OBJECTS: usize = 100_000;
const LISTS: usize = 6;
const WATCHES: usize = 256;
/// Writes of 500 kB that no watcher reads.
const LARGE_WRITES: usize = 60;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const SHELVES: &str = "/apis/shop.test/v1/shelves";
const JSON: &str = "application/json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

#[tokio::main]
async fn main() -> ExitCode {
    let top = up::directory();
    let server = up::Up::start(&top.path().join("data"), &[]);
    let config = Kubeconfig::read_from(server.kubeconfig()).unwrap();
    let mut config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    config.default_retry = false;
    let client = client(&config);
    let probe = Probe::start(config.clone());
    println!("\nAttacks on perennial up, while another client asks for /livez every {} ms", PROBE_EVERY.as_millis());
    println!("{:<48} {:<20} {:>8} {:>12} {:>8}", "attack", "answers", "probes", "slowest", "limit");
    let mut is_within = true;
    let mut report = |attack: &str, answers: &BTreeMap<u16, usize>| {
        let Probes { count, slowest } = probe.take();
        let verdict = if slowest <= LATENCY { "ok" } else { "OVER" };
        is_within &= slowest <= LATENCY;
        let answers: Vec<String> = answers.iter().map(|(code, count)| format!("{count} x {code}")).collect();
        let (slowest, limit) = (slowest.as_secs_f64() * 1000.0, LATENCY.as_millis());
        println!("{attack:<48} {:<20} {count:>8} {slowest:>9.1} ms {limit:>5} ms  {verdict}", answers.join(", "));
    };

    create_shelf(&client).await;
    probe.take();
    for attack in [deep_patch(), doubling_patch(), long_rule(), brackets()] {
        report(attack.name, &attack.repeat(&client).await);
    }
    let begun = Instant::now();
    fill(&client).await;
    let took = begun.elapsed().as_secs_f64();
    let name = format!("creation of {OBJECTS} ConfigMaps in {took:.0} s");
    report(&name, &BTreeMap::from([(201, OBJECTS)]));
    report(&format!("{LISTS} lists of {OBJECTS} objects, all at once"), &lists(&config).await);
    report(&format!("{WATCHES} stalled watchers, {LARGE_WRITES} writes of 500 kB"), &watches(&config).await);

    let peak = peak_mib(server.process());
    let verdict = if peak <= MEMORY_MIB { "ok" } else { "OVER" };
    println!("\nPeak resident memory: {peak} MiB (at most {MEMORY_MIB})  {verdict}");
    probe.stop();
    if is_within && peak <= MEMORY_MIB { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Returns a client with its own connections.
fn client(config: &Config) -> Client {
    Client::try_from(config.clone()).unwrap()
}

async fn send(client: &Client, method: &str, path: &str, kind: &str, body: Vec<u8>) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", kind);
    client.send(request.body(Body::from(body)).unwrap()).await.unwrap()
}

/// Reads a response without keeping it, and returns its status and its length.
async fn read(response: Response<Body>) -> (u16, usize) {
    let (status, mut body, mut length) = (response.status().as_u16(), response.into_body(), 0);
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().data_ref().map_or(0, |data| data.len());
    }
    (status, length)
}

fn counted(codes: impl IntoIterator<Item = u16>) -> BTreeMap<u16, usize> {
    let mut counts = BTreeMap::new();
    codes.into_iter().for_each(|code| *counts.entry(code).or_default() += 1);
    counts
}

/// An attack of one request.
struct Attack {
    name: &'static str,
    method: &'static str,
    path: String,
    kind: &'static str,
    body: Vec<u8>,
}

impl Attack {
    async fn repeat(&self, client: &Client) -> BTreeMap<u16, usize> {
        let send = async || read(send(client, self.method, &self.path, self.kind, self.body.clone()).await).await.0;
        let mut codes = Vec::new();
        let begun = Instant::now();
        while begun.elapsed() < ATTACKED {
            codes.extend(join_all((0..AT_ONCE).map(|_| send())).await);
        }
        // Every attack is rejected with the status for its limit.
        assert!(codes.iter().all(|code| matches!(code, 413 | 422)), "{}: {codes:?}", self.name);
        counted(codes)
    }
}

/// Creates a resource that accepts any fields, and an object of it.
async fn create_shelf(client: &Client) {
    let free = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let made = send(client, "POST", DEFINITIONS, JSON, definition("shelves", "Shelf", &free)).await;
    assert_eq!(read(made).await.0, 201);
    let shelf = json!({"apiVersion": "shop.test/v1", "kind": "Shelf", "metadata": {"name": "a"}, "spec": {"a": {}}});
    let deadline = Instant::now() + Duration::from_secs(30);
    while read(send(client, "POST", SHELVES, JSON, shelf.to_string().into_bytes()).await).await.0 != 201 {
        assert!(Instant::now() < deadline, "the definition is served within 30 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn definition(plural: &str, kind: &str, spec: &Value) -> Vec<u8> {
    let schema = json!({"type": "object", "properties": {"spec": spec}});
    let version = json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
    let names =
        json!({"plural": plural, "singular": kind.to_lowercase(), "kind": kind, "listKind": format!("{kind}List")});
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.shop.test")},
        "spec": {"group": "shop.test", "scope": "Cluster", "names": names, "versions": [version]},
    });
    definition.to_string().into_bytes()
}

fn patch(name: &'static str, operations: Vec<Value>) -> Attack {
    let body = Value::from(operations).to_string().into_bytes();
    Attack { name, method: "PATCH", path: format!("{SHELVES}/a"), kind: JSON_PATCH, body }
}

/// Each of 14 operations doubles the number of levels.
fn deep_patch() -> Attack {
    let copy = |it: usize| json!({"op": "copy", "from": "/spec", "path": format!("/spec{}", "/a".repeat(1 << it))});
    patch("JSON patch: 16,384 levels by copy", (0..14).map(copy).collect())
}

/// Each operation doubles the number of bytes.
fn doubling_patch() -> Attack {
    let text = json!({"op": "add", "path": "/spec/text", "value": "x".repeat(100)});
    let copy = |it: usize| json!({"op": "copy", "from": "/spec", "path": format!("/spec/b{it}")});
    patch("JSON patch: 26 doublings by copy", std::iter::once(text).chain((0..26).map(copy)).collect())
}

fn long_rule() -> Attack {
    let rule = format!("{} == 5000", vec!["1"; 5000].join("+"));
    let spec = json!({"type": "object", "x-kubernetes-validations": [{"rule": rule}]});
    let body = definition("benches", "Bench", &spec);
    Attack { name: "CRD: a CEL rule of 5,000 terms", method: "POST", path: DEFINITIONS.to_owned(), kind: JSON, body }
}

fn brackets() -> Attack {
    let path = format!("{SHELVES}/b?fieldManager=bench");
    Attack { name: "YAML: 60 kB of [", method: "PATCH", path, kind: APPLY, body: vec![b'['; 60_000] }
}

/// Creates the objects of the lists, 32 at a time.
async fn fill(client: &Client) {
    let next = Arc::new(AtomicUsize::new(0));
    let create = || {
        let (client, next) = (client.clone(), next.clone());
        tokio::spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= OBJECTS {
                    return;
                }
                let map = json!({"metadata": {"name": format!("m{number:06}")}, "data": {"k": "x"}});
                let made = send(&client, "POST", MAPS, JSON, map.to_string().into_bytes()).await;
                assert_eq!(read(made).await.0, 201);
            }
        })
    };
    for task in (0..32).map(|_| create()).collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

/// Begins all lists before it reads any of them, again and again.
async fn lists(config: &Config) -> BTreeMap<u16, usize> {
    let clients: Vec<Client> = (0..LISTS).map(|_| client(config)).collect();
    let (begun, mut codes) = (Instant::now(), Vec::new());
    while begun.elapsed() < ATTACKED {
        let responses = join_all(clients.iter().map(|client| send(client, "GET", MAPS, JSON, Vec::new()))).await;
        let answers = join_all(responses.into_iter().map(read)).await;
        assert!(answers.iter().all(|(code, length)| *code == 429 || *length > 100 * OBJECTS), "{answers:?}");
        codes.extend(answers.into_iter().map(|(code, _)| code));
    }
    counted(codes)
}

/// Opens watches that no client reads, and writes a large object many times.
async fn watches(config: &Config) -> BTreeMap<u16, usize> {
    let writer = client(config);
    let large = |number: usize| {
        let text = char::from(b'a' + u8::try_from(number % 26).unwrap()).to_string().repeat(500_000);
        json!({"metadata": {"name": "large"}, "data": {"k": text}}).to_string().into_bytes()
    };
    assert_eq!(read(send(&writer, "POST", MAPS, JSON, large(0)).await).await.0, 201);
    let mut watches = Vec::new();
    for number in 0..WATCHES {
        // Half of the watches begin with all objects.
        let from = if number % 2 == 0 { "" } else { "&resourceVersion=0&fieldSelector=metadata.name%3Dlarge" };
        // Each watch has its own connection.
        let client = client(config);
        let response = send(&client, "GET", &format!("{MAPS}?watch=true{from}"), JSON, Vec::new()).await;
        watches.push((client, response));
    }
    // All places are taken. Later, a watcher that has missed more than 32 MiB of changes gets 410, and the server frees its place.
    let one_more = send(&writer, "GET", &format!("{MAPS}?watch=true"), JSON, Vec::new()).await;
    assert_eq!(one_more.status(), 429);
    for number in 1..=LARGE_WRITES {
        let written = send(&writer, "PUT", &format!("{MAPS}/large"), JSON, large(number)).await;
        assert_eq!(read(written).await.0, 200);
    }
    counted(watches.iter().map(|(_, watch)| watch.status().as_u16()))
}

/// Returns the peak resident memory of a process in MiB.
fn peak_mib(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() / 1024
}

/// The answers of `/livez`.
#[derive(Debug, Clone, Copy, Default)]
struct Probes {
    count: usize,
    slowest: Duration,
}

/// Asks for `/livez` on its own thread, so that the attacking client does not delay the measurement.
struct Probe {
    probes: Arc<Mutex<Probes>>,
    is_stopping: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Probe {
    fn start(config: Config) -> Probe {
        let (probes, is_stopping) = (Arc::new(Mutex::new(Probes::default())), Arc::new(AtomicBool::new(false)));
        let (found, is_over) = (probes.clone(), is_stopping.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let client = client(&config);
                while !is_over.load(Ordering::Relaxed) {
                    let begun = Instant::now();
                    let (code, _) = read(send(&client, "GET", "/livez", JSON, Vec::new()).await).await;
                    let took = begun.elapsed();
                    assert_eq!(code, 200);
                    {
                        let mut probes = found.lock().unwrap();
                        *probes = Probes { count: probes.count + 1, slowest: took.max(probes.slowest) };
                    }
                    tokio::time::sleep(PROBE_EVERY.saturating_sub(took)).await;
                }
            });
        });
        Probe { probes, is_stopping, thread }
    }

    /// Waits for the answer to the current probe, and returns the answers since the last call.
    fn take(&self) -> Probes {
        let before = self.probes.lock().unwrap().count;
        while self.probes.lock().unwrap().count == before {
            assert!(!self.thread.is_finished(), "/livez did not answer");
            std::thread::sleep(Duration::from_millis(1));
        }
        std::mem::take(&mut *self.probes.lock().unwrap())
    }

    fn stop(self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.thread.join().unwrap();
    }
}
