//! The Secret is the source of truth, and each pass corrects everything that depends on it: after crashes, deletions and edits.

use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_x509::Certificate;
use serde_json::json;

use super::lab::{DAY, Handshakes, Lab, NAMESPACE, REASON, SECOND, SECRET};
use crate::faults::{FAULTS, Fault, way};

/// The CA, its bundle and the copy are each written once; each of these writes has each fault.
#[tokio::test(start_paused = true)]
async fn a_rotation_recovers_from_each_fault_at_each_write() {
    let mut handshakes = Handshakes::default();
    for fault in FAULTS {
        let mut unlucky = 1;
        loop {
            let lab = Lab::embedded().await;
            lab.pass().await;
            lab.wait(DAY);
            let (old, old_client) = (lab.ca().await, lab.bundle().await);
            let old_server = old.serves(lab.now());
            lab.request("a rehearsal").await;
            let way = way(&lab.cluster, unlucky, fault, None);
            let first = lab.cluster.reconciler_through(way.client.clone()).pass(&[]).await;
            assert!(fault == Fault::Kills || first.unwrap().failed.is_empty(), "{fault:?} at write {unlucky}");
            let what = format!("{fault:?} at write {unlucky}");
            // Processes that load the current files accept, and are accepted by, all others.
            let between = lab.ca().await;
            let server = between.serves(lab.now());
            let data = lab.cluster.config_maps(NAMESPACE).get("signing-cabundle").await.unwrap().data.unwrap();
            let client = perennial_x509::read_certificates(data["ca-bundle.crt"].as_bytes()).unwrap();
            for client in [&old_client, &client] {
                for server in [&old_server, &server] {
                    handshakes.expect(client, server, lab.now(), true, &what);
                }
            }
            let written = lab.pass().await;
            assert!(fault == Fault::Kills || written.is_empty(), "{what}: {written:?}");
            let new = lab.ca().await;
            assert_eq!((new.annotation(REASON), new.cross_signed_by_earlier.len()), (Some("a rehearsal"), 1), "{what}");
            assert!(
                new.certificate() == between.certificate() || unlucky == 1 && fault != Fault::AnswerIsLost,
                "{what}"
            );
            let mut expected = vec![old.certificate().clone(), new.certificate().clone(), new.bundle[1].clone()];
            expected.sort_by_key(|it| it.der().to_vec());
            assert_eq!(lab.bundle().await, expected, "{what}");
            assert_eq!(lab.pass().await, Vec::<String>::new(), "{what}");
            if way.writes() < unlucky {
                break;
            }
            unlucky += 1;
        }
        assert_eq!(unlucky, 4, "the Secret, its bundle, and the copy");
    }
    handshakes.judge();
}

/// An operator stops between the Secret and its bundle, and the next one continues.
async fn a_rotation_that_stopped_after_the_secret_continues(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    let (old, old_client) = (lab.ca().await, lab.bundle().await);
    lab.request("a rehearsal").await;
    let way = way(&lab.cluster, 1, Fault::Kills, None);
    // It stops with the first write, whatever its result.
    drop(lab.cluster.reconciler_through(way.client.clone()).pass(&[]).await);
    let new = lab.ca().await;
    assert_ne!(new.certificate(), old.certificate());
    assert_eq!(lab.bundle().await, old_client, "the bundle is still that of before");
    assert_eq!(lab.pass().await.len(), 2, "the bundle and its copy");
    assert_eq!(lab.ca().await.certificate(), new.certificate());
    let new_client = lab.bundle().await;
    assert!([&old, &new].into_iter().all(|it| new_client.contains(it.certificate())));
    assert_eq!(lab.pass().await, Vec::<String>::new());
}

async fn an_edited_bundle_is_corrected(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    lab.request("a rehearsal").await;
    lab.pass().await;
    let (secret, right) = (lab.secret().await, lab.bundle().await);
    let ca = lab.ca().await;
    let old = right.iter().find(|it| !ca.bundle.contains(it)).unwrap();
    let text = |certificates: &[&Certificate]| certificates.iter().map(|it| it.to_pem()).collect::<String>();
    for (place, name) in [(NAMESPACE, "signing-cabundle"), ("openshift-config-managed", "service-ca")] {
        let maps = lab.cluster.config_maps(place);
        for wrong in [
            String::new(),
            "nonsense".to_owned(),
            // Without the new one, and without the cross-certificate of the old one.
            text(&[old]),
            format!("{}nonsense\n", text(&[&ca.bundle[1], &ca.bundle[0], old])),
        ] {
            let edit = json!({"data": {"ca-bundle.crt": wrong}});
            maps.patch(name, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
            assert!(!lab.pass().await.is_empty(), "{place}: {wrong}");
            let found = lab.bundle().await;
            // Certificates that neither object has are lost. All others come back from the Secret.
            assert!(ca.bundle.iter().all(|it| found.contains(it)), "{place}: {wrong}");
            assert_eq!(lab.pass().await, Vec::<String>::new());
        }
        maps.delete(name, &DeleteParams::default()).await.unwrap();
        lab.pass().await;
        let found = lab.bundle().await;
        assert!(ca.bundle.iter().all(|it| found.contains(it)), "{place}");
    }
    assert_eq!(lab.secret().await, secret, "the CA itself is untouched");
}

async fn after_a_deleted_key_the_old_ca_stays_trusted(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    let (old, old_client) = (lab.ca().await, lab.bundle().await);
    let old_server = old.serves(lab.now());
    lab.cluster.secrets(NAMESPACE).delete(SECRET, &DeleteParams::default()).await.unwrap();
    lab.pass().await;
    let new = lab.ca().await;
    assert_ne!(new.certificate().facts().public_key, old.certificate().facts().public_key);
    // The old key is lost, so it cannot sign the new CA. The new CA signs the old one.
    assert_eq!((new.cross_signed_by_earlier.len(), new.bundle.len()), (0, 2));
    let [_, old_by_new] = new.bundle.as_slice() else { panic!("{:?}", new.bundle) };
    assert_eq!(old_by_new.facts().public_key, old.certificate().facts().public_key);
    let (new_client, new_server) = (lab.bundle().await, new.serves(lab.now()));
    assert!([old.certificate(), new.certificate(), old_by_new].iter().all(|it| new_client.contains(it)));
    let mut handshakes = Handshakes::default();
    handshakes.expect(&new_client, &old_server, lab.now(), true, "new client, old server");
    handshakes.expect(&new_client, &new_server, lab.now(), true, "new client, new server");
    handshakes.expect(&old_client, &old_server, lab.now(), true, "old client, old server");
    // The risk that the Warning names.
    handshakes.expect(&old_client, &new_server, lab.now(), false, "old client, new server");
    // The client of the original operator has only the bundle in the Secret.
    handshakes.expect(&new.bundle, &old_server, old.ends() - SECOND, true, "its client, old server");
    handshakes.judge();
    let told = lab.told("ServiceCARotated").await;
    let [(type_, text)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(type_, "Warning");
    for part in [
        "Replacing service CA: secret doesn't exist.",
        "a client that has only the previous bundle rejects every new certificate until it reads the new bundle",
        &format!("trust the previous CA until {}", old.ends()),
        "`perennial consumers service-ca`",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert_eq!(lab.pass().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_ca_whose_key_is_deleted_is_replaced_and_the_old_one_stays_trusted() {
    after_a_deleted_key_the_old_ca_stays_trusted(&Lab::embedded().await).await;
}

#[tokio::test]
async fn a_ca_whose_key_is_deleted_is_replaced_on_a_real_server() {
    after_a_deleted_key_the_old_ca_stays_trusted(&Lab::real().await).await;
}

/// A key of another certificate, or a missing key, counts as deleted.
async fn a_ca_that_cannot_sign_is_replaced(lab: &Lab) {
    lab.pass().await;
    for wrong in ["bm9uc2Vuc2U=", ""] {
        lab.wait(DAY);
        let old = lab.ca().await;
        let edit = json!({"data": {"tls.key": wrong}});
        lab.cluster.secrets(NAMESPACE).patch(SECRET, &PatchParams::default(), &Patch::Merge(&edit)).await.unwrap();
        lab.pass().await;
        let new = lab.ca().await;
        assert_ne!(new.certificate(), old.certificate());
        assert!(lab.bundle().await.contains(old.certificate()));
        assert_eq!(lab.told("ServiceCARotated").await[0].0, "Warning");
    }
}

on_both! {
    a_rotation_that_stopped_after_the_secret_continues
    a_ca_that_cannot_sign_is_replaced
    an_edited_bundle_is_corrected
}
