//! The embedded control plane: a database in a directory, an API server, the operator, and a kubeconfig.

mod addresses;
mod clock_record;
mod cluster;
mod cluster_config;
mod directory;
mod endpoint;
mod housekeeping;
mod identity;
mod ownership;
mod schemas;
#[cfg(test)]
mod tests;

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
use clock_record::ClockRecord;
use endpoint::{Callers, Endpoint};
use identity::Identity;

pub(crate) use addresses::parse_host;
pub(crate) use cluster_config::{ClusterConfig, parse_api_url, parse_domain, parse_node};
pub(crate) use directory::Directory;

/// The arguments of [`run`].
#[derive(Debug)]
pub(crate) struct Request<'r> {
    /// The data directory.
    pub(crate) directory: &'r Directory,
    /// The listen address.
    pub(crate) listen: SocketAddr,
    /// Additional names of the server.
    pub(crate) names: &'r [perennial_core::spec::Host],
    /// The configuration of the cluster.
    pub(crate) config: &'r ClusterConfig,
    /// The address of metrics; none with `--until-ready`.
    pub(crate) probes: Option<&'r ProbeArgs>,
    /// Whether to return as soon as all certificates are issued.
    pub(crate) until_ready: bool,
    /// Whether to generate a new token, which replaces the previous one.
    pub(crate) rotate_token: bool,
}

/// The interval of bookmarks on idle watches.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);

/// Runs the control plane until a signal stops it.
pub(crate) async fn run(request: &Request<'_>, out: &mut dyn Write) -> anyhow::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let directory = request.directory;
    let state = if directory.is_new() { "new" } else { "existing" };
    let store = directory.open()?;
    info!(directory = %directory.path().display(), state, "opened the database");
    if request.rotate_token {
        endpoint::rotate_token(directory.path())?;
        info!("generated a new token; the previous one is no longer accepted");
    }
    let listener = TcpListener::bind(request.listen)
        .await
        .with_context(|| format!("cannot listen on {}; --listen chooses another address", request.listen))?;
    let address = listener.local_addr()?;
    info!(%address, "listening; the server accepts clients after the first pass over the certificates");

    let random = || random::bytes().expect("the operating system has random bytes");
    let environment = Environment::new(clock::now, random).with_bookmarks(BOOKMARK_EVERY);
    let api = Arc::new(Api::new(store, environment).with_schemas(schemas::builtin()));
    let housekeeping = housekeeping::start(api.clone()).context("failed to start housekeeping")?;
    let prepared = cluster::prepare(&api, request.config).await?;
    prepared.warnings.iter().for_each(|warning| warn!("{warning}"));
    prepared.changed.iter().for_each(|object| info!("changed: {object}"));
    info!(objects = prepared.created, "created the initial objects of the cluster");

    static PLANNER: LazyLock<Planner<'static>> = LazyLock::new(|| Planner::new(Catalog::builtin()));
    let client = Client::new(perennial_apiserver::http::router(api.clone()), "default");
    // A user waits for the first keys, so they are not generated at idle priority.
    let keys = Arc::new(KeyPool::eager(threads(None)).context("failed to start threads for keys")?);
    let record = ClockRecord::read(directory.path(), clock::now());
    // A new cluster has no certificates yet.
    let warning = Identity::read(&api).ok().and_then(|identity| clock_warning(&identity, &record));
    warning.iter().for_each(|warning| warn!("{warning}"));
    let view = View { earliest: Some(record.earliest()), ..View::default() };
    let runner = Runner::new(&PLANNER, client, keys.clone(), view, Arc::new(clock::now));
    let probes = match request.probes {
        Some(args) => Some(Probes::bind(args).await?),
        None => None,
    };
    if let Some(probes) = probes {
        info!(url = probes.url()?, "serving /metrics, /livez and /readyz");
        let readers = Readers::Known(Arc::new(Callers::from_directory(directory.path())?));
        let store = api.store().clone();
        tokio::spawn(probes.serve(runner.metrics(), readers, move || store.disk_full()));
    }
    let mut stop_signal = pin!(async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    tokio::select! {
        tested = runner.self_test() => tested?,
        () = &mut stop_signal => return stopped_early(request),
    }
    if directory.is_new() {
        info!("issuing the certificates of a new cluster");
    }
    // --until-ready also waits for Services. Otherwise clients can use the API as soon as its certificates are issued.
    let (first, is_stopped) = if request.until_ready {
        runner.once_until(&mut stop_signal).await
    } else {
        runner.pass_until(&mut stop_signal).await
    };
    let failed = log_failures(&first?);
    if is_stopped {
        return stopped_early(request);
    }
    ensure!(failed == 0 || !request.until_ready, "not ready: {failed} writes failed; the warnings have the reasons");
    let mut refresher =
        EndpointRefresher::new(api.clone(), directory, Addresses { listen: address, more: request.names.to_vec() })?;
    let endpoint = refresher.endpoint.clone();
    directory.keep();
    record.note(clock::now())?;
    let serving = tokio::spawn(endpoint.serve(listener, perennial_apiserver::http::router(api)));

    if request.until_ready {
        writeln!(out, "All certificates are issued in {}", directory.path().display())?;
    } else {
        info!(%address, names = refresher.names(), "serving the Kubernetes API");
        announce(out, request, address, state, warning.as_deref())?;
        keys.become_idle();
        let after_each = |_: &Passed| {
            clock_warning(&refresher.identity, &record).iter().for_each(|warning| warn!("{warning}"));
            if let Err(error) = record.note(clock::now()) {
                warn!("failed to record the time: {error:#}");
            }
            if let Err(error) = refresher.refresh() {
                warn!("failed to renew the server's certificates, retrying: {error:#}");
            }
        };
        runner.run(after_each, stop_signal).await;
        info!("stopping");
    }
    endpoint.close();
    serving.await?;
    drop(housekeeping);
    Ok(())
}

/// Keeps the database after a stop signal, so that the next start continues with it.
fn stopped_early(request: &Request<'_>) -> anyhow::Result<()> {
    info!("stopping");
    request.directory.keep();
    if request.until_ready {
        bail!("stopped by a signal before all certificates were issued");
    }
    Ok(())
}

/// Logs the failed writes of a pass, and returns their number. The next pass retries them.
fn log_failures(passed: &Passed) -> usize {
    for (_, error) in &passed.failed {
        warn!("{error}");
    }
    passed.failed.len()
}

/// Returns a warning about the clock if the certificates of the server or the administrator are not valid now.
fn clock_warning(identity: &Identity, record: &ClockRecord) -> Option<String> {
    let now = clock::now();
    let invalid = identity.not_valid_at(now);
    (!invalid.is_empty()).then(|| {
        format!(
            "THE CLOCK IS WRONG, OR WAS WRONG BEFORE: it shows {now}, but {}; the latest time seen in this directory is {}. The \
             server issues new certificates, trusts both the old and the new ones, and writes the kubeconfig again. If the \
             clock is wrong now, correct it; no other action is needed",
            invalid.join(", and "),
            record.latest()
        )
    })
}

/// Updates the endpoint when the server's certificates or addresses change. Open connections stay open.
struct EndpointRefresher {
    api: Arc<Api>,
    endpoint: Endpoint,
    identity: Identity,
    addresses: Addresses,
}

impl EndpointRefresher {
    /// Creates the endpoint with the current certificates.
    fn new(api: Arc<Api>, directory: &Directory, addresses: Addresses) -> anyhow::Result<EndpointRefresher> {
        let identity = match Identity::read(&api)?.with_names(&api, addresses.names(), None) {
            Ok(identity) => identity,
            Err(error) => {
                warn!("the server's certificate has only the names of localhost: {error:#}");
                Identity::read(&api)?
            }
        };
        let endpoint = Endpoint::new(directory.path(), addresses.listen, &cluster::name(&api), &identity)?;
        Ok(EndpointRefresher { api, endpoint, identity, addresses })
    }

    /// Presents changed certificates to new connections. The next call retries after an error.
    fn refresh(&mut self) -> anyhow::Result<()> {
        let (found, names) = (Identity::read(&self.api)?, self.addresses.names());
        if !found.is_same(&self.identity) || names != self.identity.names {
            let found = found.with_names(&self.api, names, Some(&self.identity))?;
            self.endpoint.renew(&found)?;
            self.identity = found;
            info!(names = self.names(), "serving a new certificate");
        }
        Ok(())
    }

    /// Returns the names in the server's certificate.
    fn names(&self) -> String {
        let leaf = self.identity.server.certificates.first();
        let hosts = leaf.into_iter().flat_map(|leaf| &leaf.facts().hosts);
        hosts.map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }
}

fn announce(
    out: &mut dyn Write,
    request: &Request<'_>,
    address: SocketAddr,
    state: &str,
    warning: Option<&str>,
) -> anyhow::Result<()> {
    let directory = request.directory.path().display();
    writeln!(out, "Perennial is up at https://{address}")?;
    writeln!(out, "  data        {directory} ({state})")?;
    writeln!(out, "  kubeconfig  {directory}/kubeconfig")?;
    if let Some(warning) = warning {
        writeln!(out, "\n{warning}.")?;
    }
    writeln!(out)?;
    writeln!(out, "Try, in another terminal:")?;
    writeln!(out, "  export KUBECONFIG={directory}/kubeconfig")?;
    writeln!(out, "  kubectl get pki cluster -o yaml")?;
    writeln!(out, "  kubectl edit pki cluster")?;
    writeln!(out, "  kubectl get secrets --all-namespaces --watch")?;
    Ok(out.flush()?)
}
