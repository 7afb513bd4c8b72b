//! Records the latest time that the server has seen, and its running time.
//!
//! The server cannot know whether the clock is wrong now or was wrong before. It reports the latest time to the user. The running time,
//! which no clock can advance, keeps trust in certificates that are still valid by it.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use perennial_core::clocks::shifted;
use perennial_operator::observe::Earliest;
use serde::{Deserialize, Serialize};

use super::directory::keep_secret_file;

/// The file of the record.
pub(super) const FILE: &str = "clock.json";
/// How often the record is written.
const WRITE_EVERY: Duration = Duration::from_secs(60);

/// The content of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Written {
    /// The latest time that any clock has shown.
    latest: Timestamp,
    /// The creation time of the cluster plus its running time.
    counted: Timestamp,
}

/// The record of a directory, while a server runs.
#[derive(Debug)]
pub(crate) struct ClockRecord {
    path: PathBuf,
    began: Instant,
    at_begin: Written,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    latest: Timestamp,
    written: Option<Instant>,
}

impl ClockRecord {
    /// Reads the record, or starts one with this instant.
    pub(crate) fn read(directory: &Path, now: Timestamp) -> Arc<ClockRecord> {
        let path = directory.join(FILE);
        let found = std::fs::read(&path).ok().and_then(|text| serde_json::from_slice::<Written>(&text).ok());
        let at_begin = found.unwrap_or(Written { latest: now, counted: now });
        let state = Mutex::new(State { latest: at_begin.latest, written: None });
        Arc::new(ClockRecord { path, began: Instant::now(), at_begin, state })
    }

    /// Returns the latest recorded time.
    pub(crate) fn latest(&self) -> Timestamp {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).latest
    }

    /// Returns the creation time plus the running time.
    ///
    /// This is never ahead of the correct time, unless the cluster was created while the clock was ahead.
    pub(crate) fn earliest(self: &Arc<ClockRecord>) -> Earliest {
        let record = self.clone();
        Earliest(Arc::new(move || record.counted()))
    }

    fn counted(&self) -> Timestamp {
        shifted(self.at_begin.counted, SignedDuration::try_from(self.began.elapsed()).unwrap_or(SignedDuration::MAX))
    }

    /// Records this instant, and writes the file at most once a minute.
    pub(crate) fn note(&self, now: Timestamp) -> anyhow::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.latest = state.latest.max(now);
        if state.written.is_some_and(|at| at.elapsed() < WRITE_EVERY) {
            return Ok(());
        }
        state.written = Some(Instant::now());
        let written = Written { latest: state.latest, counted: self.counted() };
        keep_secret_file(&self.path, &serde_json::to_vec(&written)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_time_is_kept_and_the_running_time_follows_no_clock() {
        let directory = tempfile::tempdir().unwrap();
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let (now, ahead) = (at("2026-11-16T12:00:00Z"), at("2027-12-21T12:00:00Z"));
        ClockRecord::read(directory.path(), now).note(now).unwrap();
        let wrong = ClockRecord::read(directory.path(), ahead);
        assert_eq!(wrong.latest(), now);
        wrong.note(ahead).unwrap();
        let again = ClockRecord::read(directory.path(), now);
        assert_eq!(again.latest(), ahead);
        let counted = (again.earliest().0)();
        assert!(now <= counted && counted < at("2026-11-16T13:00:00Z"), "{counted}");
        // An unreadable file counts as absent.
        std::fs::write(directory.path().join(FILE), "{").unwrap();
        assert_eq!(ClockRecord::read(directory.path(), now).latest(), now);
    }
}
