//! Signers that sign each other: whoever knows only one accepts both.

use std::sync::Arc;

use jiff::SignedDuration;

use super::fixture::{Cluster, HOUR, ca, day, issue_of, issues};
use super::text::{days, text};
use crate::catalog::Catalog;
use crate::plan::{Issue, Planner, Scope};
use crate::rules::{Observed, Reason};
use crate::service_ca::{self, Rotation};
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
fn a_rotation_makes_a_bridge_each_way_and_keeps_the_subject() {
    let mut cluster = settled();
    let old = cluster.secret(SIGNER).clone();
    cluster.force("signing-key", "test");
    let report = cluster.plan();
    let issue = issue_of(&report.steps, SIGNER).unwrap();
    assert_eq!(issue.spec.subject, SubjectSpec::Kept(old.subject.clone().unwrap()));
    assert_eq!(issue.subject.name, old.certificate.subject.name);
    assert_ne!(issue.subject.key, old.certificate.subject.key);
    let [bridge] = issue.bridges.as_slice() else { panic!("{issue:?}") };
    assert_eq!((&bridge.of, &bridge.by), (&issue.id, &old.certificate.id));
    assert_eq!(bridge.validity.not_after, old.certificate.validity.not_after);
    let [bridged] = issue.bridged.as_slice() else { panic!("{issue:?}") };
    assert_eq!((&bridged.of, &bridged.by), (&old.certificate.id, &issue.id));
    // Consumers have 395 days from now on, and it ends with the new one at the latest.
    assert_eq!(days(&bridged.validity.not_after.to_string()), "day 790");
    assert!(bridged.validity.not_after <= issue.spec.validity.not_after);
    cluster.settle();
    for bridge in [bridge, bridged] {
        assert_eq!(cluster.snapshot.certificates.get(&bridge.id).unwrap().validity, bridge.validity);
    }
    let members = &cluster.bundle(BUNDLE).members;
    assert!(members.contains(&cluster.secret(SIGNER).certificate.id) && members.contains(&bridged.id));
}

#[test]
fn certificates_follow_at_once_because_old_bundles_accept_them_by_the_bridge() {
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
        // And the root that it leads to, but not the new one: where OpenSSL finds that among what is served, it looks no further.
        assert_eq!(issue.chain, [signer.bridges[0].id.clone(), old.clone()]);
    }
    cluster.settle();
    assert_eq!(cluster.broken(), Vec::<String>::new());
}

#[test]
fn a_chain_that_somebody_cuts_or_adds_to_is_made_again() {
    let web = "shop/web-tls";
    let reasons = |cluster: &Cluster<'_>| {
        issues(&cluster.plan().steps).into_iter().map(|it| it.reason.clone()).collect::<Vec<_>>()
    };
    let mut cluster = settled();
    // Before there was another CA, nothing has to lead anywhere; but a server says whom it belongs to.
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
    // When the old CA is over, what led to it is of no use and harms nobody: it goes with the next certificate.
    cluster.go_to(day(789));
    let before = cluster.secret(web).clone();
    cluster.go_to(day(795));
    assert_eq!(cluster.secret(web), &before);
}

#[test]
fn two_forced_rotations_in_a_row_keep_everything_accepted() {
    for apart in [SignedDuration::from_secs(1), 24 * HOUR] {
        let mut cluster = settled();
        for reason in ["first", "second"] {
            cluster.force("signing-key", reason);
            let done = cluster.settle();
            assert_eq!(issues(&done).len(), 3, "{reason}");
            assert_eq!(cluster.broken(), Vec::<String>::new());
            cluster.pass_to(cluster.now() + apart);
        }
        // The bridge of the first is still served: bundles of before it are out there for a year.
        assert_eq!(cluster.secret(SIGNER).bridges.len(), 2);
        cluster.go_to(day(430));
        assert_eq!(cluster.broken(), Vec::<String>::new());
        assert_eq!(cluster.ended, Vec::<String>::new());
    }
}

#[test]
fn a_destroyed_key_signs_no_bridge() {
    let cluster = settled();
    let old = cluster.secret(SIGNER).certificate.clone();
    for found in [Observed::Absent, Observed::Unreadable { why: "tls.key is missing".to_owned() }] {
        let mut cluster = cluster.clone();
        cluster.set_secret(SIGNER, found);
        let report = cluster.plan();
        let issue = issue_of(&report.steps, SIGNER).unwrap();
        assert_eq!(issue.bridges, []);
        let told = rotation(&cluster, issue).unwrap();
        assert_eq!((told.previous_until, told.restart_before), (None, None));
        assert_eq!(told.bridged_until, old.validity.not_after);
        assert_eq!(issue.bridged.iter().map(|it| (&it.of, &it.by)).collect::<Vec<_>>(), [(&old.id, &issue.id)]);
        // Consumers that have not read the new bundle would refuse what the new one signs.
        assert_eq!(issues(&report.steps).len(), 1, "{}", text(&report));
        cluster.go_to(day(300));
        assert_eq!(cluster.ended, Vec::<String>::new());
    }
}

#[test]
fn nobody_vouches_for_what_somebody_else_put_into_the_bundle() {
    let mut cluster = settled();
    let old = cluster.secret(SIGNER).certificate.clone();
    let mut foreign = old.as_ref().clone();
    foreign.id = CertificateId("foreign".into());
    foreign.subject = Principal { name: "CN=somebody".into(), key: KeyId("theirs".into()) };
    foreign.signed_by = Some(foreign.subject.clone());
    // It begins and ends last.
    foreign.validity = Validity { not_before: day(9), not_after: day(5000) };
    let id = foreign.id.clone();
    cluster.snapshot.certificates.insert(Arc::new(foreign));
    let mut edited = cluster.bundle(BUNDLE).clone();
    edited.members.push(id.clone());
    cluster.snapshot.bundles.insert(ca(BUNDLE), Observed::Present(edited));
    cluster.settle();
    assert!(cluster.bundle(BUNDLE).members.contains(&id), "somebody may need it");
    cluster.delete_secret(SIGNER);
    let bridged = |cluster: &Cluster<'_>| -> Vec<CertificateId> {
        let report = cluster.plan();
        issue_of(&report.steps, SIGNER).unwrap().bridged.iter().map(|it| it.of.clone()).collect()
    };
    assert_eq!(bridged(&cluster), std::slice::from_ref(&old.id));
    // Where there are no Services that say who has signed, its name does.
    cluster.snapshot.secrets.retain(|slot, _| !slot.object_text().starts_with("shop/"));
    cluster.snapshot.services.clear();
    assert_eq!(bridged(&cluster), std::slice::from_ref(&old.id));
}

#[test]
fn a_planned_rotation_happens_at_half_of_its_life() {
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
fn however_late_it_comes_consumers_have_the_whole_overlap() {
    let mut cluster = settled();
    cluster.pass_to(day(700));
    let report = cluster.plan();
    let [bridged] = issue_of(&report.steps, SIGNER).unwrap().bridged.as_slice() else { panic!("{}", text(&report)) };
    // The earlier one ends on day 790: too early for who reads its bundle once a year.
    assert_eq!(days(&bridged.validity.not_after.to_string()), "day 1095");
}

#[test]
fn a_copy_is_proved_and_made_with_the_bridge() {
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
    assert_eq!((&copy.certificate.id, &copy.chain), (&home.certificate.id, &signer.bridges));
}

#[test]
fn one_that_others_made_for_twelve_months_is_replaced_at_once() {
    let mut cluster = settled();
    let mut state = cluster.secret(SIGNER).clone();
    let mut certificate = state.certificate.as_ref().clone();
    certificate.validity.not_after = certificate.validity.not_before + 365 * 24 * HOUR;
    state.certificate = certificate.clone().into();
    // Nobody wrote down when it was made.
    state.issued_at = None;
    let ends = certificate.validity.not_after;
    cluster.snapshot.certificates.insert(certificate.into());
    cluster.set_secret(SIGNER, Observed::Present(state));
    let report = cluster.plan();
    let issue = issue_of(&report.steps, SIGNER).unwrap_or_else(|| panic!("{}", text(&report)));
    assert!(matches!(issue.reason, Reason::PastRefresh { .. }), "{:?}", issue.reason);
    assert_eq!(days(&issue.spec.validity.not_after.to_string()), "day 800");
    // Who does not read its bundle again in time is told.
    let told = rotation(&cluster, issue).unwrap();
    assert_eq!((told.previous_until, told.restart_before), (Some(ends), told.previous_until));
    assert_eq!(days(&told.bridged_until.to_string()), "day 405");
    // And with a second more than is needed it is not.
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
    // What the command asked for before, and what is known of the policy, makes no difference.
    cluster.snapshot.asked.insert(super::fixture::tls(SIGNER), "asked for before".to_owned());
    cluster.change_secret(SIGNER, |state| state.forced = Some("asked for before".to_owned()));
    cluster.snapshot.policy = Observed::Unknown { why: "403".to_owned() };
    let named = service_ca::clients(cluster.planner, &cluster.snapshot, true);
    assert_eq!(named.len(), 1, "{named:?}");
    cluster.snapshot.policy = Observed::Absent;
    for (number, reason) in ["first", "second", "third"].into_iter().enumerate() {
        cluster.request("signing-key", reason);
        let named = service_ca::clients(cluster.planner, &cluster.snapshot, true);
        assert_eq!(named.len(), number + 1, "{named:?}");
        // Those of the first CA are the first to lose their anchor, with that CA.
        assert_eq!((named[0].accept_until, named[number].since), (Some(first_end), cluster.now()));
        assert_eq!(issues(&cluster.settle()).len(), 3, "{reason}");
        assert_eq!(cluster.secret(SIGNER).requested.as_deref(), Some(reason));
        // Afterwards the same clients are named.
        assert_eq!(service_ca::clients(cluster.planner, &cluster.snapshot, false), named);
        assert_eq!(cluster.broken(), Vec::<String>::new());
        cluster.pass_to(cluster.now() + SignedDuration::from_mins(5));
        assert_eq!(issues(&cluster.settle()).len(), 0, "once for each reason");
    }
    // Without the key of the previous CA, its clients reject what the next one signs.
    cluster.delete_secret(SIGNER);
    let named = service_ca::clients(cluster.planner, &cluster.snapshot, true);
    assert!(named.iter().all(|it| it.accept_until.is_none()), "{named:?}");
    cluster.settle();
    assert_eq!(cluster.secret(SIGNER).requested.as_deref(), Some("third"), "so that no second rotation follows");
    // A year later every client has reloaded it, just before the next rotation.
    cluster.go_to(day(404) + HOUR);
    assert_eq!(service_ca::clients(cluster.planner, &cluster.snapshot, false), []);
}

/// Two who ask do not undo each other: what each asked for last is done once.
#[test]
fn the_reasons_of_an_annotation_and_of_a_resource_are_recorded_apart() {
    let mut cluster = settled();
    cluster.force("signing-key", "insisted");
    cluster.request("signing-key", "asked for");
    assert_eq!(issues(&cluster.settle()).len(), 3, "one for both");
    assert_eq!(issues(&cluster.settle()), Vec::<&Issue>::new());
    cluster.pass_to(cluster.now() + 400 * 24 * HOUR);
    cluster.settle();
    cluster.pass_to(cluster.now() + 394 * 24 * HOUR + HOUR);
    cluster.request("signing-key", "asked for again");
    assert!(issue_of(&cluster.settle(), SIGNER).is_some());
    assert_eq!(issues(&cluster.settle()), Vec::<&Issue>::new());
    let state = cluster.secret(SIGNER);
    assert_eq!((state.forced.as_deref(), state.requested.as_deref()), (Some("insisted"), Some("asked for again")));
    // One that is made again because it was lost has happened for both.
    cluster.delete_secret(SIGNER);
    cluster.settle();
    let state = cluster.secret(SIGNER);
    assert_eq!((state.forced.as_deref(), state.requested.as_deref()), (Some("insisted"), Some("asked for again")));
}

#[test]
fn a_short_life_that_is_only_asked_for_hurries_nobody() {
    let mut cluster = settled();
    cluster.delete_secret(SIGNER);
    cluster.settle();
    // Nothing leads from the old CA to the new one: Services wait for who has read only the old one.
    cluster.go_to(day(20));
    cluster.snapshot.settings.lives.insert("signing-key".to_owned(), 30 * 86_400);
    assert_eq!(issues(&cluster.plan().steps).len(), 0);
}

#[test]
fn in_an_emergency_services_follow_at_once_and_again_at_half_of_its_life() {
    for life in [SignedDuration::from_hours(30 * 24), HOUR] {
        let mut cluster = settled();
        let old = cluster.secret(SIGNER).certificate.clone();
        cluster.snapshot.settings.lives.insert("signing-key".to_owned(), life.as_secs().try_into().unwrap());
        cluster.force("signing-key", "leaked");
        let report = cluster.plan();
        assert_eq!((issues(&report.steps).len(), report.waiting.len()), (3, 0), "{}", text(&report));
        // It stays trusted until its own end all the same, if nobody distrusts it.
        let told = rotation(&cluster, issue_of(&report.steps, SIGNER).unwrap()).unwrap();
        assert_eq!(told.previous_until, Some(cluster.now() + life));
        assert_eq!(told.bridged_until, old.validity.not_after);
        cluster.settle();
        assert_eq!(cluster.secret(SIGNER).certificate.validity.not_after, cluster.now() + life);
        // Who lost theirs gets another at any time.
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
        // Another life is for the next one. When it is over, one that everybody can come to follows at once.
        let again = |cluster: &Cluster<'_>| issue_of(&cluster.plan().steps, SIGNER).is_some();
        for other in [life / 2 + HOUR / 2, life * 3] {
            cluster.snapshot.settings.lives.insert("signing-key".to_owned(), other.as_secs().try_into().unwrap());
            assert!(!again(&cluster));
        }
        cluster.snapshot.settings.lives.clear();
        assert!(again(&cluster));
        cluster.settle();
        assert!(cluster.is_by("shop/web-tls", SIGNER) && cluster.is_by("shop/db-tls", SIGNER));
        assert_eq!((cluster.broken(), &cluster.ended), (Vec::new(), &Vec::new()));
        // Whoever did not come to it in time is not waited for, now or later; and from then on everything is as before.
        cluster.go_to(cluster.now() + SignedDuration::from_hours(24 * 60));
        assert_eq!((cluster.broken(), &cluster.ended), (Vec::new(), &Vec::new()));
        cluster.force("signing-key", "a year later");
        cluster.settle();
        let state = cluster.bundle(BUNDLE);
        assert_eq!(state.published[&cluster.secret(SIGNER).certificate.id].hurry, None);
    }
}

#[test]
fn it_lives_as_long_as_somebody_asks_for() {
    let mut cluster = settled();
    cluster.snapshot.settings.lives.insert("signing-key".to_owned(), 800 * 86_400);
    cluster.force("signing-key", "test");
    let report = cluster.plan();
    let issue = issue_of(&report.steps, SIGNER).unwrap();
    assert_eq!(days(&issue.spec.validity.not_after.to_string()), "day 810");
    // The certificates of Services have their own.
    let web = issue_of(&report.steps, "shop/web-tls").unwrap();
    assert_eq!(days(&web.spec.validity.not_after.to_string()), "day 740");
}

#[test]
fn the_certificates_of_services_are_left_out_where_each_is_planned_for_itself() {
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
