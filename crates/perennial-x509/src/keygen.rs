//! Generates keys on a bounded number of threads at idle priority, so that nobody else waits for them.
//!
//! How long an RSA key takes is random with a long tail. A thread with nothing else to do therefore
//! races the job that has been running longest; whichever attempt ends first wins, and the other key
//! is dropped. Generating cannot be interrupted, so a lost attempt holds its thread until it ends;
//! at most one such attempt is made per job.

use std::collections::VecDeque;
use std::io;
use std::num::NonZeroUsize;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
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

/// A key that is being generated.
#[derive(Debug)]
pub struct PendingKey {
    spec: KeySpec,
    receiver: Receiver<Outcome>,
}

impl KeyPool {
    /// Starts this many threads.
    pub fn new(threads: NonZeroUsize) -> io::Result<KeyPool> {
        // Dropped on an early return, which ends the threads already started.
        let pool = KeyPool { shared: Arc::default() };
        for number in 0..threads.get() {
            let shared = Arc::clone(&pool.shared);
            thread::Builder::new().name(format!("keygen-{number}")).spawn(move || {
                lower_priority();
                shared.work();
            })?;
        }
        Ok(pool)
    }

    /// Queues one key. An ECDSA key takes microseconds, so it overtakes the RSA keys in the queue.
    pub fn generate(&self, spec: KeySpec) -> PendingKey {
        let (reply, receiver) = mpsc::channel();
        let job = Job { spec, index: 0, reply };
        let mut state = self.shared.lock();
        match spec {
            KeySpec::Rsa(_) => state.queue.push_back(job),
            KeySpec::Ecdsa(_) => state.queue.push_front(job),
        }
        drop(state);
        self.shared.wake.notify_all();
        PendingKey { spec, receiver }
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
        let mut jobs: Vec<_> = specs.iter().enumerate().collect();
        jobs.sort_by_key(|(_, spec)| std::cmp::Reverse(relative_cost(**spec)));
        let mut state = self.shared.lock();
        state.queue.extend(jobs.into_iter().map(|(index, &spec)| Job { spec, index, reply: reply.clone() }));
        drop((state, reply));
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
        state.queue.clear();
        drop(state);
        self.shared.wake.notify_all();
    }
}

impl PendingKey {
    /// Blocks until the key is there.
    pub fn wait(self) -> Result<GeneratedKey, KeyError> {
        self.receiver.recv().map_or(Err(KeyError::PoolClosed { spec: self.spec }), |(_, result)| result)
    }
}

#[derive(Debug, Default)]
struct Shared {
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
}

#[derive(Debug)]
struct Job {
    spec: KeySpec,
    index: usize,
    reply: Sender<Outcome>,
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
        let mut state = self.lock();
        while !state.closed {
            let Some((id, spec)) = state.next_attempt() else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(state);
            let since = Instant::now();
            let result = PrivateKey::generate(spec).map(|key| GeneratedKey { key, took: since.elapsed() });
            state = self.lock();
            // Where the job is gone, another attempt has won, and this key is dropped.
            if let Some(position) = state.running.iter().position(|running| running.id == id) {
                let Job { index, reply, .. } = state.running.remove(position).job;
                // Whoever asked may have lost interest.
                let _ = reply.send((index, result));
            }
        }
    }

    /// No code can panic while it holds the lock, so a poisoned state is still a good one.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The next job of the queue; else a race with the longest-running job that has none yet.
    fn next_attempt(&mut self) -> Option<(u64, KeySpec)> {
        if let Some(job) = self.queue.pop_front() {
            let (id, spec) = (self.started, job.spec);
            self.started += 1;
            self.running.push(Running { id, job, is_raced: false });
            return Some((id, spec));
        }
        // An ECDSA key is there before a race for it could start.
        let is_worth_it = |running: &&mut Running| !running.is_raced && running.job.spec.curve().is_none();
        let straggler = self.running.iter_mut().find(is_worth_it)?;
        straggler.is_raced = true;
        Some((straggler.id, straggler.job.spec))
    }
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
        let mut state = State::default();
        let (reply, _receiver) = mpsc::channel();
        for (index, spec) in ["RSA 4096", "ECDSA P256", "RSA 2048"].into_iter().enumerate() {
            state.queue.push_back(Job { spec: spec.parse().unwrap(), index, reply: reply.clone() });
        }
        let mut next = || state.next_attempt().map(|(id, spec)| format!("{id}: {spec}"));
        let expected = ["0: RSA 4096", "1: ECDSA P256", "2: RSA 2048", "0: RSA 4096", "2: RSA 2048"];
        assert_eq!([next(), next(), next(), next(), next()], expected.map(|text| Some(text.to_owned())));
        assert_eq!(next(), None);
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
    }
}
