//! Requests of an administrator: by `ServiceCA`, and by `perennial rotate`.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, StatusCode};
use k8s_openapi::api::core::v1::Event;
use kube_client::Api;
use kube_client::api::{DeleteParams, ListParams, Patch, PatchParams};
use perennial_api::annotations::{FORCE, FORCED};
use perennial_api::config::ClusterOperator;
use perennial_api::operator::ServiceCA;
use perennial_operator::status::NOT_MANAGED;
use serde_json::json;

use super::lab::{DAY, Handshakes, Lab, MINIMUM, NAMESPACE, REASON, SECOND, SECRET};

async fn new_reason_rotates_the_ca_once(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    let (old, old_client) = (lab.ca().await, lab.bundle().await);
    let old_server = old.serves(lab.now());
    // Any text is a reason.
    let reason = "the key was on a lost laptop: 100%s \"sure\"";
    lab.request(reason).await;
    assert_eq!(lab.pass().await.len(), 3);
    let new = lab.ca().await;
    assert_ne!(new.certificate(), old.certificate());
    assert_eq!((new.annotation(REASON), new.annotation(FORCED)), (Some(reason), None));
    let once = lab.versions().await;
    for _ in 0..2 {
        lab.wait(DAY);
        assert_eq!((lab.pass().await, lab.versions().await), (vec![], once.clone()));
    }
    let told = lab.told("ServiceCARotated").await;
    let [(type_, text)] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!(type_, "Normal");
    let expected = format!(
        "Forcing service CA rotation due to reason {reason:?}. The previous CA will be trusted until {}.",
        old.ends()
    );
    assert_eq!(text, &expected);
    let mut handshakes = Handshakes::default();
    let (new_client, new_server) = (lab.bundle().await, new.serves(lab.now()));
    handshakes.expect_overlap((&old_client, &old_server), (&new_client, &new_server), lab.now(), old.ends());
    handshakes.judge();
}

#[tokio::test]
async fn a_new_reason_rotates_the_service_ca_once_and_is_recorded() {
    new_reason_rotates_the_ca_once(&Lab::embedded().await).await;
}

#[tokio::test]
async fn a_new_reason_rotates_the_service_ca_on_a_real_server() {
    new_reason_rotates_the_ca_once(&Lab::real().await).await;
}

async fn a_requested_and_a_due_rotation_are_one_rotation(lab: &Lab) {
    lab.pass().await;
    lab.cluster.set_now(lab.ca().await.ends() - MINIMUM + DAY);
    lab.request("both").await;
    assert_eq!(lab.pass().await.len(), 3);
    let rotated = lab.ca().await;
    assert_eq!((rotated.annotation(REASON), rotated.cross_signed_by_earlier.len()), (Some("both"), 1));
    assert_eq!(lab.pass().await, Vec::<String>::new());
    let told = lab.told("ServiceCARotated").await;
    assert!(
        told.len() == 1 && told[0].1.starts_with("Forcing service CA rotation due to reason \"both\"."),
        "{told:?}"
    );
    // The request is removed, and the recorded reason stays.
    lab.ask(json!(null)).await;
    lab.cluster.set_now(rotated.ends() - MINIMUM);
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.ca().await.annotation(REASON), Some("both"));
}

async fn a_ca_that_is_deleted_while_a_reason_is_set_is_issued_once(lab: &Lab) {
    lab.request("from the beginning").await;
    lab.pass().await;
    let first = lab.ca().await;
    assert_eq!((first.annotation(REASON), first.bundle.len()), (Some("from the beginning"), 0));
    lab.wait(DAY);
    assert_eq!(lab.pass().await, Vec::<String>::new());
    lab.cluster.secrets(NAMESPACE).delete(SECRET, &DeleteParams::default()).await.unwrap();
    lab.pass().await;
    let second = lab.ca().await;
    assert_eq!(second.annotation(REASON), Some("from the beginning"));
    lab.wait(DAY);
    assert_eq!(lab.pass().await, Vec::<String>::new());
    assert_eq!(lab.ca().await.certificate(), second.certificate());
}

/// Minutes apart, each with its own reason: the CA rotates at once, and the clients that lose trust are named before.
async fn each_new_reason_rotates_at_once_and_names_the_clients(lab: &Lab) {
    lab.pass().await;
    let mut cas = vec![lab.ca().await];
    let mut rotated_at = Vec::new();
    for reason in ["A", "B", "C"] {
        lab.wait(SECOND * 300);
        lab.request(reason).await;
        assert_eq!(lab.pass().await.len(), 3, "{reason}");
        rotated_at.push(lab.now());
        let ca = lab.ca().await;
        assert_eq!(ca.annotation(REASON), Some(reason));
        cas.push(ca);
        assert_eq!(lab.pass().await, Vec::<String>::new(), "once for each reason");
        let told = lab.told("ServiceCARotationForced").await;
        assert_eq!(told.len(), rotated_at.len(), "{told:?}");
        let (status, message) = lab.condition("PreviousServiceCAInUse").await;
        assert_eq!(status, "True");
        // Each generation of clients accepts a new certificate until the CA that it trusts expires.
        for (number, at) in rotated_at.iter().enumerate() {
            let named = format!(
                "clients that have not reloaded the trust bundle since {at} accept new serving certificates until {}",
                cas[number].ends()
            );
            assert!(
                message.contains(&named) && told.last().unwrap().1.contains(&named),
                "{named}: {message}: {told:?}"
            );
        }
        assert!(told.last().unwrap().1.contains(&format!("for the reason {reason:?}")), "{told:?}");
        for (type_, status) in [("Degraded", "False"), ("Upgradeable", "True"), ("Progressing", "False")] {
            assert_eq!(lab.condition(type_).await.0, status, "{type_}");
        }
    }
    // An independent implementation gives the same result for clients with only the first CA.
    let (first, last) = (&cas[0], &cas[3]);
    let server = last.serves(lab.now());
    let mut handshakes = Handshakes::default();
    let old_client = std::slice::from_ref(first.certificate());
    handshakes.expect(old_client, &server, first.ends() - SECOND, true, "a client of the first CA");
    handshakes.expect(old_client, &server, first.ends() + SECOND, false, "a client of the first CA, after its end");
    handshakes.expect(&lab.bundle().await, &server, first.ends() + SECOND, true, "a client with the bundle");
    handshakes.judge();
}

/// When the new CA is written, the event and the condition that name the clients already exist.
async fn clients_that_lose_trust_are_named_before_the_ca_is_rotated(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    let (old, rotated_at) = (lab.ca().await, lab.now());
    lab.request("leaked").await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (admin, noted) = (lab.cluster.client.clone(), seen.clone());
    let watched = lab.way_of(move |client, request| {
        let (admin, noted) = (admin.clone(), noted.clone());
        async move {
            let path = request.uri().path().to_owned();
            if *request.method() == Method::PUT && path.ends_with("/secrets/signing-key") {
                let operator = Api::<ClusterOperator>::all(admin.clone()).get("service-ca").await?;
                let mut conditions = operator.status.unwrap_or_default().conditions.into_iter();
                let condition = conditions.find(|it| it.type_ == "PreviousServiceCAInUse");
                let events = Api::<Event>::namespaced(admin, NAMESPACE).list(&ListParams::default()).await?;
                let told = events.into_iter().filter(|it| it.reason.as_deref() == Some("ServiceCARotationForced"));
                let told: Vec<String> = told.filter_map(|it| it.message).collect();
                noted.lock().unwrap().push((condition, told));
            }
            client.send(request).await
        }
    });
    let passed = lab.cluster.runner_through(watched).once().await.unwrap();
    assert!(passed.failed.is_empty(), "{:?}", passed.failed);
    assert_ne!(lab.ca().await.certificate(), old.certificate());
    let seen = std::mem::take(&mut *seen.lock().unwrap());
    let [(Some(condition), told)] = seen.as_slice() else { panic!("{seen:?}") };
    let named = format!(
        "clients that have not reloaded the trust bundle since {rotated_at} accept new serving certificates until {}",
        old.ends()
    );
    let message = condition.message.as_deref().unwrap_or_default();
    assert!(condition.status == "True" && message.contains(&named), "{named}: {message}");
    let [text] = told.as_slice() else { panic!("{told:?}") };
    assert!(text.contains(&named) && text.contains("for the reason \"leaked\""), "{named}: {text}");
}

/// The resource and the command request a rotation with the same reason: the operator rotates twice, and announces both.
async fn same_reason_from_another_source_is_announced_again(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    let runner = lab.runner();
    let mut cas = vec![lab.ca().await];
    for number in 1..=2 {
        match number {
            1 => lab.request("same").await,
            _ => lab.insist("same").await,
        }
        for _ in 0..2 {
            let passed = runner.once().await.unwrap();
            assert!(passed.failed.is_empty(), "{:?}", passed.failed);
        }
        cas.push(lab.ca().await);
        assert_ne!(cas[number].certificate(), cas[number - 1].certificate());
        let told = lab.told("ServiceCARotationForced").await;
        assert_eq!(told.len(), number, "{told:?}");
        assert!(told.iter().all(|(_, text)| text.contains("for the reason \"same\"")), "{told:?}");
        lab.wait(SECOND * 300);
    }
}

/// Once or twice in a row: the configured reason is recorded, so that no rotation follows.
async fn a_deleted_signer_is_reissued_with_the_configured_reason(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    lab.request("A").await;
    lab.pass().await;
    for _ in 0..2 {
        lab.wait(SECOND * 300);
        lab.cluster.secrets(NAMESPACE).delete(SECRET, &DeleteParams::default()).await.unwrap();
        lab.pass().await;
        let ca = lab.ca().await;
        assert_eq!(ca.annotation(REASON), Some("A"));
        assert_eq!(lab.pass().await, Vec::<String>::new());
        assert_eq!(lab.ca().await.certificate(), ca.certificate());
        let (status, message) = lab.condition("PreviousServiceCAInUse").await;
        assert!(status == "True" && message.contains("reject new serving certificates"), "{message}");
    }
}

#[tokio::test]
async fn resource_and_command_do_not_trigger_each_other() {
    let lab = Lab::embedded().await;
    lab.request("resource").await;
    lab.pass().await;
    lab.wait(DAY);
    lab.insist("command").await;
    assert_eq!(lab.pass().await.len(), 3);
    let both = lab.ca().await;
    assert_eq!((both.annotation(REASON), both.annotation(FORCED)), (Some("resource"), Some("command")));
    // The reason from the resource stays recorded.
    lab.wait(DAY);
    assert_eq!(lab.pass().await, Vec::<String>::new());
    // A new reason counts although the annotation of the command is still there, and does not make that count again.
    lab.cluster.set_now(lab.now() + DAY * 394);
    assert_eq!(both.annotation(FORCE), Some("command"));
    lab.request("another").await;
    assert_eq!(lab.pass().await.len(), 3);
    let after = lab.ca().await;
    assert_eq!((after.annotation(REASON), after.annotation(FORCED)), (Some("another"), Some("command")));
    lab.wait(DAY);
    assert_eq!(lab.pass().await, Vec::<String>::new());
    // Each in its own words: the reason of the one is new to the other.
    lab.insist("another").await;
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.pass().await, Vec::<String>::new());
}

const HOUR_NANOSECONDS: i64 = 3_600_000_000_000;

async fn the_service_ca_has_the_requested_validity_if_it_is_long_enough(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    let asked = |nanoseconds: i64, reason: &str| {
        let life = json!({"validityDurationForTesting": nanoseconds});
        json!({"forceRotation": {"reason": reason}, "caConfig": life})
    };
    lab.ask(asked((790 * 24 + 1) * HOUR_NANOSECONDS, "longer")).await;
    assert_eq!(lab.pass().await.len(), 3);
    let longer = lab.ca().await;
    assert_eq!(longer.ends(), lab.now() + DAY * 790 + SECOND * 3600);
    // All objects are issued with that validity.
    assert_eq!(&longer.bundle[0], longer.certificate());
    assert_eq!(lab.condition("Degraded").await.0, "False");

    // Shorter than the rules can keep: refused, and nothing else stops.
    lab.ask(asked(394 * 24 * HOUR_NANOSECONDS, "shorter")).await;
    lab.insist("shorter").await;
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.ca().await.ends(), lab.now() + DAY * 790);
    let (status, message) = lab.condition("Degraded").await;
    assert_eq!(status, "True");
    for part in ["ServiceCA cluster", "validityDurationForTesting", "validity of 394d is too short", "395d", "790d"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert_eq!(lab.pass().await, Vec::<String>::new(), "it is not rotated again and again");
    lab.ask(json!({"forceRotation": {"reason": "shorter"}})).await;
    lab.pass().await;
    assert_eq!(lab.condition("Degraded").await.0, "False");
}

async fn in_an_emergency_the_service_ca_has_the_requested_short_validity(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY * 2);
    let life = json!({"validityDurationForTesting": 30 * 24 * HOUR_NANOSECONDS, "emergency": true});
    lab.ask(json!({"forceRotation": {"reason": "leaked"}, "caConfig": life})).await;
    assert_eq!(lab.pass().await.len(), 3);
    let short = lab.ca().await;
    assert_eq!(short.ends(), lab.now() + DAY * 30);
    assert_eq!(lab.condition("Degraded").await.0, "False");
    let [(_, text)] = lab.told("ServiceCARotated").await.try_into().unwrap();
    assert!(text.contains("leaked"), "{text}");
    // The CA is rotated at half of its validity, and not before.
    lab.wait(DAY * 14);
    assert_eq!(lab.pass().await, Vec::<String>::new());
    let (old_client, old_server) = (lab.bundle().await, short.serves(lab.now()));
    lab.wait(DAY);
    assert_eq!(lab.pass().await.len(), 3);
    let next = lab.ca().await;
    assert_eq!(next.ends(), lab.now() + DAY * 30);
    let (new_client, new_server) = (lab.bundle().await, next.serves(lab.now()));
    let mut handshakes = Handshakes::default();
    handshakes.expect_overlap((&old_client, &old_server), (&new_client, &new_server), lab.now(), short.ends());
    handshakes.judge();
    // When the emergency ends, a CA with the normal validity follows at once.
    lab.ask(json!({})).await;
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.ca().await.ends(), lab.now() + DAY * 790);
    assert_eq!(lab.pass().await, Vec::<String>::new());
    // A validity in which processes cannot reload is rejected.
    let life = json!({"validityDurationForTesting": HOUR_NANOSECONDS / 2, "emergency": true});
    lab.ask(json!({"caConfig": life})).await;
    assert_eq!(lab.pass().await, Vec::<String>::new());
    let (status, message) = lab.condition("Degraded").await;
    assert!(
        status == "True"
            && message.contains("validity of 30m")
            && message.contains("set caConfig.emergency to true and 1h or more"),
        "{message}"
    );
}

async fn a_request_of_the_wrong_type_is_a_condition_and_stops_nothing_else(lab: &Lab) {
    lab.ask(json!({"forceRotation": {"reason": "why not"}, "caConfig": {"validityDurationForTesting": "1h"}})).await;
    lab.pass().await;
    let ca = lab.ca().await;
    assert_eq!((ca.ends(), ca.annotation(REASON)), (lab.now() + DAY * 790, Some("why not")));
    let (status, message) = lab.condition("Degraded").await;
    assert_eq!(status, "True");
    let expected = "ServiceCA \"cluster\" is invalid: spec.unsupportedConfigOverrides.caConfig.validityDurationForTesting: \
                    Invalid value: \"1h\": accepted is an integer, the number of nanoseconds";
    assert!(message.contains(expected), "{message}");
    assert_eq!(lab.condition("Available").await.0, "True");
    lab.ask(json!({"forceRotation": {"reason": ["a", "list"]}})).await;
    assert_eq!(lab.pass().await, Vec::<String>::new());
    assert!(lab.condition("Degraded").await.1.contains("forceRotation.reason"));
    lab.ask(json!(null)).await;
    lab.pass().await;
    assert_eq!(lab.condition("Degraded").await.0, "False");
}

async fn an_unmanaged_service_ca_is_not_written(lab: &Lab) {
    lab.pass().await;
    let before = lab.versions().await;
    lab.cluster.set_now(lab.ca().await.ends() - DAY);
    for state in ["Unmanaged", "Removed"] {
        lab.configure(json!({"managementState": state})).await;
        assert_eq!((lab.pass().await, lab.versions().await), (vec![], before.clone()), "{state}");
        let (status, message) = lab.condition(NOT_MANAGED).await;
        assert_eq!(status, "True");
        assert!(message.contains(&format!("ServiceCA cluster: spec.managementState is {state:?}")), "{message}");
        assert_eq!(lab.condition("Degraded").await.0, "False");
    }
    for state in [json!({"managementState": "Force"}), json!({})] {
        lab.configure(state).await;
        lab.cluster.set_now(lab.ca().await.ends() - DAY);
        assert_eq!(lab.pass().await.len(), 3);
        let operator = Api::<ClusterOperator>::all(lab.cluster.client.clone()).get("service-ca").await.unwrap();
        assert!(!operator.status.unwrap().conditions.iter().any(|it| it.type_ == NOT_MANAGED));
    }
}

#[tokio::test]
async fn the_service_ca_waits_while_its_management_state_is_unknown() {
    let lab = Lab::embedded().await;
    lab.pass().await;
    let before = lab.versions().await;
    lab.cluster.set_now(lab.ca().await.ends() - MINIMUM);
    let blind = lab.cluster.way(|method, path| {
        let is_it = *method == Method::GET && path.ends_with("/servicecas/cluster");
        is_it.then_some((StatusCode::FORBIDDEN, "Forbidden"))
    });
    let passed = lab.cluster.runner_through(blind).once().await.unwrap();
    assert!(passed.failed.is_empty() && passed.written.is_empty());
    assert_eq!(lab.versions().await, before);
    let (status, message) = lab.condition("Degraded").await;
    assert_eq!(status, "True");
    assert!(message.contains("ServiceCA cluster could not be read: a fault of the test"), "{message}");
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.condition("Degraded").await.0, "False");
}

/// A cluster without the kind is normal: there are no requests.
#[tokio::test]
async fn a_cluster_without_the_service_ca_kind_has_a_service_ca() {
    let lab = Lab::embedded().await;
    let definitions =
        Api::<k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition>::all(
            lab.cluster.client.clone(),
        );
    definitions.delete("servicecas.operator.openshift.io", &DeleteParams::default()).await.unwrap();
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.condition("Degraded").await.0, "False");
}

#[tokio::test]
async fn a_running_operator_notices_requests() {
    let lab = Lab::embedded().await;
    lab.configure(json!({"managementState": "Managed"})).await;
    let runner = lab.runner();
    let (mut passes, heard) = (0, tokio::sync::Notify::new());
    let after_each = |_: &_| {
        passes += 1;
        heard.notify_one();
    };
    let asks = async {
        heard.notified().await;
        // Longer than the first look of the watches takes; a minute would be a resync.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let overrides = json!({"spec": {"unsupportedConfigOverrides": {"forceRotation": {"reason": "heard"}}}});
        let api = Api::<ServiceCA>::all(lab.cluster.client.clone());
        api.patch("cluster", &PatchParams::default(), &Patch::Merge(&overrides)).await.unwrap();
        let rotated = async {
            while lab.ca().await.annotation(REASON) != Some("heard") {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), rotated).await.unwrap();
    };
    runner.run(after_each, asks).await;
    assert!(passes >= 1);
}

on_both! {
    a_requested_and_a_due_rotation_are_one_rotation
    a_ca_that_is_deleted_while_a_reason_is_set_is_issued_once
    each_new_reason_rotates_at_once_and_names_the_clients
    clients_that_lose_trust_are_named_before_the_ca_is_rotated
    same_reason_from_another_source_is_announced_again
    a_deleted_signer_is_reissued_with_the_configured_reason
    the_service_ca_has_the_requested_validity_if_it_is_long_enough
    in_an_emergency_the_service_ca_has_the_requested_short_validity
    a_request_of_the_wrong_type_is_a_condition_and_stops_nothing_else
    an_unmanaged_service_ca_is_not_written
}
