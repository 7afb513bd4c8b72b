//! Looks, decides and acts, until nothing is left to do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::{BoxFuture, ready};
use jiff::Timestamp;
use kube_client::Client;
use perennial_core::catalog::ObjectName;
use perennial_core::plan::{Action, Planner, Report, Scope, Step};
use perennial_core::snapshot::{Slot, Snapshot};
use perennial_x509::KeyPool;
use tracing::warn;

use crate::act::{ActError, Actor, Done};
use crate::brief;
use crate::observe::{Observation, View, observe};

/// The instant, from whoever may know it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A pass that makes no end is cut here, and goes on with the next one.
const MOST_LOOKS: usize = 20;
/// How many issues of a place are remembered: as many as the circuit breaker asks about.
const REMEMBERED: usize = 5;

/// Keeps the certificates of one cluster.
pub struct Keeper<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    actor: Actor,
    view: View,
    clock: Clock,
    /// Whether a replacement may have been interrupted.
    is_unfinished: AtomicBool,
    /// Whether nothing more is to be written.
    is_stopping: AtomicBool,
    /// When the last few certificates of each place were issued here.
    issues: Mutex<BTreeMap<Slot, Vec<Timestamp>>>,
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
    /// What could not be written.
    pub failed: Vec<ActError>,
}

/// Why a pass came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum PassError {
    /// The cluster could not be looked at.
    #[error("failed to look at the cluster: {}", brief(.0))]
    Observe(Box<kube_client::Error>),
    /// Something of the last run could not be finished.
    #[error(transparent)]
    Unfinished(ActError),
    /// What somebody asked for makes no sense.
    #[error(transparent)]
    Settings(perennial_core::snapshot::Incomplete),
}

/// Who is told about each write as it is made.
pub trait Listener: Send + Sync {
    /// A step is about to be carried out.
    fn begins<'a>(&'a self, step: &'a Step) -> BoxFuture<'a, ()>;
    /// It was.
    fn done<'a>(&'a self, step: &'a Step, done: &'a Done) -> BoxFuture<'a, ()>;
    /// It was not.
    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError) -> BoxFuture<'a, ()>;
}

/// One after the other.
impl<A: Listener, B: Listener> Listener for (A, B) {
    fn begins<'a>(&'a self, step: &'a Step) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.begins(step).await;
            self.1.begins(step).await;
        })
    }

    fn done<'a>(&'a self, step: &'a Step, done: &'a Done) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.done(step, done).await;
            self.1.done(step, done).await;
        })
    }

    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.0.failed(step, error).await;
            self.1.failed(step, error).await;
        })
    }
}

/// Whoever is shared.
impl<L: Listener> Listener for Arc<L> {
    fn begins<'a>(&'a self, step: &'a Step) -> BoxFuture<'a, ()> {
        self.as_ref().begins(step)
    }

    fn done<'a>(&'a self, step: &'a Step, done: &'a Done) -> BoxFuture<'a, ()> {
        self.as_ref().done(step, done)
    }

    fn failed<'a>(&'a self, step: &'a Step, error: &'a ActError) -> BoxFuture<'a, ()> {
        self.as_ref().failed(step, error)
    }
}

/// Nobody listens.
impl Listener for () {
    fn begins<'a>(&'a self, _: &'a Step) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    fn done<'a>(&'a self, _: &'a Step, _: &'a Done) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }

    fn failed<'a>(&'a self, _: &'a Step, _: &'a ActError) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }
}

impl<'c> Keeper<'c> {
    /// A keeper of a cluster's certificates.
    pub fn new(planner: &'c Planner<'c>, client: Client, keys: Arc<KeyPool>, view: View, clock: Clock) -> Keeper<'c> {
        let actor = Actor::new(client.clone(), keys);
        Keeper {
            planner,
            client,
            actor,
            view,
            clock,
            is_unfinished: AtomicBool::new(true),
            is_stopping: AtomicBool::new(false),
            issues: Mutex::default(),
        }
    }

    /// Looks at the cluster without touching it.
    pub async fn look(&self) -> Result<(Observation, Report), PassError> {
        let observed = observe(&self.client, self.planner.wiring(), &self.view, (self.clock)()).await;
        let mut observation = observed.map_err(|error| PassError::Observe(Box::new(error)))?;
        let issues = self.issues.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lost = issues
            .into_iter()
            .filter(|(slot, _)| observation.snapshot.secrets.get(slot).is_some_and(|found| found.present().is_none()));
        observation.snapshot.lost_issues = lost.collect();
        observation.snapshot.check(self.planner.wiring()).map_err(PassError::Settings)?;
        let report = self.planner.plan(&observation.snapshot, &Scope::All);
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

    /// Does everything that can be done now.
    pub async fn pass(&self, listener: &dyn Listener) -> Result<Passed, PassError> {
        let (mut written, mut failed) = (Vec::new(), Vec::new());
        for look in 1.. {
            // What was interrupted is finished before anything is decided: a Secret that is absent may stand in another.
            if self.is_unfinished.load(Ordering::Relaxed) {
                let namespaces = self.namespaces();
                let finished = self.actor.finish_replacements(&namespaces).await.map_err(PassError::Unfinished)?;
                finished.iter().for_each(|object| warn!(%object, "a replacement that was interrupted is finished"));
                self.is_unfinished.store(false, Ordering::Relaxed);
            }
            let (mut observation, report) = self.look().await?;
            let retyped = !self.is_stopping() && self.retype(&mut observation, &mut failed).await;
            if (report.steps.is_empty() && !retyped) || look > MOST_LOOKS || !failed.is_empty() || self.is_stopping() {
                return Ok(Passed { observation, report, written, failed });
            }
            let mut keys = self.actor.begin_keys(&report.steps);
            for step in report.steps.clone() {
                if self.is_stopping() {
                    return Ok(Passed { observation, report, written, failed });
                }
                listener.begins(&step).await;
                match self.actor.act(self.planner.wiring(), &mut observation, &step, keys.pop_front().flatten()).await {
                    Ok(done) => {
                        self.remember(&step);
                        listener.done(&step, &done).await;
                        written.push((step, done));
                    }
                    Err(error) if error.is_changed() => {
                        self.is_unfinished.store(true, Ordering::Relaxed);
                        break;
                    }
                    Err(error) => {
                        listener.failed(&step, &error).await;
                        self.is_unfinished.store(true, Ordering::Relaxed);
                        failed.push(error);
                        break;
                    }
                }
            }
        }
        unreachable!("a pass ends after a number of looks")
    }

    /// Gives Secrets that hold what they should the type that they should have. Says whether there were any.
    async fn retype(&self, observation: &mut Observation, failed: &mut Vec<ActError>) -> bool {
        let mistyped = std::mem::take(&mut observation.mistyped);
        let ours: Vec<ObjectName> =
            mistyped.into_iter().filter(|name| self.is_ours(&observation.snapshot, name)).collect();
        for name in &ours {
            warn!(object = %name, "a Secret has another type than it should, and is replaced");
            if let Err(error) = self.actor.retype(&mut observation.objects, name).await {
                self.is_unfinished.store(true, Ordering::Relaxed);
                if !error.is_changed() {
                    failed.push(error);
                }
            }
        }
        !ours.is_empty()
    }

    /// Whether the Secret belongs to a component that is kept here, and that nobody else keeps.
    fn is_ours(&self, snapshot: &Snapshot, name: &ObjectName) -> bool {
        let component_of = |object: &str| {
            let row = self.planner.wiring().owner(object, snapshot).and_then(|id| self.planner.wiring().row(id));
            row.map(|wired| wired.row.component)
        };
        let Some(component) = component_of(&name.to_string()) else { return false };
        let settings = &snapshot.settings;
        let mut others = snapshot.other_writers.keys().filter_map(|slot| component_of(slot.object_text()));
        !settings.left_alone.contains(component.owner())
            && (settings.taken_over.contains(component.owner()) || !others.any(|other| other == component))
    }

    /// An object that is deleted takes with it when it was issued; whoever issued it knows that still.
    fn remember(&self, step: &Step) {
        let Action::Issue(issue) = &step.action else { return };
        let mut issues = self.issues.lock().unwrap_or_else(PoisonError::into_inner);
        let times = issues.entry(issue.slot.clone()).or_default();
        times.push((self.clock)());
        let forgotten = times.len().saturating_sub(REMEMBERED);
        times.drain(..forgotten);
    }

    /// Where Secrets of the catalog are.
    fn namespaces(&self) -> Vec<&'static str> {
        let rows = self.planner.wiring().catalog.rows.iter();
        let homes = rows.filter_map(|row| match row.home {
            perennial_core::catalog::Home::Secret(object) => Some(object.namespace),
            perennial_core::catalog::Home::Files { .. } => None,
        });
        let mut namespaces: Vec<&'static str> = homes.filter(|namespace| !namespace.starts_with('<')).collect();
        namespaces.sort_unstable();
        namespaces.dedup();
        namespaces
    }
}
