//! csr-signer signs what kubelets ask for. A new one is made in the operator's namespace, and promoted to where it signs when
//! everybody who verifies trusts it: by proof, where the original waits five minutes.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_api::annotations::{FORCE, NOT_AFTER, NOT_BEFORE};
use perennial_core::policy::Usage;
use perennial_testbed::judges::{Case, Judge, Purpose};
use perennial_x509::{Certificate, read_certificates};
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::mint::Minted;

const KCMO: &str = "openshift-kube-controller-manager-operator";
const KCM: &str = "openshift-kube-controller-manager";
const NAME: &str = "csr-signer";
const COPY: &str =
    "copy openshift-kube-controller-manager-operator/csr-signer to openshift-kube-controller-manager/csr-signer\n";
const MINUTE: SignedDuration = SignedDuration::from_mins(1);
const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);

async fn secret(cluster: &Cluster, namespace: &str, name: &str) -> Secret {
    cluster.secrets(namespace).get(name).await.unwrap()
}

async fn certificates(cluster: &Cluster, namespace: &str) -> Vec<Certificate> {
    let data = secret(cluster, namespace, NAME).await.data.unwrap();
    read_certificates(&data["tls.crt"].0).unwrap()
}

/// Whether what signs is what was made, alone and with its key.
async fn is_promoted(cluster: &Cluster) -> bool {
    let source = secret(cluster, KCMO, NAME).await.data.unwrap();
    let Some(target) = cluster.secrets(KCM).get_opt(NAME).await.unwrap() else { return false };
    let target = target.data.unwrap();
    let Ok(signs) = read_certificates(&target["tls.crt"].0) else { return false };
    let made = read_certificates(&source["tls.crt"].0).unwrap();
    signs.first() == made.first() && signs.len() == 1 && target["tls.key"] == source["tls.key"]
}

async fn settled(cluster: Cluster) -> Cluster {
    cluster.pass().await;
    cluster.set_now(cluster.now() + DAY * 2);
    cluster.pass().await;
    assert!(is_promoted(&cluster).await);
    assert_eq!((certificates(&cluster, KCMO).await.len(), certificates(&cluster, KCM).await.len()), (2, 1));
    cluster
}

async fn put(cluster: &Cluster, namespace: &str, change: Value) {
    cluster.secrets(namespace).patch(NAME, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

async fn force(cluster: &Cluster) {
    put(cluster, KCMO, json!({"metadata": {"annotations": {FORCE: "a rehearsal"}}})).await;
}

/// An intermediate by the root of now, in a Secret as somebody else might have made it.
async fn replace(cluster: &Cluster, namespace: &str, from: Timestamp, span: SignedDuration) {
    let root = secret(cluster, KCMO, "csr-signer-signer").await.data.unwrap();
    let made = Minted::read(&root).issue(Usage::Signer, "kube-csr-signer_@1", from, span);
    let annotations = json!({NOT_BEFORE: from.to_string(), NOT_AFTER: (from + span).to_string()});
    put(cluster, namespace, json!({"metadata": {"annotations": annotations}, "data": made.data()})).await;
}

/// How long it takes until it is promoted, with passes whenever the operator would make one.
async fn promoted_after(cluster: &Cluster) -> SignedDuration {
    let began = cluster.now();
    loop {
        let (passed, _) = cluster.pass().await;
        let taken = cluster.now().duration_since(began);
        if is_promoted(cluster).await {
            return taken;
        }
        assert!(taken < DAY, "{:?}", passed.report.waiting);
        cluster.set_now(passed.report.next_look.max(cluster.now() + SignedDuration::from_secs(1)));
    }
}

fn text(value: &str) -> ByteString {
    ByteString(value.as_bytes().to_vec())
}

/// Nothing to do; then what signs is missing, incomplete, or unparsable.
async fn what_signs_is_damaged(cluster: &Cluster) {
    let before = cluster.versions().await;
    let (_, nothing) = cluster.pass().await;
    assert_eq!((nothing.as_str(), cluster.versions().await), ("", before));
    cluster.secrets(KCM).delete(NAME, &DeleteParams::default()).await.unwrap();
    assert_eq!(cluster.pass().await.1, COPY);
    assert!(is_promoted(cluster).await);
    let other = secret(cluster, KCMO, "csr-signer-signer").await.data.unwrap();
    for (part, value) in [
        ("tls.key", text("")),
        ("tls.crt", text("")),
        ("tls.crt", text("nonsense")),
        ("tls.key", text("nonsense")),
        ("tls.key", other["tls.key"].clone()),
    ] {
        put(cluster, KCM, json!({"data": {part: value}})).await;
        assert_eq!(cluster.pass().await.1, COPY, "{part}");
        assert!(is_promoted(cluster).await);
    }
}

/// A new one, from the moment when it is made until what the old one signed has ended.
async fn a_new_one_is_promoted(cluster: &Cluster) {
    let mut kubelets = Kubelets::default();
    let began = cluster.now();
    kubelets.ask(cluster).await;
    let old = certificates(cluster, KCM).await;
    force(cluster).await;
    let (_, text) = cluster.pass().await;
    assert!(text.contains(&format!("issue {KCMO}/{NAME}: ")) && !text.contains(COPY), "{text}");
    assert_eq!(certificates(cluster, KCM).await, old, "the old one signs until everybody trusts the new one");
    kubelets.ask(cluster).await;
    let after = promoted_after(cluster).await;
    assert!(MINUTE * 5 <= after && after <= HOUR, "{after}");
    assert_ne!(certificates(cluster, KCM).await, old);
    // What either signed is accepted by everybody until it ends.
    while cluster.now() < began + DAY * 31 {
        kubelets.ask(cluster).await;
        let (passed, _) = cluster.pass().await;
        cluster.set_now(passed.report.next_look.min(cluster.now() + DAY * 2).max(cluster.now() + MINUTE));
    }
    assert!(kubelets.judge(began) > 2, "what it signs is presented again and again");
}

/// Certificates that kubelets asked for, and who must accept them.
#[derive(Default)]
struct Kubelets {
    issued: Vec<(Certificate, Timestamp)>,
    cases: Vec<Case>,
}

impl Kubelets {
    /// One more by what signs now; and every one that has not ended is presented to everybody.
    async fn ask(&mut self, cluster: &Cluster) {
        let now = cluster.now();
        let signer = Minted::read(&secret(cluster, KCM, NAME).await.data.unwrap());
        let end = signer.certificate.facts().validity.not_after.min(now + DAY * 30);
        for usage in [Usage::Client, Usage::Serving] {
            let made = signer.issue(usage, "system:node:m0", now, end.duration_since(now));
            self.issued.push((made.certificate, end));
        }
        for (namespace, name, usage) in [
            ("openshift-kube-apiserver", "client-ca", Purpose::Client),
            (KCM, "client-ca", Purpose::Client),
            ("openshift-kube-apiserver", "kubelet-serving-ca", Purpose::Server),
            ("openshift-config-managed", "kubelet-serving-ca", Purpose::Server),
        ] {
            let map = cluster.config_maps(namespace).get(name).await.unwrap();
            let anchors = read_certificates(map.data.unwrap()["ca-bundle.crt"].as_bytes()).unwrap();
            let anchors: Vec<Vec<u8>> = anchors.iter().map(|it| it.der().to_vec()).collect();
            for (leaf, end) in self.issued.iter().filter(|(_, end)| now < *end) {
                let serves = !leaf.facts().hosts.is_empty();
                if serves != (usage == Purpose::Server) {
                    continue;
                }
                self.cases.push(Case {
                    id: format!("{namespace}/{name} at {now} about one until {end} ({})", self.cases.len()),
                    chain: vec![leaf.der().to_vec()],
                    anchors: anchors.clone(),
                    purpose: usage,
                    name: None,
                    at: now.as_second(),
                });
            }
        }
    }

    /// Everybody accepts everything. Says how often the first one was presented.
    fn judge(self, began: Timestamp) -> usize {
        let first = self.issued[0].0.der();
        let presented = self.cases.iter().filter(|case| case.chain[0] == first && case.at > began.as_second()).count();
        for judge in [Judge::OpenSsl, Judge::Go] {
            for (case, verdict) in self.cases.iter().zip(judge.judge(&self.cases).unwrap()) {
                assert!(verdict.accepted, "{judge} refuses {}: {}", case.id, verdict.why);
            }
        }
        presented
    }
}

#[tokio::test]
async fn g01_g02_g10_g13_what_signs_is_missing_incomplete_or_unparsable() {
    what_signs_is_damaged(&settled(Cluster::embedded().await).await).await;
}

#[tokio::test]
async fn g03_g04_a_new_one_is_promoted_when_everybody_trusts_it_and_what_the_old_one_signed_is_accepted_to_its_end() {
    a_new_one_is_promoted(&settled(Cluster::embedded().await).await).await;
}

#[tokio::test]
async fn g_promotion_on_a_real_server_too() {
    let cluster = settled(Cluster::real().await).await;
    what_signs_is_damaged(&cluster).await;
    a_new_one_is_promoted(&cluster).await;
}

#[tokio::test]
async fn g05_one_that_has_not_begun_is_promoted_when_it_has() {
    let cluster = settled(Cluster::embedded().await).await;
    let old = certificates(&cluster, KCM).await;
    replace(&cluster, KCMO, cluster.now() + HOUR, DAY * 20).await;
    let (_, text) = cluster.pass().await;
    assert!(!text.contains(COPY), "{text}");
    assert_eq!(certificates(&cluster, KCM).await, old);
    // The original adds five minutes; whoever could not have it yet was waited for already.
    assert_eq!(promoted_after(&cluster).await, HOUR);
}

#[tokio::test]
async fn g06_g11_what_has_expired_is_replaced_at_once_even_by_one_that_has_not_begun() {
    for begins_in in [None, Some(HOUR)] {
        let cluster = settled(Cluster::embedded().await).await;
        let now = cluster.now();
        replace(&cluster, KCM, now - DAY, HOUR).await;
        if let Some(begins_in) = begins_in {
            replace(&cluster, KCMO, now + begins_in, DAY * 20).await;
        }
        assert_eq!(promoted_after(&cluster).await, SignedDuration::ZERO, "{begins_in:?}");
    }
}

/// The original does not wait where nothing signs. But somebody whose bundle is old would refuse what it signs.
#[tokio::test]
async fn g07_a_new_one_where_none_signs_waits_for_everybody_as_well() {
    let cluster = settled(Cluster::embedded().await).await;
    force(&cluster).await;
    cluster.secrets(KCM).delete(NAME, &DeleteParams::default()).await.unwrap();
    let after = promoted_after(&cluster).await;
    assert!(MINUTE * 5 <= after && after <= HOUR, "{after}");
}

/// The original leaves both as they are.
#[tokio::test]
async fn g08_g09_where_both_have_expired_a_new_one_is_made_and_promoted() {
    for target in ["the same", "empty", "missing"] {
        let cluster = settled(Cluster::embedded().await).await;
        replace(&cluster, KCMO, cluster.now() - DAY, HOUR).await;
        let data = secret(&cluster, KCMO, NAME).await.data;
        match target {
            "the same" => put(&cluster, KCM, json!({"data": data})).await,
            "empty" => put(&cluster, KCM, json!({"data": {"tls.crt": "", "tls.key": ""}})).await,
            _ => drop(cluster.secrets(KCM).delete(NAME, &DeleteParams::default()).await.unwrap()),
        }
        let (_, text) = cluster.pass().await;
        assert!(text.contains(&format!("issue {KCMO}/{NAME}: already expired")), "{target}: {text}");
        let after = promoted_after(&cluster).await;
        assert!(after <= HOUR, "{target}: {after}");
        let now = cluster.now();
        assert!(certificates(&cluster, KCM).await[0].facts().validity.contains(now), "{target}");
    }
}

/// The original stops with an error.
#[tokio::test]
async fn g12_an_unparsable_source_is_made_again_and_the_target_signs_on() {
    for damage in [json!({"tls.crt": text("nonsense")}), json!({"tls.key": text("nonsense")})] {
        let cluster = settled(Cluster::embedded().await).await;
        let old = certificates(&cluster, KCM).await;
        put(&cluster, KCMO, json!({"data": damage})).await;
        let (_, text) = cluster.pass().await;
        assert!(text.starts_with(&format!("issue {KCMO}/{NAME}: ")) && !text.contains(COPY), "{text}");
        assert_eq!(certificates(&cluster, KCM).await, old);
        let after = promoted_after(&cluster).await;
        assert!(MINUTE * 5 <= after && after <= HOUR, "{after}");
    }
}
