//! What is to be looked at, each thing once at a time, and what failed again later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// How long to wait after the first failure, and at most.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Things to look at.
pub(crate) struct Queue<K> {
    /// Everything that there is.
    known: BTreeSet<K>,
    /// What is to be looked at now.
    waiting: BTreeSet<K>,
    /// What is being looked at.
    under_way: BTreeSet<K>,
    /// What failed: how often, why, and when it is looked at again.
    failed: BTreeMap<K, Failure>,
}

struct Failure {
    times: u32,
    why: String,
    again_at: Instant,
    /// Whatever is heard of it.
    is_held: bool,
}

impl<K: Ord + Clone> Queue<K> {
    pub(crate) fn new() -> Queue<K> {
        let (known, waiting, under_way) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        Queue { known, waiting, under_way, failed: BTreeMap::new() }
    }

    /// Something was heard of it: it is looked at soon, however often it failed, unless it is held.
    pub(crate) fn add(&mut self, key: K) {
        self.known.insert(key.clone());
        if !self.is_held(&key) {
            self.waiting.insert(key);
        }
    }

    /// Everything is to be looked at.
    pub(crate) fn add_all(&mut self) {
        self.waiting.extend(self.known.iter().cloned());
    }

    /// The next one, which is under way from now on.
    pub(crate) fn next(&mut self, now: Instant) -> Option<K> {
        let is_due = |(key, failure): (&K, &Failure)| (failure.again_at <= now).then(|| key.clone());
        let mut due = self.waiting.iter().cloned().chain(self.failed.iter().filter_map(is_due));
        let key = due.find(|key| !self.under_way.contains(key))?;
        self.waiting.remove(&key);
        if let Some(failure) = self.failed.get_mut(&key) {
            // Not before it is known what comes of it.
            failure.again_at = now + RETRY.1;
        }
        self.under_way.insert(key.clone());
        Some(key)
    }

    /// When something that failed is looked at again; at once where something waits that is not under way.
    pub(crate) fn due(&self) -> Option<Instant> {
        let idle = |key: &&K| !self.under_way.contains(*key);
        self.failed.iter().filter(|(key, _)| idle(key)).map(|(_, failure)| failure.again_at).min()
    }

    /// How many are to be looked at now, or are under way; one that is both counts twice.
    pub(crate) fn backlog(&self) -> usize {
        self.waiting.len() + self.under_way.len()
    }

    /// Whether nothing is to be looked at now.
    pub(crate) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.under_way.is_empty()
    }

    /// It is as it should be.
    pub(crate) fn done(&mut self, key: &K) {
        self.under_way.remove(key);
        self.failed.remove(key);
    }

    /// It is nobody's business any more, unless something was heard of it meanwhile.
    pub(crate) fn forget(&mut self, key: &K) {
        self.done(key);
        if !self.waiting.contains(key) {
            self.known.remove(key);
        }
    }

    /// It failed. Says whether for another reason than before.
    pub(crate) fn failed(&mut self, key: &K, why: &str, now: Instant) -> bool {
        self.under_way.remove(key);
        let before = self.failed.remove(key);
        let times = before.as_ref().map_or(0, |before| before.times) + 1;
        let wait = RETRY.0.saturating_mul(2_u32.saturating_pow(times - 1)).min(RETRY.1);
        let is_new = before.is_none_or(|before| before.why != why);
        self.failed.insert(key.clone(), Failure { times, why: why.to_owned(), again_at: now + wait, is_held: false });
        is_new
    }

    /// The same where hearing of it is what leads to the next failure: that does not make it sooner.
    pub(crate) fn hold(&mut self, key: &K, why: &str, now: Instant) -> bool {
        let is_new = self.failed(key, why, now);
        self.failed.entry(key.clone()).and_modify(|failure| failure.is_held = true);
        is_new
    }

    /// Whether it is looked at again no sooner than that.
    pub(crate) fn is_held(&self, key: &K) -> bool {
        self.failed.get(key).is_some_and(|failure| failure.is_held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_is_looked_at_once_at_a_time_and_again_if_something_was_heard() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        queue.add("a");
        queue.add("a");
        assert_eq!(queue.next(now), Some("a"));
        assert_eq!(queue.next(now), None);
        queue.add("a");
        assert_eq!(queue.next(now), None, "it is under way");
        queue.done(&"a");
        assert_eq!(queue.next(now), Some("a"));
        queue.done(&"a");
        assert_eq!(queue.next(now), None);
        queue.add_all();
        assert_eq!(queue.next(now), Some("a"));
    }

    #[test]
    fn what_failed_waits_longer_each_time_and_less_when_something_is_heard() {
        let (mut queue, start) = (Queue::new(), Instant::now());
        queue.add("a");
        let mut now = start;
        for seconds in [1, 2, 4, 8] {
            assert_eq!(queue.next(now), Some("a"));
            queue.failed(&"a", "no", now);
            assert_eq!(queue.due(), Some(now + Duration::from_secs(seconds)));
            assert_eq!(queue.next(now), None);
            now += Duration::from_secs(seconds);
        }
        queue.add("a");
        assert_eq!(queue.next(now), Some("a"));
        // However often, it is not forgotten.
        for _ in 0..40 {
            queue.failed(&"a", "no", now);
            queue.add("a");
            assert_eq!(queue.next(now), Some("a"));
        }
        queue.failed(&"a", "no", now);
        assert_eq!(queue.due(), Some(now + RETRY.1));
        queue.add("a");
        assert_eq!(queue.next(now), Some("a"));
        queue.done(&"a");
        assert_eq!(queue.due(), None);
    }

    #[test]
    fn what_is_held_waits_whatever_is_heard_of_it_until_it_is_right() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        let second = Duration::from_secs(1);
        queue.add("a");
        assert_eq!(queue.next(now), Some("a"));
        assert!(queue.hold(&"a", "no", now));
        queue.add("a");
        assert_eq!((queue.next(now), queue.due()), (None, Some(now + second)));
        assert_eq!(queue.next(now + second), Some("a"));
        queue.add("a");
        assert!(!queue.hold(&"a", "no", now + second));
        assert_eq!((queue.next(now + second), queue.due()), (None, Some(now + 3 * second)));
        // What is due for everybody is due for it.
        queue.add_all();
        assert_eq!(queue.next(now + second), Some("a"));
        queue.done(&"a");
        queue.add("a");
        assert_eq!(queue.next(now + second), Some("a"));
    }

    #[test]
    fn the_same_trouble_is_new_once() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        assert!(queue.failed(&"a", "no", now));
        assert!(!queue.failed(&"a", "no", now));
        assert!(queue.failed(&"a", "never", now));
        queue.done(&"a");
        assert!(queue.failed(&"a", "never", now));
    }

    #[test]
    fn what_is_gone_is_forgotten_unless_it_was_heard_of_again() {
        let (mut queue, now) = (Queue::new(), Instant::now());
        queue.add("a");
        queue.next(now);
        queue.forget(&"a");
        queue.add_all();
        assert_eq!(queue.next(now), None);
        queue.add("a");
        queue.next(now);
        queue.add("a");
        queue.forget(&"a");
        assert_eq!(queue.next(now), Some("a"));
    }
}
