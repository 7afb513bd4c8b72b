//! Leader election: only the replica that holds the lease writes to the cluster.
//!
//! The lease of another replica ends when this replica has seen no change of it for its duration, on the monotonic clock. The times in
//! the lease are ignored, because the wall clock of either replica may be wrong.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube_client::api::PostParams;
use kube_client::{Api, Client, Error};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{info, warn};

use crate::pass::Clock;
use crate::{CLOCK_HINT, brief};

/// The duration of the lease: longer than the restart of an API server.
const DURATION: Duration = Duration::from_secs(137);
/// How long the holder tries to renew the lease before it gives up.
const RENEW_WITHIN: Duration = Duration::from_secs(107);
/// How often the holder renews the lease, and others read it.
const EVERY: Duration = Duration::from_secs(26);

/// How long a single pass waits silently for a holder to release the lease, or for the server to recover.
const SOON: Duration = Duration::from_secs(5);
/// The longest wait of a single pass for the end of a lease whose holder may be gone.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A lease in a namespace.
pub struct Leadership {
    api: Api<Lease>,
    name: String,
    identity: String,
    clock: Clock,
    seen: Option<Seen>,
}

/// The last content of another replica's lease, and when it was first seen.
struct Seen {
    spec: LeaseSpec,
    at: Instant,
}

/// The lease of another replica.
struct Held {
    holder: String,
    /// When the lease ends, unless its holder renews it.
    ends_in: Duration,
    /// True if the lease has changed since the last read.
    has_changed: bool,
}

impl Leadership {
    /// Returns the election for this lease. `identity` must be unique among the replicas.
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, clock: Clock) -> Leadership {
        Leadership { api: Api::namespaced(client, namespace), name: name.to_owned(), identity, clock, seen: None }
    }

    /// Waits until this replica holds the lease.
    ///
    /// After each failed attempt, calls `standing_by` with false if TLS rejected the API server because of the validity of its
    /// certificate, and with true otherwise.
    pub async fn acquire(&mut self, mut standing_by: impl FnMut(bool)) {
        let mut is_told = false;
        loop {
            let mut is_asked = true;
            match self.attempt_in_time().await {
                Ok(None) => {
                    info!(identity = self.identity, "leading");
                    return;
                }
                Ok(Some(Held { holder, .. })) if !is_told => {
                    info!(holder, "waiting for the lease: another operator holds it");
                    is_told = true;
                }
                Ok(Some(_)) => {}
                Err(error) => {
                    is_asked = !error.contains(CLOCK_HINT);
                    warn!(error, "failed to read or write the lease; retrying");
                }
            }
            standing_by(is_asked);
            tokio::time::sleep(EVERY).await;
        }
    }

    /// Acquires the lease for a single pass.
    ///
    /// Fails if the holder renews the lease meanwhile: then that replica leads. A holder that does not renew may have stopped without
    /// releasing the lease. Then this waits until the lease ends, and logs the remaining time.
    pub async fn acquire_soon(&mut self) -> Result<(), String> {
        let (begun, mut looks, mut told_at) = (Instant::now(), 0_u32, None::<Instant>);
        loop {
            let pause = match self.attempt_in_time().await {
                Ok(None) => return Ok(()),
                Ok(Some(Held { holder, ends_in, has_changed })) => {
                    let name = &self.name;
                    if has_changed && 0 < looks {
                        return Err(format!("{holder} has the lease {name}, and renews it"));
                    }
                    if LONGEST_WAIT < ends_in {
                        return Err(format!(
                            "{holder} has the lease {name}, which ends in {} s unless it is renewed; if that operator \
                             has ended, delete the Lease",
                            ends_in.as_secs()
                        ));
                    }
                    looks += 1;
                    if SOON <= begun.elapsed() && told_at.is_none_or(|at| EVERY <= at.elapsed()) {
                        told_at = Some(Instant::now());
                        info!(holder, seconds = ends_in.as_secs(), "waiting until the lease {name} is renewed or ends");
                    }
                    ends_in
                }
                Err(error) if SOON <= begun.elapsed() => {
                    return Err(format!("failed to take the lease {}: {error}", self.name));
                }
                Err(_) => SOON,
            };
            tokio::time::sleep(pause.min(SOON / 5)).await;
        }
    }

    /// Renews the lease, and returns when it is lost.
    pub async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            let begun = Instant::now() + EVERY;
            let next = async {
                tokio::time::sleep_until(begun).await;
                self.attempt_in_time().await
            };
            // Another replica takes the lease when it ends, even if an attempt is in progress here.
            let Ok(attempted) = timeout_at(renewed + RENEW_WITHIN, next).await else {
                warn!("lost the lease: it could not be renewed in time");
                return;
            };
            match attempted {
                Ok(None) => renewed = begun,
                Ok(Some(Held { holder, .. })) => {
                    warn!(holder, "lost the lease: another operator holds it");
                    return;
                }
                Err(error) => warn!(error, "failed to renew the lease; retrying"),
            }
        }
    }

    /// Releases the lease, so that another replica can lead at once.
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

    /// Makes an attempt with a time limit: a dead connection may never report an error.
    async fn attempt_in_time(&mut self) -> Result<Option<Held>, String> {
        match timeout(EVERY, self.attempt()).await {
            Ok(attempted) => attempted.map_err(|error| brief(&error)),
            Err(_) => Err("no answer".to_owned()),
        }
    }

    /// Takes or renews the lease. Returns the lease of another holder, if there is one.
    ///
    /// If another replica was faster, the next attempt returns its lease.
    async fn attempt(&mut self) -> Result<Option<Held>, Error> {
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
                    && let (ends_in, has_changed) = self.watched(&old)
                    && !ends_in.is_zero()
                {
                    return Ok(Some(Held { holder, ends_in, has_changed }));
                }
                lease.spec = Some(self.spec(Some(&old)));
                self.api.replace(&self.name, &PostParams::default(), &lease).await
            }
        };
        written.map(|_| None)
    }

    /// Returns when the lease ends unless it changes, and whether it has changed since the last read.
    fn watched(&mut self, spec: &LeaseSpec) -> (Duration, bool) {
        let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let duration = seconds.filter(|seconds| 0 < *seconds).map_or(DURATION, Duration::from_secs);
        match &self.seen {
            Some(seen) if seen.spec == *spec => (duration.saturating_sub(seen.at.elapsed()), false),
            _ => {
                self.seen = Some(Seen { spec: spec.clone(), at: Instant::now() });
                (duration, true)
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
            lease_transitions: Some(if is_ours || old.is_none() { transitions } else { transitions.saturating_add(1) }),
            ..LeaseSpec::default()
        }
    }
}
