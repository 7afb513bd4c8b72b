//! The cluster that a command is about.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};
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
}

impl ClusterArgs {
    /// A client of the cluster.
    pub(crate) async fn client(&self) -> anyhow::Result<Client> {
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
        Client::try_from(config).context("failed to make a client")
    }

    /// How the cluster is looked at.
    pub(crate) fn view(&self) -> View {
        View { service_domain: self.service_domain.clone(), ..View::default() }
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
