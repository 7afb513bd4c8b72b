//! Years, with and without trouble.

use super::*;

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

#[test]
fn without_trouble_nothing_breaks() {
    let outcome = Simulation::new(Catalog::builtin()).run(&Options::years(3, 1, start()));
    assert_eq!((outcome.violations, outcome.outages), (Vec::new(), Vec::new()));
}

#[test]
fn with_trouble_no_write_breaks_an_edge() {
    let simulation = Simulation::new(Catalog::builtin());
    for seed in 0..5 {
        let faults = FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::LongOutages).collect();
        let outcome = simulation.run(&Options { faults, ..Options::years(3, seed, start()) });
        assert_eq!(outcome.violations, Vec::new(), "seed {seed}");
    }
}
