//! A thousand seeds, three years each, with every kind of trouble alone and together.

use super::*;
use crate::catalog::{Component, Day, Edge, Leaf, Trust};

/// These seeds with this trouble: no write breaks an edge, and what is broken heals.
fn check(seeds: std::ops::Range<u64>, faults: &[FaultKind]) {
    let simulation = Simulation::new(Catalog::builtin());
    let mut wrong = Vec::new();
    for seed in seeds {
        let adopted_service_ca = adopted(seed);
        let options = Options { faults: faults.to_vec(), adopted_service_ca, ..Options::years(3, seed, start()) };
        let outcome = simulation.run(&options);
        wrong.extend(outcome.violations.first().map(|violation| format!("seed {seed}: {violation}")));
    }
    assert!(wrong.is_empty(), "with {faults:?}:\n{}", wrong.join("\n"));
}

/// In every second run the service CA is adopted, and about to expire.
fn adopted(seed: u64) -> Option<SignedDuration> {
    let left = [24 * 3600, 3600, 60, 24 * 200 * 3600].map(SignedDuration::from_secs);
    let number = usize::try_from(seed / 2).unwrap_or(0) % left.len();
    seed.is_multiple_of(2).then(|| left[number])
}

/// Everything but what is off for so long that certificates end.
fn usual() -> Vec<FaultKind> {
    FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::LongOutages).collect()
}

/// Only what requests are signed by: with so few objects, deletions strike the same ones again and again.
#[test]
fn few_objects_and_much_loss() {
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
fn no_trouble() {
    check(0..100, &[]);
}

#[test]
fn usual_trouble_1() {
    check(100..210, &usual());
}

#[test]
fn usual_trouble_2() {
    check(210..320, &usual());
}

#[test]
fn usual_trouble_3() {
    check(320..430, &usual());
}

#[test]
fn all_trouble() {
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
