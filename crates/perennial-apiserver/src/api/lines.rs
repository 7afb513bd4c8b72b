//! A cache of the last serialized watch events. Many clients watch the same objects: each event is serialized once for all
//! of them, and events that wait for their readers are kept once.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use axum::body::Bytes;

use crate::limits::WATCH_SHARED_BYTES;

/// The key of an event: the revision of the change, the version of the resource, and the type of the event.
pub(crate) type Which = (u64, String, &'static str);

/// The last events.
#[derive(Debug, Default)]
pub(crate) struct Lines(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<(Which, Bytes)>,
    bytes: usize,
}

impl Lines {
    /// Returns a serialized event from the cache, or serializes it now.
    pub(crate) fn get<E>(&self, which: Which, write: impl FnOnce() -> Result<Bytes, E>) -> Result<Bytes, E> {
        if let Some(found) = self.find(&which) {
            return Ok(found);
        }
        let line = write()?;
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.bytes += line.len();
        kept.lines.push_back((which, line.clone()));
        while kept.bytes > WATCH_SHARED_BYTES {
            let Some((_, oldest)) = kept.lines.pop_front() else { break };
            kept.bytes -= oldest.len();
        }
        Ok(line)
    }

    fn find(&self, which: &Which) -> Option<Bytes> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // A watcher that is up to date needs the last one.
        let mut recent = kept.lines.iter().rev().take(MOST);
        recent.find(|(of, _)| of == which).map(|(_, line)| line.clone())
    }
}

/// How many events are searched.
const MOST: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_serialized_once_and_dropped_when_there_are_many() {
        let lines = Lines::default();
        let get = |revision: u64, text: &str| {
            lines.get((revision, "v1".to_owned(), "ADDED"), || Ok::<_, ()>(Bytes::from(text.to_owned()))).unwrap()
        };
        assert_eq!(get(1, "one"), "one");
        assert_eq!(get(1, "other"), "one");
        assert_eq!(get(2, "two"), "two");
        get(3, &"x".repeat(WATCH_SHARED_BYTES));
        assert_eq!(get(1, "again"), "again");
        assert!(lines.get((9, String::new(), "ADDED"), || Err(())).is_err());
    }
}
