//! Records the writes of all writers, and checks the events of a watcher against them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;
use std::sync::Mutex;
use std::time::Instant;

/// A deterministic random generator.
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below this one.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) % end
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Added,
    Modified,
    Deleted,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) version: u64,
    pub(crate) kind: Kind,
    pub(crate) name: String,
    pub(crate) value: String,
}

/// Objects by name, with their versions and values.
pub(crate) type State = BTreeMap<String, (u64, String)>;

#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) at: u64,
    pub(crate) objects: State,
    /// The instant of the request.
    pub(crate) began: Instant,
}

/// A list or an event that a watcher has seen.
#[derive(Debug, Clone)]
pub(crate) enum Seen {
    Listed(Listed),
    Event(Event),
}

impl Seen {
    pub(crate) fn event(&self) -> Option<&Event> {
        match self {
            Seen::Listed(_) => None,
            Seen::Event(event) => Some(event),
        }
    }
}

/// Returns the objects after all events of a watcher.
pub(crate) fn state(seen: &[Seen]) -> State {
    let listed = seen.iter().rposition(|seen| seen.event().is_none());
    let mut state = State::new();
    for seen in &seen[listed.unwrap_or(0)..] {
        match seen {
            Seen::Listed(list) => state.clone_from(&list.objects),
            Seen::Event(event) => drop(apply(&mut state, event)),
        }
    }
    state
}

/// Applies an event, and returns the previous object.
fn apply(state: &mut State, event: &Event) -> Option<(u64, String)> {
    match event.kind {
        Kind::Added | Kind::Modified => state.insert(event.name.clone(), (event.version, event.value.clone())),
        Kind::Deleted => state.remove(&event.name),
    }
}

/// All writes and their results. Every value is written once, and a deletion deletes one version.
#[derive(Default)]
pub(crate) struct History(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Acknowledged writes by version.
    writes: BTreeMap<u64, (String, String)>,
    by_name: HashMap<String, BTreeMap<u64, String>>,
    /// Values of writes without an answer, with the name of their object.
    unknown: HashMap<String, String>,
    names: HashSet<String>,
    /// Deletions by name and deleted version.
    deletes: HashMap<String, BTreeMap<u64, Deletion>>,
}

/// The requests of a deletion, and their results.
#[derive(Default)]
struct Deletion {
    without_answer: usize,
    /// The instant of the acknowledgement.
    done: Option<Instant>,
}

impl History {
    pub(crate) fn is_ours(&self, name: &str) -> bool {
        self.0.lock().unwrap().names.contains(name)
    }

    pub(crate) fn sends(&self, name: &str, value: &str) {
        let mut known = self.0.lock().unwrap();
        known.names.insert(name.to_owned());
        known.unknown.insert(value.to_owned(), name.to_owned());
    }

    pub(crate) fn wrote(&self, name: &str, version: u64, value: &str) {
        let mut known = self.0.lock().unwrap();
        known.unknown.remove(value);
        let twice = known.writes.insert(version, (name.to_owned(), value.to_owned()));
        assert_eq!(twice, None, "two writes got version {version}");
        known.by_name.entry(name.to_owned()).or_default().insert(version, value.to_owned());
    }

    pub(crate) fn refused(&self, value: &str) {
        self.0.lock().unwrap().unknown.remove(value);
    }

    pub(crate) fn sends_delete(&self, name: &str, seen: u64) {
        let mut known = self.0.lock().unwrap();
        known.deletes.entry(name.to_owned()).or_default().entry(seen).or_default().without_answer += 1;
    }

    pub(crate) fn deleted(&self, name: &str, seen: u64) {
        let mut known = self.0.lock().unwrap();
        let deletion = known.deletes.get_mut(name).and_then(|deletes| deletes.get_mut(&seen)).unwrap();
        deletion.without_answer -= 1;
        let twice = deletion.done.replace(Instant::now());
        assert_eq!(twice, None, "two writers have deleted version {seen} of {name}");
    }

    pub(crate) fn refused_delete(&self, name: &str, seen: u64) {
        let mut known = self.0.lock().unwrap();
        let deletes = known.deletes.get_mut(name).unwrap();
        let deletion = deletes.get_mut(&seen).unwrap();
        deletion.without_answer -= 1;
        if deletion.without_answer == 0 && deletion.done.is_none() {
            deletes.remove(&seen);
        }
    }

    /// Checks all events of a watcher, after all writers have stopped.
    pub(crate) fn check(&self, watcher: usize, seen: &[Seen]) {
        let known = self.0.lock().unwrap();
        let mut state = State::new();
        let mut cursor = 0;
        for seen in seen {
            match seen {
                Seen::Listed(list) => {
                    assert!(list.at >= cursor, "watcher {watcher}: a list at {} after {cursor}", list.at);
                    known.check_list(watcher, list);
                    state.clone_from(&list.objects);
                    cursor = list.at;
                }
                Seen::Event(event) => {
                    known.check_event(watcher, cursor, event, &state);
                    apply(&mut state, event);
                    cursor = event.version;
                }
            }
        }
    }
}

impl Known {
    fn is_written(&self, name: &str, version: u64, value: &str) -> bool {
        match self.writes.get(&version) {
            Some((of, written)) => of == name && written == value,
            None => self.unknown.get(value).is_some_and(|of| of == name),
        }
    }

    fn check_event(&self, watcher: usize, cursor: u64, event: &Event, state: &State) {
        let about = || format!("watcher {watcher} after {cursor}: {event:?}");
        let Event { version, kind, name, value } = event;
        assert!(*version > cursor, "{}: not in order", about());
        let missed = self.writes.range((Bound::Excluded(cursor), Bound::Excluded(*version))).next();
        assert_eq!(missed, None, "{}: an event is lost", about());
        match (kind, state.get(name)) {
            (Kind::Added, None) | (Kind::Modified, Some(_)) => {
                assert!(self.is_written(name, *version, value), "{}: no writer wrote this", about());
            }
            (Kind::Deleted, Some((of, was))) => {
                assert_eq!(was, value, "{}: it was something else", about());
                let is_deleted = self.deletes.get(name).is_some_and(|deletes| deletes.contains_key(of));
                assert!(is_deleted, "{}: no writer deleted version {of}", about());
            }
            (_, found) => panic!("{}: before it there was {found:?}", about()),
        }
    }

    fn check_list(&self, watcher: usize, list: &Listed) {
        let nothing = BTreeMap::new();
        for name in &self.names {
            let about = || format!("watcher {watcher}, list at {}, {name}", list.at);
            let writes = self.by_name.get(name).unwrap_or(&nothing);
            let last = writes.range(..=list.at).next_back().map_or(0, |(version, _)| *version);
            let deletes = self.deletes.get(name);
            match list.objects.get(name) {
                Some((version, value)) => {
                    assert!(*version <= list.at && *version >= last, "{}: {version} is not {last}", about());
                    assert!(self.is_written(name, *version, value), "{}: no writer wrote {value}", about());
                    let deleted = deletes.and_then(|deletes| deletes.get(version)?.done);
                    assert!(deleted.is_none_or(|at| at > list.began), "{}: {version} was deleted before", about());
                }
                None if last == 0 => {}
                None => {
                    let gone = deletes.is_some_and(|deletes| deletes.range(last..=list.at).next().is_some());
                    assert!(gone, "{}: version {last} is lost", about());
                }
            }
        }
    }
}
