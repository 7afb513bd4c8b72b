//! The processes of a simulated cluster: what each has read, and when it reads again.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::judge::{self, Case, Content, Side};
use crate::catalog::{Delivery, Instance, Leaf, Row};
use crate::snapshot::{Held, Slot, Snapshot};
use crate::spec::Host;
use crate::wiring::{EdgeWiring, Wiring, instances, presented_slot};

/// How many processes of a kind there are where nothing else says so: a quick one and a slow one disagree for a while.
const REPLICAS: usize = 2;
/// The kubelets that request certificates.
const KUBELETS: usize = 3;

/// Something that reads a slot and keeps what it read.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: Arc<str>,
    pub(super) side: Side,
    pub(super) slot: Slot,
    pub(super) content: Content,
    pub(super) reads: Reads,
    /// The edges that it is on.
    pub(super) cases: Vec<usize>,
}

/// How a process comes to a new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reads {
    /// Again, within so many seconds after a change.
    Again {
        /// The most.
        seconds: i64,
    },
    /// When the static pod on this node restarts.
    AtRestart {
        /// Of which operand.
        operand: Arc<str>,
        /// On which node.
        node: Arc<str>,
    },
    /// What that operand's process read, within so many seconds after its restart.
    From {
        /// The operand.
        operand: Arc<str>,
        /// The most.
        seconds: i64,
    },
    /// Never again.
    Once,
    /// It requests a new certificate when most of the old one's life is over.
    Requests,
}

/// A static pod on every control-plane node.
#[derive(Debug, Default)]
pub(super) struct Operand {
    pub(super) revision: u64,
    /// What the latest revision holds.
    pub(super) contents: HashMap<(Side, Slot), Content>,
    /// Since when each node runs which revision.
    pub(super) nodes: BTreeMap<Arc<str>, (u64, Timestamp)>,
    pub(super) is_dirty: bool,
    pub(super) is_rolling: bool,
}

#[derive(Debug, Default)]
pub(super) struct World {
    pub(super) processes: Vec<Process>,
    pub(super) readers: HashMap<(Side, Slot), Vec<usize>>,
    pub(super) operands: BTreeMap<Arc<str>, Operand>,
    pub(super) cases: Vec<Case>,
    /// For each edge with one certificate: who verifies and who presents, as numbers of processes.
    pub(super) pairs: Vec<(Vec<usize>, Vec<usize>)>,
    /// The cases that a slot is part of.
    pub(super) cases_of: HashMap<(Side, Slot), Vec<usize>>,
}

impl World {
    /// The processes and edges of a cluster; who was there before keeps what it has read.
    pub(super) fn rebuild(&mut self, wiring: &Wiring<'_>, snapshot: &Snapshot) {
        let mut old: HashMap<(Arc<str>, Side, Slot), Content> = std::mem::take(&mut self.processes)
            .into_iter()
            .map(|process| ((process.name, process.side, process.slot), process.content))
            .collect();
        (self.cases, self.pairs, self.readers, self.cases_of) = Default::default();
        let nodes: Vec<Arc<str>> = snapshot.nodes.keys().map(|name| name.as_str().into()).collect();
        for operand in self.operands.values_mut() {
            operand.nodes.retain(|node, _| nodes.contains(node));
        }
        for edge in wiring.edges() {
            let Some(row) = wiring.row(edge.row).map(|wired| wired.row) else { continue };
            let verifiers = self.verifiers(edge, &nodes);
            for instance in instances(row, snapshot) {
                let case = case(edge, row, &instance, snapshot);
                let presenters = self.presenters(edge, &case, &nodes);
                self.add_case(case, verifiers.clone(), presenters);
            }
        }
        for process in &mut self.processes {
            let key = (process.name.clone(), process.side, process.slot.clone());
            process.content = old.remove(&key).unwrap_or_default();
        }
        for operand in self.processes.iter().filter_map(|process| process.operand().cloned()).collect::<BTreeSet<_>>() {
            self.operands.entry(operand).or_default();
        }
    }

    fn verifiers(&mut self, edge: &EdgeWiring<'_>, nodes: &[Arc<str>]) -> Vec<usize> {
        let (name, slot) = (edge.edge.verifier.name, &edge.trust);
        let operand: Arc<str> = slot.namespace().into();
        match edge.edge.verifier.delivery {
            Delivery::Reloaded { within } => {
                self.replicas(name, Side::Trust, slot, REPLICAS, |_| Reads::Again { seconds: within.as_seconds() })
            }
            Delivery::Revisioned => self.static_pods(name, Side::Trust, slot, nodes),
            Delivery::Relayed { within } => {
                self.static_pods(&format!("{operand} for {name}"), Side::Trust, slot, nodes);
                self.replicas(name, Side::Trust, slot, REPLICAS, |_| Reads::From {
                    operand: operand.clone(),
                    seconds: within.as_seconds(),
                })
            }
            Delivery::Never | Delivery::Indirect => self.replicas(name, Side::Trust, slot, 1, |_| Reads::Once),
        }
    }

    fn presenters(&mut self, edge: &EdgeWiring<'_>, case: &Case, nodes: &[Arc<str>]) -> Vec<usize> {
        let (name, slot) = (edge.edge.presenter.name, &case.presented);
        if case.is_class {
            return self.replicas(name, Side::Presented, slot, KUBELETS, |_| Reads::Requests);
        }
        match (edge.edge.presenter.delivery, &case.node) {
            (Delivery::Reloaded { within }, _) => {
                self.replicas(name, Side::Presented, slot, REPLICAS, |_| Reads::Again { seconds: within.as_seconds() })
            }
            (Delivery::Revisioned | Delivery::Relayed { .. }, Some(node)) => {
                self.static_pods(name, Side::Presented, slot, std::slice::from_ref(node))
            }
            (Delivery::Revisioned | Delivery::Relayed { .. }, None) => {
                self.static_pods(name, Side::Presented, slot, nodes)
            }
            (Delivery::Never | Delivery::Indirect, _) => self.replicas(name, Side::Presented, slot, 1, |_| Reads::Once),
        }
    }

    fn replicas(
        &mut self,
        name: &str,
        side: Side,
        slot: &Slot,
        count: usize,
        reads: impl Fn(usize) -> Reads,
    ) -> Vec<usize> {
        (0..count).map(|number| self.process(&format!("{name} #{number}"), side, slot, reads(number))).collect()
    }

    fn static_pods(&mut self, name: &str, side: Side, slot: &Slot, nodes: &[Arc<str>]) -> Vec<usize> {
        let operand: Arc<str> = slot.namespace().into();
        let reads = |node: &Arc<str>| Reads::AtRestart { operand: operand.clone(), node: node.clone() };
        nodes.iter().map(|node| self.process(&format!("{name} on {node}"), side, slot, reads(node))).collect()
    }

    /// The process of this name that reads this slot.
    fn process(&mut self, name: &str, side: Side, slot: &Slot, reads: Reads) -> usize {
        let readers = self.readers.entry((side, slot.clone())).or_default();
        if let Some(known) = readers.iter().find(|number| self.processes[**number].name.as_ref() == name) {
            return *known;
        }
        let number = self.processes.len();
        readers.push(number);
        let (content, cases) = (Content::default(), Vec::new());
        self.processes.push(Process { name: name.into(), side, slot: slot.clone(), content, reads, cases });
        number
    }

    fn add_case(&mut self, case: Case, verifiers: Vec<usize>, presenters: Vec<usize>) {
        let number = self.cases.len();
        for process in verifiers.iter().chain(&presenters) {
            self.processes[*process].cases.push(number);
        }
        self.cases_of.entry((Side::Trust, case.trust.clone())).or_default().push(number);
        self.cases_of.entry((Side::Presented, case.presented.clone())).or_default().push(number);
        self.cases.push(case);
        self.pairs.push((verifiers, presenters));
    }

    /// What an observer of static pods would write down.
    pub(super) fn observe(&self, snapshot: &mut Snapshot) {
        snapshot.held_secrets.clear();
        snapshot.held_bundles.clear();
        for process in &self.processes {
            let Reads::AtRestart { operand, node } = &process.reads else { continue };
            let list = match process.side {
                Side::Trust => snapshot.held_bundles.entry(process.slot.clone()).or_default(),
                Side::Presented => snapshot.held_secrets.entry(process.slot.clone()).or_default(),
            };
            let Some((revision, since)) = self.operands.get(operand).and_then(|operand| operand.nodes.get(node)) else {
                continue;
            };
            if process.content.is_empty() {
                continue;
            }
            let members = process.content.iter().map(|certificate| certificate.id.clone()).collect();
            let held = Held { by: node.to_string(), revision: Some(*revision), since: Some(*since), members };
            if !list.contains(&held) {
                list.push(held);
            }
        }
    }
}

impl Process {
    fn operand(&self) -> Option<&Arc<str>> {
        match &self.reads {
            Reads::AtRestart { operand, .. } => Some(operand),
            _ => None,
        }
    }
}

impl judge::Held for World {
    fn trusts(&self, slot: &Slot) -> Option<Vec<Content>> {
        let readers = self.readers.get(&(Side::Trust, slot.clone()))?;
        Some(readers.iter().map(|number| self.processes[*number].content.clone()).collect())
    }

    fn presents(&self, slot: &Slot, _: Option<&str>) -> Option<Vec<Content>> {
        let readers = self.readers.get(&(Side::Presented, slot.clone()))?;
        Some(readers.iter().map(|number| self.processes[*number].content.clone()).collect())
    }
}

fn case(edge: &EdgeWiring<'_>, row: &Row, instance: &Instance, snapshot: &Snapshot) -> Case {
    let is_class = matches!(edge.edge.leaf, Leaf::AnyBy(_));
    let hosts: Arc<[Host]> = if is_class {
        [].into()
    } else {
        row.resolve_hosts(&snapshot.cluster, instance).map(Arc::from).unwrap_or_else(|_| [].into())
    };
    let (name, node): (Arc<str>, Option<Arc<str>>) = match instance {
        Instance::Cluster => (edge.name.clone(), None),
        Instance::Node { name, .. } => (edge.name.replace("<node>", name).into(), Some(name.as_str().into())),
        Instance::Service { namespace, secret, .. } => (format!("{} ({namespace}/{secret})", edge.name).into(), None),
    };
    Case {
        name,
        trust: edge.trust.clone(),
        presented: presented_slot(row, edge.presents, instance),
        verifier: edge.edge.verifier.delivery,
        presenter: edge.edge.presenter.delivery,
        purpose: edge.edge.purpose,
        hosts,
        is_class,
        node,
    }
}

/// What a slot holds in the API: nothing where it is absent or unreadable.
pub(super) fn content(snapshot: &Snapshot, side: Side, slot: &Slot) -> Option<Content> {
    let resolve = |ids: Vec<&crate::trust::CertificateId>| -> Content {
        ids.into_iter().filter_map(|id| snapshot.certificates.get(id)).cloned().collect()
    };
    match side {
        Side::Trust => {
            let state = snapshot.bundles.get(slot)?.present()?;
            state.damage.is_empty().then(|| resolve(state.members.iter().collect()))
        }
        Side::Presented => {
            let state = snapshot.secrets.get(slot)?.present()?;
            Some(resolve([&state.certificate.id].into_iter().chain(&state.chain).collect()))
        }
    }
}
