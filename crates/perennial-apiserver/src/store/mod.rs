//! Objects under their keys, with one revision that rises with every write.
//!
//! Everything is in memory; with a file, everything is also on disk before it is acknowledged. Writes that come while
//! others are on their way to the disk are committed together. Watchers learn of a write when it is acknowledged, never
//! before.

mod disk;
mod log;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

pub use disk::OpenError;
pub use log::{Change, TooOld};

use disk::Disk;
use log::Log;

/// Where an object is kept. Ordered as lists are: by resource, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The plural of the resource and its group, `secrets` or `pkis.config.openshift.io`.
    pub resource: Arc<str>,
    /// The namespace; empty for what has none.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// An object as it is kept: JSON without its resource version, which is the revision of its last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The revision of the write that made it what it is.
    pub revision: u64,
    /// The JSON.
    pub body: Arc<[u8]>,
}

/// A write that happens only if the object is what the writer has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// Which object.
    pub key: Key,
    /// What the writer has seen.
    pub expect: Expect,
    /// What it is to be; none deletes it.
    pub body: Option<Arc<[u8]>>,
}

/// What a writer has seen of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// Nothing.
    Absent,
    /// The object as this revision wrote it.
    Revision(u64),
}

/// Why nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object is not what the writer has seen.
    #[error("the object has changed")]
    Conflict {
        /// What it is; none where it is gone.
        found: Option<Stored>,
    },
    /// The disk refused.
    #[error("the database refused a write: {why}")]
    Disk {
        /// What it said.
        why: String,
    },
}

/// A store, shared by whoever has a clone.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    queue: Mutex<Queue>,
    disk: Option<Mutex<Box<dyn Durable>>>,
    /// The revision up to which everything is acknowledged.
    acknowledged: watch::Sender<u64>,
}

/// What a write outlives the process in.
trait Durable: Send {
    /// Writes all of it, or nothing; on return it cannot be lost any more.
    fn commit(&mut self, changes: &[Change]) -> Result<(), String>;
}

/// What is acknowledged.
struct State {
    objects: BTreeMap<Key, Stored>,
    log: Log,
    revision: u64,
    /// The revision of the last write to each resource, as far as this process knows it.
    by_resource: HashMap<Arc<str>, u64>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<(Write, oneshot::Sender<Result<u64, WriteError>>)>,
    is_committing: bool,
}

impl Store {
    /// A store that is gone with the process.
    pub fn memory() -> Store {
        Store::new(BTreeMap::new(), 0, None)
    }

    /// A store in this file, made if it does not exist. Only one process may have it open.
    pub fn open(path: &Path) -> Result<Store, OpenError> {
        let (disk, objects, revision) = Disk::open(path)?;
        Ok(Store::new(objects, revision, Some(Box::new(disk))))
    }

    fn new(objects: BTreeMap<Key, Stored>, revision: u64, disk: Option<Box<dyn Durable>>) -> Store {
        let mut by_resource: HashMap<Arc<str>, u64> = HashMap::new();
        for (key, stored) in &objects {
            let latest = by_resource.entry(key.resource.clone()).or_default();
            *latest = stored.revision.max(*latest);
        }
        let state = State { objects, log: Log::new(revision), revision, by_resource };
        let shared = Shared {
            state: Mutex::new(state),
            queue: Mutex::default(),
            disk: disk.map(Mutex::new),
            acknowledged: watch::Sender::new(revision),
        };
        Store { shared: Arc::new(shared) }
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.shared.state().revision
    }

    /// The revision of the last write to a resource; 0 where there was none. It tells whether something changed.
    pub fn revision_of(&self, resource: &str) -> u64 {
        self.shared.state().by_resource.get(resource).copied().unwrap_or(0)
    }

    /// The object, if it is there.
    pub fn get(&self, key: &Key) -> Option<Stored> {
        self.shared.state().objects.get(key).cloned()
    }

    /// The objects of a resource, of one namespace or of all, in order and after `after`; and the revision at which
    /// this is so.
    pub fn list(&self, resource: &str, namespace: Option<&str>, after: Option<&Key>) -> (u64, Vec<(Key, Stored)>) {
        let state = self.shared.state();
        let first =
            Key { resource: resource.into(), namespace: namespace.unwrap_or_default().into(), name: Arc::from("") };
        let from = after.map_or(std::ops::Bound::Included(&first), std::ops::Bound::Excluded);
        let listed = state.objects.range((from, std::ops::Bound::Unbounded));
        let of_list = |(key, _): &(&Key, &Stored)| {
            *key.resource == *resource && namespace.is_none_or(|namespace| *key.namespace == *namespace)
        };
        (state.revision, listed.take_while(of_list).map(|(key, stored)| (key.clone(), stored.clone())).collect())
    }

    /// Writes, and returns the revision of that when it cannot be lost any more.
    pub async fn write(&self, write: Write) -> Result<u64, WriteError> {
        let (done, outcome) = oneshot::channel();
        let leads = {
            let mut queue = self.shared.queue();
            queue.waiting.push((write, done));
            !std::mem::replace(&mut queue.is_committing, true)
        };
        if leads {
            match &self.shared.disk {
                // Without a disk there is nothing to wait for.
                None => self.shared.commit_all(),
                // On its own task: whoever started it may go away in the middle.
                Some(_) => {
                    let shared = self.shared.clone();
                    drop(tokio::task::spawn_blocking(move || shared.commit_all()));
                }
            }
        }
        let lost = |_| Err(WriteError::Disk { why: "it was interrupted".to_owned() });
        outcome.await.unwrap_or_else(lost)
    }

    /// What changed after a revision, oldest first; none where nothing has yet.
    pub fn changes_after(&self, revision: u64) -> Result<Vec<Change>, TooOld> {
        self.shared.state().log.after(revision)
    }

    /// Tells when something was acknowledged.
    pub fn acknowledged(&self) -> watch::Receiver<u64> {
        self.shared.acknowledged.subscribe()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits until nobody waits.
    fn commit_all(&self) {
        let _leader = Leader(self);
        loop {
            let batch = {
                let mut queue = self.queue();
                if queue.waiting.is_empty() {
                    queue.is_committing = false;
                    return;
                }
                std::mem::take(&mut queue.waiting)
            };
            self.commit(batch);
        }
    }

    /// Commits what can be committed of a batch in one go, and answers everybody in it.
    fn commit(&self, batch: Vec<(Write, oneshot::Sender<Result<u64, WriteError>>)>) {
        let (changes, answers, refused) = self.decide(batch);
        if let Some(disk) = &self.disk
            && let Err(why) = disk.lock().unwrap_or_else(PoisonError::into_inner).commit(&changes)
        {
            // Who was refused may have been so because of a write that did not happen.
            let all =
                answers.into_iter().map(|(answer, _)| answer).chain(refused.into_iter().map(|(answer, _)| answer));
            for answer in all {
                drop(answer.send(Err(WriteError::Disk { why: why.clone() })));
            }
            return;
        }
        let revision = {
            let mut state = self.state();
            for change in changes {
                state.apply(change);
            }
            state.revision
        };
        self.acknowledged.send_replace(revision);
        for (answer, revision) in answers {
            drop(answer.send(Ok(revision)));
        }
        // Now they can see what was in their way.
        for (answer, error) in refused {
            drop(answer.send(Err(error)));
        }
    }

    /// What each write of a batch changes, as if they came one after the other.
    #[expect(clippy::type_complexity, reason = "three lists that are made together and used once")]
    fn decide(
        &self,
        batch: Vec<(Write, oneshot::Sender<Result<u64, WriteError>>)>,
    ) -> (
        Vec<Change>,
        Vec<(oneshot::Sender<Result<u64, WriteError>>, u64)>,
        Vec<(oneshot::Sender<Result<u64, WriteError>>, WriteError)>,
    ) {
        let state = self.state();
        let mut revision = state.revision;
        let mut ahead: HashMap<Key, Option<Stored>> = HashMap::new();
        let (mut changes, mut answers, mut refused) = (Vec::new(), Vec::new(), Vec::new());
        for (write, answer) in batch {
            let found = ahead.get(&write.key).cloned().unwrap_or_else(|| state.objects.get(&write.key).cloned());
            let expected = match (write.expect, &found) {
                (Expect::Absent, None) => true,
                (Expect::Revision(seen), Some(found)) => seen == found.revision,
                _ => false,
            };
            if !expected {
                refused.push((answer, WriteError::Conflict { found }));
                continue;
            }
            revision += 1;
            let new = write.body.map(|body| Stored { revision, body });
            ahead.insert(write.key.clone(), new.clone());
            changes.push(Change { revision, key: write.key, old: found, new });
            answers.push((answer, revision));
        }
        (changes, answers, refused)
    }
}

/// Whoever commits for everybody. If that ends in a panic, those who wait for it are told, and the next one can lead.
struct Leader<'s>(&'s Shared);

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let mut queue = self.0.queue();
            queue.is_committing = false;
            queue.waiting.clear();
        }
    }
}

impl State {
    fn apply(&mut self, change: Change) {
        self.revision = change.revision;
        self.by_resource.insert(change.key.resource.clone(), change.revision);
        match &change.new {
            Some(new) => drop(self.objects.insert(change.key.clone(), new.clone())),
            None => drop(self.objects.remove(&change.key)),
        }
        self.log.push(change);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state();
        f.debug_struct("Store")
            .field("objects", &state.objects.len())
            .field("revision", &state.revision)
            .field("durable", &self.shared.disk.is_some())
            .finish_non_exhaustive()
    }
}
