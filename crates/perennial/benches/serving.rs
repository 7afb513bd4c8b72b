//! Measures certificates of 1,000 Services, compared with bare pairs of a create and a patch, for the first time and after a rotation
//! of the service CA; and time and memory with 10,000 Services. Uses the real binary on a kube-apiserver with etcd.

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

/// The limits of the time, relative to bare pairs with ECDSA, and relative to key generation on all cores with RSA.
const MOST_TIMES_BARE: f64 = 1.3;
const MOST_TIMES_KEYS: f64 = 1.2;
/// The limit of memory in MiB, with 10,000 Services.
const MOST_MEMORY: f64 = 100.0;
/// The limit of the time for each of 10,000 Services, relative to a bare pair.
const MOST_GROWTH: f64 = 1.3;
/// The number of measurements of each comparison.
const ROUNDS: usize = 3;
/// The limit of an idle operator with 10,000 Services, in percent of a core.
const MOST_IDLE: f64 = 1.0;
/// The number of concurrent bare pairs: the same as in the operator.
const AT_ONCE: usize = 16;
/// The arguments of an operator that manages only the service CA.
const SERVICE_CA: &[&str] = &["--controllers", "service-ca", "--lease-namespace", "default"];
const ASKS: &str = "service.beta.openshift.io/serving-cert-secret-name";
const FORCE: &str = "perennial.dev/force-rotation";

#[tokio::main]
async fn main() -> ExitCode {
    let few: usize = std::env::args().skip_while(|it| it != "--few").nth(1).map_or(1000, |it| it.parse().unwrap());
    let mut is_within = true;
    println!("\nServing certificates for {few} Services that appear at once before a running operator");
    // The speed of the server varies, so each measurement follows its comparison, and is repeated. Each has its own server, because
    // rotations leave previous CAs behind.
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

    // The time to generate a key varies a lot, so measure many.
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

/// Measures the generation of keys on all cores.
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

/// A cluster with Services that ask for certificates.
struct Bench {
    client: Client,
    /// The number of the measurement, for unique names.
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

    /// Starts an operator, and waits until it has issued the CA.
    async fn operator(&self) -> Operator {
        let operator = Operator::start(&self.admin, SERVICE_CA);
        let bundles = Api::<ConfigMap>::namespaced(self.client.clone(), "openshift-config-managed");
        while bundles.get_opt("service-ca").await.unwrap().is_none() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        tokio::time::sleep(Duration::from_secs(3)).await;
        operator
    }

    /// Creates Services that ask for certificates, a hundred in each namespace.
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

    /// Creates Secrets of the same size, each followed by a patch of a Service.
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

    /// Creates Services while the operator is paused, and measures from its continuation until all have certificates and annotations.
    async fn serve(&self, operator: &Operator, numbers: std::ops::Range<usize>) -> Duration {
        operator.signal("-STOP");
        self.ask(numbers.clone()).await;
        let services = watcher(Api::<PartialObjectMeta<Service>>::all(self.client.clone()), watcher::Config::default());
        let is_annotated =
            |it: &PartialObjectMeta<Service>| it.annotations().keys().any(|key| key.ends_with("signed-by"));
        let mut services = pin!(services);
        // Wait for the watch events of existing Services.
        while !matches!(services.next().await.unwrap().unwrap(), Event::InitDone) {}
        let mut annotated = BTreeSet::new();
        let started = Instant::now();
        operator.signal("-CONT");
        while annotated.len() < numbers.len() {
            match services.next().await.unwrap().unwrap() {
                Event::Apply(it) | Event::InitApply(it) if is_annotated(&it) => drop(annotated.insert(it.name_any())),
                _ => {}
            }
        }
        started.elapsed()
    }

    /// Measures from the request of a rotation until all Services have new certificates.
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
