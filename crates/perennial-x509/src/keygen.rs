//! Generates keys on a limited number of threads at idle priority, so that they delay no other work.
//!
//! The time for an RSA key is random with a long tail. A caller that requests many keys at once waits for the last one. So an
//! idle thread makes a second attempt at the longest-running job of such a batch; the attempt that ends first wins, and the
//! other key is dropped. Generation cannot be interrupted, so a lost attempt holds its thread until it ends; at most one
//! such attempt is made per job. A single key has no second attempt, because that would make the next caller
//! wait for a thread.
//!
//! A single ECDSA key takes less time than waking a thread, so the thread that waits for it generates it.
//!
//! Callers of normal priority take the lock, and so do workers that the scheduler may suspend while they hold it. So
//! only jobs are moved under the lock: keys are generated, sent and dropped, and waiters woken, outside of it.

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

/// Threads that generate keys. Dropping the pool drops the waiting jobs and waits for nothing.
#[derive(Debug)]
pub struct KeyPool {
    shared: Arc<Shared>,
}

/// A key and the time of its generation.
#[derive(Debug)]
pub struct GeneratedKey {
    /// The key.
    pub key: PrivateKey,
    /// The time of the winning attempt, without the time in the queue.
    pub took: Duration,
}

/// A key that is being generated. Dropping it cancels the job, unless the job has started.
#[derive(Debug)]
pub struct PendingKey {
    spec: KeySpec,
    source: Source,
}

/// Who generates the key.
#[derive(Debug)]
enum Source {
    /// A thread of the pool.
    Thread {
        receiver: Receiver<Outcome>,
        /// The job is cancelled when this is dropped.
        _wish: Arc<()>,
    },
    /// The thread that waits for it.
    Waiter(Generate),
}

impl KeyPool {
    /// Starts this many threads.
    pub fn new(threads: NonZeroUsize) -> io::Result<KeyPool> {
        KeyPool::with_generator(threads, PrivateKey::generate, Priority::Idle)
    }

    /// Starts this many threads at normal priority, for keys that a caller waits for.
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

    /// Generates the keys that start from now on at idle priority, like [`KeyPool::new`].
    pub fn become_idle(&self) {
        self.shared.lock().priority = Priority::Idle;
        self.shared.wake.notify_all();
    }

    /// Queues one RSA key. An ECDSA key takes microseconds and is generated when it is waited for.
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
    /// `on_done` is called on this thread for each key when it is ready, with its position in `specs`.
    /// Returns as soon as every key has a winning attempt, without waiting for the others.
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
    /// Blocks until the key is generated.
    pub fn wait(self) -> Result<GeneratedKey, KeyError> {
        let closed = KeyError::PoolClosed { spec: self.spec };
        match self.source {
            Source::Thread { receiver, .. } => receiver.recv().map_or(Err(closed), |(_, result)| result),
            Source::Waiter(generate) => attempt(generate, self.spec),
        }
    }
}

/// The priority of a thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Priority {
    /// Normal priority.
    #[default]
    Normal,
    /// Idle priority.
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
    /// In the order of their start.
    running: Vec<Running>,
    started: u64,
    closed: bool,
    priority: Priority,
}

#[derive(Debug)]
struct Job {
    spec: KeySpec,
    index: usize,
    /// True if a second attempt at this job is allowed.
    may_race: bool,
    reply: Sender<Outcome>,
    /// Dead if the caller has dropped the pending key.
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
            // If the job is gone, another attempt has won, and this key is dropped.
            let job = self.lock().finish(id);
            if let Some(Job { index, reply, .. }) = job {
                // The caller may have dropped the receiver.
                let _ = reply.send((index, result));
            }
        }
    }

    /// Waits for a job, at the priority of the pool; none if the pool is closed.
    fn next_attempt(&self, own: &mut Priority) -> Option<(u64, KeySpec)> {
        // Dropped after the lock.
        let mut forgotten = Vec::new();
        let mut state = self.lock();
        while !state.closed {
            // A thread cannot return from idle priority without a privilege.
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

    /// No code panics while it holds the lock, so a poisoned state is still valid.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Returns the next job of the queue that was not cancelled; else a second attempt at the longest-running job that allows one and
    /// has none yet.
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
        // An ECDSA key is ready before a second attempt could start.
        let is_worth_it =
            |running: &&mut Running| running.job.may_race && !running.is_raced && running.job.spec.curve().is_none();
        let straggler = self.running.iter_mut().find(is_worth_it)?;
        straggler.is_raced = true;
        Some((straggler.id, straggler.job.spec))
    }

    /// Returns the job that this attempt has finished, unless another attempt did.
    fn finish(&mut self, id: u64) -> Option<Job> {
        let position = self.running.iter().position(|running| running.id == id)?;
        Some(self.running.remove(position).job)
    }
}

/// A panic must neither leave a caller waiting nor end a thread.
fn attempt(generate: Generate, spec: KeySpec) -> Result<GeneratedKey, KeyError> {
    let since = Instant::now();
    let key = catch_unwind(|| generate(spec)).unwrap_or(Err(KeyError::Panicked { spec }))?;
    Ok(GeneratedKey { key, took: since.elapsed() })
}

/// Returns a relative cost; only the order matters.
fn relative_cost(spec: KeySpec) -> u32 {
    match spec {
        KeySpec::Rsa(RsaSize::B4096) => 3,
        KeySpec::Rsa(RsaSize::B3072) => 2,
        KeySpec::Rsa(RsaSize::B2048) => 1,
        KeySpec::Ecdsa(_) => 0,
    }
}

/// Uses only idle processor time. If the system does not allow that, keys are generated nevertheless.
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
    fn generated_keys_are_returned_in_the_requested_order() {
        check(2, &["ECDSA P256", "RSA 2048", "ECDSA P384", "RSA 3072", "ECDSA P521", "RSA 4096"]);
    }

    #[test]
    fn more_threads_than_keys_neither_lose_nor_duplicate_a_key() {
        for _ in 0..5 {
            check(4, &["RSA 2048", "ECDSA P256", "RSA 2048"]);
        }
        check(3, &["RSA 2048"]);
        check(1, &["RSA 2048", "RSA 2048", "ECDSA P256"]);
        check(2, &[]);
    }

    #[test]
    fn an_idle_thread_makes_one_second_attempt_at_the_longest_running_rsa_job() {
        check_attempts(
            &[("RSA 4096", true), ("ECDSA P256", true), ("RSA 2048", true)],
            &["0: RSA 4096", "1: ECDSA P256", "2: RSA 2048", "0: RSA 4096", "2: RSA 2048"],
        );
    }

    #[test]
    fn a_single_key_has_no_second_attempt_and_queued_jobs_come_first() {
        check_attempts(&[("RSA 4096", false)], &["0: RSA 4096"]);
        check_attempts(
            &[("RSA 4096", false), ("RSA 3072", true), ("RSA 2048", false)],
            &["0: RSA 4096", "1: RSA 3072", "2: RSA 2048", "1: RSA 3072"],
        );
    }

    /// Checks the attempts of idle threads, one after the other, at jobs that allow a second attempt or not.
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
        /// Blocks long RSA keys until the test ends.
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
        // And an ECDSA key waits for no thread.
        pool.generate("ECDSA P256".parse().unwrap()).wait().unwrap();
        drop(not_yet);
        slow.wait().unwrap();
    }

    #[test]
    fn a_cancelled_key_is_not_generated() {
        static MADE: Mutex<Vec<KeySpec>> = Mutex::new(Vec::new());
        /// Blocks keys until the test releases them.
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
        // A started job cannot be stopped, which is harmless.
        drop(begun);
        let forgotten: Vec<PendingKey> = (0..10).map(|_| pool.generate(unwanted)).collect();
        let wanted = pool.generate(last);
        drop(forgotten);
        drop(not_yet);
        wanted.wait().unwrap();
        assert_eq!(*MADE.lock().unwrap(), [first, last]);
    }

    #[test]
    fn a_panic_is_an_error_for_the_caller_and_the_pool_continues() {
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
    fn a_caller_can_wait_for_a_single_key() {
        let pool = pool(2);
        let pending = KeySpec::ALL.map(|spec| (spec, pool.generate(spec)));
        for (spec, pending) in pending {
            assert_eq!(pending.wait().unwrap().key.spec(), Some(spec));
        }
    }

    #[test]
    fn a_dropped_pool_is_an_error_for_waiting_callers() {
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
        // More threads than in any other test, so that the name of the last one is unique.
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
        assert_eq!(policy_of("keygen-10").as_deref(), Some("0"), "an eager pool has normal priority");
        eager.become_idle();
        while policy_of("keygen-10").as_deref() != Some("5") {
            assert!(Instant::now() < deadline, "policy is {:?}", policy_of("keygen-10"));
            thread::yield_now();
        }
    }
}
