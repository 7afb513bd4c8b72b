//! A client of a control plane, from the kubeconfig that it wrote.

use std::path::Path;

use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};

pub(crate) async fn client(kubeconfig: &Path) -> Client {
    let config = Kubeconfig::read_from(kubeconfig).unwrap();
    Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await.unwrap()).unwrap()
}
