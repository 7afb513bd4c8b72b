//! Frozen rows and bundles, which Perennial does not write, while everything that depends on them continues.

use super::fixture::{Cluster, HOUR, ca, day, issue_of, issues, tls};
use super::text::{steps, waiting};
use crate::service_ca;

const SIGNER: &str = "openshift-service-ca/signing-key";
const BUNDLE: &str = "openshift-service-ca/signing-cabundle";
const COPY: &str = "openshift-config-managed/service-ca";
const WEB: &str = "shop/web-tls";

fn frozen(mut cluster: Cluster<'_>) -> Cluster<'_> {
    cluster.service_ca().management_state = Some("Unmanaged".to_owned());
    cluster
}

fn settled() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10));
    cluster
}

#[test]
fn a_frozen_signer_and_bundle_are_not_written_but_leaves_are() {
    let mut cluster = settled();
    cluster.force(service_ca::ROW, "test");
    cluster.delete_bundle(COPY);
    cluster.snapshot.undescribed.extend([tls(SIGNER), ca(BUNDLE)]);
    cluster.snapshot.mistyped.insert(tls(SIGNER));
    cluster.delete_secret(WEB);
    let written = |cluster: &Cluster<'_>| -> std::collections::BTreeSet<String> {
        cluster.plan().steps.into_iter().map(|step| step.object).collect()
    };
    assert!(written(&cluster).is_superset(&[SIGNER, BUNDLE, COPY].map(str::to_owned).into()));
    let mut cluster = frozen(cluster);
    let made = cluster.settle();
    assert_eq!(made.len(), 1, "{}", steps(&made));
    assert!(issue_of(&made, WEB).is_some());
    assert!(cluster.is_by(WEB, SIGNER));
    assert_eq!(waiting(&cluster.plan()), "");
}

/// The signer is past its refresh and still signs, until it expires.
#[test]
fn a_frozen_signer_signs_until_it_expires() {
    let mut cluster = frozen(settled());
    let signer = cluster.secret(SIGNER).certificate.clone();
    let last = signer.validity.not_after - HOUR * 24;
    cluster.go_to(last);
    cluster.delete_secret(WEB);
    let made = cluster.settle();
    assert_eq!(issues(&made).len(), 1, "{}", steps(&made));
    assert_eq!(cluster.secret(WEB).certificate.validity.not_after, signer.validity.not_after);
    assert_eq!(cluster.secret(SIGNER).certificate.id, signer.id);
    // An expired signer signs nothing, and is not replaced.
    cluster.go_to(signer.validity.not_after + HOUR);
    cluster.delete_secret(WEB);
    let made = cluster.settle();
    assert_eq!(issues(&made).len(), 0, "{}", steps(&made));
    assert!(waiting(&cluster.plan()).contains(&format!("wait {WEB}")), "{}", waiting(&cluster.plan()));
}

/// No other signer can replace it, so the planner does not re-issue in a loop.
#[test]
fn a_frozen_signer_that_is_distrusted_stays() {
    let mut cluster = frozen(settled());
    let (signer, now) = (cluster.secret(SIGNER).certificate.clone(), cluster.now());
    cluster.snapshot.distrusted.insert(signer.subject.key.clone(), now);
    let made = cluster.settle();
    assert_eq!(issues(&made).len(), 0, "{}", steps(&made));
    assert_eq!(cluster.bundle(BUNDLE).members, std::slice::from_ref(&signer.id));
}
