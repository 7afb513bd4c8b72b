//! What processes may hold of a bundle, as long as nobody knows better.

use std::sync::Arc;

use expect_test::expect;

use super::fixture::{Cluster, MINUTE, ca, day};
use super::text::days;
use crate::catalog::{Delivery, Span};
use crate::plan::Draft;
use crate::rules::{Observed, Published};
use crate::trust::{CertificateFacts, CertificateId, InUse, Version};

const BUNDLE: &str = "openshift-kube-apiserver/aggregator-client-ca";

/// The versions of a bundle with an old member and two that came together on day 3, a minute later.
fn versions(delivery: Delivery) -> String {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1)).pass_to(day(3) + MINUTE);
    let mut state = cluster.bundle(BUNDLE).clone();
    let signer = cluster.snapshot.certificates.get(&state.members[0]).unwrap().clone();
    (state.members, state.published) = Default::default();
    for (name, since) in [("old", 0), ("one", 3), ("two", 3)] {
        let id = CertificateId(name.into());
        cluster.snapshot.certificates.insert(Arc::new(CertificateFacts { id: id.clone(), ..signer.as_ref().clone() }));
        state
            .published
            .insert(id.clone(), Published { at: day(since), from: None, first: false, reached: None, hurry: None });
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
    let versions = Draft::new(&cluster.snapshot).bundle_versions(&ca(BUNDLE), delivery);
    let text: String = versions.into_iter().map(text).collect();
    days(&text).replace(&ca(BUNDLE).to_string(), "it")
}

#[test]
fn who_reads_late_may_lack_what_came_last_all_of_it_or_each_alone() {
    let hot = Delivery::Reloaded { within: Span::minutes(10) };
    expect![[r#"
        it as it was before one: old until day 3+00:15
        it as it was before one: old + two until day 3+00:15
        it as it was before two: old + one until day 3+00:15
        it: old + one + two
    "#]]
    .assert_eq(&versions(hot));
}

#[test]
fn who_reads_at_a_restart_that_nobody_saw_may_lack_any_one() {
    expect![[r#"
        it without old: one + two
        it without one: old + two
        it without two: old + one
        it: old + one + two
    "#]]
    .assert_eq(&versions(Delivery::Revisioned));
}
