//! A cluster in which only the service CA is managed, and its clients.

use std::collections::BTreeMap;

use http::{Request, Response};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Event, Secret};
use kube_client::api::{ListParams, PostParams};
use kube_client::client::Body;
use kube_client::{Api, Client};
use perennial_api::operator::ServiceCA;
use perennial_core::catalog::{Catalog, Component, ObjectName};
use perennial_core::policy::Usage;
use perennial_operator::ask;
use perennial_operator::rbac;
use perennial_operator::run::Runner;
use perennial_testbed::judges::{Case, Judge, Purpose};
use perennial_x509::{Certificate, read_certificates};
use serde_json::{Value, json};

use crate::cluster::{Cluster, way_through};
use crate::mint::Minted;
use crate::reports::condition;

pub(super) const NAMESPACE: &str = "openshift-service-ca";
pub(super) const SECRET: &str = "signing-key";
pub(super) const DAY: SignedDuration = SignedDuration::from_hours(24);
pub(super) const SECOND: SignedDuration = SignedDuration::from_secs(1);
/// The remaining validity at rotation.
pub(super) const MINIMUM: SignedDuration = SignedDuration::from_hours(24 * 395);
/// The annotation of the original operator.
pub(super) const REASON: &str = "service-ca.operators.openshift.io/forced-rotation-reason";
/// A Service that clients connect to.
const NAME: &str = "web.shop.svc";

/// A cluster, and the operator's client.
pub(super) struct Lab {
    pub(super) cluster: Cluster,
    client: Client,
}

/// The parsed Secret of the CA.
pub(super) struct Ca {
    pub(super) secret: Secret,
    pub(super) signer: Minted,
    /// `ca-bundle.crt`
    pub(super) bundle: Vec<Certificate>,
    /// `intermediate-ca.crt`, and where that leads
    pub(super) cross_signed_by_earlier: Vec<Certificate>,
}

impl Lab {
    /// On the embedded server, with all rights.
    pub(super) async fn embedded() -> Lab {
        let cluster = Cluster::embedded().await;
        let client = cluster.client.clone();
        Lab::new(cluster, client)
    }

    /// On a real server, with the rights of the manifests.
    pub(super) async fn real() -> Lab {
        let cluster = Cluster::real().await;
        let account = "openshift-kube-apiserver-operator";
        cluster.apply(&rbac::objects(Catalog::builtin(), account)).await;
        let client = cluster.client_as_account(account, rbac::NAME).await;
        Lab::new(cluster, client)
    }

    fn new(mut cluster: Cluster, client: Client) -> Lab {
        let others = Component::managed().filter(|it| *it != Component::ServiceCa);
        cluster.view.settings.left_alone.extend(others.map(|it| it.owner().to_owned()));
        Lab { cluster, client }
    }

    /// Returns an operator that has just started, without any memory.
    pub(super) fn runner(&self) -> Runner<'static> {
        self.cluster.runner_through(self.client.clone())
    }

    /// The way of the operator, on which this is done with each request.
    pub(super) fn way_of<F>(&self, handle: impl Fn(Client, Request<Body>) -> F + Send + Sync + 'static) -> Client
    where
        F: Future<Output = kube_client::Result<Response<Body>>> + Send + 'static,
    {
        way_through(self.client.clone(), handle)
    }

    /// Runs one pass of a new operator, and returns its writes.
    pub(super) async fn pass(&self) -> Vec<String> {
        let passed = self.runner().once().await.unwrap();
        assert!(passed.failed.is_empty(), "{:?}", passed.failed);
        assert!(passed.report.steps.is_empty(), "{:?}", passed.report.steps);
        passed.written.iter().map(|(step, _)| step.to_string()).collect()
    }

    pub(super) fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    pub(super) fn wait(&self, span: SignedDuration) {
        self.cluster.set_now(self.now() + span);
    }

    pub(super) async fn secret(&self) -> Secret {
        self.cluster.secrets(NAMESPACE).get(SECRET).await.unwrap()
    }

    pub(super) async fn ca(&self) -> Ca {
        let secret = self.secret().await;
        let data = secret.data.clone().unwrap();
        assert_eq!(read_certificates(&data["tls.crt"].0).unwrap().len(), 1, "the CA and nothing beside it");
        let read = |key: &str| data.get(key).map(|pem| read_certificates(&pem.0).unwrap()).unwrap_or_default();
        let (bundle, cross) = (read("ca-bundle.crt"), read("intermediate-ca.crt"));
        assert!(cross.len() <= 1, "the original operator takes one");
        let cross_signed_by_earlier = [cross, read("earlier-intermediate-ca.crt")].concat();
        Ca { signer: Minted::read(&data), bundle, cross_signed_by_earlier, secret }
    }

    /// Returns the content of `signing-cabundle`, and checks that its copy is the same.
    pub(super) async fn bundle(&self) -> Vec<Certificate> {
        let read = async |namespace: &str, name: &str| {
            let map = self.cluster.config_maps(namespace).get(name).await.unwrap();
            map.data.unwrap().remove("ca-bundle.crt").unwrap()
        };
        let text = read(NAMESPACE, "signing-cabundle").await;
        assert_eq!(read("openshift-config-managed", "service-ca").await, text);
        read_certificates(text.as_bytes()).unwrap()
    }

    /// The versions of the CA, of its bundle and of the copy of that.
    pub(super) async fn versions(&self) -> BTreeMap<String, String> {
        let mut versions = self.cluster.versions().await;
        versions.retain(|object, _| object.contains(NAMESPACE) || object.ends_with("/service-ca"));
        versions
    }

    /// Sets the request in `ServiceCA`.
    pub(super) async fn ask(&self, overrides: Value) {
        self.configure(json!({"managementState": "Managed", "unsupportedConfigOverrides": overrides})).await;
    }

    /// A rotation for a reason.
    pub(super) async fn request(&self, reason: &str) {
        self.ask(json!({"forceRotation": {"reason": reason}})).await;
    }

    pub(super) async fn configure(&self, spec: Value) {
        let api = Api::<ServiceCA>::all(self.cluster.client.clone());
        let mut wanted = ServiceCA::new("cluster", serde_json::from_value(spec).unwrap());
        match api.get_opt("cluster").await.unwrap() {
            None => api.create(&PostParams::default(), &wanted).await.unwrap(),
            Some(found) => {
                wanted.metadata.resource_version = found.metadata.resource_version;
                api.replace("cluster", &PostParams::default(), &wanted).await.unwrap()
            }
        };
    }

    /// Does the same as `perennial rotate service-ca --yes`.
    pub(super) async fn insist(&self, reason: &str) {
        let secret = ObjectName { namespace: NAMESPACE.to_owned(), name: SECRET.to_owned() };
        ask::rotate(&self.cluster.client, &secret, reason).await.unwrap();
    }

    /// Returns the type and message of the Events with this reason on the Secret. The operator has the same Events.
    pub(super) async fn told(&self, reason: &str) -> Vec<(String, String)> {
        let read = async |namespace: &str| {
            let api = Api::<Event>::namespaced(self.cluster.client.clone(), namespace);
            let events = api.list(&ListParams::default()).await.unwrap();
            let mut of_it: Vec<_> = events.into_iter().filter(|it| it.reason.as_deref() == Some(reason)).collect();
            of_it.sort_by_key(|it| it.last_timestamp.clone().unwrap().0);
            of_it.into_iter().map(|it| (it.type_.unwrap(), it.message.unwrap())).collect::<Vec<_>>()
        };
        let told = read(NAMESPACE).await;
        assert_eq!(told, read("openshift-service-ca-operator").await);
        told
    }

    /// A condition of its ClusterOperator: its status and its message.
    pub(super) async fn condition(&self, type_: &str) -> (String, String) {
        let (status, message, _) = condition(&self.cluster, "service-ca", type_).await;
        (status, message)
    }

    /// Writes a CA of another issuer, with its other keys.
    pub(super) async fn put(&self, data: BTreeMap<&str, String>, bundle: &str, writer: &str) {
        let data: BTreeMap<String, ByteString> =
            data.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect();
        let as_them = PostParams { field_manager: Some(writer.to_owned()), ..PostParams::default() };
        let secret = json!({"metadata": {"name": SECRET}, "type": "kubernetes.io/tls", "data": data});
        let secret: Secret = serde_json::from_value(secret).unwrap();
        self.cluster.secrets(NAMESPACE).create(&as_them, &secret).await.unwrap();
        for (namespace, name) in [(NAMESPACE, "signing-cabundle"), ("openshift-config-managed", "service-ca")] {
            let map = json!({"metadata": {"name": name}, "data": {"ca-bundle.crt": bundle}});
            let map = serde_json::from_value(map).unwrap();
            self.cluster.config_maps(namespace).create(&as_them, &map).await.unwrap();
        }
    }
}

impl Ca {
    pub(super) fn certificate(&self) -> &Certificate {
        &self.signer.certificate
    }

    pub(super) fn ends(&self) -> Timestamp {
        self.certificate().facts().validity.not_after
    }

    pub(super) fn annotation(&self, name: &str) -> Option<&str> {
        self.secret.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    pub(super) fn key(&self) -> String {
        self.certificate().facts().public_key.kind().spec().unwrap().to_string()
    }

    /// Returns the chain of a Service whose certificate this CA issues now.
    pub(super) fn serves(&self, now: Timestamp) -> Vec<Certificate> {
        let leaf = self.signer.issue(Usage::Serving, NAME, now, now.duration_until(self.ends())).certificate;
        assert_eq!(leaf.facts().authority_key_id, self.certificate().facts().subject_key_id);
        let beside = if self.cross_signed_by_earlier.is_empty() {
            vec![self.certificate().clone()]
        } else {
            self.cross_signed_by_earlier.clone()
        };
        [vec![leaf], beside].concat()
    }
}

/// Handshakes: the client, the server, the time, and whether it succeeds.
#[derive(Default)]
pub(super) struct Handshakes {
    asked: Vec<(Case, bool)>,
}

impl Handshakes {
    pub(super) fn expect(
        &mut self,
        client: &[Certificate],
        server: &[Certificate],
        at: Timestamp,
        works: bool,
        what: &str,
    ) {
        let der = |certificates: &[Certificate]| certificates.iter().map(|it| it.der().to_vec()).collect();
        let case = Case {
            id: format!("{what} at {at} ({})", self.asked.len()),
            chain: der(server),
            anchors: der(client),
            purpose: Purpose::Server,
            name: Some(NAME.to_owned()),
            at: at.as_second(),
        };
        self.asked.push((case, works));
    }

    /// Before and after a rotation: all pairs accept each other until the old CA expires; after that, clients and servers that have not
    /// reloaded are rejected.
    pub(super) fn expect_overlap(
        &mut self,
        (old_client, old_server): (&[Certificate], &[Certificate]),
        (new_client, new_server): (&[Certificate], &[Certificate]),
        now: Timestamp,
        old_ends: Timestamp,
    ) {
        // For some clients it expires after its last second, and for some before that.
        for at in [now, old_ends - SECOND] {
            for (client, who) in [(old_client, "old client"), (new_client, "new client")] {
                self.expect(client, old_server, at, true, &format!("{who}, old server"));
                self.expect(client, new_server, at, true, &format!("{who}, new server"));
            }
        }
        let after = old_ends + SECOND;
        self.expect(old_client, old_server, after, false, "old client, old server");
        self.expect(old_client, new_server, after, false, "old client, new server");
        self.expect(new_client, new_server, after, true, "new client, new server");
    }

    /// Checks all handshakes with Go and OpenSSL.
    pub(super) fn judge(self) {
        let cases: Vec<Case> = self.asked.iter().map(|(case, _)| case.clone()).collect();
        assert!(self.asked.iter().any(|(_, works)| *works));
        for judge in [Judge::Go, Judge::OpenSsl] {
            let verdicts = judge.judge(&cases).unwrap();
            let wrong = self.asked.iter().zip(&verdicts).filter(|((_, works), verdict)| *works != verdict.accepted);
            let wrong: Vec<String> =
                wrong.map(|((case, _), verdict)| format!("{}: {}", case.id, verdict.why)).collect();
            assert!(wrong.is_empty(), "{judge}:\n{}", wrong.join("\n"));
        }
    }
}
