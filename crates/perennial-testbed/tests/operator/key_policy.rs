//! The PKI resource of a cluster: its versions, its reports, and when it applies.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::StatusCode;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Event;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use perennial_api::config::FeatureGate;
use perennial_api::pki::{Pki, v1alpha1};
use perennial_core::policy::{Category, Policy};
use perennial_x509::read_certificates;
use serde_json::{Value, json};
use tracing_subscriber::fmt::MakeWriter;

use crate::cluster::{Cluster, soon};
use crate::reports::condition;
use crate::serving::Shop;

const KASO: &str = "openshift-kube-apiserver-operator";
const KAS: &str = "openshift-kube-apiserver";
const ETCDO: &str = "openshift-etcd-operator";
const DEFINITION: &str = "pkis.config.openshift.io";
const GATE: &str = "ConfigurablePKI";

on_both! {
    policy_is_read_from_a_server_with_only_v1alpha1
    an_unknown_field_makes_only_its_entry_unsupported
    an_empty_policy_is_created_if_there_is_none
    feature_gate_applies_while_the_operator_runs
}

/// Returns the key of the certificate in a Secret.
async fn key(cluster: &Cluster, namespace: &str, name: &str) -> Option<String> {
    let secret = cluster.secrets(namespace).get_opt(name).await.unwrap()?;
    let certificates = read_certificates(&secret.data.unwrap_or_default().get("tls.crt")?.0).unwrap();
    Some(certificates[0].facts().public_key.kind().spec().unwrap().to_string())
}

/// Changes the definition of the resource, and waits until the server serves it.
async fn change_definition<F: Future<Output = bool>>(
    cluster: &Cluster,
    change: impl Fn(&mut CustomResourceDefinition),
    is_so: impl Fn() -> F,
) {
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    let mut definition = definitions.get(DEFINITION).await.unwrap();
    change(&mut definition);
    definitions.replace(DEFINITION, &PostParams::default(), &definition).await.unwrap();
    soon("the definition counts", is_so).await;
}

/// The resource without a type, for fields of other versions.
fn untyped(cluster: &Cluster) -> Api<DynamicObject> {
    Api::all_with(cluster.client.clone(), &ApiResource::erase::<Pki>(&()))
}

/// Makes the definition accept every field, like that of a newer version.
async fn open_definition(cluster: &Cluster) {
    let open = |definition: &mut CustomResourceDefinition| {
        for version in &mut definition.spec.versions {
            let open = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
            version.schema = serde_json::from_value(open).unwrap();
        }
    };
    let api = untyped(cluster);
    let probe = json!({"spec": {"probe": true}});
    let is_kept = || async {
        let dry = PatchParams { dry_run: true, ..PatchParams::default() };
        let patched = api.patch("cluster", &dry, &Patch::Merge(&probe)).await;
        patched.is_ok_and(|it| it.data.pointer("/spec/probe").is_some())
    };
    change_definition(cluster, open, is_kept).await;
}

async fn set_spec(cluster: &Cluster, spec: Value) {
    let api = untyped(cluster);
    let mut found = api.get("cluster").await.unwrap();
    found.data["spec"] = spec;
    api.replace("cluster", &PostParams::default(), &found).await.unwrap();
}

/// Returns the events of a namespace with this reason, as `kind/name: message`.
async fn events(cluster: &Cluster, namespace: &str, reason: &str) -> Vec<String> {
    let api = Api::<Event>::namespaced(cluster.client.clone(), namespace);
    let events = api.list(&ListParams::default()).await.unwrap().into_iter();
    let text = |event: Event| {
        assert_eq!(event.type_.as_deref(), Some("Warning"));
        let involved = event.involved_object;
        format!("{}/{}: {}", involved.kind.unwrap(), involved.name.unwrap(), event.message.unwrap())
    };
    events.filter(|event| event.reason.as_deref() == Some(reason)).map(text).collect()
}

/// The log output of this thread.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend(text);
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Log {
    type Writer = Log;

    fn make_writer(&'w self) -> Log {
        self.clone()
    }
}

impl Log {
    fn begin(&self) -> tracing::subscriber::DefaultGuard {
        let subscriber = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).with_writer(self.clone());
        tracing::subscriber::set_default(subscriber.with_ansi(false).finish())
    }

    /// The warnings with this word in them.
    fn warnings(&self, word: &str) -> Vec<String> {
        let text = String::from_utf8(self.0.lock().unwrap().clone()).unwrap();
        text.lines().filter(|line| line.contains(" WARN ") && line.contains(word)).map(str::to_owned).collect()
    }
}

/// Runs an operator next to a scenario, which starts after the first pass and knows the number of passes.
async fn while_it_runs(cluster: &Cluster, story: impl AsyncFnOnce(&AtomicUsize)) {
    let (runner, passes) = (cluster.runner(), AtomicUsize::new(0));
    let story = async {
        while passes.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        quiet(&passes).await;
        story(&passes).await;
    };
    tokio::select! {
        () = runner.run(|_| _ = passes.fetch_add(1, Ordering::Relaxed), std::future::pending()) => {}
        () = story => {}
        () = tokio::time::sleep(Duration::from_secs(100)) => panic!("the story does not end"),
    }
}

/// Waits until every watch has started and nothing changes any more.
async fn quiet(passes: &AtomicUsize) {
    loop {
        let before = passes.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_secs(2)).await;
        if passes.load(Ordering::Relaxed) == before {
            return;
        }
    }
}

async fn policy_is_read_from_a_server_with_only_v1alpha1(cluster: Cluster) {
    let (old, new) = (Api::<v1alpha1::PKI>::all(cluster.client.clone()), Api::<Pki>::all(cluster.client.clone()));
    let only_old = |definition: &mut CustomResourceDefinition| {
        definition.spec.versions.iter_mut().for_each(|version| version.served = version.name == "v1alpha1");
    };
    let is_so = || async { new.get("cluster").await.is_err() && old.get("cluster").await.is_ok() };
    change_definition(&cluster, only_old, is_so).await;
    let set = async |key: &str| {
        let policy = Policy { defaults: Some(key.parse().unwrap()), ..Policy::default() };
        let spec = json!({"spec": perennial_api::pki::PkiSpec::from(&policy)});
        old.patch("cluster", &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
    };
    set("ECDSA P384").await;
    cluster.runner().once().await.unwrap();
    assert_eq!(key(&cluster, KASO, "aggregator-client-signer").await.unwrap(), "ECDSA P384");
    assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.0, "False");
    // A change starts a pass long before the next resync.
    while_it_runs(&cluster, async |passes| {
        let before = passes.load(Ordering::Relaxed);
        set("ECDSA P256").await;
        soon("the change of the policy is heard", || async { before < passes.load(Ordering::Relaxed) }).await;
    })
    .await;
    // A missing resource is created in the version that the server has.
    old.delete("cluster", &DeleteParams::default()).await.unwrap();
    cluster.runner().once().await.unwrap();
    let created = serde_json::to_value(old.get("cluster").await.unwrap()).unwrap();
    assert_eq!((&created["apiVersion"], &created["spec"]), (&json!("config.openshift.io/v1alpha1"), &json!({})));
    // Without the kind, the platform decides, and nothing is wrong with that.
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    definitions.delete(DEFINITION, &DeleteParams::default()).await.unwrap();
    soon("the kind is gone", || async { old.get("cluster").await.is_err() }).await;
    cluster.secrets(KAS).delete("aggregator-client", &DeleteParams::default()).await.unwrap();
    cluster.runner().once().await.unwrap();
    assert_eq!(key(&cluster, KAS, "aggregator-client").await.unwrap(), "RSA 2048");
    assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.0, "False");
}

async fn an_unknown_field_makes_only_its_entry_unsupported(cluster: Cluster) {
    open_definition(&cluster).await;
    let ecdsa = |curve: &str| json!({"algorithm": "ECDSA", "ecdsa": {"curve": curve}});
    let spec = |lifetime: &str| {
        json!({
            "defaults": {"key": ecdsa("P256")},
            "categories": [
                {"category": "SignerCertificate", "certificate": {"key": ecdsa("P521")}},
                {"category": "ClientCertificate", "certificate": {"key": ecdsa("P384"), "lifetime": lifetime}},
            ],
            "overrides": [{"certificateName": "kube-apiserver-lb-server", "certificate": {"key": ecdsa("P384")}}],
        })
    };
    set_spec(&cluster, spec("30d")).await;
    let log = Log::default();
    let guard = log.begin();
    let runner = cluster.runner();
    runner.once().await.unwrap();
    runner.once().await.unwrap();
    drop(guard);
    for (namespace, name, expected) in [
        (KASO, "aggregator-client-signer", "ECDSA P521"),
        (KAS, "external-loadbalancer-serving-certkey", "ECDSA P384"),
        // The defaults apply where the category does not.
        (KAS, "aggregator-client", "ECDSA P256"),
    ] {
        assert_eq!(key(&cluster, namespace, name).await.unwrap(), expected, "{name}");
    }
    let (status, message, _) = condition(&cluster, "kube-apiserver", "Degraded").await;
    assert_eq!(status, "True");
    let field = "spec.categories[1].certificate.lifetime";
    for part in ["spec.categories[1] (ClientCertificate) is not applied", field, "upgrade Perennial"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert_eq!(condition(&cluster, "kube-apiserver", "Available").await.0, "True");
    // Two passes, one event in each place, one line.
    for (namespace, on) in [("default", "PKI/cluster: "), (KASO, "Deployment/kube-apiserver-operator: ")] {
        let told = events(&cluster, namespace, "PKIUnsupported").await;
        assert!(matches!(&told[..], [it] if it.starts_with(on) && it.contains(field)), "{told:?}");
    }
    let lines = log.warnings("PKIUnsupported");
    assert!(matches!(&lines[..], [line] if line.contains("PKI cluster") && line.contains(field)), "{lines:?}");
    // The same problem with other values is not reported again; another problem is.
    set_spec(&cluster, spec("60d")).await;
    runner.once().await.unwrap();
    assert_eq!(events(&cluster, KASO, "PKIUnsupported").await.len(), 1);
    let mut other = spec("60d");
    other["overrides"][0]["certificate"]["rotation"] = json!("manual");
    set_spec(&cluster, other).await;
    runner.once().await.unwrap();
    assert_eq!(events(&cluster, KASO, "PKIUnsupported").await.len(), 2);
    cluster.set_policy("ECDSA P256").await;
    runner.once().await.unwrap();
    assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.0, "False");
}

#[tokio::test]
async fn an_invalid_or_unreadable_policy_is_reported_once_as_an_event_and_a_log_line() {
    let cluster = Cluster::embedded().await;
    let log = Log::default();
    let _guard = log.begin();
    open_definition(&cluster).await;
    set_spec(&cluster, json!({"overrides": "all of them"})).await;
    let runner = cluster.runner();
    for _ in 0..3 {
        runner.once().await.unwrap();
    }
    // A second operator does not repeat the Event.
    cluster.runner().once().await.unwrap();
    let told = events(&cluster, "default", "PKIInvalid").await;
    assert!(matches!(&told[..], [it] if it.contains("spec.overrides")), "{told:?}");
    assert_eq!(events(&cluster, KASO, "PKIInvalid").await.len(), 1);
    let lines = log.warnings("PKIInvalid");
    assert!(lines.len() == 2 && lines.iter().all(|it| it.contains("PKI \"cluster\" is invalid")), "{lines:?}");
    let is_forbidden = Arc::new(AtomicBool::new(true));
    let forbidden = is_forbidden.clone();
    let way = cluster.way(move |_, path| {
        let is_refused = path.contains("/pkis/") && forbidden.load(Ordering::Relaxed);
        is_refused.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    });
    let runner = cluster.runner_through(way.clone());
    for _ in 0..3 {
        runner.once().await.unwrap();
    }
    cluster.runner_through(way).once().await.unwrap();
    let told = events(&cluster, KASO, "PKIUnreadable").await;
    assert!(matches!(&told[..], [it] if it.contains("PKI cluster could not be read")), "{told:?}");
    let lines = log.warnings("PKIUnreadable");
    assert!(lines.len() == 2 && lines.iter().all(|it| it.contains("a fault of the test")), "{lines:?}");
    // The feature gate decides whether there is a policy.
    let way = cluster.way(|_, path| path.contains("/featuregates/").then_some((StatusCode::FORBIDDEN, "Forbidden")));
    cluster.runner_through(way).once().await.unwrap();
    assert_eq!(events(&cluster, KASO, "PKIUnreadable").await.len(), 2);
    // The same problem is reported again after a recovery, and by another operator in another hour.
    set_spec(&cluster, json!({})).await;
    is_forbidden.store(false, Ordering::Relaxed);
    runner.once().await.unwrap();
    is_forbidden.store(true, Ordering::Relaxed);
    runner.once().await.unwrap();
    assert_eq!(events(&cluster, KASO, "PKIUnreadable").await.len(), 3);
    cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
    let way = cluster.way(|_, path| path.contains("/pkis/").then_some((StatusCode::FORBIDDEN, "Forbidden")));
    cluster.runner_through(way).once().await.unwrap();
    assert_eq!(events(&cluster, KASO, "PKIUnreadable").await.len(), 4);
}

async fn an_empty_policy_is_created_if_there_is_none(cluster: Cluster) {
    let pkis = Api::<Pki>::all(cluster.client.clone());
    set_gate(&cluster, false).await;
    pkis.delete("cluster", &DeleteParams::default()).await.unwrap();
    cluster.runner().once().await.unwrap();
    assert!(pkis.get_opt("cluster").await.unwrap().is_none(), "the feature gate is off");
    set_gate(&cluster, true).await;
    cluster.runner().once().await.unwrap();
    let created = pkis.get("cluster").await.unwrap();
    assert_eq!(created.spec, perennial_api::pki::PkiSpec::default());
    assert_eq!(untyped(&cluster).get("cluster").await.unwrap().data["spec"], json!({}));
    // An existing resource stays unchanged.
    cluster.set_policy("ECDSA P256").await;
    let before = pkis.get("cluster").await.unwrap();
    cluster.runner().once().await.unwrap();
    assert_eq!(pkis.get("cluster").await.unwrap().metadata.resource_version, before.metadata.resource_version);
    // In a definition with another schema, an empty spec may mean something else.
    pkis.delete("cluster", &DeleteParams::default()).await.unwrap();
    let other = |definition: &mut CustomResourceDefinition| {
        for version in &mut definition.spec.versions {
            let management = json!({"type": "object", "properties": {"mode": {"type": "string"}}});
            let spec = json!({"type": "object", "properties": {"certificateManagement": management}});
            let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
            version.schema = serde_json::from_value(schema).unwrap();
        }
    };
    let api = untyped(&cluster);
    let other_shape = json!({"apiVersion": "config.openshift.io/v1", "kind": "PKI", "metadata": {"name": "cluster"},
        "spec": {"certificateManagement": {"mode": "Custom"}}});
    let probe: DynamicObject = serde_json::from_value(other_shape).unwrap();
    let is_so = || async {
        let dry = PostParams { dry_run: true, ..PostParams::default() };
        let made = api.create(&dry, &probe).await;
        made.is_ok_and(|it| it.data.pointer("/spec/certificateManagement").is_some())
    };
    change_definition(&cluster, other, is_so).await;
    let log = Log::default();
    let guard = log.begin();
    let runner = cluster.runner();
    runner.once().await.unwrap();
    runner.once().await.unwrap();
    drop(guard);
    assert!(untyped(&cluster).get_opt("cluster").await.unwrap().is_none());
    let lines = log.warnings("another schema");
    assert!(matches!(&lines[..], [line] if line.contains("PKI cluster is not created")), "{lines:?}");
}

/// Sets the gate in the spec, as in a cluster without a computed status.
async fn set_gate(cluster: &Cluster, on: bool) {
    let gates = Api::<FeatureGate>::all(cluster.client.clone());
    if gates.get_opt("cluster").await.unwrap().is_none() {
        cluster.create::<FeatureGate>(None, json!({"metadata": {"name": "cluster"}, "spec": {}})).await;
    }
    let (enabled, disabled) = if on { (vec![GATE], vec![]) } else { (vec![], vec![GATE]) };
    let custom = json!({"enabled": enabled, "disabled": disabled});
    let spec = json!({"spec": {"featureSet": "CustomNoUpgrade", "customNoUpgrade": custom}});
    gates.patch("cluster", &PatchParams::default(), &Patch::Merge(&spec)).await.unwrap();
}

/// Sets the gate in the status, as OpenShift does for each version.
async fn compute_gate(cluster: &Cluster, versions: &[(&str, bool)]) {
    let computed = |(version, on): &(&str, bool)| {
        let list = if *on { "enabled" } else { "disabled" };
        json!({"version": version, list: [{"name": GATE}]})
    };
    let status = json!({"status": {"featureGates": versions.iter().map(computed).collect::<Vec<_>>()}});
    let gates = Api::<FeatureGate>::all(cluster.client.clone());
    gates.patch_status("cluster", &PatchParams::default(), &Patch::Merge(&status)).await.unwrap();
}

async fn feature_gate_applies_while_the_operator_runs(cluster: Cluster) {
    set_gate(&cluster, true).await;
    while_it_runs(&cluster, async |passes| {
        let becomes = async |expected: &str| {
            // The changes after the switch are noticed after it.
            quiet(passes).await;
            cluster.secrets(KAS).delete("aggregator-client", &DeleteParams::default()).await.unwrap();
            let found = || async { key(&cluster, KAS, "aggregator-client").await };
            soon("there is another certificate", || async { found().await.is_some() }).await;
            assert_eq!(found().await.unwrap(), expected);
        };
        becomes("ECDSA P256").await;
        set_gate(&cluster, false).await;
        becomes("RSA 2048").await;
        set_gate(&cluster, true).await;
        becomes("ECDSA P256").await;
        // The computed status takes precedence over the spec.
        compute_gate(&cluster, &[("4.21.3", false)]).await;
        becomes("RSA 2048").await;
    })
    .await;
    assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.0, "False");
}

#[tokio::test]
async fn the_feature_gate_of_the_running_version_counts() {
    let cluster = Cluster::embedded().await;
    set_gate(&cluster, true).await;
    compute_gate(&cluster, &[("4.22.0", true), ("4.21.3", false)]).await;
    let is_applied = async || {
        let (observation, _) = cluster.reconciler().plan().await.unwrap();
        observation.snapshot.policy.present().is_some()
    };
    assert!(is_applied().await, "the newest is first where the version is not known");
    let definition = json!({"metadata": {"name": "clusterversions.config.openshift.io"}, "spec": {
        "group": "config.openshift.io", "scope": "Cluster",
        "names": {"kind": "ClusterVersion", "plural": "clusterversions", "singular": "clusterversion"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
            {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
    }});
    cluster.create::<CustomResourceDefinition>(None, definition).await;
    let version = json!({"apiVersion": "config.openshift.io/v1", "kind": "ClusterVersion",
        "metadata": {"name": "version"}, "status": {"desired": {"version": "4.21.3"}}});
    let request = http::Request::post("/apis/config.openshift.io/v1/clusterversions");
    let request = request.header("content-type", "application/json").body(version.to_string().into_bytes()).unwrap();
    cluster.client.request::<Value>(request).await.unwrap();
    assert!(!is_applied().await);
    let way = cluster.way(|_, path| path.contains("/clusterversions/").then_some((StatusCode::FORBIDDEN, "Forbidden")));
    let (observation, _) = cluster.reconciler_through(way).plan().await.unwrap();
    assert!(observation.problems.iter().any(|it| it.text.contains("ClusterVersion version could not be read")));
}

#[tokio::test]
async fn questionable_keys_are_logged_at_issue_and_reported_once_for_each_policy() {
    let cluster = Cluster::embedded().await;
    let policy = |leaves: &str, signers: &str, rsa: &[&str]| Policy {
        defaults: leaves.parse().ok(),
        categories: [(Category::Signer, signers.parse().unwrap())].into(),
        overrides: rsa.iter().map(|&name| (name.to_owned(), "RSA 2048".parse().unwrap())).collect(),
    };
    let doubtful = policy("ECDSA P384", "ECDSA P256", &["kube-apiserver-lb-signer"]);
    cluster.put_policy(&doubtful).await;
    let log = Log::default();
    let _guard = log.begin();
    let runner = cluster.runner();
    runner.once().await.unwrap();
    let issued = |name: &str, warning: &str| {
        log.warnings(warning).into_iter().filter(|line| line.contains(&format!("Secret {name}"))).count()
    };
    let weak = "kube-apiserver-lb-signer: RSA 2048 is weak for a validity of 3650d";
    let limited = "aggregator-client: ECDSA P384 is stronger than ECDSA P256 of its signer aggregator-signer";
    assert_eq!(issued("openshift-kube-apiserver-operator/loadbalancer-serving-signer", weak), 1);
    assert_eq!(issued("openshift-kube-apiserver/aggregator-client", limited), 1);
    let told = events(&cluster, "default", "KeyPolicyWarning").await;
    assert!(matches!(&told[..], [it] if it.starts_with("PKI/cluster: PKI cluster: ")), "{told:?}");
    let told = events(&cluster, KASO, "KeyPolicyWarning").await;
    assert!(matches!(&told[..], [it] if it.starts_with("Deployment/") && it.contains(weak)), "{told:?}");
    // Neither time nor another operator reports it again; a change of the policy does.
    runner.once().await.unwrap();
    cluster.runner().once().await.unwrap();
    assert_eq!(events(&cluster, KASO, "KeyPolicyWarning").await.len(), 1);
    // No leaf is stronger than its existing signer, which keeps its key until its next rotation.
    let below_rsa = ["kube-apiserver-lb-server", "kube-apiserver-internal-lb-server"];
    cluster.put_policy(&policy("ECDSA P256", "ECDSA P521", &below_rsa)).await;
    runner.once().await.unwrap();
    assert_eq!(events(&cluster, KASO, "KeyPolicyWarning").await.len(), 1, "nothing is doubtful now");
    cluster.put_policy(&doubtful).await;
    runner.once().await.unwrap();
    assert_eq!(events(&cluster, KASO, "KeyPolicyWarning").await.len(), 2);
}

/// Existing signers keep their RSA keys until their next rotation, although the policy asks for stronger ones.
#[tokio::test]
async fn a_policy_that_makes_leaves_stronger_than_the_existing_signers_is_reported() {
    let cluster = Cluster::embedded().await;
    cluster.set_policy("RSA 2048").await;
    let runner = cluster.runner();
    runner.once().await.unwrap();
    cluster.set_policy("ECDSA P384").await;
    runner.once().await.unwrap();
    // Of the messages, one is about the ten-year certificates of the first policy.
    let limited = "ECDSA P384 is stronger than RSA 2048 of its signer";
    for (namespace, on) in [("default", "PKI/cluster: "), (KASO, "Deployment/kube-apiserver-operator: ")] {
        let told = events(&cluster, namespace, "KeyPolicyWarning").await;
        let told: Vec<&String> = told.iter().filter(|it| it.contains(limited)).collect();
        assert!(matches!(&told[..], [it] if it.starts_with(on)), "{told:?}");
    }
}

/// A certificate of etcd is for servers and clients. An operator that manages etcd warns if its other category asks for more.
#[tokio::test]
async fn a_stronger_key_of_the_other_category_is_reported_by_an_operator_that_manages_etcd() {
    let policy = Policy {
        defaults: "ECDSA P256".parse().ok(),
        // Signers are as strong as the strongest leaf, so this is the only warning.
        categories: [Category::Client, Category::Signer].map(|it| (it, "ECDSA P384".parse().unwrap())).into(),
        ..Policy::default()
    };
    let more =
        "etcd-peer-server: ECDSA P256, because it is listed as a ServingCertificate; it is also a ClientCertificate";
    for manages_etcd in [false, true] {
        let mut cluster = Cluster::embedded().await;
        cluster.view.settings.every_component = manages_etcd;
        cluster.put_policy(&policy).await;
        cluster.runner().once().await.unwrap();
        for (namespace, on) in [("default", "PKI/cluster: "), (ETCDO, "Deployment/etcd-operator: ")] {
            let told = events(&cluster, namespace, "KeyPolicyWarning").await;
            let told: Vec<&String> = told.iter().filter(|it| it.starts_with(on) && it.contains(more)).collect();
            assert_eq!(told.len(), usize::from(manages_etcd), "{namespace}: {told:?}");
        }
    }
}

#[tokio::test]
async fn a_watch_that_fails_for_long_is_one_warning() {
    let cluster = Cluster::embedded().await;
    let log = Log::default();
    let _guard = log.begin();
    // A GET of one object works; lists and watches of the kind are rejected.
    let way = cluster.way(|_, path| path.ends_with("/pkis").then_some((StatusCode::FORBIDDEN, "Forbidden")));
    let runner = cluster.runner_through(way);
    let lines = || log.warnings("PKI cannot be watched");
    tokio::select! {
        () = runner.run(|_| {}, std::future::pending()) => {}
        () = soon("a warning", || async { !lines().is_empty() }) => {}
    }
    assert!(matches!(&lines()[..], [line] if line.contains("a fault of the test")), "{:?}", lines());
    assert!(log.warnings("cannot be watched").len() == 1, "every other watch works");
}

/// A signature with RSA 4096 takes milliseconds, a P-256 key a fraction of one.
#[tokio::test]
async fn the_duration_metric_of_an_issue_includes_the_signature() {
    let cluster = Cluster::embedded().await;
    let policy = Policy {
        defaults: "ECDSA P256".parse().ok(),
        overrides: [("aggregator-signer".to_owned(), "RSA 4096".parse().unwrap())].into(),
        ..Policy::default()
    };
    cluster.put_policy(&policy).await;
    let runner = cluster.runner();
    runner.once().await.unwrap();
    let text = runner.metrics().text().unwrap();
    let start = "openshift_pki_certificate_generation_duration_seconds_sum{certificate_name=\"aggregator-client\",";
    let line = text.lines().find(|line| line.starts_with(start)).unwrap();
    let seconds: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    assert!(0.001 < seconds, "{line}");
}

/// All Services have the same key, so its warning is logged once for each change, not for each Service.
#[tokio::test]
async fn a_questionable_key_of_services_is_logged_once_for_each_change() {
    let shop = Shop::new(Cluster::embedded().await).await;
    let policy = |services: &str| Policy {
        defaults: services.parse().ok(),
        categories: [(Category::Signer, "RSA 2048".parse().unwrap())].into(),
        ..Policy::default()
    };
    let log = Log::default();
    let _guard = log.begin();
    let runner = shop.cluster.runner();
    let warnings = || {
        log.warnings(" is stronger than RSA 2048 of its signer ").into_iter().filter(|it| it.contains("shop/")).count()
    };
    let mut services = 0;
    for (key, expected) in [("ECDSA P384", 1), ("ECDSA P384", 1), ("RSA 2048", 1), ("ECDSA P384", 2)] {
        shop.cluster.put_policy(&policy(key)).await;
        runner.once().await.unwrap();
        for _ in 0..3 {
            services += 1;
            shop.asks(&format!("web-{services}"), &format!("web-{services}-tls")).await;
        }
        runner.once().await.unwrap();
        assert_eq!(warnings(), expected, "{key} for {services} Services: {:?}", log.warnings(""));
        assert_eq!(shop.secrets().list(&ListParams::default()).await.unwrap().items.len(), services);
    }
}
