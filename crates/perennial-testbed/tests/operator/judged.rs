//! After every single write, Go judges every edge on which a certificate of the catalog is presented, and OpenSSL every pair that
//! differs, on the real bytes: what is there now, and what processes may
//! still hold of what was there before.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use kube_client::api::{Patch, PatchParams};
use perennial_api::annotations::FORCE;
use perennial_core::catalog::{Delivery, Instance, Leaf, Purpose, TimeScale};
use perennial_core::snapshot::Slot;
use perennial_core::wiring::presented_slot;
use perennial_operator::observe::Observation;
use perennial_testbed::judges::{self, Case, Judge};
use serde_json::json;

use crate::cluster::{Cluster, PLANNER};

/// What was in a place, from when to when.
struct Version {
    /// DER.
    content: Vec<Vec<u8>>,
    superseded_at: Option<Timestamp>,
}

/// Everything that was ever in any place, and what must be accepted because of it.
#[derive(Default)]
pub(crate) struct Record {
    bundles: BTreeMap<Slot, Vec<Version>>,
    leaves: BTreeMap<Slot, Vec<Version>>,
    cases: Vec<Case>,
}

impl Record {
    pub(crate) fn note(&mut self, observation: &Observation, label: &str) {
        let now = observation.snapshot.taken_at;
        let der = |ids: Vec<_>| -> Vec<Vec<u8>> {
            ids.into_iter().map(|id| observation.library.get(id).unwrap().der().to_vec()).collect()
        };
        for (slot, found) in &observation.snapshot.bundles {
            let content = found.present().map(|state| der(state.members.iter().collect())).unwrap_or_default();
            note(self.bundles.entry(slot.clone()).or_default(), content, now);
        }
        for (slot, found) in &observation.snapshot.secrets {
            let content = found.present().map(|it| der([&it.certificate.id].into_iter().chain(&it.chain).collect()));
            note(self.leaves.entry(slot.clone()).or_default(), content.unwrap_or_default(), now);
        }
        self.ask(observation, label);
    }

    /// Every verifier must accept every presenter, whichever versions the two hold.
    fn ask(&mut self, observation: &Observation, label: &str) {
        let now = observation.snapshot.taken_at;
        for edge in PLANNER.wiring().edges() {
            let Leaf::Row(_) = edge.edge.leaf else { continue };
            let row = PLANNER.wiring().row(edge.row).unwrap().row;
            let slot = presented_slot(row, edge.presents, &Instance::Cluster);
            let hosts = row.resolve_hosts(&observation.snapshot.cluster, &Instance::Cluster).unwrap_or_default();
            let (Some(bundles), Some(leaves)) = (self.bundles.get(&edge.trust), self.leaves.get(&slot)) else {
                continue;
            };
            let (purpose, names) = match edge.edge.purpose {
                Purpose::Client => (judges::Purpose::Client, vec![None]),
                Purpose::Server => {
                    let ends = [hosts.first(), hosts.last()].into_iter().flatten();
                    (judges::Purpose::Server, ends.map(|host| Some(host.to_string())).collect())
                }
            };
            for bundle in bundles.iter().filter(|it| is_in_use(it, edge.edge.verifier.delivery, now)) {
                for leaf in leaves.iter().filter(|it| is_in_use(it, edge.edge.presenter.delivery, now)) {
                    for name in &names {
                        self.cases.push(Case {
                            id: format!("{} at {now} after {label} ({})", edge.name, self.cases.len()),
                            chain: leaf.content.clone(),
                            anchors: bundle.content.clone(),
                            purpose,
                            name: name.clone(),
                            at: now.as_second(),
                        });
                    }
                }
            }
        }
    }

    pub(crate) fn judge(mut self, least: usize) {
        assert!(self.cases.len() > least, "only {} cases", self.cases.len());
        refused(Judge::Go, &self.cases);
        // The same question at another instant has the same answer, or the planner would have been in time.
        let mut asked = BTreeSet::new();
        self.cases.retain(|it| asked.insert((it.chain.clone(), it.anchors.clone(), it.name.clone())));
        refused(Judge::OpenSsl, &self.cases);
    }
}

fn note(versions: &mut Vec<Version>, content: Vec<Vec<u8>>, now: Timestamp) {
    let last = versions.last_mut();
    if last.as_ref().map(|last| &last.content).unwrap_or(&Vec::new()) == &content {
        return;
    }
    if let Some(last) = last {
        last.superseded_at = Some(now);
    }
    versions.push(Version { content, superseded_at: None });
}

/// Nobody holds what is empty, and nobody runs static pods here.
fn is_in_use(version: &Version, delivery: Delivery, now: Timestamp) -> bool {
    let is_held = match (version.superseded_at, delivery) {
        (None, _) => true,
        (Some(at), Delivery::Reloaded { within }) => now < at + within.scaled(TimeScale::FULL),
        (Some(_), _) => false,
    };
    is_held && !version.content.is_empty()
}

fn refused(judge: Judge, cases: &[Case]) {
    let verdicts = judge.judge(cases).unwrap();
    let refused: Vec<String> = cases
        .iter()
        .zip(&verdicts)
        .filter(|(_, verdict)| !verdict.accepted)
        .map(|(case, verdict)| format!("{judge:?} refuses {}: {}", case.id, verdict.why))
        .collect();
    assert!(
        refused.is_empty(),
        "{} of {}:\n{}",
        refused.len(),
        cases.len(),
        refused[..refused.len().min(10)].join("\n")
    );
}

/// Carries out what is due, one write at a time, until this instant.
pub(crate) async fn walk(cluster: &Cluster, until: Timestamp, record: &mut Record) -> usize {
    let (keeper, actor) = (cluster.keeper(), cluster.actor());
    let mut writes = 0;
    while cluster.now() < until {
        let (mut observation, report) = keeper.look().await.unwrap();
        record.note(&observation, "nothing");
        for step in &report.steps {
            actor.act(PLANNER.wiring(), &mut observation, step, None).await.unwrap();
            let (found, _) = keeper.look().await.unwrap();
            record.note(&found, &step.to_string());
            writes += 1;
        }
        if report.steps.is_empty() {
            cluster.set_now(report.next_look.min(until).max(cluster.now() + SignedDuration::from_secs(1)));
        }
    }
    writes
}

/// Every signer of the components that are kept.
const SIGNERS: [(&str, &str); 10] = [
    ("openshift-kube-apiserver-operator", "aggregator-client-signer"),
    ("openshift-kube-apiserver-operator", "kube-apiserver-to-kubelet-signer"),
    ("openshift-kube-apiserver-operator", "localhost-serving-signer"),
    ("openshift-kube-apiserver-operator", "service-network-serving-signer"),
    ("openshift-kube-apiserver-operator", "loadbalancer-serving-signer"),
    ("openshift-kube-apiserver-operator", "localhost-recovery-serving-signer"),
    ("openshift-kube-apiserver-operator", "kube-control-plane-signer"),
    ("openshift-kube-apiserver-operator", "node-system-admin-signer"),
    ("openshift-kube-controller-manager-operator", "csr-signer-signer"),
    ("openshift-kube-controller-manager-operator", "csr-signer"),
];

pub(crate) async fn force_all_signers(cluster: &Cluster) {
    for (namespace, name) in SIGNERS {
        let asked = json!({"metadata": {"annotations": {FORCE: "a rehearsal"}}});
        cluster.secrets(namespace).patch(name, &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
    }
}

pub(crate) async fn all_signers_were_forced(cluster: &Cluster) {
    let (observation, report) = cluster.keeper().look().await.unwrap();
    assert_eq!(report.risks, []);
    for (namespace, name) in SIGNERS {
        let slot: Slot = format!("{namespace}/{name}:tls.crt").parse().unwrap();
        let state = observation.snapshot.secrets[&slot].present().unwrap();
        assert_eq!(state.forced.as_deref(), Some("a rehearsal"), "{slot}");
    }
}

#[tokio::test]
async fn no_write_of_the_installation_and_of_forced_rotations_of_all_signers_breaks_an_edge() {
    let cluster = Cluster::embedded().await;
    let mut record = Record::default();
    walk(&cluster, cluster.now() + SignedDuration::from_hours(1), &mut record).await;
    force_all_signers(&cluster).await;
    let writes = walk(&cluster, cluster.now() + SignedDuration::from_hours(24 * 32), &mut record).await;
    assert!(writes > 50, "only {writes} writes");
    all_signers_were_forced(&cluster).await;
    record.judge(2000);
}
