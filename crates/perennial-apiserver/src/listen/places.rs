//! The places of connections. Connections without credentials cannot keep others out.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// The places of connections.
#[derive(Clone)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    /// The connections without credentials, the oldest first.
    strangers: Arc<Mutex<Strangers>>,
}

#[derive(Default)]
struct Strangers {
    next: u64,
    waiting: BTreeMap<u64, Arc<Notify>>,
}

/// The place of one connection.
pub(super) struct Place {
    number: u64,
    places: Places,
    given_up: Arc<Notify>,
    _permit: OwnedSemaphorePermit,
}

impl Places {
    pub(super) fn new(count: usize) -> Places {
        Places { free: Arc::new(Semaphore::new(count)), strangers: Arc::default() }
    }

    /// Waits for a place. If there is none, the oldest connection without credentials ends.
    pub(super) async fn take(&self) -> Place {
        if self.free.available_permits() == 0 {
            self.end_oldest_stranger();
        }
        let permit = self.free.clone().acquire_owned().await.expect("this semaphore is never closed");
        let given_up = Arc::new(Notify::new());
        let mut strangers = self.strangers();
        let number = strangers.next;
        strangers.next += 1;
        strangers.waiting.insert(number, given_up.clone());
        drop(strangers);
        Place { number, places: self.clone(), given_up, _permit: permit }
    }

    fn end_oldest_stranger(&self) {
        if let Some((_, oldest)) = self.strangers().waiting.pop_first() {
            oldest.notify_one();
        }
    }

    fn strangers(&self) -> MutexGuard<'_, Strangers> {
        self.strangers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Keeps the place: the caller is authenticated.
    pub(super) fn keep(&self) {
        self.places.strangers().waiting.remove(&self.number);
    }

    /// Waits until another connection needs the place.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.keep();
    }
}
