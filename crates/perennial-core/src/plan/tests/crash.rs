//! A crash between any two writes: the next pass continues, and the result is the same.

use std::collections::{BTreeMap, BTreeSet};

use super::fixture::{Cluster, HOUR, MINUTE, SECOND, day, issues};
use super::text::{days, steps};
use crate::plan::{Action, Step};
use crate::policy::Usage;
use crate::snapshot::{BundleState, Observed, SecretState, Slot};
use crate::trust::{CertificateId, Principal};

/// Returns the objects without the times of their issue.
fn outline(cluster: &Cluster<'_>) -> BTreeMap<Slot, Vec<String>> {
    let name = |id: &CertificateId| id.0.split('@').next().unwrap_or_default().to_owned();
    let secrets = || cluster.snapshot.secrets.values().filter_map(Observed::present);
    let current: BTreeSet<&Principal> = secrets().map(|state| &state.certificate.subject).collect();
    let secret = |state: &SecretState| {
        let follows = state.certificate.signed_by.as_ref().is_some_and(|signer| current.contains(signer));
        vec![format!("{}, by a current signer: {follows}, chain of {}", name(&state.certificate.id), state.chain.len())]
    };
    let bundle = |state: &BundleState| {
        let mut members: Vec<String> = state.members.iter().map(name).collect();
        members.sort();
        members
    };
    let secrets = cluster.snapshot.secrets.iter().map(|(slot, it)| (slot, it.present().map(secret)));
    let bundles = cluster.snapshot.bundles.iter().map(|(slot, it)| (slot, it.present().map(bundle)));
    secrets.chain(bundles).map(|(slot, it)| (slot.clone(), it.unwrap_or_default())).collect()
}

/// Does only the first writes of the plan, crashes, and continues a minute later.
fn check_every_prefix(before: &Cluster<'_>, to: jiff::Timestamp) {
    let plan = before.plan();
    let expected = outline(before.clone().go_to(to));
    for length in 0..=plan.steps.len() {
        let mut cluster = before.clone();
        cluster.carry_out(&plan.steps[..length]);
        let next = steps(&plan.steps[length.saturating_sub(1)..plan.steps.len().min(length + 1)]);
        let at = format!("after {length} steps at {}:\n{next}", days(&before.now().to_string()));
        cluster.pass_to(cluster.now() + MINUTE);
        cluster.go_to(to);
        assert_eq!(cluster.ended, Vec::<String>::new(), "{at}");
        for (slot, found) in outline(&cluster) {
            assert_eq!(found, expected[&slot], "{slot} {at}");
        }
    }
}

#[test]
fn one_pass_creates_everything_in_an_empty_cluster() {
    let mut cluster = Cluster::nothing();
    let plan = cluster.plan();
    assert_eq!(plan.waiting, Vec::new());
    cluster.carry_out(&plan.steps);
    let again = cluster.plan();
    assert_eq!((again.steps, again.waiting), (Vec::new(), Vec::new()));
}

/// The order of the writes.
#[test]
fn a_signer_is_written_before_its_bundle_and_both_before_its_leaves() {
    let plan = Cluster::nothing().plan();
    let issued_at = |slot: &Slot| {
        let issues_it = |step: &Step| matches!(&step.action, Action::Issue(issue) if issue.slot == *slot);
        plan.steps.iter().position(issues_it).unwrap()
    };
    let mut leaves = 0;
    for (number, step) in plan.steps.iter().enumerate() {
        let Action::Issue(issue) = &step.action else { continue };
        let Some((signer, id)) = &issue.signer else { continue };
        assert!(issued_at(signer) < number, "{step}");
        if issue.spec.usage == Usage::Signer {
            continue;
        }
        leaves += 1;
        let publishes = |step: &Step| match &step.action {
            Action::Publish(bundles) => bundles.iter().any(|bundle| bundle.members.contains(id)),
            _ => false,
        };
        let last = plan.steps.iter().rposition(publishes).expect("every signer is in a bundle");
        assert!(issued_at(signer) < last && last < number, "{step}");
    }
    assert_eq!(leaves, 25);
}

#[test]
fn a_valid_cluster_needs_no_write() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    for at in [day(1), day(5), day(15) - SECOND] {
        let report = cluster.plan_at(at);
        assert_eq!((report.steps, report.waiting), (Vec::new(), Vec::new()));
    }
}

/// Any write may be the first that fails.
#[test]
fn the_next_pass_recovers_from_a_crash_during_creation() {
    check_every_prefix(&Cluster::nothing(), day(0) + HOUR);
}

#[test]
fn the_next_pass_recovers_from_a_crash_during_a_rotation() {
    let (mut rotations, mut seen) = (Vec::new(), BTreeSet::new());
    let mut cluster = Cluster::installed();
    cluster.go_watching(day(330), |cluster, report| {
        let issues = issues(&report.steps);
        let rows: BTreeSet<&str> = issues.iter().map(|issue| issue.row).collect();
        // Monthly rotations are tested once.
        if issues.iter().any(|issue| issue.spec.usage == Usage::Signer) && seen.insert(rows) {
            rotations.push(cluster.clone());
        }
    });
    assert!(rotations.len() > 4, "{}", rotations.len());
    for before in &rotations {
        check_every_prefix(before, before.now() + 5 * HOUR);
    }
}

/// Any write may be the first that is rejected.
#[test]
fn the_next_pass_recovers_from_a_crash_during_a_forced_rotation() {
    for row in ["etcd-signer", "signing-key", "loadbalancer-serving-signer", "csr-signer", "kubelet-client"] {
        let mut cluster = Cluster::made();
        cluster.go_to(day(2)).force(row, "test");
        check_every_prefix(&cluster, day(3));
    }
}
