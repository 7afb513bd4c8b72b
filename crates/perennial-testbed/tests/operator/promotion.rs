//! csr-signer signs the requests of kubelets. A new one is issued in the operator's namespace, and promoted to its signing place when
//! all verifiers trust it: by proof, where the original operator waits five minutes.

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

/// Returns true if the signing copy equals the source, without its chain and with its key.
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

/// Returns an intermediate of the current root, in a Secret as another writer might create it.
async fn replace(cluster: &Cluster, namespace: &str, from: Timestamp, span: SignedDuration) {
    let root = secret(cluster, KCMO, "csr-signer-signer").await.data.unwrap();
    let made = Minted::read(&root).issue(Usage::Signer, "kube-csr-signer_@1", from, span);
    let annotations = json!({NOT_BEFORE: from.to_string(), NOT_AFTER: (from + span).to_string()});
    put(cluster, namespace, json!({"metadata": {"annotations": annotations}, "data": made.data()})).await;
}

/// Returns how long the promotion takes, with passes at the operator's intervals.
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

/// No write is needed; then the signing copy is missing, incomplete, or unparsable.
async fn damaged_target_is_restored(cluster: &Cluster) {
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

/// A new signer, from its issue until the leaves of the old one have expired.
async fn new_signer_is_promoted(cluster: &Cluster) {
    let mut kubelets = Kubelets::default();
    let began = cluster.now();
    kubelets.ask(cluster).await;
    let old = certificates(cluster, KCM).await;
    force(cluster).await;
    let (_, text) = cluster.pass().await;
    assert!(text.contains(&format!("issue {KCMO}/{NAME}: ")) && !text.contains(COPY), "{text}");
    assert_eq!(certificates(cluster, KCM).await, old, "the old one signs until every verifier trusts the new one");
    kubelets.ask(cluster).await;
    let after = promoted_after(cluster).await;
    assert!(MINUTE * 5 <= after && after <= HOUR, "{after}");
    assert_ne!(certificates(cluster, KCM).await, old);
    // All verifiers accept leaves of both until they expire.
    while cluster.now() < began + DAY * 31 {
        kubelets.ask(cluster).await;
        let (passed, _) = cluster.pass().await;
        cluster.set_now(passed.report.next_look.min(cluster.now() + DAY * 2).max(cluster.now() + MINUTE));
    }
    assert!(kubelets.judge(began) > 2, "what it signs is presented again and again");
}

/// Certificates that kubelets requested, and their verifiers.
#[derive(Default)]
struct Kubelets {
    issued: Vec<(Certificate, Timestamp)>,
    cases: Vec<Case>,
}

impl Kubelets {
    /// Issues one more leaf by the current signer; and presents every valid leaf to all verifiers.
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

    /// Checks that every verifier accepts every certificate. Returns how often the first one was presented.
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
async fn a_missing_incomplete_or_unparsable_csr_signer_is_promoted_again() {
    damaged_target_is_restored(&settled(Cluster::embedded().await).await).await;
}

#[tokio::test]
async fn a_new_csr_signer_is_promoted_when_all_verifiers_trust_it_and_old_leaves_stay_accepted() {
    new_signer_is_promoted(&settled(Cluster::embedded().await).await).await;
}

#[tokio::test]
async fn csr_signer_promotion_on_a_real_server() {
    let cluster = settled(Cluster::real().await).await;
    damaged_target_is_restored(&cluster).await;
    new_signer_is_promoted(&cluster).await;
}

#[tokio::test]
async fn a_csr_signer_that_is_not_valid_yet_is_reissued_and_promoted_when_every_reader_has_it() {
    let cluster = settled(Cluster::embedded().await).await;
    let old = certificates(&cluster, KCM).await;
    replace(&cluster, KCMO, cluster.now() + HOUR, DAY * 20).await;
    let (_, text) = cluster.pass().await;
    assert!(!text.contains(COPY), "{text}");
    assert_eq!(certificates(&cluster, KCM).await, old);
    // The original operator waits for it; Perennial issues another one at once.
    assert_eq!(promoted_after(&cluster).await, MINUTE * 15);
}

#[tokio::test]
async fn an_expired_csr_signer_is_replaced_at_once_even_by_one_that_is_not_valid_yet() {
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

/// The original operator does not wait for a first signer. But a verifier with an old bundle would reject its leaves.
#[tokio::test]
async fn a_first_csr_signer_waits_for_all_verifiers() {
    let cluster = settled(Cluster::embedded().await).await;
    force(&cluster).await;
    cluster.secrets(KCM).delete(NAME, &DeleteParams::default()).await.unwrap();
    let after = promoted_after(&cluster).await;
    assert!(MINUTE * 5 <= after && after <= HOUR, "{after}");
}

/// The original operator keeps both.
#[tokio::test]
async fn if_both_csr_signers_have_expired_a_new_one_is_issued_and_promoted() {
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

/// The original operator stops with an error.
#[tokio::test]
async fn an_unparsable_source_of_csr_signer_is_reissued_while_the_target_continues_to_sign() {
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
