//! The flags that select a cluster, and the client for it.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::builder::PossibleValuesParser;
use kube_client::config::{KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube_client::{Client, Config};
use perennial_core::catalog::index::Wiring;
use perennial_core::catalog::{Catalog, Component, TimeScale};
use perennial_operator::brief;
use perennial_operator::observe::{Observation, View, observe};
use perennial_operator::timeout::{Limit, limited};
use tokio::runtime::Runtime;

use crate::span::Span;
use crate::{clock, connections, talk};

/// The cluster, the user, and the scope of a command.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct ClusterArgs {
    /// The kubeconfig of the cluster [default: $KUBECONFIG, ~/.kube/config, or the identity of the pod]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// The context in the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// The DNS domain of Services
    #[arg(long, value_name = "DOMAIN", default_value = "cluster.local")]
    service_domain: String,

    /// How long a request may take before the command fails; `perennial run` without --once retries instead
    #[arg(long, value_name = "SPAN", value_parser = parse_request_timeout, default_value = "30s")]
    request_timeout: Duration,

    /// Manage only these components [default: all of them]
    #[arg(long, value_name = "COMPONENTS", value_delimiter = ',', value_parser = components(), help_heading = SCOPE)]
    controllers: Vec<String>,

    /// Manage this component although another operator writes its objects; repeat the flag for more
    #[arg(long, value_name = "COMPONENT", value_parser = components(), help_heading = SCOPE)]
    take_over: Vec<String>,

    /// Issue no serving certificate for this Service, in addition to default/kubernetes; repeat the flag for more
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = parse_service, help_heading = SCOPE)]
    reserved_service: Vec<String>,

    /// Divide every validity and every wait by this number, for tests
    #[arg(long, value_name = "DIVISOR", value_parser = parse_time_scale, default_value = "1", help_heading = SCOPE)]
    time_scale: TimeScale,
}

/// The heading of flags that must have the same values for read-only commands and for the operator.
const SCOPE: &str = "Scope (pass the same values as to the operator)";

/// Accepts the components whose certificates Perennial manages.
pub(crate) fn components() -> PossibleValuesParser {
    PossibleValuesParser::new(Component::managed().map(Component::owner))
}

fn parse_request_timeout(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse()?;
    match Duration::try_from(span.0) {
        Ok(within) if !within.is_zero() => Ok(within),
        _ => Err("the timeout must be greater than zero, such as 30s".to_owned()),
    }
}

fn parse_service(text: &str) -> Result<String, String> {
    match text.split_once('/') {
        Some((namespace, name)) if !namespace.is_empty() && !name.is_empty() && !name.contains('/') => {
            Ok(text.to_owned())
        }
        _ => Err(format!("{text:?} is not a Service: expected NAMESPACE/NAME, such as default/kubernetes")),
    }
}

fn parse_time_scale(text: &str) -> Result<TimeScale, String> {
    let divisor: u32 =
        text.parse().map_err(|_| format!("{text:?} is not a whole number from 1 to {}", TimeScale::MAX_DIVISOR))?;
    TimeScale::try_from(divisor)
}

impl ClusterArgs {
    /// Returns a client for an interactive command: a request fails within the request timeout, with the address and the cause.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        self.limited(Limit { within: self.request_timeout, retries: true }).await
    }

    /// Returns such a client that does not retry when the server answers 429.
    pub(crate) async fn client_without_retries(&self) -> anyhow::Result<Client> {
        self.limited(Limit { within: self.request_timeout, retries: false }).await
    }

    /// Returns a client for the operator, which waits for its cluster without limit.
    pub(crate) async fn unlimited_client(&self) -> anyhow::Result<Client> {
        connections::client(self.config().await?).context("failed to create a client")
    }

    /// Returns the error if the server does not answer within this time.
    pub(crate) async fn unserved(&self, within: Duration) -> anyhow::Result<Option<String>> {
        let client = self.limited(Limit { within, retries: true }).await?;
        Ok(match client.apiserver_version().await {
            // Any answer shows that the server runs.
            Ok(_) | Err(kube_client::Error::Api(_)) => None,
            Err(error) => Some(brief(&error)),
        })
    }

    async fn limited(&self, limit: Limit) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        config.default_retry = false;
        config.connect_timeout = Some(limit.within);
        let server = config.cluster_url.to_string();
        let client = Client::try_from(config).context("failed to create a client")?;
        Ok(limited(client, server.trim_end_matches('/').to_owned(), limit))
    }

    async fn config(&self) -> anyhow::Result<Config> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = match &self.kubeconfig {
            Some(path) => {
                let failed = |what: &str, error: KubeconfigError| anyhow!("{what}: {}", innermost(&error));
                let kubeconfig = Kubeconfig::read_from(path)
                    .map_err(|error| failed(&format!("failed to read kubeconfig {}", path.display()), error))?;
                let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
                config.map_err(|error| failed(&format!("cannot use kubeconfig {}", path.display()), error))?
            }
            // These errors repeat the text of their sources.
            None if self.context.is_some() => {
                Config::from_kubeconfig(&options).await.map_err(|error| anyhow!("{error}"))?
            }
            None => Config::infer().await.map_err(|error| {
                anyhow!(
                    "no cluster: pass --kubeconfig FILE, set KUBECONFIG, or run the command in a pod; or pass --from FILE for a snapshot: {error}"
                )
            })?,
        };
        // Longer than a watch may be silent: a connection can break without an error.
        config.read_timeout = Some(Duration::from_secs(310));
        Ok(config)
    }

    /// Returns whether the command covers a row: all rows, or the rows of the components in `--controllers`.
    pub(crate) fn asks_about(&self, row: &str) -> bool {
        let component = Catalog::builtin().row(row).map(|row| row.component.owner());
        self.controllers.is_empty() || component.is_some_and(|it| self.controllers.iter().any(|kept| kept == it))
    }

    /// Returns the components in `--controllers`; empty without the flag.
    pub(crate) fn controllers(&self) -> &[String] {
        &self.controllers
    }

    /// Returns the settings with which the operator observes the cluster.
    pub(crate) fn view(&self) -> View {
        let mut view = View { service_domain: self.service_domain.clone(), ..View::default() };
        if !self.controllers.is_empty() {
            let others = Component::managed()
                .map(Component::owner)
                .filter(|it| !self.controllers.iter().any(|kept| kept == *it));
            view.settings.left_alone.extend(others.map(str::to_owned));
        }
        // A service account for some components has no right to read the others.
        view.reads_unrelated = self.controllers.is_empty();
        view.settings.taken_over = self.take_over.iter().cloned().collect();
        view.settings.reserved_services.extend(self.reserved_service.iter().cloned());
        view.settings.time_scale = self.time_scale;
        view
    }

    /// Observes the cluster. Writes nothing.
    pub(crate) fn observe(&self, wiring: &Wiring<'_>) -> anyhow::Result<Observation> {
        let observed = runtime()?.block_on(async {
            let client = self.client().await?;
            anyhow::Ok(observe(&client, wiring, &self.view(), clock::now()).await)
        });
        let observation =
            observed?.map_err(|error| anyhow::anyhow!("failed to read the cluster: {}", brief(&error)))?;
        observation.snapshot.check(wiring)?;
        observation.problems.iter().for_each(|problem| talk::line(format_args!("warning: {problem}")));
        Ok(observation)
    }
}

/// Returns the last error of the chain. The errors before it repeat its text.
fn innermost<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    error.source().map_or(error, innermost)
}

/// Starts the runtime of a command that connects to a cluster.
pub(crate) fn runtime() -> anyhow::Result<Runtime> {
    let threads =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().thread_name("perennial").build();
    threads.context("failed to start threads")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

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
    fn components_that_are_not_chosen_are_not_managed() {
        let alone = |arguments: &[&str]| view(arguments).unwrap().settings.left_alone;
        let usual = alone(&[]);
        assert!(Component::managed().all(|it| !usual.contains(it.owner())));
        let one = alone(&["--controllers", "kube-apiserver"]);
        assert!(one.is_superset(&usual) && one.contains("kube-controller-manager") && !one.contains("kube-apiserver"));
        assert!(one.contains("service-ca"));
        assert_eq!(alone(&["--controllers", "kube-apiserver,kube-controller-manager,service-ca"]), usual);
    }

    #[test]
    fn findings_cover_only_the_chosen_components() {
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
    fn reserved_services_are_added_to_the_default_ones() {
        let reserved = |arguments: &[&str]| view(arguments).unwrap().settings.reserved_services;
        assert_eq!(reserved(&[]).into_iter().collect::<Vec<_>>(), ["default/kubernetes"]);
        let more = reserved(&["--reserved-service", "shop/web", "--reserved-service=shop/api"]);
        assert_eq!(more.into_iter().collect::<Vec<_>>(), ["default/kubernetes", "shop/api", "shop/web"]);
        for wrong in ["web", "/web", "shop/", "a/b/c"] {
            let error = view(&["--reserved-service", wrong]).unwrap_err();
            assert!(error.contains("expected NAMESPACE/NAME"), "{error}");
        }
    }

    #[test]
    fn the_time_scale_must_be_within_bounds() {
        assert_eq!(u32::from(view(&["--time-scale", "360"]).unwrap().settings.time_scale), 360);
        for wrong in ["0", "601", "fast"] {
            let error = view(&["--time-scale", wrong]).unwrap_err();
            assert!(error.contains("1 to 600") && error.contains(wrong), "{error}");
        }
    }
}
