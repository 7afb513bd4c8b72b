//! Looks, decides and acts, until nothing is left to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{BoxFuture, ready};
use jiff::Timestamp;
use kube_client::Client;
use perennial_core::plan::{Planner, Report, Scope, Step};
use perennial_x509::KeyPool;

use crate::act::{ActError, Actor, Done};
use crate::brief;
use crate::observe::{Observation, View, observe};

/// The instant, from whoever may know it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A pass that makes no end is cut here, and goes on with the next one.
const MOST_LOOKS: usize = 20;

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
        }
    }

    /// Looks at the cluster without touching it.
    pub async fn look(&self) -> Result<(Observation, Report), PassError> {
        let observed = observe(&self.client, self.planner.wiring(), &self.view, (self.clock)()).await;
        let observation = observed.map_err(|error| PassError::Observe(Box::new(error)))?;
        observation.snapshot.check(self.planner.wiring()).map_err(PassError::Settings)?;
        let report = self.planner.plan(&observation.snapshot, &Scope::All);
        Ok((observation, report))
    }

    /// Lets a pass end after the write that it is about to make.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
    }

    fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    /// Does everything that can be done now.
    pub async fn pass(&self, listener: &dyn Listener) -> Result<Passed, PassError> {
        if self.is_unfinished.load(Ordering::Relaxed) {
            let namespaces = self.namespaces();
            self.actor.finish_replacements(&namespaces).await.map_err(PassError::Unfinished)?;
            self.is_unfinished.store(false, Ordering::Relaxed);
        }
        let (mut written, mut failed) = (Vec::new(), Vec::new());
        for look in 1.. {
            let (mut observation, report) = self.look().await?;
            let retyped = self.retype(&mut observation, &mut failed).await;
            if (report.steps.is_empty() && !retyped) || look > MOST_LOOKS || !failed.is_empty() || self.is_stopping() {
                return Ok(Passed { observation, report, written, failed });
            }
            let mut keys = self.actor.begin_keys(&report.steps);
            for step in report.steps {
                if self.is_stopping() {
                    break;
                }
                listener.begins(&step).await;
                match self.actor.act(self.planner.wiring(), &mut observation, &step, keys.pop_front().flatten()).await {
                    Ok(done) => {
                        listener.done(&step, &done).await;
                        written.push((step, done));
                    }
                    Err(error) if error.is_changed() => break,
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
        for name in &mistyped {
            match self.actor.retype(&mut observation.objects, name).await {
                Ok(()) => {}
                Err(error) if error.is_changed() => {}
                Err(error) => {
                    self.is_unfinished.store(true, Ordering::Relaxed);
                    failed.push(error);
                }
            }
        }
        !mistyped.is_empty()
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
