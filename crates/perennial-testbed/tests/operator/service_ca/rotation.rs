//! When the service CA is issued and rotated, and the result.

use std::collections::BTreeSet;

use k8s_openapi::ByteString;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_api::annotations::{DESCRIPTION, OWNING_COMPONENT};
use perennial_core::policy::{Policy, Usage};
use perennial_core::spec::{CertificateSpec, SubjectSpec, Validity};
use perennial_x509::{Certificate, self_signed};
use serde_json::json;

use super::lab::{DAY, Handshakes, Lab, MINIMUM, NAMESPACE, REASON, SECOND, SECRET};
use crate::cluster::Cluster;

#[tokio::test]
async fn the_service_ca_is_managed_by_default() {
    let (_, text) = Cluster::embedded().await.pass().await;
    for written in [
        "issue openshift-service-ca/signing-key: secret doesn't exist",
        "publish openshift-service-ca/signing-cabundle: configmap doesn't exist",
        "copy openshift-service-ca/signing-cabundle to openshift-config-managed/service-ca",
    ] {
        assert!(text.lines().any(|line| line == written), "{written} is not in\n{text}");
    }
}

async fn a_first_start_creates_a_ca_a_bundle_and_a_copy(lab: &Lab) {
    assert_eq!(lab.pass().await.len(), 3);
    let ca = lab.ca().await;
    let facts = ca.certificate().facts();
    assert_eq!(facts.validity.not_after, lab.now() + DAY * 790);
    assert!(facts.may_sign() && facts.is_self_issued());
    let name = format!("openshift-service-serving-signer@{}", lab.now().as_second());
    assert_eq!(facts.subject.common_name(), Some(name));
    let keys: Vec<&String> = ca.secret.data.as_ref().unwrap().keys().collect();
    assert_eq!(keys, ["tls.crt", "tls.key"], "nothing was rotated yet");
    assert_eq!(ca.secret.type_.as_deref(), Some("kubernetes.io/tls"));
    assert_eq!(lab.bundle().await, [ca.certificate().clone()]);
    // They have the annotations of the service CA, and none of the family of other certificates.
    let bundle = lab.cluster.config_maps(NAMESPACE).get("signing-cabundle").await.unwrap();
    let copy = lab.cluster.config_maps("openshift-config-managed").get("service-ca").await.unwrap();
    for metadata in [&ca.secret.metadata, &bundle.metadata, &copy.metadata] {
        let annotations = metadata.annotations.as_ref().unwrap();
        assert_eq!(annotations[OWNING_COMPONENT], "service-ca");
        assert!(annotations.contains_key(DESCRIPTION));
        let labels = metadata.labels.iter().flatten().map(|(name, _)| name);
        assert!(!annotations.keys().chain(labels).any(|name| name.starts_with("auth.openshift.io/")), "{metadata:?}");
    }
    for (type_, status) in [
        ("Available", "True"),
        ("Progressing", "False"),
        ("Degraded", "False"),
        ("Upgradeable", "True"),
        ("CertRotation_SigningKey_Degraded", "False"),
        ("PreviousServiceCAInUse", "False"),
    ] {
        assert_eq!(lab.condition(type_).await.0, status, "{type_}");
    }
    assert_eq!(lab.told("ServiceCARotated").await, [], "nothing was rotated");
}

async fn a_new_ca_without_a_new_reason_is_not_rotated(lab: &Lab) {
    let before = lab.versions().await;
    assert_eq!(before.len(), 3);
    for overrides in [json!(null), json!({}), json!({"forceRotation": {"reason": ""}})] {
        lab.ask(overrides.clone()).await;
        assert_eq!((lab.pass().await, lab.versions().await), (vec![], before.clone()), "{overrides}");
    }
    lab.wait(DAY * 395 - SECOND);
    assert_eq!((lab.pass().await, lab.versions().await), (vec![], before));
}

async fn the_service_ca_rotates_once_below_its_minimum_validity(lab: &Lab) {
    let (old, old_client) = (lab.ca().await, lab.bundle().await);
    lab.cluster.set_now(old.ends() - MINIMUM);
    let old_server = old.serves(lab.now());
    assert_eq!(lab.pass().await.len(), 3);
    let new = lab.ca().await;
    let (before, after) = (old.certificate().facts(), new.certificate().facts());
    assert_eq!(after.validity.not_after, lab.now() + DAY * 790);
    assert_eq!(after.subject.der(), before.subject.der(), "byte for byte");
    assert_ne!(after.public_key, before.public_key);
    assert!(new.signer.key.matches(new.certificate()));
    let keys: Vec<&String> = new.secret.data.as_ref().unwrap().keys().collect();
    assert_eq!(keys, ["ca-bundle.crt", "intermediate-ca.crt", "tls.crt", "tls.key"]);
    // The new one first, then the old one by the new one.
    let [first, old_by_new] = new.bundle.as_slice() else { panic!("{:?}", new.bundle) };
    assert_eq!(first, new.certificate());
    let [new_by_old] = new.cross_signed_by_earlier.as_slice() else { panic!("{:?}", new.cross_signed_by_earlier) };
    let (down, up) = (old_by_new.facts(), new_by_old.facts());
    assert_eq!((&down.public_key, &up.public_key), (&before.public_key, &after.public_key));
    assert_eq!((&down.subject_key_id, &down.authority_key_id), (&before.subject_key_id, &after.subject_key_id));
    assert_eq!((&up.subject_key_id, &up.authority_key_id), (&after.subject_key_id, &before.subject_key_id));
    assert_eq!(down.validity.not_after, lab.now() + MINIMUM, "the old one for at least the minimum");
    assert_eq!(up.validity.not_after, old.ends());
    for cross in [down, up] {
        assert_eq!((cross.subject.der(), cross.issuer.der()), (before.subject.der(), before.subject.der()));
    }
    let serials: BTreeSet<&String> = [before, after, down, up].into_iter().map(|it| &it.serial).collect();
    assert_eq!(serials.len(), 4, "some clients know certificates by issuer and serial");
    assert!(serials.iter().all(|serial| serial.len() >= 16), "{serials:?}");
    // All readers get both, and the old one stays until it expires.
    let new_client = lab.bundle().await;
    let given: BTreeSet<&[u8]> = new_client.iter().map(Certificate::der).collect();
    assert_eq!(given, [old.certificate(), new.certificate(), old_by_new].map(Certificate::der).into());
    let told = lab.told("ServiceCARotated").await;
    let [(type_, text)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(
        (type_.as_str(), text.as_str()),
        (
            "Normal",
            format!(
                "Rotating service CA due to its remaining validity being less than the minimum. The previous CA will be trusted until {}.",
                old.ends()
            )
            .as_str()
        )
    );
    let once = lab.versions().await;
    assert_eq!((lab.pass().await, lab.versions().await), (vec![], once));
    let mut handshakes = Handshakes::default();
    let new_server = new.serves(lab.now());
    handshakes.expect_overlap((&old_client, &old_server), (&new_client, &new_server), lab.now(), old.ends());
    handshakes.judge();
}

#[tokio::test]
async fn the_service_ca_is_created_kept_and_rotated() {
    let lab = Lab::embedded().await;
    a_first_start_creates_a_ca_a_bundle_and_a_copy(&lab).await;
    a_new_ca_without_a_new_reason_is_not_rotated(&lab).await;
    the_service_ca_rotates_once_below_its_minimum_validity(&lab).await;
}

#[tokio::test]
async fn the_service_ca_is_created_kept_and_rotated_on_a_real_server_with_the_manifests_rbac() {
    let lab = Lab::real().await;
    a_first_start_creates_a_ca_a_bundle_and_a_copy(&lab).await;
    a_new_ca_without_a_new_reason_is_not_rotated(&lab).await;
    the_service_ca_rotates_once_below_its_minimum_validity(&lab).await;
    // And once more, with everything that a rotation left.
    let old = lab.ca().await;
    lab.cluster.set_now(old.ends() - MINIMUM + SECOND * 60);
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!((lab.ca().await.bundle.len(), lab.told("ServiceCARotated").await.len()), (2, 2));
}

/// The same key, and an hour left: from a test of the original operator.
async fn a_ca_with_an_hour_left_is_rotated_and_clients_with_its_longer_version_are_accepted(lab: &Lab) {
    lab.pass().await;
    let old = lab.ca().await;
    let facts = old.certificate().facts();
    let spec = CertificateSpec {
        subject: SubjectSpec::Kept(facts.subject.der().to_vec()),
        usage: Usage::Signer,
        hosts: Vec::new(),
        validity: Validity { not_before: facts.validity.not_before, not_after: lab.now() + SECOND * 3600 },
        key: "ECDSA P256".parse().unwrap(),
        extensions: Vec::new(),
    };
    let shorter = self_signed(&spec, &old.signer.key).unwrap();
    let data = json!({"data": {"tls.crt": ByteString(shorter.to_pem().into_bytes())}});
    let secrets = lab.cluster.secrets(NAMESPACE);
    secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(&data)).await.unwrap();
    let old_client = lab.bundle().await;
    let old_server = old.serves(lab.now());
    assert_eq!(lab.pass().await.len(), 3);
    let new = lab.ca().await;
    assert_eq!(new.ends(), lab.now() + DAY * 790);
    let (new_client, new_server) = (lab.bundle().await, new.serves(lab.now()));
    let mut handshakes = Handshakes::default();
    for at in [lab.now(), lab.now() + SECOND * 3599] {
        for client in [&old_client, &new_client] {
            for server in [&old_server, &new_server] {
                handshakes.expect(client, server, at, true, "all");
            }
        }
    }
    // The cross-certificate for the new CA expires with the old certificate; that for the old CA after the minimum.
    handshakes.expect(&new_client, &old_server, lab.now() + MINIMUM - SECOND, true, "new client, old server");
    handshakes.judge();
    let told = lab.told("ServiceCARotated").await;
    let text = &told[0].1;
    let ends = shorter.facts().validity.not_after;
    assert!(text.contains(&format!("Before {ends}, every pod")), "{text}");
    assert!(text.contains("`perennial consumers service-ca`"), "{text}");
}

async fn policy(lab: &Lab, key: &str) {
    let overrides = [("service-ca".to_owned(), key.parse().unwrap())].into();
    let policy = Policy { defaults: "ECDSA P256".parse().ok(), overrides, ..Policy::default() };
    lab.cluster.put_policy(&policy).await;
}

async fn the_service_ca_rotates_from_rsa_to_ecdsa_and_back_without_a_rejection(lab: &Lab) {
    let mut handshakes = Handshakes::default();
    policy(lab, "RSA 2048").await;
    lab.pass().await;
    assert_eq!(lab.ca().await.key(), "RSA 2048");
    for (number, key) in ["ECDSA P384", "ECDSA P256", "RSA 3072", "RSA 2048"].into_iter().enumerate() {
        lab.wait(DAY * 30);
        let (old, old_client) = (lab.ca().await, lab.bundle().await);
        let old_server = old.serves(lab.now());
        // A changed policy alone re-issues nothing.
        policy(lab, key).await;
        assert_eq!(lab.pass().await, Vec::<String>::new());
        lab.insist(&format!("key {number}")).await;
        assert_eq!(lab.pass().await.len(), 3);
        let new = lab.ca().await;
        assert_eq!(new.key(), key);
        let (new_client, new_server) = (lab.bundle().await, new.serves(lab.now()));
        handshakes.expect_overlap((&old_client, &old_server), (&new_client, &new_server), lab.now(), old.ends());
    }
    handshakes.judge();
}

/// As administrators change the key of the original operator's CA.
async fn a_deleted_ca_is_reissued_with_the_key_of_the_policy(lab: &Lab) {
    lab.pass().await;
    for key in ["RSA 4096", "ECDSA P384"] {
        policy(lab, key).await;
        lab.wait(DAY);
        lab.cluster.secrets(NAMESPACE).delete(SECRET, &DeleteParams::default()).await.unwrap();
        lab.pass().await;
        assert_eq!(lab.ca().await.key(), key);
    }
}

async fn the_expiry_metric_is_that_of_the_current_ca_and_absent_before_it_is_known(lab: &Lab) {
    let runner = lab.runner();
    let metric = || {
        let text = runner.metrics().text().unwrap();
        let line =
            text.lines().find_map(|line| line.strip_prefix("service_ca_expiry_time_seconds ")).unwrap().to_owned();
        line.parse::<i64>().unwrap()
    };
    assert_eq!(metric(), 0);
    runner.once().await.unwrap();
    let first = lab.ca().await.ends();
    assert_eq!(metric(), first.as_second());
    lab.wait(DAY);
    lab.request("a rehearsal").await;
    runner.once().await.unwrap();
    let second = lab.ca().await.ends();
    assert!(first < second);
    assert_eq!(metric(), second.as_second());
    perennial_testbed::check::promtool_check_metrics(&runner.metrics().text().unwrap()).unwrap();
    assert_eq!(lab.ca().await.annotation(REASON), Some("a rehearsal"));
}

on_both! {
    a_ca_with_an_hour_left_is_rotated_and_clients_with_its_longer_version_are_accepted
    the_service_ca_rotates_from_rsa_to_ecdsa_and_back_without_a_rejection
    a_deleted_ca_is_reissued_with_the_key_of_the_policy
    the_expiry_metric_is_that_of_the_current_ca_and_absent_before_it_is_known
}
