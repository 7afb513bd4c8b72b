//! Runs the operator: a pass over the certificates of the cluster at each change, and the controllers of Services and bundles.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube_client::Client;
use perennial_core::catalog::Component;
use perennial_core::clocks::{TOLERANCE, shifted};
use perennial_core::plan::Planner;
use perennial_core::reloads::Reloads;
use perennial_x509::KeyPool;
use tokio::sync::{Notify, watch as watch_channel};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::controller::registry::{CONTROLLERS, Parts, Progress, Registration, Runs};
use crate::controller::{self, Circumstances, Controller};
use crate::metrics::Metrics;
use crate::observe::{Observation, Services, View};
use crate::pass::{Clock, PassError, Passed, Reconciler};
use crate::report::Reporter;
use crate::self_test::{self, SelfTestError};
use crate::serving::{Index, ServiceCaView};
use crate::watch::{self, Watched};
use crate::{ask, brief};

/// The longest time between two passes, even if the watches report no change.
const RESYNC: Duration = Duration::from_secs(60);
/// How long the operator waits for further changes, so that one pass handles several.
const SETTLE: Duration = Duration::from_millis(20);
/// The shortest time between two passes.
const PAUSE: Duration = Duration::from_millis(200);
/// The first and the longest back-off after a failed pass.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// How often the operator checks whether the wall clock was set.
const CLOCK_CHECK: Duration = Duration::from_secs(5);

/// Why the operator does not start.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The first pass failed.
    #[error(transparent)]
    Pass(#[from] PassError),
    /// A configured kind of key cannot be generated or used on this machine.
    #[error(transparent)]
    Crypto(#[from] SelfTestError),
}

/// Runs passes over the certificates of the whole cluster, and controllers for objects of which there are many.
pub struct Runner<'c> {
    planner: &'c Planner<'c>,
    reconciler: Reconciler<'c>,
    reporter: Reporter<'c>,
    parts: Parts<'c>,
    controllers: Vec<Box<dyn Controller + 'c>>,
    /// The components that this operator manages.
    components: Vec<Component>,
    /// Sends the service CA, as each pass observes it, to the controllers.
    views: watch_channel::Sender<Option<Arc<ServiceCaView>>>,
}

impl<'c> Runner<'c> {
    /// Returns a runner for a cluster, with keys from a pool.
    pub fn new(planner: &'c Planner<'c>, client: Client, keys: Arc<KeyPool>, view: View, clock: Clock) -> Runner<'c> {
        let left_alone = view.settings.left_alone.clone();
        let components: Vec<Component> = Component::managed().filter(|it| !left_alone.contains(it.owner())).collect();
        let views = watch_channel::Sender::new(None);
        let parts = Parts {
            planner,
            client: client.clone(),
            keys: keys.clone(),
            metrics: Arc::new(Metrics::new(planner.wiring().catalog)),
            clock: clock.clone(),
            views: views.subscribe(),
            wake: Arc::new(Notify::new()),
            index: Arc::default(),
            progress: Arc::new(Progress::default()),
        };
        let serves = components.contains(&Component::ServiceCa);
        if serves {
            parts.metrics.count_services(parts.index.clone());
        }
        let services = if serves { Services::Few(parts.index.clone()) } else { Services::All };
        // The operator may only read the components that it manages, and those that these depend on.
        let view = View { services, reads_unrelated: false, ..view };
        let reconciler = Reconciler::new(planner, client.clone(), keys, view, clock.clone());
        let reporter = Reporter::new(planner, client, clock, parts.metrics.clone(), left_alone);
        let mut runner = Runner { planner, reconciler, reporter, parts, controllers: Vec::new(), components, views };
        runner.start(|it| it.runs == Runs::Always);
        runner
    }

    /// Returns a runner that also creates the ConfigMap with the service CA bundle in every namespace.
    #[must_use]
    pub fn publishing(mut self) -> Runner<'c> {
        self.start(|it| it.runs == Runs::OnRequest);
        self
    }

    /// Adds the selected controllers of the managed components.
    fn start(&mut self, is_selected: impl Fn(&Registration) -> bool) {
        let selected = CONTROLLERS.iter().filter(|it| is_selected(it) && self.components.contains(&it.component));
        self.controllers.extend(selected.map(|controller| (controller.make)(&self.parts)));
    }

    /// Returns the Services that ask for a certificate; none if this operator does not manage the service CA.
    pub fn services(&self) -> Option<Arc<Index>> {
        self.components.contains(&Component::ServiceCa).then(|| self.parts.index.clone())
    }

    /// Returns the metrics and the progress of the operator.
    pub fn metrics(&self) -> Arc<Metrics<'c>> {
        self.reporter.metrics().clone()
    }

    fn now(&self) -> Timestamp {
        (self.parts.clock)()
    }

    /// Generates and uses a key of every configured kind.
    pub async fn self_test(&self) -> Result<(), RunError> {
        let (observation, report) = self.reconciler.plan().await?;
        let kinds = self_test::configured(self.planner, &observation.snapshot, &report);
        let text: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        let now = self.now();
        let tested =
            tokio::task::spawn_blocking(move || kinds.into_iter().try_for_each(|kind| self_test::test(kind, now)));
        tested.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        info!(keys = text.join(", "), "crypto test passed");
        Ok(())
    }

    /// Makes every write that is possible now, for the cluster and for the objects of the controllers.
    pub async fn once(&self) -> Result<Passed, PassError> {
        let (stop, mut stopped) = watch_channel::channel(false);
        let work = async {
            let passed = self.pass_and_settle().await;
            stop.send_replace(true);
            passed
        };
        let stopped = async { drop(stopped.wait_for(|it| *it).await) };
        tokio::join!(work, controller::run(&self.controllers, &self.parts.clock, stopped)).0
    }

    async fn pass_and_settle(&self) -> Result<Passed, PassError> {
        let mut passed = self.pass().await?;
        // The planner must know the certificates of Services before it decides about their signer.
        let is_alone = passed.observation.snapshot.is_left_alone(self.planner.wiring().catalog, Component::ServiceCa);
        if self.services().is_some() && is_alone {
            self.settle().await;
            passed = passed.and_then(self.pass().await?);
        }
        if !self.controllers.is_empty() {
            self.settle().await;
            // The controllers know only now which of their objects wait.
            self.reporter.conditions(&passed, self.circumstances()).await;
        }
        Ok(passed)
    }

    /// Waits until the controllers have handled the last view.
    async fn settle(&self) {
        let Some(number) = self.views.borrow().as_ref().map(|view| view.number()) else { return };
        for mut settled in self.controllers.iter().filter_map(|it| it.settled()) {
            let mut settled = pin!(settled.wait_for(|reached| number <= *reached));
            while !self.reconciler.is_stopping() && tokio::time::timeout(PAUSE, &mut settled).await.is_err() {}
        }
    }

    fn circumstances(&self) -> Circumstances {
        let mut circumstances = Circumstances::default();
        self.controllers.iter().for_each(|controller| controller.add_circumstances(&mut circumstances));
        circumstances
    }

    /// Runs a pass, and reports its result.
    async fn pass(&self) -> Result<Passed, PassError> {
        let passed = match self.reconciler.pass(&self.reporter.listeners()).await {
            Ok(passed) => passed,
            Err(error) => {
                if !self.reconciler.is_stopping() {
                    self.reporter.failure(&error).await;
                }
                return Err(error);
            }
        };
        self.reporter.metrics().update(self.planner, &passed);
        self.views.send_modify(|view| {
            let number = view.as_ref().map_or(1, |view| view.number() + 1);
            *view = ServiceCaView::of(&passed.observation, self.planner.wiring(), number).map(Arc::new);
        });
        // A replica that stops may have lost the lease.
        if !self.reconciler.is_stopping() {
            self.reporter.announce(&passed).await;
            self.keep_records().await;
            self.reporter.conditions(&passed, self.circumstances()).await;
        }
        Ok(passed)
    }

    /// Keeps the records of distrusted keys and of reloads on both objects, so that deleting one of them loses nothing.
    async fn keep_records(&self) {
        let view = self.views.borrow().clone();
        if let Some(view) = view.filter(|view| view.has_records())
            && let Some((signer, bundle)) = view.recorded_on()
            && let (objects, clocks) = ((&signer, &bundle), view.clocks_at(self.now()))
            && let Err(error) = ask::keep_records(&self.parts.client, objects, &Reloads::default(), clocks).await
        {
            let error = brief(&error);
            warn!(error, "failed to record the distrusted keys; retrying at the next pass");
        }
    }

    /// Runs [`Runner::once`], and stops after the current write when `stop` completes. Returns true if it was stopped.
    pub async fn once_until(&self, stop: impl Future<Output = ()>) -> (Result<Passed, PassError>, bool) {
        self.until_stopped(self.once(), stop).await
    }

    /// Runs one pass without the controllers, and stops as [`Runner::once_until`] does.
    pub async fn pass_until(&self, stop: impl Future<Output = ()>) -> (Result<Passed, PassError>, bool) {
        self.until_stopped(self.pass(), stop).await
    }

    async fn until_stopped(
        &self,
        pass: impl Future<Output = Result<Passed, PassError>>,
        stop: impl Future<Output = ()>,
    ) -> (Result<Passed, PassError>, bool) {
        let mut pass = pin!(pass);
        tokio::select! {
            passed = &mut pass => (passed, false),
            () = stop => {
                self.reconciler.stop();
                (pass.await, true)
            }
        }
    }

    /// Runs the controllers, and a pass at each change, at each due time and once a minute, until `stop` completes.
    ///
    /// Writes in progress are completed.
    pub async fn run(&self, after_each: impl FnMut(&Passed), stop: impl Future<Output = ()>) {
        let (stopping, stopped) = watch_channel::channel(false);
        let until_stopped = |mut stopped: watch_channel::Receiver<bool>| async move {
            _ = stopped.wait_for(|it| *it).await;
        };
        let stop = async {
            stop.await;
            stopping.send_replace(true);
        };
        let passes = self.keep(after_each, until_stopped(stopped.clone()));
        let controllers = controller::run(&self.controllers, &self.parts.clock, until_stopped(stopped));
        tokio::join!(stop, passes, controllers);
    }

    async fn keep(&self, mut after_each: impl FnMut(&Passed), stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut watching: Option<(Watched, tokio::task::JoinHandle<()>)> = None;
        let mut back_off = BACK_OFF.0;
        info!("Starting CertRotation");
        loop {
            let (passed, is_stopped) = self.until_stopped(self.pass(), &mut stop).await;
            if is_stopped {
                break;
            }
            let wait = match passed {
                Ok(passed) => {
                    self.watch(&mut watching, &passed.observation);
                    after_each(&passed);
                    let due = self.until(passed.report.next_look);
                    if passed.failed.is_empty() {
                        back_off = BACK_OFF.0;
                        due
                    } else {
                        // A due certificate does not wait for the back-off of a failed write.
                        double(&mut back_off).min(due)
                    }
                }
                Err(error) => {
                    warn!(%error, "the pass failed; retrying");
                    double(&mut back_off)
                }
            };
            // A change that a watch reports does not end the back-off of a failed write.
            let ended = Instant::now();
            let settled = |now: Instant| match back_off == BACK_OFF.0 {
                true => (now + SETTLE).max(ended + PAUSE),
                false => now + BACK_OFF.0,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.clock_is_set() => info!("the system clock was set; starting a pass"),
                () = self.parts.wake.notified() => tokio::time::sleep_until(settled(Instant::now())).await,
                () = &mut stop => break,
            }
        }
        if let Some((_, task)) = watching {
            task.abort();
        }
    }

    /// Watches the objects that the passes depend on. The set changes with the nodes.
    fn watch(&self, watching: &mut Option<(Watched, tokio::task::JoinHandle<()>)>, observation: &Observation) {
        let Observation { snapshot, policy_object, .. } = observation;
        let (wiring, version) = (self.planner.wiring(), policy_object.version);
        let wanted = Watched::of(wiring, snapshot, self.components.iter().copied(), version);
        if watching.as_ref().is_none_or(|(watched, _)| *watched != wanted) {
            watching.take().into_iter().for_each(|(_, task)| task.abort());
            let task = watch::watch(self.parts.client.clone(), wanted.clone(), self.parts.wake.clone());
            *watching = Some((wanted, tokio::spawn(task)));
        }
    }

    /// Waits until the wall clock differs from the elapsed time.
    async fn clock_is_set(&self) {
        let (wall, began) = (self.now(), Instant::now());
        loop {
            tokio::time::sleep(CLOCK_CHECK).await;
            let passed = SignedDuration::try_from(began.elapsed()).unwrap_or(SignedDuration::MAX);
            if TOLERANCE < shifted(wall, passed).duration_until(self.now()).abs() {
                return;
            }
        }
    }

    fn until(&self, next_look: Timestamp) -> Duration {
        let left = self.now().duration_until(next_look);
        Duration::try_from(left).unwrap_or_default().clamp(PAUSE, RESYNC)
    }
}

/// Returns the back-off, and doubles it for the next time.
fn double(back_off: &mut Duration) -> Duration {
    let wait = *back_off;
    *back_off = (wait * 2).min(BACK_OFF.1);
    wait
}
