//! Signers that an administrator distrusts, accepting the broken edges.

use jiff::SignedDuration;

use super::fixture::{Cluster, HOUR, day, issue_of, issues, tls};
use super::text::text;
use crate::catalog::Catalog;
use crate::plan::{Action, Planner};
use crate::rules::Reason;
use crate::service_ca::distrust::{Distrust, Left};
use crate::trust::{CertificateId, Principal};

const SIGNER: &str = "openshift-service-ca/signing-key";
const BUNDLE: &str = "openshift-service-ca/signing-cabundle";
const COPY: &str = "openshift-config-managed/service-ca";

fn settled() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10));
    cluster
}

fn current(cluster: &Cluster<'_>) -> (CertificateId, Principal) {
    let certificate = &cluster.secret(SIGNER).certificate;
    (certificate.id.clone(), certificate.subject.clone())
}

fn distrust(cluster: &mut Cluster<'_>, signer: &Principal) {
    let now = cluster.now();
    cluster.snapshot.distrusted.insert(signer.key.clone(), now);
}

/// An attacker with the key of the old CA can serve its public cross-certificate by the new CA. So the new CA is distrusted too.
#[test]
fn a_ca_that_cross_signed_a_distrusted_one_is_removed_too_and_broken_edges_are_reported() {
    let mut cluster = settled();
    let (_, old) = current(&cluster);
    cluster.force("signing-key", "test");
    cluster.settle();
    let (tainted, _) = current(&cluster);
    cluster.pass_to(cluster.now() + HOUR);
    assert!(cluster.bundle(BUNDLE).members.len() > 1 && cluster.plan().steps.is_empty());
    distrust(&mut cluster, &old);
    let report = cluster.plan();
    assert_eq!(issues(&report.steps).len(), 3, "{}", text(&report));
    assert_eq!(issue_of(&report.steps, SIGNER).unwrap().earlier_cross_signed, []);
    // Clients with the new bundle reject servers that still present a leaf of either CA.
    let mut lost = std::collections::BTreeSet::new();
    for step in cluster.settle() {
        lost.extend(step.consented);
    }
    assert_eq!(lost.len(), 2, "{lost:?}");
    let (new, _) = current(&cluster);
    assert_ne!(new, tainted);
    for bundle in [BUNDLE, COPY] {
        assert_eq!(cluster.bundle(bundle).members, std::slice::from_ref(&new), "{bundle}");
    }
    assert!(cluster.plan().steps.is_empty());
}

#[test]
fn a_distrusted_current_ca_is_replaced_first_and_removed_when_no_leaf_by_it_is_presented() {
    let mut cluster = settled();
    let (old_id, old) = current(&cluster);
    distrust(&mut cluster, &old);
    let report = cluster.plan();
    let signer = issue_of(&report.steps, SIGNER).unwrap_or_else(|| panic!("{}", text(&report)));
    assert!(matches!(signer.reason, Reason::Distrusted { .. }));
    // The new CA signs no cross-certificate; the old CA signs one for the new CA.
    assert_eq!((signer.earlier_cross_signed.len(), signer.cross_signed_by_earlier.len()), (0, 1));
    assert_eq!(issues(&report.steps).len(), 3, "{}", text(&report));
    // The CA stays in the bundle until all its leaves are re-issued.
    let publications = report.steps.iter().filter_map(|step| match &step.action {
        Action::Publish(bundles) => Some(bundles[0].members.contains(&old_id)),
        _ => None,
    });
    assert_eq!(publications.collect::<Vec<_>>(), [true]);
    cluster.settle();
    let (new, _) = current(&cluster);
    assert_eq!(cluster.bundle(BUNDLE).members, [new]);
    // And it never comes back.
    cluster.go_to(day(20));
    assert_eq!(issues(&cluster.plan().steps).len(), 0);
}

#[test]
fn a_distrusted_ca_is_removed_even_if_a_leaf_cannot_be_reissued() {
    let mut cluster = settled();
    let (old_id, old) = current(&cluster);
    distrust(&mut cluster, &old);
    cluster.snapshot.blocked.insert(tls("shop/web-tls"), "no".to_owned());
    cluster.settle();
    assert!(cluster.bundle(BUNDLE).members.contains(&old_id));
    let report = cluster.plan();
    assert!(report.next_look <= cluster.now() + SignedDuration::from_mins(10), "{}", text(&report));
    cluster.snapshot.blocked.insert(tls("shop/web-tls"), "no".to_owned());
    cluster.pass_to(cluster.now() + SignedDuration::from_mins(10));
    cluster.snapshot.blocked.insert(tls("shop/web-tls"), "no".to_owned());
    cluster.settle();
    assert!(!cluster.bundle(BUNDLE).members.contains(&old_id));
}

#[test]
fn a_rebuilt_bundle_does_not_contain_a_distrusted_ca() {
    let mut cluster = settled();
    let (old_id, old) = current(&cluster);
    distrust(&mut cluster, &old);
    cluster.settle();
    cluster.pass_to(cluster.now() + HOUR);
    cluster
        .snapshot
        .bundles
        .insert(crate::snapshot::Slot::new(&tls(BUNDLE).object(), "ca-bundle.crt"), crate::snapshot::Observed::Absent);
    let report = cluster.plan();
    let made = report.steps.iter().filter_map(|step| match &step.action {
        Action::Publish(bundles) => Some(&bundles[0].members),
        _ => None,
    });
    let made: Vec<_> = made.collect();
    assert!(made.len() == 1 && !made[0].contains(&old_id), "{}", text(&report));
}

#[test]
fn a_distrust_names_the_removed_cas_and_the_cut_off_clients_in_advance() {
    let planner = Planner::new(Catalog::builtin());
    let mut cluster = settled();
    let (_, first) = current(&cluster);
    let meant = Distrust::of_service_ca(&planner, &cluster.snapshot).unwrap();
    assert_eq!((meant.keys.len(), meant.is_current), (1, true));
    cluster.force("signing-key", "test");
    cluster.settle();
    cluster.pass_to(cluster.now() + HOUR);
    // After a rotation both are removed: the new CA has signed the old one.
    let meant = Distrust::of_service_ca(&planner, &cluster.snapshot).unwrap();
    assert!(meant.keys.contains(&first.key) && meant.keys.len() == 2 && meant.is_current, "{meant:?}");
    let lost = meant.cuts_off(&planner, &cluster.snapshot);
    assert_eq!(lost.len(), 2, "{lost:?}");
    let left = meant.left(&planner, &cluster.snapshot);
    assert_eq!((left.trusted.len(), left.presented.len()), (2, 2));
    for key in &meant.keys {
        let now = cluster.now();
        cluster.snapshot.distrusted.insert(key.clone(), now);
    }
    cluster.settle();
    assert_eq!(meant.left(&planner, &cluster.snapshot), Left::default());
    assert!(meant.served(&cluster.snapshot).is_some());
}

/// The circuit breaker stops loops, not administrators.
#[test]
fn the_circuit_breaker_does_not_delay_a_distrust_or_a_forced_rotation() {
    let tripped = || {
        let mut cluster = settled();
        let now = cluster.now();
        for object in [SIGNER, "shop/web-tls"] {
            cluster.change_secret(object, |state| state.issues = vec![now; 5]);
        }
        cluster
    };
    let mut cluster = tripped();
    let (_, old) = current(&cluster);
    distrust(&mut cluster, &old);
    cluster.settle();
    assert_ne!(current(&cluster).1, old);
    assert_eq!(cluster.secret("shop/web-tls").certificate.signed_by.as_ref(), Some(&current(&cluster).1));
    let mut cluster = tripped();
    let (_, old) = current(&cluster);
    cluster.force("signing-key", "test");
    cluster.settle();
    assert_ne!(current(&cluster).1, old);
    // A tenant who requests a certificate is not an administrator.
    let mut cluster = tripped();
    let before = cluster.secret("shop/web-tls").certificate.id.clone();
    cluster.snapshot.asked.insert(tls("shop/web-tls"), "again".to_owned());
    cluster.settle();
    assert_eq!(cluster.secret("shop/web-tls").certificate.id, before);
}
