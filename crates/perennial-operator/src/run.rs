//! Keeps a cluster's certificates for as long as it runs.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kube_client::Client;
use perennial_core::catalog::Component;
use perennial_core::conditions::{self, Circumstances, Failure};
use perennial_core::plan::{Planner, Step};
use perennial_core::rules::Waiting;
use perennial_x509::KeyPool;
use tokio::sync::{Notify, watch as watch_channel};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::act::ActError;
use crate::ask;
use crate::brief;
use crate::inject::Injector;
use crate::key_policy::{self, Creation, PolicyObject};
use crate::metrics::Metrics;
use crate::observe::{KEPT, Observation, Services, Trouble, View};
use crate::pass::{Clock, Keeper, PassError, Passed};
use crate::self_test::{self, SelfTestError};
use crate::service_ca;
use crate::serving::{Base, Index, Serving};
use crate::status;
use crate::tell::Teller;
use crate::watch::{self, Watched};

/// Everything is looked at this often, whatever was heard.
const RESYNC: Duration = Duration::from_secs(60);
/// What changes together is looked at together: how long is waited for more, and how long at least after the pass before.
const SETTLE: Duration = Duration::from_millis(20);
const PAUSE: Duration = Duration::from_millis(200);
/// How long to wait after a pass that failed: at first, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Why it does not begin.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The cluster could not be looked at.
    #[error(transparent)]
    Look(#[from] PassError),
    /// Keys cannot be made here.
    #[error(transparent)]
    Crypto(#[from] SelfTestError),
}

/// Keeps a cluster.
pub struct Runner<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    keeper: Keeper<'c>,
    listeners: (Teller<'c>, Arc<Metrics<'c>>),
    clock: Clock,
    left_alone: BTreeSet<String>,
    /// Who serves Services, unless they are left alone.
    serving: Option<Serving<'c>>,
    /// Who gives out the CA's bundle, unless it is left alone.
    injector: Option<Injector>,
    bases: watch_channel::Sender<Option<Arc<Base>>>,
    wake: Arc<Notify>,
    /// The components whose state it told about last; none before that.
    told: Mutex<Option<BTreeSet<&'static str>>>,
    /// Who else keeps a component, as it was told last.
    others: Mutex<BTreeMap<&'static str, String>>,
    /// Why the empty PKI resource could not be created, as it was told last.
    policy_refused: Mutex<Option<String>>,
}

impl<'c> Runner<'c> {
    /// Keeps the certificates of a cluster with these keys.
    pub fn new(planner: &'c Planner<'c>, client: Client, keys: Arc<KeyPool>, view: View, clock: Clock) -> Runner<'c> {
        let left_alone = view.settings.left_alone.clone();
        let (bases, wake) = (watch_channel::Sender::new(None), Arc::new(Notify::new()));
        let metrics = Arc::new(Metrics::new(planner.wiring().catalog, clock.clone()));
        let serving = (!left_alone.contains(Component::ServiceCa.owner())).then(|| {
            let (client, keys, metrics) = (client.clone(), keys.clone(), metrics.clone());
            Serving::new(planner, client, keys, metrics, clock.clone(), bases.subscribe(), wake.clone())
        });
        let inject = || Injector::new(client.clone(), clock.clone(), bases.subscribe(), planner.wiring());
        let injector = serving.is_some().then(inject);
        metrics.count_services(serving.as_ref().map(Serving::index));
        let services = serving.as_ref().map_or(Services::All, |serving| Services::Few(serving.index()));
        // Its rights are for what is kept, and for what has to do with that.
        let view = View { services, reads_unrelated: false, ..view };
        let keeper = Keeper::new(planner, client.clone(), keys, view, clock.clone());
        let teller = Teller::new(planner, client.clone(), clock.clone());
        Runner {
            planner,
            client,
            keeper,
            listeners: (teller, metrics),
            clock,
            left_alone,
            serving,
            injector,
            bases,
            wake,
            told: Mutex::new(None),
            others: Mutex::default(),
            policy_refused: Mutex::default(),
        }
    }

    /// The Services that ask for a certificate; none where they are left alone.
    pub fn services(&self) -> Option<Arc<Index>> {
        self.serving.as_ref().map(Serving::index)
    }

    /// What it tells Prometheus, and whether it makes progress.
    pub fn metrics(&self) -> Arc<Metrics<'c>> {
        self.listeners.1.clone()
    }

    /// Makes and uses a key of every kind that is configured.
    pub async fn self_test(&self) -> Result<(), RunError> {
        let (observation, report) = self.keeper.look().await?;
        let kinds = self_test::configured(self.planner, &observation.snapshot, &report);
        let text: Vec<String> = kinds.iter().map(ToString::to_string).collect();
        let now = (self.clock)();
        let tested =
            tokio::task::spawn_blocking(move || kinds.into_iter().try_for_each(|kind| self_test::test(kind, now)));
        tested.await.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))?;
        info!(keys = text.join(", "), "crypto test passed");
        Ok(())
    }

    /// Everything that can be done now, for the cluster and for its Services.
    pub async fn once(&self) -> Result<Passed, PassError> {
        let (Some(serving), Some(injector)) = (&self.serving, &self.injector) else { return self.pass().await };
        let (stop, mut stopped) = watch_channel::channel(false);
        let (mut also_stopped, owner) = (stopped.clone(), Component::ServiceCa.owner());
        let work = async {
            // Before anything is decided about their signer, it has to be known what Services have.
            let mut passed = self.pass().await;
            // They may have become known since the pass looked: what it saw counts.
            let alone = |passed: &Passed| passed.observation.snapshot.settings.left_alone.contains(owner);
            if passed.as_ref().is_ok_and(alone) {
                self.serve(serving).await;
                passed = match (passed, self.pass().await) {
                    (Ok(first), Ok(second)) => Ok(first.and_then(second)),
                    (_, second) => second,
                };
            }
            if let Ok(passed) = &passed {
                self.serve(serving).await;
                self.inject(injector).await;
                // What Services wait for is known only now.
                self.report(passed).await;
            }
            stop.send_replace(true);
            passed
        };
        let serve = serving.run(async { drop(stopped.wait_for(|it| *it).await) });
        let inject = injector.run(async { drop(also_stopped.wait_for(|it| *it).await) });
        tokio::join!(work, serve, inject).0
    }

    /// Waits until Services have what they can have.
    async fn serve(&self, serving: &Serving<'_>) {
        let base = self.bases.borrow().clone();
        let Some(base) = base else { return };
        let mut settled = pin!(serving.settled(&base));
        while !self.keeper.is_stopping() {
            // Who cannot look does not look for ever: it is told with the pass.
            if tokio::time::timeout(PAUSE, &mut settled).await.is_ok()
                || (!serving.index().is_heard() && !serving.index().troubles().is_empty())
            {
                return;
            }
        }
    }

    /// Waits until everybody who asks for the bundle has it, if that can be.
    async fn inject(&self, injector: &Injector) {
        let base = self.bases.borrow().clone();
        let Some(base) = base else { return };
        let mut settled = pin!(injector.settled(&base));
        while !self.keeper.is_stopping() && tokio::time::timeout(PAUSE, &mut settled).await.is_err() {}
    }

    /// One pass with everything that belongs to it.
    async fn pass(&self) -> Result<Passed, PassError> {
        let passed = match self.keeper.pass(&self.listeners).await {
            Ok(passed) => passed,
            Err(error) => {
                if !self.keeper.is_stopping() {
                    self.report_failure(&error).await;
                }
                return Err(error);
            }
        };
        self.listeners.1.note(self.planner, &passed);
        self.bases.send_modify(|base| {
            let number = base.as_ref().map_or(1, |base| base.number() + 1);
            *base = Base::of(&passed.observation, self.planner.wiring(), number).map(Arc::new);
        });
        // Who was told to stop may not lead any more.
        if !self.keeper.is_stopping() {
            self.create_policy(&passed.observation.policy_object).await;
            self.listeners.0.policy(&passed.observation, &self.left_alone).await;
            self.remember_distrust().await;
            self.report(&passed).await;
        }
        Ok(passed)
    }

    /// Creates the empty PKI resource where there is none, as an upgrade of OpenShift does. Without it, the same keys are used.
    async fn create_policy(&self, object: &PolicyObject) {
        let Some(version) = object.version.filter(|_| object.is_missing) else { return };
        let refused = match key_policy::create_empty(&self.client, version).await {
            Creation::Exists => {
                info!(version, "PKI cluster was missing; the empty one is there now, and changes no key");
                None
            }
            Creation::OtherShape(why) => {
                Some(format!("PKI cluster is not created, because the definition has another shape: {why}"))
            }
            Creation::Refused(why) => Some(format!("failed to create the empty PKI cluster: {why}")),
        };
        let before = {
            let mut told = self.policy_refused.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *told, refused.clone())
        };
        if let Some(refused) = refused.filter(|it| before.as_ref() != Some(it)) {
            warn!(version, "{refused}");
        }
    }

    /// Trust that somebody ended stays ended, whichever of the objects that say so is deleted.
    async fn remember_distrust(&self) {
        let objects = self.bases.borrow().as_ref().and_then(|base| base.of_distrust());
        if let Some((signer, bundle)) = objects
            && let Err(error) = ask::remember_distrust(&self.client, (&signer, &bundle)).await
        {
            let error = brief(&error);
            warn!(error, "failed to keep in mind who is distrusted; it is tried again with the next pass");
        }
    }

    /// Everything that can be done now; it ends after the write that it is about to make when it is told to stop. Says whether it was.
    pub async fn once_until(&self, stop: impl Future<Output = ()>) -> (Result<Passed, PassError>, bool) {
        self.until_stopped(self.once(), stop).await
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
                self.keeper.stop();
                (pass.await, true)
            }
        }
    }

    /// Passes whenever something changes, something is due, or a minute is over, until it is told to stop: then after the write
    /// that it is about to make.
    pub async fn run(&self, after_each: impl FnMut(&Passed), stop: impl Future<Output = ()>) {
        let (stopping, mut stopped) = watch_channel::channel(false);
        let (mut stopped_too, mut also_stopped) = (stopped.clone(), stopped.clone());
        let serve = async {
            if let Some(serving) = &self.serving {
                serving.run(async { drop(stopped.wait_for(|it| *it).await) }).await;
            }
        };
        let inject = async {
            if let Some(injector) = &self.injector {
                injector.run(async { drop(stopped_too.wait_for(|it| *it).await) }).await;
            }
        };
        // Nobody goes on because another one has not come to its end.
        let keep = self.keep(after_each, async { drop(also_stopped.wait_for(|it| *it).await) });
        let stop = async {
            stop.await;
            stopping.send_replace(true);
        };
        tokio::join!(stop, keep, serve, inject);
    }

    async fn keep(&self, mut after_each: impl FnMut(&Passed), stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let mut watching: Option<(Watched, tokio::task::JoinHandle<()>)> = None;
        let mut patience = RETRY.0;
        info!("Starting CertRotation");
        loop {
            let (passed, is_stopped) = self.until_stopped(self.pass(), &mut stop).await;
            if is_stopped {
                break;
            }
            let wait = match passed {
                Ok(passed) => {
                    let Observation { snapshot, policy_object, .. } = &passed.observation;
                    let (wiring, version) = (self.planner.wiring(), policy_object.version);
                    let wanted = Watched::of(wiring, snapshot, self.serving.is_some(), version);
                    if watching.as_ref().is_none_or(|(watched, _)| *watched != wanted) {
                        watching.take().into_iter().for_each(|(_, task)| task.abort());
                        let task = watch::watch(self.client.clone(), wanted.clone(), self.wake.clone());
                        watching = Some((wanted, tokio::spawn(task)));
                    }
                    after_each(&passed);
                    let due = self.until(passed.report.next_look);
                    if passed.failed.is_empty() {
                        patience = RETRY.0;
                        due
                    } else {
                        // What failed can wait; what is due cannot.
                        more(&mut patience).min(due)
                    }
                }
                Err(error) => {
                    warn!(%error, "the pass failed");
                    more(&mut patience)
                }
            };
            // What failed is not tried again with everything that is heard.
            let ended = Instant::now();
            let settled = |now: Instant| match patience == RETRY.0 {
                true => (now + SETTLE).max(ended + PAUSE),
                false => now + RETRY.0,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.wake.notified() => tokio::time::sleep_until(settled(Instant::now())).await,
                () = &mut stop => break,
            }
        }
        if let Some((_, task)) = watching {
            task.abort();
        }
    }

    fn until(&self, next_look: Timestamp) -> Duration {
        let left = (self.clock)().duration_until(next_look);
        Duration::try_from(left).unwrap_or_default().clamp(PAUSE, RESYNC)
    }

    /// Says that nothing could be done, where we are the one to say how a component is.
    async fn report_failure(&self, error: &PassError) {
        let known = self.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for component in KEPT.into_iter().filter(|it| !self.left_alone.contains(it.owner())) {
            let is_ours = match &known {
                Some(told) => told.contains(component.owner()),
                None => status::is_ours(&self.client, component).await,
            };
            let claims = [status::failed(&error.to_string())];
            if is_ours && let Err(error) = status::report(&self.client, component, &claims, (self.clock)()).await {
                let error = brief(&error);
                warn!(component = component.owner(), error, "failed to report the state");
            }
        }
    }

    /// Whether it is ours to say what is the matter with a component of which too little is known.
    async fn is_ours_to_tell(&self, component: Component) -> bool {
        let others = self.others.lock().unwrap_or_else(PoisonError::into_inner).contains_key(component.owner());
        !others && !self.left_alone.contains(component.owner()) && status::is_ours(&self.client, component).await
    }

    /// Says once who else keeps a component, and that it is ours again.
    async fn tell_other(&self, component: Component, other: Option<&Waiting>) {
        let writer =
            other.and_then(|it| if let Waiting::OtherWriter { writer, .. } = it { Some(writer) } else { None });
        let before = {
            let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
            let before = others.remove(component.owner());
            others.extend(writer.map(|writer| (component.owner(), writer.clone())));
            before
        };
        match (other, before) {
            (Some(other), before) if writer != before.as_ref() => {
                self.listeners.0.stands_back(component, &other.to_string()).await;
            }
            (None, Some(writer)) => info!(component = component.owner(), writer, "nobody else keeps it any more"),
            _ => {}
        }
    }

    async fn report(&self, passed: &Passed) {
        for pending in &passed.report.waiting {
            debug!(object = pending.slot.object_text(), "waits: {}", pending.waiting);
        }
        let catalog = self.planner.wiring().catalog;
        let injecting = self.injector.iter().flat_map(Injector::troubles);
        let injecting = injecting.map(|text| Trouble::new(service_ca::NAMESPACE, text));
        let troubles: Vec<Trouble> = passed.observation.troubles.iter().cloned().chain(injecting).collect();
        let failure = |(step, error): &(Step, ActError)| Failure {
            names: step.names(catalog).into_iter().collect(),
            why: error.to_string(),
        };
        let failed: Vec<Failure> = passed.failed.iter().map(failure).collect();
        let circumstances = Circumstances {
            snapshot: &passed.observation.snapshot,
            report: &passed.report,
            failed: &failed,
            services: &self.services().map(|index| index.summary()).unwrap_or_default(),
            troubles: &troubles,
            rotation_base: passed.observation.rotation_base.as_deref(),
        };
        let mut told = BTreeSet::new();
        for component in KEPT {
            let other = conditions::other_writer(catalog, component, &passed.report);
            self.tell_other(component, other).await;
            let claims = match (other, conditions::claims(self.planner, component, &circumstances)) {
                (Some(other), _) => vec![status::stands_back(other)],
                (None, Some(mut claims)) => {
                    told.insert(component.owner());
                    claims.extend(status::unmanaged(component, &passed.observation));
                    claims
                }
                // Until it is known which Services there are, the service CA waits; why that is not known is told.
                (None, None) => match conditions::troubled(catalog, component, &passed.observation.troubles) {
                    Some(claim) if self.is_ours_to_tell(component).await => {
                        told.insert(component.owner());
                        vec![claim]
                    }
                    _ => continue,
                },
            };
            if let Err(error) = status::report(&self.client, component, &claims, (self.clock)()).await {
                let error = brief(&error);
                warn!(component = component.owner(), error, "failed to report the state");
            }
        }
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    }
}

fn more(patience: &mut Duration) -> Duration {
    let wait = *patience;
    *patience = (wait * 2).min(RETRY.1);
    wait
}
