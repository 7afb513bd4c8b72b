//! Servers that the tests of one nextest run use in turn.
//!
//! Each test is a process of its own. A test holds the lock of a slot until its process ends, so that tasks and programs of the test
//! that are late cannot reach the servers of another test.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::etcd_keys::EtcdKeys;
use super::reset::Baseline;
use super::supervisor::Supervisor;
use super::{ControlPlane, KUBECONFIG, Launch, StartError, client, fetch, read_kubeconfig, write_private};
use crate::ToolError;

/// A directory of servers, which end with a process.
#[derive(Debug)]
pub struct ServerPool {
    dir: PathBuf,
    process: u32,
}

/// The right to use the servers of a slot. Dropping it lets only this process use them again.
#[derive(Debug)]
pub(super) struct Lease {
    slot: Slot,
}

/// One slot for each test that runs at the same time: more tests than this start their own servers.
const SLOTS: usize = 64;

/// The time in which a healthy server says so.
const HEALTHY_WITHIN: Duration = Duration::from_secs(10);

impl ServerPool {
    /// Returns the servers in this directory, which end when this process ends.
    ///
    /// The first lease creates the directory. Only this user may have access to it.
    pub fn new(dir: PathBuf, process: u32) -> ServerPool {
        ServerPool { dir, process }
    }

    /// Returns the servers of the nextest run that started this process as a test, if there is one.
    pub fn of_this_run() -> Option<ServerPool> {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        if variable("PERENNIAL_OWN_SERVERS").is_some_and(|value| value == "1")
            || variable("NEXTEST_EXECUTION_MODE").is_none_or(|mode| mode != "process-per-test")
        {
            return None;
        }
        let is_plain = |run: &String| run.chars().all(|it| it.is_ascii_alphanumeric() || it == '-');
        let run = variable("NEXTEST_RUN_ID").filter(is_plain)?;
        // A debugger or a runner between nextest and the test ends before the run does.
        let parent = std::os::unix::process::parent_id();
        let name = fs::read_to_string(format!("/proc/{parent}/comm")).unwrap_or_default();
        let dir = std::env::temp_dir().join(format!("perennial-servers-{run}"));
        (name.trim_end() == "cargo-nextest").then(|| ServerPool::new(dir, parent))
    }

    /// Returns a control plane with only the objects of a new one.
    ///
    /// Servers that do not run, that do not answer, that cannot be reset, or whose last test was killed are replaced.
    pub async fn lease(&self) -> Result<ControlPlane, StartError> {
        self.create_directory()?;
        let Some(slot) = self.take_slot()? else { return ControlPlane::start().await };
        if slot.dir.exists() {
            if let Err(reason) = slot.reset().await {
                report_replacement(&slot.dir, &reason);
                Supervisor::of(&slot.dir).stop().await?;
                slot.start_servers(self.process).await?;
            }
        } else {
            slot.start_servers(self.process).await?;
        }
        let in_use = slot.dir.join(IN_USE);
        write_private(&in_use, &std::process::id().to_string())?;
        ControlPlane::on(Lease { slot }).await
    }

    fn create_directory(&self) -> Result<(), StartError> {
        let dir = &self.dir;
        match DirBuilder::new().mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(ToolError::file(dir)(error).into());
            }
            _ => {}
        }
        let found = fs::symlink_metadata(dir).map_err(ToolError::file(dir))?;
        // The kernel gives this directory to the user of this process.
        let this = Path::new("/proc/self");
        let user = fs::metadata(this).map_err(ToolError::file(this))?.uid();
        if found.is_dir() && found.uid() == user && found.mode() & 0o077 == 0 {
            Ok(())
        } else {
            Err(StartError::NotPrivate { path: dir.clone() })
        }
    }

    /// Takes a slot that this process has locked and does not use, or else locks the first free one.
    fn take_slot(&self) -> Result<Option<Slot>, StartError> {
        let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(slot) = locked.iter_mut().find(|it| it.lock.starts_with(&self.dir) && !it.is_used) {
            slot.is_used = true;
            return Ok(Some(Slot::of(&slot.lock)));
        }
        for number in 0..SLOTS {
            let lock = self.dir.join(format!("slot-{number}.lock"));
            let file = File::options().create(true).truncate(false).write(true).open(&lock);
            let file = file.map_err(ToolError::file(&lock))?;
            match file.try_lock() {
                Ok(()) => {
                    let slot = Slot::of(&lock);
                    locked.push(Locked { lock, _file: file, is_used: true });
                    return Ok(Some(slot));
                }
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(ToolError::file(&lock)(error).into()),
            }
        }
        Ok(None)
    }
}

/// The slots that this process has locked. The kernel unlocks them when the process ends.
static LOCKED: Mutex<Vec<Locked>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Locked {
    lock: PathBuf,
    _file: File,
    is_used: bool,
}

/// A slot that this process has locked and uses. It is free for this process when it is dropped.
#[derive(Debug)]
struct Slot {
    lock: PathBuf,
    /// The directory of the servers.
    dir: PathBuf,
}

/// Exists only from the beginning of a lease to its end: a test that is killed leaves it behind, and perhaps its programs as well.
const IN_USE: &str = "in-use";
const BASELINE: &str = "baseline.json";
const ETCD_PORT: &str = "etcd.port";

impl Slot {
    fn of(lock: &Path) -> Slot {
        Slot { lock: lock.to_owned(), dir: lock.with_extension("") }
    }

    /// Starts new servers, and records their state.
    async fn start_servers(&self, process: u32) -> Result<(), StartError> {
        let made = DirBuilder::new().mode(0o700).create(&self.dir);
        made.map_err(ToolError::file(&self.dir))?;
        let start = async || {
            let launch = Launch::prepare(&self.dir)?;
            let supervisor = Supervisor::start(&self.dir, &self.lock, &launch, process)?;
            self.record_state(&supervisor, &launch).await
        };
        let started = start().await;
        if started.is_err() {
            // The first error says more.
            let _ = Supervisor::of(&self.dir).stop().await;
        }
        started
    }

    /// Waits until new servers are ready, and records their state.
    async fn record_state(&self, supervisor: &Supervisor, launch: &Launch) -> Result<(), StartError> {
        let (mut etcd, mut api_server) = (supervisor.etcd(), supervisor.api_server());
        let config = launch.wait_until_ready(&self.dir, &mut etcd, &mut api_server).await?;
        let port = launch.ports[1].number();
        let failed = |reason| StartError::Baseline { reason };
        let etcd = EtcdKeys::at(port).map_err(failed)?;
        let baseline = Baseline::record(&etcd, &client(&config).await?).await.map_err(failed)?;
        write_private(&self.dir.join(ETCD_PORT), &port.to_string())?;
        let text = serde_json::to_string(&baseline).expect("a baseline has no maps with keys other than text");
        // Only a complete file has the name.
        let [new, complete] = ["new", "json"].map(|extension| self.dir.join(BASELINE).with_extension(extension));
        write_private(&new, &text)?;
        Ok(fs::rename(&new, &complete).map_err(ToolError::file(&complete))?)
    }

    /// Gives the servers the state back that they had when they were new, or says why they are of no use.
    async fn reset(&self) -> Result<(), String> {
        if !Supervisor::of(&self.dir).is_whole() {
            return Err("a server has ended".to_owned());
        }
        let read = |name: &str| fs::read_to_string(self.dir.join(name)).ok();
        let (Some(baseline), Some(port)) = (read(BASELINE), read(ETCD_PORT)) else {
            return Err("the test that started them was killed before they were ready".to_owned());
        };
        if let Some(process) = read(IN_USE) {
            return Err(format!("the test with the process id {process} was killed while it used them"));
        }
        let baseline: Baseline = serde_json::from_str(&baseline).map_err(|error| error.to_string())?;
        let etcd = EtcdKeys::at(port.parse().map_err(|_| format!("{port} is not a port"))?)?;
        let api = read(KUBECONFIG).ok_or("there is no kubeconfig")?;
        let api = client(&read_kubeconfig(&api)).await.map_err(|error| error.to_string())?;
        let ready = tokio::time::timeout(HEALTHY_WITHIN, fetch(&api, "/readyz")).await;
        ready.map_err(|_| "the kube-apiserver does not answer".to_owned())??;
        baseline.reset(&etcd, &api).await
    }
}

impl Lease {
    /// Returns the directory of the servers.
    pub(super) fn directory(&self) -> &Path {
        &self.slot.dir
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // The file is missing if the process ended with which the servers end.
        let _ = fs::remove_file(self.slot.dir.join(IN_USE));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut locked = LOCKED.lock().unwrap_or_else(PoisonError::into_inner);
        locked.iter_mut().filter(|it| it.lock == self.lock).for_each(|it| it.is_used = false);
    }
}

#[expect(clippy::print_stderr, reason = "says why a test takes longer")]
fn report_replacement(servers: &Path, reason: &str) {
    eprintln!("the servers in {} are replaced: {reason}", servers.display());
}
