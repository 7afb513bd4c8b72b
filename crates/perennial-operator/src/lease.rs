//! One of several operators at a time: whoever holds the lease.
//!
//! Whether another one's lease is over is judged by how long nothing was heard of it here, not by the times that it wrote: clocks
//! differ. Only what is older than clocks can differ is over at once.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube_client::api::PostParams;
use kube_client::{Api, Client, Error};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::brief;
use crate::pass::Clock;

/// How long others leave the lease to who is not heard of: longer than an API server takes to come back.
const DURATION: Duration = Duration::from_secs(137);
/// How long its holder tries to renew it before it gives up.
const RENEW_WITHIN: Duration = Duration::from_secs(107);
/// How often it is renewed, or looked at.
const EVERY: Duration = Duration::from_secs(26);

/// How long to wait for a lease that somebody may be about to give back.
const SOON: Duration = Duration::from_secs(5);
/// How much clocks may differ.
const CLOCKS: Duration = Duration::from_secs(300);

/// A lease in a namespace.
pub struct Leadership {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: Clock,
    seen: Option<Seen>,
}

/// What somebody else's lease said, and since when nothing else was heard.
struct Seen {
    spec: LeaseSpec,
    at: Instant,
}

impl Leadership {
    /// For this lease, under a name that no other operator has.
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, clock: Clock) -> Leadership {
        Leadership { api: Api::namespaced(client, namespace), name: name.to_owned(), identity, clock, seen: None }
    }

    /// Waits until it is ours, and says each time that it is not.
    pub async fn acquire(&mut self, mut standing_by: impl FnMut()) {
        let mut is_told = false;
        loop {
            match self.attempt_in_time().await {
                Ok(None) => {
                    info!(identity = self.identity, "leading");
                    return;
                }
                Ok(Some(holder)) if !is_told => {
                    info!(holder, "waiting until another operator stops");
                    is_told = true;
                }
                Ok(Some(_)) => {}
                Err(error) => warn!(error, "failed to read or write the lease"),
            }
            standing_by();
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Takes it for a short while, if nobody else has it. Waits a little for who is about to give it back; then says who has it.
    pub async fn acquire_soon(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let why = match self.attempt_in_time().await {
                Ok(None) => return Ok(()),
                Ok(Some(holder)) => format!("{holder} has the lease {}", self.name),
                Err(error) => format!("failed to take the lease {}: {error}", self.name),
            };
            if SOON <= begun.elapsed() {
                return Err(why);
            }
            tokio::time::sleep(SOON / 5).await;
        }
    }

    /// Keeps it, and returns when it is lost.
    pub async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            let begun = Instant::now() + EVERY;
            let next = async {
                tokio::time::sleep_until(begun).await;
                self.attempt_in_time().await
            };
            // Others follow when its time is over, whether an attempt is under way or not.
            let Ok(attempted) = timeout_at(renewed + RENEW_WITHIN, next).await else {
                warn!("the lease could not be renewed in time");
                return;
            };
            match attempted {
                Ok(None) => renewed = begun,
                Ok(Some(holder)) => {
                    warn!(holder, "the lease was lost");
                    return;
                }
                Err(error) => warn!(error, "failed to renew the lease"),
            }
        }
    }

    /// Gives it back, so that nobody has to wait.
    pub async fn release(&self) -> Result<(), Error> {
        let Some(mut lease) = self.api.get_opt(&self.name).await? else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        self.api.replace(&self.name, &PostParams::default(), &lease).await.map(drop)
    }

    /// An attempt that ends: a connection may be dead without anybody saying so.
    async fn attempt_in_time(&mut self) -> Result<Option<String>, String> {
        match timeout(EVERY, self.attempt()).await {
            Ok(attempted) => attempted.map_err(|error| brief(&error)),
            Err(_) => Err("no answer".to_owned()),
        }
    }

    /// Takes or renews it. Says who has it, if that is somebody else. Where somebody was faster, the next look tells who.
    async fn attempt(&mut self) -> Result<Option<String>, Error> {
        let found = self.api.get_opt(&self.name).await?;
        let written = match found {
            None => {
                let metadata = ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() };
                let new = Lease { metadata, spec: Some(self.spec(None)) };
                self.api.create(&PostParams::default(), &new).await
            }
            Some(mut lease) => {
                let old = lease.spec.take().unwrap_or_default();
                let holder = old.holder_identity.clone().filter(|holder| !holder.is_empty());
                if let Some(holder) = holder.filter(|holder| *holder != self.identity)
                    && !self.is_over(&old)
                {
                    return Ok(Some(holder));
                }
                lease.spec = Some(self.spec(Some(&old)));
                self.api.replace(&self.name, &PostParams::default(), &lease).await
            }
        };
        written.map(|_| None)
    }

    fn is_over(&mut self, spec: &LeaseSpec) -> bool {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.map_or(DURATION, Duration::from_secs);
        // Long ago by any clock: who asks only once cannot wait to hear nothing.
        let renewed = spec.renew_time.as_ref().map(|time| time.0);
        if renewed.is_some_and(|at| at + duration + CLOCKS < (self.clock)()) {
            return true;
        }
        match &self.seen {
            Some(seen) if seen.spec == *spec => duration <= seen.at.elapsed(),
            _ => {
                self.seen = Some(Seen { spec: spec.clone(), at: Instant::now() });
                false
            }
        }
    }

    fn spec(&self, old: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime((self.clock)());
        let is_ours = old.is_some_and(|old| old.holder_identity.as_deref() == Some(&self.identity));
        let transitions = old.and_then(|old| old.lease_transitions).unwrap_or(0);
        LeaseSpec {
            holder_identity: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
            acquire_time: old.filter(|_| is_ours).and_then(|old| old.acquire_time.clone()).or(Some(now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(if is_ours || old.is_none() { transitions } else { transitions + 1 }),
            ..LeaseSpec::default()
        }
    }
}
