//! The planner on whole snapshots.

use std::collections::BTreeMap;

use super::*;
use crate::catalog::ClusterFacts;
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
fn from_nothing_everything_is_made_in_one_pass() {
    let planner = Planner::new(Catalog::builtin());
    let mut snapshot = Snapshot::empty(planner.wiring(), cluster(), "2026-01-01T00:00:00Z".parse().unwrap());
    snapshot.nodes = BTreeMap::from([("m0".to_owned(), vec!["10.0.0.4".parse().unwrap()])]);
    snapshot.complete(planner.wiring());
    let report = planner.plan(&snapshot, &Scope::All);
    assert!(report.waiting.is_empty());
    report.steps.iter().for_each(|step| snapshot.apply(step));
    snapshot.check(planner.wiring()).unwrap();
    let again = planner.plan(&snapshot, &Scope::All);
    assert_eq!((again.steps, again.waiting), (Vec::new(), Vec::new()));
}
