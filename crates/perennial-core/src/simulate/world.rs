//! The processes of a simulated cluster: the version that each has read, and when it reads again.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use jiff::Timestamp;

use super::chance::Chance;
use super::judge::{self, Case, Content, Side};
use crate::catalog::index::{EdgeWiring, Wiring, instances, presented_slot};
use crate::catalog::{Delivery, Instance, Leaf, Row};
use crate::snapshot::{Held, Slot, Snapshot};
use crate::spec::Host;

/// The number of processes of a kind by default: a quick one and a slow one differ for a while.
const REPLICAS: usize = 2;
/// The kubelets that request certificates.
const KUBELETS: usize = 3;

/// A process that reads a slot and keeps what it read.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) name: Arc<str>,
    pub(super) side: Side,
    pub(super) slot: Slot,
    pub(super) content: Content,
    pub(super) reads: Reads,
    /// The edges of the process.
    pub(super) cases: Vec<usize>,
    /// True while it runs.
    pub(super) is_there: bool,
}

/// How a process loads a new version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reads {
    /// It reads again after a change.
    Again {
        /// The longest delay.
        seconds: i64,
    },
    /// It reads when the static pod on this node restarts.
    AtRestart {
        /// The operand.
        operand: Arc<str>,
        /// The node.
        node: Arc<str>,
        /// True if it reads a file that follows the object, not the file of its revision: soon after a change, and again at
        /// start. Some processes read their certificate so; bundles are always read from the revision.
        reads_file: bool,
    },
    /// It gets what the operand's process has read, after that process's restart.
    From {
        /// The operand.
        operand: Arc<str>,
        /// The longest delay.
        seconds: i64,
    },
    /// It never reads again.
    Once,
    /// It requests a new certificate when most of the old one's validity has passed.
    Requests,
}

/// The content of a revision.
pub(super) type Contents = HashMap<(Side, Slot), Content>;

/// A static pod on every control-plane node.
#[derive(Debug, Default)]
pub(super) struct Operand {
    pub(super) revision: u64,
    /// The content of the latest revision.
    pub(super) latest: Arc<Contents>,
    /// The revision that each node runs.
    pub(super) nodes: BTreeMap<Arc<str>, Running>,
    pub(super) is_dirty: bool,
    pub(super) is_rolling: bool,
}

/// A static pod on one node.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) revision: u64,
    /// The last start.
    pub(super) since: Timestamp,
    pub(super) contents: Arc<Contents>,
}

#[derive(Debug)]
pub(super) struct World {
    seed: u64,
    /// All processes, including those that no longer run.
    pub(super) processes: Vec<Process>,
    known: HashMap<(Side, Slot), Vec<usize>>,
    /// The processes that read a slot now.
    pub(super) readers: HashMap<(Side, Slot), Vec<usize>>,
    pub(super) operands: BTreeMap<Arc<str>, Operand>,
    pub(super) cases: Vec<Case>,
    /// For each edge with one certificate: the verifiers and the presenters, as numbers of processes.
    pub(super) pairs: Vec<(Vec<usize>, Vec<usize>)>,
    /// The cases of a slot.
    pub(super) cases_of: HashMap<(Side, Slot), Vec<usize>>,
}

impl World {
    pub(super) fn new(seed: u64) -> World {
        World {
            seed,
            processes: Vec::new(),
            known: HashMap::new(),
            readers: HashMap::new(),
            operands: BTreeMap::new(),
            cases: Vec::new(),
            pairs: Vec::new(),
            cases_of: HashMap::new(),
        }
    }

    /// Creates the processes and edges of a cluster. Existing processes keep their number and content.
    pub(super) fn rebuild(&mut self, wiring: &Wiring<'_>, snapshot: &Snapshot) {
        (self.cases, self.pairs, self.readers, self.cases_of) = Default::default();
        for process in &mut self.processes {
            process.cases.clear();
            process.is_there = false;
        }
        let nodes: Vec<Arc<str>> = snapshot.nodes.found().keys().map(|name| name.as_str().into()).collect();
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
        for process in &self.processes {
            if let Reads::AtRestart { operand, .. } = &process.reads {
                self.operands.entry(operand.clone()).or_default();
            }
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
        let seed = self.seed;
        let reads = |node: &Arc<str>| {
            let draw = name.bytes().chain(node.bytes()).fold(seed, |sum, byte| sum.wrapping_mul(31) ^ u64::from(byte));
            let reads_file = side == Side::Presented && Chance::new(draw).percent(50);
            Reads::AtRestart { operand: operand.clone(), node: node.clone(), reads_file }
        };
        nodes.iter().map(|node| self.process(&format!("{name} on {node}"), side, slot, reads(node))).collect()
    }

    /// Returns the process with this name that reads this slot.
    fn process(&mut self, name: &str, side: Side, slot: &Slot, reads: Reads) -> usize {
        let known = self.known.entry((side, slot.clone())).or_default();
        let found = known.iter().copied().find(|number| self.processes[*number].name.as_ref() == name);
        let number = found.unwrap_or_else(|| {
            let (name, slot, content, cases) = (name.into(), slot.clone(), Content::default(), Vec::new());
            self.processes.push(Process { name, side, slot, content, reads, cases, is_there: true });
            known.push(self.processes.len() - 1);
            self.processes.len() - 1
        });
        self.processes[number].is_there = true;
        let readers = self.readers.entry((side, slot.clone())).or_default();
        if !readers.contains(&number) {
            readers.push(number);
        }
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

    /// Writes to the snapshot what an observer of static pods would see.
    pub(super) fn observe(&self, snapshot: &mut Snapshot) {
        snapshot.held_secrets.clear();
        snapshot.held_bundles.clear();
        for process in &self.processes {
            let Reads::AtRestart { operand, node, .. } = &process.reads else { continue };
            let list = match process.side {
                Side::Trust => snapshot.held_bundles.entry(process.slot.clone()).or_default(),
                Side::Presented => snapshot.held_secrets.entry(process.slot.clone()).or_default(),
            };
            let running = self.operands.get(operand).and_then(|operand| operand.nodes.get(node));
            let Some(running) = running.filter(|_| !process.content.is_empty()) else { continue };
            let members = process.content.iter().map(|certificate| certificate.id.clone()).collect();
            let held =
                Held { by: node.to_string(), revision: Some(running.revision), since: Some(running.since), members };
            if !list.contains(&held) {
                list.push(held);
            }
        }
    }
}

impl judge::Held for World {
    fn trusts(&self, slot: &Slot) -> Option<Vec<Content>> {
        let readers = self.readers.get(&(Side::Trust, slot.clone()))?;
        Some(readers.iter().map(|number| self.processes[*number].content.clone()).collect())
    }

    fn presents(&self, slot: &Slot) -> Option<Vec<Content>> {
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
        row: row.id,
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

/// Returns the content of a slot in the API: none if it is absent or unreadable.
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
