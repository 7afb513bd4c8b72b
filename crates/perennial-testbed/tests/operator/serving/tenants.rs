//! Hostile tenants, who may create, annotate and delete Services and Secrets in one namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base64::prelude::{BASE64_STANDARD, Engine};
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{Namespace, Secret, Service};
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, ResourceExt};
use perennial_api::annotations;
use perennial_core::policy::Usage;
use perennial_x509::read_certificates;
use serde_json::{Value, json};

use super::shop::{ALPHA, BETA, Running, Shop, key};
use crate::cluster::Cluster;
use crate::mint::Minted;
use crate::reports::condition;

const CA: &str = "openshift-service-ca";
const DAY: SignedDuration = SignedDuration::from_hours(24);

#[tokio::test]
async fn a_tenant_with_a_hundred_busy_services_delays_no_other_tenant() {
    let (worst, _) = longest_wait_beside_a_busy_tenant().await;
    // Generous, because other tests run at the same time.
    assert!(worst < Duration::from_secs(10), "the slowest waited {worst:?}");
}

#[tokio::test]
#[ignore = "measures time: `make test-long`"]
async fn a_new_service_is_served_within_a_second_beside_a_busy_tenant() {
    let (worst, patches_per_second) = longest_wait_beside_a_busy_tenant().await;
    assert!(80.0 <= patches_per_second, "the tenant patched only {patches_per_second:.0} times a second");
    assert!(worst < Duration::from_secs(1), "the slowest waited {worst:?}");
}

/// Returns the longest time that a new Service waits for its certificate while a tenant of another namespace patches 100 Services
/// about 100 times a second, and how often the tenant patched in a second.
async fn longest_wait_beside_a_busy_tenant() -> (Duration, f64) {
    const BUSY: usize = 100;
    let shop = Shop::new(Cluster::real().await).await;
    shop.cluster.set_policy("ECDSA P256").await;
    for namespace in ["aaa", "zzz"] {
        shop.cluster.create::<Namespace>(None, json!({"metadata": {"name": namespace}})).await;
    }
    let asks = |name: &str| {
        let annotations = json!({key(BETA, "serving-cert-secret-name"): format!("{name}-tls")});
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"ports": [{"port": 443}]}})
    };
    for number in 0..BUSY {
        shop.cluster.create::<Service>(Some("aaa"), asks(&format!("busy-{number}"))).await;
    }
    let running = Running::start(&shop.cluster);
    let services = Api::<Service>::namespaced(shop.cluster.client.clone(), "aaa");
    // Each patch leads to a look and a write: the operator takes the annotation away again.
    let (patched, begun) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let count = patched.clone();
    let patches = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for number in 0.. {
            ticks.tick().await;
            let lie =
                json!({"metadata": {"annotations": {key(BETA, "serving-cert-generation-error"): format!("{number}")}}});
            let name = format!("busy-{}", number % BUSY);
            if services.patch(&name, &PatchParams::default(), &Patch::Merge(&lie)).await.is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    let secrets = Api::<Secret>::namespaced(shop.cluster.client.clone(), "zzz");
    let mut waits = Vec::new();
    for number in 0..30 {
        let name = format!("new-{number}");
        shop.cluster.create::<Service>(Some("zzz"), asks(&name)).await;
        let begun = Instant::now();
        while secrets.get_opt(&format!("{name}-tls")).await.unwrap().is_none() {
            assert!(begun.elapsed() < Duration::from_secs(20), "{name} is not served");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The first one waits for the operator to start.
        waits.extend((number > 0).then(|| begun.elapsed()));
    }
    patches.abort();
    let patches_per_second = patched.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64();
    running.end().await;
    (waits.into_iter().max().unwrap(), patches_per_second)
}

/// Ten thousand Services that cannot be served delay no other Service.
#[tokio::test]
#[ignore = "takes minutes: `make test-long`"]
async fn ten_thousand_invalid_services_delay_no_valid_one() {
    const INVALID: usize = 10_000;
    let shop = Shop::new(Cluster::real().await).await;
    shop.cluster.set_policy("ECDSA P256").await;
    let service = |name: &str, secret: &str| {
        let annotations = json!({key(BETA, "serving-cert-secret-name"): secret});
        json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"ports": [{"port": 443}], "clusterIP": "None"}})
    };
    let all: Vec<usize> = (0..INVALID).collect();
    for few in all.chunks(50) {
        let made = few.iter().map(|number| {
            let cluster = &shop.cluster;
            async move { cluster.create::<Service>(Some("shop"), service(&format!("bad-{number}"), "Not A Name")).await }
        });
        futures_util::future::join_all(made).await;
    }
    let running = Running::start(&shop.cluster);
    let begun = Instant::now();
    for number in 0..10 {
        let name = format!("good-{number}");
        shop.cluster.create::<Service>(Some("shop"), service(&name, &format!("{name}-tls"))).await;
        let created = Instant::now();
        while shop.secrets().get_opt(&format!("{name}-tls")).await.unwrap().is_none() {
            let limit = Duration::from_secs(if number == 0 { 120 } else { 2 });
            assert!(created.elapsed() < limit, "{name} is not served after {:?}", begun.elapsed());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let blocked = async || condition(&shop.cluster, "service-ca", "ServingCertificatesBlocked").await.1;
    while !blocked().await.contains(&format!("for {INVALID} of")) {
        assert!(begun.elapsed() < Duration::from_secs(600), "{}", blocked().await);
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    // Their namespace's other conditions are those of a healthy component.
    assert_eq!(condition(&shop.cluster, "service-ca", "Degraded").await.0, "False");
    assert_eq!(condition(&shop.cluster, "service-ca", "Available").await.0, "True");
    running.end().await;
}

/// Names that belong to the cluster get no certificate of the service CA.
async fn the_service_of_the_api_server_gets_no_certificate(cluster: Cluster) {
    let mut shop = Shop::new(cluster).await;
    shop.cluster.view.settings.reserved_services.insert("shop/gateway".to_owned());
    let asks = json!({"metadata": {"annotations": {key(BETA, "serving-cert-secret-name"): "stolen-tls"}}});
    let services = Api::<Service>::namespaced(shop.cluster.client.clone(), "default");
    if services.get_opt("kubernetes").await.unwrap().is_none() {
        let service = json!({"metadata": {"name": "kubernetes"}, "spec": {"ports": [{"port": 443}]}});
        shop.cluster.create::<Service>(Some("default"), service).await;
    }
    services.patch("kubernetes", &PatchParams::default(), &Patch::Merge(&asks)).await.unwrap();
    shop.asks("gateway", "gateway-tls").await;
    shop.asks("web", "web-tls").await;
    shop.once().await;
    shop.served("web-tls").await;
    assert!(shop.secrets().get_opt("gateway-tls").await.unwrap().is_none());
    assert!(shop.cluster.secrets("default").get_opt("stolen-tls").await.unwrap().is_none());
    let told =
        services.get("kubernetes").await.unwrap().annotations()[&key(BETA, "serving-cert-generation-error")].clone();
    assert_eq!(
        told,
        "Service default/kubernetes belongs to the cluster: the service CA issues no certificate for its names"
    );
    for (type_, status) in [("Available", "True"), ("Degraded", "False"), ("ServingCertificatesBlocked", "True")] {
        assert_eq!(condition(&shop.cluster, "service-ca", type_).await.0, status, "{type_}");
    }
}

/// Another Secret name, or a request that is removed and added again, does not get a Service more certificates than the breaker allows.
async fn a_renamed_secret_does_not_reset_the_circuit_breaker(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let runner = shop.cluster.runner();
    shop.asks("web", "web-tls-0").await;
    runner.once().await.unwrap();
    let names = |name: Value| json!({"metadata": {"annotations": {key(BETA, "serving-cert-secret-name"): name}}});
    let patch = async |name: Value| {
        shop.services().patch("web", &PatchParams::default(), &Patch::Merge(&names(name))).await.unwrap();
    };
    for number in 1..8 {
        if number % 2 == 0 {
            patch(Value::Null).await;
            runner.once().await.unwrap();
        }
        patch(json!(format!("web-tls-{number}"))).await;
        runner.once().await.unwrap();
    }
    let issued = shop.secrets().list(&Default::default()).await.unwrap().items;
    assert_eq!(issued.iter().filter(|it| it.name_any().starts_with("web-tls-")).count(), 5);
    assert_eq!(condition(&shop.cluster, "service-ca", "Degraded").await.0, "False");
    assert_eq!(condition(&shop.cluster, "service-ca", "Available").await.0, "True");
    shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(61));
    runner.once().await.unwrap();
    shop.served("web-tls-7").await;
}

/// A tenant who records issues in the future on the Secret does not make the operator forget those that it remembers.
async fn recorded_issues_in_the_future_do_not_reset_the_circuit_breaker(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let runner = shop.cluster.runner();
    shop.asks("web", "web-tls").await;
    runner.once().await.unwrap();
    let mut issued = BTreeSet::new();
    for number in 0..8 {
        let future = json!({"tls.crt": vec!["9999-12-31T23:59:59Z"; 5]}).to_string();
        let lie = json!({annotations::ISSUES: future, annotations::FORCE: format!("again {number}")});
        shop.patch_secret("web-tls", json!({"metadata": {"annotations": lie}})).await;
        runner.once().await.unwrap();
        issued.insert(shop.served("web-tls").await.leaf().der().to_vec());
    }
    assert!(issued.len() <= 5, "{} certificates within an hour", issued.len());
}

/// A running operator issues as soon as the circuit breaker allows it, and does not wait for a back-off.
#[tokio::test]
async fn a_service_is_served_as_soon_as_the_circuit_breaker_allows_it() {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.asks("web", "web-tls").await;
    let running = Running::start(&shop.cluster);
    let is_there = async || shop.secrets().get_opt("web-tls").await.unwrap().is_some();
    let is_blocked = async || shop.told("web").await.contains_key(&key(BETA, "serving-cert-generation-error"));
    let begun = Instant::now();
    while !is_blocked().await {
        assert!(begun.elapsed() < Duration::from_secs(120), "the circuit breaker does not open");
        if is_there().await {
            shop.secrets().delete("web-tls", &Default::default()).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!is_there().await);
    shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(61));
    let begun = Instant::now();
    while !is_there().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not served");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    running.end().await;
}

/// False values of every annotation that the operator reads from a tenant's Secret or Service.
fn lies(shop: &Shop) -> Vec<(String, Value)> {
    let now = shop.cluster.now();
    let foreign = Minted::authority("foreign", now - DAY, DAY * 900);
    let leaf = foreign.issue(Usage::Serving, "web.shop.svc", now - DAY, DAY * 800);
    let der = |minted: &Minted| BASE64_STANDARD.encode(minted.certificate.der());
    let times = ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "1970-01-01T00:00:00Z", "soon", ""];
    let mut lies: Vec<(String, Value)> = Vec::new();
    let mut lie = |name: &str, value: String| lies.push((name.to_owned(), json!(value)));
    for time in times {
        for name in [annotations::ISSUED_AT, annotations::NOT_BEFORE, annotations::NOT_AFTER] {
            lie(name, time.to_owned());
        }
        lie(&key(BETA, "expiry"), time.to_owned());
        lie(annotations::ISSUES, json!({"tls.crt": [time, time, time, time, time]}).to_string());
        let past = json!({"at": time, "certificates": [der(&leaf), der(&foreign)]});
        lie(annotations::SUPERSEDED, json!({"tls.crt": [past]}).to_string());
        let past = json!({"at": time, "certificates": [der(&foreign)], "lagOverride": u32::MAX});
        lie(annotations::SUPERSEDED, json!({"tls.crt": [past]}).to_string());
    }
    let now_text = now.to_string();
    lie(annotations::ISSUES, json!({"tls.crt": vec![now_text; 5]}).to_string());
    for name in [annotations::ISSUES, annotations::SUPERSEDED, annotations::PUBLISHED, annotations::RELOADS] {
        lie(name, "{".to_owned());
        lie(name, "[".repeat(60_000));
        lie(name, json!({"tls.crt": 7, "observed": "9999-12-31T23:59:59Z"}).to_string());
    }
    lie(annotations::FORCE, "x".repeat(100_000));
    lie(annotations::FORCE, "again".to_owned());
    lie(annotations::FORCED, "x".repeat(100_000));
    lie(annotations::SERVICE_CA_FORCED, "a reason".to_owned());
    lie(annotations::DISTRUSTED, json!({"00": {"since": "1970-01-01T00:00:00Z", "reason": "r"}}).to_string());
    lie(annotations::STAGED_FOR, "signing-key".to_owned());
    lie(annotations::STAGED_UID, "signing-key".to_owned());
    lie(annotations::MANAGED_TYPE, "signer".to_owned());
    lie(&key(BETA, "originating-service-name"), "kubernetes".to_owned());
    lie(&key(ALPHA, "originating-service-uid"), "another".to_owned());
    lie(&key(ALPHA, "expiry"), "9999-12-31T23:59:59Z".to_owned());
    lies
}

/// The same for what the operator reads from a Service besides the request.
fn lies_on_the_service() -> Vec<(String, Value)> {
    let values = ["", "another CA", "18446744073709551616", "-1"];
    let names = ["serving-cert-signed-by", "serving-cert-generation-error", "serving-cert-generation-error-num"];
    let families = [BETA, ALPHA];
    let all = families.iter().flat_map(|family| names.map(|name| key(family, name)));
    all.flat_map(|name| values.map(|value| (name.clone(), json!(value)))).collect()
}

/// What one tenant writes on the Secret and on the Service.
#[derive(Debug, Default)]
struct Liar {
    secret: BTreeMap<String, Value>,
    service: BTreeMap<String, Value>,
}

/// Returns a tenant for each lie, and tenants with several lies at once.
fn liars(shop: &Shop) -> Vec<Liar> {
    const COMBINATIONS: usize = 24;
    let (secret, service) = (lies(shop), lies_on_the_service());
    let mut liars: Vec<Liar> = Vec::new();
    liars.extend(secret.iter().map(|it| Liar { secret: [it.clone()].into(), ..Liar::default() }));
    liars.extend(service.iter().map(|it| Liar { service: [it.clone()].into(), ..Liar::default() }));
    // Always the same combinations.
    let mut number = 1_usize;
    let mut draw = |below: usize| {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (number >> 33) % below
    };
    liars.extend(
        (0..COMBINATIONS).map(|_| Liar {
            // A Secret has 256 KiB of annotations at most.
            secret: (0..4)
                .map(|_| secret[draw(secret.len())].clone())
                .filter(|(_, it)| it.to_string().len() < 60_000)
                .collect(),
            service: (0..2).map(|_| service[draw(service.len())].clone()).collect(),
        }),
    );
    liars
}

/// No CA becomes trusted, no key is exposed, no other tenant is affected, and the tenant's own Service is correct within an hour.
async fn forged_history_delays_only_its_own_service_for_an_hour(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.cluster.set_policy("ECDSA P256").await;
    shop.cluster.create::<Namespace>(None, json!({"metadata": {"name": "victim"}})).await;
    let asks = json!({key(BETA, "serving-cert-secret-name"): "web-tls"});
    let victim = json!({"metadata": {"name": "web", "annotations": asks}, "spec": {"ports": [{"port": 443}]}});
    shop.cluster.create::<Service>(Some("victim"), victim).await;
    let liars = liars(&shop);
    for number in 0..liars.len() {
        shop.asks(&format!("liar-{number:03}"), &format!("liar-{number:03}-tls")).await;
    }
    let runner = shop.cluster.runner();
    runner.once().await.unwrap();
    let trusted = async || shop.cluster.config_maps(CA).get("signing-cabundle").await.unwrap().data.unwrap();
    let victim = async || shop.cluster.secrets("victim").get("web-tls").await.unwrap();
    let signer = async || shop.cluster.secrets(CA).get("signing-key").await.unwrap().data.unwrap();
    let (trusted_before, victim_before, signer_before) = (trusted().await, victim().await, signer().await);
    for (number, liar) in liars.iter().enumerate() {
        let lie = |annotations: &BTreeMap<String, Value>| json!({"metadata": {"annotations": annotations}});
        shop.patch_secret(&format!("liar-{number:03}-tls"), lie(&liar.secret)).await;
        let patch = Patch::Merge(lie(&liar.service));
        shop.services().patch(&format!("liar-{number:03}"), &PatchParams::default(), &patch).await.unwrap();
    }
    for minutes in [1, 61, 1] {
        runner.once().await.unwrap();
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(minutes));
    }
    runner.once().await.unwrap();
    assert_eq!(trusted().await, trusted_before, "no trust is gained or lost");
    assert_eq!(signer().await, signer_before);
    assert_eq!(
        victim().await.resource_version(),
        victim_before.resource_version(),
        "another tenant's Secret is untouched"
    );
    let ca = read_certificates(&signer_before["tls.crt"].0).unwrap().remove(0);
    for (number, liar) in liars.iter().enumerate() {
        let lie = format!("{:.800}", format!("{liar:?}"));
        let served = shop.served(&format!("liar-{number:03}-tls")).await;
        assert_eq!(served.leaf().facts().authority_key_id, ca.facts().subject_key_id, "{lie}");
        assert!(served.leaf().facts().validity.contains(shop.cluster.now()), "{lie}");
        let annotations = serde_json::to_string(served.secret.annotations()).unwrap();
        assert!(!annotations.contains("PRIVATE KEY") && annotations.len() < 256 * 1024, "{lie}");
    }
    for (type_, status) in [("Available", "True"), ("Degraded", "False")] {
        let (found, message, _) = condition(&shop.cluster, "service-ca", type_).await;
        assert_eq!(found, status, "{type_}: {message}");
    }
    // Nor do they hold up a rotation of the CA.
    shop.force("after the lies").await;
    runner.once().await.unwrap();
    runner.once().await.unwrap();
    assert_ne!(signer().await, signer_before);
    assert_ne!(victim().await.resource_version(), victim_before.resource_version());
}

on_both! {
    the_service_of_the_api_server_gets_no_certificate
    a_renamed_secret_does_not_reset_the_circuit_breaker
    recorded_issues_in_the_future_do_not_reset_the_circuit_breaker
    forged_history_delays_only_its_own_service_for_an_hour
}
