//! Rotations that somebody asks for of single certificates, by what their Secrets say.

use super::fixture::{Cluster, day, issue_of, issues, tls};
use crate::rules::Reason;

const KUBELET: &str = "openshift-kube-apiserver/kubelet-client";
const WEB: &str = "shop/web-tls";

fn with_services() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(5));
    cluster
}

#[test]
fn one_service_is_rotated_without_the_others_and_once_for_each_reason() {
    let mut cluster = with_services();
    for reason in ["a lost laptop", "another"] {
        cluster.snapshot.asked.insert(tls(WEB), reason.to_owned());
        let steps = cluster.settle();
        assert_eq!(issues(&steps).len(), 1, "{steps:?}");
        let issue = issue_of(&steps, WEB).unwrap();
        assert_eq!(issue.reason, Reason::Forced { reason: reason.to_owned() });
        assert_eq!(cluster.secret(WEB).forced.as_deref(), Some(reason));
        // The request stays where it is written.
        assert!(cluster.settle().is_empty());
    }
}

#[test]
fn a_request_is_recorded_whatever_the_certificate_is_issued_for() {
    let mut cluster = with_services();
    cluster.snapshot.asked.insert(tls(WEB), "a lost laptop".to_owned());
    cluster.delete_secret(WEB);
    assert_eq!(issue_of(&cluster.settle(), WEB).unwrap().reason, Reason::Absent);
    assert!(cluster.settle().is_empty());
}

#[test]
fn what_a_secret_asks_for_comes_before_what_is_asked_of_its_row() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    cluster.force("kubelet-client", "the row");
    cluster.snapshot.asked.insert(tls(KUBELET), "the Secret".to_owned());
    let steps = cluster.settle();
    assert_eq!(issue_of(&steps, KUBELET).unwrap().forced.as_deref(), Some("the Secret"));
}
