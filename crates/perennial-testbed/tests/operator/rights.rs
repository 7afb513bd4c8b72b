//! The operator with its own identity on a real server: its RBAC grants exactly what it uses.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube_client::client::Body;
use kube_client::{Api, Client, Error};
use perennial_api::config::FeatureGate;
use perennial_api::pki::{Pki, PkiSpec};
use perennial_core::catalog::{Catalog, Component};
use perennial_operator::callers::{Caller, Callers};
use perennial_operator::lease::Leadership;
use perennial_operator::rbac;
use serde_json::{Value, json};
use tower::service_fn;

use crate::cluster::Cluster;

const ACCOUNT: &str = "openshift-kube-apiserver-operator";

/// The requests to the server, as `namespace group/resource verb`; the namespace is empty for cluster-scoped resources.
pub(crate) type Asked = Arc<Mutex<BTreeSet<String>>>;

/// The connection to a server, with a record of all requests.
pub(crate) fn recorded(client: Client) -> (Client, Asked) {
    let asked = Asked::default();
    let record = asked.clone();
    let service = service_fn(move |request: Request<Body>| {
        let (client, record) = (client.clone(), record.clone());
        async move {
            record.lock().unwrap().extend(describe(&request));
            client.send(request).await
        }
    });
    (Client::new(service, "default"), asked)
}

/// None for discovery, which every user may read.
fn describe(request: &Request<Body>) -> Option<String> {
    let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
    if let ["apis", _group, _version] = path.as_slice() {
        return None;
    }
    let (group, rest) = match path.as_slice() {
        ["api", _version, rest @ ..] => ("", rest),
        ["apis", group, _version, rest @ ..] => (*group, rest),
        other => panic!("what is {other:?}?"),
    };
    let (namespace, rest) = match rest {
        ["namespaces", namespace, rest @ ..] if !rest.is_empty() => (*namespace, rest),
        rest => ("", rest),
    };
    let (resource, is_named) = match rest {
        [resource] => ((*resource).to_owned(), false),
        [resource, _] => ((*resource).to_owned(), true),
        [resource, _, subresource] => (format!("{resource}/{subresource}"), true),
        other => panic!("what is {other:?}?"),
    };
    let is_watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
    let verb = match *request.method() {
        Method::GET if is_watch => "watch",
        Method::GET if is_named => "get",
        Method::GET => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        ref other => panic!("what is {other}?"),
    };
    Some(format!("{namespace} {group}/{resource} {verb}"))
}

/// The grants of the roles, in the same format.
pub(crate) fn granted(objects: &[Value]) -> BTreeSet<String> {
    let texts =
        |value: &Value| value.as_array().unwrap().iter().map(|it| it.as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let mut granted = BTreeSet::new();
    for role in objects.iter().filter(|object| object["rules"].is_array()) {
        let namespace = role["metadata"]["namespace"].as_str().unwrap_or_default();
        for rule in role["rules"].as_array().unwrap() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    let line = |verb: String| format!("{namespace} {group}/{resource} {verb}");
                    granted.extend(texts(&rule["verbs"]).into_iter().map(line));
                }
            }
        }
    }
    granted
}

/// The same without the namespace.
pub(crate) fn kinds(all: &BTreeSet<String>) -> BTreeSet<String> {
    all.iter().map(|it| it.split_once(' ').unwrap().1.to_owned()).collect()
}

#[tokio::test]
async fn operator_has_exactly_the_rights_that_it_uses_on_a_real_server() {
    let mut cluster = Cluster::real().await;
    // Services may ask for Secrets everywhere; an operator that does not manage their CA has no access there.
    cluster.view.settings.left_alone.insert("service-ca".to_owned());
    let kept = [Component::KubeApiserver, Component::KubeControllerManager];
    let objects = rbac::objects_for(Catalog::builtin(), ACCOUNT, &kept);
    cluster.apply(&objects).await;
    let (client, asked) = recorded(cluster.client_as_account(ACCOUNT, rbac::NAME).await);
    let runner = cluster.runner_through(client.clone());
    let passed = runner.once().await.unwrap();
    assert!(passed.failed.is_empty(), "{:?}", passed.failed);
    assert_eq!(passed.written.len(), 47);

    // Rare events: a Secret of the wrong type, an update, a rollout, a lease.
    let secrets = cluster.secrets(ACCOUNT);
    let signer = secrets.get("aggregator-client-signer").await.unwrap();
    secrets.delete("aggregator-client-signer", &DeleteParams::default()).await.unwrap();
    let annotations = signer.metadata.annotations;
    let metadata = json!({"name": "aggregator-client-signer", "annotations": annotations});
    cluster.create::<Secret>(Some(ACCOUNT), json!({"metadata": metadata, "type": "Opaque", "data": signer.data})).await;
    let clock = cluster.now();
    let mut leadership =
        Leadership::new(client.clone(), ACCOUNT, "perennial", "test".to_owned(), Arc::new(move || clock));
    leadership.acquire(|_| {}).await;
    leadership.release().await.unwrap();
    let callers = Callers::new(client.clone(), Arc::new(move || clock));
    assert_eq!(callers.who("nobody's").await.unwrap(), None);
    let prometheus = Caller { name: "prometheus".to_owned(), ..Caller::default() };
    assert!(!callers.may_read(&prometheus, "/metrics").await.unwrap());
    cluster.run_static_pods().await;
    // The policy is gone, and the version decides about the feature gate.
    let pkis = Api::<Pki>::all(cluster.client.clone());
    pkis.delete("cluster", &DeleteParams::default()).await.unwrap();
    cluster.create::<FeatureGate>(None, json!({"metadata": {"name": "cluster"}, "spec": {}})).await;
    let versions = ["4.22.0", "4.21.3"].map(|version| json!({"version": version}));
    let status = json!({"status": {"featureGates": versions}});
    let gates = Api::<FeatureGate>::all(cluster.client.clone());
    gates.patch_status("cluster", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
    let until = cluster.now() + jiff::SignedDuration::from_hours(24 * 16);
    cluster.set_now(until);
    let granted = granted(&objects);
    let used_all = async {
        while !kinds(&granted).is_subset(&kinds(&asked.lock().unwrap())) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    // The list below names the rights that are not used by then.
    let stop = async { drop(tokio::time::timeout(Duration::from_secs(60), used_all).await) };
    runner.run(|passed| assert!(passed.failed.is_empty(), "{:?}", passed.failed), stop).await;
    let (after, _) = cluster.pass().await;
    assert!(after.observation.snapshot.mistyped.is_empty());
    assert_eq!(pkis.get("cluster").await.unwrap().spec, PkiSpec::default(), "it is created with these rights");

    // The server rejected nothing, and every right was used.
    let asked = asked.lock().unwrap().clone();
    let beyond: Vec<_> = asked.difference(&granted).collect();
    assert!(beyond.is_empty(), "asked for and not granted: {beyond:?}");
    // Every granted read is used; each rare write is used somewhere.
    let is_look = |line: &&String| ["get", "list", "watch"].iter().any(|verb| line.ends_with(verb));
    let looks: Vec<_> = granted.difference(&asked).filter(is_look).filter(|line| !line.contains("/pods ")).collect();
    assert!(looks.is_empty(), "granted and never used: {looks:?}");
    let (asked, granted) = (kinds(&asked), kinds(&granted));
    let idle: Vec<_> = granted.difference(&asked).collect();
    assert!(idle.is_empty(), "granted and never used: {idle:?}");

    let is_forbidden = |error: Error| matches!(error, Error::Api(status) if status.is_forbidden());
    let elsewhere = Api::<Secret>::namespaced(client.clone(), "default").list(&ListParams::default()).await;
    assert!(is_forbidden(elsewhere.unwrap_err()));
    let all = Api::<Secret>::all(client.clone()).list(&ListParams::default()).await;
    assert!(is_forbidden(all.unwrap_err()));
    let maps = Api::<ConfigMap>::namespaced(client, ACCOUNT);
    assert!(is_forbidden(maps.delete("localhost-serving-ca", &DeleteParams::default()).await.unwrap_err()));
}
