//! Decades without faults.

use super::*;

#[test]
fn thirty_years_without_faults_break_no_edge() {
    let simulation = Simulation::new(Catalog::builtin());
    let outcome = simulation.run(&Options::years(30, 7, start()));
    assert_eq!((outcome.violations, outcome.outages), (Vec::new(), Vec::new()));
    // Every row with a refresh was refreshed.
    let rows = Catalog::builtin().rows.iter().filter(|row| row.day == Day::Two);
    let least = rows.map(|row| (outcome.issued.get(row.id).copied().unwrap_or(0), row.id)).min();
    assert!(least.is_some_and(|(issued, _)| issued >= 3), "{least:?}");
}

#[test]
fn equal_seeds_give_equal_runs() {
    let simulation = Simulation::new(Catalog::builtin());
    let told = |seed| {
        let options = Options { faults: FaultKind::ALL.to_vec(), ..Options::years(3, seed, start()) };
        serde_json::to_string(&simulation.run(&options)).unwrap()
    };
    assert_eq!(told(5), told(5));
    assert_ne!(told(5), told(6));
}
