//! A CA that is already there: of the original operator, with the life of old, or somebody's who still keeps it.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use perennial_core::policy::Usage;
use perennial_operator::status::STANDS_BACK;
use perennial_x509::{Certificate, read_certificates};

use super::lab::{Ca, DAY, Handshakes, Lab, MINIMUM, NAMESPACE, SECOND};
use crate::mint::Minted;
use crate::support::{Key, Workshop};

/// The extensions of the original operator's, whose key identifiers are SHA-1.
const EXTENSIONS: &str = "basicConstraints=critical,CA:TRUE
keyUsage=critical,digitalSignature,keyEncipherment,keyCertSign
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid:always";
const SUBJECT: &str = "/CN=openshift-service-serving-signer@1735689600";

/// What the original operator left after a rotation.
struct Original {
    data: BTreeMap<&'static str, String>,
    old: Certificate,
    new: Certificate,
}

/// The old one of January 2025, and the new one of February 2026, each with 790 days.
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

/// Until when whoever was started in the time of this one is in.
fn ends(certificate: &Certificate) -> Timestamp {
    certificate.facts().validity.not_after
}

async fn an_rsa_one_of_the_original_operator_is_taken_as_it_is_and_rotated_when_it_is_due(lab: &Lab) {
    one_of_the_original_operator_is_taken(lab, Key::Rsa).await;
}

async fn an_ecdsa_one_of_the_original_operator_is_taken_as_it_is_and_rotated_when_it_is_due(lab: &Lab) {
    one_of_the_original_operator_is_taken(lab, Key::Ec).await;
}

async fn one_of_the_original_operator_is_taken(lab: &Lab, key: Key) {
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

    // What was started then, and before its last rotation.
    let server = adopted.serves(lab.now());
    let before = [original.old.clone()];
    lab.cluster.set_now(adopted.ends() - MINIMUM);
    assert_eq!(lab.pass().await.len(), 3);
    let next = lab.ca().await;
    assert_eq!(next.certificate().facts().subject.der(), original.new.facts().subject.der());
    let up = next.bridges[0].facts();
    assert_eq!(up.authority_key_id, original.new.facts().subject_key_id, "as it was found");
    assert_eq!(next.bundle[1].facts().subject_key_id, original.new.facts().subject_key_id);
    let (next_client, next_server) = (lab.bundle().await, next.serves(lab.now()));
    let mut handshakes = Handshakes::default();
    handshakes.expect_overlap((&client, &server), (&next_client, &next_server), lab.now(), adopted.ends());
    // Its last rotation is half of its life ago: who has not come to it is out, as the original operator promised.
    assert!(ends(&original.old) < lab.now());
    handshakes.expect(&before, &next_server, lab.now(), false, "a client of before");
    handshakes.judge();
}

/// Soon after a rotation of the original operator, those of before it are still in after ours.
async fn who_knows_only_what_was_before_the_originals_rotation_is_still_in_after_ours(lab: &Lab) {
    let original = original(Key::Rsa);
    lab.put(original.data.clone(), &original.data["ca-bundle.crt"], "somebody").await;
    lab.pass().await;
    let adopted = lab.ca().await;
    let server = adopted.serves(lab.now());
    lab.request("a rehearsal").await;
    assert_eq!(lab.pass().await.len(), 3);
    let next = lab.ca().await;
    assert_eq!(next.bridges.len(), 2, "to each of the two before");
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

/// The Secret was written and the ConfigMap was not, as the original operator may leave them for ever.
async fn a_bundle_that_the_original_operator_left_behind_is_made_from_the_secret(lab: &Lab) {
    let mut original = original(Key::Ec);
    // What stands beside it and is not signed by it is given to nobody.
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

/// What clusters had before rotation was invented.
async fn one_with_twelve_months_is_rotated_at_once_and_pods_are_to_be_restarted(lab: &Lab) {
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
    let (ends, bridged) = (ends(&theirs.certificate), lab.now() + MINIMUM);
    assert_eq!(
        text,
        &format!(
            "Rotating service CA due to less than the minimum being left of its validity. The previous CA will be trusted until {ends}, \
             and until {bridged} by whoever has read the new bundle. That is sooner than pods are restarted anyway: every pod that \
             uses it must be restarted once before {ends}. `perennial consumers service-ca` lists them."
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
    let (status, message) = lab.condition(STANDS_BACK).await;
    assert_eq!(status, "True");
    assert!(message.starts_with("service-ca-operator is writing ") && message.contains(NAMESPACE), "{message}");
    lab.ca().await
}

#[tokio::test]
async fn one_that_the_original_operator_keeps_is_left_to_it_until_it_is_taken_over() {
    let mut lab = Lab::embedded().await;
    let theirs = left_alone(&lab).await;
    lab.cluster.view.settings.taken_over = ["service-ca".to_owned()].into();
    assert_eq!(lab.pass().await.len(), 3);
    let ours = lab.ca().await;
    assert_ne!(ours.certificate(), theirs.certificate());
    assert_eq!(ours.bundle[1].facts().public_key, theirs.certificate().facts().public_key);
    assert_eq!(lab.condition("Available").await.0, "True");
    // What we wrote is ours, whoever wrote it before.
    lab.cluster.view.settings.taken_over.clear();
    lab.wait(DAY);
    lab.insist("again").await;
    assert_eq!(lab.pass().await.len(), 3);
}

#[tokio::test]
async fn one_that_the_original_operator_keeps_is_left_to_it_on_a_real_server_too() {
    let lab = Lab::real().await;
    left_alone(&lab).await;
}

on_both! {
    an_rsa_one_of_the_original_operator_is_taken_as_it_is_and_rotated_when_it_is_due
    an_ecdsa_one_of_the_original_operator_is_taken_as_it_is_and_rotated_when_it_is_due
    who_knows_only_what_was_before_the_originals_rotation_is_still_in_after_ours
    a_bundle_that_the_original_operator_left_behind_is_made_from_the_secret
    one_with_twelve_months_is_rotated_at_once_and_pods_are_to_be_restarted
}
