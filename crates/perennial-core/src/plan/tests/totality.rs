//! A plan depends only on its snapshot, and a snapshot is complete.

use std::sync::LazyLock;

use super::fixture::{Cluster, builtin, ca, day, tls};
use crate::plan::Scope;
use crate::snapshot::{Incomplete, Observed, Snapshot};

/// New, installed, rotating, waiting and old clusters.
static CLUSTERS: LazyLock<Vec<Cluster<'static>>> = LazyLock::new(|| {
    let mut rotating = Cluster::made();
    rotating.go_to(day(2)).restarts = false;
    rotating.force("etcd-signer", "test");
    rotating.force("signing-key", "test");
    let mut waiting = rotating.clone();
    waiting.settle();
    waiting.snapshot.policy = Observed::Unreadable { why: "forbidden".to_owned() };
    let mut old = Cluster::installed();
    old.go_to(day(292)).pass_to(day(300));
    vec![Cluster::nothing(), Cluster::installed(), rotating, waiting, old]
});

#[test]
fn equal_snapshots_give_plans_of_equal_bytes() {
    for cluster in CLUSTERS.iter() {
        let json = || serde_json::to_string(&cluster.plan()).unwrap();
        assert_eq!(json(), json());
    }
}

#[test]
fn a_snapshot_that_was_written_and_read_gives_the_same_plan() {
    for cluster in CLUSTERS.iter() {
        let json = serde_json::to_string(&cluster.snapshot).unwrap();
        let read: Snapshot = serde_json::from_str(&json).unwrap();
        assert_eq!(read, cluster.snapshot);
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
        assert_eq!(read.check(builtin().wiring()), Ok(()));
        assert_eq!(builtin().plan(&read, &Scope::All), cluster.plan());
    }
}

#[test]
fn a_snapshot_holds_no_key() {
    for cluster in CLUSTERS.iter() {
        let json = serde_json::to_string(&cluster.snapshot).unwrap() + &serde_json::to_string(&cluster.plan()).unwrap();
        assert!(!json.contains("PRIVATE") && !json.contains("tls.key"));
    }
}

/// Checks the error of a changed snapshot.
fn check(change: impl FnOnce(&mut Snapshot), expected: &str) {
    let mut snapshot = Cluster::made().snapshot;
    change(&mut snapshot);
    assert_eq!(snapshot.check(builtin().wiring()).unwrap_err().to_string(), expected);
}

#[test]
fn an_incomplete_snapshot_is_rejected() {
    check(|it| it.version = 7, "the snapshot has version 7; this program reads version 2");
    check(
        |it| drop(it.secrets.remove(&tls("openshift-etcd/etcd-signer"))),
        "the snapshot does not say whether secret openshift-etcd/etcd-signer:tls.crt is absent, unreadable or present",
    );
    check(
        |it| drop(it.secrets.remove(&tls("openshift-kube-controller-manager/csr-signer"))),
        "the snapshot does not say whether secret openshift-kube-controller-manager/csr-signer:tls.crt is absent, \
         unreadable or present",
    );
    check(
        |it| drop(it.bundles.remove(&ca("openshift-kube-apiserver/client-ca"))),
        "the snapshot does not say whether bundle openshift-kube-apiserver/client-ca:ca-bundle.crt is absent, \
         unreadable or present",
    );
    check(
        |it| drop(it.bundles.remove(&ca("openshift-kube-apiserver/user-client-ca"))),
        "the snapshot does not say whether bundle openshift-kube-apiserver/user-client-ca:ca-bundle.crt is absent, \
         unreadable or present",
    );
    // A node without an entry in the Secrets.
    check(
        |it| drop(it.nodes.found_mut().insert("m9".to_owned(), vec!["10.0.0.9".parse().unwrap()])),
        "the snapshot does not say whether secret openshift-etcd/etcd-all-certs:etcd-peer-m9.crt is absent, \
         unreadable or present",
    );
}

#[test]
fn settings_with_unknown_names_are_rejected() {
    let force =
        |row: &'static str| move |it: &mut Snapshot| drop(it.settings.forced.insert(row.to_owned(), "x".to_owned()));
    check(
        force("etcd-singer"),
        "the snapshot's settings.forced names \"etcd-singer\", which is no row of the running cluster: accepted is a row \
         of its catalog; did you mean \"etcd-signer\"?",
    );
    // A row of the installation cannot be forced, and no name is similar.
    check(
        force("day1/root-ca"),
        "the snapshot's settings.forced names \"day1/root-ca\", which is no row of the running cluster: accepted is a row \
         of its catalog",
    );
    let consent = |edge: &'static str| move |it: &mut Snapshot| it.settings.consent.extend([edge.to_owned()]);
    check(
        consent("kubectl accept external-loadbalancer-serving-certkey of kube-apiserver"),
        "the snapshot's settings.consent names \"kubectl accept external-loadbalancer-serving-certkey of kube-apiserver\", \
         which is no edge: accepted is an edge as `perennial verify -o json` names it; did you mean \"kubectl accepts \
         external-loadbalancer-serving-certkey of kube-apiserver\"?",
    );
    check(
        consent("everybody"),
        "the snapshot's settings.consent names \"everybody\", which is no edge: accepted is an edge as `perennial verify -o \
         json` names it",
    );
    check(
        |it| it.settings.taken_over.extend(["etdc".to_owned()]),
        "the snapshot's settings.takenOver names \"etdc\", which is no component: accepted is one of etcd, kube-apiserver, \
         kube-controller-manager, service-ca; did you mean \"etcd\"?",
    );
    check(
        |it| it.settings.taken_over.extend(["everything".to_owned()]),
        "the snapshot's settings.takenOver names \"everything\", which is no component: accepted is one of etcd, \
         kube-apiserver, kube-controller-manager, service-ca",
    );
}

#[test]
fn settings_with_known_names_are_accepted() {
    let mut snapshot = Cluster::made().snapshot;
    let wiring = builtin().wiring();
    snapshot.settings.forced.insert("etcd-peer-<node>".to_owned(), "test".to_owned());
    snapshot.settings.taken_over.insert("service-ca".to_owned());
    snapshot.settings.consent.extend(wiring.edges().iter().map(|edge| edge.name.to_string()));
    // A node or Service that no longer exists is accepted.
    let service = wiring.edges().iter().find(|edge| edge.row == "service-serving").unwrap();
    let gone =
        ["etcd accepts etcd-peer-long-gone of etcd as a server".to_owned(), format!("{} (shop/gone)", service.name)];
    snapshot.settings.consent.extend(gone);
    assert_eq!(snapshot.check(wiring), Ok(()));
    assert!(!wiring.is_edge("etcd accepts etcd-peer- of etcd as a server"));
    assert!(!wiring.is_edge(&format!("{} and more", service.name)));
    assert!(!wiring.is_edge("kubelet accepts kubelet-client of kube-apiserver (shop/gone)"));
}

#[test]
fn a_snapshot_with_references_to_unknown_certificates_is_rejected() {
    let mut snapshot = Cluster::made().snapshot;
    let slot = tls("openshift-etcd/etcd-signer");
    let id = snapshot.secrets[&slot].present().unwrap().certificate.id.clone();
    snapshot.certificates.retain(|certificate| certificate.id != id);
    let found = snapshot.check(builtin().wiring()).unwrap_err();
    assert!(matches!(&found, Incomplete::Undescribed { id: unknown, .. } if *unknown == id), "{found}");
    assert!(found.to_string().starts_with("the snapshot refers to the certificate openshift-etcd/etcd-signer@"));
}

#[test]
fn unknown_fields_are_rejected() {
    let json = serde_json::to_string(&Cluster::nothing().snapshot).unwrap();
    let more = json.replacen('{', "{\"surprise\":1,", 1);
    let error = serde_json::from_str::<Snapshot>(&more).unwrap_err().to_string();
    assert!(error.contains("unknown field `surprise`"), "{error}");
}
