//! What the index says about all Services together: for conditions, metrics and the proof.

use std::collections::BTreeMap;

use jiff::Timestamp;
use perennial_core::catalog::ObjectName;
use perennial_core::conditions::{BACKLOG, Services, WaitingService};
use perennial_core::key::KeySpec;
use perennial_core::service_ca;
use perennial_core::snapshot::{Service, Slot};

use super::{Entry, Index, NAMED};

impl Index {
    /// Returns the number of Services that ask for a certificate, and how many of them get none until their owner acts.
    pub fn count(&self) -> (usize, usize) {
        let state = self.lock();
        (state.services.len(), state.blocked)
    }

    /// Returns a summary of the Services that ask for a certificate, for the conditions of the component.
    pub fn summary(&self) -> Services {
        let (all, blocked) = self.count();
        let state = self.lock();
        let why = |entry: &Entry| entry.blocked.as_deref().map(str::to_owned);
        let first_blocked = state.services.iter().filter_map(|(name, entry)| Some((name.clone(), why(entry)?)));
        let oldest = state.waiting.first().and_then(|(since, name)| {
            let why = state.services.get(name)?.waiting.as_ref()?.why.to_string();
            Some(WaitingService { name: name.clone(), since: *since, why })
        });
        let first_blocked = first_blocked.take(NAMED).collect();
        Services { all, blocked, first_blocked, waiting: state.waiting.len(), oldest, backlog: state.backlog }
    }

    /// Returns the number of Services that wait for the operator, by the label of the reason.
    pub fn waiting(&self) -> BTreeMap<&'static str, usize> {
        let state = self.lock();
        let mut counts = BTreeMap::new();
        if 0 < state.backlog {
            counts.insert("Queue", state.backlog);
        }
        let waiting = state.waiting.iter().filter_map(|(_, name)| state.services.get(name)?.waiting.as_ref());
        waiting.for_each(|wait| *counts.entry(wait.label).or_default() += 1);
        counts
    }

    /// Records the number of Services that the operator has yet to reconcile.
    pub(in crate::serving) fn set_backlog(&self, backlog: usize) {
        self.lock().backlog = backlog;
    }

    /// True if a condition must report on Services: a Service waits, a Service is blocked, or the backlog is too long.
    pub(in crate::serving) fn needs_attention(&self) -> bool {
        let state = self.lock();
        !state.waiting.is_empty() || 0 < state.blocked || BACKLOG < state.backlog
    }

    /// Returns when the first certificate of these Services expires; none if there are no certificates.
    pub fn first_end(&self) -> Option<Timestamp> {
        self.lock().services.values().filter_map(|entry| Some(entry.class.as_ref()?.1)).min()
    }

    /// Returns the number of certificates by kind of key. `None` stands for a kind that no policy can ask for.
    pub fn keys(&self) -> BTreeMap<Option<KeySpec>, usize> {
        let mut keys = BTreeMap::new();
        for (class, _) in self.lock().services.values().filter_map(|entry| entry.class.as_ref()) {
            *keys.entry(class.key).or_default() += 1;
        }
        keys
    }

    /// True once the operator has reconciled every Service at least once.
    pub fn is_known(&self) -> bool {
        let state = &mut *self.lock();
        state.was_known |= state.is_heard() && state.services.values().all(|entry| entry.is_known);
        state.was_known
    }

    /// Returns the Services that represent all others in a proof; none while the Services are not known.
    pub fn representatives(&self) -> Option<BTreeMap<Slot, Service>> {
        // A Service that was created later and is not reconciled yet has no certificate that matters.
        if !self.is_known() {
            return None;
        }
        let state = self.lock();
        // The owner of a blocked Service must repair its certificate. The proof does not wait for that.
        let unblocked = state.services.iter().filter(|(_, entry)| entry.blocked.is_none());
        let presented = unblocked.flat_map(|(name, entry)| {
            let all = entry.class.iter().chain(&entry.past);
            all.map(move |(class, until)| (class.as_ref(), *until, (name, entry)))
        });
        let representative = |(name, entry): (&ObjectName, &Entry)| {
            let secret = entry.request.as_ref().ok()?.secret.clone();
            let slot = Slot::tls(&ObjectName { namespace: name.namespace.clone(), name: secret });
            Some((slot, entry.service(name)))
        };
        Some(service_ca::representatives(presented).into_iter().filter_map(representative).collect())
    }
}
