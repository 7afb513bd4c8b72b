//! Cross-signed signers: a client that trusts only one of them accepts leaves of both.

use std::sync::Arc;

use jiff::SignedDuration;

use super::fixture::{Cluster, HOUR, ca, day, issue_of, issues};
use super::text::{days, text};
use crate::catalog::Catalog;
use crate::plan::{Issue, Planner, Scope};
use crate::rules::Reason;
use crate::service_ca::{self, Rotation};
use crate::snapshot::Observed;
use crate::spec::{SubjectSpec, Validity};
use crate::trust::{CertificateId, KeyId, Principal};

const SIGNER: &str = "openshift-service-ca/signing-key";
const BUNDLE: &str = "openshift-service-ca/signing-cabundle";

fn settled() -> Cluster<'static> {
    let mut cluster = Cluster::made();
    cluster.go_to(day(10));
    cluster
}

fn rotation(cluster: &Cluster<'_>, issue: &Issue) -> Option<Rotation> {
    service_ca::rotation(Catalog::builtin(), issue, &cluster.snapshot)
}

#[test]
fn a_rotation_issues_a_cross_certificate_each_way_and_keeps_the_subject() {
    let mut cluster = settled();
    let old = cluster.secret(SIGNER).clone();
    cluster.force("signing-key", "test");
    let report = cluster.plan();
    let issue = issue_of(&report.steps, SIGNER).unwrap();
    assert_eq!(issue.spec.subject, SubjectSpec::Kept(old.subject.clone().unwrap()));
    assert_eq!(issue.subject.name, old.certificate.subject.name);
    assert_ne!(issue.subject.key, old.certificate.subject.key);
    let [cross] = issue.cross_signed_by_earlier.as_slice() else { panic!("{issue:?}") };
    assert_eq!((&cross.of, &cross.by), (&issue.id, &old.certificate.id));
    assert_eq!(cross.validity.not_after, old.certificate.validity.not_after);
    let [earlier_cross_signed] = issue.earlier_cross_signed.as_slice() else { panic!("{issue:?}") };
    assert_eq!((&earlier_cross_signed.of, &earlier_cross_signed.by), (&old.certificate.id, &issue.id));
    // Consumers have 395 days from now on. The cross-certificate expires with the new signer at the latest.
    assert_eq!(days(&earlier_cross_signed.validity.not_after.to_string()), "day 790");
    assert!(earlier_cross_signed.validity.not_after <= issue.spec.validity.not_after);
    cluster.settle();
    for cross in [cross, earlier_cross_signed] {
        assert_eq!(cluster.snapshot.certificates.get(&cross.id).unwrap().validity, cross.validity);
    }
    let members = &cluster.bundle(BUNDLE).members;
    assert!(members.contains(&cluster.secret(SIGNER).certificate.id) && members.contains(&earlier_cross_signed.id));
}

#[test]
fn leaves_follow_a_new_ca_at_once_because_old_bundles_accept_its_cross_certificate() {
    let mut cluster = settled();
    let old = cluster.secret(SIGNER).certificate.id.clone();
    cluster.force("signing-key", "test");
    let report = cluster.plan();
    assert_eq!(report.waiting, Vec::new());
    assert_eq!(issues(&report.steps).iter().filter(|it| rotation(&cluster, it).is_some()).count(), 1);
    for object in ["shop/web-tls", "shop/db-tls"] {
        let issue = issue_of(&report.steps, object).unwrap_or_else(|| panic!("{}", text(&report)));
        assert_eq!(issue.reason, Reason::SignerChanged);
        let signer = issue_of(&report.steps, SIGNER).unwrap();
        // The chain contains the old root, but not the new one: OpenSSL stops its search at a signer in the chain.
        assert_eq!(issue.chain, [signer.cross_signed_by_earlier[0].id.clone(), old.clone()]);
    }
    cluster.settle();
    assert_eq!(cluster.broken(), Vec::<String>::new());
}

#[test]
fn a_changed_chain_is_reissued() {
    let web = "shop/web-tls";
    let reasons = |cluster: &Cluster<'_>| {
        issues(&cluster.plan().steps).into_iter().map(|it| it.reason.clone()).collect::<Vec<_>>()
    };
    let mut cluster = settled();
    // Before the first rotation no cross-certificate is needed; the chain contains the signer.
    cluster.change_secret(web, |state| state.chain.clear());
    assert_eq!(reasons(&cluster), [Reason::ChainDiffers { missing: 1, foreign: 0 }]);
    cluster.settle();
    let signer = cluster.secret(SIGNER).certificate.id.clone();
    assert_eq!(cluster.secret(web).chain, std::slice::from_ref(&signer));
    cluster.force("signing-key", "test");
    cluster.settle();
    let whole = cluster.secret(web).chain.clone();
    assert_eq!(reasons(&cluster), []);
    // The order of the original operator, with the new CA itself in it.
    let current = cluster.secret(SIGNER).certificate.id.clone();
    cluster.change_secret(web, |state| state.chain = vec![current, whole[0].clone()]);
    assert_eq!(reasons(&cluster), []);
    cluster.change_secret(web, |state| state.chain = vec![signer]);
    assert_eq!(reasons(&cluster), [Reason::ChainDiffers { missing: 1, foreign: 0 }]);
    let other = cluster.secret("shop/db-tls").certificate.id.clone();
    cluster.change_secret(web, |state| state.chain = [whole.clone(), vec![other]].concat());
    assert_eq!(reasons(&cluster), [Reason::ChainDiffers { missing: 0, foreign: 1 }]);
    cluster.settle();
    assert_eq!(cluster.secret(web).chain, whole);
    // After the old CA has expired, its cross-certificate is useless but harmless. The next certificate has none.
    cluster.go_to(day(789));
    let before = cluster.secret(web).clone();
    cluster.go_to(day(795));
    assert_eq!(cluster.secret(web), &before);
}

#[test]
fn two_forced_rotations_in_a_row_break_no_edge() {
    for apart in [SignedDuration::from_secs(1), 24 * HOUR] {
        let mut cluster = settled();
        for reason in ["first", "second"] {
            cluster.force("signing-key", reason);
            let done = cluster.settle();
            assert_eq!(issues(&done).len(), 3, "{reason}");
            assert_eq!(cluster.broken(), Vec::<String>::new());
            cluster.pass_to(cluster.now() + apart);
        }
        // The cross-certificate of the first rotation is still served: clients may hold earlier bundles for a year.
        assert_eq!(cluster.secret(SIGNER).cross_signed_by_earlier.len(), 2);
        cluster.go_to(day(430));
        assert_eq!(cluster.broken(), Vec::<String>::new());
        assert_eq!(cluster.ended, Vec::<String>::new());
    }
}

#[test]
fn a_lost_key_signs_no_cross_certificate() {
    let cluster = settled();
    let old = cluster.secret(SIGNER).certificate.clone();
    for found in [Observed::Absent, Observed::Unreadable { why: "tls.key is missing".to_owned() }] {
        let mut cluster = cluster.clone();
        cluster.set_secret(SIGNER, found);
        let report = cluster.plan();
        let issue = issue_of(&report.steps, SIGNER).unwrap();
        assert_eq!(issue.cross_signed_by_earlier, []);
        let told = rotation(&cluster, issue).unwrap();
        assert_eq!((told.previous_until, told.restart_before), (None, None));
        assert_eq!(told.cross_signed_until, old.validity.not_after);
        assert_eq!(
            issue.earlier_cross_signed.iter().map(|it| (&it.of, &it.by)).collect::<Vec<_>>(),
            [(&old.id, &issue.id)]
        );
        // Consumers that have not reloaded the bundle would reject leaves of the new CA.
        assert_eq!(issues(&report.steps).len(), 1, "{}", text(&report));
        cluster.go_to(day(300));
        assert_eq!(cluster.ended, Vec::<String>::new());
    }
}

#[test]
fn the_new_ca_does_not_cross_sign_a_foreign_ca_in_the_bundle() {
    let mut cluster = settled();
    let old = cluster.secret(SIGNER).certificate.clone();
    let mut foreign = old.as_ref().clone();
    foreign.id = CertificateId("foreign".into());
    foreign.subject = Principal { name: "CN=somebody".into(), key: KeyId("theirs".into()) };
    foreign.signed_by = Some(foreign.subject.clone());
    // It begins and expires last.
    foreign.validity = Validity { not_before: day(9), not_after: day(5000) };
    let id = foreign.id.clone();
    cluster.snapshot.certificates.insert(Arc::new(foreign));
    let mut edited = cluster.bundle(BUNDLE).clone();
    edited.members.push(id.clone());
    cluster.snapshot.bundles.insert(ca(BUNDLE), Observed::Present(edited));
    cluster.settle();
    assert!(cluster.bundle(BUNDLE).members.contains(&id), "a client may need it");
    cluster.delete_secret(SIGNER);
    let earlier_cross_signed = |cluster: &Cluster<'_>| -> Vec<CertificateId> {
        let report = cluster.plan();
        issue_of(&report.steps, SIGNER).unwrap().earlier_cross_signed.iter().map(|it| it.of.clone()).collect()
    };
    assert_eq!(earlier_cross_signed(&cluster), std::slice::from_ref(&old.id));
    // Without Services whose certificates show the signer, the signer's name decides.
    cluster.snapshot.secrets.retain(|slot, _| !slot.object_text().starts_with("shop/"));
    cluster.snapshot.services.found_mut().clear();
    assert_eq!(earlier_cross_signed(&cluster), std::slice::from_ref(&old.id));
}

#[test]
fn the_service_ca_rotates_at_half_of_its_validity() {
    let mut cluster = settled();
    let mut rotated = None;
    cluster.go_watching(day(800), |cluster, report| {
        if issue_of(&report.steps, SIGNER).is_some() {
            rotated.get_or_insert(cluster.now());
        }
    });
    assert_eq!(days(&rotated.unwrap().to_string()), "day 395");
    assert_eq!(cluster.broken(), Vec::<String>::new());
    assert_eq!(cluster.ended, Vec::<String>::new());
}

#[test]
fn a_late_rotation_leaves_consumers_the_whole_overlap() {
    let mut cluster = settled();
    cluster.pass_to(day(700));
    let report = cluster.plan();
    let [earlier_cross_signed] = issue_of(&report.steps, SIGNER).unwrap().earlier_cross_signed.as_slice() else {
        panic!("{}", text(&report))
    };
    // The earlier CA expires on day 790: too early for clients that reload the bundle once a year.
    assert_eq!(days(&earlier_cross_signed.validity.not_after.to_string()), "day 1095");
}

#[test]
fn a_copy_is_proved_and_written_with_the_cross_certificate() {
    let mut catalog = Catalog::builtin().clone();
    let signer = catalog.rows.iter_mut().find(|row| row.id == "kube-control-plane-signer").unwrap();
    signer.cross_signed = true;
    let planner = Planner::new(&catalog);
    let mut cluster = Cluster::made_of(&planner);
    cluster.go_to(day(10)).force("kube-control-plane-signer", "test");
    cluster.force("kube-controller-manager-client-cert-key", "test");
    cluster.settle();
    let home = cluster.secret("openshift-config-managed/kube-controller-manager-client-cert-key");
    let copy = cluster.secret("openshift-kube-controller-manager/kube-controller-manager-client-cert-key");
    let signer = cluster.secret("openshift-kube-apiserver-operator/kube-control-plane-signer");
    assert_eq!(home.certificate.signed_by.as_ref(), Some(&signer.certificate.subject));
    assert_eq!((&copy.certificate.id, &copy.chain), (&home.certificate.id, &signer.cross_signed_by_earlier));
}

#[test]
fn an_adopted_ca_with_twelve_months_of_validity_is_rotated_at_once() {
    let mut cluster = settled();
    let mut state = cluster.secret(SIGNER).clone();
    let mut certificate = state.certificate.as_ref().clone();
    certificate.validity.not_after = certificate.validity.not_before + 365 * 24 * HOUR;
    state.certificate = certificate.clone().into();
    // No annotation records its time of issue.
    state.issued_at = None;
    let ends = certificate.validity.not_after;
    cluster.snapshot.certificates.insert(certificate.into());
    cluster.set_secret(SIGNER, Observed::Present(state));
    let report = cluster.plan();
    let issue = issue_of(&report.steps, SIGNER).unwrap_or_else(|| panic!("{}", text(&report)));
    assert!(matches!(issue.reason, Reason::PastRefresh { .. }), "{:?}", issue.reason);
    assert_eq!(days(&issue.spec.validity.not_after.to_string()), "day 800");
    // The report names the clients that do not reload in time.
    let told = rotation(&cluster, issue).unwrap();
    assert_eq!((told.previous_until, told.restart_before), (Some(ends), told.previous_until));
    assert_eq!(days(&told.cross_signed_until.to_string()), "day 405");
    // With one second more than needed, the report names none.
    let mut cluster = settled();
    let mut state = cluster.secret(SIGNER).clone();
    let mut longer = state.certificate.as_ref().clone();
    longer.validity.not_after = cluster.now() + 395 * 24 * HOUR + SignedDuration::from_secs(1);
    state.certificate = longer.clone().into();
    cluster.snapshot.certificates.insert(longer.into());
    cluster.set_secret(SIGNER, Observed::Present(state));
    assert_eq!(issue_of(&cluster.plan().steps, SIGNER), None);
    cluster.pass_to(cluster.now() + SignedDuration::from_secs(2));
    let report = cluster.plan();
    let told = rotation(&cluster, issue_of(&report.steps, SIGNER).unwrap()).unwrap();
    assert_eq!((told.previous_until.is_some(), told.restart_before), (true, None), "in time");
}

#[test]
fn every_new_reason_rotates_at_once_and_names_the_clients_that_have_not_reloaded() {
    let mut cluster = settled();
    let first_end = cluster.secret(SIGNER).certificate.validity.not_after;
    assert_eq!(service_ca::clients(cluster.planner, &cluster.snapshot, false), []);
    // Earlier requests by the command, and the state of the policy, make no difference.
    cluster.snapshot.asked.insert(super::fixture::tls(SIGNER), "asked for before".to_owned());
    cluster.change_secret(SIGNER, |state| state.forced = Some("asked for before".to_owned()));
    cluster.snapshot.policy = Observed::Unknown { why: "403".to_owned() };
    let named = service_ca::clients(cluster.planner, &cluster.snapshot, true);
    assert_eq!(named.len(), 1, "{named:?}");
    cluster.snapshot.policy = Observed::Absent;
    for (number, reason) in ["first", "second", "third"].into_iter().enumerate() {
        cluster.request(reason);
        let named = service_ca::clients(cluster.planner, &cluster.snapshot, true);
        assert_eq!(named.len(), number + 1, "{named:?}");
        // The clients of the first CA are the first to lose their anchor, when that CA expires.
        assert_eq!((named[0].accept_until, named[number].since), (Some(first_end), cluster.now()));
        assert_eq!(issues(&cluster.settle()).len(), 3, "{reason}");
        assert_eq!(cluster.secret(SIGNER).requested.as_deref(), Some(reason));
        // Afterwards the same clients are named.
        assert_eq!(service_ca::clients(cluster.planner, &cluster.snapshot, false), named);
        assert_eq!(cluster.broken(), Vec::<String>::new());
        cluster.pass_to(cluster.now() + SignedDuration::from_mins(5));
        assert_eq!(issues(&cluster.settle()).len(), 0, "once for each reason");
    }
    // Without the key of the previous CA, its clients reject leaves of the next one.
    cluster.delete_secret(SIGNER);
    let named = service_ca::clients(cluster.planner, &cluster.snapshot, true);
    assert!(named.iter().all(|it| it.accept_until.is_none()), "{named:?}");
    cluster.settle();
    assert_eq!(cluster.secret(SIGNER).requested.as_deref(), Some("third"), "so that no second rotation follows");
    // A year later every client has reloaded the bundle, just before the next rotation.
    cluster.go_to(day(404) + HOUR);
    assert_eq!(service_ca::clients(cluster.planner, &cluster.snapshot, false), []);
}

/// Two requests do not undo each other: the last reason of each is done once.
#[test]
fn the_reasons_of_an_annotation_and_of_a_resource_are_recorded_apart() {
    let mut cluster = settled();
    cluster.force("signing-key", "insisted");
    cluster.request("asked for");
    assert_eq!(issues(&cluster.settle()).len(), 3, "one for both");
    assert_eq!(issues(&cluster.settle()), Vec::<&Issue>::new());
    cluster.pass_to(cluster.now() + 400 * 24 * HOUR);
    cluster.settle();
    cluster.pass_to(cluster.now() + 394 * 24 * HOUR + HOUR);
    cluster.request("asked for again");
    assert!(issue_of(&cluster.settle(), SIGNER).is_some());
    assert_eq!(issues(&cluster.settle()), Vec::<&Issue>::new());
    let state = cluster.secret(SIGNER);
    assert_eq!((state.forced.as_deref(), state.requested.as_deref()), (Some("insisted"), Some("asked for again")));
    // A CA that is re-issued because it was lost fulfils both requests.
    cluster.delete_secret(SIGNER);
    cluster.settle();
    let state = cluster.secret(SIGNER);
    assert_eq!((state.forced.as_deref(), state.requested.as_deref()), (Some("insisted"), Some("asked for again")));
}

#[test]
fn a_requested_short_validity_does_not_shorten_any_wait() {
    let mut cluster = settled();
    cluster.delete_secret(SIGNER);
    cluster.settle();
    // No cross-certificate leads from the old CA to the new one: Services wait for clients with only the old one.
    cluster.go_to(day(20));
    cluster.ask_for_validity(SignedDuration::from_hours(30 * 24));
    assert_eq!(issues(&cluster.plan().steps).len(), 0);
}

#[test]
fn in_an_emergency_services_follow_at_once_and_again_at_half_of_the_cas_validity() {
    for life in [SignedDuration::from_hours(30 * 24), HOUR] {
        let mut cluster = settled();
        let old = cluster.secret(SIGNER).certificate.clone();
        cluster.ask_for_validity(life);
        cluster.force("signing-key", "leaked");
        let report = cluster.plan();
        assert_eq!((issues(&report.steps).len(), report.waiting.len()), (3, 0), "{}", text(&report));
        // The CA stays trusted until it expires, unless it is distrusted.
        let told = rotation(&cluster, issue_of(&report.steps, SIGNER).unwrap()).unwrap();
        assert_eq!(told.previous_until, Some(cluster.now() + life));
        assert_eq!(told.cross_signed_until, old.validity.not_after);
        cluster.settle();
        assert_eq!(cluster.secret(SIGNER).certificate.validity.not_after, cluster.now() + life);
        // A Service that lost its Secret gets another certificate at any time.
        for part in [1, 3, 9] {
            cluster.go_to(cluster.now() + life / 20 * part);
            cluster.delete_secret("shop/web-tls");
            let report = cluster.plan();
            assert!(issue_of(&report.steps, "shop/web-tls").is_some(), "{part}: {}", text(&report));
            cluster.settle();
        }
        let mut rotated = Vec::new();
        cluster.go_watching(cluster.now() + life * 2, |cluster, report| {
            if let Some(issue) = issue_of(&report.steps, SIGNER) {
                assert_eq!(issue.spec.validity.not_after, cluster.now() + life);
                rotated.push(cluster.now());
            }
        });
        assert!((3..=5).contains(&rotated.len()), "{rotated:?}");
        assert_eq!((cluster.broken(), &cluster.ended), (Vec::new(), &Vec::new()));
        // Another validity applies to the next CA. When the emergency ends, a CA with the normal validity follows at once.
        let again = |cluster: &Cluster<'_>| issue_of(&cluster.plan().steps, SIGNER).is_some();
        for other in [life / 2 + HOUR / 2, life * 3] {
            cluster.ask_for_validity(other);
            assert!(!again(&cluster));
        }
        cluster.snapshot.service_ca = Observed::Absent;
        assert!(again(&cluster));
        cluster.settle();
        assert!(cluster.is_by("shop/web-tls", SIGNER) && cluster.is_by("shop/db-tls", SIGNER));
        assert_eq!((cluster.broken(), &cluster.ended), (Vec::new(), &Vec::new()));
        // The planner waits for no client that did not reload in time, now or later. From then on everything is normal.
        cluster.go_to(cluster.now() + SignedDuration::from_hours(24 * 60));
        assert_eq!((cluster.broken(), &cluster.ended), (Vec::new(), &Vec::new()));
        cluster.force("signing-key", "a year later");
        cluster.settle();
        let state = cluster.bundle(BUNDLE);
        assert_eq!(state.published[&cluster.secret(SIGNER).certificate.id].lag_override, None);
    }
}

#[test]
fn a_new_service_ca_has_the_requested_validity() {
    let mut cluster = settled();
    cluster.ask_for_validity(SignedDuration::from_hours(800 * 24));
    cluster.force("signing-key", "test");
    let report = cluster.plan();
    let issue = issue_of(&report.steps, SIGNER).unwrap();
    assert_eq!(days(&issue.spec.validity.not_after.to_string()), "day 810");
    // The certificates of Services have their own validity.
    let web = issue_of(&report.steps, "shop/web-tls").unwrap();
    assert_eq!(days(&web.spec.validity.not_after.to_string()), "day 740");
}

#[test]
fn a_cluster_plan_leaves_out_the_certificates_of_services() {
    let mut cluster = settled();
    cluster.force("signing-key", "test");
    let planner = Planner::new(Catalog::builtin());
    let report = planner.plan(&cluster.snapshot, &Scope::Cluster);
    assert_eq!(issues(&report.steps).len(), 1, "{}", text(&report));
    cluster.snapshot.apply(&report.steps[0]);
    let instance = cluster.snapshot.service(&super::fixture::tls("shop/web-tls")).unwrap();
    let alone = planner.plan(&cluster.snapshot, &Scope::Certificate("service-serving", instance));
    assert_eq!(issues(&alone.steps).len(), 1);
}
