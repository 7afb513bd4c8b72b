//! Acknowledged writes of a store are on the disk. The test uses the system calls of its process, as strace
//! recorded them, not the page cache.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod trace;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use perennial_apiserver::store::{Expect, Key, Store, Write as StoreWrite};
use perennial_testbed::ToolError;
use trace::{Disk, Event, Unsynced};

/// The directory of the child process.
const DIRECTORY: &str = "PERENNIAL_DURABILITY_DIRECTORY";
const WRITERS: usize = 8;
/// Enough writes for one or two checkpoints of the log.
const ACKNOWLEDGED: usize = 600;
const NAME: &str = "acknowledged_writes_survive_a_crash_of_the_machine";

#[test]
fn acknowledged_writes_survive_a_crash_of_the_machine() {
    if let Some(directory) = env::var_os(DIRECTORY) {
        return write_until_killed(Path::new(&directory));
    }
    let top = tempfile::tempdir().unwrap();
    // strace names files by their real paths.
    let top = fs::canonicalize(top.path()).unwrap();
    let (directory, log) = (top.join("data"), top.join("trace"));
    let heard = run_and_kill(&directory, &log);
    assert!(heard.len() >= ACKNOWLEDGED);

    // First the visible part: after kill -9, the file has every acknowledged write, and can be used again.
    let after_kill = contents(&directory);
    let (objects, revision) = &after_kill;
    for (name, at) in &heard {
        assert_eq!(objects.get(name), Some(at), "{name} was acknowledged");
    }
    assert!(heard.values().all(|at| at <= revision));

    // Then what a power failure would have left: whatever instant it came at, whatever the disk did with writes that
    // nobody had waited for.
    let events = trace::read(&log, &directory);
    let mut disk = Disk::default();
    let (mut acknowledged, mut cuts) = (BTreeMap::new(), 0);
    for event in &events {
        disk.apply(event);
        if let Event::Said(line) = event {
            let (name, at) = acknowledgement(line);
            acknowledged.insert(name, at);
            // Each crash costs an open database; every fifth is enough to meet every phase of the log.
            if acknowledged.len() % 5 == 0 {
                cuts += 1;
                for fate in [Unsynced::Lost, Unsynced::Kept, Unsynced::SomeSectors { seed: cuts }] {
                    check_crash(&top.join("crash"), &disk, fate, &acknowledged);
                }
            }
        }
    }
    assert!(cuts > 100, "{cuts} crashes");
    assert!(disk.synced_more_than("perennial.db"), "the log was never copied into the database: write more");
    assert!(disk.has_synced_directory(), "a new file is only there when its directory is synchronised");
}

/// The child process: writes from several tasks at a time, and prints the acknowledged writes.
fn write_until_killed(directory: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().unwrap();
    runtime.block_on(async {
        let store = Store::open(&directory.join("perennial.db")).unwrap();
        say(&format!("{}\n", std::process::id()));
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let store = store.clone();
                tokio::spawn(async move {
                    for number in 0.. {
                        let name = format!("w{writer}-{number}");
                        let write = StoreWrite { key: key(&name), expect: Expect::Absent, body: Some(body(&name)) };
                        let revision = store.write(write).await.unwrap();
                        say(&format!("{name} {revision}\n"));
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap();
        }
    });
}

/// One system call for each line.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(line.as_bytes()).unwrap();
    out.flush().unwrap();
}

fn key(name: &str) -> Key {
    Key { resource: "secrets".into(), namespace: "shop".into(), name: name.into() }
}

/// About 5 KiB that are unique for this name.
fn body(name: &str) -> Arc<[u8]> {
    format!("{{\"name\":\"{name}\",\"data\":\"{}\"}}", name.repeat(5000 / name.len())).into_bytes().into()
}

/// Runs the child under strace, kills it in the middle of its writes, and returns the acknowledged ones.
fn run_and_kill(directory: &Path, log: &Path) -> BTreeMap<String, u64> {
    let mut command = Command::new("strace");
    command.args([
        "-f",
        "-y",
        "-xx",
        "-s",
        "10000000",
        "-e",
        "trace=pwrite64,write,fdatasync,fsync,ftruncate,unlink",
        "-o",
    ]);
    command.arg(log).arg(env::current_exe().unwrap()).args(["--exact", NAME, "--nocapture"]);
    command.env(DIRECTORY, directory).stdout(Stdio::piped());
    let spawned = command.spawn().map_err(|_| ToolError::Missing { tool: "strace".to_owned() });
    let mut strace = spawned.unwrap_or_else(|error| panic!("{error}"));
    let mut lines = BufReader::new(strace.stdout.take().unwrap()).lines();
    let is_number = |line: &String| line.parse::<u32>().is_ok();
    let process = lines.by_ref().map(Result::unwrap).find(is_number).expect("the child says its number");
    let mut heard = BTreeMap::new();
    for line in lines {
        let (name, at) = acknowledgement(&line.unwrap());
        heard.insert(name, at);
        if heard.len() == ACKNOWLEDGED {
            assert!(Command::new("kill").args(["-KILL", &process]).status().unwrap().success());
        }
    }
    strace.wait().unwrap();
    heard
}

fn acknowledgement(line: &str) -> (String, u64) {
    let (name, revision) = line.trim_end().split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
    (name.to_owned(), revision.parse().unwrap())
}

/// Returns the names and revisions of the complete objects in a store, and its revision.
fn contents(directory: &Path) -> (BTreeMap<String, u64>, u64) {
    let store = Store::open(&directory.join("perennial.db")).unwrap();
    let (revision, objects) = store.list("secrets", None, None);
    let mut found = BTreeMap::new();
    for (key, stored) in objects {
        assert_eq!(stored.body, body(&key.name), "{} is not whole", key.name);
        found.insert(key.name.to_string(), stored.revision);
    }
    (found, revision)
}

fn check_crash(directory: &Path, disk: &Disk, fate: Unsynced, acknowledged: &BTreeMap<String, u64>) {
    let _ = fs::remove_dir_all(directory);
    fs::create_dir(directory).unwrap();
    disk.write(directory, fate);
    let (objects, revision) = contents(directory);
    for (name, at) in acknowledged {
        assert_eq!(objects.get(name), Some(at), "{name} was acknowledged, and unsynchronised writes are {fate:?}");
    }
    assert!(acknowledged.values().all(|at| *at <= revision), "{fate:?}");
}
