//! A cluster with Services and their certificates.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Event, Namespace, Secret, Service};
use kube_client::api::{ListParams, Patch, PatchParams};
use kube_client::{Api, Client, ResourceExt};
use perennial_core::distrust::Distrust;
use perennial_core::spec::Host;
use perennial_core::trust::KeyId;
use perennial_operator::ask;
use perennial_operator::observe::observe;
use perennial_operator::pass::Passed;
use perennial_x509::{Certificate, PrivateKey, read_certificates};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::cluster::{Cluster, PLANNER};

pub(super) const SHOP: &str = "shop";
pub(super) const BETA: &str = "service.beta.openshift.io";
pub(super) const ALPHA: &str = "service.alpha.openshift.io";

/// A cluster with a namespace, in which only the service CA and its leaves are managed.
pub(crate) struct Shop {
    pub(crate) cluster: Cluster,
}

/// A certificate with its key, as a server reads it.
pub(crate) struct Served {
    pub(crate) certificates: Vec<Certificate>,
    pub(crate) secret: Secret,
}

impl Shop {
    pub(crate) async fn new(mut cluster: Cluster) -> Shop {
        let others = ["etcd", "kube-apiserver", "kube-controller-manager"];
        cluster.view.settings.left_alone = others.map(str::to_owned).into();
        cluster.create::<Namespace>(None, json!({"metadata": {"name": SHOP}})).await;
        Shop { cluster }
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.cluster.client.clone(), SHOP)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        self.cluster.secrets(SHOP)
    }

    /// A Service with these annotations.
    pub(crate) async fn service(&self, name: &str, annotations: &[(&str, &str)], headless: bool) -> Service {
        let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
        let mut spec = json!({"ports": [{"port": 443}], "selector": {"app": name}});
        if headless {
            spec["clusterIP"] = json!("None");
        }
        let metadata = json!({"name": name, "annotations": annotations});
        self.cluster.create::<Service>(Some(SHOP), json!({"metadata": metadata, "spec": spec})).await
    }

    /// A Service that asks in the usual words.
    pub(crate) async fn asks(&self, name: &str, secret: &str) -> Service {
        self.service(name, &[(&key(BETA, "serving-cert-secret-name"), secret)], false).await
    }

    /// Asks for a rotation of the CA.
    pub(crate) async fn force(&self, reason: &str) {
        let ask = json!({"metadata": {"annotations": {perennial_api::annotations::FORCE: reason}}});
        let signers = self.cluster.secrets("openshift-service-ca");
        signers.patch("signing-key", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    }

    /// Ends the trust in the CAs of before, as the command does.
    pub(crate) async fn distrust(&self, reason: &str) {
        let (client, now) = (&self.cluster.client, self.cluster.now());
        let found = observe(client, PLANNER.wiring(), &self.cluster.view, now).await.unwrap();
        let meant = Distrust::of_service_ca(&PLANNER, &found.snapshot).unwrap();
        let keys: Vec<KeyId> = meant.keys.into_iter().collect();
        let asked = ask::Distrust { since: now, reason: reason.to_owned() };
        ask::distrust(client, (&meant.signer.object(), &meant.bundle.object()), &keys, &asked).await.unwrap();
    }

    /// Makes every write that is possible now.
    pub(crate) async fn once(&self) -> Passed {
        let passed = self.cluster.runner().once().await.unwrap();
        assert!(passed.failed.is_empty(), "{:?}", passed.failed);
        passed
    }

    pub(crate) async fn served(&self, name: &str) -> Served {
        let secret = self.secrets().get(name).await.unwrap();
        let data = secret.data.clone().unwrap();
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
        assert_eq!(data.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
        let certificates = read_certificates(&data["tls.crt"].0).unwrap();
        assert!(PrivateKey::from_pem(&data["tls.key"].0).unwrap().matches(&certificates[0]));
        Served { certificates, secret }
    }

    /// The annotations of a Service that are not its own wish.
    pub(super) async fn told(&self, name: &str) -> BTreeMap<String, String> {
        let mut annotations = self.services().get(name).await.unwrap().annotations().clone();
        annotations.retain(|key, _| !key.ends_with("serving-cert-secret-name"));
        annotations
    }

    pub(super) async fn patch_secret(&self, name: &str, patch: Value) {
        self.secrets().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    pub(super) async fn events(&self, reason: &str) -> Vec<String> {
        let all =
            Api::<Event>::namespaced(self.cluster.client.clone(), SHOP).list(&ListParams::default()).await.unwrap();
        let ours = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        ours.map(|event| event.message.unwrap_or_default()).collect()
    }

    pub(super) fn later(&self, days: i64) {
        self.cluster.set_now(self.cluster.now() + SignedDuration::from_hours(24 * days));
    }
}

impl Served {
    pub(crate) fn leaf(&self) -> &Certificate {
        &self.certificates[0]
    }

    pub(super) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.leaf().facts().hosts.iter().map(Host::to_string).collect();
        names.sort();
        names
    }

    pub(super) fn annotation(&self, group: &str, name: &str) -> Option<&str> {
        self.secret.annotations().get(&key(group, name)).map(String::as_str)
    }

    pub(crate) fn version(&self) -> String {
        self.secret.resource_version().unwrap()
    }
}

pub(super) fn key(group: &str, name: &str) -> String {
    format!("{group}/{name}")
}

/// The running operator.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(cluster: &Cluster) -> Running {
        Running::through(cluster, cluster.client.clone())
    }

    /// Through another way to the same server.
    pub(crate) fn through(cluster: &Cluster, client: Client) -> Running {
        let (stop, stopped) = oneshot::channel();
        let runner = cluster.runner_through(client);
        let task = tokio::spawn(async move { runner.run(|_| {}, async { drop(stopped.await) }).await });
        Running { stop, task }
    }

    pub(crate) async fn end(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}
