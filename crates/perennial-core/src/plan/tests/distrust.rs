//! Signers that somebody wants to be trusted no longer, whatever is lost by that.

use jiff::SignedDuration;

use super::fixture::{Cluster, HOUR, day, issue_of, issues, tls};
use super::text::text;
use crate::catalog::Catalog;
use crate::distrust::{Distrust, Left};
use crate::plan::{Action, Planner};
use crate::rules::Reason;
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
    cluster.snapshot.settings.distrusted.insert(signer.key.clone(), now);
}

/// Whoever has the key of the old one can serve what the new one signed for it, which everybody can read: so the new one goes, too.
#[test]
fn who_vouched_for_it_goes_with_it_and_what_is_lost_is_named() {
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
    assert_eq!(issue_of(&report.steps, SIGNER).unwrap().bridged, []);
    // Whoever still serves what either signed is refused by whoever reads the new bundle.
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
fn the_current_one_is_replaced_first_and_goes_when_nothing_by_it_is_presented() {
    let mut cluster = settled();
    let (old_id, old) = current(&cluster);
    distrust(&mut cluster, &old);
    let report = cluster.plan();
    let signer = issue_of(&report.steps, SIGNER).unwrap_or_else(|| panic!("{}", text(&report)));
    assert!(matches!(signer.reason, Reason::Distrusted { .. }));
    // The new one vouches for nobody, and who knows only the old one comes to it.
    assert_eq!((signer.bridged.len(), signer.bridges.len()), (0, 1));
    assert_eq!(issues(&report.steps).len(), 3, "{}", text(&report));
    // It is not taken out before everything by it is made again.
    let publications = report.steps.iter().filter_map(|step| match &step.action {
        Action::Publish(bundles) => Some(bundles[0].members.contains(&old_id)),
        _ => None,
    });
    assert_eq!(publications.collect::<Vec<_>>(), [true]);
    cluster.settle();
    let (new, _) = current(&cluster);
    assert_eq!(cluster.bundle(BUNDLE).members, [new]);
    // And never once more.
    cluster.go_to(day(20));
    assert_eq!(issues(&cluster.plan().steps).len(), 0);
}

#[test]
fn it_does_not_wait_for_ever_for_who_cannot_be_given_another_one() {
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
fn a_bundle_that_is_made_again_does_not_have_it() {
    let mut cluster = settled();
    let (old_id, old) = current(&cluster);
    distrust(&mut cluster, &old);
    cluster.settle();
    cluster.pass_to(cluster.now() + HOUR);
    cluster
        .snapshot
        .bundles
        .insert(crate::snapshot::Slot::new(&tls(BUNDLE).object(), "ca-bundle.crt"), crate::rules::Observed::Absent);
    let report = cluster.plan();
    let made = report.steps.iter().filter_map(|step| match &step.action {
        Action::Publish(bundles) => Some(&bundles[0].members),
        _ => None,
    });
    let made: Vec<_> = made.collect();
    assert!(made.len() == 1 && !made[0].contains(&old_id), "{}", text(&report));
}

#[test]
fn it_is_known_beforehand_who_goes_and_who_is_cut_off() {
    let planner = Planner::new(Catalog::builtin());
    let mut cluster = settled();
    let (_, first) = current(&cluster);
    let meant = Distrust::of_service_ca(&planner, &cluster.snapshot).unwrap();
    assert_eq!((meant.keys.len(), meant.is_current), (1, true));
    cluster.force("signing-key", "test");
    cluster.settle();
    cluster.pass_to(cluster.now() + HOUR);
    // After a rotation both: the new one has signed the old one.
    let meant = Distrust::of_service_ca(&planner, &cluster.snapshot).unwrap();
    assert!(meant.keys.contains(&first.key) && meant.keys.len() == 2 && meant.is_current, "{meant:?}");
    let lost = meant.cuts_off(&planner, &cluster.snapshot);
    assert_eq!(lost.len(), 2, "{lost:?}");
    let left = meant.left(&planner, &cluster.snapshot);
    assert_eq!((left.trusted.len(), left.presented.len()), (2, 2));
    for key in &meant.keys {
        let now = cluster.now();
        cluster.snapshot.settings.distrusted.insert(key.clone(), now);
    }
    cluster.settle();
    assert_eq!(meant.left(&planner, &cluster.snapshot), Left::default());
    assert!(meant.served(&cluster.snapshot).is_some());
}
