//! Measures durable writes per second and memory of the embedded server, and compares them with a kube-apiserver with etcd.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a bench prints, and fails by panicking")]

#[path = "../tests/common/up.rs"]
mod up;

use std::fs;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube_client::api::{Api, ObjectMeta, PostParams};
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use perennial_testbed::kubernetes::ControlPlane;

/// The duration of each measurement.
const MEASURED: Duration = Duration::from_secs(5);
/// The numbers of concurrent writers, and the required ratio to the real server.
const LOADS: [(usize, f64); 3] = [(1, 1.0), (8, 1.0), (32, 3.0)];
const SECRETS: usize = 10_000;
const BYTES: usize = 5 << 10;

#[tokio::main]
async fn main() -> ExitCode {
    let top = up::directory();
    let ours = up::Up::start(&top.path().join("data"), &[]);
    let config = Kubeconfig::read_from(ours.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let our_client = Client::try_from(config).unwrap();
    let real = ControlPlane::start().await.unwrap();
    let real_client = real.client().await.unwrap();

    println!(
        "\nDurable creates of Secrets of 5 KiB per second, over TLS, by one client ({} s each)",
        MEASURED.as_secs()
    );
    println!("{:>8} {:>12} {:>28} {:>8} {:>8}", "writers", "perennial", "kube-apiserver with etcd", "times", "limit");
    let mut is_within = true;
    for (writers, limit) in LOADS {
        let [mine, theirs] = [writes(&our_client, writers).await, writes(&real_client, writers).await];
        let times = mine / theirs;
        is_within &= times >= limit;
        let verdict = if times >= limit { "ok" } else { "UNDER" };
        println!("{writers:>8} {mine:>12.0} {theirs:>28.0} {times:>8.2} {limit:>8.1}  {verdict}");
    }
    drop(ours);

    // A new server without other objects.
    let top = up::directory();
    let ours = up::Up::start(&top.path().join("data"), &[]);
    let config = Kubeconfig::read_from(ours.kubeconfig()).unwrap();
    let config = Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap();
    let empty = resident(ours.process());
    fill(&Client::try_from(config).unwrap(), SECRETS).await;
    let full = resident(ours.process());
    println!("\nResident memory of perennial up: {empty} MiB empty, {full} MiB with {SECRETS} Secrets of 5 KiB");
    if is_within { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn secret(name: String) -> Secret {
    let data = [("key".to_owned(), ByteString(vec![b'x'; BYTES * 3 / 4]))];
    Secret {
        metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
        data: Some(data.into()),
        ..Secret::default()
    }
}

/// Returns the creates per second with this number of concurrent writers.
async fn writes(client: &Client, writers: usize) -> f64 {
    let count = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    let tasks: Vec<_> = (0..writers)
        .map(|writer| {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
            let count = count.clone();
            tokio::spawn(async move {
                for number in 0.. {
                    if started.elapsed() >= MEASURED {
                        return;
                    }
                    let name = format!("bench-{writers}-{writer}-{number}");
                    secrets.create(&PostParams::default(), &secret(name)).await.unwrap();
                    count.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    count.load(Ordering::Relaxed) as f64 / started.elapsed().as_secs_f64()
}

/// Creates this number of Secrets, several at a time.
async fn fill(client: &Client, count: usize) {
    let next = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (secrets, next): (Api<Secret>, _) = (Api::namespaced(client.clone(), "default"), next.clone());
            tokio::spawn(async move {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        return;
                    }
                    secrets.create(&PostParams::default(), &secret(format!("full-{number}"))).await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
}

/// Returns the resident memory of a process in MiB.
fn resident(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().unwrap() / 1024
}
