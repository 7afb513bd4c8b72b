//! A crash between any two writes: the next pass recovers, and ends where it would have ended.

use std::collections::{BTreeMap, BTreeSet};

use super::fixture::{Cluster, HOUR, MINUTE, SECOND, day, issues};
use super::text::{days, steps};
use crate::plan::{Action, Step};
use crate::policy::Usage;
use crate::rules::{BundleState, Observed, SecretState};
use crate::snapshot::Slot;
use crate::trust::{CertificateId, Principal};

/// What exists, without the instants at which it was made.
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

/// Makes only some of the writes of the plan, dies, and goes on a minute later.
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

/// R01.
#[test]
fn from_nothing_everything_is_made_in_one_pass() {
    let mut cluster = Cluster::nothing();
    let plan = cluster.plan();
    assert_eq!(plan.waiting, Vec::new());
    cluster.carry_out(&plan.steps);
    let again = cluster.plan();
    assert_eq!((again.steps, again.waiting), (Vec::new(), Vec::new()));
}

/// R01: the order.
#[test]
fn a_signer_comes_before_its_bundle_and_both_before_what_it_signs() {
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
        let last = plan.steps.iter().rposition(publishes).expect("whoever signs is trusted somewhere");
        assert!(issued_at(signer) < last && last < number, "{step}");
    }
    assert_eq!(leaves, 25);
}

/// R02.
#[test]
fn where_everything_is_valid_nothing_is_written() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(1));
    for at in [day(1), day(5), day(15) - SECOND] {
        let report = cluster.plan_at(at);
        assert_eq!((report.steps, report.waiting), (Vec::new(), Vec::new()));
    }
}

/// R03, R04: whichever write is the first that fails.
#[test]
fn a_crash_while_everything_is_made_is_recovered_from() {
    check_every_prefix(&Cluster::nothing(), day(0) + HOUR);
}

#[test]
fn a_crash_in_a_rotation_is_recovered_from() {
    let (mut rotations, mut seen) = (Vec::new(), BTreeSet::new());
    let mut cluster = Cluster::installed();
    cluster.go_watching(day(330), |cluster, report| {
        let issues = issues(&report.steps);
        let rows: BTreeSet<&str> = issues.iter().map(|issue| issue.row).collect();
        // What happens every month is looked at once.
        if issues.iter().any(|issue| issue.spec.usage == Usage::Signer) && seen.insert(rows) {
            rotations.push(cluster.clone());
        }
    });
    assert!(rotations.len() > 4, "{}", rotations.len());
    for before in &rotations {
        check_every_prefix(before, before.now() + 5 * HOUR);
    }
}

/// R05, R06: whichever write is the first that is refused.
#[test]
fn a_crash_in_a_forced_rotation_is_recovered_from() {
    for row in ["etcd-signer", "signing-key", "loadbalancer-serving-signer", "csr-signer", "kubelet-client"] {
        let mut cluster = Cluster::made();
        cluster.go_to(day(2)).force(row, "test");
        check_every_prefix(&cluster, day(3));
    }
}
