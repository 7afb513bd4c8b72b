//! The facts of a cluster, and the objects of its installation.

use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_api::annotations::HOSTNAMES;
use perennial_api::condition::Condition;
use perennial_api::config::{ClusterOperator, Network};
use perennial_core::policy::Usage;
use perennial_core::verify::{self, State};
use serde_json::{Value, json};

use crate::cluster::{Cluster, PLANNER};
use crate::mint::Minted;

const KAS: &str = "openshift-kube-apiserver";
const DAY: SignedDuration = SignedDuration::from_hours(24);

async fn condition(cluster: &Cluster, type_: &str) -> Option<Condition> {
    let operator = Api::<ClusterOperator>::all(cluster.client.clone()).get_opt("kube-apiserver").await.unwrap()?;
    operator.status?.conditions.into_iter().find(|it| it.type_ == type_)
}

/// Waits until a condition is true, within the five seconds of the original operator.
async fn becomes(cluster: &Cluster, type_: &str, status: &str, reason: &str) -> String {
    for _ in 0..250 {
        let found = condition(cluster, type_).await;
        if let Some(found) = found.filter(|it| it.status == status && it.reason.as_deref() == Some(reason)) {
            return found.message.unwrap_or_default();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("{type_} is not {status}/{reason}, but {:?}", condition(cluster, type_).await);
}

/// Runs a scenario with a running operator, after its first conditions.
async fn while_it_runs(cluster: &Cluster, story: impl AsyncFnOnce()) {
    let (runner, (said, mut heard)) = (cluster.runner(), tokio::sync::watch::channel(false));
    let story = async {
        heard.wait_for(|is_done| *is_done).await.unwrap();
        // Until the watch has started.
        tokio::time::sleep(Duration::from_secs(2)).await;
        story().await;
    };
    tokio::select! {
        () = runner.run(|_| _ = said.send(true), std::future::pending()) => {}
        () = story => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("it does not hear"),
    }
}

async fn set_service_network(cluster: &Cluster, ranges: Value) {
    let api = Api::<Network>::all(cluster.client.clone());
    let spec = json!({"spec": {"serviceNetwork": ranges}, "status": {"serviceNetwork": ranges}});
    api.patch("cluster", &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
}

async fn service_network(cluster: &Cluster) {
    set_service_network(cluster, json!([])).await;
    while_it_runs(cluster, async || {
        let message = becomes(cluster, "Degraded", "True", "CertificateProblem").await;
        assert!(message.contains("openshift-kube-apiserver/service-network-serving-certkey"), "{message}");
        becomes(cluster, "CertRotation_ServiceNetworkServingSigner_Degraded", "True", "RotationError").await;
        // No other certificate waits.
        becomes(cluster, "CertRotation_LoadbalancerServingSigner_Degraded", "False", "AsExpected").await;
        let secrets = cluster.secrets(KAS);
        assert!(secrets.get_opt("service-network-serving-certkey").await.unwrap().is_none());
        assert!(secrets.get_opt("internal-loadbalancer-serving-certkey").await.unwrap().is_some());
        set_service_network(cluster, json!(["172.31.0.0/16", "fd02::/112"])).await;
        becomes(cluster, "Degraded", "False", "AsExpected").await;
        becomes(cluster, "CertRotation_ServiceNetworkServingSigner_Degraded", "False", "AsExpected").await;
        let made = secrets.get("service-network-serving-certkey").await.unwrap();
        let hosts = made.metadata.annotations.unwrap()[HOSTNAMES].clone();
        assert!(hosts.contains("172.31.0.1") && hosts.contains("fd02::1"), "{hosts}");
    })
    .await;
}

async fn rotation_base(cluster: &Cluster) {
    let (namespace, name) = ("openshift-config", "unsupported-cert-rotation-config");
    let types = ["CertRotationTimeUpgradeable", "Upgradeable"];
    let maps = cluster.config_maps(namespace);
    while_it_runs(cluster, async || {
        becomes(cluster, types[0], "True", "DefaultCertRotationBase").await;
        becomes(cluster, types[1], "True", "AsExpected").await;
        // Without a word in it, it says nothing.
        cluster.create::<ConfigMap>(Some(namespace), json!({"metadata": {"name": name}})).await;
        let base = json!({"data": {"base": "2m"}});
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&base)).await.unwrap();
        for type_ in types {
            let message = becomes(cluster, type_, "False", "CertRotationBaseOverridden").await;
            assert!(message.contains("2m"), "{message}");
        }
        // It has no effect.
        assert_eq!(condition(cluster, "Degraded").await.unwrap().status, "False");
        maps.delete(name, &DeleteParams::default()).await.unwrap();
        becomes(cluster, types[0], "True", "DefaultCertRotationBase").await;
        becomes(cluster, types[1], "True", "AsExpected").await;
    })
    .await;
    let operators = Api::<ClusterOperator>::all(cluster.client.clone());
    let other = operators.get("kube-controller-manager").await.unwrap().status.unwrap().conditions;
    assert!(other.iter().all(|it| it.type_ != types[0]), "it is the API server's to say");
}

#[tokio::test]
async fn without_a_service_network_only_one_certificate_waits() {
    service_network(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn an_unsupported_rotation_base_blocks_upgrades_while_it_exists() {
    rotation_base(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn a_missing_service_network_and_an_unsupported_rotation_base_on_a_real_server() {
    let cluster = Cluster::real().await;
    service_network(&cluster).await;
    rotation_base(&cluster).await;
}

/// A certificate of the installation is in a Secret of the cluster, and its verifiers' bundle in a ConfigMap.
#[tokio::test]
async fn a_certificate_of_the_installation_is_verified_in_its_secret() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let namespace = "openshift-machine-config-operator";
    let edge = |name: &str| name.starts_with("new node") && name.contains("machine-config-server");
    let state = async || {
        let (observation, _) = cluster.reconciler().plan().await.unwrap();
        let checked = verify::verify(&PLANNER, &observation.snapshot);
        checked.into_iter().find(|it| edge(&it.edge)).unwrap().state
    };
    assert!(matches!(state().await, State::Nothing), "there is nothing yet");
    let now = cluster.now();
    let root = Minted::authority("root-ca", now, DAY * 3650);
    let served = root.issue(Usage::Serving, "api-int.shop.example.com", now, DAY * 3650);
    let bundle = json!({"metadata": {"name": "machine-config-server-ca"},
        "data": {"ca-bundle.crt": root.certificate.to_pem()}});
    cluster.create::<ConfigMap>(Some(namespace), bundle).await;
    let secret = json!({"metadata": {"name": "machine-config-server-tls"}, "type": "kubernetes.io/tls",
        "data": served.data()});
    let made = cluster.create::<Secret>(Some(namespace), secret).await;
    let found = state().await;
    assert!(matches!(found, State::Holds { .. }), "{found:?}");
    // With another root, the certificate is rejected, and Perennial never replaces it.
    let other = Minted::authority("root-ca", now, DAY * 3650).issue(
        Usage::Serving,
        "api-int.shop.example.com",
        now,
        DAY * 3650,
    );
    let content = json!({"data": other.data()});
    let secrets = cluster.secrets(namespace);
    secrets.patch("machine-config-server-tls", &PatchParams::default(), &Patch::Merge(&content)).await.unwrap();
    let found = state().await;
    assert!(matches!(found, State::Broken(_)), "{found:?}");
    let before = cluster.versions().await;
    let (_, text) = cluster.pass().await;
    assert_eq!((text.as_str(), cluster.versions().await), ("", before));
    assert_eq!(secrets.get("machine-config-server-tls").await.unwrap().metadata.uid, made.metadata.uid);
}
