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
use perennial_operator::lease::Leadership;
use perennial_operator::observe::View;
use perennial_operator::pass::Passed;
use perennial_operator::run::{RunError, Runner};
use perennial_operator::server_clock::ServerClock;
use perennial_x509::{KeyPool, random};
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use super::manifests::operator_namespace;
use crate::cluster::{ClusterArgs, runtime};
use crate::commands::plan;
use crate::exit::Found;
use crate::probes::{self, ProbeArgs, Probes, Readers};
use crate::{clock, logging};

/// Run the operator: issue missing certificates of a cluster and rotate due ones
///
/// Before each write, the planner proves that no client will reject a server because of this write. A write that would break trust waits,
/// and the operator reports the reason.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial run                                       in a pod, with its service account\n  \
    perennial run --kubeconfig perennial-data/kubeconfig\n  \
    perennial run --once && perennial verify            one pass, then check the result\n\n\
    The operator reports each write as an event, on the object and in the namespace of its component, in the conditions of\n\
    the ClusterOperators, and in the log: text on a terminal, otherwise JSON.\n\n\
    Without --once, the operator waits for its API server without limit, and logs the reason.\n\n\
    Exit codes:\n  \
    0   stopped by a signal; with --once: the pass is complete, and `perennial plan` shows what waits\n  \
    1   failure, or another operator leads; with --once also: stopped by a signal\n  \
    2   wrong usage\n  \
    3   with --once: a client will reject a server later, and waiting cannot prevent it\n  \
    4   with --once: a client rejects a server")]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Make one pass, and exit
    #[arg(long, conflicts_with_all = probes::FLAGS)]
    once: bool,

    /// Create the ConfigMap `openshift-service-ca.crt`, which asks for the CA bundle of Services, in every namespace that has none. For
    /// clusters without the kube-controller-manager of OpenShift, which creates it
    #[arg(long, conflicts_with = "once")]
    publish_service_ca: bool,

    /// How many keys to generate at once [default: the number of cores]
    #[arg(long, value_name = "COUNT")]
    keygen_threads: Option<NonZeroUsize>,

    /// The namespace of the Lease for leader election [default: the namespace of the operator of the first component, such as
    /// openshift-kube-apiserver-operator]
    #[arg(long, value_name = "NAMESPACE")]
    lease_namespace: Option<String>,

    #[command(flatten)]
    probes: ProbeArgs,

    /// The format of the log [default: text on a terminal, otherwise json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<logging::Format>,
}

/// The pause between two attempts to reach the API server at the start.
const RETRY_EVERY: Duration = Duration::from_secs(5);

/// Runs the operator until a signal stops it.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    logging::start(args.log_format);
    runtime()?.block_on(operate(args, out))
}

async fn operate(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    // With --once, a request fails after the request timeout.
    let client = if args.once { args.cluster.client().await? } else { args.cluster.unlimited_client().await? };
    let threads = threads(args.keygen_threads);
    // A user waits for the keys of --once, so they are not generated at idle priority.
    let keys = if args.once { KeyPool::eager(threads) } else { KeyPool::new(threads) };
    let keys = Arc::new(keys.context("failed to start threads for keys")?);
    static PLANNER: LazyLock<Planner<'static>> = LazyLock::new(|| Planner::new(Catalog::builtin()));
    let planner = &*PLANNER;
    let server_clock = ServerClock::new(Arc::new(clock::now));
    let (client, clock) = (server_clock.recording(client), server_clock.clock());
    let view = View { server_clock: Some(server_clock), ..args.cluster.view() };
    let runner = Runner::new(planner, client.clone(), keys, view, clock.clone());
    let mut stop_signal = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    if args.once {
        tokio::select! {
            tested = runner.self_test() => tested?,
            () = &mut stop_signal => return stopped(true),
        }
    }
    let namespace = args.lease_namespace.as_deref().unwrap_or_else(|| operator_namespace(args.cluster.controllers()));
    let mut leadership = Leadership::new(client.clone(), namespace, "perennial", identity()?, clock.clone());
    if args.once {
        return once(args, &runner, &mut leadership, stop_signal, out).await;
    }
    let runner = if args.publish_service_ca { runner.publishing() } else { runner };
    let probes = Probes::bind(&args.probes).await?;
    info!(url = probes.url()?, "serving /metrics, /livez and /readyz");
    let probes = tokio::spawn(probes.serve(runner.metrics(), Readers::OfCluster(client), || None));
    tokio::select! {
        tested = wait_and_self_test(&args.cluster, &runner) => tested?,
        () = &mut stop_signal => return stopped(false),
    }
    let is_leading = tokio::select! {
        () = leadership.acquire(|is_asked| stand_by(&runner, is_asked)) => true,
        () = &mut stop_signal => false,
    };
    let mut is_lost = false;
    if is_leading {
        let stop = async {
            tokio::select! {
                () = &mut stop_signal => {}
                () = leadership.hold() => is_lost = true,
            }
        };
        runner.run(|_| {}, stop).await;
    }
    info!("stopping");
    probes.abort();
    if is_lost {
        bail!("the Lease was lost: another operator may lead now");
    }
    leadership.release().await.map_err(|error| anyhow!("failed to release the Lease: {}", brief(&error)))?;
    Ok(Found::Nothing)
}

/// Records that another operator leads, or that TLS rejects the API server because of its validity dates.
fn stand_by(runner: &Runner<'_>, is_asked: bool) {
    match is_asked {
        true => runner.metrics().stand_by(),
        false => {
            runner.metrics().set_not_ready();
            runner.metrics().record_progress();
        }
    }
}

/// Waits for the API server, and tests each kind of key before the operator issues any certificate.
async fn wait_and_self_test(cluster: &ClusterArgs, runner: &Runner<'_>) -> anyhow::Result<()> {
    loop {
        match cluster.unserved(RETRY_EVERY).await? {
            Some(why) => warn!("waiting for the API server: {why}"),
            None => match runner.self_test().await {
                Err(RunError::Pass(error)) => warn!("waiting for the API server: {error}"),
                tested => return Ok(tested?),
            },
        }
        runner.metrics().record_progress();
        tokio::time::sleep(RETRY_EVERY).await;
    }
}

/// Makes one pass while no other operator leads.
async fn once(
    args: &Args,
    runner: &Runner<'_>,
    leadership: &mut Leadership,
    mut stop_signal: Pin<&mut impl Future<Output = ()>>,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    tokio::select! {
        leading = leadership.acquire_soon() => leading.map_err(|why| anyhow!("another operator may lead: {why}"))?,
        () = &mut stop_signal => return stopped(true),
    }
    let stop = async {
        tokio::select! {
            () = stop_signal => {}
            () = leadership.hold() => {}
        }
    };
    let (passed, is_stopped) = runner.once_until(stop).await;
    if let Err(error) = leadership.release().await {
        warn!("failed to release the Lease: {}", brief(&error));
    }
    let found = summary(args, &passed?, out)?;
    if is_stopped { stopped(true) } else { Ok(found) }
}

/// Returns the result after a stop signal: an error if a user waits for the result of a pass.
fn stopped(is_awaited: bool) -> anyhow::Result<Found> {
    info!("stopping");
    if is_awaited {
        bail!("stopped by a signal before the pass was complete");
    }
    Ok(Found::Nothing)
}

/// Returns a unique name of this operator: the host name and a random suffix.
fn identity() -> anyhow::Result<String> {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "perennial".to_owned());
    let suffix: String = random::bytes::<8>()?.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{host}_{suffix}"))
}

/// Returns the number of threads for keys: the flag, or else the number of cores.
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
    writeln!(out, "{}, {waiting} waiting, {}.", count(written, "write"), count(risks.len(), "risk"))?;
    if let Some((_, error)) = passed.failed.first() {
        bail!("{} failed; the first: {error}", count(passed.failed.len(), "write"));
    }
    let severity = |at| if at <= passed.report.at { Found::Critical } else { Found::Warnings };
    Ok(risks.iter().map(|risk| severity(risk.at)).max().unwrap_or(Found::Nothing))
}
