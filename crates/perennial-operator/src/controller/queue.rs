//! The objects to reconcile: fair between namespaces, each object once at a time, and failed objects again after a back-off.
//!
//! Each namespace has a lane, which all controllers share. The lanes take turns, so a namespace with very many changes delays itself
//! and no other namespace. Within a lane the order is first in, first out, urgent objects first.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::poll_fn;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use tokio_util::time::DelayQueue;
use tokio_util::time::delay_queue;

use super::{Key, Load};

/// The back-off after the first failure, and the longest.
const BACK_OFF: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));
/// The same where the owner of the object has to act first. The watch reports what the owner does, so the retries are only a
/// precaution: 10,000 such objects cost the operator a few requests a second.
const OWNER_BACK_OFF: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(3600));

/// How many places in a lane may be out of date before the queue removes them.
const MOST_OUTDATED: usize = 64;

/// An object of a controller.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Item {
    /// The number of the controller.
    pub(super) controller: usize,
    /// The object.
    pub(super) key: Key,
}

impl Item {
    /// The lane; empty for objects of the whole cluster.
    fn lane(&self) -> &str {
        &self.key.namespace
    }
}

/// Which objects of a namespace come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Turn {
    /// The object does not work without the reconciliation, or will soon stop working.
    Urgent,
    /// Everything else.
    Usual,
}

/// What a blocked object waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    /// The owner has to change the object. A watch reports the change, so a retry is only a precaution.
    Owner,
    /// The API server has to accept the request: a quota, a webhook or a role refuses it. No watch reports that one of these has
    /// changed, so a retry is the only way to notice it.
    Server,
}

impl Block {
    fn back_off(self) -> (Duration, Duration) {
        match self {
            Block::Owner => OWNER_BACK_OFF,
            Block::Server => BACK_OFF,
        }
    }
}

/// The objects to reconcile.
pub(super) struct Queue {
    /// Every object that some controller knows.
    known: BTreeSet<Item>,
    /// The objects that wait for their turn.
    queued: BTreeMap<Item, Turn>,
    /// The same by namespace. Entries that `queued` does not have in this turn are out of date.
    lanes: BTreeMap<String, Lane>,
    /// The namespaces with a lane, the next one first.
    order: VecDeque<String>,
    /// The objects that are being reconciled, and how many of each namespace.
    under_way: BTreeMap<Item, Turn>,
    busy: BTreeMap<String, usize>,
    /// The objects to reconcile once more when the reconciliation that is under way ends.
    again: BTreeMap<Item, Turn>,
    failures: BTreeMap<Item, Failure>,
    /// The ends of the back-offs.
    timers: DelayQueue<Item>,
    /// The open work of each controller.
    loads: Vec<Load>,
    /// How many objects of one namespace are reconciled at once, at most.
    most_of_one: usize,
}

#[derive(Default)]
struct Lane {
    urgent: VecDeque<Item>,
    usual: VecDeque<Item>,
}

struct Failure {
    times: u32,
    why: String,
    /// True if a person has to act first.
    is_blocked: bool,
    turn: Turn,
    /// The end of the back-off; none once it is over.
    timer: Option<delay_queue::Key>,
    /// True if the object waits for the end of the back-off even if the watch reports a change.
    is_held: bool,
}

impl Queue {
    /// Returns an empty queue for some controllers, which reconciles this many objects of one namespace at once, at most.
    pub(super) fn new(controllers: usize, most_of_one: usize) -> Queue {
        Queue {
            known: BTreeSet::new(),
            queued: BTreeMap::new(),
            lanes: BTreeMap::new(),
            order: VecDeque::new(),
            under_way: BTreeMap::new(),
            busy: BTreeMap::new(),
            again: BTreeMap::new(),
            failures: BTreeMap::new(),
            timers: DelayQueue::new(),
            loads: vec![Load::default(); controllers],
            most_of_one,
        }
    }

    /// Queues an object that may have changed, even if it failed before, unless it is held.
    pub(super) fn add(&mut self, item: Item, turn: Turn) {
        self.known.insert(item.clone());
        // A reconciliation that is under way may have read the object before it changed.
        if self.contention(&item).is_none() || self.under_way.contains_key(&item) {
            self.enqueue(item, turn);
        }
    }

    /// Queues every object of a controller.
    pub(super) fn add_all(&mut self, controller: usize, turn: impl Fn(&Key) -> Turn) {
        let items: Vec<Item> = self.known.iter().filter(|item| item.controller == controller).cloned().collect();
        for item in items {
            let turn = turn(&item.key);
            self.enqueue(item, turn);
        }
    }

    fn enqueue(&mut self, item: Item, turn: Turn) {
        let load = &mut self.loads[item.controller];
        if self.under_way.contains_key(&item) {
            let before = self.again.get(&item).copied();
            load.open += usize::from(before.is_none());
            self.again.insert(item, before.unwrap_or(turn).min(turn));
            return;
        }
        let before = self.queued.get(&item).copied();
        // The object keeps its place, unless it has become urgent.
        if before.is_some_and(|before| before <= turn) {
            return;
        }
        load.open += usize::from(before.is_none());
        self.queued.insert(item.clone(), turn);
        let name = item.lane();
        if !self.lanes.contains_key(name) {
            self.order.push_back(name.to_owned());
        }
        let lane = self.lanes.entry(name.to_owned()).or_default();
        match turn {
            Turn::Urgent => lane.urgent.push_back(item),
            Turn::Usual => lane.usual.push_back(item),
        }
        // An object that became urgent leaves its earlier place behind.
        if MOST_OUTDATED + 2 * self.queued.len() < lane.usual.len() {
            let queued = &self.queued;
            lane.usual.retain(|item| queued.get(item) == Some(&Turn::Usual));
        }
    }

    /// Takes the next object, whose reconciliation is under way from now on.
    pub(super) fn next(&mut self) -> Option<Item> {
        for _ in 0..self.order.len() {
            let name = self.order.pop_front()?;
            if self.most_of_one <= self.busy.get(&name).copied().unwrap_or(0) {
                self.order.push_back(name);
                continue;
            }
            let item = self.take(&name);
            match self.lanes.get(&name) {
                Some(lane) if !lane.urgent.is_empty() || !lane.usual.is_empty() => {
                    self.order.push_back(name.clone());
                }
                _ => drop(self.lanes.remove(&name)),
            }
            if let Some((item, turn)) = item {
                *self.busy.entry(name).or_default() += 1;
                self.under_way.insert(item.clone(), turn);
                return Some(item);
            }
        }
        None
    }

    /// Takes the first object of a lane that is still queued.
    fn take(&mut self, lane: &str) -> Option<(Item, Turn)> {
        let lane = self.lanes.get_mut(lane)?;
        loop {
            let (item, turn) = match lane.urgent.pop_front() {
                Some(item) => (item, Turn::Urgent),
                None => (lane.usual.pop_front()?, Turn::Usual),
            };
            if self.queued.get(&item) == Some(&turn) {
                self.queued.remove(&item);
                return Some((item, turn));
            }
        }
    }

    /// Waits until a back-off is over, and queues its object. Never returns if no object waits.
    pub(super) async fn retry(&mut self) {
        let expired = poll_fn(|context| self.timers.poll_expired(context)).await;
        let Some(expired) = expired else { return std::future::pending().await };
        let item = expired.into_inner();
        if let Some(failure) = self.failures.get_mut(&item) {
            failure.timer = None;
            let turn = failure.turn;
            self.enqueue(item, turn);
        }
    }

    /// Returns the open work of a controller.
    pub(super) fn load(&self, controller: usize) -> Load {
        self.loads[controller]
    }

    /// Records that the object is up to date.
    pub(super) fn done(&mut self, item: &Item) {
        self.recover(item);
        self.end(item);
    }

    /// Records that the controller cannot reconcile the object yet.
    pub(super) fn postpone(&mut self, item: &Item) {
        self.end(item);
    }

    /// Removes an object that no longer exists, unless the watch reported it meanwhile.
    pub(super) fn forget(&mut self, item: &Item) {
        self.done(item);
        if !self.queued.contains_key(item) {
            self.known.remove(item);
        }
    }

    /// Retries later. Returns true if the reason is another one than before.
    pub(super) fn failed(&mut self, item: &Item, why: &str) -> bool {
        self.fail(item, why, None)
    }

    /// Retries later, although a person has to act first. Returns true if the reason is another one than before.
    pub(super) fn blocked(&mut self, item: &Item, block: Block, why: &str) -> bool {
        self.fail(item, why, Some(block))
    }

    /// Retries after the back-off, and not sooner even if the watch reports a change: the other client reacts to each write.
    pub(super) fn hold(&mut self, item: &Item, why: &str) -> bool {
        if self.again.remove(item).is_some() {
            self.loads[item.controller].open -= 1;
        }
        let is_new = self.failed(item, why);
        self.failures.entry(item.clone()).and_modify(|failure| failure.is_held = true);
        is_new
    }

    /// Returns why an object is held, if it is.
    pub(super) fn contention(&self, item: &Item) -> Option<&str> {
        self.failures.get(item).filter(|failure| failure.is_held).map(|failure| failure.why.as_str())
    }

    fn fail(&mut self, item: &Item, why: &str, block: Option<Block>) -> bool {
        let before = self.recover(item);
        let (is_blocked, (first, longest)) = (block.is_some(), block.map_or(BACK_OFF, Block::back_off));
        let turn = self.under_way.get(item).copied().unwrap_or(Turn::Usual);
        let times = before.as_ref().map_or(0, |before| before.times).saturating_add(1);
        let mut wait = first.saturating_mul(2_u32.saturating_pow(times - 1)).min(longest);
        if first != BACK_OFF.0 {
            wait = wait.mul_f64(spread(item));
        }
        let is_new = before.is_none_or(|before| before.why != why);
        let timer = Some(self.timers.insert(item.clone(), wait));
        let failure = Failure { times, why: why.to_owned(), is_blocked, turn, timer, is_held: false };
        self.failures.insert(item.clone(), failure);
        self.loads[item.controller].failing += usize::from(!is_blocked);
        self.end(item);
        is_new
    }

    /// Forgets that an object failed.
    fn recover(&mut self, item: &Item) -> Option<Failure> {
        let before = self.failures.remove(item)?;
        self.loads[item.controller].failing -= usize::from(!before.is_blocked);
        before.timer.iter().for_each(|timer| _ = self.timers.try_remove(timer));
        Some(before)
    }

    /// Ends a reconciliation.
    fn end(&mut self, item: &Item) {
        if self.under_way.remove(item).is_none() {
            return;
        }
        self.loads[item.controller].open -= 1;
        if let Some(busy) = self.busy.get_mut(item.lane()) {
            *busy -= 1;
            if *busy == 0 {
                self.busy.remove(item.lane());
            }
        }
        if let Some(turn) = self.again.remove(item) {
            self.loads[item.controller].open -= 1;
            self.enqueue(item.clone(), turn);
        }
    }
}

/// Returns a number from 0.5 to 1, always the same for an object, so that objects that failed together are retried one by one.
fn spread(item: &Item) -> f64 {
    let mut hasher = DefaultHasher::new();
    (item.controller, item.key.kind, &item.key.namespace, &item.key.name).hash(&mut hasher);
    let share = u32::try_from(hasher.finish() >> 32).unwrap_or(u32::MAX);
    0.5 + 0.5 * f64::from(share) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use tokio::time::{Instant, timeout};

    use super::*;

    /// `namespace/name` of the first controller.
    fn item(text: &str) -> Item {
        let (namespace, name) = text.split_once('/').unwrap_or(("", text));
        Item { controller: 0, key: Key::new("Thing", namespace, name) }
    }

    /// A queue for two controllers.
    struct Fixture(Queue);

    impl Fixture {
        fn new() -> Fixture {
            Fixture::with_most_of_one(usize::MAX)
        }

        fn with_most_of_one(most: usize) -> Fixture {
            Fixture(Queue::new(2, most))
        }

        fn add(&mut self, text: &str, turn: Turn) {
            self.0.add(item(text), turn);
        }

        fn add_usual(&mut self, text: &str) {
            self.add(text, Turn::Usual);
        }

        fn next(&mut self) -> Option<String> {
            self.0.next().map(|item| match item.key.namespace.as_str() {
                "" => item.key.name,
                namespace => format!("{namespace}/{}", item.key.name),
            })
        }

        fn done(&mut self, text: &str) {
            self.0.done(&item(text));
        }

        fn failed(&mut self, text: &str, why: &str) -> bool {
            self.0.failed(&item(text), why)
        }

        /// Waits for the next retry, and returns after how many seconds it came.
        async fn retry(&mut self) -> Option<u64> {
            let begun = Instant::now();
            timeout(Duration::from_secs(7200), self.0.retry()).await.ok()?;
            Some(begun.elapsed().as_secs())
        }

        /// Everything that is queued, in order.
        fn drain(&mut self) -> Vec<String> {
            let mut all = Vec::new();
            while let Some(text) = self.next() {
                self.done(&text);
                all.push(text);
            }
            all
        }

        fn load(&self) -> (usize, usize) {
            let load = self.0.load(0);
            (load.open, load.failing)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_reconciled_once_at_a_time_and_again_if_it_changed_meanwhile() {
        let mut queue = Fixture::new();
        queue.add_usual("a");
        queue.add_usual("a");
        assert_eq!((queue.next().as_deref(), queue.next()), (Some("a"), None));
        queue.add_usual("a");
        assert_eq!(queue.next(), None, "it is under way");
        assert_eq!(queue.load(), (2, 0));
        queue.done("a");
        assert_eq!(queue.next().as_deref(), Some("a"));
        queue.done("a");
        assert_eq!((queue.next(), queue.load()), (None, (0, 0)));
        queue.0.add_all(1, |_| Turn::Usual);
        assert_eq!(queue.next(), None, "it belongs to another controller");
        queue.0.add_all(0, |_| Turn::Usual);
        assert_eq!(queue.next().as_deref(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_object_waits_longer_each_time_and_not_at_all_when_it_changes() {
        let mut queue = Fixture::new();
        queue.add_usual("a");
        for seconds in [1, 2, 4, 8] {
            assert_eq!(queue.next().as_deref(), Some("a"));
            queue.failed("a", "no");
            assert_eq!((queue.next(), queue.load()), (None, (0, 1)));
            assert_eq!(queue.retry().await, Some(seconds));
        }
        assert_eq!(queue.next().as_deref(), Some("a"));
        assert!(!queue.failed("a", "no"), "for the same reason");
        queue.add_usual("a");
        assert_eq!(queue.next().as_deref(), Some("a"), "before its back-off is over");
        assert!(queue.failed("a", "other"));
        queue.add_usual("a");
        assert_eq!(queue.next().as_deref(), Some("a"));
        queue.done("a");
        assert_eq!((queue.retry().await, queue.load()), (None, (0, 0)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_retried_within_five_minutes_and_a_block_by_the_owner_within_an_hour() {
        for (block, within) in [(None, 300..=300), (Some(Block::Server), 300..=300), (Some(Block::Owner), 1800..=3600)]
        {
            let mut queue = Fixture::new();
            for _ in 0..20 {
                queue.0.fail(&item("a"), "no", block);
            }
            let waited = queue.retry().await.unwrap();
            assert!(within.contains(&waited), "{block:?}: {waited} s");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn objects_that_their_owners_block_together_are_retried_minutes_later_and_one_after_the_other() {
        const OBJECTS: u64 = 1000;
        let mut queue = Fixture::new();
        for number in 0..OBJECTS {
            queue.0.blocked(&item(&format!("a/{number}")), Block::Owner, "no");
        }
        let mut in_second = BTreeMap::<u64, u64>::new();
        let begun = Instant::now();
        for _ in 0..OBJECTS {
            queue.0.retry().await;
            *in_second.entry(begun.elapsed().as_secs()).or_default() += 1;
        }
        let (first, most) = (in_second.keys().next().unwrap(), in_second.values().max().unwrap());
        assert!(149 <= *first && *most < 30, "the first after {first} s, {most} in one second");
    }

    #[tokio::test(start_paused = true)]
    async fn a_held_object_waits_for_its_back_off_whatever_changes() {
        let mut queue = Fixture::new();
        queue.add_usual("a");
        queue.next();
        queue.0.hold(&item("a"), "no");
        queue.add("a", Turn::Urgent);
        assert_eq!(queue.next(), None);
        assert_eq!(queue.retry().await, Some(1));
        assert_eq!(queue.next().as_deref(), Some("a"));
        queue.done("a");
        queue.add_usual("a");
        assert_eq!(queue.next().as_deref(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_forgotten_object_is_known_again_if_it_changed_meanwhile() {
        let mut queue = Fixture::new();
        queue.add_usual("a");
        queue.next();
        queue.add_usual("a");
        queue.0.forget(&item("a"));
        assert_eq!(queue.next().as_deref(), Some("a"));
        queue.0.forget(&item("a"));
        queue.0.add_all(0, |_| Turn::Usual);
        assert_eq!(queue.next(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_postponed_object_waits_until_everything_is_queued() {
        let mut queue = Fixture::new();
        queue.add_usual("a");
        queue.next();
        queue.0.postpone(&item("a"));
        assert_eq!((queue.next(), queue.load()), (None, (0, 0)));
        queue.0.add_all(0, |_| Turn::Usual);
        assert_eq!(queue.next().as_deref(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn namespaces_take_turns_and_each_is_served_first_in_first_out() {
        let mut queue = Fixture::new();
        for text in ["aaa/3", "aaa/1", "aaa/2", "zzz/2", "zzz/1", "mmm/1"] {
            queue.add_usual(text);
        }
        assert_eq!(queue.drain(), ["aaa/3", "zzz/2", "mmm/1", "aaa/1", "zzz/1", "aaa/2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn controllers_share_the_turns_of_a_namespace() {
        let mut queue = Fixture::new();
        (0..3).for_each(|number| queue.add_usual(&format!("aaa/{number}")));
        let other = |text| Item { controller: 1, ..item(text) };
        queue.0.add(other("aaa/0"), Turn::Usual);
        queue.0.add(other("zzz/0"), Turn::Usual);
        assert_eq!((queue.load(), queue.0.load(1).open), ((3, 0), 2));
        let order: Vec<usize> = std::iter::from_fn(|| queue.0.next()).map(|item| item.controller).collect();
        assert_eq!(order, [0, 1, 0, 0, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn urgent_objects_come_before_others_of_their_namespace_and_not_before_other_namespaces() {
        let mut queue = Fixture::new();
        for (text, turn) in [
            ("aaa/1", Turn::Usual),
            ("aaa/2", Turn::Usual),
            ("aaa/3", Turn::Urgent),
            ("zzz/1", Turn::Usual),
            // One that was queued becomes urgent.
            ("aaa/2", Turn::Urgent),
            ("aaa/3", Turn::Usual),
        ] {
            queue.add(text, turn);
        }
        assert_eq!(queue.load(), (4, 0));
        assert_eq!(queue.drain(), ["aaa/3", "zzz/1", "aaa/2", "aaa/1"]);
        assert!(queue.0.lanes.is_empty() && queue.0.order.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_a_held_object_during_its_reconciliation_is_not_lost() {
        let mut queue = Fixture::new();
        queue.add_usual("a");
        queue.next();
        queue.0.hold(&item("a"), "no");
        queue.retry().await;
        assert_eq!(queue.next().as_deref(), Some("a"));
        queue.add_usual("a");
        queue.done("a");
        assert_eq!(queue.next().as_deref(), Some("a"), "it changed after it was read");
        queue.add_usual("a");
        queue.0.hold(&item("a"), "no");
        assert_eq!((queue.next(), queue.load()), (None, (0, 1)));
    }

    #[tokio::test(start_paused = true)]
    async fn places_that_are_out_of_date_are_removed() {
        let mut queue = Fixture::new();
        queue.add("aaa/first", Turn::Urgent);
        for _ in 0..1000 {
            queue.add_usual("aaa/flips");
            queue.add("aaa/flips", Turn::Urgent);
            // The first two urgent ones are taken; the earlier place is still there.
            let (one, two) = (queue.next().unwrap(), queue.next().unwrap());
            queue.add("aaa/first", Turn::Urgent);
            queue.done(&one);
            queue.done(&two);
        }
        let places = queue.0.lanes["aaa"].usual.len();
        assert!(places < 2 * MOST_OUTDATED, "{places}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_blocked_object_does_not_count_as_failing() {
        let mut queue = Fixture::new();
        queue.0.blocked(&item("a"), Block::Owner, "no");
        assert_eq!(queue.load(), (0, 0));
        queue.failed("a", "no");
        queue.failed("b", "no");
        queue.done("a");
        assert_eq!(queue.load(), (0, 1));
        queue.0.blocked(&item("b"), Block::Owner, "no");
        assert_eq!(queue.load(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_namespace_whose_objects_take_long_leaves_places_to_others() {
        let mut queue = Fixture::with_most_of_one(2);
        for text in ["aaa/1", "aaa/2", "aaa/3", "zzz/1"] {
            queue.add_usual(text);
        }
        let three: Vec<String> = (0..3).filter_map(|_| queue.next()).collect();
        assert_eq!(three, ["aaa/1", "zzz/1", "aaa/2"]);
        assert_eq!(queue.next(), None);
        queue.done("aaa/1");
        assert_eq!(queue.next().as_deref(), Some("aaa/3"));
    }
}
