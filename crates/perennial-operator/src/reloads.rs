//! Observes whether pods still use a previous bundle or certificate of the service CA, while the component is degraded because of that.
//!
//! The controller lists pods only then: after a CA is distrusted, or after its key is lost. When every pod has started after the last
//! change of the objects that it uses, the controller records the reload on the CA and its bundle, and the condition ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use kube_client::Client;
use perennial_core::catalog::Component;
use perennial_core::conditions::{Problem, StalePods};
use perennial_core::consumers::{consumers, stale_pods};
use perennial_core::plan::{Planner, distrusted};
use perennial_core::reloads::Reloads;
use perennial_core::service_ca::{clients, unreloaded};
use serde_json::Value;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::ask;
use crate::brief;
use crate::consumers::{Found, find};
use crate::controller::registry::{Parts, Progress, Registration, Runs, advance};
use crate::controller::{Cause, Change, Circumstances, Controller, Key, Load, Outcome};
use crate::pass::Clock;
use crate::rbac::rule;
use crate::service_ca::NAMESPACE;
use crate::serving::{Index, ServiceCaView, views};

/// The shortest time between two lists of the pods.
const PAUSE: Duration = Duration::from_secs(20);
/// The pause after a list is at least this many times as long as the list took: in a large cluster, there are many pods.
const PAUSES: u32 = 50;

/// Registers this controller.
pub(crate) const REGISTRATION: Registration = Registration {
    component: Component::ServiceCa,
    runs: Runs::Always,
    role: "serving",
    rights,
    make: |parts| Box::new(ReloadObserver::new(parts)),
};

/// Returns the RBAC rules of this controller: it lists pods to see when they started.
fn rights() -> Vec<Value> {
    vec![rule("", &["pods"], &["list"])]
}

/// Returns the key of the only object of this controller: all pods that use the service CA.
fn key() -> Key {
    Key::of_cluster("ServiceCA", "cluster")
}

/// Observes the pods that use the service CA.
struct ReloadObserver<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    clock: Clock,
    views: watch::Receiver<Option<Arc<ServiceCaView>>>,
    wake: Arc<Notify>,
    index: Arc<Index>,
    progress: Arc<Progress>,
    state: Mutex<State>,
    settled: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// The service CA as the last pass observed it.
    view: Option<Arc<ServiceCaView>>,
    /// When to list the pods next; now if none.
    next: Option<Instant>,
    /// The result of the last list: the stale pods, or why the list failed.
    seen: Option<Result<StalePods, String>>,
}

impl<'c> ReloadObserver<'c> {
    fn new(parts: &Parts<'c>) -> ReloadObserver<'c> {
        ReloadObserver {
            planner: parts.planner,
            client: parts.client.clone(),
            clock: parts.clock.clone(),
            views: parts.views.clone(),
            wake: parts.wake.clone(),
            index: parts.index.clone(),
            progress: parts.progress.clone(),
            state: Mutex::default(),
            settled: watch::Sender::new(0),
        }
    }

    /// Lists the pods, once every Service has its certificate and every object has the injected bundle.
    async fn observe(&self) -> Outcome {
        let Some(view) = self.state().view.clone() else { return Outcome::Done };
        let has = |reached: &watch::Sender<u64>| view.number() <= *reached.borrow();
        if !has(&self.progress.served) || !has(&self.progress.injection_settled) {
            return Outcome::Later("some Services or injected bundles do not have the current service CA yet");
        }
        // A Service that waits for its clients to reload does not count: its pods keep their certificate for a while.
        let waiting = self.index.waiting();
        let is_writing = waiting.contains_key("Queue") || waiting.contains_key("WriteFailed");
        if has(&self.progress.injected) && !is_writing && self.record_if_reloaded(&view).await {
            // The next pass reads the record.
            self.wake.notify_one();
        }
        Outcome::Done
    }

    /// True if the component waits for reloads, no bundle has a distrusted CA, and the last list is long enough ago.
    fn is_due(&self, view: &ServiceCaView) -> bool {
        let planner = self.planner;
        let snapshot = view.snapshot();
        // While a bundle has a distrusted CA, no pod can have read a bundle without it.
        let distrusted = distrusted(snapshot);
        let members = snapshot.bundles.values().filter_map(|it| it.present()).flat_map(|it| &it.members);
        let mut trusted = members.filter_map(|id| snapshot.certificates.get(id));
        if trusted.any(|it| distrusted.contains_key(&it.subject.key)) {
            return false;
        }
        if view.recorded_on().is_none() || unreloaded(planner, snapshot, &clients(planner, snapshot, false)).is_empty()
        {
            let mut state = self.state();
            (state.next, state.seen) = (None, None);
            return false;
        }
        self.state().next.is_none_or(|next| next <= Instant::now())
    }

    /// Lists the pods. If all have started since the last change, records the reload and returns true.
    ///
    /// The caller makes sure that every Service has its new certificate, and every object the current bundle.
    async fn record_if_reloaded(&self, view: &ServiceCaView) -> bool {
        let Some((signer, bundle)) = view.recorded_on() else { return false };
        let (begun, at) = (Instant::now(), (self.clock)());
        let seen = match find(&self.client, None).await {
            Ok(Found { sources, pods, .. }) => Ok(stale_pods(&consumers(&pods, &sources, &BTreeMap::new()))),
            Err(error) => Err(format!(
                "failed to list the pods that use the service CA, to see whether they have reloaded: {}",
                brief(&error)
            )),
        };
        let has_reloaded = matches!(seen, Ok(None));
        let next = Instant::now() + PAUSE.max(begun.elapsed() * PAUSES);
        {
            let mut state = self.state();
            (state.next, state.seen) = (Some(next), seen.transpose());
        }
        if !has_reloaded {
            return false;
        }
        let reloads = Reloads { observed: Some(at), acknowledged: None };
        match ask::keep_records(&self.client, (&signer, &bundle), &reloads, view.clocks_at(at)).await {
            Ok(()) => {
                info!("recorded that every pod that uses the service CA has started since it changed");
                true
            }
            Err(error) => {
                let mut state = self.state();
                state.next = Some(Instant::now() + PAUSE);
                state.seen = Some(Err(format!("failed to record that every pod has reloaded: {}", brief(&error))));
                false
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Controller for ReloadObserver<'_> {
    fn name(&self) -> &'static str {
        "observation of reloads"
    }

    fn changes(&self) -> BoxStream<'_, Change> {
        views(&self.views)
            .map(|view| {
                let is_due = self.is_due(&view);
                self.state().view = Some(view);
                Change::Objects(is_due.then(key).into_iter().collect())
            })
            .boxed()
    }

    fn is_ready(&self, _: &Key) -> bool {
        true
    }

    fn reconcile<'a>(&'a self, _: &'a Key) -> BoxFuture<'a, Outcome> {
        self.observe().boxed()
    }

    fn report<'a>(&'a self, _: &'a Key, _: Cause, why: &'a str) -> BoxFuture<'a, ()> {
        async move { warn!("failed to observe whether pods have reloaded: {why}") }.boxed()
    }

    fn set_load(&self, load: Load) {
        if load == Load::default()
            && let Some(view) = &self.state().view
        {
            advance(&self.settled, view.number());
        }
    }

    fn settled(&self) -> Option<watch::Receiver<u64>> {
        Some(self.settled.subscribe())
    }

    fn add_circumstances(&self, circumstances: &mut Circumstances) {
        match self.state().seen.clone() {
            Some(Ok(pods)) => circumstances.stale_pods = Some(pods),
            Some(Err(why)) => circumstances.problems.push(Problem::new(NAMESPACE, why)),
            None => {}
        }
    }
}
