//! The queue of future events, in the order of time.

use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::sync::Arc;

use jiff::Timestamp;

use super::super::judge::Content;

/// An event. Processes are numbers.
#[derive(Debug)]
pub(super) enum Event {
    /// Perennial runs a pass.
    Look,
    /// Perennial makes the next write of its plan.
    Write,
    /// A process reads its slot.
    Load(usize),
    /// A process gets content from another one.
    Relay(usize, Content),
    /// A new revision of an operand is made.
    Revision(Arc<str>),
    /// The next node of an operand starts its latest revision.
    Restart(Arc<str>),
    /// A node starts again.
    Boot(Arc<str>),
    /// A certificate of a process has expired.
    Check(usize),
    /// A fault, by its number in the script.
    Fault(usize),
    /// The policy can be read again.
    PolicyReadable,
}

/// Events by time; events of one instant in the order in which they were added.
#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Planned>>,
    count: u64,
}

#[derive(Debug)]
struct Planned {
    at: Timestamp,
    number: u64,
    event: Event,
}

impl Queue {
    pub(super) fn push(&mut self, at: Timestamp, event: Event) {
        self.count += 1;
        self.heap.push(Reverse(Planned { at, number: self.count, event }));
    }

    pub(super) fn pop(&mut self) -> Option<(Timestamp, Event)> {
        self.heap.pop().map(|Reverse(planned)| (planned.at, planned.event))
    }
}

impl Ord for Planned {
    fn cmp(&self, other: &Planned) -> Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Planned) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Planned {
    fn eq(&self, other: &Planned) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Planned {}
