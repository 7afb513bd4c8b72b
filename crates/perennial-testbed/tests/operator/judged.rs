//! After every write, Go and OpenSSL verify every edge on the real bytes: the current versions, and those that processes may still
//! hold. For certificates on request, one is issued by each possible signer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube_client::api::{Patch, PatchParams};
use kube_client::{Api, Client};
use perennial_api::annotations::FORCE;
use perennial_core::catalog::index::{EdgeWiring, presented_slot};
use perennial_core::catalog::{Delivery, Instance, Leaf, Purpose, Scope, TimeScale};
use perennial_core::policy::Usage;
use perennial_core::snapshot::Slot;
use perennial_operator::observe::Observation;
use perennial_testbed::judges::{self, Case, Judge};
use serde_json::json;

use crate::cluster::{Cluster, PLANNER};
use crate::mint::Minted;

/// The DER of several certificates.
type Content = Arc<Vec<Vec<u8>>>;

/// The content of a place, and its time.
struct Version {
    content: Content,
    superseded_at: Option<Timestamp>,
}

/// A requested certificate.
struct Requested {
    content: Content,
    not_after: Timestamp,
}

/// The name of a requester.
const REQUESTER: &str = "m0";

/// All versions of all places, and what verifiers must accept.
#[derive(Default)]
pub(crate) struct Record {
    bundles: BTreeMap<Slot, Vec<Version>>,
    leaves: BTreeMap<Slot, Vec<Version>>,
    /// By the slot of their signer, for each signer that was there.
    requested: BTreeMap<Slot, Vec<Requested>>,
    questions: Questions,
}

/// The cases, each once: chain, anchors, name, purpose, and instant.
#[derive(Default)]
pub(crate) struct Questions {
    asked: BTreeSet<(Content, Content, Option<String>, i64)>,
    cases: Vec<Case>,
    /// On which edges.
    edges: BTreeSet<String>,
}

impl Record {
    pub(crate) async fn note(&mut self, client: &Client, observation: &Observation, label: &str) {
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
        self.request(client).await;
        self.ask(observation, label);
    }

    /// Issues a requested certificate by the current signer, valid as long as the signer.
    async fn request(&mut self, client: &Client) {
        for edge in PLANNER.wiring().edges().iter().filter(|edge| matches!(edge.edge.leaf, Leaf::AnyBy(_))) {
            let row = PLANNER.wiring().row(edge.row).unwrap().row;
            let slot = presented_slot(row, edge.presents, &Instance::Cluster);
            let signers = self.leaves.get(&slot).map_or(0, |it| it.iter().filter(|it| !it.content.is_empty()).count());
            let requested = self.requested.entry(slot.clone()).or_default();
            if requested.len() == signers {
                continue;
            }
            let secrets = Api::<Secret>::namespaced(client.clone(), slot.namespace());
            let signer = Minted::read(&secrets.get(&slot.object().name).await.unwrap().data.unwrap());
            let life = signer.certificate.facts().validity;
            let span = life.not_after.duration_since(life.not_before);
            let made = signer.issue(Usage::Peer, REQUESTER, life.not_before, span).certificate;
            requested.push(Requested { content: vec![made.der().to_vec()].into(), not_after: life.not_after });
            assert_eq!(requested.len(), signers, "a signer came and went unseen");
        }
    }

    /// Every verifier must accept every presenter, whichever versions the two hold.
    fn ask(&mut self, observation: &Observation, label: &str) {
        let now = observation.snapshot.taken_at;
        for edge in PLANNER.wiring().edges() {
            let row = PLANNER.wiring().row(edge.row).unwrap().row;
            let slot = presented_slot(row, edge.presents, &Instance::Cluster);
            let Some(bundles) = self.bundles.get(&edge.trust) else { continue };
            let (hosts, leaves): (Vec<String>, Vec<&Content>) = match edge.edge.leaf {
                Leaf::Row(_) => {
                    let hosts = row.resolve_hosts(&observation.snapshot.cluster, &Instance::Cluster);
                    let leaves = self.leaves.get(&slot).into_iter().flatten();
                    let used = leaves.filter(|it| is_in_use(it, edge.edge.presenter.delivery, now));
                    let hosts = hosts.unwrap_or_default().iter().map(ToString::to_string).collect();
                    (hosts, used.map(|it| &it.content).collect())
                }
                Leaf::AnyBy(_) => {
                    let requested = self.requested.get(&slot).into_iter().flatten();
                    let used = requested.filter(|it| now < it.not_after);
                    (vec![REQUESTER.to_owned()], used.map(|it| &it.content).collect())
                }
            };
            let names: Vec<Option<&String>> = match edge.edge.purpose {
                Purpose::Client => vec![None],
                Purpose::Server => [hosts.first(), hosts.last()].into_iter().flatten().map(Some).collect(),
            };
            for bundle in bundles.iter().filter(|it| is_in_use(it, edge.edge.verifier.delivery, now)) {
                for leaf in &leaves {
                    for name in &names {
                        self.questions.edges.insert(edge.name.to_string());
                        let label = || format!("{} at {now} after {label}", edge.name);
                        self.questions.ask(leaf, &bundle.content, name.cloned(), now, label);
                    }
                }
            }
        }
    }

    /// Returns the verifications that must succeed.
    pub(crate) fn questions(self) -> Questions {
        self.questions
    }

    pub(crate) fn judge(self, least: usize) {
        self.questions.judge(least);
    }
}

impl Questions {
    fn ask(
        &mut self,
        chain: &Content,
        anchors: &Content,
        name: Option<String>,
        at: Timestamp,
        label: impl Fn() -> String,
    ) {
        let at = at.as_second();
        if !self.asked.insert((chain.clone(), anchors.clone(), name.clone(), at)) {
            return;
        }
        self.cases.push(Case {
            id: format!("{} ({})", label(), self.cases.len()),
            chain: chain.to_vec(),
            anchors: anchors.to_vec(),
            purpose: if name.is_some() { judges::Purpose::Server } else { judges::Purpose::Client },
            name,
            at,
        });
    }

    /// Adds those of another cluster.
    pub(crate) fn add(&mut self, other: Questions) {
        self.cases.extend(other.cases);
        self.edges.extend(other.edges);
    }

    pub(crate) fn judge(self, least: usize) {
        assert!(self.cases.len() > least, "only {} cases", self.cases.len());
        assert_eq!(self.edges, edges(), "every edge was there to be judged");
        refused(Judge::Go, &self.cases);
        refused(Judge::OpenSsl, &self.cases);
    }
}

/// The edges of managed rows, except those with a file on one side.
fn edges() -> BTreeSet<String> {
    let is_judged = |edge: &&EdgeWiring<'_>| {
        let row = PLANNER.wiring().row(edge.row).unwrap().row;
        let slot = presented_slot(row, edge.presents, &Instance::Cluster);
        // Other tests cover the certificates of Services.
        row.component.row().is_managed && row.scope != Scope::Service && !edge.trust.is_file() && !slot.is_file()
    };
    PLANNER.wiring().edges().iter().filter(is_judged).map(|edge| edge.name.to_string()).collect()
}

fn note(versions: &mut Vec<Version>, content: Vec<Vec<u8>>, now: Timestamp) {
    let last = versions.last_mut();
    if last.as_ref().map_or(&Vec::new(), |last| last.content.as_ref()) == &content {
        return;
    }
    if let Some(last) = last {
        last.superseded_at = Some(now);
    }
    versions.push(Version { content: content.into(), superseded_at: None });
}

/// Empty versions are held by no process, and this cluster has no static pods.
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

/// Does all due writes, one at a time, until this instant.
pub(crate) async fn walk(cluster: &Cluster, until: Timestamp, record: &mut Record) -> usize {
    let (reconciler, actor) = (cluster.reconciler(), cluster.actor());
    let mut writes = 0;
    while cluster.now() < until {
        let (mut observation, report) = reconciler.plan().await.unwrap();
        record.note(&cluster.client, &observation, "nothing").await;
        for step in &report.steps {
            actor.act(&mut observation, step, None).await.unwrap();
            let (found, _) = reconciler.plan().await.unwrap();
            record.note(&cluster.client, &found, &step.to_string()).await;
            writes += 1;
        }
        if report.steps.is_empty() {
            cluster.set_now(report.next_look.min(until).max(cluster.now() + SignedDuration::from_secs(1)));
        }
    }
    writes
}

/// Returns every signer of the managed components.
const SIGNERS: [(&str, &str); 11] = [
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
    ("openshift-service-ca", "signing-key"),
];

pub(crate) async fn force_all_signers(cluster: &Cluster) {
    for (namespace, name) in SIGNERS {
        let asked = json!({"metadata": {"annotations": {FORCE: "a rehearsal"}}});
        cluster.secrets(namespace).patch(name, &PatchParams::default(), &Patch::Merge(&asked)).await.unwrap();
    }
}

pub(crate) async fn all_signers_were_forced(cluster: &Cluster) {
    let (observation, report) = cluster.reconciler().plan().await.unwrap();
    assert_eq!(report.risks, []);
    for (namespace, name) in SIGNERS {
        let slot: Slot = format!("{namespace}/{name}:tls.crt").parse().unwrap();
        let state = observation.snapshot.secrets[&slot].present().unwrap();
        assert_eq!(state.forced.as_deref(), Some("a rehearsal"), "{slot}");
    }
}

#[tokio::test]
async fn no_write_of_installation_and_forced_rotations_breaks_an_edge() {
    let cluster = Cluster::embedded().await;
    let mut record = Record::default();
    walk(&cluster, cluster.now() + SignedDuration::from_hours(1), &mut record).await;
    force_all_signers(&cluster).await;
    let writes = walk(&cluster, cluster.now() + SignedDuration::from_hours(24 * 32), &mut record).await;
    assert!(writes > 50, "only {writes} writes");
    all_signers_were_forced(&cluster).await;
    record.judge(200);
}
