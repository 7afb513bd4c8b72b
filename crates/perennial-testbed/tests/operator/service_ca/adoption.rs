//! An existing CA: of the original operator, with an earlier validity, or of another operator that still manages it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use perennial_core::policy::Usage;
use perennial_operator::status::NOT_MANAGED;
use perennial_x509::{Certificate, read_certificates};

use super::lab::{Ca, DAY, Handshakes, Lab, MINIMUM, NAMESPACE, SECOND};
use crate::mint::Minted;
use crate::support::{Key, Workshop};

/// The extensions of the original operator's CAs, whose key identifiers are SHA-1.
const EXTENSIONS: &str = "basicConstraints=critical,CA:TRUE
keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid:always";
const SUBJECT: &str = "/CN=openshift-service-serving-signer@1735689600";

/// The objects of the original operator after a rotation.
struct Original {
    data: BTreeMap<&'static str, String>,
    old: Certificate,
    new: Certificate,
}

/// The old CA of January 2025, and the new one of February 2026, each with 790 days.
fn original(key: Key) -> Original {
    let it = Workshop::new(key);
    it.issue("old", SUBJECT, "old", EXTENSIONS, ("20250101000000Z", "20270302000000Z"));
    it.issue("new", SUBJECT, "new", EXTENSIONS, ("20260201000000Z", "20280401000000Z"));
    it.same_key("old", "old-by-new");
    it.issue("old-by-new", SUBJECT, "new", EXTENSIONS, ("20250101000000Z", "20270303000000Z"));
    it.same_key("new", "new-by-old");
    it.issue("new-by-old", SUBJECT, "old", EXTENSIONS, ("20260201000000Z", "20280401000000Z"));
    let text = |name: &str| it.text(&format!("{name}.pem"));
    let certificate = |name: &str| read_certificates(text(name).as_bytes()).unwrap().remove(0);
    let data = [
        ("tls.crt", text("new")),
        ("tls.key", it.text("new.key")),
        ("ca-bundle.crt", format!("{}{}", text("new"), text("old-by-new"))),
        ("intermediate-ca.crt", text("new-by-old")),
    ];
    Original { data: data.into(), old: certificate("old"), new: certificate("new") }
}

/// Returns until when clients that started with this CA are accepted.
fn ends(certificate: &Certificate) -> Timestamp {
    certificate.facts().validity.not_after
}

async fn an_rsa_ca_of_the_original_operator_is_adopted_and_rotated_when_due(lab: &Lab) {
    a_ca_of_the_original_operator_is_adopted(lab, Key::Rsa).await;
}

async fn an_ecdsa_ca_of_the_original_operator_is_adopted_and_rotated_when_due(lab: &Lab) {
    a_ca_of_the_original_operator_is_adopted(lab, Key::Ec).await;
}

async fn a_ca_of_the_original_operator_is_adopted(lab: &Lab, key: Key) {
    let original = original(key);
    lab.put(original.data.clone(), &original.data["ca-bundle.crt"], "somebody").await;
    let secret = lab.secret().await;
    assert!(secret.metadata.annotations.is_none());
    for _ in 0..2 {
        lab.pass().await;
        lab.wait(DAY);
    }
    assert_eq!(lab.secret().await, secret, "not even its version");
    let adopted = lab.ca().await;
    assert_eq!(adopted.certificate(), &original.new);
    let client = lab.bundle().await;
    assert!(adopted.bundle.iter().all(|it| client.contains(it)) && client.len() == 2);
    assert_eq!(lab.condition("Available").await.0, "True");
    assert_eq!(lab.told("ServiceCARotated").await, []);

    // Processes that started then, and before the last rotation.
    let server = adopted.serves(lab.now());
    let before = [original.old.clone()];
    lab.cluster.set_now(adopted.ends() - MINIMUM);
    assert_eq!(lab.pass().await.len(), 3);
    let next = lab.ca().await;
    assert_eq!(next.certificate().facts().subject.der(), original.new.facts().subject.der());
    let up = next.cross_signed_by_earlier[0].facts();
    assert_eq!(up.authority_key_id, original.new.facts().subject_key_id, "as it was found");
    assert_eq!(next.bundle[1].facts().subject_key_id, original.new.facts().subject_key_id);
    let (next_client, next_server) = (lab.bundle().await, next.serves(lab.now()));
    let mut handshakes = Handshakes::default();
    handshakes.expect_overlap((&client, &server), (&next_client, &next_server), lab.now(), adopted.ends());
    // Its last rotation was half of its validity ago: clients that have not reloaded since are rejected, as with the original operator.
    assert!(ends(&original.old) < lab.now());
    handshakes.expect(&before, &next_server, lab.now(), false, "a client of before");
    handshakes.judge();
}

/// Soon after a rotation of the original operator, clients from before it are still accepted after Perennial's rotation.
async fn clients_from_before_the_original_operators_rotation_are_accepted_after_perennials(lab: &Lab) {
    let original = original(Key::Rsa);
    lab.put(original.data.clone(), &original.data["ca-bundle.crt"], "somebody").await;
    lab.pass().await;
    let adopted = lab.ca().await;
    let server = adopted.serves(lab.now());
    lab.request("a rehearsal").await;
    assert_eq!(lab.pass().await.len(), 3);
    let next = lab.ca().await;
    assert_eq!(next.cross_signed_by_earlier.len(), 2, "to each of the two before");
    let next_server = next.serves(lab.now());
    let mut handshakes = Handshakes::default();
    for at in [lab.now(), ends(&original.old) - SECOND] {
        handshakes.expect(
            std::slice::from_ref(&original.old),
            &next_server,
            at,
            true,
            "a client of before the original's",
        );
        handshakes.expect(&adopted.bundle, &next_server, at, true, "a client of before ours");
        handshakes.expect(&lab.bundle().await, &server, at, true, "a server of before ours");
    }
    let after = ends(&original.old) + SECOND;
    handshakes.expect(
        std::slice::from_ref(&original.old),
        &next_server,
        after,
        false,
        "a client of before the original's",
    );
    handshakes.judge();
}

/// The Secret was written but the ConfigMap was not, as the original operator may leave them.
async fn a_stale_bundle_of_the_original_operator_is_rebuilt_from_the_secret(lab: &Lab) {
    let mut original = original(Key::Ec);
    // Certificates next to it that it did not sign are not published.
    let stranger = Minted::authority("a stranger", lab.now(), DAY).certificate;
    original.data.get_mut("ca-bundle.crt").unwrap().push_str(&stranger.to_pem());
    lab.put(original.data.clone(), &original.old.to_pem(), "somebody").await;
    let secret = lab.secret().await;
    let written = lab.pass().await;
    assert_eq!(written.len(), 2, "{written:?}");
    let adopted = lab.ca().await;
    let [new, old_by_new, beside] = adopted.bundle.as_slice() else { panic!("{:?}", adopted.bundle) };
    assert_eq!(beside, &stranger);
    let mut expected = vec![original.old.clone(), new.clone(), old_by_new.clone()];
    expected.sort_by_key(|it| it.der().to_vec());
    assert_eq!(lab.bundle().await, expected);
    assert_eq!(lab.secret().await, secret);
}

/// The CA of clusters from before rotation existed.
async fn a_ca_with_twelve_months_of_validity_is_rotated_at_once_and_pods_must_restart(lab: &Lab) {
    let from = lab.now() - DAY * 30;
    let theirs = Minted::authority("openshift-service-serving-signer@1769000000", from, DAY * 365);
    let pem = theirs.certificate.to_pem();
    let data = BTreeMap::from([("tls.crt", pem.clone()), ("tls.key", theirs.key.to_pem().unwrap().to_string())]);
    lab.put(data, &pem, "somebody").await;
    let old_client = [theirs.certificate.clone()];
    let left = lab.now().duration_until(ends(&theirs.certificate));
    let old_server = [theirs.issue(Usage::Serving, "web.shop.svc", lab.now(), left).certificate];
    assert_eq!(lab.pass().await.len(), 3);
    let new = lab.ca().await;
    assert_eq!(new.ends(), lab.now() + DAY * 790);
    let told = lab.told("ServiceCARotated").await;
    let [(type_, text)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(type_, "Normal");
    let (ends, cross_signed_until) = (ends(&theirs.certificate), lab.now() + MINIMUM);
    assert_eq!(
        text,
        &format!(
            "Rotating service CA due to its remaining validity being less than the minimum. The previous CA will be trusted until {ends}, \
             and until {cross_signed_until} by clients that have the new bundle. Before {ends}, every pod that uses the service CA must restart \
             once; a cluster upgrade may come too late. `perennial consumers service-ca` lists them."
        )
    );
    let (new_client, new_server) = (lab.bundle().await, new.serves(lab.now()));
    let mut handshakes = Handshakes::default();
    handshakes.expect_overlap((&old_client, &old_server), (&new_client, &new_server), lab.now(), ends);
    handshakes.judge();
}

async fn left_alone(lab: &Lab) -> Ca {
    let from = lab.now() - DAY * 30;
    let theirs = Minted::authority("openshift-service-serving-signer@1769000000", from, DAY * 365);
    let pem = theirs.certificate.to_pem();
    let data = BTreeMap::from([("tls.crt", pem.clone()), ("tls.key", theirs.key.to_pem().unwrap().to_string())]);
    lab.put(data, &pem, "service-ca-operator").await;
    let before = lab.versions().await;
    for _ in 0..2 {
        assert_eq!((lab.pass().await, lab.versions().await), (vec![], before.clone()));
        lab.wait(SignedDuration::from_mins(1));
    }
    let (status, message) = lab.condition(NOT_MANAGED).await;
    assert_eq!(status, "True");
    assert!(message.starts_with("service-ca-operator manages ") && message.contains(NAMESPACE), "{message}");
    lab.ca().await
}

#[tokio::test]
async fn a_ca_of_the_running_original_operator_is_left_until_it_is_taken_over() {
    let mut lab = Lab::embedded().await;
    let theirs = left_alone(&lab).await;
    lab.cluster.view.settings.taken_over = ["service-ca".to_owned()].into();
    assert_eq!(lab.pass().await.len(), 3);
    let ours = lab.ca().await;
    assert_ne!(ours.certificate(), theirs.certificate());
    assert_eq!(ours.bundle[1].facts().public_key, theirs.certificate().facts().public_key);
    assert_eq!(lab.condition("Available").await.0, "True");
    // Objects that Perennial wrote last belong to Perennial, even if another operator wrote them before.
    lab.cluster.view.settings.taken_over.clear();
    lab.wait(DAY);
    lab.insist("again").await;
    assert_eq!(lab.pass().await.len(), 3);
}

#[tokio::test]
async fn a_ca_of_the_running_original_operator_is_left_on_a_real_server() {
    let lab = Lab::real().await;
    left_alone(&lab).await;
}

on_both! {
    an_rsa_ca_of_the_original_operator_is_adopted_and_rotated_when_due
    an_ecdsa_ca_of_the_original_operator_is_adopted_and_rotated_when_due
    clients_from_before_the_original_operators_rotation_are_accepted_after_perennials
    a_stale_bundle_of_the_original_operator_is_rebuilt_from_the_secret
    a_ca_with_twelve_months_of_validity_is_rotated_at_once_and_pods_must_restart
}
