//! `perennial consumers`: who has what a CA made, who may still hold what was there before, and how to begin those again.

mod view;

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{anyhow, bail};
use clap::ValueEnum;
use jiff::Timestamp;
use perennial_core::catalog::ObjectName;
use perennial_core::consumers::{Consumer, Old, Pod, Restart, consumers};
use perennial_operator::brief;
use perennial_operator::consumers::restart::{Outcome, Patience};
use perennial_operator::consumers::{Found as Seen, find, probe, restart};

use self::view::{Fate, Shown};
use crate::cluster::{ClusterArgs, runtime};
use crate::exit::Found;
use crate::output::{self, Listing};
use crate::span::Span;
use crate::{clock, talk};

/// List the pods that may still hold a certificate or bundle from before the last rotation, and restart them
///
/// A pod reads a serving certificate or the CA bundle of Services from its volumes or its environment. A pod that started before the
/// last change may hold the previous content: variables and files mounted by subPath never change under a container; files of a volume
/// do, but it is not known whether the process reads them again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial consumers service-ca                           pods that may hold previous content\n  \
    perennial consumers service-ca --probe                   and what they serve, from within the cluster\n  \
    perennial consumers service-ca -n shop --restart         which pods would be evicted\n  \
    perennial consumers service-ca -n shop --restart --yes   evict them\n  \
    perennial consumers service-ca --all -o json | jq -r '.items[] | select(.old == \"yes\") | .pod'\n\n\
    Pods are evicted within their PodDisruptionBudgets, of each controller one at a time, the next when as many are ready\n\
    as before. What is mounted through CSI drivers or from the node's own files is not known.\n\n\
    Exit codes:\n  \
    0   no pod that was asked about holds anything old\n  \
    1   failed, or pods were not evicted in time\n  \
    2   wrong usage\n  \
    3   a pod that was asked about holds something old, or may do so")]
pub(crate) struct Args {
    /// The CA whose consumers are meant
    #[arg(value_name = "CA", value_enum)]
    ca: Ca,

    /// Only pods of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// List also those that began after the last change
    #[arg(long)]
    all: bool,

    /// Leave out pods that have the bundle only beside the token of their service account, as every pod of OpenShift has it
    #[arg(long)]
    skip_token_volumes: bool,

    /// Ask pods with a serving certificate what they serve, on every port that they declare. Reads the certificates in Secrets
    #[arg(long)]
    probe: bool,

    /// Evict those that may hold something old: a dry run unless --yes
    #[arg(long)]
    restart: bool,

    /// Evict also pods that no controller creates again
    #[arg(long, requires = "restart")]
    include_bare: bool,

    /// How long to wait for budgets and for new pods while none can be evicted
    #[arg(long, value_name = "SPAN", default_value = "10m", requires = "restart")]
    timeout: Span,

    /// Do it
    #[arg(long, requires = "restart")]
    yes: bool,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// How to print
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Listing,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ca {
    /// The CA of Services: serving certificates, and the bundle that is injected
    ServiceCa,
}

/// How long to wait before an eviction is tried again.
const PAUSE: Duration = Duration::from_secs(5);

/// Lists them, and evicts them where that is wanted.
pub(crate) fn run(args: &Args, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<Found> {
    match args.ca {
        Ca::ServiceCa => runtime()?.block_on(look(args, now, out)),
    }
}

async fn look(args: &Args, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<Found> {
    let client = args.cluster.client().await?;
    let seen = find(&client, args.namespace.as_deref()).await;
    let seen = seen.map_err(|error| anyhow!("failed to look at the cluster: {}", brief(&error)))?;
    let Seen { sources, pods, doors } = &seen;
    let mut served = BTreeMap::new();
    if args.probe {
        let everybody = consumers(pods, sources, &served);
        let clock = Arc::new(clock::now) as perennial_operator::pass::Clock;
        served = probe::probe(&client, &everybody, doors, &clock).await;
    }
    let mut everybody = consumers(pods, sources, &served);
    if args.skip_token_volumes {
        everybody.retain(|it| !it.has_token_volume_alone());
    }
    let old = everybody.iter().filter(|it| it.old() != Old::No).count();
    talk::line(format_args!(
        "{} something of the service CA; {} what was there before",
        count(everybody.len(), "pod has", "pods have"),
        count(old, "may hold", "may hold"),
    ));
    let fates = if args.restart { decide(args, &everybody).await? } else { BTreeMap::new() };
    let mut shown = Shown { now, probed: args.probe, all: args.all, fates, consumers: everybody };
    shown.keep_what_is_asked_for();
    match args.output {
        Listing::Table => shown.table(false).print(out)?,
        Listing::Wide => shown.table(true).print(out)?,
        Listing::Json => output::json(&shown.items(), out)?,
        Listing::Yaml => output::yaml(&shown.items(), out)?,
    }
    let failed: Vec<String> =
        shown.fates.iter().filter_map(|(pod, fate)| Some(format!("{pod}: {}", fate.failure()?))).collect();
    if let Some(first) = failed.first() {
        bail!("{} not evicted; the first: {first}", count(failed.len(), "pod was", "pods were"));
    }
    let is_done = |pod: &Pod| shown.fates.get(&pod.object).is_some_and(Fate::is_done);
    let is_left = shown.consumers.iter().any(|it| it.old() != Old::No && !is_done(it.pod));
    Ok(if is_left { Found::Warnings } else { Found::Nothing })
}

/// What becomes of each that may hold something old: with `--yes` it has become that when this returns.
async fn decide(args: &Args, everybody: &[Consumer<'_>]) -> anyhow::Result<BTreeMap<ObjectName, Fate>> {
    let mut fates: BTreeMap<ObjectName, Fate> = BTreeMap::new();
    let mut chosen = Vec::new();
    for consumer in everybody {
        let fate = match consumer.restart(args.include_bare) {
            Restart::Needless => continue,
            Restart::Evict => {
                chosen.push(consumer.pod);
                Fate::WouldGo
            }
            left => Fate::Left(left),
        };
        fates.insert(consumer.pod.object.clone(), fate);
    }
    if !args.yes {
        talk::line(format_args!("dry run: --yes evicts {}", count(chosen.len(), "pod", "pods")));
        return Ok(fates);
    }
    // Budgets say no at once, and it is told who is waited for.
    let client = args.cluster.client_asking_once().await?;
    let at_most = Duration::try_from(args.timeout.0).unwrap_or_default();
    let (mut ended, total) = (0, chosen.len());
    let tell = |pod: &Pod, outcome: &Outcome| {
        let text = match outcome {
            Outcome::Waits(why) => return talk::line(format_args!("{} waits: {why}", pod.object)),
            Outcome::Evicted => "evicted".to_owned(),
            Outcome::Gone => "is gone already".to_owned(),
            Outcome::Stays(why) => format!("stays: {why}"),
        };
        ended += 1;
        talk::line(format_args!("{} {text} ({ended} of {total})", pod.object));
        fates.insert(pod.object.clone(), Fate::Tried(outcome.clone()));
    };
    restart::restart(&client, &chosen, Patience { pause: PAUSE, at_most }, tell).await;
    let ended = |is_so: fn(&Fate) -> bool| fates.values().filter(|it| is_so(it)).count();
    talk::line(format_args!(
        "{} evicted, {} not, {} left alone",
        ended(|it| matches!(it, Fate::Tried(Outcome::Evicted | Outcome::Gone))),
        ended(|it| it.failure().is_some()),
        ended(|it| matches!(it, Fate::Left(_))),
    ));
    Ok(fates)
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
