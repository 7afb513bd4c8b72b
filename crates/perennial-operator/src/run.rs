//! Keeps a cluster's certificates for as long as it runs.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube_client::Client;
use perennial_core::plan::Planner;
use perennial_x509::KeyPool;
use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::brief;
use crate::metrics::Metrics;
use crate::observe::{KEPT, View};
use crate::pass::{Clock, Keeper, PassError, Passed};
use crate::self_test::{self, SelfTestError};
use crate::status::{self, Circumstances};
use crate::tell::Teller;
use crate::watch::{self, Watched};

/// Everything is looked at this often, whatever was heard.
const RESYNC: Duration = Duration::from_secs(60);
/// What changes together is looked at together.
const SETTLE: Duration = Duration::from_millis(200);
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
}

impl<'c> Runner<'c> {
    /// Keeps the certificates of a cluster with these keys.
    pub fn new(planner: &'c Planner<'c>, client: Client, keys: Arc<KeyPool>, view: View, clock: Clock) -> Runner<'c> {
        let keeper = Keeper::new(planner, client.clone(), keys, view, clock.clone());
        let teller = Teller::new(planner.wiring().catalog, client.clone(), clock.clone());
        let metrics = Arc::new(Metrics::new(planner.wiring().catalog, clock.clone()));
        Runner { planner, client, keeper, listeners: (teller, metrics), clock }
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

    /// One pass with everything that belongs to it.
    pub async fn once(&self) -> Result<Passed, PassError> {
        let passed = self.keeper.pass(&self.listeners).await?;
        self.listeners.1.note(self.planner, &passed);
        // Who was told to stop may not lead any more.
        if !self.keeper.is_stopping() {
            self.report(&passed).await;
        }
        Ok(passed)
    }

    /// Passes whenever something changes, something is due, or a minute is over, until it is told to stop: then after the write
    /// that it is about to make.
    pub async fn run(&self, mut after_each: impl FnMut(&Passed), stop: impl Future<Output = ()>) {
        let mut stop = pin!(stop);
        let wake = Arc::new(Notify::new());
        let mut watching: Option<tokio::task::JoinHandle<()>> = None;
        let mut patience = RETRY.0;
        info!("Starting CertRotation");
        loop {
            let (passed, is_stopped) = {
                let mut pass = pin!(self.once());
                tokio::select! {
                    passed = &mut pass => (passed, false),
                    () = &mut stop => {
                        self.keeper.stop();
                        (pass.await, true)
                    }
                }
            };
            if is_stopped {
                break;
            }
            let wait = match passed {
                Ok(passed) => {
                    if watching.is_none() {
                        let watched = Watched::of(self.planner.wiring(), &passed.observation.snapshot);
                        watching = Some(tokio::spawn(watch::watch(self.client.clone(), watched, wake.clone())));
                    }
                    after_each(&passed);
                    if passed.failed.is_empty() {
                        patience = RETRY.0;
                        self.until(passed.report.next_look)
                    } else {
                        more(&mut patience)
                    }
                }
                Err(error) => {
                    warn!(%error, "the pass failed");
                    more(&mut patience)
                }
            };
            // After a failure nothing that is heard makes it better sooner.
            let is_listening = patience == RETRY.0;
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = wake.notified(), if is_listening => tokio::time::sleep(SETTLE).await,
                () = &mut stop => break,
            }
        }
        if let Some(watching) = watching {
            watching.abort();
        }
    }

    fn until(&self, next_look: Timestamp) -> Duration {
        let left = (self.clock)().duration_until(next_look);
        Duration::try_from(left).unwrap_or_default().clamp(SETTLE, RESYNC)
    }

    async fn report(&self, passed: &Passed) {
        for pending in &passed.report.waiting {
            debug!(object = pending.slot.object_text(), "waits: {}", pending.waiting);
        }
        let circumstances =
            Circumstances { observation: &passed.observation, report: &passed.report, failed: &passed.failed };
        for component in KEPT {
            let Some(claims) = status::claims(self.planner, component, &circumstances) else { continue };
            if let Err(error) = status::report(&self.client, component, &claims, (self.clock)()).await {
                let error = brief(&error);
                warn!(component = component.owner(), error, "failed to report the state");
            }
        }
    }
}

fn more(patience: &mut Duration) -> Duration {
    let wait = *patience;
    *patience = (wait * 2).min(RETRY.1);
    wait
}
