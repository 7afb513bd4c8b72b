//! What everybody in this test shares: the objects, the way to the API server, and where failures go.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc::UnboundedSender;

use crate::objects::{Objects, now};

pub(crate) struct World {
    pub(crate) objects: Arc<Objects>,
    /// Where the API server is found, whichever process it is.
    pub(crate) port: u16,
    pub(crate) dir: PathBuf,
    failures: UnboundedSender<String>,
    events: Mutex<VecDeque<String>>,
}

/// How much is told when something fails.
const EVENTS: usize = 60;
const LINES: usize = 15;

impl World {
    pub(crate) fn new(objects: Arc<Objects>, port: u16, dir: PathBuf, failures: UnboundedSender<String>) -> World {
        World { objects, port, dir, failures, events: Mutex::default() }
    }

    /// Something that must not happen.
    pub(crate) fn fail(&self, what: &str) {
        let events: Vec<String> = self.events.lock().unwrap().iter().cloned().collect();
        let (events, said) = (events.join("\n"), self.last_words());
        let text = format!("{} {what}\nBefore that:\n{events}\nand the kube-apiservers said\n{said}", now());
        // Only the first is heard.
        let _ = self.failures.send(text);
    }

    /// The end of what the last two kube-apiservers wrote.
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

    /// Something that may be the reason for what happens later.
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

#[expect(clippy::print_stderr, reason = "for who asks for it")]
pub(crate) fn trace(line: &str) {
    eprintln!("{line}");
}
