//! The log of recent changes, for watchers that reconnect.

use std::collections::VecDeque;

use super::{Key, Stored};

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The revision.
    pub revision: u64,
    /// The object.
    pub key: Key,
    /// The previous state; none for a new object.
    pub old: Option<Stored>,
    /// The new state; none for a deleted object.
    pub new: Option<Stored>,
}

/// The log does not reach back that far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the changes after revision {asked} are no longer in the log, which begins after revision {remembered}")]
pub struct TooOld {
    /// The requested revision.
    pub asked: u64,
    /// The revision after which the log begins.
    pub remembered: u64,
}

/// The last changes.
#[derive(Debug)]
pub(super) struct Log {
    changes: VecDeque<Change>,
    /// `changes` contains everything after this revision.
    remembered: u64,
    /// The bytes of the objects in `changes`.
    size: usize,
}

/// Enough for a busy minute, which is enough for a client to reconnect.
const MAX_CHANGES: usize = 10_000;
const MAX_BYTES: usize = 32 << 20;

impl Log {
    pub(super) fn new(revision: u64) -> Log {
        Log { changes: VecDeque::new(), remembered: revision, size: 0 }
    }

    pub(super) fn push(&mut self, change: Change) {
        self.size += size(&change);
        self.changes.push_back(change);
        while self.changes.len() > MAX_CHANGES || self.size > MAX_BYTES {
            let Some(forgotten) = self.changes.pop_front() else { break };
            self.size -= size(&forgotten);
            self.remembered = forgotten.revision;
        }
    }

    pub(super) fn after(&self, revision: u64) -> Result<impl Iterator<Item = &Change>, TooOld> {
        if revision < self.remembered {
            return Err(TooOld { asked: revision, remembered: self.remembered });
        }
        let first = self.changes.partition_point(|change| change.revision <= revision);
        Ok(self.changes.range(first..))
    }
}

/// Returns the bytes of the objects of a change.
pub(super) fn size(change: &Change) -> usize {
    // The old body is usually the new body of an earlier change; it is counted nevertheless.
    [&change.old, &change.new].into_iter().flatten().map(|stored| stored.body.len()).sum()
}
