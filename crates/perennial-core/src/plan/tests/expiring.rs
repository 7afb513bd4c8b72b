//! A service CA that is close to its expiry when the operator first sees it.

use jiff::SignedDuration;

use super::fixture::{Cluster, HOUR, MINUTE, SECOND, ca, day, issue_of, living, service, tls};
use super::text::text;
use crate::snapshot::Observed;

const SIGNER: &str = "openshift-service-ca/signing-key";
const BUNDLE: &str = "openshift-service-ca/signing-cabundle";
const COPY: &str = "openshift-config-managed/service-ca";
const SERVICES: [&str; 2] = ["shop/web-tls", "shop/db-tls"];

/// The validity of the leaves of a service CA that another operator issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Leaves {
    ExpireWithTheCa,
    OutliveTheCa,
}

/// Returns a cluster on day 10 whose service CA, issued by another operator, expires after `left`.
fn expiring(left: SignedDuration, leaves: Leaves) -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10));
    let end = cluster.now() + left;
    let signer = living(cluster.secret(SIGNER), day(-300), end);
    let id = signer.certificate.id.clone();
    cluster.change_secret(SIGNER, |state| *state = signer);
    for object in SERVICES {
        let leaf_end = if leaves == Leaves::OutliveTheCa { day(500) } else { end };
        let leaf = living(cluster.secret(object), day(-300), leaf_end);
        cluster.change_secret(object, |state| {
            *state = leaf;
            state.chain = vec![id.clone()];
        });
    }
    for object in [SIGNER].into_iter().chain(SERVICES) {
        cluster.change_secret(object, |state| {
            state.issued_at = None;
            state.issues.clear();
        });
    }
    for object in [BUNDLE, COPY] {
        let Observed::Present(state) = cluster.snapshot.bundles.get_mut(&ca(object)).unwrap() else { panic!() };
        state.members = vec![id.clone()];
        state.published.clear();
    }
    cluster.snapshot.forget_unmentioned();
    assert_eq!(cluster.snapshot.check(cluster.planner.wiring()), Ok(()));
    cluster
}

fn add_service(cluster: &mut Cluster<'_>, name: &str) -> String {
    let object = format!("shop/{name}-tls");
    cluster.snapshot.services.found_mut().insert(tls(&object), service(name, false));
    cluster.snapshot.complete(cluster.planner.wiring());
    object
}

#[test]
fn services_are_issued_at_once_while_the_ca_is_close_to_its_expiry() {
    for leaves in [Leaves::ExpireWithTheCa, Leaves::OutliveTheCa] {
        for left in [24 * HOUR, HOUR, MINUTE, -MINUTE] {
            let case = format!("{leaves:?}, {left:#} left");
            let mut cluster = expiring(left, leaves);
            let end = cluster.secret(SIGNER).certificate.validity.not_after;
            let new = add_service(&mut cluster, "new");
            cluster.settle();
            let report = cluster.plan();
            assert_eq!(report.waiting, [], "{case}: {}", text(&report));
            for object in SERVICES.into_iter().chain([new.as_str()]) {
                assert!(cluster.is_by(object, SIGNER), "{case}: {object}");
            }
            // While the previous CA is valid, clients that have only that one accept them.
            if left.is_positive() {
                assert_eq!(cluster.broken(), Vec::<String>::new(), "{case}");
                cluster.pass_to(end);
                assert_eq!(cluster.ended, Vec::<String>::new(), "{case}");
            }
        }
    }
}

#[test]
fn a_new_service_does_not_wait_for_clients_of_an_earlier_ca() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10));
    // The key is lost, so no cross-certificate leads from the previous CA to the next.
    cluster.delete_secret(SIGNER);
    let new = add_service(&mut cluster, "new");
    cluster.delete_secret("shop/web-tls");
    let done = cluster.settle();
    for object in [new.as_str(), "shop/web-tls"] {
        assert!(issue_of(&done, object).is_some() && cluster.is_by(object, SIGNER), "{object}");
    }
    // Every client still accepts the existing certificate, so it waits.
    assert!(!cluster.is_by("shop/db-tls", SIGNER));
    assert!(text(&cluster.plan()).contains("wait shop/db-tls"), "{}", text(&cluster.plan()));
}

#[test]
fn a_service_of_an_expiring_ca_without_key_is_reissued_when_the_fewest_edges_break() {
    // Leaves that expire with the CA leave their readers no time: re-issue now, and name the clients that reject the new one.
    let mut cluster = expiring(HOUR, Leaves::ExpireWithTheCa);
    cluster.delete_secret(SIGNER);
    let report = cluster.plan();
    let step = report.steps.iter().find(|step| step.object == "shop/web-tls").expect("it is re-issued");
    assert!(!step.risks.is_empty(), "{}", text(&report));
    // Clients with the new bundle accept leaves that expire after the CA: re-issue when all other clients have lost their CA.
    let mut cluster = expiring(HOUR, Leaves::OutliveTheCa);
    cluster.delete_secret(SIGNER);
    cluster.settle();
    let until = cluster.plan().waiting[0].waiting.until();
    assert_eq!(until, Some(day(10) + HOUR + SECOND), "{}", text(&cluster.plan()));
    cluster.go_to(day(10) + 2 * HOUR);
    assert!(cluster.is_by("shop/web-tls", SIGNER));
}
