//! Hostile tenants, who may create, annotate and delete Services and Secrets in one namespace.

use std::collections::BTreeMap;
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

/// Measures how long a new Service of another namespace waits while a tenant keeps the operator busy.
#[tokio::test]
async fn a_tenant_with_a_hundred_busy_services_delays_no_other_tenant() {
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
    let patches = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        for number in 0.. {
            ticks.tick().await;
            let lie =
                json!({"metadata": {"annotations": {key(BETA, "serving-cert-generation-error"): format!("{number}")}}});
            let name = format!("busy-{}", number % BUSY);
            _ = services.patch(&name, &PatchParams::default(), &Patch::Merge(&lie)).await;
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
    running.end().await;
    waits.sort();
    let worst = waits[waits.len() - 1];
    assert!(
        worst < Duration::from_secs(1),
        "the slowest of {}: {worst:?}; median {:?}",
        waits.len(),
        waits[waits.len() / 2]
    );
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
    lies
}

/// No CA becomes trusted, no key is exposed, no other tenant is affected, and the tenant's own Service is correct within an hour.
async fn forged_history_delays_only_its_own_service_for_an_hour(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.cluster.set_policy("ECDSA P256").await;
    shop.cluster.create::<Namespace>(None, json!({"metadata": {"name": "victim"}})).await;
    let asks = json!({key(BETA, "serving-cert-secret-name"): "web-tls"});
    let victim = json!({"metadata": {"name": "web", "annotations": asks}, "spec": {"ports": [{"port": 443}]}});
    shop.cluster.create::<Service>(Some("victim"), victim).await;
    let lies = lies(&shop);
    for number in 0..lies.len() {
        shop.asks(&format!("liar-{number:03}"), &format!("liar-{number:03}-tls")).await;
    }
    let runner = shop.cluster.runner();
    runner.once().await.unwrap();
    let trusted = async || shop.cluster.config_maps(CA).get("signing-cabundle").await.unwrap().data.unwrap();
    let victim = async || shop.cluster.secrets("victim").get("web-tls").await.unwrap();
    let signer = async || shop.cluster.secrets(CA).get("signing-key").await.unwrap().data.unwrap();
    let (trusted_before, victim_before, signer_before) = (trusted().await, victim().await, signer().await);
    for (number, (name, value)) in lies.iter().enumerate() {
        let lie = json!({"metadata": {"annotations": BTreeMap::from([(name, value)])}});
        shop.patch_secret(&format!("liar-{number:03}-tls"), lie).await;
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
    for (number, (name, value)) in lies.iter().enumerate() {
        let lie = format!("{name}: {:.200}", value.to_string());
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
    forged_history_delays_only_its_own_service_for_an_hour
}
