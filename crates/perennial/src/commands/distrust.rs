//! `perennial distrust`: ends the trust in an earlier signer on purpose, and shows that it has ended.

mod handshake;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use jiff::Timestamp;
use kube_client::Client;
use perennial_core::catalog::{Catalog, Instance};
use perennial_core::plan::{Planner, Scope, distrusted};
use perennial_core::rules::{SecretState, first_few};
use perennial_core::service_ca;
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_core::trust::{CertificateFacts, KeyId};
use perennial_operator::ask::{self, Distrust};
use perennial_operator::brief;
use perennial_operator::observe::observe;

use self::handshake::Pair;
use crate::cluster::{ClusterArgs, runtime};
use crate::exit::Found;
use crate::{clock, talk};

/// End the trust in an earlier CA on purpose: in an emergency, when its key may be known to others
///
/// Every earlier CA is taken out of the bundle, with everybody who has vouched for it: after a rotation that is the current CA, too,
/// because whoever has the old key can serve what the new one signed for it. So another CA takes its place first, which vouches for
/// nobody, and signs everything again. Who still serves a certificate of before is refused from then on by whoever reads the new
/// bundle. Without --yes nothing is written: everybody who is cut off is printed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    perennial distrust service-ca --reason 'key was copied'\n  \
    perennial distrust service-ca --reason 'key was copied' --yes\n  \
    perennial consumers service-ca                          who has to be restarted after it\n\n\
    With --yes it waits for the operator, and shows by TLS handshakes with the new bundle that a certificate of the old CA\n\
    is refused and one of the new CA is accepted.")]
pub(crate) struct Args {
    /// Which CA: service-ca
    #[arg(value_name = "NAME", value_parser = ["service-ca", service_ca::ROW])]
    name: String,

    /// Why
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
    let known = Known::of(&planner, &snapshot)?;
    known.describe(out)?;
    let lost = lost(&planner, &snapshot, &known.keys);
    match lost.len() {
        0 => writeln!(out, "Nobody is known who is cut off by it.")?,
        1 => writeln!(out, "It cuts off:")?,
        count => writeln!(out, "It cuts off, {count} in all:")?,
    }
    lost.iter().try_for_each(|edge| writeln!(out, "  {edge}"))?;
    if !args.yes {
        talk::line(format_args!("dry run: --yes does it"));
        return Ok(if lost.is_empty() { Found::Nothing } else { Found::Warnings });
    }
    let runtime = runtime()?;
    runtime.block_on(async {
        let client = args.cluster.client().await?;
        // What has to be refused afterwards, while it is still there.
        let old = known.pair(&client, &known.presented).await?;
        let asked = Distrust { since: clock::now(), reason: args.reason.clone() };
        let keys: Vec<KeyId> = known.keys.iter().cloned().collect();
        let objects = (&known.signer.object(), &known.bundle.object());
        let answer = ask::distrust(&client, objects, &keys, &asked).await;
        answer.map_err(|error| anyhow::anyhow!("failed to ask for it: {}", brief(&error)))?;
        talk::line(format_args!("asked; waiting for the operator"));
        let (after, presented) = wait(args, &planner, &client, &known.keys).await?;
        let found = show(&planner, &client, &after, old, out).await?;
        for secret in &presented {
            talk::line(format_args!("warning: {secret} still has a certificate of the old CA: its Service says why"));
        }
        Ok(if presented.is_empty() { found } else { found.max(Found::Warnings) })
    })
}

/// What is to be distrusted.
struct Known {
    signer: Slot,
    bundle: Slot,
    /// Which keys.
    keys: BTreeSet<KeyId>,
    /// Their certificates, to be told.
    certificates: Vec<CertificateFacts>,
    /// Whether the current one is among them.
    is_current: bool,
    /// Places that present something by them.
    presented: Vec<Slot>,
}

impl Known {
    fn of(planner: &Planner<'_>, snapshot: &Snapshot) -> anyhow::Result<Known> {
        let wiring = planner.wiring();
        let row = wiring.row(service_ca::ROW).context("the catalog has no service CA")?.row;
        let component = row.component.owner();
        ensure!(!snapshot.settings.left_alone.contains(component), "{component} is not kept here");
        let signer = wiring.home(row, &Instance::Cluster);
        let state = state(snapshot, &signer).with_context(|| format!("there is no CA in {signer}"))?;
        let bundle = wiring.bundle(service_ca::BUNDLE).context("the catalog has no bundle of the service CA")?;
        let slots = [&bundle.home].into_iter().chain(bundle.copies.iter().map(|(slot, _)| slot));
        let members = slots.filter_map(|slot| snapshot.bundles.get(slot)?.present()).flat_map(|it| &it.members);
        let known = members.filter_map(|id| snapshot.certificates.get(id));
        let mut earlier: BTreeMap<KeyId, CertificateFacts> = BTreeMap::new();
        for it in known.filter(|it| it.subject != state.certificate.subject) {
            let known = earlier.entry(it.subject.key.clone()).or_insert_with(|| it.as_ref().clone());
            if known.signed_by.as_ref() != Some(&known.subject) {
                known.clone_from(it);
            }
        }
        let current = &state.certificate;
        if earlier.is_empty() {
            earlier.insert(current.subject.key.clone(), current.as_ref().clone());
        }
        // Whoever has signed one of them is a way to it.
        let mut asked = snapshot.clone();
        asked.settings.distrusted = earlier.keys().map(|key| (key.clone(), snapshot.taken_at)).collect();
        let keys: BTreeSet<KeyId> = distrusted(&asked).into_keys().collect();
        let is_current = keys.contains(&current.subject.key);
        if is_current {
            earlier.insert(current.subject.key.clone(), current.as_ref().clone());
        }
        let signs = |slot: &&Slot| {
            let by = state_of(snapshot, slot).and_then(|it| it.certificate.signed_by.as_ref());
            by.is_some_and(|by| keys.contains(&by.key))
        };
        let presented = snapshot.services.keys().filter(signs).cloned().collect();
        Ok(Known {
            signer,
            bundle: bundle.home.clone(),
            keys,
            certificates: earlier.into_values().collect(),
            is_current,
            presented,
        })
    }

    fn describe(&self, out: &mut dyn Write) -> anyhow::Result<()> {
        for it in &self.certificates {
            writeln!(
                out,
                "To be distrusted: {}, from {} to {}, {}",
                it.subject.name, it.validity.not_before, it.validity.not_after, it.id
            )?;
        }
        if self.is_current {
            writeln!(
                out,
                "The current one is among them, or has signed one of them: another takes its place first, and signs everything again."
            )?;
        }
        Ok(())
    }

    /// A certificate by one of them with its key, if somebody presents one.
    async fn pair(&self, client: &Client, slots: &[Slot]) -> anyhow::Result<Option<Pair>> {
        match slots.first() {
            Some(slot) => Pair::read(client, &slot.object()).await.map(Some),
            None => Ok(None),
        }
    }
}

fn state<'s>(snapshot: &'s Snapshot, slot: &Slot) -> Option<&'s SecretState> {
    snapshot.secrets.get(slot)?.present()
}

fn state_of<'s>(snapshot: &'s Snapshot, slot: &&Slot) -> Option<&'s SecretState> {
    state(snapshot, slot)
}

/// Everybody who is cut off: what the plan breaks with consent, until nothing is left to do.
fn lost(planner: &Planner<'_>, snapshot: &Snapshot, keys: &BTreeSet<KeyId>) -> BTreeSet<String> {
    let mut world = snapshot.clone();
    world.settings.distrusted.extend(keys.iter().map(|key| (key.clone(), world.taken_at)));
    world.settings.in_flight = usize::MAX;
    let mut lost = BTreeSet::new();
    for _ in 0..10 {
        let report = planner.plan(&world, &Scope::All);
        if report.steps.is_empty() {
            break;
        }
        for step in &report.steps {
            lost.extend(step.consented.iter().cloned());
            world.apply(step);
        }
    }
    lost
}

/// Looks until nothing of them is trusted any more. Says who presents something of theirs all the same.
async fn wait(
    args: &Args,
    planner: &Planner<'_>,
    client: &Client,
    keys: &BTreeSet<KeyId>,
) -> anyhow::Result<(Snapshot, Vec<String>)> {
    let begun = Instant::now();
    let mut told = String::new();
    loop {
        let seen = observe(client, planner.wiring(), &args.cluster.view(), clock::now()).await;
        let snapshot =
            seen.map_err(|error| anyhow::anyhow!("failed to look at the cluster: {}", brief(&error)))?.snapshot;
        let (trusted, presented) = left(planner, &snapshot, keys);
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

/// Where something of them is trusted, and where something by them is presented.
fn left(planner: &Planner<'_>, snapshot: &Snapshot, keys: &BTreeSet<KeyId>) -> (Vec<String>, Vec<String>) {
    let Some(bundle) = planner.wiring().bundle(service_ca::BUNDLE) else { return Default::default() };
    let slots = [&bundle.home].into_iter().chain(bundle.copies.iter().map(|(slot, _)| slot));
    let trusts = |slot: &&Slot| {
        let members = snapshot.bundles.get(slot).and_then(|it| it.present()).into_iter().flat_map(|it| &it.members);
        members.filter_map(|id| snapshot.certificates.get(id)).any(|it| keys.contains(&it.subject.key))
    };
    let presents = |slot: &&Slot| {
        let by = state(snapshot, slot).and_then(|it| it.certificate.signed_by.as_ref());
        by.is_some_and(|by| keys.contains(&by.key))
    };
    let text = |slot: &Slot| slot.object_text().to_owned();
    let trusted = slots.filter(trusts).map(text).collect();
    (trusted, snapshot.services.keys().filter(presents).map(text).collect())
}

/// Shows by handshakes with the new bundle that the old one is refused and the new one accepted.
async fn show(
    planner: &Planner<'_>,
    client: &Client,
    snapshot: &Snapshot,
    old: Option<Pair>,
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let bundle = planner.wiring().bundle(service_ca::BUNDLE).context("the catalog has no bundle of the service CA")?;
    let trusted = handshake::trusted(client, &bundle.home).await?;
    let now: Timestamp = clock::now();
    match &old {
        None => writeln!(out, "No certificate of the old CA was presented anywhere: none could be tried.")?,
        Some(old) => match handshake::shake(old, &trusted, now)? {
            Err(why) => writeln!(out, "Refused with the new bundle: {} ({why})", old.name)?,
            Ok(()) => bail!("{} is still accepted with the new bundle", old.name),
        },
    }
    let signer = planner.wiring().row(service_ca::ROW).map(|it| planner.wiring().home(it.row, &Instance::Cluster));
    let signer = signer.and_then(|slot| state(snapshot, &slot)).map(|it| &it.certificate.subject);
    let is_new = |slot: &&Slot| state(snapshot, slot).is_some_and(|it| it.certificate.signed_by.as_ref() == signer);
    let current = snapshot.services.keys().find(is_new);
    let Some(slot) = current else {
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
