use super::*;

#[test]
fn a_few_years() {
    let simulation = Simulation::new(Catalog::builtin());
    let options = Options::years(3, 1, "2026-01-01T00:00:00Z".parse().unwrap());
    let outcome = simulation.run(&options);
    for entry in &outcome.story { if entry.kind != Happening::Certificate { println!("{} {:?} {}", entry.at, entry.kind, entry.text); } }
    println!("{} looks, {} writes, {} restarts {:?}", outcome.looks, outcome.writes, outcome.restarts, outcome.issued);
    for (edge, call) in &outcome.closest { println!("{edge}: {}", run::span(call.left())); }
    for violation in &outcome.violations { println!("{violation}"); }
    assert!(outcome.violations.is_empty());
}

#[test]
fn trouble() {
    let simulation = Simulation::new(Catalog::builtin());
    let mut failed = 0;
    for seed in 0..20 {
        let mut options = Options::years(3, seed, "2026-01-01T00:00:00Z".parse().unwrap());
        options.faults = FaultKind::ALL.into_iter().filter(|kind| *kind != FaultKind::LongOutages).collect();
        let outcome = simulation.run(&options);
        println!("seed {seed}: {} looks, {} writes, {} outages, {} violations", outcome.looks, outcome.writes, outcome.outages.len(), outcome.violations.len());
        for violation in outcome.violations.iter().take(2) { println!("   {violation}"); }
        failed += outcome.violations.len();
    }
    assert_eq!(failed, 0);
}
