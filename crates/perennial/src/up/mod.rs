//! The embedded control plane: a store in a directory, an API server on it, the operator, and a kubeconfig.

mod addresses;
mod cluster;
mod directory;
mod door;
mod identity;
mod schemas;
#[cfg(test)]
mod tests;
mod wishes;

use std::io::Write;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use kube_client::Client;
use perennial_apiserver::api::Api;
use perennial_apiserver::environment::Environment;
use perennial_core::catalog::Catalog;
use perennial_core::plan::Planner;
use perennial_operator::observe::View;
use perennial_operator::pass::Passed;
use perennial_operator::run::Runner;
use perennial_x509::{KeyPool, random};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

use crate::clock;
use crate::commands::threads;
use crate::probes::{ProbeArgs, Probes, Readers};
use addresses::Addresses;
use door::{Callers, Door};
use identity::Identity;

pub(crate) use addresses::parse_host;
pub(crate) use directory::Directory;
pub(crate) use wishes::{Wishes, parse_api_url, parse_domain, parse_node};

/// What to start.
#[derive(Debug)]
pub(crate) struct Request<'r> {
    /// Where everything is kept.
    pub(crate) directory: &'r Directory,
    /// Where to listen.
    pub(crate) listen: SocketAddr,
    /// What else clients call the server.
    pub(crate) names: &'r [perennial_core::spec::Host],
    /// What the cluster should be.
    pub(crate) wishes: &'r Wishes,
    /// Where to serve metrics; none where it returns before anybody could ask for them.
    pub(crate) probes: Option<&'r ProbeArgs>,
    /// Whether to return as soon as everything is in place.
    pub(crate) until_ready: bool,
}

/// How often a watcher that hears nothing is told how far it has come, as other servers do it.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Starts the control plane, and runs until somebody stops it.
pub(crate) async fn run(request: &Request<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let directory = request.directory;
    let state = if directory.is_new() { "new" } else { "continued" };
    let store = directory.open()?;
    info!(directory = %directory.path().display(), state, "opened the database");
    let listener = TcpListener::bind(request.listen)
        .await
        .with_context(|| format!("cannot listen on {}; --listen chooses another address", request.listen))?;
    let address = listener.local_addr()?;
    info!(%address, "listening; clients are answered when every certificate is there");

    let random = || random::bytes().expect("the operating system has random bytes");
    let environment = Environment::new(clock::now, random).with_bookmarks(BOOKMARK_EVERY);
    let api = Arc::new(Api::new(store, environment).with_schemas(schemas::builtin()));
    let collector = tokio::spawn(api.clone().collect_forever());
    let prepared = cluster::prepare(&api, request.wishes).await?;
    prepared.doubts.iter().for_each(|doubt| warn!("{doubt}"));
    prepared.changed.iter().for_each(|object| info!("changed: {object}"));
    info!(objects = prepared.made, "created the objects that every cluster begins with");

    static PLANNER: LazyLock<Planner<'static>> = LazyLock::new(|| Planner::new(Catalog::builtin()));
    let client = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    // Somebody waits for the first ones.
    let keys = Arc::new(KeyPool::eager(threads(None)).context("failed to start threads for keys")?);
    let runner = Runner::new(&PLANNER, client, keys.clone(), View::default(), Arc::new(clock::now));
    let probes = match request.probes {
        Some(args) => Some(Probes::bind(args).await?),
        None => None,
    };
    if let Some(probes) = probes {
        info!(url = probes.url()?, "serving /metrics, /livez and /readyz");
        let readers = Readers::Known(Arc::new(Callers::of(directory.path())?));
        tokio::spawn(probes.serve(runner.metrics(), readers));
    }
    let mut told = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    tokio::select! {
        tested = runner.self_test() => tested?,
        () = &mut told => return stopped_early(request),
    }
    if directory.is_new() {
        info!("making the certificates of a new cluster");
    }
    let (first, is_stopped) = runner.once_until(&mut told).await;
    let failed = tell_failures(&first?);
    if is_stopped {
        return stopped_early(request);
    }
    ensure!(
        failed == 0 || !request.until_ready,
        "not everything is in place: writes that failed: {failed}; the warnings say why"
    );
    let mut doorkeeper =
        Doorkeeper::new(api.clone(), directory, Addresses { listen: address, more: request.names.to_vec() })?;
    let door = doorkeeper.door.clone();
    directory.keep();
    let serving = tokio::spawn(door.serve(listener, perennial_apiserver::http::router(api)));

    if request.until_ready {
        writeln!(out, "Everything is in place in {}", directory.path().display())?;
    } else {
        info!(%address, names = doorkeeper.names(), "serving the Kubernetes API");
        announce(out, request, address, state)?;
        keys.become_idle();
        let after_each = |_: &Passed| {
            if let Err(error) = doorkeeper.look() {
                warn!("cannot renew the server's certificates: {error:#}");
            }
        };
        runner.run(after_each, told).await;
        info!("stopping");
    }
    door.close();
    serving.await?;
    collector.abort();
    Ok(())
}

/// What is there when a person stops it is kept: the next start goes on with it.
fn stopped_early(request: &Request<'_>) -> anyhow::Result<()> {
    info!("stopping");
    request.directory.keep();
    if request.until_ready {
        bail!("stopped before everything was in place");
    }
    Ok(())
}

/// What cannot be done now is tried again; whether there is enough to begin with is seen then. Says how many writes failed.
fn tell_failures(passed: &Passed) -> usize {
    for (_, error) in &passed.failed {
        warn!("{error}");
    }
    passed.failed.len()
}

/// Shows the server's own certificates as they are kept, while connections go on.
struct Doorkeeper {
    api: Arc<Api>,
    door: Door,
    identity: Identity,
    addresses: Addresses,
}

impl Doorkeeper {
    /// Opens a door with the certificates as they are now.
    fn new(api: Arc<Api>, directory: &Directory, addresses: Addresses) -> anyhow::Result<Doorkeeper> {
        let identity = match Identity::read(&api)?.also_called(&api, addresses.names(), None) {
            Ok(identity) => identity,
            Err(error) => {
                warn!("the server's certificate is for localhost alone: {error:#}");
                Identity::read(&api)?
            }
        };
        let door = Door::new(directory.path(), addresses.listen, &cluster::name(&api), &identity)?;
        Ok(Doorkeeper { api, door, identity, addresses })
    }

    /// Shows new ones to new connections, if there are any. What could not be shown is tried with the next look.
    fn look(&mut self) -> anyhow::Result<()> {
        let (found, names) = (Identity::read(&self.api)?, self.addresses.names());
        if !found.is_same(&self.identity) || names != self.identity.names {
            let found = found.also_called(&self.api, names, Some(&self.identity))?;
            self.door.renew(&found)?;
            self.identity = found;
            info!(names = self.names(), "serving with another certificate");
        }
        Ok(())
    }

    /// What the server's certificate is for.
    fn names(&self) -> String {
        let leaf = self.identity.server.certificates.first();
        let hosts = leaf.into_iter().flat_map(|leaf| &leaf.facts().hosts);
        hosts.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

fn announce(out: &mut dyn Write, request: &Request<'_>, address: SocketAddr, state: &str) -> anyhow::Result<()> {
    let directory = request.directory.path().display();
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
