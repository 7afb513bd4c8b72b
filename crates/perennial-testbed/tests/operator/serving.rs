//! Services that ask for a certificate. Numbers are those of the original's scenarios.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Secret, Service};
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube_client::{Api, ResourceExt};
use perennial_core::catalog::{Catalog, Component};
use perennial_core::policy::{Category, Policy};
use perennial_core::spec::Host;
use perennial_operator::pass::Passed;
use perennial_operator::rbac;
use perennial_x509::{Certificate, PrivateKey, read_certificates};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::cluster::{Cluster, soon};
use crate::rights;

const SHOP: &str = "shop";
const BETA: &str = "service.beta.openshift.io";
const ALPHA: &str = "service.alpha.openshift.io";

/// A cluster with a namespace, of which only the service CA and what it signs is kept.
pub(crate) struct Shop {
    pub(crate) cluster: Cluster,
}

/// A certificate with its key, as a server reads it.
pub(crate) struct Served {
    pub(crate) certificates: Vec<Certificate>,
    pub(crate) secret: Secret,
}

impl Shop {
    pub(crate) async fn new(mut cluster: Cluster) -> Shop {
        let others = ["etcd", "kube-apiserver", "kube-controller-manager"];
        cluster.view.settings.left_alone = others.map(str::to_owned).into();
        cluster.create::<Namespace>(None, json!({"metadata": {"name": SHOP}})).await;
        Shop { cluster }
    }

    pub(crate) fn services(&self) -> Api<Service> {
        Api::namespaced(self.cluster.client.clone(), SHOP)
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        self.cluster.secrets(SHOP)
    }

    /// A Service with these annotations.
    pub(crate) async fn service(&self, name: &str, annotations: &[(&str, &str)], headless: bool) -> Service {
        let annotations: BTreeMap<&str, &str> = annotations.iter().copied().collect();
        let mut spec = json!({"ports": [{"port": 443}], "selector": {"app": name}});
        if headless {
            spec["clusterIP"] = json!("None");
        }
        let metadata = json!({"name": name, "annotations": annotations});
        self.cluster.create::<Service>(Some(SHOP), json!({"metadata": metadata, "spec": spec})).await
    }

    /// A Service that asks in the usual words.
    pub(crate) async fn asks(&self, name: &str, secret: &str) -> Service {
        self.service(name, &[(&key(BETA, "serving-cert-secret-name"), secret)], false).await
    }

    /// Everything that can be done now.
    pub(crate) async fn once(&self) -> Passed {
        let passed = self.cluster.runner().once().await.unwrap();
        assert!(passed.failed.is_empty(), "{:?}", passed.failed);
        passed
    }

    pub(crate) async fn served(&self, name: &str) -> Served {
        let secret = self.secrets().get(name).await.unwrap();
        let data = secret.data.clone().unwrap();
        assert_eq!(secret.type_.as_deref(), Some("kubernetes.io/tls"));
        assert_eq!(data.keys().collect::<Vec<_>>(), ["tls.crt", "tls.key"]);
        let certificates = read_certificates(&data["tls.crt"].0).unwrap();
        assert!(PrivateKey::from_pem(&data["tls.key"].0).unwrap().matches(&certificates[0]));
        Served { certificates, secret }
    }

    /// The annotations of a Service that are not its own wish.
    async fn told(&self, name: &str) -> BTreeMap<String, String> {
        let mut annotations = self.services().get(name).await.unwrap().annotations().clone();
        annotations.retain(|key, _| !key.ends_with("serving-cert-secret-name"));
        annotations
    }

    async fn patch_secret(&self, name: &str, patch: Value) {
        self.secrets().patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    }

    async fn events(&self, reason: &str) -> Vec<String> {
        let all =
            Api::<Event>::namespaced(self.cluster.client.clone(), SHOP).list(&ListParams::default()).await.unwrap();
        let ours = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        ours.map(|event| event.message.unwrap_or_default()).collect()
    }

    fn later(&self, days: i64) {
        self.cluster.set_now(self.cluster.now() + SignedDuration::from_hours(24 * days));
    }
}

impl Served {
    pub(crate) fn leaf(&self) -> &Certificate {
        &self.certificates[0]
    }

    fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.leaf().facts().hosts.iter().map(Host::to_string).collect();
        names.sort();
        names
    }

    fn annotation(&self, group: &str, name: &str) -> Option<&str> {
        self.secret.annotations().get(&key(group, name)).map(String::as_str)
    }

    pub(crate) fn version(&self) -> String {
        self.secret.resource_version().unwrap()
    }
}

fn key(group: &str, name: &str) -> String {
    format!("{group}/{name}")
}

/// The operator, while it runs.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    pub(crate) fn start(cluster: &Cluster) -> Running {
        let (stop, stopped) = oneshot::channel();
        let runner = cluster.runner();
        let task = tokio::spawn(async move { runner.run(|_| {}, async { drop(stopped.await) }).await });
        Running { stop, task }
    }

    pub(crate) async fn end(self) {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
    }
}

/// 1, 2, 3, 37: in either family, with the names of a Service, its uid, its owner and the end in both families.
async fn a_service_gets_what_it_asks_for(cluster: Cluster) {
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

/// Whatever is wrong with a Secret, it is made again, and what others put there stays.
async fn what_is_wrong_is_made_again(cluster: Cluster) {
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
        // A few of these in an hour have their reasons; the breaker is not what this is about.
        shop.cluster.set_now(shop.cluster.now() + SignedDuration::from_mins(61));
    }
    // What was found is told.
    let told = shop.events("ServingCertificateReplaced").await;
    assert!(told.iter().any(|text| text.contains("tls.key is not the key of tls.crt")), "{told:?}");
    drop(other);
    // The end that is written down does not decide, the certificate does.
    let before = shop.served("web-tls").await;
    shop.patch_secret("web-tls", expiry(json!("2020-01-01T00:00:00Z"))).await;
    shop.once().await;
    let after = shop.served("web-tls").await;
    assert_eq!((after.leaf(), after.annotation(ALPHA, "expiry")), (before.leaf(), before.annotation(ALPHA, "expiry")));
    // 39: what does not belong there is removed, and the certificate stays.
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

/// It is replaced in time, whatever is written down, and never outlives its signer.
async fn what_is_old_is_made_again_in_time(cluster: Cluster) {
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

/// 6, 7, 8, 10-failure: what stands in the way is told, left as it is, and no obstacle lasts longer than it is there.
async fn obstacles_are_told_and_pass(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let theirs = |name: &str, uid: Option<(&str, &str)>, kind: &str| {
        let annotations: BTreeMap<String, &str> =
            uid.into_iter().map(|(group, uid)| (key(group, "originating-service-uid"), uid)).collect();
        json!({"metadata": {"name": name, "annotations": annotations}, "type": kind, "stringData": {"note": "theirs"}})
    };
    for object in [
        theirs("a-tls", Some((ALPHA, "somebody")), "Opaque"),
        theirs("b-tls", Some((BETA, "somebody")), "Opaque"),
        theirs("c-tls", None, "Opaque"),
    ] {
        shop.cluster.create::<Secret>(Some(SHOP), object).await;
    }
    let names = ["a", "b", "c"];
    let mut untouched = Vec::new();
    for name in names {
        shop.asks(name, &format!("{name}-tls")).await;
        untouched.push(shop.secrets().get(&format!("{name}-tls")).await.unwrap().resource_version());
    }
    shop.asks("bad", "invalid-${SECRET_NAME}").await;
    // Two that want the same: the first has it.
    shop.asks("first", "same-tls").await;
    shop.once().await;
    shop.asks("second", "same-tls").await;
    shop.once().await;
    let error = |told: &BTreeMap<String, String>| {
        let [one, other] = [BETA, ALPHA].map(|group| told.get(&key(group, "serving-cert-generation-error")).cloned());
        assert_eq!(one, other);
        one.unwrap_or_default()
    };
    for (name, version) in names.iter().zip(&untouched) {
        let told = shop.told(name).await;
        assert_eq!(told[&key(BETA, "serving-cert-generation-error-num")], "2", "{name}: {told:?}");
        assert!(error(&told).contains(&format!("secret shop/{name}-tls does not have corresponding service UID")));
        assert_eq!(shop.secrets().get(&format!("{name}-tls")).await.unwrap().resource_version(), *version);
    }
    assert!(error(&shop.told("bad").await).contains("invalid-${SECRET_NAME}"));
    assert!(error(&shop.told("second").await).contains("made for the Service first"));
    assert_eq!(shop.served("same-tls").await.names()[0], "first.shop.svc");
    let events = shop.events("ServingCertificateFailed").await;
    assert!(events.iter().any(|text| text.contains("shop/a-tls")) && events.len() >= 5, "{events:?}");
    // However often it failed, and whoever counted.
    let many = json!({"metadata": {"annotations": {key(ALPHA, "serving-cert-generation-error-num"): "10",
        key(BETA, "serving-cert-generation-error-num"): "10"}}});
    for name in ["a", "b"] {
        shop.services().patch(name, &PatchParams::default(), &Patch::Merge(&many)).await.unwrap();
    }
    let running = Running::start(&shop.cluster);
    for name in names {
        shop.secrets().delete(&format!("{name}-tls"), &DeleteParams::default()).await.unwrap();
    }
    shop.services().delete("first", &DeleteParams::default()).await.unwrap();
    // Whoever collects what has no owner any more may have been faster.
    _ = shop.secrets().delete("same-tls", &DeleteParams::default()).await;
    for (service, secret) in [("a", "a-tls"), ("b", "b-tls"), ("c", "c-tls"), ("second", "same-tls")] {
        soon(&format!("{service} has its certificate"), || async {
            shop.secrets().get_opt(secret).await.unwrap().is_some()
                && !shop.told(service).await.keys().any(|key| key.contains("error"))
        })
        .await;
        assert_eq!(shop.served(secret).await.names()[0], format!("{service}.shop.svc"));
    }
    running.end().await;
}

/// Whatever happens to Services and Secrets while it runs, it is set right within seconds.
async fn changes_are_followed(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let running = Running::start(&shop.cluster);
    // 37
    shop.asks("web", "web-tls").await;
    let is_there = |name: &'static str| {
        let api = shop.secrets();
        move || {
            let api = api.clone();
            async move { api.get_opt(name).await.unwrap().is_some_and(|found| found.data.is_some_and(|it| it.len() == 2)) }
        }
    };
    soon("web has its certificate", is_there("web-tls")).await;
    let first = shop.served("web-tls").await;
    // 40: deleted, and made again.
    shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    soon("web has another one", is_there("web-tls")).await;
    assert_ne!(shop.served("web-tls").await.leaf(), first.leaf());
    // 38: overwritten.
    shop.patch_secret("web-tls", json!({"stringData": {"tls.crt": "junk"}})).await;
    let is_readable = |name: &'static str| {
        let api = shop.secrets();
        move || {
            let api = api.clone();
            async move {
                let data = api.get(name).await.unwrap().data.unwrap_or_default();
                data.get("tls.crt").is_some_and(|text: &ByteString| read_certificates(&text.0).is_ok())
            }
        }
    };
    soon("web has a certificate again", is_readable("web-tls")).await;
    // Another Secret: the old one stays.
    let other = json!({"metadata": {"annotations": {key(BETA, "serving-cert-secret-name"): "new-tls"}}});
    shop.services().patch("web", &PatchParams::default(), &Patch::Merge(&other)).await.unwrap();
    soon("web has it in another Secret", is_there("new-tls")).await;
    assert!(shop.secrets().get_opt("web-tls").await.unwrap().is_some());
    // Who asks no longer keeps what it has.
    let nothing = json!({"metadata": {"annotations": {key(BETA, "serving-cert-secret-name"): null}}});
    shop.services().patch("web", &PatchParams::default(), &Patch::Merge(&nothing)).await.unwrap();
    shop.asks("after", "after-tls").await;
    soon("another one is served", is_there("after-tls")).await;
    shop.secrets().delete("new-tls", &DeleteParams::default()).await.unwrap();
    // 46: without its key the CA is another one, and everybody gets a new certificate as soon as its verifiers have it.
    let signers = shop.cluster.secrets("openshift-service-ca");
    let ca = |secret: Secret| read_certificates(&secret.data.unwrap()["tls.crt"].0).unwrap().remove(0);
    let old = ca(signers.get("signing-key").await.unwrap());
    signers.delete("signing-key", &DeleteParams::default()).await.unwrap();
    soon("there is another CA", || async {
        signers.get_opt("signing-key").await.unwrap().is_some_and(|found| ca(found) != old)
    })
    .await;
    assert!(shop.secrets().get_opt("new-tls").await.unwrap().is_none());
    running.end().await;
}

/// A rotation of the CA reaches every Service, and old and new go together.
async fn a_rotation_reaches_every_service(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    for number in 0..5 {
        shop.service(
            &format!("web-{number}"),
            &[(&key(BETA, "serving-cert-secret-name"), &format!("web-{number}-tls"))],
            number == 0,
        )
        .await;
    }
    shop.once().await;
    let mut before = Vec::new();
    for number in 0..5 {
        before.push(shop.served(&format!("web-{number}-tls")).await);
    }
    shop.later(10);
    let ask = json!({"metadata": {"annotations": {perennial_api::annotations::FORCE: "a test"}}});
    let signers = shop.cluster.secrets("openshift-service-ca");
    signers.patch("signing-key", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    shop.once().await;
    let ca = signers.get("signing-key").await.unwrap().data.unwrap();
    let ca = read_certificates(&ca["tls.crt"].0).unwrap().remove(0);
    for (number, old) in before.iter().enumerate() {
        let new = shop.served(&format!("web-{number}-tls")).await;
        let signer = ca.facts().subject_key_id.clone();
        assert_eq!(new.leaf().facts().authority_key_id, signer, "{number}");
        assert_ne!(new.leaf().facts().authority_key_id, old.leaf().facts().authority_key_id, "{number}");
        assert_eq!(new.names(), old.names());
        assert_ne!(new.secret.data.as_ref().unwrap()["tls.key"], old.secret.data.as_ref().unwrap()["tls.key"]);
    }
}

/// Keys of Services follow the category of serving certificates, and never a name.
async fn keys_follow_the_category(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let key = |text: &str| text.parse().unwrap();
    let mut policy = Policy { defaults: Some(key("ECDSA P256")), ..Policy::default() };
    policy.categories.insert(Category::Serving, key("ECDSA P384"));
    policy.categories.insert(Category::Signer, key("ECDSA P521"));
    policy.overrides.insert("service-ca".to_owned(), key("RSA 3072"));
    shop.cluster.put_policy(&policy).await;
    shop.asks("web", "web-tls").await;
    shop.once().await;
    let web = shop.served("web-tls").await;
    let kind = |secret: Secret| PrivateKey::from_pem(&secret.data.unwrap()["tls.key"].0).unwrap().spec().unwrap();
    assert_eq!(kind(web.secret), key("ECDSA P384"));
    let signers = shop.cluster.secrets("openshift-service-ca");
    assert_eq!(kind(signers.get("signing-key").await.unwrap()), key("RSA 3072"));
    // A new policy re-issues nothing; without the override, the next CA is of its category.
    policy.overrides.clear();
    policy.categories.remove(&Category::Serving);
    shop.cluster.put_policy(&policy).await;
    assert!(shop.once().await.written.is_empty());
    let before = shop.served("web-tls").await;
    let ask = json!({"metadata": {"annotations": {perennial_api::annotations::FORCE: "other keys"}}});
    signers.patch("signing-key", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    shop.once().await;
    let after = shop.served("web-tls").await;
    assert_ne!(after.leaf(), before.leaf());
    assert_eq!(kind(after.secret), key("ECDSA P256"));
    assert_eq!(kind(signers.get("signing-key").await.unwrap()), key("ECDSA P521"));
}

/// 5, 10, 12: what was made for the Service is taken, whoever made it, and what points to nobody is left.
async fn what_was_made_for_a_service_is_taken(cluster: Cluster) {
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

/// 7 and others: refused, immutable, of another type, or one of the cluster's own. Each is told, and passes.
async fn other_obstacles_are_told_and_pass(cluster: Cluster) {
    let shop = Shop::new(cluster).await;
    let error = |told: &BTreeMap<String, String>| told[&key(ALPHA, "serving-cert-generation-error")].clone();
    // 7
    shop.asks("web", "web-tls").await;
    let refuse = |method: &http::Method, path: &str| {
        let is_it = *method == http::Method::POST && path.ends_with("/shop/secrets");
        is_it.then_some((http::StatusCode::FORBIDDEN, "Forbidden"))
    };
    shop.cluster.runner_through(shop.cluster.way(refuse)).once().await.unwrap();
    let told = shop.told("web").await;
    assert_eq!(
        (error(&told).as_str(), told[&key(BETA, "serving-cert-generation-error-num")].as_str()),
        ("a fault of the test", "1")
    );
    shop.once().await;
    let before = shop.served("web-tls").await;
    assert!(!shop.told("web").await.keys().any(|key| key.contains("error")));
    // Immutable: nothing to do yet; then it should change.
    shop.patch_secret("web-tls", json!({"immutable": true})).await;
    shop.once().await;
    assert!(!shop.told("web").await.keys().any(|key| key.contains("error")));
    shop.later(310);
    shop.once().await;
    assert!(error(&shop.told("web").await).contains("secret shop/web-tls is immutable: delete it"));
    shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    shop.once().await;
    assert_ne!(shop.served("web-tls").await.leaf(), before.leaf());
    // Of another type, although it was made for this Service.
    let typed = shop.asks("typed", "typed-tls").await;
    let annotations = json!({key(BETA, "originating-service-uid"): typed.uid().unwrap()});
    let object = json!({"metadata": {"name": "typed-tls", "annotations": annotations}, "type": "Opaque"});
    shop.cluster.create::<Secret>(Some(SHOP), object).await;
    shop.once().await;
    assert!(error(&shop.told("typed").await).contains("has type \"Opaque\""));
    // One of the cluster's own.
    let greedy = json!({"name": "greedy", "annotations": {key(BETA, "serving-cert-secret-name"): "signing-key"}});
    let service = json!({"metadata": greedy, "spec": {"ports": [{"port": 443}]}});
    shop.cluster.create::<Service>(Some("openshift-service-ca"), service).await;
    let ca = shop.cluster.secrets("openshift-service-ca").get("signing-key").await.unwrap();
    shop.once().await;
    let services = Api::<Service>::namespaced(shop.cluster.client.clone(), "openshift-service-ca");
    let told = services.get("greedy").await.unwrap().annotations().clone();
    assert!(error(&told).contains("does not have corresponding service UID") || error(&told).contains("cluster's own"));
    let after = shop.cluster.secrets("openshift-service-ca").get("signing-key").await.unwrap();
    assert_eq!(after.data, ca.data);
}

/// Long names and other domains.
#[tokio::test]
async fn names_fit_whatever_they_are() {
    let mut shop = Shop::new(Cluster::embedded().await).await;
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

/// One Secret that no server tells, and one that was taken away from its Service, hold up nobody else.
#[tokio::test]
async fn what_cannot_be_read_or_is_somebody_elses_holds_up_nobody_else() {
    let shop = Shop::new(Cluster::embedded().await).await;
    for name in ["a", "web", "z"] {
        shop.asks(name, &format!("{name}-tls")).await;
    }
    shop.once().await;
    let before = shop.served("web-tls").await;
    // The one is not told any more; the other, which ends last, no longer says whose it is.
    let uid = key(BETA, "originating-service-uid");
    shop.later(1);
    shop.secrets().delete("z-tls", &DeleteParams::default()).await.unwrap();
    shop.once().await;
    shop.patch_secret("z-tls", json!({"metadata": {"annotations": {uid: null}}})).await;
    let refuse = |method: &http::Method, path: &str| {
        let is_it = *method == http::Method::GET && path.ends_with("/secrets/a-tls");
        is_it.then_some((http::StatusCode::INTERNAL_SERVER_ERROR, "InternalError"))
    };
    let ask = json!({"metadata": {"annotations": {perennial_api::annotations::FORCE: "a test"}}});
    let signers = shop.cluster.secrets("openshift-service-ca");
    signers.patch("signing-key", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    let passed = shop.cluster.runner_through(shop.cluster.way(refuse)).once().await.unwrap();
    assert!(!passed.written.is_empty(), "{:?}", passed.report.waiting);
    assert_ne!(shop.served("web-tls").await.leaf(), before.leaf());
    // And the bundle can be made again.
    let maps = shop.cluster.config_maps("openshift-service-ca");
    maps.delete("signing-cabundle", &DeleteParams::default()).await.unwrap();
    shop.cluster.runner_through(shop.cluster.way(refuse)).once().await.unwrap();
    assert!(maps.get_opt("signing-cabundle").await.unwrap().is_some());
}

/// Whoever destroys a certificate each time it is made gets a few, and then none for the rest of an hour.
#[tokio::test]
async fn nothing_is_made_for_ever_for_who_destroys_it() {
    let shop = Shop::new(Cluster::embedded().await).await;
    shop.asks("web", "web-tls").await;
    let running = Running::start(&shop.cluster);
    let is_there = || async { shop.secrets().get_opt("web-tls").await.unwrap().is_some() };
    for _ in 0..5 {
        soon("web has a certificate", is_there).await;
        shop.secrets().delete("web-tls", &DeleteParams::default()).await.unwrap();
    }
    soon("it is told", || async {
        shop.told("web")
            .await
            .get(&key(BETA, "serving-cert-generation-error"))
            .is_some_and(|it| it.contains("circuit breaker"))
    })
    .await;
    assert!(!is_there().await);
    running.end().await;
}

/// Under the rights of the manifests for the service CA alone, of which none is unused.
#[tokio::test]
async fn whoever_keeps_the_service_ca_may_do_what_it_does_and_nothing_else() {
    let shop = Shop::new(Cluster::real().await).await;
    let account = "openshift-service-ca";
    let objects = rbac::objects_for(Catalog::builtin(), account, &[Component::ServiceCa]);
    shop.cluster.apply(&objects).await;
    let (client, asked) = rights::recorded(shop.cluster.client_as_account(account, rbac::NAME).await);
    let runner = shop.cluster.runner_through(client.clone());
    shop.asks("web", "web-tls").await;
    shop.asks("bad", "Bad").await;
    let passed = runner.once().await.unwrap();
    assert!(passed.failed.is_empty() && passed.observation.troubles.is_empty(), "{:?}", passed.observation.troubles);
    shop.served("web-tls").await;
    // A rotation updates what was created, and whoever runs watches.
    let ask = json!({"metadata": {"annotations": {perennial_api::annotations::FORCE: "a test"}}});
    let signers = shop.cluster.secrets("openshift-service-ca");
    signers.patch("signing-key", &PatchParams::default(), &Patch::Merge(&ask)).await.unwrap();
    let before = shop.served("web-tls").await;
    let (stop, stopped) = oneshot::channel();
    let task = tokio::spawn(async move { runner.run(|_| {}, async { drop(stopped.await) }).await });
    soon("web has another certificate", || async { shop.served("web-tls").await.leaf() != before.leaf() }).await;
    soon("everything is watched", || async {
        rights::kinds(&asked.lock().unwrap()).contains("operator.openshift.io/servicecas watch")
    })
    .await;
    stop.send(()).unwrap();
    task.await.unwrap();
    let granted = rights::granted(&objects);
    let is_granted = |line: &&String| {
        let everywhere = format!(" {}", line.split_once(' ').unwrap().1);
        granted.contains(*line) || granted.contains(&everywhere)
    };
    let asked = asked.lock().unwrap().clone();
    let beyond: Vec<&String> = asked.iter().filter(|line| !is_granted(line)).collect();
    assert!(beyond.is_empty(), "asked for and not granted: {beyond:?}");
    // What belongs to others is looked at now and then, and leases and reviews are another test's.
    let serving: Vec<_> = objects.iter().filter(|it| it["metadata"]["name"] == "perennial-serving").cloned().collect();
    let idle: Vec<String> =
        rights::kinds(&rights::granted(&serving)).difference(&rights::kinds(&asked)).cloned().collect();
    assert!(idle.is_empty(), "granted and never used: {idle:?}");
    let deleted = Api::<Secret>::namespaced(client, SHOP).delete("web-tls", &DeleteParams::default()).await;
    assert!(matches!(deleted, Err(kube_client::Error::Api(status)) if status.is_forbidden()));
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Cluster::embedded().await).await;
            })*
        }
        mod real {
            $(#[tokio::test]
            async fn $name() {
                super::$name(super::Cluster::real().await).await;
            })*
        }
    };
}

on_both! {
    a_service_gets_what_it_asks_for
    what_is_wrong_is_made_again
    what_is_old_is_made_again_in_time
    obstacles_are_told_and_pass
    changes_are_followed
    a_rotation_reaches_every_service
    what_was_made_for_a_service_is_taken
    other_obstacles_are_told_and_pass
    keys_follow_the_category
}
