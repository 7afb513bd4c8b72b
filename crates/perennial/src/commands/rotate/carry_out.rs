//! Asks for rotations, a few at a time, and waits for them: what `perennial rotate --yes` does.

use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{anyhow, bail};
use futures_util::{StreamExt, stream};
use jiff::Timestamp;
use kube_client::{Client, Error};
use perennial_core::campaign::{Campaign, Next, Outcome, Seen};
use perennial_core::key::KeySpec;
use perennial_core::plan::{Planner, Scope};
use perennial_core::snapshot::{Service, Slot};
use perennial_operator::ask::{self, Rotation};
use perennial_operator::brief;
use perennial_operator::observe::{Observation, observe};

use super::{Args, Chosen, candidates};
use crate::cluster::runtime;
use crate::exit::Found;
use crate::{clock, span, talk};

/// How long to wait before the Secrets are looked at again: after one was rotated, and at most.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How many Secrets are read at once.
const READ_AT_ONCE: usize = 8;
/// How often the progress is told.
const TELL_EVERY: Duration = Duration::from_secs(2);
/// How many certificates are named one by one as they are asked for.
const NAMED: usize = 20;
/// After how long without progress the whole cluster is looked at for what is waited for; and how often from then on.
const EXPLAIN_AFTER: Duration = Duration::from_secs(10);
const EXPLAIN_EVERY: Duration = Duration::from_secs(60);
/// How long a Service has to get its certificate before what is written on it as an error counts: it may be of before.
const ERROR_COUNTS_AFTER: Duration = Duration::from_secs(5);

/// Rotates them, and prints how each ended and how many were rotated.
pub(super) fn run(
    args: &Args,
    planner: &Planner<'static>,
    observation: &Observation,
    chosen: &[Chosen],
    out: &mut dyn Write,
) -> anyhow::Result<Found> {
    let (candidates, refused) = candidates(chosen, &observation.snapshot);
    let campaign = Campaign::new(candidates, &args.reason, args.at_once.get());
    let wanted = chosen.iter().filter_map(|it| Some((it.slot.clone(), it.wanted?))).collect();
    let runtime = runtime()?;
    runtime.block_on(async {
        let client = args.cluster.client().await?;
        let total = chosen.len();
        let services = &observation.snapshot.services;
        let under_way = BTreeMap::new();
        let mut it = Rotations { args, planner, client, campaign, wanted, services, total, under_way, printed: 0 };
        let mut tally = Tally::default();
        for (slot, why) in refused {
            tally.count(&slot, &Outcome::Failed(why), out)?;
        }
        let ended = it.carry_out(&mut tally, out).await;
        it.print_ended(&mut tally, out)?;
        if args.no_wait {
            let left = it.campaign.left() - it.under_way.len();
            if left > 0 && ended.is_ok() {
                talk::line(format_args!("{left} more are to be asked for: run the same command when these are done"));
            }
        } else {
            tally.left = it.campaign.left();
            writeln!(out, "{tally}")?;
        }
        ended?;
        tally.result()
    })
}

/// Rotations that are carried out.
struct Rotations<'a> {
    args: &'a Args,
    planner: &'a Planner<'static>,
    client: Client,
    campaign: Campaign,
    /// The keys that certificates are to have.
    wanted: BTreeMap<Slot, KeySpec>,
    /// The Services that certificates are for.
    services: &'a BTreeMap<Slot, Service>,
    total: usize,
    /// Since when each was asked for that is under way.
    under_way: BTreeMap<Slot, Instant>,
    /// How many were printed of those that have ended.
    printed: usize,
}

/// How many rotations ended how.
#[derive(Debug, Default)]
struct Tally {
    rotated: usize,
    already: usize,
    failed: Vec<String>,
    left: usize,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rotated, {} already, {} failed", self.rotated, self.already, self.failed.len())?;
        if self.left > 0 { write!(f, ", {} not done", self.left) } else { Ok(()) }
    }
}

impl Tally {
    fn count(&mut self, slot: &Slot, outcome: &Outcome, out: &mut dyn Write) -> anyhow::Result<()> {
        let object = slot.object_text();
        match outcome {
            Outcome::Rotated => {
                self.rotated += 1;
                writeln!(out, "{object}: rotated")?;
            }
            Outcome::Already => {
                self.already += 1;
                writeln!(out, "{object}: already done")?;
            }
            Outcome::Failed(why) => {
                writeln!(out, "{object}: failed: {why}")?;
                self.failed.push(format!("{object}: {why}"));
            }
        }
        Ok(())
    }

    fn ended(&self) -> usize {
        self.rotated + self.already + self.failed.len()
    }

    fn result(&self) -> anyhow::Result<Found> {
        let certificates =
            |count: usize| if count == 1 { "1 certificate".to_owned() } else { format!("{count} certificates") };
        match self.failed.first() {
            Some(first) => bail!("{} not rotated; the first: {first}", certificates(self.failed.len())),
            None if self.left > 0 => {
                bail!("{} not rotated in time: run the same command to go on", certificates(self.left))
            }
            None => Ok(Found::Nothing),
        }
    }
}

impl Rotations<'_> {
    /// Looks and asks, until nothing is left, or nothing happens for too long.
    async fn carry_out(&mut self, tally: &mut Tally, out: &mut dyn Write) -> anyhow::Result<()> {
        let timeout = Duration::try_from(self.args.timeout.0).unwrap_or_default();
        let (mut progress_at, mut told_at, mut explained_at) = (Instant::now(), Instant::now(), None::<Instant>);
        let mut told = 0;
        let mut waits = BTreeMap::new();
        let mut pause = PAUSES.0;
        loop {
            let slots = self.campaign.look_at();
            if slots.is_empty() {
                return Ok(());
            }
            let before = self.campaign.ended().len();
            self.look(slots, out).await?;
            self.print_ended(tally, out)?;
            if self.args.no_wait {
                return Ok(());
            }
            let ended = self.campaign.ended().len();
            if TELL_EVERY <= told_at.elapsed() && told < ended {
                (told, told_at) = (ended, Instant::now());
                talk::line(format_args!("{} of {} done", tally.ended(), self.total));
            }
            if before < ended {
                (progress_at, explained_at, pause) = (Instant::now(), None, PAUSES.0);
                continue;
            }
            if timeout <= progress_at.elapsed() {
                talk::line(format_args!(
                    "no certificate was rotated for {}: does `perennial run` or `perennial up` run for this cluster?",
                    span::text(self.args.timeout.0)
                ));
                return Ok(());
            }
            let is_quiet = EXPLAIN_AFTER <= progress_at.elapsed();
            if is_quiet && explained_at.is_none_or(|at| EXPLAIN_EVERY <= at.elapsed()) {
                self.tell_waiting(&mut waits).await?;
                explained_at = Some(Instant::now());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Looks at Secrets, and asks for what is to be asked for.
    async fn look(&mut self, slots: Vec<Slot>, out: &mut dyn Write) -> anyhow::Result<()> {
        let client = &self.client;
        let read = |slot: Slot| async move {
            let found = ask::rotation(client, &slot).await;
            (slot, found)
        };
        let mut reads = stream::iter(slots).map(read).buffer_unordered(READ_AT_ONCE).collect::<Vec<_>>().await;
        reads.sort_by(|(one, _), (other, _)| one.cmp(other));
        for (slot, found) in reads {
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    self.campaign.failed(&slot, refused(error)?);
                    continue;
                }
            };
            let seen = found.map(|it| self.seen(&slot, it));
            match self.campaign.saw(&slot, seen.as_ref()) {
                Next::Ask => match ask::rotate(&self.client, &slot.object(), &self.args.reason).await {
                    Ok(()) => {
                        self.campaign.asked(&slot);
                        self.tell_asked(&slot, out)?;
                        self.under_way.entry(slot).or_insert_with(Instant::now);
                    }
                    Err(error) => self.campaign.failed(&slot, refused(error)?),
                },
                Next::Wait => {
                    let since = *self.under_way.entry(slot.clone()).or_insert_with(Instant::now);
                    if ERROR_COUNTS_AFTER <= since.elapsed() {
                        self.look_at_service(&slot).await?;
                    }
                }
                Next::Nothing => {}
            }
        }
        Ok(())
    }

    fn seen(&self, slot: &Slot, found: Rotation) -> Seen {
        let key = found.certificate.and_then(|it| it.facts().public_key.kind().spec());
        let is_right = self.wanted.get(slot).map(|wanted| key == Some(*wanted));
        Seen { asked: found.asked, done: found.done, is_right }
    }

    fn tell_asked(&self, slot: &Slot, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.args.no_wait {
            writeln!(out, "asked for a new certificate in {}", slot.object_text())?;
        } else if self.total <= NAMED {
            talk::line(format_args!("asked for a new certificate in {}", slot.object_text()));
        }
        Ok(())
    }

    /// What the operator says on a Service of why it does not get its certificate.
    async fn look_at_service(&mut self, slot: &Slot) -> anyhow::Result<()> {
        let Some(service) = self.services.get(slot) else { return Ok(()) };
        match ask::serving_error(&self.client, slot.namespace(), &service.name).await {
            Ok(Some(why)) => self.campaign.failed(slot, why),
            Ok(None) => {}
            Err(error) => self.campaign.failed(slot, refused(error)?),
        }
        Ok(())
    }

    /// Prints how those ended that were not printed yet.
    fn print_ended(&mut self, tally: &mut Tally, out: &mut dyn Write) -> anyhow::Result<()> {
        for (slot, outcome) in &self.campaign.ended()[self.printed..] {
            tally.count(slot, outcome, out)?;
            self.under_way.remove(slot);
        }
        self.printed = self.campaign.ended().len();
        Ok(out.flush()?)
    }

    /// Says what waits for what, once for each instant until which it waits.
    async fn tell_waiting(&self, told: &mut BTreeMap<Slot, Option<Timestamp>>) -> anyhow::Result<()> {
        let view = self.args.cluster.view();
        let seen = observe(&self.client, self.planner.wiring(), &view, clock::now()).await;
        let seen = seen.map_err(|error| anyhow!("failed to read the cluster: {}", brief(&error)))?;
        let report = self.planner.plan(&seen.snapshot, &Scope::All);
        for pending in report.waiting.iter().filter(|it| self.under_way.contains_key(&it.slot)) {
            let until = pending.waiting.until();
            if told.insert(pending.slot.clone(), until) != Some(until) {
                talk::line(format_args!("{} waits: {}", pending.slot.object_text(), pending.waiting));
            }
        }
        Ok(())
    }
}

/// What the server says about one object; an error where it says nothing.
fn refused(error: Error) -> anyhow::Result<String> {
    match error {
        Error::Api(status) => Ok(status.message),
        error => Err(anyhow!("interrupted: {}; run the same command to go on", brief(&error))),
    }
}
