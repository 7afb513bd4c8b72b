//! A trace of system calls, and the possible states of the disk after them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A system call that affects a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// Gave bytes of a file to the kernel.
    Wrote { file: String, at: usize, bytes: Vec<u8> },
    /// Cut a file.
    Cut { file: String, length: usize },
    /// Had a file synchronised.
    Synced { file: String },
    /// Removed a file from the directory.
    Removed { file: String },
    /// Had the directory synchronised.
    SyncedDirectory,
    /// Printed a line.
    Said(String),
}

/// What a disk does with unsynchronized writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unsynced {
    /// None of them is there.
    Lost,
    /// All of them are.
    Kept,
    /// Some sectors of some of them are.
    SomeSectors { seed: u64 },
}

/// Files with everything that was synchronized, and the later writes.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    synced: BTreeMap<String, Vec<u8>>,
    pending: Vec<Event>,
    syncs: BTreeMap<String, usize>,
    directories: usize,
}

const SECTOR: usize = 512;

/// Reads a trace of `strace -f -y -xx`: the calls on the files of a directory, in their order.
///
/// A call counts when it returns. If another thread interrupted it, its start and its end are separate lines.
pub(crate) fn read(log: &Path, directory: &Path) -> Vec<Event> {
    let mut begun: BTreeMap<String, String> = BTreeMap::new();
    let mut events = Vec::new();
    for line in fs::read_to_string(log).unwrap().lines() {
        let (thread, call) = line.split_once(' ').unwrap_or_default();
        let call = call.trim_start();
        if let Some(start) = call.strip_suffix(" <unfinished ...>") {
            begun.insert(thread.to_owned(), start.to_owned());
            continue;
        }
        let whole = match call.strip_prefix("<... ") {
            Some(rest) => {
                let (_, end) = rest.split_once(" resumed>").unwrap_or_default();
                begun.remove(thread).unwrap_or_default() + end
            }
            None => call.to_owned(),
        };
        events.extend(event(&whole, directory));
    }
    events
}

fn event(call: &str, directory: &Path) -> Option<Event> {
    let (name, rest) = call.split_once('(')?;
    let (arguments, result) = rest.rsplit_once(") ").filter(|(_, result)| result.trim_start().starts_with("= "))?;
    if result.trim_start().starts_with("= -1") {
        return None;
    }
    if name == "unlink" {
        let path = String::from_utf8(unescape(quoted(arguments)?)).ok()?;
        let file = Path::new(&path).strip_prefix(directory).ok()?.to_str()?.to_owned();
        return Some(Event::Removed { file });
    }
    let (descriptor, arguments) = arguments.split_once('>').unwrap_or((arguments, ""));
    let (number, path) = descriptor.split_once('<')?;
    let path = String::from_utf8(unescape(path)).ok()?;
    if name == "write" && number == "1" {
        let line = String::from_utf8(unescape(quoted(arguments)?)).ok()?;
        // The first line is a number; lines of the test harness are no acknowledgements.
        return line.starts_with('w').then_some(Event::Said(line));
    }
    if Path::new(&path) == directory {
        return (name == "fsync").then_some(Event::SyncedDirectory);
    }
    let file = Path::new(&path).strip_prefix(directory).ok()?.to_str()?.to_owned();
    // What is given up when the disk is full holds nothing.
    if file.ends_with("-reserve") {
        return None;
    }
    let last = || arguments.rsplit(',').next()?.trim().parse::<usize>().ok();
    match name {
        "pwrite64" => Some(Event::Wrote { file, at: last()?, bytes: unescape(quoted(arguments)?) }),
        "write" => panic!("{file} was written without saying where"),
        "ftruncate" => Some(Event::Cut { file, length: last()? }),
        "fdatasync" | "fsync" => Some(Event::Synced { file }),
        _ => None,
    }
}

fn quoted(arguments: &str) -> Option<&str> {
    let (_, rest) = arguments.split_once('"')?;
    let (text, after) = rest.split_once('"')?;
    assert!(!after.starts_with("..."), "strace cut what was written");
    Some(text)
}

/// `\x61\x62` is `ab`.
fn unescape(text: &str) -> Vec<u8> {
    text.split("\\x").skip(1).map(|digits| u8::from_str_radix(digits, 16).unwrap()).collect()
}

impl Disk {
    pub(crate) fn apply(&mut self, event: &Event) {
        match event {
            Event::Wrote { .. } | Event::Cut { .. } | Event::Removed { .. } => self.pending.push(event.clone()),
            Event::Synced { file } => {
                *self.syncs.entry(file.clone()).or_default() += 1;
                self.settle(|event| of(event) == file && !matches!(event, Event::Removed { .. }));
            }
            Event::SyncedDirectory => {
                self.directories += 1;
                self.settle(|event| matches!(event, Event::Removed { .. }));
            }
            Event::Said(_) => {}
        }
    }

    fn settle(&mut self, is_done: impl Fn(&Event) -> bool) {
        let (done, rest): (Vec<Event>, Vec<Event>) = std::mem::take(&mut self.pending).into_iter().partition(is_done);
        self.pending = rest;
        done.iter().for_each(|event| change(&mut self.synced, event));
    }

    pub(crate) fn synced_more_than(&self, file: &str) -> bool {
        // The first time is its creation.
        self.syncs.get(file).is_some_and(|count| *count > 1)
    }

    pub(crate) fn has_synced_directory(&self) -> bool {
        self.directories > 0
    }

    /// Writes the files as they may be after a crash now.
    pub(crate) fn write(&self, directory: &Path, fate: Unsynced) {
        let mut files = self.synced.clone();
        match fate {
            Unsynced::Lost => {}
            Unsynced::Kept => self.pending.iter().for_each(|event| change(&mut files, event)),
            Unsynced::SomeSectors { seed } => {
                let mut chance = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                for sector in self.pending.iter().flat_map(sectors) {
                    chance ^= chance << 13;
                    chance ^= chance >> 7;
                    chance ^= chance << 17;
                    if chance & 1 == 0 {
                        change(&mut files, &sector);
                    }
                }
            }
        }
        for (name, content) in files {
            fs::write(directory.join(name), content).unwrap();
        }
    }
}

/// The file that an event changes.
fn of(event: &Event) -> &str {
    match event {
        Event::Wrote { file, .. } | Event::Cut { file, .. } | Event::Synced { file } | Event::Removed { file } => file,
        Event::SyncedDirectory | Event::Said(_) => "",
    }
}

fn change(files: &mut BTreeMap<String, Vec<u8>>, event: &Event) {
    match event {
        Event::Wrote { file, at, bytes } => {
            let content = files.entry(file.clone()).or_default();
            content.resize(content.len().max(at + bytes.len()), 0);
            content[*at..at + bytes.len()].copy_from_slice(bytes);
        }
        Event::Cut { file, length } => files.entry(file.clone()).or_default().resize(*length, 0),
        Event::Removed { file } => drop(files.remove(file)),
        Event::Synced { .. } | Event::SyncedDirectory | Event::Said(_) => {}
    }
}

/// A write, sector by sector: a disk writes each sector completely or not at all.
fn sectors(event: &Event) -> Vec<Event> {
    let Event::Wrote { file, at, bytes } = event else { return vec![event.clone()] };
    let mut parts = Vec::new();
    let mut done = 0;
    while done < bytes.len() {
        let end = (SECTOR - (at + done) % SECTOR + done).min(bytes.len());
        parts.push(Event::Wrote { file: file.clone(), at: at + done, bytes: bytes[done..end].to_vec() });
        done = end;
    }
    parts
}
