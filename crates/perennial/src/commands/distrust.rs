//! `perennial distrust`: ends the trust in an earlier signer on purpose, and shows that it has ended.

mod handshake;

use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use jiff::Timestamp;
use kube_client::Client;
use perennial_core::catalog::{Catalog, Component};
use perennial_core::distrust::{Distrust, Left};
use perennial_core::plan::Planner;
use perennial_core::rules::first_few;
use perennial_core::service_ca;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::trust::KeyId;
use perennial_operator::ask;
use perennial_operator::brief;
use perennial_operator::observe::observe;

use self::handshake::Pair;
use crate::cluster::{ClusterArgs, runtime};
use crate::exit::Found;
use crate::{clock, span, talk};

/// End the trust in an earlier CA on purpose: in an emergency, when its key may be known to others
///
/// Removes every previous CA from the bundle, and every CA that cross-signed one of them. After a rotation that includes the current
/// CA: it has signed the previous one, so a holder of the previous key could serve a chain that clients accept. A new CA that
/// cross-signs none of them takes its place first, and re-issues every certificate. From then on, clients that read the new bundle
/// reject servers that still serve a previous certificate. Without --yes nothing is written: the command prints every edge that breaks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial distrust service-ca --reason 'key was copied'\n  \
    perennial distrust service-ca --reason 'key was copied' --yes\n  \
    perennial consumers service-ca                          who has to be restarted after it\n\n\
    With --yes it waits for the operator, and shows by TLS handshakes with the new bundle that a certificate of the old CA\n\
    is refused and one of the new CA is accepted. The same reason a second time does nothing.\n\n\
    Exit codes:\n  \
    0   done, or done before for this reason; of a dry run: no edge breaks by it\n  \
    1   failed, or not done in time\n  \
    2   wrong usage\n  \
    3   done, but a Service still presents a certificate of the old CA; of a dry run: edges break by it")]
pub(crate) struct Args {
    /// Which CA: service-ca
    #[arg(value_name = "NAME", value_parser = ["service-ca", service_ca::ROW])]
    name: String,

    /// Why: the same reason acts once only
    #[arg(long, value_name = "REASON", value_parser = super::parse_reason)]
    reason: String,

    /// Do it
    #[arg(long)]
    yes: bool,

    /// How many minutes to wait for the operator
    #[arg(long, value_name = "MINUTES", default_value = "15")]
    timeout: u32,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// How often it is looked whether the operator has done it.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Shows what is lost; does it; and shows that it is done.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let snapshot = args.cluster.observe(planner.wiring())?.snapshot;
    let meant = meant(&planner, &snapshot)?;
    let runtime = runtime()?;
    if let Some((since, earlier)) = runtime.block_on(used(args, &planner, &snapshot, &meant))? {
        return go_on(args, &planner, &snapshot, (since, &earlier), out);
    }
    describe(&meant, out)?;
    let lost = meant.cuts_off(&planner, &snapshot);
    match lost.len() {
        0 => writeln!(out, "No edge is known that breaks by it.")?,
        1 => writeln!(out, "1 edge breaks by it:")?,
        count => writeln!(out, "{count} edges break by it:")?,
    }
    lost.iter().try_for_each(|edge| writeln!(out, "  {edge}"))?;
    if !args.yes {
        talk::line(format_args!("dry run: --yes does it"));
        return Ok(if lost.is_empty() { Found::Nothing } else { Found::Warnings });
    }
    runtime.block_on(async {
        let client = args.cluster.client().await?;
        // What has to be refused afterwards, while it is still there.
        let old = match meant.left(&planner, &snapshot).presented.first() {
            Some(slot) => Some(Pair::read(&client, &slot.object()).await?),
            None => None,
        };
        let asked = ask::Distrust { since: clock::now(), reason: args.reason.clone() };
        let keys: Vec<KeyId> = meant.keys.iter().cloned().collect();
        let objects = (&meant.signer.object(), &meant.bundle.object());
        let answer = ask::distrust(&client, objects, &keys, &asked).await;
        answer.map_err(|error| anyhow::anyhow!("failed to ask for it: {}", brief(&error)))?;
        talk::line(format_args!("asked; waiting for the operator"));
        finish(args, &planner, &client, &meant, old, out).await
    })
}

/// Waits for the operator, and shows that it is done.
async fn finish(
    args: &Args,
    planner: &Planner<'_>,
    client: &Client,
    meant: &Distrust,
    old: Option<Pair>,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let (after, presented) = wait(args, planner, client, meant).await?;
    let found = show(meant, client, &after, old, out).await?;
    for secret in &presented {
        talk::line(format_args!(
            "warning: {secret} still holds a certificate of the old CA: see the annotations of its Service"
        ));
    }
    Ok(if presented.is_empty() { found } else { found.max(Found::Warnings) })
}

/// The CAs that were distrusted for this reason before, and since when.
async fn used(
    args: &Args,
    planner: &Planner<'_>,
    snapshot: &Snapshot,
    meant: &Distrust,
) -> anyhow::Result<Option<(Timestamp, Distrust)>> {
    let client = args.cluster.client().await?;
    let objects = (&meant.signer.object(), &meant.bundle.object());
    let used = ask::distrusted_for(&client, objects, &args.reason).await;
    let used = used.map_err(|error| anyhow::anyhow!("failed to read the distrusted keys: {}", brief(&error)))?;
    let since = used.values().min().copied();
    Ok(since.zip(Distrust::of_keys(planner, snapshot, used.into_keys().collect())))
}

/// Does nothing where the trust has ended for this reason; else goes on with waiting for that.
fn go_on(
    args: &Args,
    planner: &Planner<'_>,
    snapshot: &Snapshot,
    (since, earlier): (Timestamp, &Distrust),
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let (since, left) = (span::day(since), earlier.left(planner, snapshot));
    if left.trusted.is_empty() {
        writeln!(
            out,
            "service-ca: nothing to do: this reason was used on {since}, and no bundle trusts that CA any more; pass another \
             --reason to distrust the current one"
        )?;
        return Ok(Found::Nothing);
    }
    let trusted: Vec<String> = left.trusted.iter().map(|slot| slot.object_text().to_owned()).collect();
    writeln!(out, "service-ca: asked for this reason on {since}, and still trusted in {}", first_few(&trusted))?;
    if !args.yes {
        talk::line(format_args!("dry run: --yes waits until it is done"));
        return Ok(Found::Warnings);
    }
    runtime()?.block_on(async {
        let client = args.cluster.client().await?;
        let old = match left.presented.first() {
            Some(slot) => Some(Pair::read(&client, &slot.object()).await?),
            None => None,
        };
        finish(args, planner, &client, earlier, old, out).await
    })
}

/// What is to be distrusted.
fn meant(planner: &Planner<'_>, snapshot: &Snapshot) -> anyhow::Result<Distrust> {
    let component = Component::ServiceCa.owner();
    ensure!(!snapshot.settings.left_alone.contains(component), "{component} is not kept here");
    ensure!(
        !snapshot.settings.frozen.contains(service_ca::ROW),
        "{component} is left as it is: ServiceCA cluster is not Managed, or cannot be read"
    );
    Distrust::of_service_ca(planner, snapshot).context("there is no service CA that could be read")
}

fn describe(meant: &Distrust, out: &mut dyn Write) -> anyhow::Result<()> {
    for it in &meant.certificates {
        let (name, life) = (&it.subject.name, it.validity);
        writeln!(out, "To be distrusted: {name}, from {} to {}, {}", life.not_before, life.not_after, it.id)?;
    }
    if meant.is_current {
        writeln!(
            out,
            "The current CA is among them, or cross-signed one of them: a new CA replaces it first, and re-issues every certificate."
        )?;
    }
    Ok(())
}

/// Looks until nothing of them is trusted any more. Says who presents something of theirs all the same.
async fn wait(
    args: &Args,
    planner: &Planner<'_>,
    client: &Client,
    meant: &Distrust,
) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let begun = Instant::now();
    let mut told = String::new();
    loop {
        let seen = observe(client, planner.wiring(), &args.cluster.view(), clock::now()).await;
        let snapshot =
            seen.map_err(|error| anyhow::anyhow!("failed to look at the cluster: {}", brief(&error)))?.snapshot;
        let Left { trusted, presented } = meant.left(planner, &snapshot);
        let text = |slots: Vec<Slot>| slots.iter().map(|slot| slot.object_text().to_owned()).collect::<Vec<_>>();
        let (trusted, presented) = (text(trusted), text(presented));
        if trusted.is_empty() {
            return Ok((snapshot, presented));
        }
        let all: Vec<String> = trusted.into_iter().chain(presented).collect();
        let text = format!("still trusted or presented in {}", first_few(&all));
        if text != told {
            talk::line(format_args!("{text}"));
            told = text;
        }
        if begun.elapsed() > Duration::from_secs(60 * u64::from(args.timeout)) {
            bail!("not done after {} minutes: {told}; does `perennial run` keep this cluster?", args.timeout);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Shows by handshakes with the new bundle that the old one is refused and the new one accepted.
async fn show(
    meant: &Distrust,
    client: &Client,
    snapshot: &Snapshot,
    old: Option<Pair>,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let trusted = handshake::trusted(client, &meant.bundle).await?;
    let now: Timestamp = clock::now();
    match &old {
        None => writeln!(out, "No certificate of the old CA was presented anywhere: none could be tried.")?,
        Some(old) => match handshake::shake(old, &trusted, now)? {
            Err(why) => writeln!(out, "Refused with the new bundle: {} ({why})", old.name)?,
            Ok(()) => bail!("{} is still accepted with the new bundle", old.name),
        },
    }
    let Some(slot) = meant.served(snapshot) else {
        writeln!(out, "No Service has a certificate: none of the new CA could be tried.")?;
        return Ok(Found::Nothing);
    };
    let new = Pair::read(client, &slot.object()).await?;
    match handshake::shake(&new, &trusted, now)? {
        Ok(()) => writeln!(out, "Accepted with the new bundle: {}", new.name)?,
        Err(why) => bail!("{} is refused with the new bundle: {why}", new.name),
    }
    Ok(Found::Nothing)
}
