//! `perennial distrust`: ends trust in a CA, and checks the result with TLS handshakes.

mod acknowledge;
mod handshake;

use std::io::Write;
use std::sync::Arc;
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
use perennial_operator::server_clock::ServerClock;

use self::handshake::Pair;
use crate::cluster::{ClusterArgs, runtime};
use crate::exit::Found;
use crate::{clock, span, talk};

/// Distrust the service CA in an emergency: when its key may have leaked
///
/// The operator removes every previous CA from the bundle, and every CA that has cross-signed a previous CA. If there is no previous CA,
/// the operator removes the current CA. After a rotation, the current CA is removed too: it has cross-signed the previous CA, so an
/// attacker with the previous key could serve a chain that clients accept. Before the operator removes the current CA, it issues a new CA
/// that cross-signs no removed CA, and re-issues every certificate. Clients with the new bundle reject certificates of the removed CAs.
/// Without --yes, the command writes nothing and prints every edge that breaks.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial distrust service-ca --reason 'key was copied'\n  \
    perennial distrust service-ca --reason 'key was copied' --yes\n  \
    perennial consumers service-ca                          the pods to restart afterwards\n  \
    perennial distrust service-ca --acknowledge --yes       record that clients outside the cluster have reloaded\n\n\
    With --yes, the command waits for the operator. Then it checks with TLS handshakes that the new bundle rejects a\n\
    certificate of the old CA and accepts one of the new CA. A second call with the same reason only waits.\n\
    The component stays degraded until every pod that uses the CA has started after the change, or until you\n\
    record with --acknowledge that every client and server has reloaded.\n\n\
    Exit codes:\n  \
    0   complete, now or by an earlier call with this reason; dry run: no edge breaks, or nothing to acknowledge\n  \
    1   failure, or not complete in time\n  \
    2   wrong usage\n  \
    3   complete, but a Service still presents a certificate of the old CA; dry run: edges break, an earlier call with this\n      \
        reason is not complete, or clients may not have reloaded")]
pub(crate) struct Args {
    /// The CA: service-ca
    #[arg(value_name = "NAME", value_parser = ["service-ca", service_ca::ROW])]
    name: String,

    /// The reason, which is recorded. Each reason distrusts a CA only once
    #[arg(long, value_name = "REASON", value_parser = super::parse_reason, required_unless_present = "acknowledge")]
    reason: Option<String>,

    /// Record that every client and server has reloaded since the distrust, also those outside the cluster
    #[arg(long)]
    acknowledge: bool,

    /// Distrust the CA, or record the acknowledgement [default: dry run]
    #[arg(long)]
    yes: bool,

    /// How many minutes to wait for the operator
    #[arg(long, value_name = "MINUTES", default_value = "15")]
    timeout: u32,

    #[command(flatten)]
    cluster: ClusterArgs,
}

/// How often the command checks the progress of the operator.
const CHECK_EVERY: Duration = Duration::from_secs(2);

/// Prints the edges that break, asks for the distrust, and checks the result.
pub(crate) fn run(args: &Args, out: &mut dyn Write) -> anyhow::Result<Found> {
    let planner = Planner::new(Catalog::builtin());
    let snapshot = args.cluster.observe(planner.wiring())?.snapshot;
    // Required without --acknowledge.
    let reason = match (args.acknowledge, args.reason.as_deref()) {
        (true, reason) => return acknowledge::run(args, &planner, &snapshot, reason, out),
        (false, reason) => reason.unwrap_or_default(),
    };
    let meant = meant(&planner, &snapshot)?;
    let runtime = runtime()?;
    if let Some((since, earlier)) = runtime.block_on(used(args, reason, &planner, &snapshot, &meant))? {
        return resume(args, &planner, &snapshot, (since, &earlier), out);
    }
    describe(&meant, out)?;
    let lost = meant.cuts_off(&planner, &snapshot);
    match lost.len() {
        0 => writeln!(out, "No known edge breaks.")?,
        1 => writeln!(out, "1 edge breaks:")?,
        count => writeln!(out, "{count} edges break:")?,
    }
    lost.iter().try_for_each(|edge| writeln!(out, "  {edge}"))?;
    if !args.yes {
        talk::line(format_args!("dry run: --yes distrusts these CAs"));
        return Ok(if lost.is_empty() { Found::Nothing } else { Found::Warnings });
    }
    runtime.block_on(async {
        // All replicas use the API server's clock, so the record does too.
        let server_clock = ServerClock::new(Arc::new(clock::now));
        let client = server_clock.recording(args.cluster.client().await?);
        let answer = client.apiserver_version().await;
        answer.map_err(|error| anyhow::anyhow!("failed to reach the cluster: {}", brief(&error)))?;
        // Read a certificate of the old CA now; the new bundle must reject it later.
        let old = match meant.left(&planner, &snapshot).presented.first() {
            Some(slot) => Some(Pair::read(&client, &slot.object()).await?),
            None => None,
        };
        let asked = ask::Distrust { since: in_seconds(server_clock.now()), reason: reason.to_owned() };
        let keys: Vec<KeyId> = meant.keys.iter().cloned().collect();
        let objects = (&meant.signer.object(), &meant.bundle.object());
        let answer = ask::distrust(&client, objects, &keys, &asked).await;
        answer.map_err(|error| anyhow::anyhow!("failed to write the request: {}", brief(&error)))?;
        talk::line(format_args!("request written; waiting for the operator"));
        finish(args, &planner, &client, &meant, old, out).await
    })
}

/// Waits for the operator, and checks the result.
async fn finish(
    args: &Args,
    planner: &Planner<'_>,
    client: &Client,
    meant: &Distrust,
    old: Option<Pair>,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let (after, presented) = wait(args, planner, client, meant).await?;
    let found = check_handshakes(meant, client, &after, old, out).await?;
    for secret in &presented {
        talk::line(format_args!(
            "warning: Secret {secret} still holds a certificate of the old CA: see the error annotations of its Service"
        ));
    }
    Ok(if presented.is_empty() { found } else { found.max(Found::Warnings) })
}

/// Returns the CAs that were distrusted for this reason before, and since when.
async fn used(
    args: &Args,
    reason: &str,
    planner: &Planner<'_>,
    snapshot: &Snapshot,
    meant: &Distrust,
) -> anyhow::Result<Option<(Timestamp, Distrust)>> {
    let client = args.cluster.client().await?;
    let objects = (&meant.signer.object(), &meant.bundle.object());
    let used = ask::distrusted_for(&client, objects, reason).await;
    let used = used.map_err(|error| anyhow::anyhow!("failed to read the distrusted keys: {}", brief(&error)))?;
    let since = used.values().min().copied();
    Ok(since.zip(Distrust::of_keys(planner, snapshot, used.into_keys().collect())))
}

/// Reports that the distrust for this reason is complete, or waits for it.
fn resume(
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
             --reason to distrust the current CA"
        )?;
        return Ok(Found::Nothing);
    }
    let trusted: Vec<String> = left.trusted.iter().map(|slot| slot.object_text().to_owned()).collect();
    writeln!(out, "service-ca: requested for this reason on {since}, still trusted in {}", first_few(&trusted))?;
    if !args.yes {
        talk::line(format_args!("dry run: --yes waits until the distrust is complete"));
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

/// Returns the CAs to distrust.
fn meant(planner: &Planner<'_>, snapshot: &Snapshot) -> anyhow::Result<Distrust> {
    let component = Component::ServiceCa.owner();
    let catalog = planner.wiring().catalog;
    ensure!(!snapshot.is_left_alone(catalog, Component::ServiceCa), "{component} is not managed by Perennial");
    ensure!(
        !snapshot.is_frozen(service_ca::ROW),
        "{component} cannot be changed: ServiceCA cluster is not Managed, or is unreadable"
    );
    Distrust::of_service_ca(planner, snapshot).context("the service CA is absent or unreadable")
}

fn describe(meant: &Distrust, out: &mut dyn Write) -> anyhow::Result<()> {
    for it in &meant.certificates {
        let (name, validity) = (&it.subject.name, it.validity);
        writeln!(out, "To distrust: {name}, valid from {} to {}, {}", validity.not_before, validity.not_after, it.id)?;
    }
    if meant.is_current {
        writeln!(
            out,
            "The current CA is one of them or has cross-signed one: a new CA replaces it first, and re-issues every certificate."
        )?;
    }
    Ok(())
}

/// Waits until no bundle trusts the CAs. Returns the Secrets that still hold one of their certificates.
async fn wait(
    args: &Args,
    planner: &Planner<'_>,
    client: &Client,
    meant: &Distrust,
) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let begun = Instant::now();
    let mut printed = String::new();
    loop {
        let seen = observe(client, planner.wiring(), &args.cluster.view(), clock::now()).await;
        let snapshot = seen.map_err(|error| anyhow::anyhow!("failed to read the cluster: {}", brief(&error)))?.snapshot;
        let Left { trusted, presented } = meant.left(planner, &snapshot);
        let text = |slots: Vec<Slot>| slots.iter().map(|slot| slot.object_text().to_owned()).collect::<Vec<_>>();
        let (trusted, presented) = (text(trusted), text(presented));
        if trusted.is_empty() {
            return Ok((snapshot, presented));
        }
        let all: Vec<String> = trusted.into_iter().chain(presented).collect();
        let text = format!("still trusted or presented in {}", first_few(&all));
        if text != printed {
            talk::line(format_args!("{text}"));
            printed = text;
        }
        if begun.elapsed() > Duration::from_secs(60 * u64::from(args.timeout)) {
            bail!(
                "not complete after {} minutes: {printed}; check that `perennial run` manages this cluster",
                args.timeout
            );
        }
        tokio::time::sleep(CHECK_EVERY).await;
    }
}

/// Checks with TLS handshakes that the new bundle rejects the old CA and accepts the new CA.
async fn check_handshakes(
    meant: &Distrust,
    client: &Client,
    snapshot: &Snapshot,
    old: Option<Pair>,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let trusted = handshake::trusted(client, &meant.bundle).await?;
    let now: Timestamp = clock::now();
    match &old {
        None => writeln!(out, "Not checked: no Service had a certificate of the old CA.")?,
        Some(old) => match handshake::shake(old, &trusted, now)? {
            Err(why) => writeln!(out, "Rejected with the new bundle: {} ({why})", old.name)?,
            Ok(()) => bail!("the new bundle still accepts {}", old.name),
        },
    }
    let Some(slot) = meant.served(snapshot) else {
        writeln!(out, "Not checked: no Service has a certificate of the new CA.")?;
        return Ok(Found::Nothing);
    };
    let new = Pair::read(client, &slot.object()).await?;
    match handshake::shake(&new, &trusted, now)? {
        Ok(()) => writeln!(out, "Accepted with the new bundle: {}", new.name)?,
        Err(why) => bail!("the new bundle rejects {}: {why}", new.name),
    }
    Ok(Found::Nothing)
}

/// Returns an instant without fractions of a second.
fn in_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
