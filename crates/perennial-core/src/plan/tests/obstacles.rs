//! Objects that cannot be written or read: everything else continues, and no edge breaks.

use std::collections::BTreeSet;

use expect_test::expect;
use jiff::Timestamp;

use super::fixture::{Cluster, HOUR, MINUTE, builtin, ca, day, issues, tls};
use super::text::{steps, waiting};
use crate::catalog::index::{copy_slot, instances};
use crate::catalog::{Bundle, Day, Instance, Row};
use crate::plan::{Pending, Report, Scope};
use crate::rules::Waiting;
use crate::snapshot::{Observed, Slot, Snapshot};

const KUBELET_SIGNER: &str = "openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-signer";
const KUBELET_CLIENT: &str = "openshift-kube-apiserver/kubelet-client";
const KUBELET_CA: &str = "openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-client-ca";

/// Runs a pass in which writes of these objects fail. A failed write is not retried, and the cluster is observed again.
fn pass(cluster: &mut Cluster<'_>, fails: impl Fn(&str) -> bool) -> (BTreeSet<String>, Report) {
    let mut tried = BTreeSet::new();
    for _ in 0..200 {
        let report = cluster.plan();
        let Some(unlucky) = report.steps.iter().position(|step| fails(&step.object)) else {
            if report.steps.is_empty() {
                cluster.snapshot.blocked.clear();
                return (tried, report);
            }
            cluster.carry_out(&report.steps);
            continue;
        };
        cluster.carry_out(&report.steps[..unlucky]);
        let step = &report.steps[unlucky];
        assert!(tried.insert(step.object.clone()), "{} is tried twice", step.object);
        let blocked = step.slots().into_iter().map(|slot| (slot.clone(), "no quota".to_owned()));
        cluster.snapshot.blocked.extend(blocked);
    }
    panic!("it never ends");
}

/// Returns every object of a cluster.
fn objects(cluster: &Cluster<'_>) -> BTreeSet<String> {
    let slots = cluster.snapshot.secrets.keys().chain(cluster.snapshot.bundles.keys());
    slots.filter(|slot| !slot.is_file()).map(|slot| slot.object_text().to_owned()).collect()
}

fn is_there(cluster: &Cluster<'_>, slot: &Slot) -> bool {
    let snapshot = &cluster.snapshot;
    let secret = snapshot.secrets.get(slot).is_some_and(|it| it.present().is_some());
    secret || snapshot.bundles.get(slot).is_some_and(|it| it.present().is_some())
}

/// Returns the top-level signers of everything that an object holds.
fn roots(object: &str) -> BTreeSet<&'static str> {
    let (planner, wiring) = (builtin(), builtin().wiring());
    let snapshot = &Cluster::nothing().snapshot;
    let keeps = |row: &&Row| {
        instances(row, snapshot).iter().any(|it| {
            let copies = row.copies.iter().map(|copy| copy_slot(row, copy, it));
            [wiring.home(row, it)].into_iter().chain(copies).any(|slot| slot.object_text() == object)
        })
    };
    let rows = wiring.catalog.rows.iter().filter(|row| row.day == Day::Two).filter(keeps);
    let kept: BTreeSet<&str> = rows.filter_map(|row| planner.root_of(row.id)).collect();
    if !kept.is_empty() {
        return kept;
    }
    let bundles = wiring.catalog.bundles.iter().filter(|bundle| bundle.day == Day::Two);
    let is_here = |bundle: &&Bundle| {
        let Some(wired) = wiring.bundle(bundle.id) else { return false };
        [&wired.home].into_iter().chain(wired.copies.iter().map(|(copy, _)| copy)).any(|it| it.object_text() == object)
    };
    let signers = bundles.filter(is_here).flat_map(|bundle| wiring.catalog.signers_in(bundle));
    signers.filter_map(|id| planner.root_of(id)).collect()
}

#[test]
fn a_failed_write_delays_only_what_depends_on_it() {
    let whole = Cluster::made();
    for object in objects(&whole) {
        let mut cluster = Cluster::nothing();
        let (tried, report) = pass(&mut cluster, |it| it == object);
        let roots = roots(&object);
        let slots: Vec<&Slot> = whole.snapshot.secrets.keys().chain(whole.snapshot.bundles.keys()).collect();
        for slot in slots.into_iter().filter(|slot| is_there(&whole, slot)) {
            let depends = !self::roots(slot.object_text()).is_disjoint(&roots);
            assert!(depends || is_there(&cluster, slot), "{slot} without {object}\n{}", waiting(&report));
        }
        let is_expected = |it: &Pending| matches!(it.waiting, Waiting::Blocked { .. } | Waiting::Signer { .. });
        assert!(report.waiting.iter().all(is_expected), "{object}\n{}", waiting(&report));
        assert_eq!(tried.is_empty(), report.waiting.is_empty(), "{object}");
        // The next pass can write the object.
        let (_, report) = pass(&mut cluster, |_| false);
        assert_eq!(waiting(&report), "", "{object}");
        let missing = |slot: &&Slot| is_there(&whole, slot) && !is_there(&cluster, slot);
        let slots = whole.snapshot.secrets.keys().chain(whole.snapshot.bundles.keys());
        assert_eq!(slots.filter(|it| missing(it)).collect::<Vec<_>>(), Vec::<&Slot>::new(), "{object}");
        cluster.roll();
        cluster.pass_to(cluster.now() + HOUR);
        assert_eq!(cluster.broken(), [""; 0], "{object}");
    }
}

#[test]
fn a_failed_write_in_a_rotation_breaks_no_edge() {
    let mut rotating = Cluster::made();
    rotating.go_to(day(2));
    let signers = rotating.planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two);
    let signers: Vec<&str> =
        signers.filter(|row| row.usage == crate::policy::Usage::Signer).map(|row| row.id).collect();
    signers.iter().for_each(|row| rotating.force(row, "test"));
    for object in objects(&rotating) {
        let mut cluster = rotating.clone();
        let end = cluster.now() + 3 * HOUR;
        while cluster.now() < end {
            let (_, report) = pass(&mut cluster, |it| it == object);
            let next = report.next_look.min(cluster.rolls_at().unwrap_or(Timestamp::MAX));
            cluster.pass_to(next.min(end));
        }
        assert_eq!((&cluster.ended, &cluster.broken()), (&Vec::new(), &Vec::new()), "{object}");
        pass(&mut cluster, |_| false);
        cluster.go_to(day(5));
        assert_eq!((&cluster.ended, &cluster.broken()), (&Vec::new(), &Vec::new()), "{object}");
        let forced = |row: &&&str| {
            let row = cluster.planner.wiring().row(row).unwrap().row;
            let home = cluster.planner.wiring().home(row, &Instance::Cluster);
            cluster.snapshot.secrets[&home].present().is_none_or(|state| state.forced.is_none())
        };
        assert_eq!(signers.iter().filter(forced).collect::<Vec<_>>(), Vec::<&&str>::new(), "{object}");
    }
}

#[test]
fn a_wait_for_a_failed_write_names_the_object() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).force("kubelet-client", "test");
    let (tried, report) = pass(&mut cluster, |it| it == KUBELET_CLIENT);
    assert_eq!(tried.into_iter().collect::<Vec<_>>(), [KUBELET_CLIENT]);
    expect![[r#"
        wait openshift-kube-apiserver/kubelet-client (forced rotation: test): openshift-kube-apiserver/kubelet-client could not be written: no quota
    "#]]
    .assert_eq(&waiting(&report));
    let mut cluster = Cluster::nothing();
    let (_, report) = pass(&mut cluster, |it| it == KUBELET_CA);
    expect![[r#"
        wait openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-client-ca: openshift-kube-apiserver-operator/kube-apiserver-to-kubelet-client-ca could not be written: no quota
    "#]].assert_eq(&waiting(&report));
}

#[test]
fn a_certificate_that_never_existed_does_not_wait_for_a_bundle_that_cannot_be_written() {
    let mut cluster = Cluster::nothing();
    pass(&mut cluster, |it| it == KUBELET_CA);
    assert!(is_there(&cluster, &tls(KUBELET_CLIENT)));
}

#[test]
fn a_deleted_certificate_waits_for_a_bundle_that_cannot_be_written_only_as_long_as_a_rollout_takes() {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.deleted.insert(tls(KUBELET_CLIENT));
    pass(&mut cluster, |it| it == KUBELET_CA);
    assert!(!is_there(&cluster, &tls(KUBELET_CLIENT)));
    cluster.pass_to(cluster.now() + 120 * MINUTE);
    pass(&mut cluster, |it| it == KUBELET_CA);
    assert!(is_there(&cluster, &tls(KUBELET_CLIENT)));
}

#[test]
fn a_new_service_does_not_wait_for_a_bundle_that_cannot_be_written() {
    const SERVICE_CA_BUNDLE: &str = "openshift-service-ca/signing-cabundle";
    let mut cluster = Cluster::nothing();
    let web = add_service(&mut cluster);
    pass(&mut cluster, |it| it == SERVICE_CA_BUNDLE);
    assert!(is_there(&cluster, &web));
}

/// Adds a Service without a certificate, and returns the place of its certificate.
fn add_service(cluster: &mut Cluster<'_>) -> Slot {
    let web = tls("shop/web-tls");
    let service = crate::snapshot::Service { name: "web".to_owned(), ..crate::snapshot::Service::default() };
    cluster.snapshot.services = Observed::Present([(web.clone(), service)].into());
    cluster.snapshot.secrets.insert(web.clone(), Observed::Absent);
    web
}

/// Returns the snapshot of an observer that cannot read these objects.
fn without(snapshot: &Snapshot, hidden: impl Fn(&str) -> bool) -> Snapshot {
    let mut seen = snapshot.clone();
    let why = || "forbidden".to_owned();
    let secrets = seen.secrets.iter_mut().filter(|(slot, _)| hidden(slot.object_text()));
    secrets.for_each(|(_, found)| *found = Observed::Unknown { why: why() });
    let bundles = seen.bundles.iter_mut().filter(|(slot, _)| hidden(slot.object_text()));
    bundles.for_each(|(_, found)| *found = Observed::Unknown { why: why() });
    seen.forget_unmentioned();
    seen
}

fn plan_without(cluster: &Cluster<'_>, hidden: impl Fn(&str) -> bool) -> Report {
    cluster.planner.plan(&without(&cluster.snapshot, hidden), &Scope::All)
}

/// Advances the clock while these objects cannot be read. They are not written, and no write breaks a real edge.
fn go_without(cluster: &mut Cluster<'_>, to: Timestamp, hidden: impl Fn(&str) -> bool) {
    loop {
        let report = plan_without(cluster, &hidden);
        let blind = report.steps.iter().find(|step| hidden(&step.object));
        assert_eq!(blind.map(ToString::to_string), None);
        if !report.steps.is_empty() {
            cluster.carry_out(&report.steps);
            continue;
        }
        if cluster.now() == to {
            return;
        }
        let next = report.next_look.min(cluster.rolls_at().unwrap_or(Timestamp::MAX));
        cluster.pass_to(next.min(to));
    }
}

#[test]
fn unreadable_objects_are_not_written_and_other_writes_break_no_edge() {
    let mut rotating = Cluster::made();
    rotating.go_to(day(2));
    let rows = rotating.planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two);
    rows.for_each(|row| rotating.force(row.id, "test"));
    let mut middle = rotating.clone();
    middle.go_to(day(2) + 10 * MINUTE);
    // Some objects are also lost, so that bundles are rebuilt while others cannot be read.
    let mut lost = middle.clone();
    lost.delete_bundle(KUBELET_CA);
    lost.delete_bundle("openshift-kube-apiserver/client-ca");
    lost.delete_secret(KUBELET_CLIENT);
    for object in objects(&rotating) {
        for cluster in [&rotating, &middle, &lost] {
            let mut cluster = cluster.clone();
            let to = cluster.now() + 4 * HOUR;
            go_without(&mut cluster, to, |it| it == object);
            cluster.go_to(day(4));
            assert_eq!((&cluster.ended, &cluster.broken()), (&Vec::new(), &Vec::new()), "{object}");
        }
    }
}

#[test]
fn nothing_is_written_if_no_object_can_be_read() {
    for mut cluster in [Cluster::nothing(), Cluster::made()] {
        cluster.go_to(day(1));
        cluster.pass_to(day(400));
        let report = plan_without(&cluster, |_| true);
        assert_eq!(steps(&report.steps), "");
        assert!(report.waiting.iter().all(|it| matches!(it.waiting, Waiting::Unknown { .. })), "{}", waiting(&report));
    }
}

#[test]
fn an_unreadable_namespace_does_not_stop_the_others() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    for row in ["kubelet-client", "aggregator-client", "etcd-metric-signer"] {
        cluster.force(row, "test");
    }
    let report = plan_without(&cluster, |it| it.starts_with("openshift-kube-apiserver/"));
    let issued: Vec<&str> = issues(&report.steps).iter().map(|issue| issue.row).collect();
    assert_eq!(issued, ["etcd-metric-signer"]);
}

#[test]
fn a_complete_bundle_grows_although_one_of_its_signers_is_unreadable() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).force("kube-control-plane-signer", "test");
    let report = plan_without(&cluster, |it| it == KUBELET_SIGNER);
    let client_ca = report.steps.iter().any(|step| step.object == "openshift-kube-apiserver/client-ca");
    assert!(client_ca, "{}", steps(&report.steps));
    // A bundle that is rebuilt needs all of them.
    cluster.delete_bundle("openshift-kube-apiserver/client-ca");
    let report = plan_without(&cluster, |it| it == "openshift-kube-apiserver-operator/kube-control-plane-signer-ca");
    assert!(!report.steps.iter().any(|step| step.object == "openshift-kube-apiserver/client-ca"));
}

#[test]
fn an_unknown_policy_delays_new_certificates() {
    let mut cluster = Cluster::nothing();
    cluster.snapshot.policy = Observed::Unknown { why: "forbidden".to_owned() };
    // After ten minutes a missing certificate gets the platform's key.
    for since in [None, Some(cluster.now() - 9 * MINUTE)] {
        cluster.snapshot.policy_unknown_since = since;
        let report = cluster.plan();
        assert_eq!(report.steps, Vec::new());
        let told = waiting(&report);
        assert!(
            told.contains(
                "aggregator-client-signer (secret doesn't exist): the PKI resource cannot be read (forbidden)"
            ),
            "{told}"
        );
    }
    cluster.snapshot.policy_unknown_since = Some(cluster.now() - 10 * MINUTE);
    assert!(!cluster.plan().steps.is_empty());
    let mut cluster = Cluster::made();
    cluster.go_to(day(2)).force("kubelet-client", "test");
    cluster.snapshot.policy = Observed::Unknown { why: "forbidden".to_owned() };
    cluster.snapshot.policy_unknown_since = Some(day(1));
    expect![[r#"
        wait openshift-kube-apiserver/kubelet-client (forced rotation: test): the PKI resource cannot be read (forbidden); the existing certificate stays until day 24
    "#]].assert_eq(&waiting(&cluster.plan()));
    // One failed read is no reason for another kind of key, however old the certificate is.
    cluster.pass_to(day(25));
    cluster.snapshot.policy_unknown_since = Some(cluster.now());
    assert!(!cluster.plan().steps.iter().any(|step| step.object == KUBELET_CLIENT));
}

#[test]
fn an_unknown_policy_does_not_delay_a_service_without_a_certificate() {
    let mut cluster = Cluster::made();
    cluster.snapshot.policy = Observed::Unknown { why: "forbidden".to_owned() };
    let web = add_service(&mut cluster);
    let report = cluster.plan();
    let issued = issues(&report.steps).into_iter().find(|issue| issue.slot == web).unwrap();
    assert_eq!(issued.spec.key, crate::key::KeySpec::PLATFORM_DEFAULT);
}

#[test]
fn an_edge_with_an_unreadable_side_is_unknown() {
    let cluster = Cluster::made();
    let seen = without(&cluster.snapshot, |it| it == KUBELET_CLIENT);
    let edges = crate::verify::verify(builtin(), &seen);
    let unknown = |it: &&crate::verify::Checked| matches!(it.state, crate::verify::State::Unknown { .. });
    let of = |it: &crate::verify::Checked| it.presented == tls(KUBELET_CLIENT);
    assert!(edges.iter().any(of));
    assert!(edges.iter().all(|it| unknown(&it) == of(it)));
    let seen = without(&cluster.snapshot, |it| it == "openshift-kube-apiserver/client-ca");
    let edges = crate::verify::verify(builtin(), &seen);
    let of = |it: &crate::verify::Checked| it.trust == ca("openshift-kube-apiserver/client-ca");
    assert!(edges.iter().any(of));
    assert!(edges.iter().all(|it| unknown(&it) == of(it)));
}
