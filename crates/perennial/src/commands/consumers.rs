//! `perennial consumers`: lists the pods that may still hold a previous certificate or bundle of a CA, and restarts them.

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
use perennial_operator::consumers::restart::{EvictionTiming, Outcome};
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
/// last change may hold the previous content. Environment variables and files mounted with subPath never change in a running container.
/// Other files change, but the process may not read them again.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial consumers service-ca                           pods that may hold previous content\n  \
    perennial consumers service-ca --probe                   also the certificate that each pod serves; run it in the cluster\n  \
    perennial consumers service-ca -n shop --restart         dry run of a restart\n  \
    perennial consumers service-ca -n shop --restart --yes   evict the pods\n  \
    perennial consumers service-ca --all -o json | jq -r '.items[] | select(.old == \"yes\") | .pod'\n\n\
    The command respects PodDisruptionBudgets. It evicts one pod of each controller at a time, and the next one when as\n\
    many pods are ready as before. It does not know content from CSI drivers or from files of the node.\n\n\
    Exit codes:\n  \
    0   no listed pod holds a previous version\n  \
    1   failure, or pods were not evicted in time\n  \
    2   wrong usage\n  \
    3   a listed pod holds, or may hold, a previous version")]
pub(crate) struct Args {
    /// The CA of the certificates and bundles
    #[arg(value_name = "CA", value_enum)]
    ca: Ca,

    /// List only pods of this namespace
    #[arg(short, long, value_name = "NAMESPACE")]
    namespace: Option<String>,

    /// Also list pods that started after the last change
    #[arg(long)]
    all: bool,

    /// Leave out pods that have the bundle only next to the token of their service account, as all pods on OpenShift do
    #[arg(long)]
    skip_token_volumes: bool,

    /// Connect to all declared ports of pods with a serving certificate, and compare the served certificate with the Secret
    #[arg(long)]
    probe: bool,

    /// Evict the pods that may hold a previous version; a dry run unless --yes
    #[arg(long)]
    restart: bool,

    /// Also evict pods that no controller recreates
    #[arg(long, requires = "restart")]
    include_bare: bool,

    /// How long to wait for budgets and new pods while no pod can be evicted
    #[arg(long, value_name = "SPAN", default_value = "10m", requires = "restart")]
    timeout: Span,

    /// Evict the pods
    #[arg(long, requires = "restart")]
    yes: bool,

    #[command(flatten)]
    cluster: ClusterArgs,

    /// The output format
    #[arg(short, long, value_enum, default_value = "table", value_name = "FORMAT")]
    output: Listing,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Ca {
    /// The CA of Services: serving certificates and the injected bundle
    ServiceCa,
}

/// The pause before the next attempt to evict a pod.
const PAUSE: Duration = Duration::from_secs(5);

/// Lists the pods, and evicts them with `--restart --yes`.
pub(crate) fn run(args: &Args, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<Found> {
    match args.ca {
        Ca::ServiceCa => runtime()?.block_on(list_and_restart(args, now, out)),
    }
}

async fn list_and_restart(args: &Args, now: Timestamp, out: &mut dyn Write) -> anyhow::Result<Found> {
    let client = args.cluster.client().await?;
    let seen = find(&client, args.namespace.as_deref()).await;
    let seen = seen.map_err(|error| anyhow!("failed to read the cluster: {}", brief(&error)))?;
    let Seen { sources, pods, endpoints } = &seen;
    let mut served = BTreeMap::new();
    if args.probe {
        let all = consumers(pods, sources, &served);
        let clock = Arc::new(clock::now) as perennial_operator::pass::Clock;
        served = probe::probe(&client, &all, endpoints, &clock).await;
    }
    let mut all = consumers(pods, sources, &served);
    if args.skip_token_volumes {
        all.retain(|it| !it.has_token_volume_alone());
    }
    let old = all.iter().filter(|it| it.old() != Old::No).count();
    talk::line(format_args!(
        "{} a certificate or bundle of the service CA; {} a previous version",
        count(all.len(), "pod uses", "pods use"),
        count(old, "may hold", "may hold"),
    ));
    let fates = if args.restart { restart_pods(args, &all).await? } else { BTreeMap::new() };
    let mut shown = Shown { now, probed: args.probe, all: args.all, fates, consumers: all };
    shown.remove_current_pods();
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

/// Returns the action for each pod that may hold a previous version. With `--yes`, evicts the pods first.
async fn restart_pods(args: &Args, all: &[Consumer<'_>]) -> anyhow::Result<BTreeMap<ObjectName, Fate>> {
    let mut fates: BTreeMap<ObjectName, Fate> = BTreeMap::new();
    let mut chosen = Vec::new();
    for consumer in all {
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
    // Without retries of the client: a budget answers 429, and the command prints the reason.
    let client = args.cluster.client_without_retries().await?;
    let give_up_after = Duration::try_from(args.timeout.0).unwrap_or_default();
    let (mut ended, total) = (0, chosen.len());
    let tell = |pod: &Pod, outcome: &Outcome| {
        let text = match outcome {
            Outcome::Waits(why) => return talk::line(format_args!("{} waits: {why}", pod.object)),
            Outcome::Evicted => "evicted".to_owned(),
            Outcome::Gone => "deleted meanwhile".to_owned(),
            Outcome::Stays(why) => format!("not evicted: {why}"),
        };
        ended += 1;
        talk::line(format_args!("{} {text} ({ended} of {total})", pod.object));
        fates.insert(pod.object.clone(), Fate::Tried(outcome.clone()));
    };
    restart::restart(&client, &chosen, EvictionTiming { pause: PAUSE, give_up_after }, tell).await;
    let ended = |is_so: fn(&Fate) -> bool| fates.values().filter(|it| is_so(it)).count();
    talk::line(format_args!(
        "{} evicted, {} failed, {} skipped",
        ended(|it| matches!(it, Fate::Tried(Outcome::Evicted | Outcome::Gone))),
        ended(|it| it.failure().is_some()),
        ended(|it| matches!(it, Fate::Left(_))),
    ));
    Ok(fates)
}

fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
