//! A pass: observes the cluster, plans and writes, until nothing is left to write now.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use jiff::{SignedDuration, Timestamp};
use kube_client::Client;
use perennial_core::plan::{Action, Planner, REMEMBERED_ISSUES, Report, Scope, Step};
use perennial_core::snapshot::{Observed, SecretState, Slot, Snapshot};
use perennial_x509::KeyPool;
use tracing::{debug, warn};

use crate::act::{ActError, Actor, Done, LONGEST_PAUSE, Unfinished};
use crate::brief;
use crate::observe::{Observation, View, observe};
use crate::rbac::Managed;

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A pass ends after this many rounds. The next pass continues.
const MOST_ROUNDS: usize = 20;
/// How often a pass tries to write an object that another client keeps changing.
const MOST_TRIES: u32 = 7;
/// The pause after the first such conflict. Each further pause is twice as long, up to two thirds of a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How often a pass retries the write of one object after a temporary failure of the server.
const MOST_RETRIES: u32 = 2;
/// How often a pass retries writes of all objects together.
const MOST_RETRIES_OF_ALL: u32 = 10;
/// The age at which a plan is out of date. The pass then observes again, but always carries out the first step of a plan.
const PLAN_EXPIRES_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// Observes, plans and writes the certificates of one cluster, in passes.
pub struct Reconciler<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    actor: Actor,
    view: View,
    clock: Clock,
    /// Interrupted replacements that are still incomplete; none before the first check.
    unfinished: Mutex<Option<Unfinished>>,
    /// True if the pass must not write any more.
    is_stopping: AtomicBool,
    /// When this operator issued the last few certificates of each place.
    issues: Mutex<BTreeMap<Slot, Vec<Timestamp>>>,
    /// Since when the PKI resource cannot be read.
    policy_unknown_since: Mutex<Option<Timestamp>>,
    /// The places that held a certificate at some time since this operator started.
    seen: Mutex<BTreeSet<Slot>>,
    /// When this operator last corrected the labels and annotations of each place.
    described: Mutex<BTreeMap<Slot, Vec<Timestamp>>>,
}

/// The result of a pass.
#[derive(Debug)]
pub struct Passed {
    /// The last observation, after all writes.
    pub observation: Observation,
    /// The last plan. It has steps only if a write failed or the pass was stopped.
    pub report: Report,
    /// The completed steps, in order.
    pub written: Vec<(Step, Done)>,
    /// The failed steps, and why they failed.
    pub failed: Vec<(Step, ActError)>,
}

impl Passed {
    /// Adds the result of a later pass.
    pub(crate) fn and_then(mut self, later: Passed) -> Passed {
        self.written.extend(later.written);
        // The later pass retried the failed steps of this one.
        Passed { written: self.written, ..later }
    }
}

/// Why a pass failed.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The cluster could not be read.
    #[error("failed to read the cluster: {}", brief(.0))]
    Observe(Box<kube_client::Error>),
    /// The settings contradict the catalog.
    #[error(transparent)]
    Settings(perennial_core::snapshot::Incomplete),
}

/// Is called before and after each write, with the observation at that time.
pub trait Listener: Send + Sync {
    /// The planner made a plan, and no step of it is carried out yet.
    fn planned<'a>(&'a self, _: &'a Observation, _: &'a Report) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }
    /// The pass is about to carry out a step.
    fn begins<'a>(&'a self, step: &'a Step, observation: &'a Observation) -> BoxFuture<'a, ()>;
    /// The pass has carried out a step.
    fn done<'a>(&'a self, step: &'a Step, done: &'a Done, observation: &'a Observation) -> BoxFuture<'a, ()>;
    /// A step failed.
    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError, observation: &'a Observation) -> BoxFuture<'a, ()>;
}

impl<'c> Reconciler<'c> {
    /// Returns a reconciler for a cluster.
    pub fn new(
        planner: &'c Planner<'c>,
        client: Client,
        keys: Arc<KeyPool>,
        view: View,
        clock: Clock,
    ) -> Reconciler<'c> {
        let actor = Actor::new(client.clone(), keys, clock.clone());
        Reconciler {
            planner,
            client,
            actor,
            view,
            clock,
            unfinished: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            issues: Mutex::default(),
            seen: Mutex::default(),
            policy_unknown_since: Mutex::default(),
            described: Mutex::default(),
        }
    }

    /// Observes the cluster and plans, and writes nothing.
    pub async fn plan(&self) -> Result<(Observation, Report), PassError> {
        self.plan_with(&BTreeMap::new()).await
    }

    /// Observes the cluster and plans, with the places whose write has failed in this pass, and why.
    async fn plan_with(&self, blocked: &BTreeMap<Slot, String>) -> Result<(Observation, Report), PassError> {
        let observed = observe(&self.client, self.planner.wiring(), &self.view, (self.clock)()).await;
        let mut observation = observed.map_err(|error| PassError::Observe(Box::new(error)))?;
        lock(&self.unfinished).iter().for_each(|unfinished| unfinished.hide(&mut observation));
        let issues = lock(&self.issues).clone();
        let lost = issues
            .into_iter()
            .filter(|(slot, _)| observation.snapshot.secrets.get(slot).is_some_and(|found| found.present().is_none()));
        observation.snapshot.lost_issues = lost.collect();
        observation.snapshot.deleted = self.deleted(&observation.snapshot);
        observation.snapshot.described = lock(&self.described).clone();
        observation.snapshot.blocked = blocked.clone();
        let is_unknown = matches!(observation.snapshot.key_policy(), Observed::Unknown { .. });
        let mut since = lock(&self.policy_unknown_since);
        // A clock that is set back must not make the wait longer.
        let now = observation.snapshot.taken_at;
        *since = is_unknown.then(|| since.unwrap_or(now).min(now));
        observation.snapshot.policy_unknown_since = *since;
        drop(since);
        observation.snapshot.check(self.planner.wiring()).map_err(PassError::Settings)?;
        let report = self.planner.plan(&observation.snapshot, &Scope::Cluster);
        Ok((observation, report))
    }

    /// Returns the places of the cluster's own certificates that are empty now, and were not at some time since this operator started.
    fn deleted(&self, snapshot: &Snapshot) -> BTreeSet<Slot> {
        let is_there =
            |found: &Observed<SecretState>| matches!(found, Observed::Present(_) | Observed::Unreadable { .. });
        let there = snapshot
            .secrets
            .iter()
            .filter(|(slot, found)| is_there(found) && !snapshot.services.found().contains_key(slot));
        let mut seen = lock(&self.seen);
        seen.extend(there.map(|(slot, _)| slot.clone()));
        seen.iter().filter(|slot| snapshot.secrets.get(slot) == Some(&Observed::Absent)).cloned().collect()
    }

    /// Ends a pass after its current write.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// True after [`Reconciler::stop`].
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Carries out every step that is possible now.
    ///
    /// After a failed write, the pass continues with the steps that do not depend on it. After a temporary failure of the server, the pass
    /// first retries the write: without the new signer, for example, it would publish a bundle that lacks it.
    pub async fn pass(&self, listeners: &[&dyn Listener]) -> Result<Passed, PassError> {
        let (mut written, mut failed) = (Vec::new(), Vec::new());
        let (mut blocked, mut changes) = (BTreeMap::new(), BTreeMap::<String, u32>::new());
        let mut retries = BTreeMap::<String, u32>::new();
        let mut rounds = 0;
        // Each pass retries incomplete replacements.
        if lock(&self.unfinished).as_ref().is_some_and(|unfinished| !unfinished.is_empty()) {
            *lock(&self.unfinished) = None;
        }
        loop {
            // Interrupted replacements come first: a staged Secret may hold the content of an absent Secret.
            self.finish_replacements().await;
            let (mut observation, report) = self.plan_with(&blocked).await?;
            if report.steps.is_empty() || rounds >= MOST_ROUNDS || self.is_stopping() {
                return Ok(Passed { observation, report, written, failed });
            }
            for listener in listeners {
                listener.planned(&observation, &report).await;
            }
            let mut keys = self.actor.begin_keys(&report.steps);
            rounds += 1;
            let planned_at = (self.clock)();
            for (number, step) in report.steps.clone().into_iter().enumerate() {
                if self.is_stopping() {
                    return Ok(Passed { observation, report, written, failed });
                }
                if number > 0 && PLAN_EXPIRES_AFTER < (self.clock)().duration_since(planned_at) {
                    break;
                }
                if !changes.contains_key(&step.object) && !retries.contains_key(&step.object) {
                    for listener in listeners {
                        listener.begins(&step, &observation).await;
                    }
                }
                let acted = self.actor.act(&mut observation, &step, keys.pop_front().flatten()).await;
                let error = match acted {
                    Ok(done) => {
                        self.remember(&step);
                        for listener in listeners {
                            listener.done(&step, &done, &observation).await;
                        }
                        written.push((step, done));
                        continue;
                    }
                    Err(error) => error,
                };
                *lock(&self.unfinished) = None;
                rounds -= 1;
                if let Some(pause) = error.retry_after().filter(|_| retries.values().sum::<u32>() < MOST_RETRIES_OF_ALL)
                {
                    let tries = retries.entry(step.object.clone()).or_default();
                    if *tries < MOST_RETRIES {
                        *tries += 1;
                        debug!(object = step.object, %error, "retrying the write");
                        tokio::time::sleep((pause * 4_u32.pow(*tries - 1)).min(LONGEST_PAUSE)).await;
                        break;
                    }
                }
                let tries = changes.entry(step.object.clone()).or_default();
                let error = match error {
                    ActError::Changed { object } => {
                        *tries += 1;
                        if *tries < MOST_TRIES {
                            tokio::time::sleep(FIRST_PAUSE * 2_u32.pow(*tries - 1)).await;
                            break;
                        }
                        let writer = observation.objects.get(&object).and_then(|seen| seen.writer.clone());
                        ActError::Contended { object, writer }
                    }
                    error => error,
                };
                for listener in listeners {
                    listener.failed(&step, &error, &observation).await;
                }
                let why = error.to_string();
                blocked.extend(step.slots().into_iter().map(|slot| (slot.clone(), why.clone())));
                failed.push((step, error));
                break;
            }
        }
    }

    /// Completes interrupted replacements, if there may be any.
    async fn finish_replacements(&self) {
        if lock(&self.unfinished).is_some() {
            return;
        }
        let managed = Managed::of(self.planner.wiring().catalog, |it| self.view.settings.manages(it));
        let (finished, unfinished) = self.actor.finish_replacements(managed.secrets).await;
        finished
            .iter()
            .for_each(|object| warn!(%object, "created the Secret again: its replacement had been interrupted"));
        *lock(&self.unfinished) = Some(unfinished);
    }

    /// Remembers when a certificate was issued, or when labels and annotations were corrected.
    ///
    /// A deleted Secret loses its own record of issues, and no object records the corrections.
    fn remember(&self, step: &Step) {
        let (times, slot) = match &step.action {
            Action::Issue(issue) => (&self.issues, &issue.slot),
            Action::Describe(described) if !described.is_replaced => (&self.described, &described.slot),
            _ => return,
        };
        let mut times = lock(times);
        let times = times.entry(slot.clone()).or_default();
        times.push((self.clock)());
        let forgotten = times.len().saturating_sub(REMEMBERED_ISSUES);
        times.drain(..forgotten);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
