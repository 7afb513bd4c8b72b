//! Many rotations for one reason: how many at once, in which order, and when it is over.

use super::fixture::{Cluster, day, tls};
use crate::campaign::{Candidate, Wave, wave};
use crate::catalog::Catalog;
use crate::snapshot::Slot;

const REASON: &str = "other keys";
const SIGNER: &str = "openshift-kube-apiserver-operator/aggregator-client-signer";
const LEAF: &str = "openshift-kube-apiserver/aggregator-client";
const KUBELET: &str = "openshift-kube-apiserver/kubelet-client";

/// A leaf, its signer and another leaf should be replaced, so many at once.
fn next(cluster: &Cluster<'_>, at_once: usize) -> Wave {
    let slots = [LEAF, SIGNER, KUBELET].map(tls);
    let rows = ["aggregator-client", "aggregator-client-signer", "kubelet-client"];
    let rows = rows.map(|id| Catalog::builtin().row(id).unwrap());
    let candidates: Vec<Candidate<'_>> = rows.iter().zip(&slots).map(|(row, slot)| Candidate { row, slot }).collect();
    wave(&candidates, &cluster.snapshot, REASON, at_once)
}

fn ask(cluster: &mut Cluster<'_>, slots: &[Slot]) {
    for slot in slots {
        cluster.force(&slot.object().name, REASON);
    }
}

#[test]
fn signers_come_first_and_no_more_are_under_way_than_allowed() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    let first = next(&cluster, 2);
    assert_eq!(first.ask, [tls(SIGNER), tls(LEAF)]);
    assert_eq!(first.later, [tls(KUBELET)]);
    ask(&mut cluster, &first.ask);
    // Asked for is under way, and leaves no room.
    let second = next(&cluster, 2);
    assert_eq!(second.in_flight, [tls(LEAF), tls(SIGNER)]);
    assert_eq!((second.ask, second.later), (vec![], vec![tls(KUBELET)]));
    // The signer is replaced at once; the leaf waits for those who are to trust it.
    cluster.settle();
    let third = next(&cluster, 2);
    assert_eq!(third.spent, [tls(SIGNER)]);
    assert_eq!((third.in_flight, third.ask), (vec![tls(LEAF)], vec![tls(KUBELET)]));
}

#[test]
fn it_is_over_when_everything_was_replaced_once_for_the_reason() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    ask(&mut cluster, &[LEAF, SIGNER, KUBELET].map(tls));
    assert!(!next(&cluster, 1).is_over());
    cluster.go_to(day(25));
    let end = next(&cluster, 1);
    assert!(end.is_over(), "{end:?}");
    assert_eq!(end.spent.len(), 3);
}

#[test]
fn what_somebody_asks_for_another_reason_is_under_way_until_it_is_done() {
    let mut cluster = Cluster::installed();
    cluster.go_to(day(5));
    cluster.force("kubelet-client", "a lost laptop");
    assert_eq!(next(&cluster, 1).in_flight, [tls(KUBELET)]);
    assert_eq!(next(&cluster, 1).ask, []);
    cluster.settle();
    assert_eq!(next(&cluster, 3).ask, [tls(SIGNER), tls(LEAF), tls(KUBELET)]);
}
