//! The certificate of a Service, and when it is re-issued.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube_client::ResourceExt;
use kube_client::api::{DeleteParams, ListParams};
use perennial_core::policy::Usage;
use perennial_core::spec::{CertificateSpec, SubjectSpec, Validity};
use perennial_x509::{Certificate, Issuer, PrivateKey, issue, read_certificates, self_signed};
use serde_json::{Value, json};

use super::shop::{ALPHA, BETA, SHOP, Served, Shop, key};
use crate::cluster::Cluster;

/// Scenarios 1, 2, 3 and 37 of the original operator: either family, the names of a Service, its uid, its owner and its expiry.
async fn a_service_gets_its_certificate(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let alpha = shop.service("old", &[(&key(ALPHA, "serving-cert-secret-name"), "old-tls")], false).await;
    let beta = shop.asks("web", "web-tls").await;
    let headless = shop.service("db", &[(&key(BETA, "serving-cert-secret-name"), "db-tls")], true).await;
    shop.service("plain", &[], false).await;
    shop.once().await;
    let (old, web, db) = (shop.served("old-tls").await, shop.served("web-tls").await, shop.served("db-tls").await);
    assert_eq!(web.names(), ["web.shop.svc", "web.shop.svc.cluster.local"]);
    let wild = ["*.db.shop.svc", "*.db.shop.svc.cluster.local", "db.shop.svc", "db.shop.svc.cluster.local"];
    assert_eq!(db.names(), wild);
    assert_eq!(web.leaf().facts().subject.common_name().as_deref(), Some("web.shop.svc"));
    for (served, service, group, other) in
        [(&old, &alpha, ALPHA, BETA), (&web, &beta, BETA, ALPHA), (&db, &headless, BETA, ALPHA)]
    {
        let (uid, name) = (service.uid().unwrap(), service.name_any());
        assert_eq!(served.annotation(group, "originating-service-uid"), Some(uid.as_str()));
        assert_eq!(served.annotation(group, "originating-service-name"), Some(name.as_str()));
        assert_eq!(served.annotation(other, "originating-service-uid"), None);
        let end = served.leaf().facts().validity.not_after;
        for group in [BETA, ALPHA] {
            assert_eq!(served.annotation(group, "expiry").unwrap().parse::<Timestamp>().unwrap(), end);
        }
        assert_eq!(end, shop.cluster.now() + SignedDuration::from_hours(24 * 730));
        let [owner] = served.secret.owner_references() else { panic!("{:?}", served.secret.metadata) };
        let found = (owner.api_version.as_str(), owner.kind.as_str(), owner.name.as_str(), owner.uid.as_str());
        assert_eq!(found, ("v1", "Service", name.as_str(), uid.as_str()));
        assert_eq!((owner.controller, owner.block_owner_deletion), (None, None));
        // The extension says which Service of this name it is.
        let der = served.leaf().der();
        let oid = [0x2b, 0x06, 0x01, 0x04, 0x01, 0x92, 0x08, 0x11, 0x64, 0x02, 0x01];
        let at = der.windows(oid.len()).position(|window| window == oid).unwrap() + oid.len();
        let length = u8::try_from(uid.len()).unwrap();
        let value = [&[0x04, length + 2, 0x13, length], uid.as_bytes()].concat();
        assert_eq!(&der[at..at + value.len()], value);
        let pem = served.secret.data.as_ref().unwrap()["tls.key"].0.clone();
        assert!(pem.starts_with(b"-----BEGIN EC PRIVATE KEY-----"), "SEC 1, and not PKCS#8");
        // And the CA is served beside it.
        let ca = shop.cluster.secrets("openshift-service-ca").get("signing-key").await.unwrap();
        let ca = read_certificates(&ca.data.unwrap()["tls.crt"].0).unwrap();
        assert_eq!(served.certificates[1..], ca);
        let signer = ca[0].facts().subject.common_name().unwrap();
        let told = shop.told(&name).await;
        let expected = [BETA, ALPHA].map(|group| (key(group, "serving-cert-signed-by"), signer.clone()));
        assert_eq!(told, BTreeMap::from(expected));
    }
    assert_eq!(shop.secrets().list(&ListParams::default()).await.unwrap().items.len(), 3);
    // 9: everything is in order, and nothing is written.
    let versions = [old.version(), web.version(), db.version()];
    let service = shop.services().get("web").await.unwrap().resource_version();
    shop.later(1);
    let passed = shop.once().await;
    assert!(passed.written.is_empty());
    let now = [shop.served("old-tls").await, shop.served("web-tls").await, shop.served("db-tls").await];
    assert_eq!(now.map(|served| served.version()), versions);
    assert_eq!(shop.services().get("web").await.unwrap().resource_version(), service);
}

/// A wrong Secret is re-issued, and the keys of other writers stay.
async fn a_wrong_secret_is_reissued(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let web = shop.asks("web", "web-tls").await;
    shop.once().await;
    let labels = json!({"metadata": {"labels": {"team": "shop"}, "annotations": {"note": "ours"}}});
    shop.patch_secret("web-tls", labels).await;
    let other = shop.asks("other", "other-tls").await;
    shop.once().await;
    let others = shop.served("other-tls").await.secret.data.unwrap();
    let text = |name: &str| String::from_utf8(others[name].0.clone()).unwrap();
    let data = |name: &str, text: &str| json!({"stringData": {name: text}});
    let expiry = |value: Value| json!({"metadata": {"annotations": {key(BETA, "expiry"): &value, key(ALPHA, "expiry"): &value}}});
    let cases = [
        ("38: junk", data("tls.crt", "junk")),
        ("a key that is none", data("tls.key", "junk")),
        ("another's key", data("tls.key", &text("tls.key"))),
        ("another's names", json!({"stringData": {"tls.crt": text("tls.crt"), "tls.key": text("tls.key")}})),
        ("4: nothing in it", json!({"data": {"tls.crt": "", "tls.key": ""}})),
        ("18: no end", expiry(Value::Null)),
        ("19: garbled end", expiry(json!("soon"))),
    ];
    for (case, patch) in cases {
        let before = shop.served("web-tls").await;
        shop.patch_secret("web-tls", patch).await;
        shop.once().await;
        let after = shop.served("web-tls").await;
        assert_ne!(after.leaf(), before.leaf(), "{case}");
        assert_eq!(after.names(), ["web.shop.svc", "web.shop.svc.cluster.local"], "{case}");
        assert_eq!(after.secret.labels().get("team").map(String::as_str), Some("shop"), "{case}");
        assert_eq!(after.secret.annotations().get("note").map(String::as_str), Some("ours"), "{case}");
        assert_eq!(after.annotation(BETA, "originating-service-uid"), web.uid().as_deref(), "{case}");
        // The circuit breaker allows a few issues in an hour, and is not the subject of this test.
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(61));
    }
    // The finding is reported.
    let told = shop.events("ServingCertificateReplaced").await;
    assert!(told.iter().any(|text| text.contains("tls.key is not the key of tls.crt")), "{told:?}");
    drop(other);
    // 10: signed by a CA of the same name with another key. The signature counts.
    let before = shop.served("web-tls").await;
    shop.patch_secret("web-tls", json!({"data": forged(&shop, &before)})).await;
    shop.once().await;
    let after = shop.served("web-tls").await;
    assert_eq!(after.certificates[1..], before.certificates[1..]);
    assert_eq!(after.leaf().facts().authority_key_id, before.leaf().facts().authority_key_id);
    shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(61));
    // The chain has to be complete, without extra certificates.
    for is_cut in [true, false] {
        let before = shop.served("web-tls").await;
        let (leaf, stranger) = (before.leaf().to_pem(), text("tls.crt"));
        let whole: String = before.certificates.iter().map(Certificate::to_pem).collect();
        let pem = if is_cut { leaf } else { format!("{whole}{stranger}") };
        shop.patch_secret("web-tls", data("tls.crt", &pem)).await;
        shop.once().await;
        let after = shop.served("web-tls").await;
        assert_ne!(after.leaf(), before.leaf());
        assert_eq!(after.certificates[1..], before.certificates[1..]);
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(61));
    }
    // The certificate decides, not the expiry annotation.
    let before = shop.served("web-tls").await;
    shop.patch_secret("web-tls", expiry(json!("2020-01-01T00:00:00Z"))).await;
    shop.once().await;
    let after = shop.served("web-tls").await;
    assert_eq!((after.leaf(), after.annotation(ALPHA, "expiry")), (before.leaf(), before.annotation(ALPHA, "expiry")));
    // 39: extra data is removed, and the certificate stays.
    shop.patch_secret("web-tls", data("extra.crt", "mine")).await;
    shop.once().await;
    assert_eq!(shop.served("web-tls").await.leaf(), before.leaf());
    // 22: so does the owner that is not the Service, without a new certificate.
    let owner = |uid: &str| json!({"apiVersion": "v1", "kind": "Service", "name": "web", "uid": uid});
    let theirs =
        shop.cluster.create::<ConfigMap>(Some(SHOP), json!({"metadata": {"name": "theirs"}})).await.uid().unwrap();
    let foreign = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "theirs", "uid": theirs});
    shop.patch_secret("web-tls", json!({"metadata": {"ownerReferences": [owner("another"), foreign]}})).await;
    shop.once().await;
    let after = shop.served("web-tls").await;
    let owners: Vec<&str> = after.secret.owner_references().iter().map(|owner| owner.uid.as_str()).collect();
    assert_eq!((after.leaf(), owners), (before.leaf(), vec![theirs.as_str(), web.uid().unwrap().as_str()]));
    // 11: headless or not, the names follow.
    shop.services().delete("web", &DeleteParams::default()).await.unwrap();
    shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    shop.service("web", &[(&key(BETA, "serving-cert-secret-name"), "web-tls")], true).await;
    shop.once().await;
    assert_eq!(shop.served("web-tls").await.names().len(), 4);
}

/// A certificate for the same names by a CA with the same name and another key.
fn forged(shop: &Shop, served: &Served) -> Value {
    let now = shop.cluster.now();
    let validity = Validity { not_before: now, not_after: now + SignedDuration::from_hours(24 * 365) };
    let spec = |subject: &Certificate, usage: Usage| CertificateSpec {
        subject: SubjectSpec::Kept(subject.facts().subject.der().to_vec()),
        usage,
        hosts: subject.facts().hosts.clone(),
        validity,
        key: "ECDSA P256".parse().unwrap(),
        extensions: Vec::new(),
    };
    let [ca_key, key] = [(); 2].map(|()| PrivateKey::generate("ECDSA P256".parse().unwrap()).unwrap());
    let ca = self_signed(&spec(&served.certificates[1], Usage::Signer), &ca_key).unwrap();
    let issuer = Issuer::new(&ca, &ca_key).unwrap();
    let leaf = issue(&spec(served.leaf(), Usage::Serving), key.public_key(), &issuer).unwrap();
    assert_eq!(leaf.facts().issuer, served.leaf().facts().issuer);
    let pem = format!("{}{}", leaf.to_pem(), ca.to_pem()).into_bytes();
    json!({"tls.crt": ByteString(pem), "tls.key": ByteString(key.to_pem().unwrap().as_bytes().to_vec())})
}

/// They are counted with all others.
async fn issued_certificates_are_counted(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("web", "web-tls").await;
    shop.asks("other", "other-tls").await;
    let runner = shop.cluster.runner();
    runner.once().await.unwrap();
    runner.once().await.unwrap();
    let text = runner.metrics().text().unwrap();
    let value = |family: &str| {
        let is_it = |line: &&str| line.starts_with(family) && line.contains("\"service-serving\"");
        text.lines().find(is_it).unwrap_or_else(|| panic!("no {family} in\n{text}")).rsplit_once(' ').unwrap().1
    };
    assert_eq!(value("openshift_pki_certificate_generated_total"), "2");
    assert_eq!(value("openshift_pki_certificate_generation_duration_seconds_count"), "2");
    let ends = [shop.served("web-tls").await, shop.served("other-tls").await]
        .map(|served| served.leaf().facts().validity.not_after);
    let first = ends.into_iter().min().unwrap().as_second();
    assert!(text.contains(&format!("\nperennial_serving_first_expiry_timestamp_seconds {first}\n")), "{text}");
}

/// Every certificate of a Service is counted by its kind of key.
async fn certificates_are_counted_by_kind_of_key(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    for (key, names) in [("RSA 2048", &["a", "b", "c"][..]), ("ECDSA P384", &["d", "e"][..])] {
        shop.cluster.set_policy(key).await;
        for name in names {
            shop.asks(name, &format!("{name}-tls")).await;
        }
        shop.once().await;
    }
    let runner = shop.cluster.runner();
    runner.once().await.unwrap();
    let info = |text: &str| -> Vec<String> {
        let start =
            "openshift_pki_certificate_info{certificate_name=\"service-serving\",category=\"ServingCertificate\",";
        text.lines().filter_map(|line| line.strip_prefix(start)).map(str::to_owned).collect()
    };
    let series = |key: &str, count: usize| {
        format!("{key},component=\"service-ca-operator\",namespace=\"\",secret=\"\"}} {count}")
    };
    let rsa = r#"algorithm="RSA",key_size="2048",curve="""#;
    let ecdsa = r#"algorithm="ECDSA",key_size="",curve="P384""#;
    let mut found = info(&runner.metrics().text().unwrap());
    found.sort();
    assert_eq!(found, [series(ecdsa, 2), series(rsa, 3)]);
    // A deleted certificate is not counted, nor a kind of key without certificates.
    for name in ["d", "e", "a"] {
        shop.services().delete(name, &DeleteParams::default()).await.unwrap();
    }
    runner.once().await.unwrap();
    assert_eq!(info(&runner.metrics().text().unwrap()), [series(rsa, 2)]);
}

/// It is replaced in time, whatever its annotations say, and never expires after its signer.
async fn an_old_certificate_is_reissued_in_time(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("web", "web-tls").await;
    shop.once().await;
    let first = shop.served("web-tls").await;
    // 21
    shop.later(280);
    shop.once().await;
    assert_eq!(shop.served("web-tls").await.leaf(), first.leaf());
    shop.later(20);
    shop.once().await;
    let second = shop.served("web-tls").await;
    assert_ne!(second.leaf(), first.leaf());
    // Not after its signer, which has 490 days left.
    let signer = &second.certificates[1];
    assert_eq!(second.leaf().facts().validity.not_after, signer.facts().validity.not_after);
}

/// Scenarios 5, 10 and 12 of the original operator: a Secret of the Service is adopted, and one without an owner is left.
async fn a_secret_created_for_a_service_is_adopted(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    shop.asks("other", "other-tls").await;
    shop.once().await;
    let theirs = shop.served("other-tls").await.secret.data.unwrap();
    let web = shop.asks("web", "web-tls").await;
    let old = |name: &str, service: &str, uid: &str| {
        let annotations = json!({
            key(ALPHA, "originating-service-uid"): uid, key(ALPHA, "originating-service-name"): service,
            key(ALPHA, "expiry"): "2030-01-01T00:00:00Z", "note": "theirs",
        });
        json!({"metadata": {"name": name, "annotations": annotations}, "type": "kubernetes.io/tls", "data": theirs})
    };
    shop.cluster.create::<Secret>(Some(SHOP), old("web-tls", "web", &web.uid().unwrap())).await;
    let stray = shop.cluster.create::<Secret>(Some(SHOP), old("stray-tls", "gone", "u-gone")).await;
    shop.once().await;
    let served = shop.served("web-tls").await;
    assert_eq!(served.names(), ["web.shop.svc", "web.shop.svc.cluster.local"]);
    assert_eq!(served.annotation(BETA, "originating-service-uid"), web.uid().as_deref());
    assert_eq!(served.secret.annotations().get("note").map(String::as_str), Some("theirs"));
    let found = shop.secrets().get("stray-tls").await.unwrap();
    assert_eq!(found.resource_version(), stray.resource_version());
}

/// Long names and other domains.
async fn long_names_and_other_domains_are_issued(cluster: Cluster) {
    let mut shop = Shop::new(cluster).await;
    shop.cluster.view.service_domain = "corp.example.com".to_owned();
    let (short, long) = ("a".repeat(54), "a".repeat(63));
    shop.asks(&short, "short-tls").await;
    shop.asks(&long, "long-tls").await;
    shop.once().await;
    for (name, secret) in [(&short, "short-tls"), (&long, "long-tls")] {
        let served = shop.served(secret).await;
        assert_eq!(served.names(), [format!("{name}.shop.svc"), format!("{name}.shop.svc.corp.example.com")]);
        let common = served.leaf().facts().subject.common_name().unwrap_or_default();
        assert!(common.len() <= 64, "{common}");
        assert_eq!(common == format!("{name}.shop.svc"), secret == "short-tls", "{common}");
    }
}

on_both! {
    a_service_gets_its_certificate
    a_wrong_secret_is_reissued
    an_old_certificate_is_reissued_in_time
    a_secret_created_for_a_service_is_adopted
    issued_certificates_are_counted
    certificates_are_counted_by_kind_of_key
    long_names_and_other_domains_are_issued
}
