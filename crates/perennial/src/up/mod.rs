//! The embedded control plane: a store in a directory, an API server on it, the operator, and a kubeconfig.

mod cluster;
mod door;
mod identity;
#[cfg(test)]
mod tests;
mod wishes;

use std::fs::{self, DirBuilder, Permissions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use kube_client::Client;
use perennial_apiserver::api::Api;
use perennial_apiserver::environment::Environment;
use perennial_apiserver::store::{OpenError, Store};
use perennial_core::catalog::Catalog;
use perennial_core::plan::Planner;
use perennial_operator::observe::View;
use perennial_operator::pass::Passed;
use perennial_operator::run::Runner;
use perennial_x509::{KeyPool, random};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

use crate::commands::threads;
use crate::install::staging::replace_secret_file;
use crate::{clock, talk};
use door::Door;
use identity::Identity;

pub(crate) use wishes::{Wishes, parse_api_url, parse_domain, parse_node};

/// What to start.
#[derive(Debug)]
pub(crate) struct Request<'r> {
    /// Where everything is kept.
    pub(crate) data_dir: &'r Path,
    /// Where to listen.
    pub(crate) listen: SocketAddr,
    /// What the cluster should be.
    pub(crate) wishes: &'r Wishes,
    /// Whether to return as soon as everything is in place.
    pub(crate) until_ready: bool,
}

/// How often a watcher that hears nothing is told how far it has come, as other servers do it.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Starts the control plane, and runs until somebody stops it.
pub(crate) async fn run(request: &Request<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let directory = prepare_directory(request.data_dir)?;
    let is_new = !directory.join(DATABASE).exists();
    let store = open(&directory)?;
    let listener = TcpListener::bind(request.listen)
        .await
        .with_context(|| format!("cannot listen on {}; --listen chooses another address", request.listen))?;
    let address = listener.local_addr()?;

    let random = || random::bytes().expect("the operating system has random bytes");
    let environment = Environment::new(clock::now, random).with_bookmarks(BOOKMARK_EVERY);
    let api = Arc::new(Api::new(store, environment));
    let collector = tokio::spawn(api.clone().collect_forever());
    let prepared = cluster::prepare(&api, request.wishes).await?;
    prepared.doubts.iter().for_each(|doubt| talk::line(format_args!("warning: {doubt}")));
    prepared.changed.iter().for_each(|object| talk::line(format_args!("changed: {object}")));

    let planner = Planner::new(Catalog::builtin());
    let client = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    let runner = |keys: std::io::Result<KeyPool>| {
        let keys = Arc::new(keys.context("failed to start threads for keys")?);
        anyhow::Ok(Runner::new(&planner, client.clone(), keys, View::default(), Arc::new(clock::now)))
    };
    if is_new {
        talk::line(format_args!("making the certificates of a new cluster"));
    }
    let mut told = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    // Somebody waits for the first ones.
    let (first, is_stopped) = runner(KeyPool::eager(threads(None)))?.once_until(&mut told).await;
    let failed = tell_failures(&first?);
    if is_stopped {
        talk::line(format_args!("stopping"));
        collector.abort();
        ensure!(!request.until_ready, "stopped before everything was in place");
        return Ok(());
    }
    ensure!(
        failed == 0 || !request.until_ready,
        "not everything is in place: writes that failed: {failed}; the warnings say why"
    );
    let identity = Identity::read(&api)?;
    let door = Door::new(&directory, address, &cluster::name(&api), &identity)?;
    let serving = tokio::spawn(door.serve(listener, perennial_apiserver::http::router(api.clone())));

    if request.until_ready {
        writeln!(out, "Everything is in place in {}", directory.display())?;
    } else {
        announce(out, &directory, address, if is_new { "new" } else { "continued" })?;
        let runner = runner(KeyPool::new(threads(None)))?;
        let mut doorkeeper = Doorkeeper { api, door: door.clone(), identity };
        let after_each = |_: &Passed| {
            if let Err(error) = doorkeeper.look() {
                talk::line(format_args!("warning: cannot renew the server's certificates: {error:#}"));
            }
        };
        runner.run(after_each, told).await;
        talk::line(format_args!("stopping"));
    }
    door.close();
    serving.await?;
    collector.abort();
    Ok(())
}

/// What cannot be done now is tried again; whether there is enough to begin with is seen then. Says how many writes failed.
fn tell_failures(passed: &Passed) -> usize {
    for (_, error) in &passed.failed {
        talk::line(format_args!("warning: {error}"));
    }
    passed.failed.len()
}

/// Shows the server's own certificates as they are kept, while connections go on.
struct Doorkeeper {
    api: Arc<Api>,
    door: Door,
    identity: Identity,
}

impl Doorkeeper {
    /// Shows new ones to new connections, if there are any. What could not be shown is tried with the next look.
    fn look(&mut self) -> anyhow::Result<()> {
        let found = Identity::read(&self.api)?;
        if !found.is_same(&self.identity) {
            self.door.renew(&found)?;
            self.identity = found;
        }
        Ok(())
    }
}

const DATABASE: &str = "perennial.db";

/// The directory, made for its owner alone. What exists must be ours: nothing of somebody else's is opened to us.
fn prepare_directory(path: &Path) -> anyhow::Result<std::path::PathBuf> {
    let failed = || format!("cannot use {} as data directory", path.display());
    if !path.exists() {
        DirBuilder::new().recursive(true).mode(0o700).create(path).with_context(failed)?;
    }
    let path = fs::canonicalize(path).with_context(failed)?;
    ensure!(path.is_dir(), "{}: it is no directory", failed());
    let is_ours = path.join(DATABASE).exists();
    let is_empty = fs::read_dir(&path).with_context(failed)?.next().is_none();
    ensure!(
        is_ours || is_empty,
        "{}: it has other things in it and no {DATABASE}; choose a new or empty directory",
        failed()
    );
    fs::set_permissions(&path, Permissions::from_mode(0o700)).with_context(failed)?;
    Ok(path)
}

fn open(directory: &Path) -> anyhow::Result<Store> {
    match Store::open(&directory.join(DATABASE)) {
        Err(OpenError::InUse { .. }) => {
            anyhow::bail!("{} is in use: perennial up runs on it already", directory.display())
        }
        opened => Ok(opened?),
    }
}

fn announce(out: &mut dyn Write, directory: &Path, address: SocketAddr, state: &str) -> anyhow::Result<()> {
    let directory = directory.display();
    writeln!(out, "Perennial is up at https://{address}")?;
    writeln!(out, "  data        {directory} ({state})")?;
    writeln!(out, "  kubeconfig  {directory}/kubeconfig")?;
    writeln!(out)?;
    writeln!(out, "Try, in another terminal:")?;
    writeln!(out, "  export KUBECONFIG={directory}/kubeconfig")?;
    writeln!(out, "  kubectl get pki cluster -o yaml")?;
    writeln!(out, "  kubectl edit pki cluster")?;
    writeln!(out, "  kubectl get secrets --all-namespaces --watch")?;
    Ok(out.flush()?)
}

/// Writes a file that only its owner may read, if it says something else now.
fn keep_secret_file(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    let is_private = fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o777 == 0o600);
    if is_private && fs::read(path).is_ok_and(|found| found == content) {
        return Ok(());
    }
    replace_secret_file(path, content)
}
