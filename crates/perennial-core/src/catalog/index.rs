//! The index over the catalog: the place of each certificate and bundle, the inputs of each bundle, and the readers of each place.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use super::{
    Bundle, BundleHome, BundleInput, Catalog, Component, Copied, CopyData, Day, Delivery, Edge, Home, Instance, Leaf,
    Object, Place, Row, Scope, Signer, Slot, Trust,
};

/// An index over a catalog. It is built once, and every lookup is fast.
#[derive(Debug)]
pub struct Wiring<'c> {
    /// The catalog.
    pub catalog: &'c Catalog,
    rows: HashMap<&'static str, RowWiring<'c>>,
    bundles: HashMap<&'static str, BundleWiring<'c>>,
    edges: Vec<EdgeWiring<'c>>,
    /// The edges whose verifier reads a slot.
    readers: HashMap<Slot, Vec<usize>>,
    /// The places that other writers fill, with the component whose bundle has the place as an input.
    foreign: Vec<(Component, Slot)>,
    /// The rows with a copy in an object that holds copies of several rows.
    gathered: HashMap<Object, Vec<&'c Row>>,
}

/// A row, and the signers, bundles and edges around it.
#[derive(Debug)]
pub struct RowWiring<'c> {
    /// The row.
    pub row: &'c Row,
    /// The rows that it signs.
    pub signs: Vec<&'static str>,
    /// The bundles that contain it, inputs before the bundles that contain them.
    pub flows_into: Vec<&'static str>,
    /// The edges on which its certificate is presented.
    pub edges: Vec<usize>,
    /// The namespaces of the static pods that restart when it changes.
    pub restarts: BTreeSet<&'static str>,
    /// The place of its certificate, if the row has only one.
    home: Option<Slot>,
}

/// A bundle and its places.
#[derive(Debug)]
pub struct BundleWiring<'c> {
    /// The bundle.
    pub bundle: &'c Bundle,
    /// The place of the bundle.
    pub home: Slot,
    /// The places of its copies, and how a change reaches the readers of each.
    pub copies: Vec<(Slot, Delivery)>,
}

/// An edge between the slots that its two sides read.
#[derive(Debug)]
pub struct EdgeWiring<'c> {
    /// The edge.
    pub edge: &'c Edge,
    /// The row whose certificates are presented.
    pub row: &'static str,
    /// The place that the verifier reads.
    pub trust: Slot,
    /// The place that the presenter reads: the row's Secret, or one of its copies.
    pub presents: Presents,
    /// The name of the edge, if it has only one instance.
    pub name: Arc<str>,
}

/// The slot of a row that a presenter reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presents {
    /// The slot of the row itself.
    Home,
    /// The copy with this number.
    Copy(usize),
}

impl EdgeWiring<'_> {
    /// Returns the name of the edge for one instance of its row.
    pub fn name_of(&self, instance: &Instance) -> Arc<str> {
        match instance {
            Instance::Cluster => self.name.clone(),
            Instance::Node { name, .. } => self.name.replace(NODE, name).into(),
            Instance::Service { namespace, secret, .. } => format!("{} ({namespace}/{secret})", self.name).into(),
        }
    }
}

impl<'c> Wiring<'c> {
    /// Builds the index of a catalog without defects.
    pub fn new(catalog: &'c Catalog) -> Wiring<'c> {
        let bundles: HashMap<_, _> = catalog.bundles.iter().map(|bundle| (bundle.id, wire_bundle(bundle))).collect();
        // The bootstrap control plane no longer exists in a running cluster.
        let alive = |edge: &&Edge| edge.verifier.name != BOOTSTRAP;
        let edges: Vec<_> =
            catalog.edges.iter().filter(alive).filter_map(|edge| wire_edge(catalog, &bundles, edge)).collect();
        let edges = with_unique_names(edges);
        let mut readers: HashMap<Slot, Vec<usize>> = HashMap::new();
        for (number, edge) in edges.iter().enumerate() {
            readers.entry(edge.trust.clone()).or_default().push(number);
        }
        let mut wiring = Wiring {
            catalog,
            rows: HashMap::new(),
            bundles,
            edges,
            readers,
            foreign: Vec::new(),
            gathered: HashMap::new(),
        };
        wiring.wire_rows();
        for row in &catalog.rows {
            for copy in row.copies.iter().filter(|copy| copy.data == CopyData::UnderItsName) {
                wiring.gathered.entry(copy.object).or_default().push(row);
            }
        }
        let foreign = |bundle: &Bundle, input: &BundleInput| match *input {
            BundleInput::Foreign(object) => Some((bundle.component, foreign_slot(object))),
            _ => None,
        };
        let inputs = |bundle: &'c Bundle| bundle.inputs.iter().filter_map(move |input| foreign(bundle, input));
        wiring.foreign = catalog.bundles.iter().flat_map(inputs).collect();
        wiring
    }

    fn wire_rows(&mut self) {
        let mut rows: HashMap<&'static str, RowWiring<'c>> = HashMap::new();
        let mut flows: HashMap<&'static str, Vec<&'static str>> = HashMap::new();
        let mut reached: HashMap<&'static str, BTreeSet<&'static str>> = HashMap::new();
        for bundle in &self.catalog.bundles {
            let mut signers = BTreeSet::new();
            for input in bundle.inputs {
                match *input {
                    BundleInput::History(row) => drop(signers.insert(row)),
                    BundleInput::Bundle(id) | BundleInput::First(id) => {
                        signers.extend(reached.get(id).into_iter().flatten());
                    }
                    BundleInput::Foreign(_) => {}
                }
            }
            signers.iter().for_each(|row| flows.entry(row).or_default().push(bundle.id));
            reached.insert(bundle.id, signers);
        }
        for row in &self.catalog.rows {
            let flows_into = flows.remove(row.id).unwrap_or_default();
            let home = (row.scope == Scope::Cluster).then(|| home_slot(row, &Instance::Cluster));
            let (signs, edges, restarts) = (Vec::new(), Vec::new(), BTreeSet::new());
            rows.insert(row.id, RowWiring { row, signs, flows_into, edges, restarts, home });
            if let Signer::Row(signer) = row.signer
                && let Some(signer) = rows.get_mut(signer)
            {
                signer.signs.push(row.id);
            }
        }
        for (number, edge) in self.edges.iter().enumerate() {
            rows.entry(edge.row).and_modify(|row| row.edges.push(number));
        }
        for row in &self.catalog.rows {
            let restarts = self.restarts(&rows[row.id]);
            rows.entry(row.id).and_modify(|wired| wired.restarts = restarts);
        }
        self.rows = rows;
    }

    /// Returns the static pods that restart when the row changes: those that read it, or a bundle that contains it.
    fn restarts(&self, wired: &RowWiring<'_>) -> BTreeSet<&'static str> {
        let mut restarts = BTreeSet::new();
        let mut add = |delivery: Delivery, object: Object| {
            if matches!(delivery, Delivery::Revisioned | Delivery::Relayed { .. }) {
                restarts.insert(object.namespace);
            }
        };
        if let Home::Secret(object) = wired.row.home {
            add(wired.row.delivery, object);
        }
        wired.row.copies.iter().for_each(|copy| add(copy.delivery, copy.object));
        for bundle in wired.flows_into.iter().map(|id| self.bundles[id].bundle) {
            if let BundleHome::ConfigMap(place) = bundle.home {
                add(bundle.delivery, place.object);
            }
            bundle.copies.iter().for_each(|copy| add(copy.delivery, copy.object));
        }
        restarts
    }

    /// Returns the row with this id.
    pub fn row(&self, id: &str) -> Option<&RowWiring<'c>> {
        self.rows.get(id)
    }

    /// Returns the bundle with this id.
    pub fn bundle(&self, id: &str) -> Option<&BundleWiring<'c>> {
        self.bundles.get(id)
    }

    /// Returns the bundle whose home or copy is in this place.
    pub fn bundle_in(&self, slot: &Slot) -> Option<&BundleWiring<'c>> {
        let kept = self.catalog.bundles.iter().filter(|bundle| bundle.day == Day::Two);
        let is_there = |wired: &&BundleWiring<'_>| wired.home == *slot || wired.copies.iter().any(|it| it.0 == *slot);
        kept.filter_map(|bundle| self.bundles.get(bundle.id)).find(is_there)
    }

    /// Returns the edges, by their numbers.
    pub fn edges(&self) -> &[EdgeWiring<'c>] {
        &self.edges
    }

    /// Returns true if an edge has this name, for all its instances or for one of them, existing or not.
    pub fn is_edge(&self, name: &str) -> bool {
        self.edge_called(name).is_some()
    }

    /// Returns the edge with this name, for all its instances or for one of them, existing or not.
    pub fn edge_called(&self, name: &str) -> Option<&EdgeWiring<'c>> {
        let is_called = |edge: &EdgeWiring<'_>| {
            let Some(rest) = name.strip_prefix(edge.name.as_ref()) else {
                let parts = edge.name.split_once(NODE);
                return parts.is_some_and(|(before, after)| {
                    name.strip_prefix(before).and_then(|rest| rest.strip_suffix(after)).is_some_and(|it| !it.is_empty())
                });
            };
            let is_of_services = self.row(edge.row).is_some_and(|wired| wired.row.scope == Scope::Service);
            rest.is_empty() || is_of_services && rest.starts_with(" (") && rest.ends_with(')')
        };
        self.edges.iter().find(|edge| is_called(edge))
    }

    /// Returns the edges whose verifier reads this slot.
    pub fn readers(&self, trust: &Slot) -> &[usize] {
        self.readers.get(trust).map_or(&[], Vec::as_slice)
    }

    /// Returns the row of the cluster or its nodes that has its certificate or a copy in this object.
    pub fn owner(&self, object: &str, population: &impl Population) -> Option<&'static str> {
        let rows = self.catalog.rows.iter().filter(|row| row.day == Day::Two && row.scope != Scope::Service);
        let is_there = |row: &&Row| {
            instances(row, population).iter().any(|instance| {
                let copies = row.copies.iter().map(|copy| copy_slot(row, copy, instance));
                [self.home(row, instance)].into_iter().chain(copies).any(|slot| slot.object_text() == object)
            })
        };
        rows.into_iter().find(is_there).map(|row| row.id)
    }

    /// Returns every place of a certificate that has an object of its own, except those of Services.
    pub fn places(&self, population: &impl Population) -> BTreeMap<Slot, RowPlace<'c>> {
        let mut places = BTreeMap::new();
        for row in self.catalog.rows.iter().filter(|row| row.day == Day::Two && row.scope != Scope::Service) {
            for instance in instances(row, population) {
                places.insert(self.home(row, &instance), RowPlace { row, is_copy: false });
                for copy in row.copies.iter().filter(|copy| copy.data != CopyData::UnderItsName) {
                    places.insert(copy_slot(row, copy, &instance), RowPlace { row, is_copy: true });
                }
            }
        }
        places
    }

    /// Returns the certificate of one place, also for a Service.
    pub fn place(&self, slot: &Slot, population: &impl Population) -> Option<RowPlace<'c>> {
        let of_service = || {
            let row = self.catalog.rows.iter().find(|row| row.scope == Scope::Service);
            row.filter(|_| population.is_of_service(slot)).map(|row| RowPlace { row, is_copy: false })
        };
        self.places(population).remove(slot).or_else(of_service)
    }

    /// Returns the rows with a copy in an object that holds copies of several rows.
    pub fn gathered_in(&self, object: Object) -> &[&'c Row] {
        self.gathered.get(&object).map_or(&[], Vec::as_slice)
    }

    /// Returns the place of a row's certificate.
    pub fn home(&self, row: &Row, instance: &Instance) -> Slot {
        let known = self.rows.get(row.id).and_then(|wired| wired.home.clone());
        known.unwrap_or_else(|| home_slot(row, instance))
    }

    /// Returns every slot that holds, or should hold, a certificate with its key.
    pub fn secret_slots(&self, population: &impl Population) -> BTreeSet<Slot> {
        self.secret_slots_of(population, |_| true)
    }

    /// Returns the slots of the certificates of some rows.
    pub fn secret_slots_of(&self, population: &impl Population, is_wanted: impl Fn(&Row) -> bool) -> BTreeSet<Slot> {
        let mut slots = BTreeSet::new();
        for row in self.catalog.rows.iter().filter(|row| row.day == Day::Two && is_wanted(row)) {
            for instance in instances(row, population) {
                slots.insert(home_slot(row, &instance));
                slots.extend(row.copies.iter().map(|copy| copy_slot(row, copy, &instance)));
            }
        }
        let day1 = self.edges.iter().filter_map(|edge| self.row(edge.row)).filter(|wired| wired.row.day == Day::One);
        let day1 = day1.filter(|wired| is_wanted(wired.row));
        slots.extend(day1.map(|wired| Slot::file(wired.row.id)));
        slots
    }

    /// Returns every slot that holds, or should hold, a bundle.
    pub fn bundle_slots(&self) -> impl Iterator<Item = &Slot> {
        self.bundle_slots_of(|_| true)
    }

    /// Returns the slots of bundles of some components.
    pub fn bundle_slots_of(&self, is_wanted: impl Fn(Component) -> bool + Copy) -> impl Iterator<Item = &Slot> {
        let is_wanted_too = move |bundle: &&Bundle| bundle.day == Day::Two && is_wanted(bundle.component);
        let day2 = self.catalog.bundles.iter().filter(is_wanted_too);
        let kept = day2.clone().filter_map(|bundle| self.bundles.get(bundle.id));
        let slots = kept.flat_map(|wired| [&wired.home].into_iter().chain(wired.copies.iter().map(|(slot, _)| slot)));
        let inputs = day2.flat_map(|bundle| bundle.inputs);
        let day1 = inputs.filter_map(|input| match *input {
            BundleInput::Bundle(id) | BundleInput::First(id) => {
                self.bundles.get(id).filter(|wired| wired.bundle.day == Day::One).map(|wired| &wired.home)
            }
            BundleInput::History(_) | BundleInput::Foreign(_) => None,
        });
        let of_wanted = move |edge: &&EdgeWiring<'_>| self.row(edge.row).is_some_and(|it| is_wanted(it.row.component));
        let files = self.edges.iter().filter(of_wanted).map(|edge| &edge.trust).filter(|slot| slot.is_file());
        let foreign = self.foreign.iter().filter(move |(component, _)| is_wanted(*component)).map(|(_, slot)| slot);
        slots.chain(day1).chain(files).chain(foreign)
    }

    /// Returns the slots of a row's certificate that are updated together with the row.
    ///
    /// A row that issues certificates on request is an exception: its copy is the issuing one, and is promoted
    /// separately.
    pub fn flows(&self, row: &Row) -> Vec<Presents> {
        let is_staged = self.is_staged(row);
        let copies = (0..row.copies.len()).filter(|_| !is_staged).map(Presents::Copy);
        [Presents::Home].into_iter().chain(copies).collect()
    }

    /// Returns true if the row's copy is the one that issues certificates on request.
    pub fn is_staged(&self, row: &Row) -> bool {
        let edges = self.rows[row.id].edges.iter().map(|number| &self.edges[*number]);
        !row.copies.is_empty() && edges.into_iter().any(|edge| matches!(edge.edge.leaf, Leaf::AnyBy(_)))
    }
}

const BOOTSTRAP: &str = "bootstrap control plane";
/// The placeholder for the name of a node.
const NODE: &str = "<node>";

fn wire_bundle(bundle: &Bundle) -> BundleWiring<'_> {
    let (home, key) = match bundle.home {
        BundleHome::ConfigMap(place) => (place.into(), place.key),
        BundleHome::File { config_maps: [place, ..], .. } => ((*place).into(), place.key),
        BundleHome::File { config_maps: [], .. } => (Slot::file(bundle.id), ""),
    };
    let copies = bundle.copies.iter().map(|copy| (Slot::new(&copy.object.of(&Instance::Cluster), key), copy.delivery));
    BundleWiring { bundle, home, copies: copies.collect() }
}

/// Edges that trust a single row belong to the installation, and do not exist in a running cluster.
fn wire_edge<'c>(
    catalog: &'c Catalog,
    bundles: &HashMap<&'static str, BundleWiring<'c>>,
    edge: &'c Edge,
) -> Option<EdgeWiring<'c>> {
    let (Leaf::Row(id) | Leaf::AnyBy(id)) = edge.leaf;
    let row = catalog.row(id)?;
    let Trust::Bundle(bundle) = edge.trust else { return None };
    let wired = bundles.get(bundle)?;
    let trust = match edge.verifier.place {
        Place::File(_) if wired.bundle.day == Day::One => Slot::file(wired.bundle.id),
        Place::File(_) => wired.home.clone(),
        Place::Object(object) => Slot::new(&object.of(&Instance::Cluster), wired.home.key()),
    };
    let presents = match (edge.leaf, edge.presenter.place) {
        (Leaf::AnyBy(_), _) if !row.copies.is_empty() => Presents::Copy(0),
        (_, Place::Object(object)) => {
            row.copies.iter().position(|copy| copy.object == object).map_or(Presents::Home, Presents::Copy)
        }
        (_, Place::File(_)) => Presents::Home,
    };
    let name = format!("{} accepts {} of {}", edge.verifier.name, edge.leaf, edge.presenter.name);
    Some(EdgeWiring { edge, row: row.id, trust, presents, name: name.into() })
}

/// Appends the purpose to the name of edges between the same two parties.
fn with_unique_names(mut edges: Vec<EdgeWiring<'_>>) -> Vec<EdgeWiring<'_>> {
    let mut count: HashMap<Arc<str>, usize> = HashMap::new();
    edges.iter().for_each(|edge| *count.entry(edge.name.clone()).or_default() += 1);
    for edge in edges.iter_mut().filter(|edge| count[&edge.name] > 1) {
        edge.name = format!("{} as a {}", edge.name, edge.edge.purpose).into();
    }
    edges
}

/// Returns the place of a row's certificate; a file, for a row of the installation.
pub fn home_slot(row: &Row, instance: &Instance) -> Slot {
    match row.home {
        Home::Secret(object) => Slot::tls(&object.of(instance)),
        Home::Files { .. } => Slot::file(row.id),
    }
}

/// Returns the place of a copy.
pub fn copy_slot(row: &Row, copy: &Copied, instance: &Instance) -> Slot {
    let object = copy.object.of(instance);
    match copy.data {
        CopyData::Same | CopyData::Alone => Slot::tls(&object),
        CopyData::UnderItsName => {
            let Home::Secret(source) = row.home else { return Slot::tls(&object) };
            Slot::new(&object, &format!("{}.crt", source.of(instance).name))
        }
    }
}

/// Returns the slot of a row that a presenter reads.
pub fn presented_slot(row: &Row, presents: Presents, instance: &Instance) -> Slot {
    match presents {
        Presents::Home => home_slot(row, instance),
        Presents::Copy(number) => copy_slot(row, &row.copies[number], instance),
    }
}

/// A place of a row's certificate.
#[derive(Debug, Clone, Copy)]
pub struct RowPlace<'c> {
    /// The row.
    pub row: &'c Row,
    /// True for a copy.
    pub is_copy: bool,
}

/// Returns the place of a bundle of another writer.
pub fn foreign_slot(object: Object) -> Slot {
    Slot::new(&object.of(&Instance::Cluster), "ca-bundle.crt")
}

/// The nodes and Services of a cluster, which decide how many certificates it has.
pub trait Population {
    /// Returns the control-plane nodes.
    fn nodes(&self) -> Vec<Instance>;
    /// Returns the Services that ask for a certificate.
    fn services(&self) -> Vec<Instance>;
    /// Returns true if a Service asks for a certificate in this place.
    fn is_of_service(&self, slot: &Slot) -> bool;
}

/// Returns the certificates that a row stands for in this cluster.
pub fn instances(row: &Row, population: &impl Population) -> Vec<Instance> {
    match row.scope {
        Scope::Cluster => vec![Instance::Cluster],
        Scope::Node => population.nodes(),
        Scope::Service => population.services(),
    }
}

/// Returns what distinguishes the certificates of one row: the Secret of each.
pub fn identity(row: &Row, instance: &Instance) -> String {
    match row.home {
        Home::Secret(object) => object.of(instance).to_string(),
        Home::Files { .. } => row.id.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::*;

    /// The planner and the simulation both use these. A change of an edge shows here.
    #[test]
    fn every_edge_reads_what_the_catalog_says() {
        let wiring = Wiring::new(Catalog::builtin());
        let node = Instance::Node { name: "m0".to_owned(), addresses: Vec::new() };
        let service = Instance::Service {
            namespace: "shop".to_owned(),
            name: "web".to_owned(),
            secret: "web-tls".to_owned(),
            headless: false,
            uid: String::new(),
        };
        let mut text = String::new();
        for edge in wiring.edges() {
            let row = wiring.row(edge.row).unwrap().row;
            let instance = match row.scope {
                Scope::Cluster => &Instance::Cluster,
                Scope::Node => &node,
                Scope::Service => &service,
            };
            let presented = presented_slot(row, edge.presents, instance);
            text += &format!("{}: {} <- {presented}\n", edge.name_of(instance), edge.trust);
        }
        expect![[r#"
            new node accepts day1/machine-config-server of machine-config-server: file:day1/machine-config-server-ca-bundle <- file:day1/machine-config-server
            kubectl accepts external-loadbalancer-serving-certkey of kube-apiserver: file:day1/kube-apiserver-complete-server-ca-bundle <- openshift-kube-apiserver/external-loadbalancer-serving-certkey:tls.crt
            new node accepts internal-loadbalancer-serving-certkey of kube-apiserver: file:day1/kube-apiserver-complete-server-ca-bundle <- openshift-kube-apiserver/internal-loadbalancer-serving-certkey:tls.crt
            kube-apiserver accepts day1/admin-kubeconfig-client of kubectl: openshift-kube-apiserver/client-ca:ca-bundle.crt <- file:day1/admin-kubeconfig-client
            kube-apiserver accepts day1/kubelet-client of new node: openshift-kube-apiserver/client-ca:ca-bundle.crt <- file:day1/kubelet-client
            node accepts internal-loadbalancer-serving-certkey of kube-apiserver: openshift-config-managed/kube-apiserver-server-ca:ca-bundle.crt <- openshift-kube-apiserver/internal-loadbalancer-serving-certkey:tls.crt
            control-plane process accepts localhost-serving-cert-certkey of kube-apiserver: openshift-kube-apiserver/kube-apiserver-server-ca:ca-bundle.crt <- openshift-kube-apiserver/localhost-serving-cert-certkey:tls.crt
            control-plane process accepts localhost-recovery-serving-certkey of kube-apiserver: openshift-kube-apiserver/kube-apiserver-server-ca:ca-bundle.crt <- openshift-kube-apiserver/localhost-recovery-serving-certkey:tls.crt
            pod accepts service-network-serving-certkey of kube-apiserver: openshift-kube-controller-manager/serviceaccount-ca:ca-bundle.crt <- openshift-kube-apiserver/service-network-serving-certkey:tls.crt
            kubelet accepts kubelet-client of kube-apiserver: openshift-config-managed/kube-apiserver-client-ca:ca-bundle.crt <- openshift-kube-apiserver/kubelet-client:tls.crt
            extension API server accepts aggregator-client of kube-apiserver: openshift-kube-apiserver/aggregator-client-ca:ca-bundle.crt <- openshift-kube-apiserver/aggregator-client:tls.crt
            kube-controller-manager accepts aggregator-client of kube-apiserver: openshift-kube-controller-manager/aggregator-client-ca:ca-bundle.crt <- openshift-kube-apiserver/aggregator-client:tls.crt
            kube-apiserver accepts kube-controller-manager-client-cert-key of kube-controller-manager: openshift-kube-apiserver/client-ca:ca-bundle.crt <- openshift-kube-controller-manager/kube-controller-manager-client-cert-key:tls.crt
            kube-apiserver accepts kube-scheduler-client-cert-key of kube-scheduler: openshift-kube-apiserver/client-ca:ca-bundle.crt <- openshift-kube-scheduler/kube-scheduler-client-cert-key:tls.crt
            kube-apiserver accepts control-plane-node-admin-client-cert-key of control-plane node: openshift-kube-apiserver/client-ca:ca-bundle.crt <- openshift-kube-apiserver/control-plane-node-admin-client-cert-key:tls.crt
            kube-apiserver accepts check-endpoints-client-cert-key of check-endpoints: openshift-kube-apiserver/client-ca:ca-bundle.crt <- openshift-kube-apiserver/check-endpoints-client-cert-key:tls.crt
            kube-apiserver accepts node-system-admin-client of administrator on a node: openshift-kube-apiserver/client-ca:ca-bundle.crt <- openshift-kube-apiserver-operator/node-system-admin-client:tls.crt
            kube-apiserver accepts any by csr-signer of kubelet as a client: openshift-kube-apiserver/client-ca:ca-bundle.crt <- openshift-kube-controller-manager/csr-signer:tls.crt
            kube-apiserver accepts any by csr-signer of kubelet as a server: openshift-kube-apiserver/kubelet-serving-ca:ca-bundle.crt <- openshift-kube-controller-manager/csr-signer:tls.crt
            monitoring accepts any by csr-signer of kubelet: openshift-config-managed/kubelet-serving-ca:ca-bundle.crt <- openshift-kube-controller-manager/csr-signer:tls.crt
            kube-controller-manager accepts any by csr-signer of monitoring: openshift-kube-controller-manager/client-ca:ca-bundle.crt <- openshift-kube-controller-manager/csr-signer:tls.crt
            etcd accepts etcd-peer-m0 of etcd as a server: openshift-etcd/etcd-all-bundles:server-ca-bundle.crt <- openshift-etcd/etcd-all-certs:etcd-peer-m0.crt
            etcd accepts etcd-peer-m0 of etcd as a client: openshift-etcd/etcd-all-bundles:server-ca-bundle.crt <- openshift-etcd/etcd-all-certs:etcd-peer-m0.crt
            kube-apiserver accepts etcd-serving-m0 of etcd: openshift-kube-apiserver/etcd-serving-ca:ca-bundle.crt <- openshift-etcd/etcd-all-certs:etcd-serving-m0.crt
            etcd operator accepts etcd-serving-m0 of etcd: openshift-etcd-operator/etcd-ca-bundle:ca-bundle.crt <- openshift-etcd/etcd-all-certs:etcd-serving-m0.crt
            etcd accepts etcd-client of kube-apiserver: openshift-etcd/etcd-all-bundles:server-ca-bundle.crt <- openshift-kube-apiserver/etcd-client:tls.crt
            etcd accepts etcd-client of etcd operator: openshift-etcd/etcd-all-bundles:server-ca-bundle.crt <- openshift-etcd-operator/etcd-client:tls.crt
            monitoring accepts etcd-serving-metrics-m0 of etcd: openshift-etcd-operator/etcd-metric-serving-ca:ca-bundle.crt <- openshift-etcd/etcd-all-certs:etcd-serving-metrics-m0.crt
            etcd accepts etcd-metric-client of monitoring: openshift-etcd/etcd-all-bundles:metrics-ca-bundle.crt <- openshift-etcd-operator/etcd-metric-client:tls.crt
            consumer of the service CA accepts service-serving of pod of the Service (shop/web-tls): openshift-config-managed/service-ca:ca-bundle.crt <- shop/web-tls:tls.crt
        "#]].assert_eq(&text);
    }
}
