//! Rotations of single certificates that an annotation on the Secret requests.

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
fn a_request_rotates_one_service_without_the_others_once_for_each_reason() {
    let mut cluster = with_services();
    for reason in ["a lost laptop", "another"] {
        cluster.snapshot.asked.insert(tls(WEB), reason.to_owned());
        let steps = cluster.settle();
        assert_eq!(issues(&steps).len(), 1, "{steps:?}");
        let issue = issue_of(&steps, WEB).unwrap();
        assert_eq!(issue.reason, Reason::Forced { reason: reason.to_owned() });
        assert_eq!(cluster.secret(WEB).forced.as_deref(), Some(reason));
        // The annotation with the request stays.
        assert!(cluster.settle().is_empty());
    }
}

#[test]
fn a_request_is_recorded_even_if_the_certificate_is_issued_for_another_reason() {
    let mut cluster = with_services();
    cluster.snapshot.asked.insert(tls(WEB), "a lost laptop".to_owned());
    cluster.delete_secret(WEB);
    assert_eq!(issue_of(&cluster.settle(), WEB).unwrap().reason, Reason::Absent);
    assert!(cluster.settle().is_empty());
}

#[test]
fn a_request_on_a_secret_takes_precedence_over_one_for_its_row() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    cluster.force("kubelet-client", "the row");
    cluster.snapshot.asked.insert(tls(KUBELET), "the Secret".to_owned());
    let steps = cluster.settle();
    assert_eq!(issue_of(&steps, KUBELET).unwrap().forced.as_deref(), Some("the Secret"));
}
