//! `perennial run`: the operator on a cluster.

use std::io::{self, IsTerminal, Write};
use std::num::NonZeroUsize;
use std::sync::Arc;

use anyhow::{Context, bail};
use perennial_core::catalog::Catalog;
use perennial_core::key::KeySpec;
use perennial_core::plan::Planner;
use perennial_operator::pass::{Clock, Passed};
use perennial_operator::run::Runner;
use perennial_x509::{KeyPool, PrivateKey};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

use crate::cluster::{ClusterArgs, runtime};
use crate::exit::Found;
use crate::{clock, logging};

/// Keep the certificates of a cluster alive: make what is missing, rotate what is due, for as long as it runs
///
/// Before each write it is proved that nobody stops trusting anybody by it. What would break somebody waits, and says so.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial run                                       in a pod, with its identity\n  \
    perennial run --kubeconfig perennial-data/kubeconfig\n  \
    perennial run --once && perennial verify            one pass, and look at what came of it\n\n\
    What is written is told by events on the objects and in the namespace of their operator, by conditions of the\n\
    ClusterOperators, and in the log: text on a terminal, JSON elsewhere.\n\n\
    Exit codes of --once:\n  \
    0   everything that can be done is done; what waits says so with perennial plan\n  \
    1   failed\n  \
    3   somebody will stop trusting somebody, before waiting can help\n  \
    4   somebody does not trust somebody")]
pub(crate) struct Args {
    #[command(flatten)]
    cluster: ClusterArgs,

    /// Do everything that can be done now, and return
    #[arg(long)]
    once: bool,

    /// How many keys are generated at once [default: the cores]
    #[arg(long, value_name = "COUNT")]
    keygen_threads: Option<NonZeroUsize>,

    /// How to log [default: text on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORMAT")]
    log_format: Option<logging::Format>,
}

/// Runs until it is told to stop.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let format = if io::stderr().is_terminal() { logging::Format::Text } else { logging::Format::Json };
    logging::start(args.log_format.unwrap_or(format));
    runtime()?.block_on(keep(args, out))
}

async fn keep(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let client = args.cluster.client().await?;
    let threads = threads(args.keygen_threads);
    // Who asks for one pass waits for it.
    let keys = if args.once { KeyPool::eager(threads) } else { KeyPool::new(threads) };
    let keys = Arc::new(keys.context("failed to start threads for keys")?);
    self_test()?;
    let planner = Planner::new(Catalog::builtin());
    let clock: Clock = Arc::new(clock::now);
    let runner = Runner::new(&planner, client, keys, args.cluster.view(), clock);
    if args.once {
        let passed = runner.once().await?;
        return summary(&passed, out);
    }
    tokio::select! {
        () = runner.run(|_| {}) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    info!("stopping");
    Ok(Found::Nothing)
}

/// As many as there are cores, unless somebody says otherwise.
pub(crate) fn threads(asked: Option<NonZeroUsize>) -> NonZeroUsize {
    asked.or_else(|| std::thread::available_parallelism().ok()).unwrap_or(NonZeroUsize::MIN)
}

/// A key of every kind is made, signs something, and is judged.
pub(crate) fn self_test() -> anyhow::Result<()> {
    for spec in KeySpec::ALL {
        let key = PrivateKey::generate(spec).with_context(|| format!("crypto test failed for {spec}"))?;
        key.sign(b"crypto test").with_context(|| format!("crypto test failed for {spec}"))?;
    }
    info!("crypto test passed");
    Ok(())
}

fn summary(passed: &Passed, out: &mut dyn Write) -> anyhow::Result<Found> {
    for (step, _) in &passed.written {
        writeln!(out, "{step}")?;
    }
    let (written, waiting) = (passed.written.len(), passed.report.waiting.len());
    let count = |number: usize, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    writeln!(
        out,
        "{} made, {waiting} waiting, {}.",
        count(written, "write"),
        count(passed.report.risks.len(), "risk")
    )?;
    if let Some(error) = passed.failed.first() {
        bail!("{} not made; the first: {error}", count(passed.failed.len(), "write"));
    }
    let severity = |at| if at <= passed.report.at { Found::Critical } else { Found::Warnings };
    Ok(passed.report.risks.iter().map(|risk| severity(risk.at)).max().unwrap_or(Found::Nothing))
}
