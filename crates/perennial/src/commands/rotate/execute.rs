//! Executes `perennial rotate --yes`: asks for rotations, a few at a time, and waits for them.

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

/// The shortest and the longest pause between two reads of the Secrets.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// How many Secrets are read at once.
const READ_AT_ONCE: usize = 8;
/// How often the command prints the progress.
const PROGRESS_EVERY: Duration = Duration::from_secs(2);
/// Up to this number of certificates, the command prints each request.
const MAX_PRINTED_REQUESTS: usize = 20;
/// After this time without progress, the command observes the whole cluster and prints the waits; then at this interval.
const EXPLAIN_AFTER: Duration = Duration::from_secs(10);
const EXPLAIN_EVERY: Duration = Duration::from_secs(60);
/// How long the command ignores the error annotation of a Service, which may be from an earlier attempt.
const ERROR_COUNTS_AFTER: Duration = Duration::from_secs(5);

/// Rotates the certificates, and prints each result and the totals.
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
        let services = observation.snapshot.services.found();
        let in_progress = BTreeMap::new();
        let mut rotations =
            Rotations { args, planner, client, campaign, wanted, services, total, in_progress, printed: 0 };
        let mut tally = Tally::default();
        for (slot, why) in refused {
            tally.count(&slot, &Outcome::Failed(why), out)?;
        }
        let ended = rotations.execute(&mut tally, out).await;
        rotations.print_ended(&mut tally, out)?;
        if args.no_wait {
            let left = rotations.campaign.left() - rotations.in_progress.len();
            if left > 0 && ended.is_ok() {
                talk::line(format_args!("{left} more to rotate: run the same command after these rotations"));
            }
        } else {
            tally.left = rotations.campaign.left();
            writeln!(out, "{tally}")?;
        }
        ended?;
        tally.result()
    })
}

/// The state of all rotations of the command.
struct Rotations<'a> {
    args: &'a Args,
    planner: &'a Planner<'static>,
    client: Client,
    campaign: Campaign,
    /// The keys that the policy asks for.
    wanted: BTreeMap<Slot, KeySpec>,
    /// The Services of serving certificates.
    services: &'a BTreeMap<Slot, Service>,
    total: usize,
    /// The rotations in progress, with the instant of the request.
    in_progress: BTreeMap<Slot, Instant>,
    /// How many results were printed.
    printed: usize,
}

/// The totals of the rotations.
#[derive(Debug, Default)]
struct Tally {
    rotated: usize,
    already: usize,
    failed: Vec<String>,
    left: usize,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} rotated, {} rotated before, {} failed", self.rotated, self.already, self.failed.len())?;
        if self.left > 0 { write!(f, ", {} not complete", self.left) } else { Ok(()) }
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
                writeln!(out, "{object}: rotated before for this reason")?;
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
                bail!("{} not rotated in time: run the same command to continue", certificates(self.left))
            }
            None => Ok(Found::Nothing),
        }
    }
}

impl Rotations<'_> {
    /// Reads Secrets and asks for rotations, until all are complete or the timeout passes without progress.
    async fn execute(&mut self, tally: &mut Tally, out: &mut dyn Write) -> anyhow::Result<()> {
        let timeout = Duration::try_from(self.args.timeout.0).unwrap_or_default();
        let (mut progress_at, mut printed_at, mut explained_at) = (Instant::now(), Instant::now(), None::<Instant>);
        let mut printed = 0;
        let mut waits = BTreeMap::new();
        let mut pause = PAUSES.0;
        loop {
            let slots = self.campaign.look_at();
            if slots.is_empty() {
                return Ok(());
            }
            let before = self.campaign.ended().len();
            self.read_and_ask(slots, out).await?;
            self.print_ended(tally, out)?;
            if self.args.no_wait {
                return Ok(());
            }
            let ended = self.campaign.ended().len();
            if PROGRESS_EVERY <= printed_at.elapsed() && printed < ended {
                (printed, printed_at) = (ended, Instant::now());
                talk::line(format_args!("{} of {} complete", tally.ended(), self.total));
            }
            if before < ended {
                (progress_at, explained_at, pause) = (Instant::now(), None, PAUSES.0);
                continue;
            }
            if timeout <= progress_at.elapsed() {
                talk::line(format_args!(
                    "no certificate was rotated for {}: check that `perennial run` or `perennial up` runs for this cluster",
                    span::text(self.args.timeout.0)
                ));
                return Ok(());
            }
            let is_quiet = EXPLAIN_AFTER <= progress_at.elapsed();
            if is_quiet && explained_at.is_none_or(|at| EXPLAIN_EVERY <= at.elapsed()) {
                self.print_waiting(&mut waits).await?;
                explained_at = Some(Instant::now());
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// Reads Secrets, and asks for the rotations that may start.
    async fn read_and_ask(&mut self, slots: Vec<Slot>, out: &mut dyn Write) -> anyhow::Result<()> {
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
                    self.campaign.failed(&slot, api_message(error)?);
                    continue;
                }
            };
            let seen = found.map(|it| self.seen(&slot, it));
            match self.campaign.saw(&slot, seen.as_ref()) {
                Next::Ask => match ask::rotate(&self.client, &slot.object(), &self.args.reason).await {
                    Ok(()) => {
                        self.campaign.asked(&slot);
                        self.print_request(&slot, out)?;
                        self.in_progress.entry(slot).or_insert_with(Instant::now);
                    }
                    Err(error) => self.campaign.failed(&slot, api_message(error)?),
                },
                Next::Wait => {
                    let since = *self.in_progress.entry(slot.clone()).or_insert_with(Instant::now);
                    if ERROR_COUNTS_AFTER <= since.elapsed() {
                        self.check_service(&slot).await?;
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

    fn print_request(&self, slot: &Slot, out: &mut dyn Write) -> anyhow::Result<()> {
        if self.args.no_wait {
            writeln!(out, "asked for a new certificate in {}", slot.object_text())?;
        } else if self.total <= MAX_PRINTED_REQUESTS {
            talk::line(format_args!("asked for a new certificate in {}", slot.object_text()));
        }
        Ok(())
    }

    /// Fails the rotation if the Service has an error annotation.
    async fn check_service(&mut self, slot: &Slot) -> anyhow::Result<()> {
        let Some(service) = self.services.get(slot) else { return Ok(()) };
        match ask::serving_error(&self.client, slot.namespace(), &service.name).await {
            Ok(Some(why)) => self.campaign.failed(slot, why),
            Ok(None) => {}
            Err(error) => self.campaign.failed(slot, api_message(error)?),
        }
        Ok(())
    }

    /// Prints new results.
    fn print_ended(&mut self, tally: &mut Tally, out: &mut dyn Write) -> anyhow::Result<()> {
        for (slot, outcome) in &self.campaign.ended()[self.printed..] {
            tally.count(slot, outcome, out)?;
            self.in_progress.remove(slot);
        }
        self.printed = self.campaign.ended().len();
        Ok(out.flush()?)
    }

    /// Prints what waits and why, once for each end of the wait.
    async fn print_waiting(&self, printed: &mut BTreeMap<Slot, Option<Timestamp>>) -> anyhow::Result<()> {
        let view = self.args.cluster.view();
        let seen = observe(&self.client, self.planner.wiring(), &view, clock::now()).await;
        let seen = seen.map_err(|error| anyhow!("failed to read the cluster: {}", brief(&error)))?;
        let report = self.planner.plan(&seen.snapshot, &Scope::All);
        for pending in report.waiting.iter().filter(|it| self.in_progress.contains_key(&it.slot)) {
            let until = pending.waiting.until();
            if printed.insert(pending.slot.clone(), until) != Some(until) {
                talk::line(format_args!("{} waits: {}", pending.slot.object_text(), pending.waiting));
            }
        }
        Ok(())
    }
}

/// Returns the message of an API error, or an error if the request failed in another way.
fn api_message(error: Error) -> anyhow::Result<String> {
    match error {
        Error::Api(status) => Ok(status.message),
        error => Err(anyhow!("interrupted: {}; run the same command to continue", brief(&error))),
    }
}
