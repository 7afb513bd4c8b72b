//! Lost bundles and signers are restored without breaking an edge.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use expect_test::expect;

use super::fixture::{Cluster, HOUR, ca, day, issue_of, issues, tls};
use super::text::{days, steps, text, waiting};
use crate::catalog::{BundleInput, Day, Instance};
use crate::plan::{Action, CopyItem, Step};
use crate::rules::Reason;
use crate::snapshot::Observed;

const SIGNER: &str = "openshift-kube-apiserver-operator/aggregator-client-signer";
const LEAF: &str = "openshift-kube-apiserver/aggregator-client";
const BUNDLE: &str = "openshift-config-managed/kube-apiserver-aggregator-client-ca";
const COPIES: [&str; 2] =
    ["openshift-kube-apiserver/aggregator-client-ca", "openshift-kube-controller-manager/aggregator-client-ca"];

/// Returns a cluster whose signer was rotated on day 292, with a leaf that is still by the old one.
fn rotated() -> Cluster<'static> {
    static ROTATED: LazyLock<Cluster<'static>> = LazyLock::new(|| {
        let mut cluster = Cluster::made();
        cluster.go_to(day(293));
        assert!(!cluster.is_by(LEAF, SIGNER));
        cluster
    });
    ROTATED.clone()
}

fn members(cluster: &Cluster<'_>, bundle: &str) -> String {
    let ids: Vec<String> = cluster.bundle(bundle).members.iter().map(ToString::to_string).collect();
    days(&ids.join(", "))
}

/// The original operator re-issues the leaves of older signers at once; Perennial trusts those signers again.
#[test]
fn a_deleted_bundle_is_rebuilt_from_its_signer_and_the_signers_of_valid_leaves() {
    let mut cluster = rotated();
    let before = members(&cluster, BUNDLE);
    // Without any copy of the bundle, the signer's history tells which CAs leaves still need.
    [BUNDLE].iter().chain(&COPIES).for_each(|bundle| cluster.delete_bundle(bundle));
    let report = cluster.plan();
    expect![[r#"
        publish openshift-config-managed/kube-apiserver-aggregator-client-ca: configmap doesn't exist
        copy openshift-config-managed/kube-apiserver-aggregator-client-ca to openshift-kube-apiserver/aggregator-client-ca
        copy openshift-config-managed/kube-apiserver-aggregator-client-ca to openshift-kube-controller-manager/aggregator-client-ca
        look again day 300
    "#]].assert_eq(&text(&report));
    cluster.settle();
    assert_eq!(members(&cluster, BUNDLE), before);
    // The leaf is re-issued at its own refresh, and the bundle drops CAs that no leaf needs.
    let mut followed = None;
    cluster.go_watching(day(370), |cluster, _| {
        if cluster.is_by(LEAF, SIGNER) {
            followed.get_or_insert(cluster.now());
        }
    });
    assert_eq!(days(&followed.unwrap().to_string()), "day 300");
    assert_eq!(cluster.bundle(BUNDLE).members, [cluster.secret(SIGNER).certificate.id.clone()]);
}

/// The older signer is unknown.
#[test]
fn a_leaf_of_an_unknown_signer_is_reissued_at_once_after_its_bundle_is_rebuilt() {
    let mut cluster = rotated();
    [BUNDLE].iter().chain(&COPIES).for_each(|bundle| cluster.delete_bundle(bundle));
    cluster.change_secret(SIGNER, |signer| signer.superseded.clear());
    let report = cluster.plan();
    assert_eq!(issue_of(&report.steps, LEAF).map(|issue| &issue.reason), Some(&Reason::IssuerNotInBundle));
    cluster.settle();
}

#[test]
fn every_deleted_bundle_is_restored_with_all_its_members() {
    let cluster = rotated();
    for bundle in cluster.planner.wiring().catalog.bundles.iter().filter(|it| it.day == Day::Two) {
        let home = cluster.planner.wiring().bundle(bundle.id).unwrap().home.clone();
        for found in [Observed::Absent, Observed::Unreadable { why: "no PEM".to_owned() }] {
            let mut hurt = cluster.clone();
            let before = hurt.snapshot.bundles.insert(home.clone(), found).unwrap();
            let done = hurt.settle();
            assert_eq!(issues(&done).len(), 0, "{}", steps(&done));
            let after = &hurt.snapshot.bundles[&home];
            assert_eq!(after.present().map(|it| &it.members), before.present().map(|it| &it.members), "{home}");
        }
    }
}

#[test]
fn every_deleted_secret_is_restored() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(4));
    for home in cluster.snapshot.secrets.keys().filter(|slot| !slot.is_file()) {
        let mut hurt = cluster.clone();
        hurt.snapshot.secrets.insert(home.clone(), Observed::Absent);
        let rolls = hurt.now() + HOUR;
        hurt.go_to(rolls);
        assert!(hurt.snapshot.secrets[home].present().is_some(), "{home}");
        hurt.go_to(day(5));
        assert_eq!(hurt.ended, Vec::<String>::new(), "{home}");
    }
}

#[test]
fn a_deleted_signer_stays_in_the_bundle_and_its_leaves_stay() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    let old = cluster.secret(SIGNER).certificate.clone();
    cluster.delete_secret(SIGNER);
    expect![[r#"
        issue openshift-kube-apiserver-operator/aggregator-client-signer: secret doesn't exist
        publish openshift-config-managed/kube-apiserver-aggregator-client-ca: signer update: added [openshift-kube-apiserver-operator/aggregator-client-signer@day 3], removed []
        copy openshift-config-managed/kube-apiserver-aggregator-client-ca to openshift-kube-apiserver/aggregator-client-ca
        copy openshift-config-managed/kube-apiserver-aggregator-client-ca to openshift-kube-controller-manager/aggregator-client-ca
        look again day 15
    "#]].assert_eq(&text(&cluster.plan()));
    cluster.settle();
    assert!(cluster.bundle(BUNDLE).members.contains(&old.id));
    assert_eq!(cluster.secret(LEAF).certificate.signed_by.as_ref(), Some(&old.subject));
    cluster.go_to(day(20));
    assert_eq!(cluster.ended, Vec::<String>::new());
    assert!(cluster.is_by(LEAF, SIGNER));
}

#[test]
fn leaves_follow_a_new_signer_when_their_verifiers_have_the_bundle() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3)).restarts = false;
    let signer = "openshift-etcd/etcd-signer";
    let old = cluster.secret(signer).certificate.id.clone();
    cluster.delete_secret(signer);
    let done = cluster.settle();
    assert_eq!(issues(&done).iter().map(|issue| issue.row).collect::<Vec<_>>(), ["etcd-signer"]);
    assert!(cluster.bundle("openshift-etcd/etcd-ca-bundle").members.contains(&old));
    cluster.go_to(day(4));
    assert!(!cluster.is_by("openshift-etcd/etcd-peer-m0", signer));
    cluster.roll();
    cluster.go_to(day(5));
    assert_eq!(cluster.ended, Vec::<String>::new());
    assert!(cluster.is_by("openshift-etcd/etcd-peer-m0", signer));
}

/// The original operator stops at corrupt data; Perennial repairs it.
#[test]
fn an_unusable_signer_is_replaced_without_breaking_an_edge() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3));
    cluster.snapshot.secrets.insert(tls(SIGNER), Observed::Unreadable { why: "tls.crt is empty".to_owned() });
    let report = cluster.plan();
    let issue = issue_of(&report.steps, SIGNER).unwrap();
    assert_eq!(issue.reason, Reason::Unreadable { why: "tls.crt is empty".to_owned() });
    cluster.go_to(day(20));
    assert_eq!(cluster.ended, Vec::<String>::new());
}

/// The original operator stops at a damaged bundle; Perennial repairs it.
#[test]
fn a_damaged_bundle_keeps_its_readable_members_and_regains_the_needed_ones() {
    let mut cluster = rotated();
    let before = members(&cluster, BUNDLE);
    let Observed::Present(state) = cluster.snapshot.bundles.get_mut(&ca(BUNDLE)).unwrap() else { panic!() };
    state.members.clear();
    state.damage.push("block 1 is no certificate".to_owned());
    cluster.settle();
    assert_eq!(members(&cluster, BUNDLE), before);
}

#[test]
fn losing_a_signer_with_its_bundle_breaks_no_edge() {
    let mut settled = Cluster::made();
    settled.go_to(day(4));
    let catalog = settled.planner.wiring().catalog;
    for bundle in catalog.bundles.iter().filter(|it| it.day == Day::Two) {
        let home = settled.planner.wiring().bundle(bundle.id).unwrap().home.clone();
        for input in bundle.inputs {
            let BundleInput::History(signer) = *input else { continue };
            let mut cluster = settled.clone();
            let slot = cluster.planner.wiring().home(catalog.row(signer).unwrap(), &Instance::Cluster);
            cluster.snapshot.secrets.insert(slot, Observed::Absent);
            cluster.snapshot.bundles.insert(home.clone(), Observed::Absent);
            cluster.go_to(day(5));
            assert_eq!(cluster.ended, Vec::<String>::new(), "{signer} and {home}");
        }
    }
}

#[test]
fn a_deleted_bundle_regains_members_from_its_copies() {
    let mut cluster = rotated();
    let before = members(&cluster, BUNDLE);
    cluster.delete_bundle(BUNDLE);
    cluster.change_secret(SIGNER, |signer| signer.superseded.clear());
    let done = cluster.settle();
    assert_eq!((issues(&done).len(), members(&cluster, BUNDLE)), (0, before));
}

#[test]
fn a_certificate_that_a_static_pod_presents_counts_after_its_secret_is_deleted() {
    let leaf = "openshift-kube-apiserver/kubelet-client";
    let mut cluster = Cluster::made();
    cluster.go_to(day(3)).restarts = false;
    cluster.force("kube-apiserver-to-kubelet-signer", "test");
    cluster.settle();
    cluster.delete_secret(leaf);
    // Kubelets load the new signer within a quarter of an hour. Until then they accept the running certificate, but not a new one.
    expect![[r#"
        wait openshift-kube-apiserver/kubelet-client (secret doesn't exist): until day 3+00:15, because it would break: kubelet accepts kubelet-client of kube-apiserver
    "#]]
    .assert_eq(&waiting(&cluster.plan()));
    // Static pods are observed: a version that no pod was observed to hold is not in use.
    cluster.snapshot.held_secrets.clear();
    assert!(issue_of(&cluster.plan().steps, leaf).is_some());
}

#[test]
fn a_reloading_process_may_present_any_leaf_of_an_earlier_signer() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(3)).restarts = false;
    cluster.force("localhost-serving-signer", "test");
    cluster.settle();
    cluster.delete_secret("openshift-kube-apiserver/localhost-serving-cert-certkey");
    expect![[r#"
        wait openshift-kube-apiserver/localhost-serving-cert-certkey (secret doesn't exist): rollout of openshift-kube-apiserver/kube-apiserver-server-ca:ca-bundle.crt of m0 at revision 1, openshift-kube-apiserver/kube-apiserver-server-ca:ca-bundle.crt of m1 at revision 1 and openshift-kube-apiserver/kube-apiserver-server-ca:ca-bundle.crt of m2 at revision 1; at most until day 3+02:00
    "#]].assert_eq(&waiting(&cluster.plan()));
}

#[test]
fn unreadable_parts_of_a_bundle_are_not_copied() {
    let mut cluster = rotated();
    let Observed::Present(state) = cluster.snapshot.bundles.get_mut(&ca(BUNDLE)).unwrap() else { panic!() };
    state.damage.push("block 2 is no certificate".to_owned());
    let item = CopyItem { from: Some(ca(BUNDLE)), to: ca(COPIES[0]), alone: false, first: false };
    cluster.snapshot.apply(&Step::new(COPIES[0], Action::CopyBundle(item), BTreeSet::new()));
    assert_eq!(cluster.bundle(COPIES[0]).damage, [""; 0]);
    assert_eq!(members(&cluster, COPIES[0]), members(&cluster, BUNDLE));
}
