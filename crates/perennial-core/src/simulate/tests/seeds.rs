//! A thousand seeds, three years each, with every kind of fault alone and together.
//!
//! A run covers a quarter of the seeds: the quarter that `PERENNIAL_SEEDS` names by a number, or all seeds if it is `all`. `make test`
//! covers another quarter with each commit, `make test-long` covers all.

use super::*;
use crate::catalog::{Component, Day, Edge, Leaf, Trust};
use crate::plan::reverted::{Reverted, without};

/// Checks that with these seeds and faults no write breaks an edge, and every outage ends.
fn check(seeds: std::ops::Range<u64>, faults: &[FaultKind]) {
    let simulation = Simulation::new(Catalog::builtin());
    let mut wrong = Vec::new();
    for seed in of_this_run(seeds) {
        let adopted_service_ca = adopted(seed);
        let options = Options { faults: faults.to_vec(), adopted_service_ca, ..Options::years(3, seed, start()) };
        let outcome = simulation.run(&options);
        wrong.extend(outcome.violations.first().map(|violation| format!("seed {seed}: {violation}")));
    }
    assert!(wrong.is_empty(), "with {faults:?}:\n{}", wrong.join("\n"));
}

/// Returns the seeds of this run.
fn of_this_run(all: std::ops::Range<u64>) -> std::ops::Range<u64> {
    let chosen = std::env::var("PERENNIAL_SEEDS").unwrap_or_default();
    if chosen == "all" {
        return all;
    }
    let quarter = chosen.parse::<u64>().unwrap_or(0) % 4;
    let bound = |number: u64| all.start + (all.end - all.start) * number / 4;
    bound(quarter)..bound(quarter + 1)
}

/// In every second run the service CA is adopted, and close to its expiry.
fn adopted(seed: u64) -> Option<SignedDuration> {
    let left = [24 * 3600, 3600, 60, 24 * 200 * 3600].map(SignedDuration::from_secs);
    let number = usize::try_from(seed / 2).unwrap_or(0) % left.len();
    seed.is_multiple_of(2).then(|| left[number])
}

/// Returns all kinds of faults except outages that are so long that certificates expire.
fn usual() -> Vec<FaultKind> {
    FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::LongOutages).collect()
}

/// Without the rules against needless waits of Services, usual seeds with a service CA close to its expiry detect such waits.
#[test]
fn usual_faults_without_the_rules_against_needless_waits() {
    let rules = Reverted { new_services: true, cross_certificates: true };
    let simulation = Simulation::new(Catalog::builtin());
    for seed in [102, 104, 106] {
        let options =
            Options { faults: usual(), adopted_service_ca: adopted(seed), ..Options::years(3, seed, start()) };
        let violations = without(rules, || simulation.run(&options)).violations;
        let is_needless = |it: &Violation| it.edge.starts_with("shop/") && it.what.starts_with("it waits although");
        assert!(violations.iter().any(is_needless), "seed {seed}: {violations:?}");
    }
}

/// Only the signers of requests: with so few objects, deletions hit the same ones repeatedly.
#[test]
fn few_objects_and_many_deletions() {
    let mut catalog = Catalog::builtin().clone();
    let is_wanted = |component| component == Component::KubeControllerManager || component == Component::Installer;
    catalog.rows.retain(|row| is_wanted(row.component));
    let bundles = ["csr-controller-signer-ca", "csr-signer-ca", "csr-controller-ca"];
    catalog.bundles.retain(|bundle| bundle.day == Day::One || bundles.contains(&bundle.id));
    let is_class = |edge: &Edge| edge.leaf == Leaf::AnyBy("csr-signer");
    catalog.edges.retain(|edge| is_class(edge) && edge.trust == Trust::Bundle("csr-controller-ca"));
    let simulation = Simulation::new(&catalog);
    let faults = vec![FaultKind::Deletions, FaultKind::Corruption];
    for seed in 0..40 {
        let outcome = simulation.run(&Options { faults: faults.clone(), ..Options::years(10, seed, start()) });
        assert_eq!(outcome.violations.first().map(ToString::to_string), None, "seed {seed}");
    }
}

#[test]
fn no_faults() {
    check(0..100, &[]);
}

#[test]
fn usual_faults_1() {
    check(100..210, &usual());
}

#[test]
fn usual_faults_2() {
    check(210..320, &usual());
}

#[test]
fn usual_faults_3() {
    check(320..430, &usual());
}

#[test]
fn all_faults() {
    check(430..530, &FaultKind::ALL);
}

#[test]
fn long_outages() {
    check(530..640, &[FaultKind::LongOutages]);
}

#[test]
fn outages_and_crashes() {
    check(640..700, &[FaultKind::Outages]);
    check(700..760, &[FaultKind::Crashes]);
}

#[test]
fn deletions_and_corruption() {
    check(760..820, &[FaultKind::Deletions]);
    check(820..880, &[FaultKind::Corruption]);
}

#[test]
fn clocks_members_and_administrators() {
    check(880..920, &[FaultKind::Clocks]);
    check(920..960, &[FaultKind::Membership]);
    check(960..1000, &[FaultKind::Administrators]);
}
