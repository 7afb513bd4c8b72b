//! The recent past, for watchers that come back.

use std::collections::VecDeque;

use super::{Key, Stored};

/// One write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Its revision.
    pub revision: u64,
    /// The object.
    pub key: Key,
    /// What it was; none where it was not there.
    pub old: Option<Stored>,
    /// What it is; none where it is gone.
    pub new: Option<Stored>,
}

/// The past is not remembered that far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the changes after revision {asked} are forgotten: those after {remembered} are not")]
pub struct TooOld {
    /// From where they were asked.
    pub asked: u64,
    /// From where they are known.
    pub remembered: u64,
}

/// The last changes.
#[derive(Debug)]
pub(super) struct Log {
    changes: VecDeque<Change>,
    /// Everything after this revision is in `changes`.
    remembered: u64,
    /// The bytes of the objects in `changes`.
    size: usize,
}

/// A busy minute fits in here; nobody needs more than that to come back.
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

    pub(super) fn after(&self, revision: u64) -> Result<Vec<Change>, TooOld> {
        if revision < self.remembered {
            return Err(TooOld { asked: revision, remembered: self.remembered });
        }
        let first = self.changes.partition_point(|change| change.revision <= revision);
        Ok(self.changes.range(first..).cloned().collect())
    }
}

fn size(change: &Change) -> usize {
    // The old body is usually the new one of an earlier change; it is counted all the same.
    [&change.old, &change.new].into_iter().flatten().map(|stored| stored.body.len()).sum()
}
