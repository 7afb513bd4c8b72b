//! Generates keys on a bounded number of threads at idle priority, so that nobody else waits for them.
//!
//! How long an RSA key takes is random with a long tail. Who asks for many keys at once waits for the last one,
//! so a thread with nothing else to do races the job of such a batch that has been running longest; whichever
//! attempt ends first wins, and the other key is dropped. Generating cannot be interrupted, so a lost attempt
//! holds its thread until it ends; at most one such attempt is made per job. A single key is never raced,
//! because that would make whoever asks next wait for a thread.
//!
//! A single ECDSA key takes less time than waking a thread, and whoever waits for it makes it.
//!
//! The lock is taken by callers of normal priority and by workers that the scheduler may leave aside while they
//! hold it. Under the lock jobs are therefore only moved: keys are made, sent and dropped, and waiters woken,
//! outside of it.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::panic::catch_unwind;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use perennial_core::key::{KeySpec, RsaSize};

use crate::key::{KeyError, PrivateKey};

/// Threads that generate keys. Dropping the pool forgets what has not been started and waits for nothing.
#[derive(Debug)]
pub struct KeyPool {
    shared: Arc<Shared>,
}

/// A key and how long its own generation took.
#[derive(Debug)]
pub struct GeneratedKey {
    /// The key.
    pub key: PrivateKey,
    /// The time of the attempt that won, without the time in the queue.
    pub took: Duration,
}

/// A key that is being generated. Who drops it does not want it any more: unless it is begun, it is not made.
#[derive(Debug)]
pub struct PendingKey {
    spec: KeySpec,
    source: Source,
}

/// Where it comes from.
#[derive(Debug)]
enum Source {
    /// A thread of the pool.
    Thread {
        receiver: Receiver<Outcome>,
        /// As long as it lives, the key is wanted.
        _wish: Arc<()>,
    },
    /// Whoever waits for it.
    Waiter(Generate),
}

impl KeyPool {
    /// Starts this many threads.
    pub fn new(threads: NonZeroUsize) -> io::Result<KeyPool> {
        KeyPool::with_generator(threads, PrivateKey::generate, Priority::Idle)
    }

    /// Starts this many threads at the priority of everything else: for keys that somebody is waiting for.
    pub fn eager(threads: NonZeroUsize) -> io::Result<KeyPool> {
        KeyPool::with_generator(threads, PrivateKey::generate, Priority::Normal)
    }

    fn with_generator(threads: NonZeroUsize, generate: Generate, priority: Priority) -> io::Result<KeyPool> {
        // Dropped on an early return, which ends the threads already started.
        let state = Mutex::new(State { priority, ..State::default() });
        let pool = KeyPool { shared: Arc::new(Shared { generate, state, wake: Condvar::new() }) };
        for number in 0..threads.get() {
            let shared = Arc::clone(&pool.shared);
            thread::Builder::new().name(format!("keygen-{number}")).spawn(move || shared.work())?;
        }
        Ok(pool)
    }

    /// Makes the keys that are begun from now on at idle priority, as those of [`KeyPool::new`].
    pub fn become_idle(&self) {
        self.shared.lock().priority = Priority::Idle;
        self.shared.wake.notify_all();
    }

    /// Queues one RSA key. An ECDSA key takes microseconds: it is made when it is waited for.
    pub fn generate(&self, spec: KeySpec) -> PendingKey {
        if spec.curve().is_some() {
            return PendingKey { spec, source: Source::Waiter(self.shared.generate) };
        }
        let (reply, receiver) = mpsc::channel();
        let wish = Arc::new(());
        let job = Job { spec, index: 0, may_race: false, reply, wish: Arc::downgrade(&wish) };
        self.shared.lock().queue.push_back(job);
        self.shared.wake.notify_all();
        PendingKey { spec, source: Source::Thread { receiver, _wish: wish } }
    }

    /// Generates all keys, the most expensive first, and returns them in the order of `specs`.
    ///
    /// `on_done` is called on this thread for each key as it gets ready, with its position in `specs`.
    /// Returns as soon as every key has a winner, without waiting for the losers.
    pub fn generate_all(
        &self,
        specs: &[KeySpec],
        mut on_done: impl FnMut(usize, &Result<GeneratedKey, KeyError>),
    ) -> Vec<Result<GeneratedKey, KeyError>> {
        let (reply, receiver) = mpsc::channel();
        let wish = Arc::new(());
        let job =
            |(index, &spec)| Job { spec, index, may_race: true, reply: reply.clone(), wish: Arc::downgrade(&wish) };
        let mut jobs: Vec<_> = specs.iter().enumerate().map(job).collect();
        jobs.sort_by_key(|job| std::cmp::Reverse(relative_cost(job.spec)));
        let mut jobs = VecDeque::from(jobs);
        drop(reply);
        self.shared.lock().queue.append(&mut jobs);
        self.shared.wake.notify_all();
        let mut keys: Vec<_> = specs.iter().map(|&spec| Err(KeyError::PoolClosed { spec })).collect();
        for (index, result) in receiver {
            on_done(index, &result);
            keys[index] = result;
        }
        keys
    }
}

impl Drop for KeyPool {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.closed = true;
        let forgotten = std::mem::take(&mut state.queue);
        drop(state);
        self.shared.wake.notify_all();
        drop(forgotten);
    }
}

impl PendingKey {
    /// Blocks until the key is there.
    pub fn wait(self) -> Result<GeneratedKey, KeyError> {
        let closed = KeyError::PoolClosed { spec: self.spec };
        match self.source {
            Source::Thread { receiver, .. } => receiver.recv().map_or(Err(closed), |(_, result)| result),
            Source::Waiter(generate) => attempt(generate, self.spec),
        }
    }
}

/// Who comes first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Priority {
    /// Nobody waits.
    #[default]
    Normal,
    /// Everybody else.
    Idle,
}

type Generate = fn(KeySpec) -> Result<PrivateKey, KeyError>;

#[derive(Debug)]
struct Shared {
    generate: Generate,
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Job>,
    /// In the order in which they were started.
    running: Vec<Running>,
    started: u64,
    closed: bool,
    priority: Priority,
}

#[derive(Debug)]
struct Job {
    spec: KeySpec,
    index: usize,
    /// Whether a second attempt at this job may be made beside the first.
    may_race: bool,
    reply: Sender<Outcome>,
    /// Whether somebody still wants it.
    wish: Weak<()>,
}

#[derive(Debug)]
struct Running {
    id: u64,
    job: Job,
    is_raced: bool,
}

type Outcome = (usize, Result<GeneratedKey, KeyError>);

impl Shared {
    fn work(&self) {
        let mut own = Priority::Normal;
        while let Some((id, spec)) = self.next_attempt(&mut own) {
            let result = attempt(self.generate, spec);
            // Where the job is gone, another attempt has won, and this key is dropped.
            let job = self.lock().finish(id);
            if let Some(Job { index, reply, .. }) = job {
                // Whoever asked may have lost interest.
                let _ = reply.send((index, result));
            }
        }
    }

    /// Waits for something to do, at the priority of the pool; none means that the pool is closed.
    fn next_attempt(&self, own: &mut Priority) -> Option<(u64, KeySpec)> {
        // Dropped after the lock is.
        let mut forgotten = Vec::new();
        let mut state = self.lock();
        while !state.closed {
            // A thread never comes back from idle priority: that takes a privilege.
            if state.priority == Priority::Idle && *own == Priority::Normal {
                drop(state);
                lower_priority();
                *own = Priority::Idle;
                state = self.lock();
                continue;
            }
            if let Some(attempt) = state.next_attempt(&mut forgotten) {
                return Some(attempt);
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        None
    }

    /// No code can panic while it holds the lock, so a poisoned state is still a good one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next job of the queue that somebody still wants; else a race with the longest-running job that may have one and has
    /// none yet.
    fn next_attempt(&mut self, forgotten: &mut Vec<Job>) -> Option<(u64, KeySpec)> {
        while let Some(job) = self.queue.pop_front() {
            if job.wish.strong_count() == 0 {
                forgotten.push(job);
                continue;
            }
            let (id, spec) = (self.started, job.spec);
            self.started += 1;
            self.running.push(Running { id, job, is_raced: false });
            return Some((id, spec));
        }
        // An ECDSA key is there before a race for it could start.
        let is_worth_it =
            |running: &&mut Running| running.job.may_race && !running.is_raced && running.job.spec.curve().is_none();
        let straggler = self.running.iter_mut().find(is_worth_it)?;
        straggler.is_raced = true;
        Some((straggler.id, straggler.job.spec))
    }

    /// The job that this attempt has ended, unless another one did.
    fn finish(&mut self, id: u64) -> Option<Job> {
        let position = self.running.iter().position(|running| running.id == id)?;
        Some(self.running.remove(position).job)
    }
}

/// A panic must neither leave anybody waiting nor end a thread.
fn attempt(generate: Generate, spec: KeySpec) -> Result<GeneratedKey, KeyError> {
    let since = Instant::now();
    let key = catch_unwind(|| generate(spec)).unwrap_or(Err(KeyError::Panicked { spec }))?;
    Ok(GeneratedKey { key, took: since.elapsed() })
}

/// Only the order matters.
fn relative_cost(spec: KeySpec) -> u32 {
    match spec {
        KeySpec::Rsa(RsaSize::B4096) => 3,
        KeySpec::Rsa(RsaSize::B3072) => 2,
        KeySpec::Rsa(RsaSize::B2048) => 1,
        KeySpec::Ecdsa(_) => 0,
    }
}

/// Uses only time that nobody else wants. Where that is not possible, keys are made all the same.
#[cfg(target_os = "linux")]
fn lower_priority() {
    use thread_priority::{
        NormalThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
        thread_native_id,
    };
    let idle = ThreadSchedulePolicy::Normal(NormalThreadSchedulePolicy::Idle);
    let _ = set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, idle);
}

#[cfg(not(target_os = "linux"))]
fn lower_priority() {
    let _ = thread_priority::set_current_thread_priority(thread_priority::ThreadPriority::Min);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn pool(threads: usize) -> KeyPool {
        KeyPool::new(NonZeroUsize::new(threads).unwrap()).unwrap()
    }

    fn check(threads: usize, specs: &[&str]) {
        let specs: Vec<KeySpec> = specs.iter().map(|spec| spec.parse().unwrap()).collect();
        let mut done = Vec::new();
        let keys = pool(threads).generate_all(&specs, |index, result| {
            assert!(result.is_ok());
            done.push(index);
        });
        let keys: Vec<_> = keys.into_iter().map(Result::unwrap).collect();
        assert_eq!(keys.iter().map(|made| made.key.spec().unwrap()).collect::<Vec<_>>(), specs);
        let different: BTreeSet<_> = keys.iter().map(|made| made.key.public_key().spki_der().to_vec()).collect();
        assert_eq!(different.len(), specs.len(), "every key is a key of its own");
        done.sort_unstable();
        assert_eq!(done, (0..specs.len()).collect::<Vec<_>>(), "each is reported once");
    }

    #[test]
    fn all_kinds_come_back_in_the_order_asked_for() {
        check(2, &["ECDSA P256", "RSA 2048", "ECDSA P384", "RSA 3072", "ECDSA P521", "RSA 4096"]);
    }

    #[test]
    fn more_threads_than_keys_race_without_losing_or_doubling_any() {
        for _ in 0..5 {
            check(4, &["RSA 2048", "ECDSA P256", "RSA 2048"]);
        }
        check(3, &["RSA 2048"]);
        check(1, &["RSA 2048", "RSA 2048", "ECDSA P256"]);
        check(2, &[]);
    }

    #[test]
    fn an_idle_thread_races_the_longest_running_rsa_job_once() {
        check_attempts(
            &[("RSA 4096", true), ("ECDSA P256", true), ("RSA 2048", true)],
            &["0: RSA 4096", "1: ECDSA P256", "2: RSA 2048", "0: RSA 4096", "2: RSA 2048"],
        );
    }

    #[test]
    fn a_single_key_is_never_raced_and_what_waits_comes_before_a_race() {
        check_attempts(&[("RSA 4096", false)], &["0: RSA 4096"]);
        check_attempts(
            &[("RSA 4096", false), ("RSA 3072", true), ("RSA 2048", false)],
            &["0: RSA 4096", "1: RSA 3072", "2: RSA 2048", "1: RSA 3072"],
        );
    }

    /// The attempts at jobs that may be raced or not, as idle threads would make them one after the other.
    fn check_attempts(jobs: &[(&str, bool)], expected: &[&str]) {
        let mut state = State::default();
        let (reply, _receiver) = mpsc::channel();
        let wish = Arc::new(());
        for (index, (spec, may_race)) in jobs.iter().enumerate() {
            let (spec, wish) = (spec.parse().unwrap(), Arc::downgrade(&wish));
            state.queue.push_back(Job { spec, index, may_race: *may_race, reply: reply.clone(), wish });
        }
        let attempts =
            std::iter::from_fn(|| state.next_attempt(&mut Vec::new())).map(|(id, spec)| format!("{id}: {spec}"));
        assert_eq!(attempts.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_single_key_leaves_the_other_threads_free() {
        /// Long RSA keys take until the test ends.
        static RSA: Mutex<()> = Mutex::new(());
        let generate = |spec: KeySpec| {
            let _ends = (spec == KeySpec::Rsa(RsaSize::B4096)).then(|| RSA.lock());
            PrivateKey::generate("ECDSA P256".parse().unwrap())
        };
        let not_yet = RSA.lock();
        let pool = KeyPool::with_generator(NonZeroUsize::new(2).unwrap(), generate, Priority::Idle).unwrap();
        let slow = pool.generate("RSA 4096".parse().unwrap());
        while pool.shared.lock().running.is_empty() {
            thread::yield_now();
        }
        let quick = pool.generate("RSA 2048".parse().unwrap());
        let Source::Thread { receiver, .. } = &quick.source else { panic!("{quick:?}") };
        assert!(receiver.recv_timeout(Duration::from_secs(60)).is_ok(), "the second thread races the long key");
        // And a key on a curve waits for no thread at all.
        pool.generate("ECDSA P256".parse().unwrap()).wait().unwrap();
        drop(not_yet);
        slow.wait().unwrap();
    }

    #[test]
    fn a_key_that_nobody_wants_any_more_is_not_made() {
        static MADE: Mutex<Vec<KeySpec>> = Mutex::new(Vec::new());
        /// Keys take until the test lets them.
        static GATE: Mutex<()> = Mutex::new(());
        let generate = |spec: KeySpec| {
            let _ends = GATE.lock();
            MADE.lock().unwrap().push(spec);
            PrivateKey::generate("ECDSA P256".parse().unwrap())
        };
        let [first, unwanted, last] = ["RSA 2048", "RSA 4096", "RSA 3072"].map(|spec| spec.parse::<KeySpec>().unwrap());
        let not_yet = GATE.lock();
        let pool = KeyPool::with_generator(NonZeroUsize::new(1).unwrap(), generate, Priority::Idle).unwrap();
        let begun = pool.generate(first);
        while pool.shared.lock().running.is_empty() {
            thread::yield_now();
        }
        // What is begun cannot be stopped, and harms nobody.
        drop(begun);
        let forgotten: Vec<PendingKey> = (0..10).map(|_| pool.generate(unwanted)).collect();
        let wanted = pool.generate(last);
        drop(forgotten);
        drop(not_yet);
        wanted.wait().unwrap();
        assert_eq!(*MADE.lock().unwrap(), [first, last]);
    }

    #[test]
    fn a_panic_is_an_error_for_who_waits_and_no_end_of_the_pool() {
        let generate = |spec: KeySpec| match spec.curve() {
            Some(_) => PrivateKey::generate(spec),
            None => panic!("a defect of the crypto library"),
        };
        let pool = KeyPool::with_generator(NonZeroUsize::new(1).unwrap(), generate, Priority::Idle).unwrap();
        let [rsa, ecdsa] = ["RSA 2048", "ECDSA P256"].map(|spec| spec.parse::<KeySpec>().unwrap());
        assert_eq!(pool.generate(rsa).wait().unwrap_err(), KeyError::Panicked { spec: rsa });
        let all = pool.generate_all(&[rsa, ecdsa, rsa], |_, _| {});
        assert_eq!(all.iter().map(Result::is_ok).collect::<Vec<_>>(), [false, true, false]);
        pool.generate(ecdsa).wait().unwrap();
    }

    #[test]
    fn single_keys_can_be_waited_for() {
        let pool = pool(2);
        let pending = KeySpec::ALL.map(|spec| (spec, pool.generate(spec)));
        for (spec, pending) in pending {
            assert_eq!(pending.wait().unwrap().key.spec(), Some(spec));
        }
    }

    #[test]
    fn a_dropped_pool_says_so_to_those_who_wait() {
        let pool = pool(1);
        let pending: Vec<_> = (0..50).map(|_| pool.generate("RSA 2048".parse().unwrap())).collect();
        drop(pool);
        let results: Vec<_> = pending.into_iter().map(PendingKey::wait).collect();
        assert!(matches!(results.last(), Some(Err(KeyError::PoolClosed { .. }))));
    }

    /// Field 41 of `/proc/self/task/*/stat` is the scheduling policy, and 5 is SCHED_IDLE.
    #[cfg(target_os = "linux")]
    #[test]
    fn workers_run_at_idle_priority() {
        let policy_of = |name: &str| {
            let tasks = std::fs::read_dir("/proc/self/task").unwrap();
            let stats = tasks.filter_map(|task| std::fs::read_to_string(task.unwrap().path().join("stat")).ok());
            let stat = stats.into_iter().find(|stat| stat.contains(&format!("({name}) ")))?;
            let after_name = stat.rsplit_once(") ")?.1;
            after_name.split(' ').nth(41 - 3).map(str::to_owned)
        };
        // More threads than any other test has, so that the last one is known by its name.
        let _pool = pool(9);
        let deadline = Instant::now() + Duration::from_secs(10);
        while policy_of("keygen-8").as_deref() != Some("5") {
            assert!(Instant::now() < deadline, "policy is {:?}", policy_of("keygen-8"));
            thread::yield_now();
        }
        let eager = KeyPool::eager(NonZeroUsize::new(11).unwrap()).unwrap();
        while policy_of("keygen-10").is_none() {
            assert!(Instant::now() < deadline, "it has not started");
            thread::yield_now();
        }
        assert_eq!(policy_of("keygen-10").as_deref(), Some("0"), "who is waited for does not stand back");
        eager.become_idle();
        while policy_of("keygen-10").as_deref() != Some("5") {
            assert!(Instant::now() < deadline, "policy is {:?}", policy_of("keygen-10"));
            thread::yield_now();
        }
    }
}
