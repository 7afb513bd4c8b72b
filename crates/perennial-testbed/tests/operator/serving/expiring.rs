//! A service CA that is about to expire, or has expired, when the operator first sees it: Services do not wait.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::ResourceExt;
use kube_client::api::DeleteParams;
use perennial_core::catalog::Catalog;
use perennial_core::policy::Usage;
use perennial_operator::rbac;
use perennial_testbed::judges::{Case, Judge, Purpose};
use perennial_x509::{Certificate, read_certificates};
use serde_json::json;

use super::shop::{BETA, Running, SHOP, Shop, key};
use crate::cluster::{Cluster, soon};
use crate::mint::Minted;
use crate::telling::condition;

const CA: &str = "openshift-service-ca";
const ACCOUNT: &str = "openshift-kube-apiserver-operator";
/// Services that have a certificate by the CA that is about to expire, and as many that come later.
const SERVICES: usize = 50;
const DAY: SignedDuration = SignedDuration::from_hours(24);

fn name(number: usize) -> (String, String) {
    (format!("web-{number}"), format!("web-{number}-tls"))
}

/// Puts a CA with `left` of its validity where another operator has left it, and Services with certificates that outlive it.
async fn adopted(shop: &Shop, left: SignedDuration) -> Minted {
    let began = shop.cluster.now() - DAY * 300;
    let ca = Minted::authority("openshift-service-serving-signer@1", began, DAY * 300 + left);
    let secret = json!({"metadata": {"name": "signing-key"}, "type": "kubernetes.io/tls", "data": ca.data()});
    shop.cluster.create::<Secret>(Some(CA), secret).await;
    for (namespace, name) in [(CA, "signing-cabundle"), ("openshift-config-managed", "service-ca")] {
        let map = json!({"metadata": {"name": name}, "data": {"ca-bundle.crt": ca.certificate.to_pem()}});
        shop.cluster.create::<ConfigMap>(Some(namespace), map).await;
    }
    let leaf = ca.issue(Usage::Serving, "web.shop.svc", began, DAY * 730);
    for number in 0..SERVICES {
        let (service, secret) = name(number);
        let uid = shop.asks(&service, &secret).await.uid().unwrap();
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
    shop.cluster.apply(&rbac::objects(Catalog::builtin(), ACCOUNT)).await;
    let client = shop.cluster.client_as_account(ACCOUNT, rbac::NAME).await;
    let old = adopted(&shop, left).await;
    let old_end = old.certificate.facts().validity.not_after;
    let running = Running::through(&shop.cluster, client);
    let signer = async || {
        let secret = shop.cluster.secrets(CA).get("signing-key").await.unwrap();
        read_certificates(&secret.data.unwrap()["tls.crt"].0).unwrap().remove(0)
    };
    soon("there is a new CA", || async { signer().await != old.certificate }).await;
    for number in SERVICES..2 * SERVICES {
        let (service, secret) = name(number);
        shop.asks(&service, &secret).await;
    }
    let new = signer().await;
    let is_by_new = |secret: &Secret| {
        let data = secret.data.as_ref().and_then(|data| read_certificates(&data.get("tls.crt")?.0).ok());
        data.is_some_and(|it| it[0].facts().authority_key_id == new.facts().subject_key_id)
    };
    soon("every Service has a certificate of the new CA", || async {
        let secrets = shop.secrets().list(&Default::default()).await.unwrap();
        secrets.items.iter().filter(|it| is_by_new(it)).count() == 2 * SERVICES
    })
    .await;
    // Nothing waits, and nothing says so.
    soon("no Service waits", || async {
        let (status, message, _) = condition(&shop.cluster, "service-ca", "Progressing").await;
        assert!(!message.contains("Services wait"), "{message}");
        status == "False"
    })
    .await;
    running.end().await;

    let map = shop.cluster.config_maps(CA).get("signing-cabundle").await.unwrap();
    let bundle = read_certificates(map.data.unwrap()["ca-bundle.crt"].as_bytes()).unwrap();
    let (now, old_bundle) = (shop.cluster.now(), [old.certificate]);
    let (mut accepted, mut refused) = (Vec::new(), Vec::new());
    for number in [0, SERVICES - 1, SERVICES, 2 * SERVICES - 1] {
        let (service, secret) = name(number);
        let served = shop.served(&secret).await.certificates;
        accepted.push(case("new bundle", &served, &bundle, now, &service));
        accepted.push(case("new bundle, later", &served, &bundle, old_end.max(now) + DAY, &service));
        if now < old_end {
            accepted.push(case("old bundle", &served, &old_bundle, now, &service));
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

/// What waits says so: an existing Service whose clients have only a CA whose key is lost.
async fn a_service_that_waits_is_named_in_the_condition_and_counted(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("web", "web-tls").await;
    shop.asks("db", "db-tls").await;
    let runner = shop.cluster.runner();
    runner.once().await.unwrap();
    let before = shop.served("web-tls").await;
    shop.later(10);
    shop.cluster.secrets(CA).delete("signing-key", &DeleteParams::default()).await.unwrap();
    let runner = shop.cluster.runner();
    runner.once().await.unwrap();
    shop.asks("new", "new-tls").await;
    let mut messages = Vec::new();
    for _ in 0..3 {
        runner.once().await.unwrap();
        let (status, message, _) = condition(&shop.cluster, "service-ca", "Progressing").await;
        assert_eq!(status, "True");
        messages.push(message);
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(1));
    }
    let expected = "2 of 3 Services wait for a certificate; shop/db longest, since ";
    assert!(messages[0].contains(expected), "{messages:?}");
    // It does not change while nothing happens.
    assert_eq!(messages[1], messages[2]);
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
    async fn a_service_that_waits_is_named_in_the_condition_and_counted_on_a_real_server() {
        a_service_that_waits_is_named_in_the_condition_and_counted(Cluster::real().await).await;
    }
}
