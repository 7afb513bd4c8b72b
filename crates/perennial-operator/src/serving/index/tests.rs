//! Tests of the index.

use k8s_openapi::api::core::v1::Service as KubeService;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use perennial_core::key::KeySpec;
use perennial_core::trust::CertificateId;
use serde_json::json;

use super::*;

fn service(name: &str, uid: &str) -> KubeService {
    let asks = json!({"service.beta.openshift.io/serving-cert-secret-name": format!("{name}-tls")});
    let metadata = json!({"name": name, "namespace": "shop", "uid": uid, "annotations": asks});
    serde_json::from_value(json!({"metadata": metadata, "spec": {}})).unwrap()
}

fn secret(name: &str, version: &str) -> ObjectMeta {
    let metadata = json!({"name": name, "namespace": "shop", "resourceVersion": version});
    serde_json::from_value(metadata).unwrap()
}

fn named(name: &str) -> ObjectName {
    ObjectName { namespace: "shop".to_owned(), name: name.to_owned() }
}

/// Returns an index with one Service after both lists are complete.
fn index() -> Index {
    let index = Index::default();
    index.services_begin();
    assert_eq!(index.service(service("web", "u1")), Some(named("web")));
    index.services_end();
    index.secrets_begin();
    index.secrets_end();
    index
}

fn right(version: &str) -> Found {
    Found { version: Some(version.to_owned()), next: Timestamp::MAX, ..Found::default() }
}

#[test]
fn what_is_written_says_nothing_new_whenever_it_is_heard() {
    let index = index();
    assert!(index.subject(&named("web")).unwrap().is_probably_absent);
    // The watch reports the write before the reconciliation ends.
    assert_eq!(index.secret(&secret("web-tls", "7")), []);
    index.found(&named("web"), "u1", right("7"));
    assert!(!index.ended(&named("web")));
    // The watch reports the write after the reconciliation has ended.
    index.subject(&named("web"));
    index.found(&named("web"), "u1", right("8"));
    assert!(!index.ended(&named("web")));
    assert_eq!(index.secret(&secret("web-tls", "8")), []);
    // A write by another client carries news, both after a reconciliation and during one.
    assert_eq!(index.secret(&secret("web-tls", "9")), [named("web")]);
    index.subject(&named("web"));
    assert_eq!(index.secret(&secret("web-tls", "11")), []);
    index.found(&named("web"), "u1", right("10"));
    assert!(index.ended(&named("web")));
    // A deletion carries news too.
    index.subject(&named("web"));
    assert_eq!(index.secret_gone(&secret("web-tls", "12")), []);
    index.found(&named("web"), "u1", right("12"));
    assert!(index.ended(&named("web")));
    assert_eq!(index.secret_gone(&secret("web-tls", "13")), [named("web")]);
}

#[test]
fn a_service_that_is_created_later_does_not_delay_the_representatives() {
    let index = index();
    assert_eq!(index.representatives(), None, "web is not reconciled yet");
    index.found(&named("web"), "u1", right("7"));
    assert!(index.representatives().is_some());
    index.service(service("new", "u2"));
    assert!(index.representatives().is_some());
}

#[test]
fn a_deleted_service_is_reconciled_once_more_and_found_gone() {
    let index = index();
    index.service(service("other", "u2"));
    let metadata = service("web", "u1").metadata;
    assert_eq!(index.service_gone(&metadata), [named("web")]);
    assert!(index.subject(&named("web")).is_none());
    let mut silent = service("other", "u2");
    silent.metadata.annotations = None;
    assert_eq!(index.service(silent.clone()), Some(named("other")));
    assert_eq!(index.service(silent), None);
    // A new list does not contain this Service.
    index.service(service("last", "u3"));
    index.services_begin();
    assert_eq!(index.services_end(), [named("last")]);
}

#[test]
fn a_blocked_one_is_tried_again_when_its_obstacle_goes_and_not_whenever_it_changes() {
    let index = index();
    index.subject(&named("web"));
    index.found(
        &named("web"),
        "u1",
        Found { blocked: Some("theirs".to_owned()), next: Timestamp::MAX, ..Found::default() },
    );
    assert!(!index.ended(&named("web")));
    assert_eq!(index.secret(&secret("web-tls", "7")), []);
    assert_eq!(index.secret_gone(&secret("web-tls", "8")), [named("web")]);
    let summary = index.summary();
    assert_eq!((summary.all, summary.blocked), (1, 1));
    assert_eq!(summary.first_blocked, [(named("web"), "theirs".to_owned())]);
    assert!(index.needs_attention());
}

#[test]
fn a_service_waits_since_it_began_to_until_it_is_right_or_gone() {
    let index = index();
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let waits = |second: i64, why: &str| {
        let wait = Wait { since: at(second), label: "ClientsLackTrust", why: why.into() };
        Found { waiting: Some(wait), ..Found::default() }
    };
    index.service(service("other", "u2"));
    index.found(&named("web"), "u1", waits(10, "first"));
    index.found(&named("other"), "u2", waits(20, "second"));
    // The wait keeps its start when its reason changes.
    index.found(&named("web"), "u1", waits(30, "still"));
    let summary = index.summary();
    assert_eq!(summary.waiting, 2);
    assert_eq!(summary.oldest.map(|it| (it.name, it.since, it.why)), Some((named("web"), at(10), "still".to_owned())));
    assert_eq!(index.waiting(), [("ClientsLackTrust", 2)].into());
    index.found(&named("web"), "u1", right("7"));
    assert_eq!(index.summary().oldest.map(|it| it.name), Some(named("other")));
    index.service_gone(&service("other", "u2").metadata);
    assert!(index.summary().waiting == 0 && !index.needs_attention());
}

#[test]
fn of_each_kind_of_certificate_the_one_that_ends_last_stands_for_all() {
    let index = index();
    index.service(service("other", "u2"));
    let presents = |chain: &[&str], end: i64| {
        let chain = chain.iter().map(|id| CertificateId((*id).into())).collect();
        let (key, is_for_service) = (Some(KeySpec::PLATFORM_DEFAULT), true);
        let class = Class { signed_by: None, own: None, chain, is_for_service, begins_at: None, key };
        let presented = Presented { class, until: Timestamp::from_second(end).unwrap() };
        Found { presents: Presents::These(vec![presented]), ..right("7") }
    };
    let standing =
        || -> Vec<String> { index.representatives().unwrap().into_values().map(|service| service.name).collect() };
    index.found(&named("web"), "u1", presents(&["a"], 1));
    index.found(&named("other"), "u2", presents(&["a"], 2));
    assert_eq!(standing(), ["other"]);
    assert_eq!(index.keys(), [(Some(KeySpec::PLATFORM_DEFAULT), 2)].into());
    index.found(&named("web"), "u1", presents(&["a", "b"], 1));
    assert_eq!(standing(), ["other", "web"]);
    let first = |seconds: i64| Timestamp::from_second(seconds).ok();
    assert_eq!(index.first_end(), first(1));
    // If the operator could not read the certificates, the earlier ones still count.
    index.found(&named("web"), "u1", Found::default());
    assert_eq!((standing().len(), index.lock().classes.len()), (2, 2));
    // The index removes a class that no Service uses any more.
    index.found(&named("web"), "u1", presents(&["a"], 3));
    assert_eq!((standing(), index.lock().classes.len()), (vec!["web".to_owned()], 1));
    index.found(&named("other"), "u2", Found { presents: Presents::These(Vec::new()), ..right("8") });
    assert_eq!(index.first_end(), first(3));
    index.service_gone(&service("web", "u1").metadata);
    assert_eq!((standing(), index.lock().classes.len()), (Vec::new(), 0));
}

#[test]
fn a_service_without_a_certificate_or_with_one_that_expires_soon_comes_first() {
    let index = index();
    let at = |hours: i64| Timestamp::from_second(hours * 3600).unwrap();
    let turn = |hours: i64| index.turn(&named("web"), at(hours));
    let presents = |until: Timestamp| {
        let chain = vec![CertificateId("a".into())];
        let class = Class { signed_by: None, own: None, chain, is_for_service: true, begins_at: None, key: None };
        Presents::These(vec![Presented { class, until }])
    };
    assert_eq!(turn(0), Turn::Urgent, "it has no certificate");
    index.secret(&secret("web-tls", "7"));
    index.found(&named("web"), "u1", Found { presents: presents(at(100)), ..right("7") });
    assert_eq!(turn(0), Turn::Usual);
    assert_eq!(turn(77), Turn::Urgent, "its certificate expires within a day");
    let blocked = Some("theirs".to_owned());
    index.found(&named("web"), "u1", Found { presents: Presents::Unknown, blocked, ..right("7") });
    assert_eq!(turn(77), Turn::Usual, "its owner must act first");
    assert_eq!(index.representatives().map(|it| it.len()), Some(0), "a blocked Service represents no other");
}

#[test]
fn a_service_is_due_at_a_whole_second() {
    let index = index();
    let at = |milliseconds: i64| Timestamp::from_millisecond(milliseconds).unwrap();
    index.found(&named("web"), "u1", Found { next: at(5_001), ..right("7") });
    assert_eq!(index.next(), at(6_000));
    assert_eq!(index.due(at(5_999)), []);
    assert_eq!(index.due(at(6_000)), [named("web")]);
    index.found(&named("web"), "u1", Found { next: at(7_000), ..right("7") });
    assert_eq!(index.next(), at(7_000));
    index.found(&named("web"), "u1", Found { next: Timestamp::MAX, ..right("7") });
    assert_eq!(index.next(), Timestamp::MAX);
}

#[test]
fn another_service_of_the_same_name_is_another_one() {
    let index = index();
    index.found(&named("web"), "u1", right("7"));
    assert_eq!(index.service(service("web", "u1")), None);
    assert_eq!(index.service(service("web", "u2")), Some(named("web")));
    // The result for the first Service does not apply to the second.
    index.found(&named("web"), "u1", right("7"));
    assert_eq!(index.secret(&secret("web-tls", "7")), [named("web")]);
}
