//! The object store: objects by key, with one revision that increases with every write.
//!
//! All objects are in memory; with a file, every write is also on disk before it is acknowledged. Writes that arrive during
//! a commit are committed together. Watchers get a write when it is acknowledged, never before.

mod disk;
mod log;
mod readable;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::ops::Bound;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{oneshot, watch};

pub use disk::OpenError;
pub use log::{Change, TooOld};

use disk::Disk;
use log::Log;

/// The key of an object. Sorted like lists: by resource, namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The plural of the resource and its group, `secrets` or `pkis.config.openshift.io`.
    pub resource: Arc<str>,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Arc<str>,
    /// The name.
    pub name: Arc<str>,
}

/// `configmaps shop/web`, `namespaces shop`.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { resource, namespace, name } = self;
        if namespace.is_empty() { write!(f, "{resource} {name}") } else { write!(f, "{resource} {namespace}/{name}") }
    }
}

/// A stored object: JSON without its resource version, which is the revision of its last write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The revision of its last write.
    pub revision: u64,
    /// The JSON.
    pub body: Arc<[u8]>,
}

/// A conditional write: it succeeds only if the object is unchanged since the writer read it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Write {
    /// The object.
    pub key: Key,
    /// The expected state.
    pub expect: Expect,
    /// The new content; none deletes the object.
    pub body: Option<Arc<[u8]>>,
}

/// The expected state of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// The object does not exist.
    Absent,
    /// The object has this revision.
    Revision(u64),
}

/// Why a write failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The object is not in the expected state.
    #[error("the object has changed")]
    Conflict {
        /// The current state; none if the object does not exist.
        found: Option<Stored>,
    },
    /// The disk rejected the write.
    #[error("the database rejected a write: {why}")]
    Disk {
        /// The error.
        why: String,
    },
    /// The disk is full. Deletions are still written.
    #[error("no space on the disk of the database ({why}): delete objects, or make space on the disk")]
    Full {
        /// The error.
        why: String,
    },
}

/// A store. Clones share their state.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    queue: Mutex<Queue>,
    disk: Option<Mutex<Box<dyn Durable>>>,
    /// All writes up to this revision are acknowledged.
    acknowledged: watch::Sender<u64>,
    /// The error of the disk while it is full.
    full: Mutex<Option<String>>,
}

/// The durable storage of writes.
trait Durable: Send {
    /// Writes all changes or none. They are durable when this returns.
    fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError>;

    /// Releases the space that is reserved for deletions.
    fn use_reserve(&mut self) {}

    /// Reserves that space again, if possible.
    fn restore_reserve(&mut self) {}
}

/// Why a commit failed.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CommitError {
    /// The disk is full.
    Full(String),
    /// Another error.
    Failed(String),
}

impl From<CommitError> for WriteError {
    fn from(error: CommitError) -> WriteError {
        match error {
            CommitError::Full(why) => WriteError::Full { why },
            CommitError::Failed(why) => WriteError::Disk { why },
        }
    }
}

/// A write, and the channel for its result.
type Waiting = (Write, oneshot::Sender<Result<u64, WriteError>>);

/// The acknowledged state.
struct State {
    objects: BTreeMap<Key, Stored>,
    log: Log,
    revision: u64,
    /// The revision of the last write to each resource in this process.
    by_resource: HashMap<Arc<str>, u64>,
    /// The unreadable rows of the file, with the reason.
    unreadable: BTreeMap<Key, String>,
}

#[derive(Default)]
struct Queue {
    waiting: Vec<Waiting>,
    is_committing: bool,
}

impl Store {
    /// Returns a store without a file.
    pub fn memory() -> Store {
        Store::new(BTreeMap::new(), 0, None)
    }

    /// Opens a store in this file, which is created if it does not exist. Only one process may have it open.
    pub fn open(path: &Path) -> Result<Store, OpenError> {
        let (disk, objects, revision) = Disk::open(path)?;
        Ok(Store::new(objects, revision, Some(Box::new(disk))))
    }

    fn new(objects: BTreeMap<Key, Stored>, revision: u64, disk: Option<Box<dyn Durable>>) -> Store {
        let mut by_resource: HashMap<Arc<str>, u64> = HashMap::new();
        let mut unreadable = BTreeMap::new();
        for (key, stored) in &objects {
            let latest = by_resource.entry(key.resource.clone()).or_default();
            *latest = stored.revision.max(*latest);
            if let Err(error) = readable::check(&stored.body) {
                unreadable.insert(key.clone(), error.to_string());
            }
        }
        let state = State { objects, log: Log::new(revision), revision, by_resource, unreadable };
        let shared = Shared {
            state: Mutex::new(state),
            queue: Mutex::default(),
            disk: disk.map(Mutex::new),
            acknowledged: watch::Sender::new(revision),
            full: Mutex::default(),
        };
        Store { shared: Arc::new(shared) }
    }

    /// Returns the revision of the last write.
    pub fn revision(&self) -> u64 {
        self.shared.state().revision
    }

    /// Returns the revision of the last write to a resource; 0 if there was none. It changes with every change.
    pub fn revision_of(&self, resource: &str) -> u64 {
        self.shared.state().by_resource.get(resource).copied().unwrap_or(0)
    }

    /// Returns the object, if it exists.
    pub fn get(&self, key: &Key) -> Option<Stored> {
        self.shared.state().objects.get(key).cloned()
    }

    /// Returns the objects of a resource, of one namespace or of all, sorted and after `after`; and the revision of this
    /// state.
    pub fn list(&self, resource: &str, namespace: Option<&str>, after: Option<&Key>) -> (u64, Vec<(Key, Stored)>) {
        let state = self.shared.state();
        // A list that grows takes twice the memory while it grows.
        let mut rows = Vec::with_capacity(state.range(resource, namespace, after).count());
        rows.extend(state.range(resource, namespace, after).map(|(key, stored)| (key.clone(), stored.clone())));
        (state.revision, rows)
    }

    /// Returns the first `count` of these objects, the number of objects after them, and the revision of this state.
    pub fn list_first(
        &self,
        resource: &str,
        namespace: Option<&str>,
        after: Option<&Key>,
        most: usize,
    ) -> (u64, Vec<(Key, Stored)>, usize) {
        let state = self.shared.state();
        let mut listed = state.range(resource, namespace, after);
        let rows = listed.by_ref().take(most).map(|(key, stored)| (key.clone(), stored.clone())).collect();
        (state.revision, rows, listed.count())
    }

    /// Returns the bytes of the objects of a resource, of one namespace or of all, after `after`.
    pub fn bytes(&self, resource: &str, namespace: Option<&str>, after: Option<&Key>) -> usize {
        self.shared.state().range(resource, namespace, after).map(|(_, stored)| stored.body.len()).sum()
    }

    /// Returns the first unreadable row of a resource in the file, with the reason. Rows of this process are always readable.
    pub fn unreadable(&self, resource: &str) -> Option<(Key, String)> {
        let state = self.shared.state();
        let mut found = state.unreadable.iter().filter(|(key, _)| *key.resource == *resource);
        found.next().map(|(key, why)| (key.clone(), why.clone()))
    }

    /// Returns the error of the disk if it was full at the last write; none otherwise.
    pub fn disk_full(&self) -> Option<String> {
        self.shared.full().clone()
    }

    /// Writes, and returns the revision of the write when it is durable.
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
                // On its own task: the request that started it may be cancelled.
                Some(_) => {
                    let shared = self.shared.clone();
                    drop(tokio::task::spawn_blocking(move || shared.commit_all()));
                }
            }
        }
        let lost = |_| Err(WriteError::Disk { why: "it was interrupted".to_owned() });
        outcome.await.unwrap_or_else(lost)
    }

    /// Returns the changes after a revision, oldest first.
    pub fn changes_after(&self, revision: u64) -> Result<Vec<Change>, TooOld> {
        Ok(self.shared.state().log.after(revision)?.cloned().collect())
    }

    /// Returns the first changes after a revision, up to so many bytes, but at least one if there is any.
    pub fn next_changes(&self, revision: u64, bytes: usize) -> Result<Vec<Change>, TooOld> {
        let state = self.shared.state();
        let mut left = bytes;
        let fits = |change: &&Change| {
            let fits = left > 0;
            // The overhead of a change besides its objects.
            left = left.saturating_sub(log::size(change) + 256);
            fits
        };
        Ok(state.log.after(revision)?.take_while(fits).cloned().collect())
    }

    /// Returns the next objects of a resource as they were at a revision, after `after`, sorted; at most `count`.
    ///
    /// So no reader has to keep all of them: the log has the previous state of every later change.
    pub fn page_at(
        &self,
        revision: u64,
        within: (&str, Option<&str>),
        after: Option<&Key>,
        most: usize,
    ) -> Result<Vec<(Key, Stored)>, TooOld> {
        let state = self.shared.state();
        let (resource, namespace) = within;
        let is_in = |key: &Key| *key.resource == *resource && namespace.is_none_or(|it| *key.namespace == *it);
        let mut changed: BTreeMap<&Key, Option<&Stored>> = BTreeMap::new();
        for change in state.log.after(revision)?.filter(|change| is_in(&change.key)) {
            if after.is_none_or(|after| change.key > *after) {
                changed.entry(&change.key).or_insert(change.old.as_ref());
            }
        }
        let listed = state.range(resource, namespace, after).filter(|(key, _)| !changed.contains_key(*key));
        let mut page: BTreeMap<&Key, &Stored> = listed.take(most).collect();
        page.extend(changed.iter().filter_map(|(key, old)| Some((*key, (*old)?))));
        Ok(page.into_iter().take(most).map(|(key, stored)| (key.clone(), stored.clone())).collect())
    }

    /// Notifies of every acknowledgement.
    pub fn acknowledged(&self) -> watch::Receiver<u64> {
        self.shared.acknowledged.subscribe()
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn full(&self) -> MutexGuard<'_, Option<String>> {
        self.full.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Commits until the queue is empty.
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

    /// Commits as much of a batch as possible at once, and answers all its writers.
    fn commit(&self, batch: Vec<Waiting>) {
        let Some(disk) = &self.disk else {
            let decided = self.decide(batch);
            return self.acknowledge(decided);
        };
        let mut disk = disk.lock().unwrap_or_else(PoisonError::into_inner);
        // A successful deletion does not mean that the disk has space.
        let needs_space = self.full().is_some() && batch.iter().any(|(write, _)| !write.frees());
        let Err((batch, why)) = self.commit_to(&mut **disk, batch, needs_space) else {
            if needs_space {
                disk.restore_reserve();
            }
            return;
        };
        let CommitError::Full(_) = &why else { return refuse(batch, &why) };
        *self.full() = Some(WriteError::from(why.clone()).to_string());
        // Without deletions the disk would stay full.
        let (freeing, others): (Vec<Waiting>, Vec<Waiting>) = batch.into_iter().partition(|(write, _)| write.frees());
        refuse(others, &why);
        if !freeing.is_empty() {
            disk.use_reserve();
            if let Err((freeing, why)) = self.commit_to(&mut **disk, freeing, false) {
                refuse(freeing, &why);
            }
        }
    }

    /// Commits a batch to the disk and answers its writers, or returns the batch. A success of a batch that needs space clears the full state.
    fn commit_to(
        &self,
        disk: &mut dyn Durable,
        batch: Vec<Waiting>,
        needs_space: bool,
    ) -> Result<(), (Vec<Waiting>, CommitError)> {
        let decided = self.decide(batch);
        match disk.commit(&decided.changes) {
            Ok(()) => {
                if needs_space {
                    *self.full() = None;
                }
                self.acknowledge(decided);
                Ok(())
            }
            // A write may have been refused because of another write that did not happen.
            Err(why) => Err((decided.undo(), why)),
        }
    }

    fn acknowledge(&self, decided: Decided) {
        let Decided { changes, answers, refused } = decided;
        let revision = {
            let mut state = self.state();
            for change in changes {
                state.apply(change);
            }
            state.revision
        };
        self.acknowledged.send_replace(revision);
        for ((_, answer), revision) in answers {
            drop(answer.send(Ok(revision)));
        }
        // Now these writers can read the write that was in their way.
        for ((_, answer), error) in refused {
            drop(answer.send(Err(error)));
        }
    }

    /// Returns what each write of a batch changes, as if they came one after the other.
    fn decide(&self, batch: Vec<Waiting>) -> Decided {
        let state = self.state();
        let mut revision = state.revision;
        let mut ahead: HashMap<Key, Option<Stored>> = HashMap::new();
        let mut decided = Decided::default();
        for (write, answer) in batch {
            let found = ahead.get(&write.key).cloned().unwrap_or_else(|| state.objects.get(&write.key).cloned());
            let expected = match (write.expect, &found) {
                (Expect::Absent, None) => true,
                (Expect::Revision(seen), Some(found)) => seen == found.revision,
                _ => false,
            };
            if !expected {
                decided.refused.push(((write, answer), WriteError::Conflict { found }));
                continue;
            }
            revision += 1;
            let new = write.body.clone().map(|body| Stored { revision, body });
            ahead.insert(write.key.clone(), new.clone());
            decided.changes.push(Change { revision, key: write.key.clone(), old: found, new });
            decided.answers.push(((write, answer), revision));
        }
        decided
    }
}

/// The decisions about a batch.
#[derive(Default)]
struct Decided {
    changes: Vec<Change>,
    answers: Vec<(Waiting, u64)>,
    refused: Vec<(Waiting, WriteError)>,
}

impl Decided {
    /// Returns the batch again; refused writes have no particular order.
    fn undo(self) -> Vec<Waiting> {
        self.answers.into_iter().map(|(it, _)| it).chain(self.refused.into_iter().map(|(it, _)| it)).collect()
    }
}

fn refuse(batch: Vec<Waiting>, why: &CommitError) {
    for (_, answer) in batch {
        drop(answer.send(Err(why.clone().into())));
    }
}

impl Write {
    /// Returns true if the write frees space now or soon: it deletes an object, or marks one for deletion.
    fn frees(&self) -> bool {
        const MARK: &[u8] = b"\"deletionTimestamp\"";
        self.body.as_ref().is_none_or(|body| body.windows(MARK.len()).any(|window| window == MARK))
    }
}

/// The task that commits for all writers. If it panics, the waiting writers get an error, and the next one can lead.
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
    /// Returns the objects of a resource, of one namespace or of all, sorted and after `after`.
    fn range(
        &self,
        resource: &str,
        namespace: Option<&str>,
        after: Option<&Key>,
    ) -> impl Iterator<Item = (&Key, &Stored)> {
        let first =
            Key { resource: resource.into(), namespace: namespace.unwrap_or_default().into(), name: Arc::from("") };
        let from = after.map_or(Bound::Included(first), |after| Bound::Excluded(after.clone()));
        self.objects.range((from, Bound::Unbounded)).take_while(move |(key, _)| {
            *key.resource == *resource && namespace.is_none_or(|namespace| *key.namespace == *namespace)
        })
    }

    fn apply(&mut self, change: Change) {
        self.revision = change.revision;
        self.by_resource.insert(change.key.resource.clone(), change.revision);
        self.unreadable.remove(&change.key);
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
