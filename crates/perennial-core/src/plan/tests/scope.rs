//! Planning each signer separately gives the same result as planning everything.

use std::collections::{BTreeMap, BTreeSet};

use super::fixture::{Cluster, day};
use super::text::pending;
use crate::catalog::{Catalog, Day, Signer};
use crate::plan::{Action, Planner, Report, Scope};
use crate::trust::CertificateId;

/// The union of several reports, in any order: the writes and the waits.
#[derive(Debug, Default, PartialEq, Eq)]
struct Together {
    issued: BTreeSet<String>,
    /// A bundle of several signers has all of them.
    published: BTreeMap<String, BTreeSet<CertificateId>>,
    copied: BTreeSet<String>,
    waiting: BTreeSet<String>,
}

impl Together {
    fn add(&mut self, report: &Report) {
        for step in &report.steps {
            match &step.action {
                Action::Issue(issue) => drop(self.issued.insert(format!("{issue:?}"))),
                Action::Publish(bundles) => bundles.iter().for_each(|it| {
                    self.published.entry(it.slot.to_string()).or_default().extend(it.members.iter().cloned());
                }),
                Action::CopySecret(items) => self.copied.extend(items.iter().map(|item| format!("{item:?}"))),
                Action::CopyBundle(item) => drop(self.copied.insert(format!("{item:?}"))),
                Action::Describe(kept) => drop(self.copied.insert(kept.slot.to_string())),
            }
        }
        self.waiting.extend(report.waiting.iter().map(pending));
    }
}

fn check(cluster: &Cluster<'_>) {
    let planner = cluster.planner;
    let (mut all, mut each) = (Together::default(), Together::default());
    all.add(&planner.plan(&cluster.snapshot, &Scope::All));
    for row in planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two && row.signer == Signer::Itself) {
        each.add(&planner.plan(&cluster.snapshot, &Scope::Signer(row.id)));
    }
    assert_eq!(all, each, "at {}", cluster.now());
}

#[test]
fn the_plans_of_single_signers_are_the_whole_plan() {
    for mut cluster in [Cluster::installed(), Cluster::made()] {
        cluster.go_watching(day(330), |cluster, _| check(cluster));
    }
}

#[test]
fn the_plans_of_single_signers_are_the_whole_plan_of_forced_rotations() {
    for row in ["etcd-signer", "csr-signer-signer", "csr-signer", "signing-key", "loadbalancer-serving-signer"] {
        let mut cluster = Cluster::made();
        cluster.go_to(day(2)).force(row, "test");
        cluster.go_watching(day(4), |cluster, _| check(cluster));
    }
}

#[test]
fn a_single_certificate_is_planned_as_in_the_whole_plan() {
    let mut cluster = Cluster::made();
    cluster.go_to(day(2));
    cluster.delete_secret("shop/web-tls");
    let instance = cluster.snapshot.service(&super::fixture::tls("shop/web-tls")).unwrap();
    let report = cluster.planner.plan(&cluster.snapshot, &Scope::Certificate("service-serving", instance));
    assert_eq!(report.steps, cluster.plan().steps);
    assert_eq!(report.steps.len(), 1);
}

#[test]
fn the_root_of_a_family_is_the_signer_that_signs_itself() {
    let planner = Planner::new(Catalog::builtin());
    assert_eq!(planner.root_of("csr-signer"), Some("csr-signer-signer"));
    assert_eq!(planner.root_of("csr-signer-signer"), Some("csr-signer-signer"));
    assert_eq!(planner.root_of("aggregator-client"), Some("aggregator-client-signer"));
    assert_eq!(planner.root_of("nobody"), None);
}

#[test]
fn a_family_flows_into_bundles_of_the_running_cluster_each_once() {
    let planner = Planner::new(Catalog::builtin());
    let bundles = planner.flows_into("csr-signer-signer");
    let different: BTreeSet<&str> = bundles.iter().copied().collect();
    assert_eq!(bundles.len(), different.len());
    assert!(different.contains("client-ca") && different.contains("csr-controller-ca"), "{different:?}");
    assert!(different.iter().all(|id| Catalog::builtin().bundle(id).unwrap().day == Day::Two));
}
