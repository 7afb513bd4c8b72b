//! `make bench`: certificates for a thousand Services beside as many bare pairs of a create and a patch, with keys of either kind,
//! for the first time and after a rotation of the service CA; and ten thousand, in time and memory. On a real kube-apiserver
//! with etcd, by the program as it is installed.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails by panicking")]

#[path = "../tests/common/admin.rs"]
mod admin;
#[path = "common/operator.rs"]
mod operator;

use std::collections::BTreeSet;
use std::pin::pin;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use admin::Administrator;
use futures_util::{StreamExt, stream};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service};
use kube_client::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube_client::core::PartialObjectMeta;
use kube_client::{Api, Client, ResourceExt};
use kube_runtime::watcher::{self, Event, watcher};
use operator::Operator;
use perennial_core::key::KeySpec;
use perennial_testbed::kubernetes::ControlPlane;
use perennial_x509::PrivateKey;
use serde_json::json;

/// How many times as long as bare pairs it may take with ECDSA, and as this run's own keys with RSA, divided by the cores.
const MOST_TIMES_BARE: f64 = 1.3;
const MOST_TIMES_KEYS: f64 = 1.2;
/// MiB, with ten thousand of them.
const MOST_MEMORY: f64 = 100.0;
/// How many times as long each of them may take then.
const MOST_GROWTH: f64 = 1.3;
/// How often what is compared is measured.
const ROUNDS: usize = 3;
/// Percent of a core, with ten thousand in place.
const MOST_IDLE: f64 = 1.0;
/// How many bare pairs are under way at once: as many as the operator has.
const AT_ONCE: usize = 16;
/// An operator that keeps the service CA and nothing else.
const SERVICE_CA: &[&str] = &["--controllers", "service-ca", "--lease-namespace", "default"];
const ASKS: &str = "service.beta.openshift.io/serving-cert-secret-name";
const FORCE: &str = "perennial.dev/force-rotation";

#[tokio::main]
async fn main() -> ExitCode {
    let few: usize = std::env::args().skip_while(|it| it != "--few").nth(1).map_or(1000, |it| it.parse().unwrap());
    let mut is_within = true;
    println!("\nServing certificates for {few} Services that appear at once before a running operator");
    // The server is not equally fast all the time: each is measured beside what it is compared with, and more than once. A server of its
    // own each time, because every rotation leaves something behind.
    println!(
        "{:>6} {:>12} {:>10} {:>12} {:>12} {:>5}",
        "round", "bare pairs", "Services", "when rotated", "processor", "MiB"
    );
    let [mut bare, mut issue, mut again] = [Duration::ZERO; 3];
    for round in 1..=ROUNDS {
        let bench = Bench::start("ECDSA P256", few).await;
        let operator = bench.operator().await;
        let issued = bench.serve(&operator, 0..few).await;
        let (used, resident) = (operator.processor_time(), operator.resident());
        let (paired, rotated) = (bench.bare(few).await, bench.rotate(few).await);
        let [paired_s, issued_s, rotated_s, used_s] = [paired, issued, rotated, used].map(|it| it.as_secs_f64());
        println!(
            "{round:>6} {paired_s:>10.2} s {issued_s:>8.2} s {rotated_s:>10.2} s {used_s:>10.1} s {resident:>5.0}"
        );
        (bare, issue, again) = (bare + paired, issue + issued, again + rotated);
    }
    is_within &= verdict("times bare pairs", issue.as_secs_f64() / bare.as_secs_f64(), MOST_TIMES_BARE);
    is_within &= verdict("when rotated, times bare pairs", again.as_secs_f64() / bare.as_secs_f64(), MOST_TIMES_BARE);

    let many = few * 10;
    let bench = Bench::start("ECDSA P256", many).await;
    let operator = bench.operator().await;
    let none = operator.resident();
    let all = bench.serve(&operator, 0..many).await;
    let large = operator.resident();
    println!("\n{many}: {:.2} s, {large:.0} MiB; {none:.0} MiB with none", all.as_secs_f64());
    is_within &= verdict("resident memory, MiB", large, MOST_MEMORY);
    let growth = all.as_secs_f64() / 10.0 / (issue.as_secs_f64() / ROUNDS as f64);
    is_within &= verdict("time of each, times that of each of a tenth", growth, MOST_GROWTH);
    let again = bench.rotate(many).await;
    println!("again after a rotation: {:.2} s, {:.0} MiB", again.as_secs_f64(), operator.resident());
    is_within &= verdict("resident memory, MiB", operator.resident(), MOST_MEMORY);
    drop(operator);
    let operator = Operator::start(&bench.admin, SERVICE_CA);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (before, memory) = (operator.processor_time(), operator.resident());
    println!("a new process finds them in place: {:.1} s of a processor, {memory:.0} MiB", before.as_secs_f64());
    is_within &= verdict("resident memory, MiB", memory, MOST_MEMORY);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let idle = (operator.processor_time() - before).as_secs_f64() / 20.0 * 100.0;
    is_within &= verdict("with nothing to do, percent of a core", idle, MOST_IDLE);
    drop(operator);
    drop(bench);

    // How long a key takes differs much: fewer would say little.
    let few = few / 2;
    let bench = Bench::start("RSA 2048", few).await;
    let operator = bench.operator().await;
    let keys = keys("RSA 2048", few);
    println!("\n{few} keys RSA 2048 of this run, divided by the cores: {:.2} s", keys.as_secs_f64());
    let issue = bench.serve(&operator, 0..few).await;
    println!("RSA 2048: {:.2} s for {few} Services", issue.as_secs_f64());
    is_within &= verdict("times keys", issue.as_secs_f64() / keys.as_secs_f64(), MOST_TIMES_KEYS);
    let again = bench.rotate(few).await;
    println!("again after a rotation: {:.2} s", again.as_secs_f64());
    is_within &= verdict("times keys", again.as_secs_f64() / keys.as_secs_f64(), MOST_TIMES_KEYS);
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn verdict(what: &str, found: f64, most: f64) -> bool {
    println!("{what}: {found:.2} (at most {most}) {}", if found <= most { "ok" } else { "OVER" });
    found <= most
}

/// How long this many keys take on all cores.
fn keys(kind: &str, count: usize) -> Duration {
    let spec: KeySpec = kind.parse().unwrap();
    let cores = std::thread::available_parallelism().unwrap().get();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| (0..count.div_ceil(cores)).for_each(|_| drop(PrivateKey::generate(spec).unwrap())));
        }
    });
    started.elapsed()
}

/// A cluster with Services that ask.
struct Bench {
    client: Client,
    /// How often it was measured: whatever is made has another name each time.
    measured: AtomicUsize,
    admin: Administrator,
    _top: tempfile::TempDir,
    _real: ControlPlane,
}

impl Bench {
    async fn start(keys: &str, count: usize) -> Bench {
        let real = ControlPlane::start().await.unwrap();
        let top = tempfile::tempdir().unwrap();
        let admin = Administrator::new(real.kubeconfig(), top.path());
        admin.prepare_cluster();
        let spec: KeySpec = keys.parse().unwrap();
        let policy = perennial_core::policy::Policy { defaults: Some(spec), ..Default::default() };
        let pki = perennial_api::pki::Pki::new("cluster", perennial_api::pki::PkiSpec::from(&policy));
        admin.kubectl_with("apply -f -", &serde_json::to_string(&pki).unwrap());
        let (client, measured) = (real.client().await.unwrap(), AtomicUsize::new(0));
        let bench = Bench { client, measured, admin, _top: top, _real: real };
        for number in 0..count.div_ceil(100) {
            let namespace = Namespace {
                metadata: ObjectMeta { name: Some(format!("shop-{number}")), ..ObjectMeta::default() },
                ..Namespace::default()
            };
            Api::<Namespace>::all(bench.client.clone()).create(&PostParams::default(), &namespace).await.unwrap();
        }
        bench
    }

    /// One that runs and has made the CA.
    async fn operator(&self) -> Operator {
        let operator = Operator::start(&self.admin, SERVICE_CA);
        let bundles = Api::<ConfigMap>::namespaced(self.client.clone(), "openshift-config-managed");
        while bundles.get_opt("service-ca").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        operator
    }

    /// Services that ask: a hundred in each namespace.
    async fn ask(&self, numbers: std::ops::Range<usize>) {
        let create = |number: usize| async move {
            let service: Service = serde_json::from_value(json!({
                "metadata": {"name": format!("web-{number}"), "annotations": {ASKS: format!("web-{number}-tls")}},
                "spec": {"ports": [{"port": 443}], "clusterIP": "None"},
            }))
            .unwrap();
            let api = Api::<Service>::namespaced(self.client.clone(), &namespace(number));
            api.create(&PostParams::default(), &service).await.unwrap();
        };
        stream::iter(numbers).map(create).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
    }

    /// As many creates of Secrets as large, each followed by a patch of a Service.
    async fn bare(&self, count: usize) -> Duration {
        let body = |name: String| Secret {
            metadata: ObjectMeta {
                name: Some(name),
                annotations: Some([("note".to_owned(), "x".repeat(700))].into()),
                ..ObjectMeta::default()
            },
            type_: Some("kubernetes.io/tls".to_owned()),
            data: Some(
                [
                    ("tls.crt".to_owned(), ByteString("x".repeat(1500).into_bytes())),
                    ("tls.key".to_owned(), ByteString("x".repeat(230).into_bytes())),
                ]
                .into(),
            ),
            ..Secret::default()
        };
        let round = self.measured.fetch_add(1, Ordering::Relaxed);
        let pair = |number: usize| async move {
            let secrets = Api::<Secret>::namespaced(self.client.clone(), &namespace(number));
            secrets.create(&PostParams::default(), &body(format!("bare-{round}-{number}"))).await.unwrap();
            let services = Api::<Service>::namespaced(self.client.clone(), &namespace(number));
            let signer = format!("signer@{round}");
            let patch = json!({"metadata": {"annotations": {"bare/one": signer, "bare/two": signer}}});
            services.patch(&format!("web-{number}"), &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
        };
        let started = Instant::now();
        stream::iter(0..count).map(pair).buffer_unordered(AT_ONCE).collect::<Vec<()>>().await;
        started.elapsed()
    }

    /// They appear while the operator holds its breath; then from its next one until all have what they ask for, and are told.
    async fn serve(&self, operator: &Operator, numbers: std::ops::Range<usize>) -> Duration {
        operator.signal("-STOP");
        self.ask(numbers.clone()).await;
        let services = watcher(Api::<PartialObjectMeta<Service>>::all(self.client.clone()), watcher::Config::default());
        let is_told = |it: &PartialObjectMeta<Service>| it.annotations().keys().any(|key| key.ends_with("signed-by"));
        let mut services = pin!(services);
        // What is there already is heard first.
        while !matches!(services.next().await.unwrap().unwrap(), Event::InitDone) {}
        let mut told = BTreeSet::new();
        let started = Instant::now();
        operator.signal("-CONT");
        while told.len() < numbers.len() {
            match services.next().await.unwrap().unwrap() {
                Event::Apply(it) | Event::InitApply(it) if is_told(&it) => drop(told.insert(it.name_any())),
                _ => {}
            }
        }
        started.elapsed()
    }

    /// From asking for another CA until all have another certificate.
    async fn rotate(&self, count: usize) -> Duration {
        let secrets = watcher(
            Api::<PartialObjectMeta<Secret>>::all(self.client.clone()),
            watcher::Config::default().fields("type=kubernetes.io/tls"),
        );
        let mut secrets = pin!(secrets);
        while !matches!(secrets.next().await.unwrap().unwrap(), Event::InitDone) {}
        let mut again = BTreeSet::new();
        let round = self.measured.fetch_add(1, Ordering::Relaxed);
        let ask = json!({"metadata": {"annotations": {FORCE: format!("measurement {round}")}}});
        let signers = Api::<Secret>::namespaced(self.client.clone(), "openshift-service-ca");
        let started = Instant::now();
        signers.patch("signing-key", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
        while again.len() < count {
            match secrets.next().await.unwrap().unwrap() {
                Event::Apply(it) if it.name_any().starts_with("web-") => drop(again.insert(it.name_any())),
                _ => {}
            }
        }
        started.elapsed()
    }
}

fn namespace(number: usize) -> String {
    format!("shop-{}", number / 100)
}
