//! The versions of a bundle that processes may hold without an observation.

use std::sync::Arc;

use expect_test::expect;

use super::fixture::{Cluster, MINUTE, ca, day, tls};
use super::text::days;
use crate::catalog::{Delivery, Span};
use crate::plan::Draft;
use crate::snapshot::{Observed, Published};
use crate::trust::{CertificateFacts, CertificateId, InUse, KeyId, Principal, Version};

const BUNDLE: &str = "openshift-kube-apiserver/aggregator-client-ca";

/// Returns the versions of a bundle with an old member and two that were added together on day 3, a minute later.
fn versions(delivery: Delivery) -> String {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1)).pass_to(day(3) + MINUTE);
    let mut state = cluster.bundle(BUNDLE).clone();
    let signer = cluster.snapshot.certificates.get(&state.members[0]).unwrap().clone();
    (state.members, state.published) = Default::default();
    for (name, since) in [("old", 0), ("one", 3), ("two", 3)] {
        let id = CertificateId(name.into());
        cluster.snapshot.certificates.insert(Arc::new(CertificateFacts { id: id.clone(), ..signer.as_ref().clone() }));
        state.published.insert(
            id.clone(),
            Published { at: day(since), from: None, first: false, reached: None, lag_override: None },
        );
        state.members.push(id);
    }
    cluster.snapshot.bundles.insert(ca(BUNDLE), Observed::Present(state));
    let text = |version: Version| {
        let members: Vec<String> = version.members.iter().map(|it| it.id.to_string()).collect();
        let until = match version.in_use {
            InUse::Always => String::new(),
            InUse::Until(end) => format!(" until {end}"),
        };
        format!("{}: {}{until}\n", version.name, members.join(" + "))
    };
    let versions = Draft::new(&cluster.snapshot).bundle_versions(&ca(BUNDLE), delivery, None);
    let text: String = versions.into_iter().map(text).collect();
    days(&text).replace(&ca(BUNDLE).to_string(), "it")
}

#[test]
fn a_late_reader_may_lack_all_new_members_or_any_one_of_them() {
    let hot = Delivery::Reloaded { within: Span::minutes(10) };
    expect![[r#"
        it without one: old until day 3+00:15
        it without one: old + two until day 3+00:15
        it without two: old + one until day 3+00:15
        it: old + one + two
    "#]]
    .assert_eq(&versions(hot));
}

#[test]
fn a_reader_with_an_unobserved_restart_may_lack_any_member() {
    expect![[r#"
        it without old: one + two
        it without one: old + two
        it without two: old + one
        it: old + one + two
    "#]]
    .assert_eq(&versions(Delivery::Revisioned));
}

#[test]
fn an_earlier_certificate_is_named_by_when_it_was_replaced() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(20));
    let slot = tls("openshift-kube-apiserver/aggregator-client");
    let versions = Draft::new(&cluster.snapshot).leaf_versions(&slot, Delivery::Never, None);
    let names: Vec<String> = versions.iter().map(|it| days(&it.name).replace(&slot.to_string(), "it")).collect();
    let (newest, earlier) = names.split_last().unwrap();
    assert_eq!(newest, "it");
    assert!(
        !earlier.is_empty() && earlier.iter().all(|name| name.starts_with("it as it was until day ")),
        "{earlier:?}"
    );
}

#[test]
fn a_ca_with_a_fingerprint_is_named_by_its_subject_and_its_key() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    let mut state = cluster.bundle(BUNDLE).clone();
    let id = CertificateId("ab".repeat(32).into());
    let subject = Principal { name: "CN=ca".into(), key: KeyId("3f2a1b9c00112233445566778899aabb".into()) };
    let other = cluster.snapshot.certificates.get(&state.members[0]).unwrap().as_ref().clone();
    cluster.snapshot.certificates.insert(Arc::new(CertificateFacts { id: id.clone(), subject, ..other }));
    state.members.push(id);
    cluster.snapshot.bundles.insert(ca(BUNDLE), Observed::Present(state));
    let versions = Draft::new(&cluster.snapshot).bundle_versions(&ca(BUNDLE), Delivery::Revisioned, None);
    let expected = format!("{} without CN=ca (key 3f2a1b9c)", ca(BUNDLE));
    assert!(versions.iter().any(|it| it.name == expected), "{versions:?}");
}
