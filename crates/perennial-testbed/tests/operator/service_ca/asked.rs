//! What an administrator asks for: through `ServiceCA`, and through `perennial rotate`.

use std::time::Duration;

use http::{Method, StatusCode};
use kube_client::Api;
use kube_client::api::{DeleteParams, Patch, PatchParams};
use perennial_api::annotations::{FORCE, FORCED};
use perennial_api::config::ClusterOperator;
use perennial_api::operator::ServiceCA;
use perennial_operator::status::STANDS_BACK;
use serde_json::json;

use super::lab::{DAY, Handshakes, Lab, MINIMUM, NAMESPACE, REASON, SECOND, SECRET};

async fn a_new_reason_rotates_once(lab: &Lab) {
    lab.pass().await;
    lab.wait(DAY);
    let (old, old_client) = (lab.ca().await, lab.bundle().await);
    let old_server = old.serves(lab.now());
    // It is not a format.
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
async fn a_new_reason_rotates_it_once_and_is_written_down() {
    a_new_reason_rotates_once(&Lab::embedded().await).await;
}

#[tokio::test]
async fn a_new_reason_rotates_it_on_a_real_server_too() {
    a_new_reason_rotates_once(&Lab::real().await).await;
}

async fn a_reason_and_a_due_rotation_make_one(lab: &Lab) {
    lab.pass().await;
    lab.cluster.set_now(lab.ca().await.ends() - MINIMUM + DAY);
    lab.request("both").await;
    assert_eq!(lab.pass().await.len(), 3);
    let rotated = lab.ca().await;
    assert_eq!((rotated.annotation(REASON), rotated.bridges.len()), (Some("both"), 1));
    assert_eq!(lab.pass().await, Vec::<String>::new());
    let told = lab.told("ServiceCARotated").await;
    assert!(
        told.len() == 1 && told[0].1.starts_with("Forcing service CA rotation due to reason \"both\"."),
        "{told:?}"
    );
    // Nobody asks any more, and what was written down stays.
    lab.ask(json!(null)).await;
    lab.cluster.set_now(rotated.ends() - MINIMUM);
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.ca().await.annotation(REASON), Some("both"));
}

async fn one_that_is_deleted_while_a_reason_is_set_is_made_once(lab: &Lab) {
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

/// Minutes apart, each for a reason of its own: the CA rotates at once, and before that the clients are named that lose trust.
async fn every_new_reason_rotates_at_once_and_names_the_clients(lab: &Lab) {
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
        // Each generation of clients accepts what is issued now until the CA that it knows expires.
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
    // Somebody that we did not write says the same of those who know the first CA only.
    let (first, last) = (&cas[0], &cas[3]);
    let server = last.serves(lab.now());
    let mut handshakes = Handshakes::default();
    let old_client = std::slice::from_ref(first.certificate());
    handshakes.expect(old_client, &server, first.ends() - SECOND, true, "a client of the first CA");
    handshakes.expect(old_client, &server, first.ends() + SECOND, false, "a client of the first CA, after its end");
    handshakes.expect(&lab.bundle().await, &server, first.ends() + SECOND, true, "a client with the bundle");
    handshakes.judge();
}

/// Once or twice in a row: the reason that is configured is recorded, so that no rotation follows.
async fn a_deleted_signer_is_made_again_for_the_configured_reason(lab: &Lab) {
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
async fn a_resource_and_a_command_do_not_undo_each_other() {
    let lab = Lab::embedded().await;
    lab.request("resource").await;
    lab.pass().await;
    lab.wait(DAY);
    lab.insist("command").await;
    assert_eq!(lab.pass().await.len(), 3);
    let both = lab.ca().await;
    assert_eq!((both.annotation(REASON), both.annotation(FORCED)), (Some("resource"), Some("command")));
    // What was done for the resource stays done.
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

async fn it_lives_as_long_as_somebody_asks_for_if_that_can_be_kept(lab: &Lab) {
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
    // All of it is made for that.
    assert_eq!(&longer.bundle[0], longer.certificate());
    assert_eq!(lab.condition("Degraded").await.0, "False");

    // Shorter than the rules can keep: refused, and nothing else stops.
    lab.ask(asked(394 * 24 * HOUR_NANOSECONDS, "shorter")).await;
    lab.insist("shorter").await;
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.ca().await.ends(), lab.now() + DAY * 790);
    let (status, message) = lab.condition("Degraded").await;
    assert_eq!(status, "True");
    for part in ["ServiceCA cluster", "validityDurationForTesting", "lives 394d ", "395d", "790d"] {
        assert!(message.contains(part), "{part} is not in {message}");
    }
    assert_eq!(lab.pass().await, Vec::<String>::new(), "it is not rotated again and again");
    lab.ask(json!({"forceRotation": {"reason": "shorter"}})).await;
    lab.pass().await;
    assert_eq!(lab.condition("Degraded").await.0, "False");
}

async fn in_an_emergency_it_lives_as_short_as_somebody_asks_for(lab: &Lab) {
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
    // It is replaced at half of its time, and not before.
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
    // When it is over, one that everybody can come to follows at once.
    lab.ask(json!({})).await;
    assert_eq!(lab.pass().await.len(), 3);
    assert_eq!(lab.ca().await.ends(), lab.now() + DAY * 790);
    assert_eq!(lab.pass().await, Vec::<String>::new());
    // Less than one that can be told of in time is no use to anybody.
    let life = json!({"validityDurationForTesting": HOUR_NANOSECONDS / 2, "emergency": true});
    lab.ask(json!({"caConfig": life})).await;
    assert_eq!(lab.pass().await, Vec::<String>::new());
    let (status, message) = lab.condition("Degraded").await;
    assert!(
        status == "True"
            && message.contains("lives 30m")
            && message.contains("1h or more where caConfig.emergency is true"),
        "{message}"
    );
}

async fn what_is_of_another_type_is_a_condition_and_stops_nothing_else(lab: &Lab) {
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

async fn one_that_nobody_wants_managed_is_left_as_it_is(lab: &Lab) {
    lab.pass().await;
    let before = lab.versions().await;
    lab.cluster.set_now(lab.ca().await.ends() - DAY);
    for state in ["Unmanaged", "Removed"] {
        lab.configure(json!({"managementState": state})).await;
        assert_eq!((lab.pass().await, lab.versions().await), (vec![], before.clone()), "{state}");
        let (status, message) = lab.condition(STANDS_BACK).await;
        assert_eq!(status, "True");
        assert!(message.contains(&format!("ServiceCA cluster: spec.managementState is {state:?}")), "{message}");
        assert_eq!(lab.condition("Degraded").await.0, "False");
    }
    for state in [json!({"managementState": "Force"}), json!({})] {
        lab.configure(state).await;
        lab.cluster.set_now(lab.ca().await.ends() - DAY);
        assert_eq!(lab.pass().await.len(), 3);
        let operator = Api::<ClusterOperator>::all(lab.cluster.client.clone()).get("service-ca").await.unwrap();
        assert!(!operator.status.unwrap().conditions.iter().any(|it| it.type_ == STANDS_BACK));
    }
}

#[tokio::test]
async fn where_nobody_can_say_whether_it_is_managed_it_waits() {
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

/// A cluster that has no such kind is normal: nobody asks for anything.
#[tokio::test]
async fn a_cluster_that_does_not_know_the_resource_has_a_service_ca() {
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
async fn an_operator_that_runs_hears_what_is_asked_for() {
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
    a_reason_and_a_due_rotation_make_one
    one_that_is_deleted_while_a_reason_is_set_is_made_once
    every_new_reason_rotates_at_once_and_names_the_clients
    a_deleted_signer_is_made_again_for_the_configured_reason
    it_lives_as_long_as_somebody_asks_for_if_that_can_be_kept
    in_an_emergency_it_lives_as_short_as_somebody_asks_for
    what_is_of_another_type_is_a_condition_and_stops_nothing_else
    one_that_nobody_wants_managed_is_left_as_it_is
}
