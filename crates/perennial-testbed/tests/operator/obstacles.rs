//! Objects that cannot be written or read delay only their dependents, and are reported.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use jiff::SignedDuration;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams};
use perennial_api::annotations::FORCE;
use perennial_api::config::FeatureGate;
use perennial_core::plan::Step;
use perennial_core::rules::Waiting;
use perennial_core::trust::Obstacle;
use perennial_core::verify::{self, State};
use perennial_operator::act::ActError;
use perennial_operator::pass::{PassError, Passed};
use serde_json::json;

use crate::cluster::{Cluster, PLANNER};
use crate::reports::condition;

const KASO: &str = "openshift-kube-apiserver-operator";
const KAS: &str = "openshift-kube-apiserver";
const KUBELET_CA: &str = "kube-apiserver-to-kubelet-client-ca";
const FORBIDDEN: (StatusCode, &str) = (StatusCode::FORBIDDEN, "Forbidden");

/// Returns the objects that could not be written.
fn failed(passed: &Passed) -> Vec<&str> {
    passed.failed.iter().map(|(step, _): &(Step, ActError)| step.object.as_str()).collect()
}

fn nothing_is_broken(passed: &Passed) {
    for edge in verify::verify(&PLANNER, &passed.observation.snapshot) {
        assert!(!matches!(edge.state, State::Broken(_)), "{edge:?}");
    }
}

/// Checks that verifiers reject only certificates whose signer could not be published.
fn only_unpublished_signers_are_rejected(passed: &Passed) {
    let broken =
        verify::verify(&PLANNER, &passed.observation.snapshot).into_iter().filter_map(|edge| match edge.state {
            State::Broken(broken) => Some((edge.row, broken.obstacle)),
            _ => None,
        });
    let broken: Vec<_> = broken.collect();
    assert!(broken.iter().any(|(row, _)| *row == "kubelet-client"), "{broken:?}");
    assert!(broken.iter().all(|(_, obstacle)| matches!(obstacle, Obstacle::Untrusted { .. })), "{broken:?}");
}

/// Returns true if the wait depends on the failed object.
fn only_dependants_wait(passed: &Passed) {
    for it in &passed.report.waiting {
        assert!(matches!(it.waiting, Waiting::Blocked { .. } | Waiting::Signer { .. }), "{}: {}", it.slot, it.waiting);
    }
}

#[tokio::test]
async fn a_bundle_that_cannot_be_written_delays_only_its_dependents() {
    let cluster = Cluster::embedded().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    let way = cluster.way(move |method, path| {
        let is_it = method != Method::GET && path.starts_with(&format!("/api/v1/namespaces/{KASO}/configmaps"));
        // All bundles of that namespace.
        (is_it && method == Method::POST).then(|| {
            count.fetch_add(1, Ordering::Relaxed);
            FORBIDDEN
        })
    });
    let runner = cluster.runner_through(way);
    let passed = runner.once().await.unwrap();
    assert!(failed(&passed).contains(&format!("{KASO}/{KUBELET_CA}").as_str()), "{:?}", failed(&passed));
    assert_eq!(tries.load(Ordering::Relaxed), passed.failed.len(), "each is tried once");
    only_dependants_wait(&passed);
    only_unpublished_signers_are_rejected(&passed);
    assert!(cluster.secrets(KAS).get_opt("kubelet-client").await.unwrap().is_some(), "it never existed");
    // The other component has all of its own.
    let namespace = "openshift-kube-controller-manager-operator";
    assert!(cluster.secrets(namespace).get_opt("csr-signer").await.unwrap().is_some());
    let (status, message, _) = condition(&cluster, "kube-apiserver", "Degraded").await;
    assert_eq!(status, "True");
    assert!(message.contains(KUBELET_CA) && message.contains("a fault of the test"), "{message}");
    let (status, message, _) =
        condition(&cluster, "kube-apiserver", "CertRotation_KubeApiserverToKubeletSigner_Degraded").await;
    assert_eq!(status, "True");
    assert!(message.contains(KUBELET_CA), "{message}");
    assert_eq!(condition(&cluster, "kube-controller-manager", "Degraded").await.0, "False");
    let (passed, _) = cluster.pass().await;
    assert!(passed.report.waiting.is_empty());
    // After all readers have it.
    cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
    nothing_is_broken(&cluster.pass().await.0);
}

#[tokio::test]
async fn a_copy_that_cannot_be_written_degrades_only_its_own_signer() {
    let cluster = Cluster::embedded().await;
    let copy = |path: &str| path.contains("/openshift-kube-controller-manager/secrets");
    let way = cluster.way(move |method, path| (method != Method::GET && copy(path)).then_some(FORBIDDEN));
    let passed = cluster.runner_through(way).once().await.unwrap();
    let failed = failed(&passed);
    assert!(failed.contains(&"openshift-kube-controller-manager/csr-signer"), "{failed:?}");
    let operator = "kube-controller-manager";
    let (status, message, _) = condition(&cluster, operator, "CertRotation_CsrSignerSigner_Degraded").await;
    assert_eq!(status, "True");
    assert!(message.contains("openshift-kube-controller-manager/csr-signer"), "{message}");
    let domain = "CertRotation_AggregatorClientSigner_Degraded";
    assert_eq!(condition(&cluster, "kube-apiserver", domain).await.0, "False");
    cluster.runner().once().await.unwrap();
    assert_eq!(condition(&cluster, operator, "CertRotation_CsrSignerSigner_Degraded").await.0, "False");
}

/// Rejections of a real server only: an immutable ConfigMap, a namespace that is being deleted, and an admission policy.
#[tokio::test]
async fn a_write_that_a_real_server_rejects_delays_only_its_dependents() {
    let cluster = Cluster::real().await;
    // Kinds that the server does not know, so no object of them exists.
    let definitions = Api::<CustomResourceDefinition>::all(cluster.client.clone());
    for name in ["featuregates.config", "kubeapiservers.operator", "kubecontrollermanagers.operator"] {
        definitions.delete(&format!("{name}.openshift.io"), &DeleteParams::default()).await.unwrap();
    }
    let gates = Api::<FeatureGate>::all(cluster.client.clone());
    for _ in 0..100 {
        if gates.list(&ListParams::default()).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let fixed = json!({"metadata": {"name": KUBELET_CA}, "immutable": true, "data": {"note": "keep"}});
    cluster.create::<ConfigMap>(Some(KASO), fixed).await;
    let policy = json!({"metadata": {"name": "no-aggregator"}, "spec": {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["CREATE"],
        }]},
        "validations": [{"expression": "object.metadata.name != 'aggregator-client-signer'", "message": "not here"}],
    }});
    cluster.create::<ValidatingAdmissionPolicy>(None, policy).await;
    let binding = json!({"metadata": {"name": "no-aggregator"}, "spec": {
        "policyName": "no-aggregator", "validationActions": ["Deny"],
    }});
    cluster.create::<ValidatingAdmissionPolicyBinding>(None, binding).await;
    let namespaces = Api::<Namespace>::all(cluster.client.clone());
    namespaces.delete("openshift-kube-controller-manager", &DeleteParams::default()).await.unwrap();
    // The policy applies shortly after its creation.
    let probe = json!({"metadata": {"name": "aggregator-client-signer"}});
    for _ in 0..100 {
        let secrets = cluster.secrets("default");
        let made = serde_json::from_value(probe.clone()).unwrap();
        if secrets.create(&Default::default(), &made).await.is_err() {
            break;
        }
        secrets.delete("aggregator-client-signer", &DeleteParams::default()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let passed = cluster.reconciler().pass(&[]).await.unwrap();
    let failed = failed(&passed);
    for object in [
        format!("{KASO}/{KUBELET_CA}").as_str(),
        "openshift-kube-apiserver-operator/aggregator-client-signer",
        "openshift-kube-controller-manager/csr-signer",
    ] {
        assert_eq!(failed.iter().filter(|it| **it == object).count(), 1, "{object} in {failed:?}");
    }
    assert_eq!(passed.observation.problems, []);
    only_dependants_wait(&passed);
    only_unpublished_signers_are_rejected(&passed);
    for (namespace, name) in
        [(KAS, "localhost-serving-cert-certkey"), ("openshift-kube-apiserver", "check-endpoints-client-cert-key")]
    {
        assert!(cluster.secrets(namespace).get_opt(name).await.unwrap().is_some(), "{namespace}/{name}");
    }
}

#[tokio::test]
async fn unreadable_objects_are_not_written_and_all_others_are() {
    let cluster = Cluster::embedded().await;
    let is_blind = Arc::new(AtomicBool::new(true));
    let blind = is_blind.clone();
    let way = cluster.way(move |_, path| {
        let is_it = path.starts_with(&format!("/api/v1/namespaces/{KAS}/secrets")) && !path.contains("events");
        (is_it && blind.load(Ordering::Relaxed)).then_some(FORBIDDEN)
    });
    let runner = cluster.runner_through(way);
    let passed = runner.once().await.unwrap();
    assert_eq!(failed(&passed), [""; 0], "what is not known is not tried");
    assert!(!passed.written.iter().any(|(step, _)| step.object == format!("{KAS}/aggregator-client")));
    assert!(cluster.secrets(KASO).get_opt("aggregator-client-signer").await.unwrap().is_some());
    assert!(cluster.config_maps(KAS).get_opt("client-ca").await.unwrap().is_some());
    let (status, message, _) = condition(&cluster, "kube-apiserver", "Degraded").await;
    assert_eq!(status, "True");
    assert!(message.contains("Secret openshift-kube-apiserver/aggregator-client could not be read"), "{message}");
    is_blind.store(false, Ordering::Relaxed);
    runner.once().await.unwrap();
    cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
    runner.once().await.unwrap();
    assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.0, "False");
    // Now they are there: a look that fails must not take them for lost.
    let before = cluster.versions().await;
    is_blind.store(true, Ordering::Relaxed);
    let asked = json!({"metadata": {"annotations": {FORCE: "a rehearsal"}}});
    let signers = cluster.secrets(KASO);
    signers.patch("aggregator-client-signer", &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
    for _ in 0..40 {
        let passed = runner.once().await.unwrap();
        let next = passed.report.next_look.min(cluster.now() + SignedDuration::from_hours(1));
        cluster.set_now(next.max(cluster.now() + SignedDuration::from_secs(1)));
    }
    let after = cluster.versions().await;
    for (name, version) in before.iter().filter(|(name, _)| name.starts_with(&format!("Secret {KAS}/"))) {
        assert_eq!(after.get(name), Some(version), "{name}");
    }
    is_blind.store(false, Ordering::Relaxed);
    nothing_is_broken(&runner.once().await.unwrap());
}

#[tokio::test]
async fn an_unreadable_source_does_not_count_as_missing() {
    let cluster = Cluster::embedded().await;
    let way =
        cluster.way(|_, path| path.contains("/pkis/").then_some((StatusCode::INTERNAL_SERVER_ERROR, "InternalError")));
    let passed = cluster.runner_through(way).once().await.unwrap();
    assert!(passed.written.is_empty(), "the kind of key is unknown");
    let (status, message, _) = condition(&cluster, "kube-apiserver", "Degraded").await;
    assert_eq!(status, "True");
    assert!(message.contains("PKI cluster could not be read: a fault of the test"), "{message}");
    for path in ["/nodes", "/networks/", "/infrastructures/", "/featuregates/"] {
        let way = cluster.way(move |_, it| it.contains(path).then_some(FORBIDDEN));
        let (observation, _) = cluster.reconciler_through(way).plan().await.unwrap();
        assert!(observation.problems.iter().any(|it| it.text.contains("a fault of the test")), "{path}");
    }
}

#[tokio::test]
async fn an_unreadable_staged_secret_does_not_count_as_absent() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    cluster.secrets(KASO).delete("aggregator-client-signer", &DeleteParams::default()).await.unwrap();
    // Lists are refused, single Secrets are not.
    let way = cluster.way(|method, path| (method == Method::GET && path.ends_with("/secrets")).then_some(FORBIDDEN));
    let passed = cluster.reconciler_through(way).pass(&[]).await.unwrap();
    assert!(passed.written.is_empty(), "{:?}", passed.written);
    let waits = passed.report.waiting.iter().find(|it| it.slot.object_text().ends_with("/aggregator-client-signer"));
    assert!(waits.unwrap().waiting.to_string().contains("a replacement may have been interrupted"));
}

#[tokio::test]
async fn a_failed_pass_is_a_condition_until_the_next_success() {
    let cluster = Cluster::embedded().await;
    let is_down = Arc::new(AtomicBool::new(true));
    let down = is_down.clone();
    let way = cluster.way(move |_, path| {
        let is_core = path.starts_with("/api/v1/namespaces/");
        (is_core && down.load(Ordering::Relaxed)).then_some((StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    });
    let runner = cluster.runner_through(way);
    for _ in 0..2 {
        is_down.store(true, Ordering::Relaxed);
        let error = runner.once().await.unwrap_err();
        assert!(matches!(error, PassError::Observe(_)), "{error}");
        for operator in ["kube-apiserver", "kube-controller-manager"] {
            let (status, message, _) = condition(&cluster, operator, "Degraded").await;
            assert_eq!(status, "True");
            assert!(message.contains("failed to read the cluster: a fault of the test"), "{message}");
        }
        is_down.store(false, Ordering::Relaxed);
        runner.once().await.unwrap();
        assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.0, "False");
    }
}

#[tokio::test]
async fn a_failing_server_is_retried_twice_per_pass() {
    let cluster = Cluster::embedded().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    // Two failures are retried, the third is final for this pass.
    let path = format!("/api/v1/namespaces/{KASO}/configmaps");
    let way = |lasts: bool| {
        let (count, path) = (count.clone(), path.clone());
        count.store(0, Ordering::Relaxed);
        cluster.way(move |method, asked| {
            let is_it = method == Method::POST && asked == path;
            let number = if is_it { count.fetch_add(1, Ordering::Relaxed) } else { usize::MAX };
            let problem = (StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
            (is_it && (number < 2 || lasts)).then_some(problem)
        })
    };
    let passed = cluster.reconciler_through(way(true)).pass(&[]).await.unwrap();
    // Three times each until the whole server counts as failing: then once.
    let (bundles, tried) = (passed.failed.len(), tries.load(Ordering::Relaxed));
    assert!(bundles > 5, "{:?}", passed.failed);
    assert_eq!(tried, bundles + 10);
    only_dependants_wait(&passed);
    let passed = cluster.reconciler_through(way(false)).pass(&[]).await.unwrap();
    assert!(passed.failed.is_empty(), "{:?}", passed.failed);
    assert!(passed.report.waiting.is_empty(), "{:?}", passed.report.waiting);
}

#[tokio::test]
async fn an_object_that_another_writer_keeps_changing_is_left_and_reported() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let secrets = cluster.secrets(KAS);
    let theirs = json!({"metadata": {"annotations": {"example.com/beat": "1", FORCE: "a rehearsal"}}});
    let manager = PatchParams { field_manager: Some("metronome".to_owned()), ..PatchParams::default() };
    secrets.patch("kubelet-client", &manager, &Patch::Merge(&theirs)).await.unwrap();
    secrets.patch("aggregator-client", &PatchParams::default(), &Patch::Merge(&theirs)).await.unwrap();
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    let way = cluster.way(move |method, path| {
        let is_it = method != Method::GET && path == format!("/api/v1/namespaces/{KAS}/secrets/kubelet-client");
        is_it.then(|| {
            count.fetch_add(1, Ordering::Relaxed);
            (StatusCode::CONFLICT, "Conflict")
        })
    });
    cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
    let passed = cluster.runner_through(way).once().await.unwrap();
    assert_eq!(failed(&passed), [format!("{KAS}/kubelet-client")]);
    assert_eq!(tries.load(Ordering::Relaxed), 7);
    assert!(passed.written.iter().any(|(step, _)| step.object == format!("{KAS}/aggregator-client")));
    let (status, message, _) = condition(&cluster, "kube-apiserver", "Degraded").await;
    assert_eq!(status, "True");
    assert!(
        message.contains(
            "Secret openshift-kube-apiserver/kubelet-client is not written: metronome changes it before every attempt"
        ),
        "{message}"
    );
}

/// The operator backs off for an object that cannot be written, but still handles events of others.
#[tokio::test]
async fn backing_off_for_one_object_does_not_delay_events_of_others() {
    let cluster = Cluster::embedded().await;
    let tries = Arc::new(AtomicUsize::new(0));
    let count = tries.clone();
    let way = cluster.way(move |method, path| {
        let is_it = method != Method::GET && path == format!("/api/v1/namespaces/{KAS}/secrets/kubelet-client");
        is_it.then(|| {
            count.fetch_add(1, Ordering::Relaxed);
            FORBIDDEN
        })
    });
    cluster.pass().await;
    cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
    let secrets = cluster.secrets(KAS);
    let asked = json!({"metadata": {"annotations": {FORCE: "a rehearsal"}}});
    secrets.patch("kubelet-client", &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
    let runner = cluster.runner_through(way);
    let story = async {
        // After a second, two more, and four more: the next try would be eight later.
        while tries.load(Ordering::Relaxed) < 4 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        secrets.delete("aggregator-client", &DeleteParams::default()).await.unwrap();
        let deadline = Instant::now() + Duration::from_secs(6);
        while secrets.get_opt("aggregator-client").await.unwrap().is_none() {
            assert!(Instant::now() < deadline, "it does not hear");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = runner.run(|_| {}, std::future::pending()) => {}
        () = story => {}
        () = tokio::time::sleep(Duration::from_secs(60)) => panic!("it does not try again"),
    }
}

/// An unreadable object of one component does not affect another.
#[tokio::test]
async fn an_unreadable_object_degrades_only_its_own_component() {
    let cluster = Cluster::embedded().await;
    cluster.runner().once().await.unwrap();
    let refused = cluster.way(|method, path| {
        let is_it =
            *method == Method::GET && path.contains("/openshift-kube-controller-manager-operator/secrets/csr-signer");
        is_it.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    });
    cluster.runner_through(refused).once().await.unwrap();
    assert_eq!(condition(&cluster, "kube-controller-manager", "Degraded").await.0, "True");
    assert_eq!(condition(&cluster, "kube-apiserver", "Degraded").await.0, "False");
}
