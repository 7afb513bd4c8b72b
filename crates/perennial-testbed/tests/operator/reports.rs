//! Events, conditions and metrics, and the operator's reaction to events of the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Event, Node, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use perennial_api::annotations::FORCE;
use perennial_api::config::ClusterOperator;
use perennial_api::pki::Pki;
use perennial_core::catalog::Component;
use perennial_core::conditions::{self, Circumstances, Claim, Services};
use perennial_testbed::check::promtool_check_metrics;
use serde_json::json;

use crate::cluster::{Cluster, PLANNER};

const KASO: &str = "openshift-kube-apiserver-operator";
const KAS: &str = "openshift-kube-apiserver";

/// Returns the events of a namespace as `reason kind/name`.
async fn events(cluster: &Cluster, namespace: &str) -> BTreeSet<String> {
    let api = Api::<Event>::namespaced(cluster.client.clone(), namespace);
    let events = api.list(&ListParams::default()).await.unwrap();
    let text = |event: Event| {
        let involved = event.involved_object;
        format!("{} {}/{}", event.reason.unwrap(), involved.kind.unwrap(), involved.name.unwrap())
    };
    events.into_iter().map(text).collect()
}

/// A condition of a ClusterOperator: its status, its message, and its last transition.
pub(crate) async fn condition(cluster: &Cluster, operator: &str, type_: &str) -> (String, String, Timestamp) {
    let operator = Api::<ClusterOperator>::all(cluster.client.clone()).get(operator).await.unwrap();
    let conditions = operator.status.unwrap().conditions;
    let found = conditions.into_iter().find(|it| it.type_ == type_).unwrap();
    (found.status, found.message.unwrap_or_default(), found.last_transition_time.0)
}

/// Returns the reason of a condition.
pub(crate) async fn reason(cluster: &Cluster, operator: &str, type_: &str) -> String {
    let operator = Api::<ClusterOperator>::all(cluster.client.clone()).get(operator).await.unwrap();
    let conditions = operator.status.unwrap().conditions;
    conditions.into_iter().find(|it| it.type_ == type_).and_then(|it| it.reason).unwrap()
}

async fn first_install_is_reported(cluster: &Cluster) {
    cluster.runner().once().await.unwrap();
    let operator = events(cluster, KASO).await;
    for told in [
        "SignerUpdateRequired Secret/aggregator-client-signer",
        "SecretCreated Secret/aggregator-client-signer",
        "CABundleUpdateRequired ConfigMap/loadbalancer-serving-ca",
        "ConfigMapCreated ConfigMap/loadbalancer-serving-ca",
        // Events of other namespaces are in the namespace of the operator too.
        "TargetUpdateRequired Deployment/kube-apiserver-operator",
        "SecretCreated Deployment/kube-apiserver-operator",
    ] {
        assert!(operator.contains(told), "{told} is not among {operator:?}");
    }
    let operand = events(cluster, KAS).await;
    assert!(operand.contains("TargetUpdateRequired Secret/aggregator-client"), "{operand:?}");
    for operator in ["kube-apiserver", "kube-controller-manager"] {
        for (type_, status) in
            [("Available", "True"), ("Progressing", "False"), ("Degraded", "False"), ("Upgradeable", "True")]
        {
            assert_eq!(condition(cluster, operator, type_).await.0, status, "{operator} {type_}");
        }
    }
    let domain = "CertRotation_AggregatorClientSigner_Degraded";
    assert_eq!(condition(cluster, "kube-apiserver", domain).await.0, "False");
}

#[tokio::test]
async fn a_first_installation_is_reported_by_events_and_conditions() {
    first_install_is_reported(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn a_first_installation_is_reported_on_a_real_server() {
    first_install_is_reported(&Cluster::real().await).await;
}

/// Returns the events that `kubectl describe` requests.
async fn described(cluster: &Cluster, uid: &str) -> Vec<String> {
    let api = Api::<Event>::namespaced(cluster.client.clone(), KASO);
    let events = api.list(&ListParams::default()).await.unwrap();
    let of_it = events.into_iter().filter(|it| it.involved_object.uid.as_deref() == Some(uid));
    of_it.map(|it| it.reason.unwrap()).collect()
}

#[tokio::test]
async fn kubectl_describe_shows_each_event_of_an_object_once() {
    let cluster = Cluster::embedded().await;
    cluster.runner().once().await.unwrap();
    let name = "aggregator-client-signer";
    let secrets = cluster.secrets(KASO);
    let uid = secrets.get(name).await.unwrap().metadata.uid.unwrap();
    assert_eq!(described(&cluster, &uid).await, ["SecretCreated"]);
    let asked = json!({"metadata": {"annotations": {FORCE: "a rehearsal"}}});
    secrets.patch(name, &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
    // A write fails for a while; it is retried, and reported once.
    let refused = cluster.way(|method, path| {
        let is_it = *method == Method::PUT && path.ends_with("/secrets/aggregator-client-signer");
        is_it.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    });
    let runner = cluster.runner_through(refused);
    for _ in 0..3 {
        assert_eq!(runner.once().await.unwrap().failed.len(), 1);
    }
    let told = ["SecretCreated", "SecretUpdateFailed", "SignerUpdateRequired"];
    let mut found = described(&cluster, &uid).await;
    found.sort();
    assert_eq!(found, told);
    // After ten minutes it is worth telling again.
    cluster.set_now(cluster.now() + SignedDuration::from_mins(11));
    runner.once().await.unwrap();
    assert_eq!(described(&cluster, &uid).await.len(), 5);
    cluster.runner().once().await.unwrap();
    assert!(described(&cluster, &uid).await.contains(&"SecretUpdated".to_owned()));
}

#[tokio::test]
async fn missing_source_of_names_is_reported_until_it_exists() {
    let cluster = Cluster::embedded().await;
    cluster.set_addresses("", "https://api-int.shop.example.com:6443").await;
    cluster.runner().once().await.unwrap();
    let (status, message, since) = condition(&cluster, "kube-apiserver", "Degraded").await;
    assert_eq!(status, "True");
    assert!(
        message.contains("external-loadbalancer-serving-certkey") && message.contains("external API address"),
        "{message}"
    );
    assert_eq!(condition(&cluster, "kube-apiserver", "Available").await.0, "False");
    let domain = "CertRotation_LoadbalancerServingSigner_Degraded";
    assert_eq!(condition(&cluster, "kube-apiserver", domain).await.0, "True");
    // All other components have their certificates.
    assert_eq!(condition(&cluster, "kube-controller-manager", "Degraded").await.0, "False");
    assert!(cluster.secrets(KAS).get_opt("internal-loadbalancer-serving-certkey").await.unwrap().is_some());
    cluster.set_now(cluster.now() + SignedDuration::from_mins(1));
    cluster.runner().once().await.unwrap();
    assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.2, since, "the same as before is no transition");
    cluster.set_addresses("https://[2001:db8::7]:6443", "https://api-int.shop.example.com:6443").await;
    cluster.runner().once().await.unwrap();
    assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.0, "False");
    let secret = cluster.secrets(KAS).get("external-loadbalancer-serving-certkey").await.unwrap();
    let hosts = &secret.metadata.annotations.unwrap()["auth.openshift.io/certificate-hostnames"];
    assert_eq!(hosts, "2001:db8::7");
}

/// Returns the conditions of a component after an observation, before any write.
async fn claimed(cluster: &Cluster, component: Component, type_: &str) -> Claim {
    let (observation, report) = cluster.reconciler().plan().await.unwrap();
    let circumstances = Circumstances {
        snapshot: &observation.snapshot,
        report: &report,
        failed: &[],
        problems: &observation.problems,
        services: &Services::default(),
        stale_pods: None,
        rotation_base: None,
    };
    let claims = conditions::claims(&PLANNER, component, &circumstances).unwrap();
    claims.into_iter().find(|claim| claim.type_ == type_).unwrap()
}

#[tokio::test]
async fn progress_is_reported_only_for_the_component_itself() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
    let asked = json!({"metadata": {"annotations": {FORCE: "a rehearsal"}}});
    cluster.secrets(KAS).patch("aggregator-client", &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
    let ours = claimed(&cluster, Component::KubeApiserver, "Progressing").await;
    assert!(ours.is_true && ours.message.contains("issue openshift-kube-apiserver/aggregator-client"), "{ours:?}");
    assert_eq!(ours.reason, "Rotating");
    let theirs = claimed(&cluster, Component::KubeControllerManager, "Progressing").await;
    assert!(!theirs.is_true, "{theirs:?}");
}

#[tokio::test]
async fn an_unusable_secret_is_not_reported_as_absent() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let garbled = json!({"data": {"tls.crt": "bm8gUEVN"}});
    cluster.secrets(KAS).patch("aggregator-client", &PatchParams::default(), &Patch::Merge(&garbled)).await.unwrap();
    let available = claimed(&cluster, Component::KubeApiserver, "Available").await;
    assert!(!available.is_true);
    assert!(available.message.contains("openshift-kube-apiserver/aggregator-client cannot be used: "), "{available:?}");
    cluster.secrets(KAS).delete("aggregator-client", &DeleteParams::default()).await.unwrap();
    let available = claimed(&cluster, Component::KubeApiserver, "Available").await;
    assert!(available.message.contains("openshift-kube-apiserver/aggregator-client does not exist"), "{available:?}");
}

#[tokio::test]
async fn the_reported_version_is_that_of_the_running_operator() {
    let cluster = Cluster::embedded().await;
    cluster.runner().once().await.unwrap();
    let api = Api::<ClusterOperator>::all(cluster.client.clone());
    let versions = [json!({"name": "operator", "version": "0.0.0"}), json!({"name": "other", "version": "7"})];
    let older = json!({"status": {"versions": versions}});
    api.patch_status("kube-apiserver", &PatchParams::default(), &Patch::Merge(&older)).await.unwrap();
    cluster.runner().once().await.unwrap();
    let ours = env!("CARGO_PKG_VERSION").to_owned();
    let found = async || {
        let found = api.get("kube-apiserver").await.unwrap().status.unwrap().versions;
        found.into_iter().map(|it| (it.name, it.version)).collect::<BTreeMap<String, String>>()
    };
    let expected = |operator: &str| {
        let all = [("operator", operator), ("other", "7"), ("perennial", ours.as_str())];
        all.map(|(name, version)| (name.to_owned(), version.to_owned())).into()
    };
    // The version of another operator stays; one that was Perennial's is updated.
    assert_eq!(found().await, expected("0.0.0"));
    let versions = ["operator", "perennial"].map(|name| json!({"name": name, "version": "0.0.1"}));
    let older = json!({"status": {"versions": [versions[0], versions[1], {"name": "other", "version": "7"}]}});
    api.patch_status("kube-apiserver", &PatchParams::default(), &Patch::Merge(&older)).await.unwrap();
    cluster.runner().once().await.unwrap();
    assert_eq!(found().await, expected(&ours));
}

#[tokio::test]
async fn an_unreadable_policy_is_reported_and_delays_nothing() {
    let cluster = Cluster::embedded().await;
    // A newer version may have stored this: the definition accepts it.
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    let mut definition = definitions.get("pkis.config.openshift.io").await.unwrap();
    for version in &mut definition.spec.versions {
        let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        version.schema = serde_json::from_value(open).unwrap();
    }
    definitions.replace("pkis.config.openshift.io", &PostParams::default(), &definition).await.unwrap();
    let newer = json!({"spec": {"defaults": {"key": {"algorithm": "MLDSA"}}}});
    let resource = ApiResource::erase::<Pki>(&());
    let api = Api::<DynamicObject>::all_with(cluster.client.clone(), &resource);
    api.patch("cluster", &PatchParams::default(), &Patch::Merge(&newer)).await.unwrap();
    cluster.runner().once().await.unwrap();
    let (status, message, _) = condition(&cluster, "kube-apiserver", "Degraded").await;
    assert_eq!(status, "True");
    assert!(message.contains("PKI") && message.contains("MLDSA"), "{message}");
    assert_eq!(condition(&cluster, "kube-apiserver", "Available").await.0, "True");
}

#[tokio::test]
async fn metrics_list_existing_and_issued_certificates() {
    let cluster = Cluster::embedded().await;
    let runner = cluster.runner();
    let metrics = runner.metrics();
    assert!(metrics.is_alive() && !metrics.is_ready(), "the first pass may take its time");
    runner.self_test().await.unwrap();
    runner.once().await.unwrap();
    let text = metrics.text().unwrap();
    promtool_check_metrics(&text).unwrap();
    let key = r#"algorithm="ECDSA",key_size="",curve="P256",component="kube-apiserver-operator""#;
    for line in [
        format!(r#"openshift_pki_certificate_info{{certificate_name="aggregator-client",category="ClientCertificate",{key},namespace="openshift-kube-apiserver",secret="aggregator-client"}} 1"#),
        format!(r#"openshift_pki_certificate_generated_total{{certificate_name="aggregator-client",category="ClientCertificate",{key},result="success"}} 1"#),
        format!(r#"openshift_pki_certificate_generation_duration_seconds_count{{certificate_name="aggregator-client",{key}}} 1"#),
        // A month, and half of it.
        r#"openshift_pki_certificate_expiry_timestamp_seconds{certificate_name="aggregator-client",component="kube-apiserver-operator",namespace="openshift-kube-apiserver",secret="aggregator-client"} 1774958400"#.to_owned(),
        r#"openshift_pki_certificate_next_rotation_timestamp_seconds{certificate_name="aggregator-client",component="kube-apiserver-operator",namespace="openshift-kube-apiserver",secret="aggregator-client"} 1773662400"#.to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
    }
    // Bounds are written as the installer writes them.
    let buckets = text.lines().filter(|line| line.contains("_bucket{") && line.contains("\"aggregator-client\""));
    let bounds: Vec<&str> = buckets.filter_map(|line| line.split_once("le=\"")?.1.split('"').next()).collect();
    assert_eq!(bounds, ["0.01", "0.1", "0.5", "1", "2", "5", "10", "+Inf"]);
    assert!(metrics.is_alive() && metrics.is_ready());
    cluster.set_now(cluster.now() + SignedDuration::from_hours(400 * 24));
    assert!(metrics.is_alive(), "a clock that is set says nothing about progress");
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(660)).await;
    assert!(!metrics.is_alive(), "no pass for ten minutes is no progress");
    metrics.record_progress();
    assert!(metrics.is_alive(), "a replica that does not lead makes no progress");
}

/// The operator notices a deletion and repairs it, long before its next resync.
#[tokio::test]
async fn change_of_an_object_starts_a_pass() {
    let cluster = Cluster::embedded().await;
    let runner = cluster.runner();
    let secrets = cluster.secrets(KAS);
    let story = async {
        let gone = |name: &'static str| {
            let secrets = secrets.clone();
            async move { secrets.get_opt(name).await.unwrap().is_none() }
        };
        while gone("check-endpoints-client-cert-key").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Until the watch has started.
        tokio::time::sleep(Duration::from_secs(2)).await;
        secrets.delete("aggregator-client", &DeleteParams::default()).await.unwrap();
        while gone("aggregator-client").await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = runner.run(|_| {}, std::future::pending()) => {}
        () = story => {}
        () = tokio::time::sleep(Duration::from_secs(40)) => panic!("it does not hear"),
    }
}

/// Objects of a new node are watched.
#[tokio::test]
async fn objects_of_a_new_node_are_watched() {
    // Only etcd has something for each node.
    let mut cluster = Cluster::embedded().await;
    cluster.view.settings.every_component = true;
    let runner = cluster.runner();
    let passes = AtomicUsize::new(0);
    let quiet = async || loop {
        let before = passes.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(2)).await;
        if before > 0 && passes.load(Ordering::Relaxed) == before {
            break before;
        }
    };
    let story = async {
        let before = quiet().await;
        let labels = json!({"node-role.kubernetes.io/control-plane": ""});
        cluster.create::<Node>(None, json!({"metadata": {"name": "m1", "labels": labels}})).await;
        while passes.load(Ordering::Relaxed) == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let before = quiet().await;
        cluster.create::<Secret>(Some("openshift-etcd"), json!({"metadata": {"name": "etcd-peer-m1"}})).await;
        while passes.load(Ordering::Relaxed) == before {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = runner.run(|_| _ = passes.fetch_add(1, Ordering::Relaxed), std::future::pending()) => {}
        () = story => {}
        () = tokio::time::sleep(Duration::from_secs(40)) => panic!("it does not hear"),
    }
}

/// A certificate that waits for its clients is reported once: the status contains no current time.
async fn conditions_are_written_once_while_a_certificate_waits(cluster: Cluster) {
    let runner = cluster.runner();
    runner.once().await.unwrap();
    cluster.set_now(cluster.now() + SignedDuration::from_hours(24));
    let ask = json!({"metadata": {"annotations": {FORCE: "a test"}}});
    for (namespace, name) in [(KASO, "aggregator-client-signer"), (KAS, "aggregator-client")] {
        let secrets = cluster.secrets(namespace);
        secrets.patch(name, &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    }
    runner.once().await.unwrap();
    let mut versions = BTreeSet::new();
    for _ in 0..3 {
        cluster.set_now(cluster.now() + SignedDuration::from_mins(1));
        runner.once().await.unwrap();
        let (status, message, _) = condition(&cluster, "kube-apiserver", "Progressing").await;
        assert!(status == "True" && message.contains("openshift-kube-apiserver/aggregator-client: "), "{message}");
        assert_eq!(reason(&cluster, "kube-apiserver", "Progressing").await, "Rotating");
        let operators = Api::<ClusterOperator>::all(cluster.client.clone());
        versions.insert(operators.get("kube-apiserver").await.unwrap().metadata.resource_version);
    }
    assert_eq!(versions.len(), 1, "{versions:?}");
    let text = runner.metrics().text().unwrap();
    let line = r#"perennial_waiting{scope="Cluster",reason="ClientsLackTrust"} 1"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}

on_both! {
    conditions_are_written_once_while_a_certificate_waits
}
