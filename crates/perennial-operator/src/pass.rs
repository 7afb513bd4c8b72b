//! Looks, decides and acts, until nothing is left to do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::{BoxFuture, ready};
use jiff::{SignedDuration, Timestamp};
use kube_client::Client;
use perennial_core::plan::{Action, Planner, Report, Scope, Step};
use perennial_core::rules::Observed;
use perennial_core::snapshot::Slot;
use perennial_x509::KeyPool;
use tracing::{debug, warn};

use crate::act::{ActError, Actor, Done, LONGEST_PAUSE, Unfinished};
use crate::brief;
use crate::objects::Objects;
use crate::observe::{Observation, View, observe};
use crate::rbac::Kept;

/// The instant, from whoever may know it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A pass that makes no end is cut here, and goes on with the next one.
const MOST_ROUNDS: usize = 20;
/// How often somebody else may be faster with an object before it is left to them for this pass.
const MOST_TRIES: u32 = 7;
/// How long to wait after the first time; then twice as long each time, up to two thirds of a second.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
/// How often a write is tried again in a pass because the server had a trouble: of an object, and of all together.
const MOST_TROUBLES: u32 = 2;
const MOST_TROUBLES_OF_ALL: u32 = 10;
/// What was decided is carried out within this time after the look, or else looked at again. The first write always is.
const GOOD_FOR: SignedDuration = SignedDuration::from_mins(1);
/// How many issues of a place are remembered: as many as the circuit breaker asks about, and more than it asks of descriptions.
const REMEMBERED: usize = 5;

/// Keeps the certificates of one cluster.
pub struct Keeper<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    actor: Actor,
    view: View,
    clock: Clock,
    /// Replacements that were interrupted and could not be finished; none where nobody has looked.
    unfinished: Mutex<Option<Unfinished>>,
    /// Whether nothing more is to be written.
    is_stopping: AtomicBool,
    /// When the last few certificates of each place were issued here.
    issues: Mutex<BTreeMap<Slot, Vec<Timestamp>>>,
    /// Since when nobody says what the PKI resource is.
    policy_unknown_since: Mutex<Option<Timestamp>>,
    /// When the labels and annotations of each place were last set right here.
    described: Mutex<BTreeMap<Slot, Vec<Timestamp>>>,
}

/// What came of a pass.
#[derive(Debug)]
pub struct Passed {
    /// The last look, after everything was written.
    pub observation: Observation,
    /// What was decided then: nothing to write, unless something stands in the way.
    pub report: Report,
    /// What was written, in order.
    pub written: Vec<(Step, Done)>,
    /// What could not be written, and why.
    pub failed: Vec<(Step, ActError)>,
}

impl Passed {
    /// With what came of another one after it.
    pub(crate) fn and_then(mut self, later: Passed) -> Passed {
        self.written.extend(later.written);
        // What failed first was tried again.
        Passed { written: self.written, ..later }
    }
}

/// Why a pass came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The cluster could not be looked at.
    #[error("failed to look at the cluster: {}", brief(.0))]
    Observe(Box<kube_client::Error>),
    /// What somebody asked for makes no sense.
    #[error(transparent)]
    Settings(perennial_core::snapshot::Incomplete),
}

/// Who is told about each write as it is made, with the objects as they are known then.
pub trait Listener: Send + Sync {
    /// Something was decided, and nothing of it is carried out yet.
    fn decided<'a>(&'a self, _: &'a Observation, _: &'a Report) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }
    /// A step is about to be carried out.
    fn begins<'a>(&'a self, step: &'a Step, objects: &'a Objects) -> BoxFuture<'a, ()>;
    /// It was.
    fn done<'a>(&'a self, step: &'a Step, done: &'a Done, objects: &'a Objects) -> BoxFuture<'a, ()>;
    /// It was not.
    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError, objects: &'a Objects) -> BoxFuture<'a, ()>;
}

/// One after the other.
impl<A: Listener, B: Listener> Listener for (A, B) {
    fn decided<'a>(&'a self, observation: &'a Observation, report: &'a Report) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.decided(observation, report).await;
            self.1.decided(observation, report).await;
        })
    }

    fn begins<'a>(&'a self, step: &'a Step, objects: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.begins(step, objects).await;
            self.1.begins(step, objects).await;
        })
    }

    fn done<'a>(&'a self, step: &'a Step, done: &'a Done, objects: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.done(step, done, objects).await;
            self.1.done(step, done, objects).await;
        })
    }

    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError, objects: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.failed(step, error, objects).await;
            self.1.failed(step, error, objects).await;
        })
    }
}

/// Whoever is shared.
impl<L: Listener> Listener for Arc<L> {
    fn decided<'a>(&'a self, observation: &'a Observation, report: &'a Report) -> BoxFuture<'a, ()> {
        self.as_ref().decided(observation, report)
    }

    fn begins<'a>(&'a self, step: &'a Step, objects: &'a Objects) -> BoxFuture<'a, ()> {
        self.as_ref().begins(step, objects)
    }

    fn done<'a>(&'a self, step: &'a Step, done: &'a Done, objects: &'a Objects) -> BoxFuture<'a, ()> {
        self.as_ref().done(step, done, objects)
    }

    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError, objects: &'a Objects) -> BoxFuture<'a, ()> {
        self.as_ref().failed(step, error, objects)
    }
}

/// Nobody listens.
impl Listener for () {
    fn begins<'a>(&'a self, _: &'a Step, _: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    fn done<'a>(&'a self, _: &'a Step, _: &'a Done, _: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    fn failed<'a>(&'a self, _: &'a Step, _: &'a ActError, _: &'a Objects) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }
}

impl<'c> Keeper<'c> {
    /// A keeper of a cluster's certificates.
    pub fn new(planner: &'c Planner<'c>, client: Client, keys: Arc<KeyPool>, view: View, clock: Clock) -> Keeper<'c> {
        let actor = Actor::new(client.clone(), keys, clock.clone());
        Keeper {
            planner,
            client,
            actor,
            view,
            clock,
            unfinished: Mutex::new(None),
            is_stopping: AtomicBool::new(false),
            issues: Mutex::default(),
            policy_unknown_since: Mutex::default(),
            described: Mutex::default(),
        }
    }

    /// Looks at the cluster without touching it.
    pub async fn look(&self) -> Result<(Observation, Report), PassError> {
        self.look_beside(&BTreeMap::new()).await
    }

    /// Looks at the cluster, knowing what could not be written a moment ago.
    async fn look_beside(&self, blocked: &BTreeMap<Slot, String>) -> Result<(Observation, Report), PassError> {
        let observed = observe(&self.client, self.planner.wiring(), &self.view, (self.clock)()).await;
        let mut observation = observed.map_err(|error| PassError::Observe(Box::new(error)))?;
        lock(&self.unfinished).iter().for_each(|unfinished| unfinished.hide(&mut observation));
        let issues = lock(&self.issues).clone();
        let lost = issues
            .into_iter()
            .filter(|(slot, _)| observation.snapshot.secrets.get(slot).is_some_and(|found| found.present().is_none()));
        observation.snapshot.lost_issues = lost.collect();
        observation.snapshot.described = lock(&self.described).clone();
        observation.snapshot.blocked = blocked.clone();
        let is_unknown = matches!(observation.snapshot.policy, Observed::Unknown { .. });
        let mut since = lock(&self.policy_unknown_since);
        *since = is_unknown.then(|| since.unwrap_or(observation.snapshot.taken_at));
        observation.snapshot.policy_unknown_since = *since;
        drop(since);
        observation.snapshot.check(self.planner.wiring()).map_err(PassError::Settings)?;
        let report = self.planner.plan(&observation.snapshot, &Scope::Cluster);
        Ok((observation, report))
    }

    /// Lets a pass end after the write that it is about to make.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    /// Whether it was told to stop.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Does everything that can be done now. What cannot be written is tried once, and everything that does not need it goes on.
    /// Where the server only had a trouble that passes, it is looked at and tried again first: what goes on without a signer, such as a
    /// bundle of several, would be read without it.
    pub async fn pass(&self, listener: &dyn Listener) -> Result<Passed, PassError> {
        let (mut written, mut failed) = (Vec::new(), Vec::new());
        let (mut blocked, mut changes) = (BTreeMap::new(), BTreeMap::<String, u32>::new());
        let mut troubles = BTreeMap::<String, u32>::new();
        let mut rounds = 0;
        // What could not be finished is tried again.
        if lock(&self.unfinished).as_ref().is_some_and(|unfinished| !unfinished.is_empty()) {
            *lock(&self.unfinished) = None;
        }
        loop {
            // What was interrupted is finished before anything is decided: a Secret that is absent may stand in another.
            self.finish().await;
            let (mut observation, report) = self.look_beside(&blocked).await?;
            if report.steps.is_empty() || rounds >= MOST_ROUNDS || self.is_stopping() {
                return Ok(Passed { observation, report, written, failed });
            }
            listener.decided(&observation, &report).await;
            let mut keys = self.actor.begin_keys(&report.steps);
            rounds += 1;
            let looked_at = (self.clock)();
            for (number, step) in report.steps.clone().into_iter().enumerate() {
                if self.is_stopping() {
                    return Ok(Passed { observation, report, written, failed });
                }
                if number > 0 && GOOD_FOR < (self.clock)().duration_since(looked_at) {
                    break;
                }
                if !changes.contains_key(&step.object) && !troubles.contains_key(&step.object) {
                    listener.begins(&step, &observation.objects).await;
                }
                let acted =
                    self.actor.act(self.planner.wiring(), &mut observation, &step, keys.pop_front().flatten()).await;
                let error = match acted {
                    Ok(done) => {
                        self.remember(&step);
                        listener.done(&step, &done, &observation.objects).await;
                        written.push((step, done));
                        continue;
                    }
                    Err(error) => error,
                };
                *lock(&self.unfinished) = None;
                rounds -= 1;
                if let Some(pause) = error.passes_in().filter(|_| troubles.values().sum::<u32>() < MOST_TROUBLES_OF_ALL)
                {
                    let tries = troubles.entry(step.object.clone()).or_default();
                    if *tries < MOST_TROUBLES {
                        *tries += 1;
                        debug!(object = step.object, %error, "is tried again");
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
                listener.failed(&step, &error, &observation.objects).await;
                let why = error.to_string();
                blocked.extend(step.slots().into_iter().map(|slot| (slot.clone(), why.clone())));
                failed.push((step, error));
                break;
            }
        }
    }

    /// Finishes replacements that were interrupted, if there may be any.
    async fn finish(&self) {
        if lock(&self.unfinished).is_some() {
            return;
        }
        let kept = Kept::of(self.planner.wiring().catalog, &self.view.settings);
        let (finished, unfinished) = self.actor.finish_replacements(kept.secrets).await;
        finished.iter().for_each(|object| warn!(%object, "a replacement that was interrupted is finished"));
        *lock(&self.unfinished) = Some(unfinished);
    }

    /// An object that is deleted takes with it when it was issued; whoever issued it knows that still. And nobody else knows how
    /// often its labels and annotations were set right.
    fn remember(&self, step: &Step) {
        let (times, slot) = match &step.action {
            Action::Issue(issue) => (&self.issues, &issue.slot),
            Action::Describe(slot) => (&self.described, slot),
            _ => return,
        };
        let mut times = lock(times);
        let times = times.entry(slot.clone()).or_default();
        times.push((self.clock)());
        let forgotten = times.len().saturating_sub(REMEMBERED);
        times.drain(..forgotten);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
