//! The cluster that a command is about.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
use perennial_core::catalog::TimeScale;
use perennial_core::wiring::Wiring;
use perennial_operator::brief;
use perennial_operator::observe::{Observation, View, observe};
use tokio::runtime::Runtime;

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

    /// Only these components; the others are left alone [default: all of them]
    #[arg(long, value_name = "COMPONENTS", value_delimiter = ',', value_parser = COMPONENTS, help_heading = KEEPING)]
    controllers: Vec<String>,

    /// Keep this component although another operator writes its objects; again for more
    #[arg(long, value_name = "COMPONENT", value_parser = COMPONENTS, help_heading = KEEPING)]
    take_over: Vec<String>,

    /// Divide every lifetime and every wait by this, for a rehearsal
    #[arg(long, value_name = "DIVISOR", value_parser = parse_time_scale, default_value = "1", help_heading = KEEPING)]
    time_scale: TimeScale,
}

/// Who decides what, so that those who only look see what the operator sees.
const KEEPING: &str = "What is kept, and how (the same for the operator and for those who look)";

/// As `perennial_operator::observe::KEPT` has them; a test compares.
pub(crate) const COMPONENTS: [&str; 3] = ["kube-apiserver", "kube-controller-manager", "service-ca"];

fn parse_time_scale(text: &str) -> Result<TimeScale, String> {
    let divisor: u32 =
        text.parse().map_err(|_| format!("{text:?} is no whole number from 1 to {}", TimeScale::MAX_DIVISOR))?;
    TimeScale::try_from(divisor)
}

impl ClusterArgs {
    /// A client of the cluster.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
        Client::try_from(self.config().await?).context("failed to make a client")
    }

    /// The same, which is told at once where it should come back later, and does not do so by itself.
    pub(crate) async fn client_asking_once(&self) -> anyhow::Result<Client> {
        let mut config = self.config().await?;
        config.default_retry = false;
        Client::try_from(config).context("failed to make a client")
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
            observed?.map_err(|error| anyhow::anyhow!("failed to look at the cluster: {}", brief(&error)))?;
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
    fn a_rehearsal_divides_by_a_number_within_bounds() {
        assert_eq!(u32::from(view(&["--time-scale", "360"]).unwrap().settings.time_scale), 360);
        for wrong in ["0", "601", "fast"] {
            let error = view(&["--time-scale", wrong]).unwrap_err();
            assert!(error.contains("1 to 600") && error.contains(wrong), "{error}");
        }
    }
}
