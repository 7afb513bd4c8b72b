//! `perennial run`: the operator on a cluster.

use std::io::Write;
use std::num::NonZeroUsize;
use std::pin::{Pin, pin};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use perennial_core::catalog::Catalog;
use perennial_core::plan::{Planner, Risk};
use perennial_operator::brief;
use perennial_operator::inject::Publisher;
use perennial_operator::lease::Leadership;
use perennial_operator::pass::{Clock, Passed};
use perennial_operator::run::{RunError, Runner};
use perennial_x509::{KeyPool, random};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::{info, warn};

use super::manifests::operator_namespace;
use crate::cluster::{ClusterArgs, runtime};
use crate::commands::plan;
use crate::exit::Found;
use crate::probes::{self, ProbeArgs, Probes, Readers};
use crate::{clock, logging};

/// Keep the certificates of a cluster alive: make what is missing, rotate what is due, for as long as it runs
///
/// Before each write, the planner proves that no client rejects a server because of it. A write that would break trust waits, and the
/// operator reports what it waits for.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial run                                       in a pod, with its identity\n  \
    perennial run --kubeconfig perennial-data/kubeconfig\n  \
    perennial run --once && perennial verify            one pass, and look at what came of it\n\n\
    The operator reports each write as an event, on the object and in the namespace of its component, in the conditions of\n\
    the ClusterOperators, and in the log: text on a terminal, JSON elsewhere.\n\n\
    Without --once the operator waits for its API server as long as it takes, and logs what it waits for.\n\n\
    Exit codes:\n  \
    0   stopped as asked for; with --once: everything that can be done is done, and `perennial plan` shows what waits\n  \
    1   failed, or another operator is leading; with --once also: stopped\n  \
    2   wrong usage\n  \
    3   with --once: a client will reject a server before waiting can help\n  \
    4   with --once: a client rejects a server")]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Do everything that can be done now, and return
    #[arg(long, conflicts_with_all = probes::FLAGS)]
    once: bool,

    /// Make the ConfigMap `openshift-service-ca.crt`, which asks for the CA bundle of Services, in every namespace that has none: where
    /// pods expect it, and no kube-controller-manager of OpenShift makes it
    #[arg(long, conflicts_with = "once")]
    publish_service_ca: bool,

    /// How many keys are generated at once [default: the cores]
    #[arg(long, value_name = "COUNT")]
    keygen_threads: Option<NonZeroUsize>,

    /// The namespace of the lease by which one of several operators leads [default: that of the operator of the first component,
    /// such as openshift-kube-apiserver-operator]
    #[arg(long, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,

    #[command(flatten)]
    probes: ProbeArgs,

    /// How to log [default: text on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<logging::Format>,
}

/// How long to wait for a cluster that does not answer.
const TEST_AGAIN: Duration = Duration::from_secs(5);

/// Runs until it is told to stop.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    logging::start(args.log_format);
    runtime()?.block_on(keep(args, out))
}

async fn keep(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // Who waits for one pass is to know why there is none.
    let client = if args.once { args.cluster.client().await? } else { args.cluster.patient_client().await? };
    let threads = threads(args.keygen_threads);
    // Who asks for one pass waits for it.
    let keys = if args.once { KeyPool::eager(threads) } else { KeyPool::new(threads) };
    let keys = Arc::new(keys.context("failed to start threads for keys")?);
    static PLANNER: LazyLock<Planner<'static>> = LazyLock::new(|| Planner::new(Catalog::builtin()));
    let planner = &*PLANNER;
    let clock: Clock = Arc::new(clock::now);
    let runner = Runner::new(planner, client.clone(), keys, args.cluster.view(), clock.clone());
    let mut told = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    if args.once {
        tokio::select! {
            tested = runner.self_test() => tested?,
            () = &mut told => return stopped(true),
        }
    }
    let namespace = args.lease_namespace.as_deref().unwrap_or_else(|| operator_namespace(args.cluster.controllers()));
    let mut leadership = Leadership::new(client.clone(), namespace, "perennial", identity()?, clock);
    if args.once {
        return once(args, &runner, &mut leadership, told, out).await;
    }
    let publisher = args.publish_service_ca.then(|| Publisher::new(client.clone(), Arc::new(clock::now)));
    let probes = Probes::bind(&args.probes).await?;
    info!(url = probes.url()?, "serving /metrics, /livez and /readyz");
    let probes = tokio::spawn(probes.serve(runner.metrics(), Readers::OfCluster(client)));
    tokio::select! {
        tested = test(&args.cluster, &runner) => tested?,
        () = &mut told => return stopped(false),
    }
    let is_leading = tokio::select! {
        () = leadership.acquire(|| runner.metrics().stand_by()) => true,
        () = &mut told => false,
    };
    let mut is_lost = false;
    if is_leading {
        let (stopping, mut stopped) = watch::channel(false);
        let stop = async {
            tokio::select! {
                () = &mut told => {}
                () = leadership.hold() => is_lost = true,
            }
            stopping.send_replace(true);
        };
        let publish = async {
            if let Some(publisher) = &publisher {
                publisher.run(async { drop(stopped.wait_for(|it| *it).await) }).await;
            }
        };
        tokio::join!(runner.run(|_| {}, stop), publish);
    }
    info!("stopping");
    probes.abort();
    if is_lost {
        bail!("another operator may be leading now");
    }
    leadership.release().await.map_err(|error| anyhow!("failed to release the lease: {}", brief(&error)))?;
    Ok(Found::Nothing)
}

/// Makes and uses a key of each kind, before any other is made. Whoever runs for long waits for a cluster that is not there yet.
async fn test(cluster: &ClusterArgs, runner: &Runner<'_>) -> anyhow::Result<()> {
    loop {
        match cluster.unserved(TEST_AGAIN).await? {
            Some(why) => warn!("waiting for the API server: {why}"),
            None => match runner.self_test().await {
                Err(RunError::Look(error)) => warn!("waiting for the API server: {error}"),
                tested => return Ok(tested?),
            },
        }
        runner.metrics().wait();
        tokio::time::sleep(TEST_AGAIN).await;
    }
}

/// One pass, while no other operator leads.
async fn once(
    args: &Args,
    runner: &Runner<'_>,
    leadership: &mut Leadership,
    mut told: Pin<&mut impl Future<Output = ()>>,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    tokio::select! {
        leading = leadership.acquire_soon() => leading.map_err(|why| anyhow!("another operator may be leading: {why}"))?,
        () = &mut told => return stopped(true),
    }
    let stop = async {
        tokio::select! {
            () = told => {}
            () = leadership.hold() => {}
        }
    };
    let (passed, is_stopped) = runner.once_until(stop).await;
    if let Err(error) = leadership.release().await {
        warn!("failed to release the lease: {}", brief(&error));
    }
    let found = summary(args, &passed?, out)?;
    if is_stopped { stopped(true) } else { Ok(found) }
}

/// Who was told to stop has nothing to add, unless somebody waits for what comes of it.
fn stopped(is_awaited: bool) -> anyhow::Result<Found> {
    info!("stopping");
    if is_awaited {
        bail!("stopped before everything was done");
    }
    Ok(Found::Nothing)
}

/// A name that no other operator has: that of the pod or of the machine, and something drawn.
fn identity() -> anyhow::Result<String> {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "perennial".to_owned());
    let drawn: String = random::bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{host}_{drawn}"))
}

/// As many as there are cores, unless somebody says otherwise.
pub(crate) fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

fn summary(args: &Args, passed: &Passed, out: &mut dyn Write) -> anyhow::Result<Found> {
    for (step, _) in &passed.written {
        writeln!(out, "{step}")?;
    }
    let planner = Planner::new(Catalog::builtin());
    let is_ours = |risk: &&Risk| plan::row_of(&planner, risk).is_none_or(|row| args.cluster.asks_about(row));
    let risks: Vec<&Risk> = passed.report.risks.iter().filter(is_ours).collect();
    let (written, waiting) = (passed.written.len(), passed.report.waiting.len());
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    writeln!(out, "{} made, {waiting} waiting, {}.", count(written, "write"), count(risks.len(), "risk"))?;
    if let Some((_, error)) = passed.failed.first() {
        bail!("{} not made; the first: {error}", count(passed.failed.len(), "write"));
    }
    let severity = |at| if at <= passed.report.at { Found::Critical } else { Found::Warnings };
    Ok(risks.iter().map(|risk| severity(risk.at)).max().unwrap_or(Found::Nothing))
}
