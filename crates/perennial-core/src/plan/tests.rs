use std::collections::BTreeMap;

use super::*;
use crate::catalog::ClusterFacts;
use crate::rules::Observed;
use crate::spec::Host;

fn cluster() -> ClusterFacts {
    ClusterFacts {
        service_domain: "cluster.local".to_owned(),
        api_external: Some(Host::parse("api.test")),
        api_internal: Some(Host::parse("api-int.test")),
        service_networks: vec!["172.30.0.0/16".parse().unwrap()],
        api_vips: Vec::new(),
        bootstrap_provisioning: None,
    }
}

#[test]
fn from_nothing() {
    let planner = Planner::new(Catalog::builtin());
    let mut snapshot = Snapshot::empty(planner.wiring(), cluster(), "2026-01-01T00:00:00Z".parse().unwrap());
    snapshot.nodes = BTreeMap::from([("m0".to_owned(), vec!["10.0.0.4".parse().unwrap()])]);
    snapshot.complete(planner.wiring());
    let report = planner.plan(&snapshot, &Scope::All);
    for step in &report.steps { println!("{step}"); snapshot.apply(step); }
    for waiting in &report.waiting { println!("WAIT {} {}", waiting.slot, waiting.waiting); }
    println!("next {}", report.next_look);
    for _ in 0..60 {
        let report = planner.plan(&snapshot, &Scope::All);
        println!("-- {}", snapshot.taken_at);
        for step in &report.steps { println!("   {step}  risks {}", step.risks.len()); snapshot.apply(step); }
        for waiting in &report.waiting { println!("   WAIT {} {}", waiting.slot, waiting.waiting); }
        if report.steps.is_empty() { snapshot.taken_at = report.next_look; }
    }
    assert_eq!(snapshot.policy, Observed::Absent);
    snapshot.check(planner.wiring()).unwrap();
}
