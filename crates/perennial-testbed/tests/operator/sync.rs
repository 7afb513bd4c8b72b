//! Combined bundles and copies: their inputs, and their labels and annotations.
//!
//! Unlike the original operator, Perennial deletes nothing when a source is deleted or cannot be parsed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Method, StatusCode};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_api::annotations::{
    DESCRIPTION, HOSTNAMES, ISSUER, MANAGED_TYPE, NOT_AFTER, NOT_BEFORE, OWNING_COMPONENT, REFRESH_PERIOD,
};
use perennial_x509::{Certificate, read_certificates};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::mint::Minted;

const KAS: &str = "openshift-kube-apiserver";
const KASO: &str = "openshift-kube-apiserver-operator";
const KCM: &str = "openshift-kube-controller-manager";
const KCMO: &str = "openshift-kube-controller-manager-operator";
const MANAGED: &str = "openshift-config-managed";
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// Bundles with other bundles as inputs, with their copies.
const COMBINED: [(&str, &str); 8] = [
    (KAS, "client-ca"),
    (MANAGED, "kube-apiserver-client-ca"),
    (KCM, "client-ca"),
    (KAS, "kube-apiserver-server-ca"),
    (MANAGED, "kube-apiserver-server-ca"),
    (KCM, "serviceaccount-ca"),
    (KCMO, "csr-controller-ca"),
    (MANAGED, "csr-controller-ca"),
];

async fn members(cluster: &Cluster, namespace: &str, name: &str) -> Vec<Certificate> {
    let map = cluster.config_maps(namespace).get(name).await.unwrap();
    read_certificates(map.data.unwrap()["ca-bundle.crt"].as_bytes()).unwrap()
}

async fn put_bundle(cluster: &Cluster, namespace: &str, name: &str, text: &str) {
    let maps = cluster.config_maps(namespace);
    if maps.get_opt(name).await.unwrap().is_none() {
        let object = json!({"metadata": {"name": name}, "data": {"ca-bundle.crt": text}});
        cluster.create::<ConfigMap>(Some(namespace), object).await;
    } else {
        let content = json!({"data": {"ca-bundle.crt": text}});
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&content)).await.unwrap();
    }
}

/// Checks that a second pass writes nothing.
async fn is_quiet(cluster: &Cluster) {
    let before = cluster.versions().await;
    let (_, text) = cluster.pass().await;
    assert_eq!(text, "");
    assert_eq!(cluster.versions().await, before);
}

/// Returns which of these CAs the API server accepts clients by, in its own bundle and in both copies.
async fn accepted(cluster: &Cluster, authorities: &[&Minted]) -> Vec<bool> {
    let home = members(cluster, KAS, "client-ca").await;
    for (namespace, name) in [(MANAGED, "kube-apiserver-client-ca"), (KCM, "client-ca")] {
        assert_eq!(members(cluster, namespace, name).await, home, "{namespace}/{name}");
    }
    authorities.iter().map(|it| home.contains(&it.certificate)).collect()
}

async fn users_authorities(cluster: &Cluster) {
    cluster.pass().await;
    let ours = members(cluster, KAS, "client-ca").await;
    let now = cluster.now();
    let one = Minted::authority("one", now - DAY, DAY * 300);
    let two = Minted::authority("two", now - DAY, DAY * 300);
    let ended = Minted::authority("ended", now - DAY * 30, DAY * 20);
    let text = |authorities: &[&Minted]| authorities.iter().map(|it| it.certificate.to_pem()).collect::<String>();
    let all = [&one, &two, &ended];
    let users = "user-client-ca";

    put_bundle(cluster, KAS, users, &text(&[&one])).await;
    let (passed, _) = cluster.pass().await;
    let written: Vec<&str> = passed.written.iter().map(|(step, _)| step.object.as_str()).collect();
    assert_eq!(
        written,
        [
            "openshift-kube-apiserver/client-ca",
            "openshift-config-managed/kube-apiserver-client-ca",
            "openshift-kube-controller-manager/client-ca"
        ]
    );
    assert_eq!(accepted(cluster, &all).await, [true, false, false]);
    is_quiet(cluster).await;

    put_bundle(cluster, KAS, users, &text(&[&two, &one, &two, &ended])).await;
    cluster.pass().await;
    assert_eq!(accepted(cluster, &all).await, [true, true, false], "what has ended is not let in");
    is_quiet(cluster).await;

    put_bundle(cluster, KAS, users, &text(&[&two])).await;
    cluster.pass().await;
    assert_eq!(accepted(cluster, &all).await, [false, true, false], "an authority that the user removes is removed");

    for nonsense in ["nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", ""] {
        put_bundle(cluster, KAS, users, nonsense).await;
        cluster.pass().await;
        // An unreadable bundle removes no authority; an empty one does.
        assert_eq!(accepted(cluster, &all).await, [false, !nonsense.is_empty(), false], "{nonsense:?}");
    }
    put_bundle(cluster, KAS, users, &format!("{}nonsense\n{}", text(&[&one]), text(&[&two]))).await;
    cluster.pass().await;
    assert_eq!(accepted(cluster, &all).await, [true, true, false], "what can be read counts");

    cluster.config_maps(KAS).delete(users, &DeleteParams::default()).await.unwrap();
    cluster.pass().await;
    assert_eq!(accepted(cluster, &all).await, [true, true, false], "a source that vanishes takes nothing back");
    is_quiet(cluster).await;
    put_bundle(cluster, KAS, users, &text(&[&two])).await;
    cluster.pass().await;
    assert_eq!(accepted(cluster, &all).await, [false, true, false], "and speaks again when it is back");
    let now_there = members(cluster, KAS, "client-ca").await;
    assert!(ours.iter().all(|it| now_there.contains(it)), "ours were there all the time");
    // The ConfigMap of the user stays unchanged.
    let map = cluster.config_maps(KAS).get(users).await.unwrap();
    assert_eq!((map.metadata.annotations, map.metadata.labels), (None, None));
}

#[tokio::test]
async fn a_users_client_cas_are_added_to_the_client_ca_bundle() {
    users_authorities(&Cluster::embedded().await).await;
}

/// Any change of a combined bundle is corrected, and its members are never lost.
#[tokio::test]
async fn combined_bundles_are_created_kept_and_corrected() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    is_quiet(&cluster).await;
    let stranger = Minted::authority("stranger", cluster.now() - DAY, DAY * 300).certificate;
    let ended = Minted::authority("ended", cluster.now() - DAY * 30, DAY * 20).certificate;
    let mut made = Vec::new();
    for (namespace, name) in COMBINED {
        made.push(members(&cluster, namespace, name).await);
    }
    for ((namespace, name), before) in COMBINED.into_iter().zip(made) {
        let is_copy = namespace == MANAGED || (namespace, name) == (KCM, "client-ca");
        assert!(before.len() > 1, "{namespace}/{name}");
        // A client keeps one certificate, and adds two.
        let text: String = [&before[0], &stranger, &ended].into_iter().map(Certificate::to_pem).collect();
        put_bundle(&cluster, namespace, name, &text).await;
        cluster.pass().await;
        let after = members(&cluster, namespace, name).await;
        assert!(before.iter().all(|it| after.contains(it)), "{namespace}/{name}");
        assert!(!after.contains(&ended), "{namespace}/{name}");
        // In a bundle a CA of another writer may be needed; a copy equals its source.
        assert_eq!(after.contains(&stranger), !is_copy, "{namespace}/{name}");
        cluster.config_maps(namespace).delete(name, &DeleteParams::default()).await.unwrap();
        cluster.pass().await;
        let again = members(&cluster, namespace, name).await;
        assert!(before.iter().all(|it| again.contains(it)), "{namespace}/{name}");
        is_quiet(&cluster).await;
    }
}

/// Counts deletions.
#[tokio::test]
async fn copies_follow_their_source_and_stay_after_its_deletion() {
    let cluster = Cluster::embedded().await;
    let deletions = Arc::new(AtomicUsize::new(0));
    let counted = deletions.clone();
    let reconciler = cluster.reconciler_through(cluster.way(move |method, _| {
        counted.fetch_add(usize::from(method == Method::DELETE), Ordering::Relaxed);
        None
    }));
    reconciler.pass(&[]).await.unwrap();
    let (source, copy) = ((MANAGED, "kube-controller-manager-client-cert-key"), KCM);
    let served = async |namespace: &str| cluster.secrets(namespace).get(source.1).await.unwrap().data.unwrap();
    let (maps, first) = (cluster.config_maps(KCM), served(copy).await);
    // The copy is lost.
    cluster.secrets(copy).delete(source.1, &DeleteParams::default()).await.unwrap();
    let before = maps.get("aggregator-client-ca").await.unwrap().data;
    maps.delete("aggregator-client-ca", &DeleteParams::default()).await.unwrap();
    reconciler.pass(&[]).await.unwrap();
    assert_eq!(served(copy).await, first);
    assert_eq!(maps.get("aggregator-client-ca").await.unwrap().data, before);
    // The source is lost, and nothing can be put in its place: the copies stay as they are.
    cluster.secrets(source.0).delete(source.1, &DeleteParams::default()).await.unwrap();
    let managed = cluster.config_maps(MANAGED);
    managed.delete("kube-apiserver-aggregator-client-ca", &DeleteParams::default()).await.unwrap();
    let versions = cluster.versions().await;
    let refusing = cluster.way(|method, path| {
        let is_it = path.contains(MANAGED) && [Method::POST, Method::PUT].contains(method);
        is_it.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    });
    let passed = cluster.reconciler_through(refusing).pass(&[]).await.unwrap();
    assert_eq!(passed.failed.len(), 2);
    assert_eq!(cluster.versions().await, versions);
    // The source is created again, and the copies follow.
    reconciler.pass(&[]).await.unwrap();
    let (again, at_source) = (served(copy).await, served(source.0).await);
    assert_eq!(again, at_source);
    assert_ne!(again, first);
    assert_eq!(maps.get("aggregator-client-ca").await.unwrap().data, before, "and its bundle is the same");
    assert_eq!(deletions.load(Ordering::Relaxed), 0, "nothing is ever deleted");
    is_quiet(&cluster).await;
}

/// Returns the labels and annotations of an object.
type Said = BTreeMap<String, Option<String>>;

const SAID: [&str; 7] = [OWNING_COMPONENT, DESCRIPTION, HOSTNAMES, ISSUER, NOT_AFTER, NOT_BEFORE, REFRESH_PERIOD];

fn said(metadata: &ObjectMeta) -> Said {
    let annotations = metadata.annotations.clone().unwrap_or_default();
    let mut said: Said = SAID.into_iter().map(|name| (name.to_owned(), annotations.get(name).cloned())).collect();
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(MANAGED_TYPE));
    said.insert(MANAGED_TYPE.to_owned(), label.cloned());
    said
}

async fn metadata_of(cluster: &Cluster, namespace: &str, name: &str) -> ObjectMeta {
    match cluster.secrets(namespace).get_opt(name).await.unwrap() {
        Some(secret) => secret.metadata,
        None => cluster.config_maps(namespace).get(name).await.unwrap().metadata,
    }
}

async fn change(cluster: &Cluster, namespace: &str, name: &str, metadata: Value) {
    let (manager, change) = (PatchParams::default(), json!({"metadata": metadata}));
    if cluster.secrets(namespace).get_opt(name).await.unwrap().is_some() {
        cluster.secrets(namespace).patch(name, &manager, &Patch::Merge(&change)).await.unwrap();
    } else {
        cluster.config_maps(namespace).patch(name, &manager, &Patch::Merge(&change)).await.unwrap();
    }
}

/// A signer, a leaf, a copy of one, a bundle, a combined bundle, and a copy of that.
const DESCRIBED: [(&str, &str); 6] = [
    (KASO, "aggregator-client-signer"),
    (KAS, "internal-loadbalancer-serving-certkey"),
    (KCM, "kube-controller-manager-client-cert-key"),
    (KASO, "loadbalancer-serving-ca"),
    (KAS, "client-ca"),
    (KCM, "client-ca"),
];

async fn descriptions(cluster: &Cluster) {
    cluster.pass().await;
    let theirs = json!({
        "labels": {MANAGED_TYPE: null, "team": "blue"},
        "annotations": {OWNING_COMPONENT: "me", DESCRIPTION: null, HOSTNAMES: "else.example.com", "example.com/note": "1"},
    });
    for (namespace, name) in DESCRIBED {
        let before = metadata_of(cluster, namespace, name).await;
        let content = |versions: BTreeMap<String, String>| {
            let text = format!("{namespace}/{name}");
            versions.into_iter().filter(|(object, _)| !object.ends_with(&text)).collect::<BTreeMap<_, _>>()
        };
        let others = content(cluster.versions().await);
        change(cluster, namespace, name, theirs.clone()).await;
        let (passed, text) = cluster.pass().await;
        assert_eq!(text, format!("correct the labels and annotations of {namespace}/{name}\n"));
        assert!(passed.written[0].0.restarts.is_empty() && passed.written[0].1.made.is_none());
        let after = metadata_of(cluster, namespace, name).await;
        let mut expected = said(&before);
        // A certificate that does not serve has no annotation with its names.
        if expected[HOSTNAMES].is_none() {
            expected.insert(HOSTNAMES.to_owned(), Some("else.example.com".to_owned()));
        }
        assert_eq!(said(&after), expected, "{namespace}/{name}");
        assert_eq!(after.labels.unwrap()["team"], "blue");
        assert_eq!(after.annotations.unwrap()["example.com/note"], "1");
        assert_eq!(content(cluster.versions().await), others, "nothing else is written");
    }
    is_quiet(cluster).await;
}

#[tokio::test]
async fn labels_and_annotations_are_corrected_without_an_issue() {
    descriptions(&Cluster::embedded().await).await;
}

#[tokio::test]
async fn combined_bundles_labels_and_annotations_on_a_real_server() {
    let cluster = Cluster::real().await;
    descriptions(&cluster).await;
    users_authorities(&cluster).await;
}

#[tokio::test]
async fn annotations_follow_the_bytes_and_a_removed_one_requests_a_certificate() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let leaf = (KASO, "node-system-admin-client");
    let copy = (KCM, "kube-controller-manager-client-cert-key");
    let wrong = json!({"annotations": {
        NOT_AFTER: "2020-01-01T00:00:00Z", NOT_BEFORE: "2019-01-01T00:00:00Z", ISSUER: "somebody", REFRESH_PERIOD: "1h0m0s",
    }});
    for (namespace, name) in [leaf, copy] {
        let mut before = said(&metadata_of(&cluster, namespace, name).await);
        change(&cluster, namespace, name, wrong.clone()).await;
        let (_, text) = cluster.pass().await;
        assert_eq!(text, format!("correct the labels and annotations of {namespace}/{name}\n"));
        // The annotation was written when the certificate was issued.
        before.insert(REFRESH_PERIOD.to_owned(), Some("1h0m0s".to_owned()));
        assert_eq!(said(&metadata_of(&cluster, namespace, name).await), before);
    }
    // Another format of the same time is correct.
    let before = metadata_of(&cluster, leaf.0, leaf.1).await.annotations.unwrap();
    let same = json!({"annotations": {NOT_AFTER: before[NOT_AFTER].replace('Z', "+00:00")}});
    change(&cluster, leaf.0, leaf.1, same).await;
    is_quiet(&cluster).await;
    for (name, value, reason) in [
        (NOT_AFTER, Value::Null, "missing notAfter"),
        (NOT_BEFORE, json!("soon"), "bad expiry"),
        (ISSUER, json!(""), "missing issuer name"),
    ] {
        change(&cluster, leaf.0, leaf.1, json!({"labels": {MANAGED_TYPE: null}, "annotations": {name: value}})).await;
        let (_, text) = cluster.pass().await;
        assert!(text.starts_with(&format!("issue {}/{}: {reason}", leaf.0, leaf.1)), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(said(&metadata_of(&cluster, leaf.0, leaf.1).await).contains_key(MANAGED_TYPE));
    }
    // On a copy, the annotation has no effect.
    let gone = json!({"annotations": {NOT_AFTER: null, NOT_BEFORE: "soon", ISSUER: ""}});
    let before = said(&metadata_of(&cluster, copy.0, copy.1).await);
    change(&cluster, copy.0, copy.1, gone).await;
    let (_, text) = cluster.pass().await;
    assert_eq!(text, format!("correct the labels and annotations of {}/{}\n", copy.0, copy.1));
    assert_eq!(said(&metadata_of(&cluster, copy.0, copy.1).await), before);
}

#[tokio::test]
async fn a_request_by_a_removed_annotation_that_must_wait_is_kept() {
    let cluster = Cluster::embedded().await;
    let reconciler = cluster.reconciler();
    reconciler.pass(&[]).await.unwrap();
    let name = "node-system-admin-client";
    // Until the circuit breaker stops it.
    let asks = json!({"labels": {MANAGED_TYPE: null}, "annotations": {NOT_AFTER: null}});
    for _ in 0..5 {
        change(&cluster, KASO, name, asks.clone()).await;
        reconciler.pass(&[]).await.unwrap();
    }
    let after = metadata_of(&cluster, KASO, name).await;
    assert_eq!(said(&after)[MANAGED_TYPE].as_deref(), Some("target"), "the label is corrected all the same");
    assert_eq!(said(&after)[NOT_AFTER], None, "the request is not undone");
    cluster.set_now(cluster.now() + SignedDuration::from_mins(61));
    reconciler.pass(&[]).await.unwrap();
    assert!(said(&metadata_of(&cluster, KASO, name).await)[NOT_AFTER].is_some());
}

/// Another writer changes an annotation after each of Perennial's writes.
#[tokio::test]
async fn labels_that_another_writer_keeps_changing_are_left() {
    let cluster = Cluster::embedded().await;
    let writes = Arc::new(AtomicUsize::new(0));
    let counted = writes.clone();
    let reconciler = cluster.reconciler_through(cluster.way(move |method, path| {
        let is_it = method == Method::PUT && path.ends_with("/configmaps/client-ca") && path.contains(KAS);
        counted.fetch_add(usize::from(is_it), Ordering::Relaxed);
        None
    }));
    reconciler.pass(&[]).await.unwrap();
    let before = members(&cluster, KAS, "client-ca").await;
    let theirs = json!({"annotations": {OWNING_COMPONENT: "them"}});
    for _ in 0..8 {
        change(&cluster, KAS, "client-ca", theirs.clone()).await;
        let passed = reconciler.pass(&[]).await.unwrap();
        assert!(passed.failed.is_empty());
        cluster.set_now(cluster.now() + SignedDuration::from_mins(1));
    }
    assert_eq!(writes.load(Ordering::Relaxed), 3, "three in an hour");
    let (_, report) = reconciler.plan().await.unwrap();
    assert_eq!((report.waiting[0].name, report.waiting.len()), ("client-ca", 1));
    let why = report.waiting[0].waiting.to_string();
    assert!(why.starts_with("another writer keeps changing its labels or annotations"), "{why}");
    // The operator still manages its content.
    put_bundle(&cluster, KAS, "client-ca", "").await;
    reconciler.pass(&[]).await.unwrap();
    assert_eq!(members(&cluster, KAS, "client-ca").await, before);
    cluster.set_now(cluster.now() + SignedDuration::from_hours(1));
    change(&cluster, KAS, "client-ca", theirs.clone()).await;
    reconciler.pass(&[]).await.unwrap();
    assert_eq!(
        said(&metadata_of(&cluster, KAS, "client-ca").await)[OWNING_COMPONENT].as_deref(),
        Some("kube-apiserver")
    );
}

/// Unmanaged and foreign objects get no labels or annotations.
#[tokio::test]
async fn foreign_objects_get_no_labels_or_annotations() {
    let cluster = Cluster::embedded().await;
    cluster.pass().await;
    let found = cluster.secrets(KASO).get("loadbalancer-serving-signer").await.unwrap();
    let object = json!({"metadata": {"name": "etcd-signer"}, "type": "kubernetes.io/tls", "data": found.data});
    cluster.create::<Secret>(Some("openshift-etcd"), object).await;
    is_quiet(&cluster).await;
    // Another operator writes an object of the component: then Perennial sets no labels or annotations.
    let as_them =
        PatchParams { field_manager: Some("cluster-kube-apiserver-operator".to_owned()), ..Default::default() };
    let content = json!({"data": {"note": "aGk="}});
    cluster.secrets(KASO).patch("aggregator-client-signer", &as_them, &Patch::Merge(&content)).await.unwrap();
    change(&cluster, KAS, "client-ca", json!({"annotations": {OWNING_COMPONENT: "them"}})).await;
    is_quiet(&cluster).await;
}
