//! The cluster that a command is about.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use perennial_core::catalog::{Catalog, TimeScale};
use perennial_core::wiring::Wiring;
use perennial_operator::brief;
use perennial_operator::observe::{Observation, View, observe};
use perennial_operator::timeout::{Limit, limited};
use tokio::runtime::Runtime;

use crate::span::Span;
use crate::{clock, talk};

/// Which cluster, and as whom.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig of the cluster [default: $KUBECONFIG, ~/.kube/config, or the identity of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context in the kubeconfig [default: its current one]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The DNS domain of Services
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    service_domain: String,

    /// How long a request may take before the command fails; `perennial run` without --once tries again instead
    #[arg(long, value_name = "SPAN", value_parser = parse_request_timeout, default_value = "30s")]
    request_timeout: Duration,

    /// Manage only these components [default: all of them]
    #[arg(long, value_name = "COMPONENTS", value_delimiter = ',', value_parser = COMPONENTS, help_heading = KEEPING)]
    controllers: Vec<String>,

    /// Manage this component although another operator writes its objects; repeat it for more
    #[arg(long, value_name = "COMPONENT", value_parser = COMPONENTS, help_heading = KEEPING)]
    take_over: Vec<String>,

    /// Divide every lifetime and every wait by this, for a rehearsal
    #[arg(long, value_name = "DIVISOR", value_parser = parse_time_scale, default_value = "1", help_heading = KEEPING)]
    time_scale: TimeScale,
}

/// Commands that only look see what the operator sees where both are given the same.
const KEEPING: &str = "Scope (pass the same values as to the operator)";

/// As `perennial_operator::observe::KEPT` has them; a test compares.
pub(crate) const COMPONENTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "service-ca"];

fn parse_request_timeout(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse()?;
    match Duration::try_from(span.0) {
        Ok(within) if !within.is_zero() => Ok(within),
        _ => Err("a request needs some time, such as 30s".to_owned()),
    }
}

fn parse_time_scale(text: &str) -> Result<TimeScale, String> {
    let divisor: u32 =
        text.parse().map_err(|_| format!("{text:?} is no whole number from 1 to {}", TimeScale::MAX_DIVISOR))?;
    TimeScale::try_from(divisor)
}

impl ClusterArgs {
    /// Returns a client for a command that somebody waits for: it fails within the request timeout, with the address and the cause.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        self.limited(Limit { within: self.request_timeout, retries: true }).await
    }

    /// Returns the same, which does not ask again where the server says to come back later.
    pub(crate) async fn client_asking_once(&self) -> anyhow::Result<Client> {
        self.limited(Limit { within: self.request_timeout, retries: false }).await
    }

    /// Returns a client for the operator, which waits for its cluster as long as it takes.
    pub(crate) async fn patient_client(&self) -> anyhow::Result<Client> {
        Client::try_from(self.config().await?).context("failed to make a client")
    }

    /// Returns why the server does not serve, if it does not within this time.
    pub(crate) async fn unserved(&self, within: Duration) -> anyhow::Result<Option<String>> {
        let client = self.limited(Limit { within, retries: true }).await?;
        Ok(match client.apiserver_version().await {
            // Whatever it says, it is there.
            Ok(_) | Err(kube_client::Error::Api(_)) => None,
            Err(error) => Some(brief(&error)),
        })
    }

    async fn limited(&self, limit: Limit) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        config.default_retry = false;
        config.connect_timeout = Some(limit.within);
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).context("failed to make a client")?;
        Ok(limited(client, server.trim_end_matches('/').to_owned(), limit))
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let read = Kubeconfig::read_from(path);
                let kubeconfig = read.with_context(|| format!("failed to read the kubeconfig {}", path.display()))?;
                let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
                config.with_context(|| format!("the kubeconfig {} is refused", path.display()))?
            }
            None if self.context.is_some() => Config::from_kubeconfig(&options).await?,
            None => Config::infer().await.context(
                "no cluster: give --kubeconfig FILE, set KUBECONFIG, or run it in a pod; or --from FILE for a snapshot",
            )?,
        };
        // Longer than a watch hears nothing: a connection may be dead without anybody saying so.
        config.read_timeout = Some(Duration::from_secs(310));
        Ok(config)
    }

    /// Whether a row is what was asked about: all of them are, unless some components were chosen.
    pub(crate) fn asks_about(&self, row: &str) -> bool {
        let component = Catalog::builtin().row(row).map(|row| row.component.owner());
        self.controllers.is_empty() || component.is_some_and(|it| self.controllers.iter().any(|kept| kept == it))
    }

    /// The components that a person chose; none where nobody chose.
    pub(crate) fn controllers(&self) -> &[String] {
        &self.controllers
    }

    /// How the cluster is looked at.
    pub(crate) fn view(&self) -> View {
        let mut view = View { service_domain: self.service_domain.clone(), ..View::default() };
        if !self.controllers.is_empty() {
            let others = COMPONENTS.iter().filter(|it| !self.controllers.iter().any(|kept| kept == *it));
            view.settings.left_alone.extend(others.map(|it| (*it).to_owned()));
        }
        view.settings.taken_over = self.take_over.iter().cloned().collect();
        view.settings.time_scale = self.time_scale;
        view
    }

    /// Looks at the cluster. Nothing is written.
    pub(crate) fn observe(&self, wiring: &Wiring<'_>) -> anyhow::Result<Observation> {
        let observed = runtime()?.block_on(async {
            let client = self.client().await?;
            anyhow::Ok(observe(&client, wiring, &self.view(), clock::now()).await)
        });
        let observation =
            observed?.map_err(|error| anyhow::anyhow!("failed to read the cluster: {}", brief(&error)))?;
        observation.snapshot.check(wiring)?;
        observation.troubles.iter().for_each(|trouble| talk::line(format_args!("warning: {trouble}")));
        Ok(observation)
    }
}

/// Threads for a command that speaks with a cluster.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().thread_name("perennial").build();
    threads.context("failed to start threads")
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use perennial_operator::observe::KEPT;

    use super::*;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        cluster: ClusterArgs,
    }

    fn view(arguments: &[&str]) -> Result<View, String> {
        let arguments = std::iter::once("perennial").chain(arguments.iter().copied());
        Command::try_parse_from(arguments).map(|it| it.cluster.view()).map_err(|error| error.to_string())
    }

    #[test]
    fn the_components_that_can_be_chosen_are_those_that_are_kept() {
        assert_eq!(COMPONENTS, KEPT.map(|component| component.owner()));
    }

    #[test]
    fn who_is_not_chosen_is_left_alone() {
        let alone = |arguments: &[&str]| view(arguments).unwrap().settings.left_alone;
        let usual = alone(&[]);
        assert!(COMPONENTS.iter().all(|it| !usual.contains(*it)));
        let one = alone(&["--controllers", "kube-apiserver"]);
        assert!(one.is_superset(&usual) && one.contains("kube-controller-manager") && !one.contains("kube-apiserver"));
        assert!(one.contains("service-ca"));
        assert_eq!(alone(&["--controllers", "kube-apiserver,kube-controller-manager,service-ca"]), usual);
    }

    #[test]
    fn findings_are_about_the_components_that_were_chosen() {
        let asks = |arguments: &[&str], row: &str| {
            let arguments = std::iter::once("perennial").chain(arguments.iter().copied());
            Command::try_parse_from(arguments).unwrap().cluster.asks_about(row)
        };
        for row in ["signing-key", "service-serving", "aggregator-client"] {
            assert!(asks(&[], row), "{row}");
        }
        let chosen = ["--controllers", "service-ca"];
        assert!(asks(&chosen, "signing-key") && asks(&chosen, "service-serving"));
        assert!(!asks(&chosen, "aggregator-client"));
    }

    #[test]
    fn a_rehearsal_divides_by_a_number_within_bounds() {
        assert_eq!(u32::from(view(&["--time-scale", "360"]).unwrap().settings.time_scale), 360);
        for wrong in ["0", "601", "fast"] {
            let error = view(&["--time-scale", wrong]).unwrap_err();
            assert!(error.contains("1 to 600") && error.contains(wrong), "{error}");
        }
    }
}
