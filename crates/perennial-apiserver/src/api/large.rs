//! Threads for large objects. Checking or reading a large object takes much more memory than it has bytes. So a few threads do this for
//! all requests, and reuse the memory.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{Builder, available_parallelism};

use tokio::runtime::Handle;
use tokio::sync::{Semaphore, oneshot};

use super::internal;
use crate::deadline;
use crate::limits::{LARGE_WRITE_BYTES, LARGE_WRITES_WAITING, READERS};
use crate::status::{ApiError, Reason};

type Job = Box<dyn FnOnce() + Send>;

/// The thread for large writes, and its queue.
#[derive(Debug)]
pub(crate) struct LargeWrites {
    places: Arc<Semaphore>,
    threads: Threads,
}

impl LargeWrites {
    pub(super) fn new() -> LargeWrites {
        let places = Arc::new(Semaphore::new(LARGE_WRITES_WAITING + 1));
        LargeWrites { places, threads: Threads::new("large-writes", 1) }
    }

    /// Returns true if a write of so many bytes is large.
    pub(crate) fn is_large(bytes: usize) -> bool {
        bytes > LARGE_WRITE_BYTES
    }

    /// Does a large write in its turn, until the deadline of its request.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, ApiError> {
        let full = |_| {
            let message = format!("{LARGE_WRITES_WAITING} large writes wait for their turn; try again later");
            ApiError::new(Reason::TooManyRequests, message)
        };
        let place = self.places.clone().try_acquire_owned().map_err(full)?;
        let (runtime, deadline) = (Handle::current(), deadline::current());
        let job = move || {
            let _place = place;
            match deadline {
                Some(deadline) => runtime.block_on(deadline::until(deadline, work)),
                None => Ok(runtime.block_on(work)),
            }
        };
        self.threads.run(job).await.unwrap_or_else(|| Err(internal("the request was not processed")))
    }
}

/// The threads that read objects and serialize them for lists, watches, and requests for large objects. There are no more of them than
/// processors: more would not be faster, and would delay the threads that serve the connections.
#[derive(Debug)]
pub(crate) struct Readers(Threads);

impl Readers {
    pub(super) fn new() -> Readers {
        let processors = available_parallelism().map_or(1, NonZero::get);
        Readers(Threads::new("reader", processors.min(READERS)))
    }

    /// Runs a function in its turn. Returns none if it panics.
    pub(crate) async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        self.0.run(work).await
    }
}

/// Threads that run one function after the other. They start with the first function.
#[derive(Debug)]
struct Threads {
    name: &'static str,
    count: usize,
    jobs: OnceLock<Option<Sender<Job>>>,
}

impl Threads {
    fn new(name: &'static str, count: usize) -> Threads {
        Threads { name, count, jobs: OnceLock::new() }
    }

    /// Returns none if the function panics, or if there is no thread.
    async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        let (done, outcome) = oneshot::channel();
        let jobs = self.jobs.get_or_init(|| self.start()).as_ref()?;
        jobs.send(Box::new(move || drop(done.send(work())))).ok()?;
        outcome.await.ok()
    }

    fn start(&self) -> Option<Sender<Job>> {
        let (sender, jobs) = channel::<Job>();
        let jobs = Arc::new(Mutex::new(jobs));
        let mut started = 0;
        for _ in 0..self.count {
            let jobs = jobs.clone();
            let next = move || jobs.lock().unwrap_or_else(PoisonError::into_inner).recv();
            let work = move || {
                while let Ok(job) = next() {
                    // The waiting request gets an error; the next function runs.
                    drop(catch_unwind(AssertUnwindSafe(job)));
                }
            };
            started += usize::from(Builder::new().name(self.name.to_owned()).spawn(work).is_ok());
        }
        (started > 0).then_some(sender)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn large_writes_run_one_at_a_time_with_a_limited_queue() {
        let writes = Arc::new(LargeWrites::new());
        let go_on = Arc::new(Notify::new());
        let held = go_on.clone();
        let start = |work: futures_util::future::BoxFuture<'static, ()>| {
            let writes = writes.clone();
            tokio::spawn(async move { writes.run(work).await })
        };
        let first = start(Box::pin(async move { held.notified().await }));
        let waiting: Vec<_> = (0..LARGE_WRITES_WAITING).map(|_| start(Box::pin(async {}))).collect();
        tokio::task::yield_now().await;
        assert_eq!(writes.run(async {}).await.unwrap_err().code, 429);
        go_on.notify_one();
        for it in waiting.into_iter().chain([first]) {
            tokio::time::timeout(Duration::from_secs(10), it).await.unwrap().unwrap().unwrap();
        }
        let panics = writes
            .run(async {
                if true {
                    panic!("a test")
                }
            })
            .await;
        assert_eq!(panics.unwrap_err().code, 500);
        assert_eq!(writes.run(async { 5 }).await, Ok(5));
    }

    #[tokio::test]
    async fn the_number_of_concurrent_readers_is_limited() {
        let readers = Arc::new(Readers::new());
        let (busy, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let reads: Vec<_> = (0..50)
            .map(|number| {
                let (readers, busy, most) = (readers.clone(), busy.clone(), most.clone());
                tokio::spawn(async move {
                    let work = move || {
                        most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::sleep(Duration::from_millis(2));
                        busy.fetch_sub(1, Ordering::SeqCst);
                        assert_ne!(number, 7, "a test");
                        number
                    };
                    readers.run(work).await
                })
            })
            .collect();
        for (number, read) in reads.into_iter().enumerate() {
            let read = tokio::time::timeout(Duration::from_secs(10), read).await.unwrap().unwrap();
            assert_eq!(read, (number != 7).then_some(number));
        }
        let most = most.load(Ordering::SeqCst);
        assert!((1..=READERS).contains(&most), "{most}");
    }
}
