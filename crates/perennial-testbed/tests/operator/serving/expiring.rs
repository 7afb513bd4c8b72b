//! A service CA that is about to expire, or has expired, when the operator first sees it: Services do not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Secret};
use kube_client::api::{DeleteParams, ListParams};
use kube_client::{Api, Client, ResourceExt};
use perennial_api::config::ClusterOperator;
use perennial_core::catalog::Catalog;
use perennial_operator::rbac;
use perennial_testbed::judges::{Case, Judge, Purpose};
use perennial_x509::{Certificate, read_certificates};
use serde_json::json;

use super::shop::{BETA, Running, SHOP, Shop, key};
use crate::cluster::{Cluster, soon};
use crate::mint::Minted;
use crate::reports::{condition, reason};

const CA: &str = "openshift-service-ca";
const ACCOUNT: &str = "openshift-kube-apiserver-operator";
/// Services with a certificate of the expiring CA, and as many that are created later.
const SERVICES: usize = 50;
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// The time in which all Services get a certificate of the new CA, on a busy machine.
const WITHIN: Duration = Duration::from_secs(30);

fn name(number: usize) -> (String, String) {
    (format!("web-{number}"), format!("web-{number}-tls"))
}

/// Returns a client with the RBAC of the manifests. The embedded server checks no rights.
async fn account(shop: &Shop) -> Client {
    if shop.cluster.real.is_none() {
        return shop.cluster.client.clone();
    }
    shop.cluster.apply(&rbac::objects(Catalog::builtin(), ACCOUNT)).await;
    shop.cluster.client_as_account(ACCOUNT, rbac::NAME).await
}

/// Creates a CA of another operator with `left` of its validity, and Services with certificates that expire after it.
async fn adopted(shop: &Shop, left: SignedDuration) -> Minted {
    adopted_with(shop, left, DAY * 730).await
}

/// The same with another validity of the Services' certificates.
async fn adopted_with(shop: &Shop, left: SignedDuration, validity: SignedDuration) -> Minted {
    let began = shop.cluster.now() - DAY * 300;
    let name_of_ca = "openshift-service-serving-signer@1";
    // The other operator does not limit the validity of its certificates to that of the CA.
    let issuer = Minted::authority(name_of_ca, began, DAY * 800);
    let ca = issuer.with_validity(name_of_ca, began, DAY * 300 + left);
    let secret = json!({"metadata": {"name": "signing-key"}, "type": "kubernetes.io/tls", "data": ca.data()});
    shop.cluster.create::<Secret>(Some(CA), secret).await;
    for (namespace, name) in [(CA, "signing-cabundle"), ("openshift-config-managed", "service-ca")] {
        let map = json!({"metadata": {"name": name}, "data": {"ca-bundle.crt": ca.certificate.to_pem()}});
        shop.cluster.create::<ConfigMap>(Some(namespace), map).await;
    }
    for number in 0..SERVICES {
        let (service, secret) = name(number);
        let uid = shop.asks(&service, &secret).await.uid().unwrap();
        let leaf = issuer.issue_for_service(&format!("{service}.shop.svc"), began, validity);
        let annotations: BTreeMap<String, String> = [
            (key(BETA, "originating-service-name"), service.clone()),
            (key(BETA, "originating-service-uid"), uid.clone()),
            (key(BETA, "expiry"), leaf.certificate.facts().validity.not_after.to_string()),
        ]
        .into();
        let owner = json!([{"apiVersion": "v1", "kind": "Service", "name": service, "uid": uid}]);
        let metadata = json!({"name": secret, "annotations": annotations, "ownerReferences": owner});
        let secret = json!({"metadata": metadata, "type": "kubernetes.io/tls", "data": leaf.data()});
        shop.cluster.create::<Secret>(Some(SHOP), secret).await;
    }
    ca
}

/// Returns the service CA, if there is one.
async fn signer(shop: &Shop) -> Option<Certificate> {
    let secret = shop.cluster.secrets(CA).get_opt("signing-key").await.unwrap()?;
    Some(read_certificates(&secret.data.unwrap()["tls.crt"].0).unwrap().remove(0))
}

/// Returns the published CAs.
async fn bundle(shop: &Shop) -> Vec<Certificate> {
    let map = shop.cluster.config_maps(CA).get("signing-cabundle").await.unwrap();
    read_certificates(map.data.unwrap()["ca-bundle.crt"].as_bytes()).unwrap()
}

/// Returns how many Services have a certificate of this CA.
async fn served_by(shop: &Shop, ca: &Certificate) -> usize {
    let secrets = shop.secrets().list(&Default::default()).await.unwrap();
    let is_by_it = |secret: &&Secret| {
        let data = secret.data.as_ref().and_then(|data| read_certificates(&data.get("tls.crt")?.0).ok());
        data.is_some_and(|it| it[0].facts().authority_key_id == ca.facts().subject_key_id)
    };
    secrets.items.iter().filter(is_by_it).count()
}

fn case(what: &str, chain: &[Certificate], anchors: &[Certificate], at: Timestamp, service: &str) -> Case {
    let der = |certificates: &[Certificate]| certificates.iter().map(|it| it.der().to_vec()).collect();
    Case {
        id: format!("{what} of {service} at {at}"),
        chain: der(chain),
        anchors: der(anchors),
        purpose: Purpose::Server,
        name: Some(format!("{service}.shop.svc")),
        at: at.as_second(),
    }
}

async fn services_do_not_wait_for_an_expiring_ca(cluster: Cluster, left: SignedDuration) {
    let shop = Shop::new(cluster).await;
    let client = account(&shop).await;
    let old = adopted(&shop, left).await;
    let old_end = old.certificate.facts().validity.not_after;
    let running = Running::through(&shop.cluster, client);
    soon("there is a new CA", || async { signer(&shop).await.unwrap() != old.certificate }).await;
    let new = signer(&shop).await.unwrap();
    soon("the bundle contains the new CA", || async { bundle(&shop).await.contains(&new) }).await;
    let published = Instant::now();
    for number in SERVICES..2 * SERVICES {
        let (service, secret) = name(number);
        shop.asks(&service, &secret).await;
    }
    soon("every Service has a certificate of the new CA", || async { served_by(&shop, &new).await == 2 * SERVICES })
        .await;
    assert!(published.elapsed() < WITHIN, "{:?} after the new CA was published", published.elapsed());
    // No Service waits, and no condition says so.
    soon("no Service waits", || async {
        let (status, message, _) = condition(&shop.cluster, "service-ca", "Progressing").await;
        assert!(!message.contains("Services wait"), "{message}");
        status == "False"
    })
    .await;
    assert_eq!(reason(&shop.cluster, "service-ca", "Progressing").await, "AsExpected");
    running.end().await;

    let bundle = bundle(&shop).await;
    let (now, old_bundle) = (shop.cluster.now(), [old.certificate]);
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for number in 0..2 * SERVICES {
        let (service, secret) = name(number);
        let served = shop.served(&secret).await.certificates;
        accepted.push(case("new bundle", &served, &bundle, now, &service));
        if now < old_end {
            accepted.push(case("old bundle", &served, &old_bundle, now, &service));
        }
        // Each case is a process of OpenSSL. At other times, a few Services stand for all.
        if ![0, SERVICES - 1, SERVICES, 2 * SERVICES - 1].contains(&number) {
            continue;
        }
        accepted.push(case("new bundle, later", &served, &bundle, old_end.max(now) + DAY, &service));
        if now < old_end {
            accepted.push(case(
                "old bundle, to the end",
                &served,
                &old_bundle,
                old_end - SignedDuration::from_secs(1),
                &service,
            ));
        }
        refused.push(case("old bundle, after its end", &served, &old_bundle, old_end.max(now) + DAY, &service));
    }
    for judge in [Judge::Go, Judge::OpenSsl] {
        for (cases, is_accepted) in [(&accepted, true), (&refused, false)] {
            for (case, verdict) in cases.iter().zip(judge.judge(cases).unwrap()) {
                assert_eq!(verdict.accepted, is_accepted, "{judge}: {}: {}", case.id, verdict.why);
            }
        }
    }
}

/// Returns the messages of the operator's events with this reason.
async fn told(shop: &Shop, reason: &str) -> Vec<String> {
    let api = Api::<Event>::namespaced(shop.cluster.client.clone(), "openshift-service-ca-operator");
    let events = api.list(&ListParams::default()).await.unwrap();
    events.into_iter().filter(|it| it.reason.as_deref() == Some(reason)).filter_map(|it| it.message).collect()
}

/// A CA whose key is lost, an hour before it expires with all its leaves: waiting does not help, so every Service gets a certificate at
/// once, and the operator names the clients that reject it, once for all of them.
async fn services_whose_certificates_expire_with_a_lost_ca_are_issued_at_once(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let client = account(&shop).await;
    let left = SignedDuration::from_hours(1);
    let old = adopted_with(&shop, left, DAY * 300 + left).await.certificate;
    shop.cluster.secrets(CA).delete("signing-key", &DeleteParams::default()).await.unwrap();
    let running = Running::through(&shop.cluster, client);
    soon("there is a new CA", || async { signer(&shop).await.is_some() }).await;
    let new = signer(&shop).await.unwrap();
    soon("every Service has a certificate of the new CA", || async { served_by(&shop, &new).await == SERVICES }).await;
    soon("the clients that reject it are named", || async {
        let (status, message, _) = condition(&shop.cluster, "service-ca", "PreviousServiceCAInUse").await;
        status == "True" && message.contains("reject new serving certificates")
    })
    .await;
    let named = told(&shop, "ServingCertificatesAtRisk").await;
    let [text] = named.as_slice() else { panic!("one for all Services: {named:?}") };
    assert!(text.contains("shop/web-") && text.contains("consumer of the service CA"), "{text}");
    running.end().await;
    // Clients that have not reloaded reject the new certificates; clients that have accept them after the old CA has expired.
    let bundle = bundle(&shop).await;
    let (served, now) = (shop.served("web-0-tls").await.certificates, shop.cluster.now());
    let cases = [
        (case("new bundle", &served, &bundle, now, "web-0"), true),
        (case("new bundle, later", &served, &bundle, now + DAY, "web-0"), true),
        (case("old bundle", &served, &[old], now, "web-0"), false),
    ];
    for judge in [Judge::Go, Judge::OpenSsl] {
        let asked: Vec<Case> = cases.iter().map(|(case, _)| case.clone()).collect();
        for ((case, is_accepted), verdict) in cases.iter().zip(judge.judge(&asked).unwrap()) {
            assert_eq!(verdict.accepted, *is_accepted, "{judge}: {}: {}", case.id, verdict.why);
        }
    }
}

/// The same with leaves that expire after the CA: clients accept them until it expires, so Services wait until then.
async fn services_whose_certificates_outlive_a_lost_ca_wait_until_it_expires(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let client = account(&shop).await;
    let old = adopted(&shop, SignedDuration::from_hours(1)).await.certificate;
    shop.cluster.secrets(CA).delete("signing-key", &DeleteParams::default()).await.unwrap();
    let runner = shop.cluster.runner_through(client);
    runner.once().await.unwrap();
    shop.asks("new", "new-tls").await;
    runner.once().await.unwrap();
    let new = signer(&shop).await.unwrap();
    assert_eq!(served_by(&shop, &new).await, 1, "the Service without a certificate");
    let (status, message, _) = condition(&shop.cluster, "service-ca", "Progressing").await;
    let expected = format!("{SERVICES} of {} Services wait for a certificate; shop/web-", SERVICES + 1);
    assert!(status == "True" && message.contains(&expected), "{message}");
    assert_eq!(reason(&shop.cluster, "service-ca", "Progressing").await, "ServicesWaiting");
    shop.cluster.set_now(old.facts().validity.not_after + SignedDuration::from_mins(1));
    runner.once().await.unwrap();
    assert_eq!(served_by(&shop, &new).await, SERVICES + 1);
    let (status, message, _) = condition(&shop.cluster, "service-ca", "Progressing").await;
    assert_eq!(status, "False", "{message}");
}

/// A wait is reported: an existing Service whose clients have only a CA whose key is lost.
async fn a_service_that_waits_is_named_in_the_condition_and_counted(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("web", "web-tls").await;
    shop.asks("db", "db-tls").await;
    let client = account(&shop).await;
    let runner = shop.cluster.runner_through(client.clone());
    runner.once().await.unwrap();
    let before = shop.served("web-tls").await;
    shop.later(10);
    shop.cluster.secrets(CA).delete("signing-key", &DeleteParams::default()).await.unwrap();
    let runner = shop.cluster.runner_through(client);
    runner.once().await.unwrap();
    shop.asks("new", "new-tls").await;
    let mut messages = Vec::new();
    let mut versions = BTreeSet::new();
    for _ in 0..3 {
        runner.once().await.unwrap();
        let (status, message, _) = condition(&shop.cluster, "service-ca", "Progressing").await;
        assert_eq!(status, "True");
        assert_eq!(reason(&shop.cluster, "service-ca", "Progressing").await, "ServicesWaiting");
        messages.push(message);
        let operators = Api::<ClusterOperator>::all(shop.cluster.client.clone());
        versions.insert(operators.get("service-ca").await.unwrap().metadata.resource_version);
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(1));
    }
    let expected = "2 of 3 Services wait for a certificate; shop/db longest, since ";
    assert!(messages[0].contains(expected), "{messages:?}");
    // The condition does not change, so nothing is written.
    assert_eq!(messages[1], messages[2]);
    assert_eq!(versions.len(), 1, "{versions:?}");
    assert_eq!(shop.served("web-tls").await.leaf(), before.leaf());
    assert_ne!(shop.served("new-tls").await.leaf().facts().authority_key_id, before.leaf().facts().authority_key_id);
    let text = runner.metrics().text().unwrap();
    let line = r#"perennial_waiting{scope="Service",reason="ClientsLackTrust"} 2"#;
    assert!(text.lines().any(|found| found == line), "{text}");
}

#[tokio::test]
async fn a_service_that_waits_is_named_in_the_condition_and_counted_on_the_embedded_server() {
    a_service_that_waits_is_named_in_the_condition_and_counted(Cluster::embedded().await).await;
}

mod real {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);
    const MINUTE: SignedDuration = SignedDuration::from_mins(1);

    #[tokio::test]
    async fn services_do_not_wait_for_a_ca_with_a_day_left() {
        services_do_not_wait_for_an_expiring_ca(Cluster::real().await, DAY).await;
    }

    #[tokio::test]
    async fn services_do_not_wait_for_a_ca_with_an_hour_left() {
        services_do_not_wait_for_an_expiring_ca(Cluster::real().await, HOUR).await;
    }

    #[tokio::test]
    async fn services_do_not_wait_for_a_ca_with_a_minute_left() {
        services_do_not_wait_for_an_expiring_ca(Cluster::real().await, MINUTE).await;
    }

    #[tokio::test]
    async fn services_do_not_wait_for_a_ca_that_has_expired() {
        services_do_not_wait_for_an_expiring_ca(Cluster::real().await, -MINUTE).await;
    }

    #[tokio::test]
    async fn services_whose_certificates_expire_with_a_lost_ca_are_issued_at_once() {
        super::services_whose_certificates_expire_with_a_lost_ca_are_issued_at_once(Cluster::real().await).await;
    }

    #[tokio::test]
    async fn services_whose_certificates_outlive_a_lost_ca_wait_until_it_expires() {
        super::services_whose_certificates_outlive_a_lost_ca_wait_until_it_expires(Cluster::real().await).await;
    }

    #[tokio::test]
    async fn a_service_that_waits_is_named_in_the_condition_and_counted_on_a_real_server() {
        a_service_that_waits_is_named_in_the_condition_and_counted(Cluster::real().await).await;
    }
}
