//! Tests of the store: every acknowledged write is stored, in order and once.

use std::sync::Arc;

use super::*;

fn key(name: &str) -> Key {
    Key { resource: "secrets".into(), namespace: "shop".into(), name: name.into() }
}

fn put(name: &str, expect: Expect, body: &str) -> Write {
    Write { key: key(name), expect, body: Some(Arc::from(body.as_bytes())) }
}

fn delete(name: &str, revision: u64) -> Write {
    Write { key: key(name), expect: Expect::Revision(revision), body: None }
}

/// Reopens the file as soon as the last writer has closed it.
async fn reopened(path: &std::path::Path) -> Store {
    let opened = async {
        loop {
            match Store::open(path) {
                Ok(store) => return store,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), opened).await.expect("the file is closed")
}

async fn check_conditions(store: Store) {
    assert_eq!(store.write(put("a", Expect::Absent, "1")).await, Ok(1));
    assert!(matches!(store.write(put("a", Expect::Absent, "2")).await, Err(WriteError::Conflict { found: Some(_) })));
    assert_eq!(store.write(put("a", Expect::Revision(1), "2")).await, Ok(2));
    assert!(matches!(store.write(put("a", Expect::Revision(1), "3")).await, Err(WriteError::Conflict { .. })));
    assert!(matches!(store.write(put("b", Expect::Revision(2), "1")).await, Err(WriteError::Conflict { found: None })));
    assert_eq!(store.write(delete("a", 2)).await, Ok(3));
    assert_eq!(store.get(&key("a")), None);
    assert_eq!(store.write(put("a", Expect::Absent, "4")).await, Ok(4));
    assert_eq!(store.revision(), 4);
    let kinds: Vec<(u64, bool, bool)> =
        store.changes_after(0).unwrap().iter().map(|it| (it.revision, it.old.is_some(), it.new.is_some())).collect();
    assert_eq!(kinds, [(1, false, true), (2, true, true), (3, true, false), (4, false, true)]);
}

#[tokio::test]
async fn a_write_succeeds_only_in_the_expected_state() {
    check_conditions(Store::memory()).await;
    let directory = tempfile::tempdir().unwrap();
    check_conditions(Store::open(&directory.path().join("state.db")).unwrap()).await;
}

#[tokio::test]
async fn a_list_covers_one_resource_and_can_be_continued() {
    let store = Store::memory();
    for (resource, namespace, name) in [
        ("secrets", "a", "x"),
        ("secrets", "b", "y"),
        ("secrets", "b", "z"),
        ("pods", "b", "p"),
        ("secretsx", "b", "q"),
    ] {
        let key = Key { resource: resource.into(), namespace: namespace.into(), name: name.into() };
        store.write(Write { key, expect: Expect::Absent, body: Some(Arc::from(&b"{}"[..])) }).await.unwrap();
    }
    let names = |namespace: Option<&str>, after: Option<&Key>| {
        let (revision, list) = store.list("secrets", namespace, after);
        assert_eq!(revision, 5);
        list.iter().map(|(key, _)| key.name.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(None, None), ["x", "y", "z"]);
    assert_eq!(names(Some("b"), None), ["y", "z"]);
    let after = Key { resource: "secrets".into(), namespace: "b".into(), name: "y".into() };
    assert_eq!(names(None, Some(&after)), ["z"]);
    assert_eq!(names(Some("c"), None), Vec::<String>::new());
}

#[tokio::test]
async fn acknowledged_writes_survive_the_process() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data").join("state.db");
    let store = Store::open(&path).unwrap();
    for number in 0..5 {
        store.write(put(&number.to_string(), Expect::Absent, "{}")).await.unwrap();
    }
    store.write(delete("4", 5)).await.unwrap();
    // As after a crash: the file in its current state, while the other store is still open.
    let copy = directory.path().join("copy.db");
    for ending in ["", "-wal"] {
        std::fs::copy(format!("{}{ending}", path.display()), format!("{}{ending}", copy.display())).unwrap();
    }
    let again = Store::open(&copy).unwrap();
    assert_eq!(again.revision(), 6, "a deletion counts, although nothing has its revision");
    assert_eq!(again.list("secrets", None, None).1, store.list("secrets", None, None).1);
    // The log does not contain changes from before the start.
    assert_eq!(again.changes_after(5), Err(TooOld { asked: 5, remembered: 6 }));
    assert_eq!(again.changes_after(6), Ok(Vec::new()));
}

#[tokio::test]
async fn a_file_is_private_and_has_one_owner() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data").join("state.db");
    let store = Store::open(&path).unwrap();
    store.write(put("a", Expect::Absent, "{}")).await.unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    for entry in std::fs::read_dir(path.parent().unwrap()).unwrap() {
        let entry = entry.unwrap().path();
        assert_eq!(mode(&entry), 0o600, "{}", entry.display());
    }
    assert!(matches!(Store::open(&path), Err(OpenError::InUse { .. })));
    drop(store);
    reopened(&path).await;
}

#[tokio::test]
async fn a_file_of_another_program_is_rejected() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("text.db");
    std::fs::write(&text, "not a database, and long enough to be looked at as one".repeat(100)).unwrap();
    let other = directory.path().join("other.db");
    rusqlite::Connection::open(&other).unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
    for path in [text, other] {
        let error = Store::open(&path).unwrap_err().to_string();
        assert!(error.contains("is not a database of this program"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn concurrent_writes_get_different_revisions() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("state.db");
    let store = Store::open(&path).unwrap();
    let writers: Vec<_> = (0..64)
        .map(|number| {
            let store = store.clone();
            tokio::spawn(async move { store.write(put(&format!("{number:02}"), Expect::Absent, "{}")).await.unwrap() })
        })
        .collect();
    let mut revisions = Vec::new();
    for writer in writers {
        revisions.push(writer.await.unwrap());
    }
    revisions.sort_unstable();
    assert_eq!(revisions, (1..=64).collect::<Vec<_>>());
    drop(store);
    assert_eq!(reopened(&path).await.list("secrets", None, None).1.len(), 64);
}

#[tokio::test]
async fn one_of_many_concurrent_writers_of_an_object_wins_each_round() {
    let store = Store::memory();
    store.write(put("a", Expect::Absent, "0")).await.unwrap();
    let (one, other) =
        tokio::join!(store.write(put("a", Expect::Revision(1), "1")), store.write(put("a", Expect::Revision(1), "2")));
    assert_eq!([&one, &other].into_iter().filter(|outcome| outcome.is_ok()).count(), 1, "{one:?} {other:?}");
}

#[tokio::test]
async fn watchers_get_a_write_when_it_is_acknowledged() {
    let store = Store::memory();
    let mut acknowledged = store.acknowledged();
    store.write(put("a", Expect::Absent, "{}")).await.unwrap();
    acknowledged.changed().await.unwrap();
    assert_eq!(*acknowledged.borrow(), 1);
}

#[tokio::test]
async fn the_log_drops_old_changes() {
    let store = Store::memory();
    let body = "x".repeat(1 << 20);
    for number in 0..40 {
        store.write(put(&number.to_string(), Expect::Absent, &body)).await.unwrap();
    }
    assert!(matches!(store.changes_after(0), Err(TooOld { asked: 0, .. })));
    assert!(store.changes_after(39).is_ok());
}

/// A disk that fails at the first write, and blocks until another write waits.
struct FailingDisk {
    failure: Option<fn() -> Result<(), String>>,
    begun: Arc<tokio::sync::Notify>,
    others_wait: std::sync::mpsc::Receiver<()>,
}

impl Durable for FailingDisk {
    fn commit(&mut self, _: &[Change]) -> Result<(), CommitError> {
        let Some(failure) = self.failure.take() else { return Ok(()) };
        self.begun.notify_one();
        self.others_wait.recv_timeout(LONGEST_WAIT).expect("another write waits");
        failure().map_err(CommitError::Failed)
    }
}

const LONGEST_WAIT: std::time::Duration = std::time::Duration::from_secs(10);

/// Returns the results of the failing write, of a write that waits for it, and of a later one.
async fn after_failure(failure: fn() -> Result<(), String>) -> [Result<u64, WriteError>; 3] {
    let (begun, (wait, others_wait)) = (Arc::<tokio::sync::Notify>::default(), std::sync::mpsc::channel());
    let disk = FailingDisk { failure: Some(failure), begun: begun.clone(), others_wait };
    let store = Store::new(BTreeMap::new(), 0, Some(Box::new(disk)));
    let second = async {
        begun.notified().await;
        // In this order: the write waits, and then the disk learns of it.
        let told = async { wait.send(()).expect("the disk waits for it") };
        futures_util::future::join(store.write(put("b", Expect::Absent, "1")), told).await.0
    };
    let all = async {
        let (first, second) = tokio::join!(store.write(put("a", Expect::Absent, "1")), second);
        [first, second, store.write(put("c", Expect::Absent, "1")).await]
    };
    tokio::time::timeout(LONGEST_WAIT, all).await.expect("every write gets an answer")
}

#[tokio::test]
async fn the_next_write_may_succeed_after_a_disk_error() {
    let [first, second, third] = after_failure(|| Err("full".to_owned())).await;
    assert_eq!(first, Err(WriteError::Disk { why: "full".to_owned() }));
    assert_eq!((second, third), (Ok(1), Ok(2)));
}

#[tokio::test]
async fn a_panic_during_a_commit_fails_all_waiting_writes_and_the_next_write_succeeds() {
    let [first, second, third] = after_failure(|| panic!("the disk is on fire")).await;
    let interrupted = Err(WriteError::Disk { why: "it was interrupted".to_owned() });
    assert_eq!([&first, &second], [&interrupted, &interrupted]);
    assert_eq!(third, Ok(1));
}

/// A full disk: after its reserve is released, it accepts only deletions.
struct FullDisk {
    has_space: Arc<std::sync::atomic::AtomicBool>,
    has_reserve: bool,
}

impl Durable for FullDisk {
    fn commit(&mut self, changes: &[Change]) -> Result<(), CommitError> {
        let is_freeing = changes.iter().all(|change| change.new.is_none());
        let has_space = self.has_space.load(std::sync::atomic::Ordering::Relaxed);
        if has_space || (is_freeing && !self.has_reserve) { Ok(()) } else { Err(CommitError::Full("full".to_owned())) }
    }

    fn use_reserve(&mut self) {
        self.has_reserve = false;
    }

    fn restore_reserve(&mut self) {
        self.has_reserve = true;
    }
}

impl Store {
    /// Returns a store on a full disk.
    pub(crate) fn with_full_disk() -> Store {
        let disk = FullDisk { has_space: Arc::default(), has_reserve: true };
        Store::new(BTreeMap::new(), 0, Some(Box::new(disk)))
    }
}

#[tokio::test]
async fn a_full_disk_is_reported_and_accepts_deletions() {
    let has_space = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let disk = FullDisk { has_space: has_space.clone(), has_reserve: true };
    let store = Store::new(BTreeMap::new(), 0, Some(Box::new(disk)));
    store.write(put("a", Expect::Absent, "{}")).await.unwrap();
    store.write(put("c", Expect::Absent, "{}")).await.unwrap();
    assert_eq!(store.disk_full(), None);
    has_space.store(false, std::sync::atomic::Ordering::Relaxed);
    let full = || Err(WriteError::Full { why: "full".to_owned() });
    assert_eq!(store.write(put("b", Expect::Absent, "{}")).await, full());
    assert!(store.disk_full().unwrap().contains("no space on the disk of the database (full)"));
    assert_eq!(store.write(delete("a", 1)).await, Ok(3));
    assert_eq!(store.write(delete("c", 2)).await, Ok(4));
    assert!(store.disk_full().is_some());
    assert_eq!(store.write(put("b", Expect::Absent, "{}")).await, full());
    has_space.store(true, std::sync::atomic::Ordering::Relaxed);
    assert_eq!(store.write(put("b", Expect::Absent, "{}")).await, Ok(5));
    assert_eq!(store.disk_full(), None);
}

#[tokio::test]
async fn a_page_has_the_state_of_its_revision() {
    let store = Store::memory();
    for name in ["a", "c", "e", "g"] {
        store.write(put(name, Expect::Absent, "1")).await.unwrap();
    }
    store.write(put("c", Expect::Revision(2), "2")).await.unwrap();
    store.write(put("b", Expect::Absent, "2")).await.unwrap();
    store.write(delete("e", 3)).await.unwrap();
    let page = |after: Option<&str>, most: usize| -> Vec<(String, u64)> {
        let page = store.page_at(4, ("secrets", Some("shop")), after.map(key).as_ref(), most).unwrap();
        page.into_iter().map(|(key, stored)| (key.name.to_string(), stored.revision)).collect()
    };
    let found =
        |expected: &[(&str, u64)]| expected.iter().map(|(name, at)| ((*name).to_owned(), *at)).collect::<Vec<_>>();
    assert_eq!(page(None, 2), found(&[("a", 1), ("c", 2)]));
    assert_eq!(page(Some("c"), 2), found(&[("e", 3), ("g", 4)]));
    assert_eq!(page(Some("g"), 2), found(&[]));
    assert_eq!(page(None, 10).len(), 4);
    assert_eq!(store.next_changes(0, 1).unwrap().len(), 1);
    assert_eq!(store.next_changes(0, usize::MAX).unwrap().len(), 7);
}
