//! Reports the state of each component after a pass: conditions, and once for each change an Event and a log line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube_client::Client;
use perennial_core::catalog::Component;
use perennial_core::conditions::{self, Failure};
use perennial_core::plan::{Planner, Step};
use perennial_core::rules::Waiting;
use tracing::{debug, info, warn};

use crate::act::ActError;
use crate::controller::Circumstances;
use crate::events::EventRecorder;
use crate::key_policy::{self, Creation, PolicyObject};
use crate::metrics::Metrics;
use crate::observe::Problem;
use crate::pass::{Clock, Listener, PassError, Passed};
use crate::{CLOCK_HINT, brief, status};

/// Reports the result of passes.
pub(crate) struct Reporter<'c> {
    planner: &'c Planner<'c>,
    client: Client,
    clock: Clock,
    events: EventRecorder<'c>,
    metrics: Arc<Metrics<'c>>,
    left_alone: BTreeSet<String>,
    /// The components whose conditions the last report wrote; none before the first report.
    reported: Mutex<Option<BTreeSet<&'static str>>>,
    /// The other operator that manages a component, by component, in the last report.
    others: Mutex<BTreeMap<&'static str, String>>,
    /// Why the empty PKI resource could not be created, in the last report.
    policy_refused: Mutex<Option<String>>,
    /// How many seconds the operator's clock was ahead of the API server's, in the last report.
    skew: AtomicI64,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<'c> Reporter<'c> {
    pub(crate) fn new(
        planner: &'c Planner<'c>,
        client: Client,
        clock: Clock,
        metrics: Arc<Metrics<'c>>,
        left_alone: BTreeSet<String>,
    ) -> Reporter<'c> {
        Reporter {
            planner,
            events: EventRecorder::new(planner, client.clone(), clock.clone()),
            client,
            clock,
            metrics,
            left_alone,
            reported: Mutex::default(),
            others: Mutex::default(),
            policy_refused: Mutex::default(),
            skew: AtomicI64::new(0),
        }
    }

    /// Returns the metrics and the progress of the operator.
    pub(crate) fn metrics(&self) -> &Arc<Metrics<'c>> {
        &self.metrics
    }

    /// Returns the listeners that record each write.
    pub(crate) fn listeners(&self) -> [&dyn Listener; 2] {
        [&self.events, &*self.metrics]
    }

    /// Returns the components that this operator manages.
    fn managed(&self) -> impl Iterator<Item = Component> {
        Component::managed().filter(|it| !self.left_alone.contains(it.owner()))
    }

    /// Reports the key policy and the clock of a pass that succeeded, once for each change.
    pub(crate) async fn announce(&self, passed: &Passed) {
        self.create_policy(&passed.observation.policy_object).await;
        self.events.policy(&passed.observation).await;
        self.clock_skew(passed.observation.snapshot.clock_skew_seconds).await;
    }

    async fn clock_skew(&self, seconds: i64) {
        if self.skew.swap(seconds, Ordering::Relaxed) == seconds {
            return;
        }
        let Some(claim) = status::clock_skew(seconds) else {
            info!("the clock of the operator and that of the API server agree again");
            return;
        };
        warn!(seconds, "{}", claim.message);
        for component in self.managed() {
            self.events.warn_operator(component, status::CLOCK_SKEW, &claim.message).await;
        }
    }

    /// Creates the empty PKI resource if it is missing, as an upgrade of OpenShift does. An empty resource changes no key.
    async fn create_policy(&self, object: &PolicyObject) {
        let Some(version) = object.version.filter(|_| object.is_missing) else { return };
        let refused = match key_policy::create_empty(&self.client, version).await {
            Creation::Exists => {
                info!(version, "created the missing PKI cluster with an empty spec; this changes no key");
                None
            }
            Creation::OtherSchema(why) => Some(format!(
                "PKI cluster is not created: its CustomResourceDefinition has another schema than Perennial knows: {why}"
            )),
            Creation::Refused(why) => Some(format!("failed to create the empty PKI cluster: {why}")),
        };
        let before = std::mem::replace(&mut *locked(&self.policy_refused), refused.clone());
        if let Some(refused) = refused.filter(|it| before.as_ref() != Some(it)) {
            warn!(version, "{refused}");
        }
    }

    /// Reports that a pass failed, on the components whose conditions Perennial may write.
    pub(crate) async fn failure(&self, error: &PassError) {
        if error.to_string().contains(CLOCK_HINT) {
            self.metrics.set_not_ready();
        }
        let known = locked(&self.reported).clone();
        for component in self.managed() {
            let is_ours = match &known {
                Some(reported) => reported.contains(component.owner()),
                None => status::is_ours(&self.client, component).await,
            };
            if is_ours {
                self.write(component, &[status::failed(&error.to_string())]).await;
            }
        }
    }

    async fn write(&self, component: Component, claims: &[conditions::Claim]) {
        if let Err(error) = status::report(&self.client, component, claims, (self.clock)()).await {
            let error = brief(&error);
            warn!(
                component = component.owner(),
                error, "failed to write the conditions of the component; retrying at the next pass"
            );
        }
    }

    /// True if Perennial may write the conditions of a component whose state it does not know yet.
    async fn is_ours(&self, component: Component) -> bool {
        let has_other = locked(&self.others).contains_key(component.owner());
        !has_other && !self.left_alone.contains(component.owner()) && status::is_ours(&self.client, component).await
    }

    /// Reports once that another operator manages a component, and once that it no longer does.
    async fn report_other_operator(&self, component: Component, other: Option<&Waiting>) {
        let writer =
            other.and_then(|it| if let Waiting::OtherWriter { writer, .. } = it { Some(writer) } else { None });
        let before = {
            let mut others = locked(&self.others);
            let before = others.remove(component.owner());
            others.extend(writer.map(|writer| (component.owner(), writer.clone())));
            before
        };
        match (other, before) {
            (Some(other), before) if writer != before.as_ref() => {
                self.events.other_operator_manages(component, &other.to_string()).await;
            }
            (None, Some(writer)) => {
                info!(
                    component = component.owner(),
                    writer, "the other operator no longer manages the component; Perennial manages it now"
                );
            }
            _ => {}
        }
    }

    /// Writes the conditions of every component.
    pub(crate) async fn conditions(&self, passed: &Passed, circumstances: Circumstances) {
        for pending in &passed.report.waiting {
            debug!(object = pending.slot.object_text(), "waits: {}", pending.waiting);
        }
        let catalog = self.planner.wiring().catalog;
        let Circumstances { services, stale_pods, problems } = circumstances;
        let problems: Vec<Problem> = passed.observation.problems.iter().cloned().chain(problems).collect();
        let failure = |(step, error): &(Step, ActError)| Failure {
            names: step.names(catalog).into_iter().collect(),
            why: error.to_string(),
        };
        let failed: Vec<Failure> = passed.failed.iter().map(failure).collect();
        let circumstances = conditions::Circumstances {
            snapshot: &passed.observation.snapshot,
            report: &passed.report,
            failed: &failed,
            services: &services,
            problems: &problems,
            stale_pods: stale_pods.as_ref(),
            rotation_base: passed.observation.rotation_base.as_deref(),
        };
        let mut reported = BTreeSet::new();
        for component in Component::managed() {
            let other = conditions::other_writer(catalog, component, &passed.report);
            self.report_other_operator(component, other).await;
            let claims = match (other, conditions::claims(self.planner, component, &circumstances)) {
                (Some(other), _) => vec![status::other_operator_manages(other)],
                (None, Some(mut claims)) => {
                    reported.insert(component.owner());
                    claims.extend(status::unmanaged(component, &passed.observation));
                    claims.extend(status::clock_skew(passed.observation.snapshot.clock_skew_seconds));
                    claims
                }
                // The operator does not know all Services yet. It reports why, if it knows.
                (None, None) => match conditions::degraded_by(catalog, component, &passed.observation.problems) {
                    Some(claim) if self.is_ours(component).await => {
                        reported.insert(component.owner());
                        vec![claim]
                    }
                    _ => continue,
                },
            };
            self.write(component, &claims).await;
        }
        *locked(&self.reported) = Some(reported);
    }
}
