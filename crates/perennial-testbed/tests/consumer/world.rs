//! The shared state of this test: the objects, the connection to the API server, and the failures.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;

use crate::objects::{Key, Objects, When, is_known_too_late, now};
use crate::static_pods::KAS;

/// A failure of the test.
#[derive(Debug)]
pub(crate) struct Failure {
    /// True if the caller reloads too late.
    pub(crate) is_too_late: bool,
    pub(crate) what: String,
    /// All that is known of it.
    pub(crate) text: String,
}

pub(crate) struct World {
    pub(crate) objects: Arc<Objects>,
    /// The port of the API server, whichever process serves it.
    pub(crate) port: u16,
    pub(crate) dir: PathBuf,
    /// When the API server reloads files while it runs.
    pub(crate) reads: When,
    failures: UnboundedSender<Failure>,
    events: Mutex<VecDeque<String>>,
}

/// How many failures are printed.
const EVENTS: usize = 60;
const LINES: usize = 15;

impl From<String> for Failure {
    fn from(text: String) -> Failure {
        Failure { is_too_late: false, what: text.clone(), text }
    }
}

impl World {
    pub(crate) fn new(
        objects: Arc<Objects>,
        port: u16,
        dir: PathBuf,
        reads: When,
        failures: UnboundedSender<Failure>,
    ) -> World {
        World { objects, port, dir, reads, failures, events: Mutex::default() }
    }

    /// Records a failure without a caller.
    pub(crate) fn fail(&self, what: &str) {
        self.fail_for(false, what, "");
    }

    /// Records a failure of a caller.
    pub(crate) fn fail_for(&self, is_too_late: bool, what: &str, details: &str) {
        let events: Vec<String> = self.events.lock().unwrap().iter().cloned().collect();
        let (events, said) = (events.join("\n"), self.last_words());
        let text = format!("{} {what}{details}\nBefore that:\n{events}\nand the kube-apiservers said\n{said}", now());
        // Only the first failure is read.
        let _ = self.failures.send(Failure { is_too_late, what: what.to_owned(), text });
    }

    /// Returns true if the API server lacks the issuer of a certificate only because it reloads too late.
    pub(crate) fn is_late_to_know(&self, chain: &str) -> bool {
        let bundles = ["client-ca", "aggregator-client-ca"].map(|name| Key::map(KAS, name));
        self.reads == When::TooLate && is_known_too_late(&self.objects, &bundles, chain)
    }

    /// Returns the end of the logs of the last two kube-apiservers.
    fn last_words(&self) -> String {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let mut logs: Vec<_> = entries.filter(|it| it.file_name().to_string_lossy().ends_with(".log")).collect();
        logs.retain(|it| it.file_name().to_string_lossy().starts_with("kube-apiserver-"));
        logs.sort_by_key(|it| it.metadata().and_then(|it| it.modified()).ok());
        let end_of = |log: &std::fs::DirEntry| {
            let text = std::fs::read_to_string(log.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(LINES)..].join("\n")
        };
        logs.iter().rev().take(2).map(end_of).collect::<Vec<_>>().join("\n\n")
    }

    /// Records an event that may explain a later failure.
    pub(crate) fn tell(&self, what: &str) {
        let line = format!("  {} {what}", now());
        if std::env::var_os("CONSUMER_TRACE").is_some() {
            trace(&line);
        }
        let mut events = self.events.lock().unwrap();
        events.push_back(line);
        let forgotten = events.len().saturating_sub(EVENTS);
        events.drain(..forgotten);
    }
}

#[expect(clippy::print_stderr, reason = "printed only on request")]
pub(crate) fn trace(line: &str) {
    eprintln!("{line}");
}
