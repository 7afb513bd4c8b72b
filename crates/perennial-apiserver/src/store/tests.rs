//! What is acknowledged is there, in order, once.

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

/// The file as soon as whoever wrote last has let go of it.
async fn reopened(path: &std::path::Path) -> Store {
    let opened = async {
        loop {
            match Store::open(path) {
                Ok(store) => return store,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(10), opened).await.expect("somebody lets go of the file")
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
async fn a_write_happens_only_if_the_object_is_what_the_writer_saw() {
    check_conditions(Store::memory()).await;
    let directory = tempfile::tempdir().unwrap();
    check_conditions(Store::open(&directory.path().join("state.db")).unwrap()).await;
}

#[tokio::test]
async fn a_list_is_of_one_resource_and_goes_on_where_it_stopped() {
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
async fn what_was_acknowledged_is_there_after_the_process_is_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data").join("state.db");
    let store = Store::open(&path).unwrap();
    for number in 0..5 {
        store.write(put(&number.to_string(), Expect::Absent, "{}")).await.unwrap();
    }
    store.write(delete("4", 5)).await.unwrap();
    // As after a crash: the file as it is now, while the other still runs.
    let copy = directory.path().join("copy.db");
    for ending in ["", "-wal"] {
        std::fs::copy(format!("{}{ending}", path.display()), format!("{}{ending}", copy.display())).unwrap();
    }
    let again = Store::open(&copy).unwrap();
    assert_eq!(again.revision(), 6, "a deletion counts, although nothing has its revision");
    assert_eq!(again.list("secrets", None, None).1, store.list("secrets", None, None).1);
    // The past before the start is gone.
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
async fn a_file_that_is_not_ours_is_refused() {
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
async fn many_writers_each_get_a_revision_of_their_own() {
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
async fn of_many_writers_of_one_object_one_wins_each_time() {
    let store = Store::memory();
    store.write(put("a", Expect::Absent, "0")).await.unwrap();
    let (one, other) =
        tokio::join!(store.write(put("a", Expect::Revision(1), "1")), store.write(put("a", Expect::Revision(1), "2")));
    assert_eq!([&one, &other].into_iter().filter(|outcome| outcome.is_ok()).count(), 1, "{one:?} {other:?}");
}

#[tokio::test]
async fn watchers_are_told_when_it_is_acknowledged() {
    let store = Store::memory();
    let mut acknowledged = store.acknowledged();
    store.write(put("a", Expect::Absent, "{}")).await.unwrap();
    acknowledged.changed().await.unwrap();
    assert_eq!(*acknowledged.borrow(), 1);
}

#[tokio::test]
async fn the_past_is_forgotten_beyond_a_limit() {
    let store = Store::memory();
    let body = "x".repeat(1 << 20);
    for number in 0..40 {
        store.write(put(&number.to_string(), Expect::Absent, &body)).await.unwrap();
    }
    assert!(matches!(store.changes_after(0), Err(TooOld { asked: 0, .. })));
    assert!(store.changes_after(39).is_ok());
}

/// A disk with some trouble at the first write, which goes on until somebody else waits, too.
struct Troubled {
    trouble: Option<fn() -> Result<(), String>>,
    begun: Arc<tokio::sync::Notify>,
    others_wait: std::sync::mpsc::Receiver<()>,
}

impl Durable for Troubled {
    fn commit(&mut self, _: &[Change]) -> Result<(), String> {
        let Some(trouble) = self.trouble.take() else { return Ok(()) };
        self.begun.notify_one();
        self.others_wait.recv_timeout(PATIENCE).expect("somebody else writes");
        trouble()
    }
}

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

/// What becomes of the write in trouble, of one that waits for it, and of one afterwards.
async fn after_trouble(trouble: fn() -> Result<(), String>) -> [Result<u64, WriteError>; 3] {
    let (begun, (wait, others_wait)) = (Arc::<tokio::sync::Notify>::default(), std::sync::mpsc::channel());
    let disk = Troubled { trouble: Some(trouble), begun: begun.clone(), others_wait };
    let store = Store::new(BTreeMap::new(), 0, Some(Box::new(disk)));
    let second = async {
        begun.notified().await;
        // In this order: it waits, and then it is told that it does.
        let told = async { wait.send(()).expect("the disk waits for it") };
        futures_util::future::join(store.write(put("b", Expect::Absent, "1")), told).await.0
    };
    let all = async {
        let (first, second) = tokio::join!(store.write(put("a", Expect::Absent, "1")), second);
        [first, second, store.write(put("c", Expect::Absent, "1")).await]
    };
    tokio::time::timeout(PATIENCE, all).await.expect("everybody gets an answer")
}

#[tokio::test]
async fn a_disk_that_refuses_may_take_the_next_write() {
    let [first, second, third] = after_trouble(|| Err("full".to_owned())).await;
    assert_eq!(first, Err(WriteError::Disk { why: "full".to_owned() }));
    assert_eq!((second, third), (Ok(1), Ok(2)));
}

#[tokio::test]
async fn a_panic_while_writing_is_told_to_all_who_wait_and_the_next_write_is_made() {
    let [first, second, third] = after_trouble(|| panic!("the disk is on fire")).await;
    let interrupted = Err(WriteError::Disk { why: "it was interrupted".to_owned() });
    assert_eq!([&first, &second], [&interrupted, &interrupted]);
    assert_eq!(third, Ok(1));
}
