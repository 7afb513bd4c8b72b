//! A cluster for tests of the planner: its objects in a snapshot, its static pods, and its clock.

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};

use jiff::{SignedDuration, Timestamp};

use super::text::days;
use crate::catalog::index::{instances, presented_slot};
use crate::catalog::{Catalog, ClusterFacts, Delivery, Instance, USUAL_ROLLOUT};
use crate::plan::{Action, Issue, Planner, Report, Scope, Step};
use crate::simulate::installed;
use crate::snapshot::{BundleState, Held, Observed, SecretState, Service, ServiceCaConfig, Slot, Snapshot};
use crate::spec::Host;
use crate::trust::CertificateId;
use crate::verify::{Checked, State, verify};

pub(super) use crate::trust::fixtures::day;

/// A cluster with three control-plane nodes and two Services.
#[derive(Debug, Clone)]
pub(super) struct Cluster<'c> {
    pub(super) planner: &'c Planner<'c>,
    pub(super) snapshot: Snapshot,
    /// True if static pods restart by themselves, some time after a change of the objects that they read.
    pub(super) restarts: bool,
    /// Edges that held and broke by time alone.
    pub(super) ended: Vec<String>,
    rolls_at: Option<Timestamp>,
}

/// Returns the planner for the built-in catalog.
pub(super) fn builtin() -> &'static Planner<'static> {
    static PLANNER: LazyLock<Planner<'static>> = LazyLock::new(|| Planner::new(Catalog::builtin()));
    &PLANNER
}

pub(super) fn slot(text: &str) -> Slot {
    text.parse().unwrap()
}

/// Returns the place of the certificate of `openshift-etcd/etcd-signer`.
pub(super) fn tls(object: &str) -> Slot {
    slot(&format!("{object}:tls.crt"))
}

/// Returns the place of the bundle of `openshift-kube-apiserver/client-ca`.
pub(super) fn ca(object: &str) -> Slot {
    slot(&format!("{object}:ca-bundle.crt"))
}

pub(super) const SECOND: SignedDuration = SignedDuration::from_secs(1);
pub(super) const MINUTE: SignedDuration = SignedDuration::from_mins(1);
pub(super) const HOUR: SignedDuration = SignedDuration::from_hours(1);

pub(super) fn facts() -> ClusterFacts {
    ClusterFacts {
        service_domain: "cluster.local".to_owned(),
        api_external: Some(Host::parse("api.test")),
        api_internal: Some(Host::parse("api-int.test")),
        service_networks: vec!["172.30.0.0/16".parse().unwrap()],
        api_vips: Vec::new(),
        bootstrap_provisioning: None,
    }
}

impl Cluster<'static> {
    /// Returns a cluster without any object, on day 0.
    pub(super) fn nothing() -> Cluster<'static> {
        Cluster::nothing_of(builtin())
    }

    /// Returns a cluster whose objects were created on day 0 and loaded by every process.
    pub(super) fn made() -> Cluster<'static> {
        Cluster::made_of(builtin())
    }

    /// Returns a cluster after its installation on day 0: its signers are adopted, its files exist.
    pub(super) fn installed() -> Cluster<'static> {
        let planner = builtin();
        Cluster::around(planner, installed(planner, facts(), day(0)))
    }
}

impl<'c> Cluster<'c> {
    pub(super) fn nothing_of(planner: &'c Planner<'c>) -> Cluster<'c> {
        Cluster::around(planner, Snapshot::empty(planner.wiring(), facts(), day(0)))
    }

    pub(super) fn made_of(planner: &'c Planner<'c>) -> Cluster<'c> {
        let mut cluster = Cluster::nothing_of(planner);
        cluster.settle();
        cluster.roll();
        cluster
    }

    fn around(planner: &'c Planner<'c>, snapshot: Snapshot) -> Cluster<'c> {
        let mut cluster = Cluster { planner, snapshot, restarts: true, ended: Vec::new(), rolls_at: None };
        cluster.snapshot.settings.every_component = true;
        for number in 0..3_u8 {
            cluster.snapshot.nodes.found_mut().insert(format!("m{number}"), vec![[10, 0, 0, number].into()]);
        }
        for (name, headless) in [("web", false), ("db", true)] {
            cluster.snapshot.services.found_mut().insert(tls(&format!("shop/{name}-tls")), service(name, headless));
        }
        cluster.snapshot.complete(planner.wiring());
        cluster
    }

    pub(super) fn now(&self) -> Timestamp {
        self.snapshot.taken_at
    }

    pub(super) fn plan(&self) -> Report {
        self.planner.plan(&self.snapshot, &Scope::All)
    }

    pub(super) fn plan_at(&self, at: Timestamp) -> Report {
        self.planner.plan(&Snapshot { taken_at: at, ..self.snapshot.clone() }, &Scope::All)
    }

    /// Does these writes. They must not break an edge that holds, unless they name it as a risk.
    pub(super) fn carry_out(&mut self, steps: &[Step]) {
        let held = self.holding();
        steps.iter().for_each(|step| self.snapshot.apply(step));
        self.snapshot.forget_unmentioned();
        assert_eq!(self.snapshot.check(self.planner.wiring()), Ok(()));
        let holding = self.holding();
        // Edges with consent count as named.
        let announced = steps.iter().flat_map(|step| &step.risks).map(|risk| &risk.edge).collect::<BTreeSet<_>>();
        let broken = held.difference(&holding).find(|edge| !announced.contains(edge));
        let by = || steps.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(broken, None, "broken at {}:\n{:#?}\nby {:#?}", self.now(), self.broken(), by());
        if self.restarts && steps.iter().any(|step| !step.restarts.is_empty()) {
            let rolls_at = self.now() + USUAL_ROLLOUT.scaled(self.snapshot.time_scale());
            self.rolls_at.get_or_insert(rolls_at);
        }
    }

    /// Plans and writes until no step is left at this instant, and returns all steps.
    pub(super) fn settle(&mut self) -> Vec<Step> {
        let mut done = Vec::new();
        for _ in 0..10 {
            let report = self.plan();
            if report.steps.is_empty() {
                return done;
            }
            self.carry_out(&report.steps);
            done.extend(report.steps);
        }
        panic!("it never ends: {done:#?}");
    }

    /// Advances the clock, and does all due writes.
    pub(super) fn go_to(&mut self, to: Timestamp) -> &mut Cluster<'c> {
        self.go_watching(to, |_, _| {})
    }

    /// Advances the clock, and shows every report before its writes are done; the last report is that of `to`.
    pub(super) fn go_watching(
        &mut self,
        to: Timestamp,
        mut watch: impl FnMut(&Cluster<'c>, &Report),
    ) -> &mut Cluster<'c> {
        let mut writes = 0;
        loop {
            let report = self.plan();
            watch(self, &report);
            if !report.steps.is_empty() {
                writes += 1;
                assert!(writes < 10, "it never ends at {}: {:#?}", self.now(), report.steps);
                self.carry_out(&report.steps);
                continue;
            }
            if self.now() == to {
                return self;
            }
            writes = 0;
            let next = report.next_look.min(self.rolls_at.unwrap_or(Timestamp::MAX));
            self.pass_to(next.min(to));
        }
    }

    /// Lets time pass without looking.
    pub(super) fn pass_to(&mut self, at: Timestamp) {
        assert!(self.now() <= at, "time does not go back from {} to {at}", self.now());
        let held = self.holding();
        if let Some(rolls_at) = self.rolls_at.filter(|rolls_at| *rolls_at <= at) {
            self.snapshot.taken_at = rolls_at;
            self.roll();
        }
        self.snapshot.taken_at = at;
        let holding = self.holding();
        let lost: Vec<&String> = held.difference(&holding).collect();
        if !lost.is_empty() {
            let broken = self.broken();
            let of =
                |edge: &&String| broken.iter().find(|it| it.starts_with(edge.as_str())).cloned().unwrap_or_default();
            self.ended.extend(lost.iter().map(of).map(|it| days(&format!("{at}: {it}"))));
        }
    }

    /// Returns when static pods will have restarted.
    pub(super) fn rolls_at(&self) -> Option<Timestamp> {
        self.rolls_at
    }

    /// Restarts all static pods.
    pub(super) fn roll(&mut self) {
        self.rolls_at = None;
        for node in self.snapshot.nodes.found().keys().cloned().collect::<Vec<_>>() {
            self.roll_node(&node);
        }
    }

    /// Restarts the static pods of a node. They load the current content.
    pub(super) fn roll_node(&mut self, node: &str) {
        let (bundles, secrets) = self.read_at_restart(node);
        let since = self.now();
        for slot in bundles {
            let Some(members) = self.snapshot.bundles[&slot].present().map(|it| it.members.clone()) else { continue };
            hold(self.snapshot.held_bundles.entry(slot).or_default(), node, since, members);
        }
        for slot in secrets {
            let Some(state) = self.snapshot.secrets[&slot].present() else { continue };
            let members = [&state.certificate.id].into_iter().chain(&state.chain).cloned().collect();
            hold(self.snapshot.held_secrets.entry(slot).or_default(), node, since, members);
        }
    }

    fn read_at_restart(&self, node: &str) -> (BTreeSet<Slot>, BTreeSet<Slot>) {
        let is_read = |delivery| matches!(delivery, Delivery::Revisioned | Delivery::Relayed { .. });
        let wiring = self.planner.wiring();
        let (mut bundles, mut secrets) = (BTreeSet::new(), BTreeSet::new());
        for edge in wiring.edges() {
            if is_read(edge.edge.verifier.delivery) {
                bundles.insert(edge.trust.clone());
            }
            let row = wiring.row(edge.row).unwrap().row;
            let here = |instance: &Instance| match instance {
                Instance::Node { name, .. } => name == node,
                Instance::Cluster | Instance::Service { .. } => true,
            };
            if is_read(edge.edge.presenter.delivery) {
                let here = instances(row, &self.snapshot).into_iter().filter(here);
                secrets.extend(here.map(|instance| presented_slot(row, edge.presents, &instance)));
            }
        }
        (bundles, secrets)
    }

    /// Adds a control-plane node; its static pods do not run yet.
    pub(super) fn join(&mut self, node: &str, address: &str) {
        self.snapshot.nodes.found_mut().insert(node.to_owned(), vec![address.parse().unwrap()]);
        self.snapshot.complete(self.planner.wiring());
    }

    /// Removes a control-plane node.
    pub(super) fn leave(&mut self, node: &str) {
        self.snapshot.nodes.found_mut().remove(node);
        let held = self.snapshot.held_bundles.values_mut().chain(self.snapshot.held_secrets.values_mut());
        held.for_each(|held| held.retain(|held| held.by != node));
        self.snapshot.held_secrets.retain(|_, held| !held.is_empty());
    }

    pub(super) fn force(&mut self, row: &str, reason: &str) {
        self.snapshot.settings.forced.insert(row.to_owned(), reason.to_owned());
    }

    /// What the ServiceCA resource asks for, to be changed.
    pub(super) fn service_ca(&mut self) -> &mut ServiceCaConfig {
        if self.snapshot.service_ca == Observed::Absent {
            self.snapshot.service_ca = Observed::Present(ServiceCaConfig::default());
        }
        match &mut self.snapshot.service_ca {
            Observed::Present(config) => config,
            other => panic!("{other:?}"),
        }
    }

    /// The ServiceCA resource asks for a rotation.
    pub(super) fn request(&mut self, reason: &str) {
        self.service_ca().force_rotation_reason = Some(reason.to_owned());
    }

    /// The ServiceCA resource asks for another validity, in an emergency.
    pub(super) fn ask_for_validity(&mut self, validity: SignedDuration) {
        let config = self.service_ca();
        config.validity_nanoseconds = Some(validity.as_nanos().try_into().unwrap());
        config.emergency = true;
    }

    pub(super) fn delete_secret(&mut self, object: &str) {
        self.set_secret(object, Observed::Absent);
        self.snapshot.deleted.insert(tls(object));
    }

    pub(super) fn delete_bundle(&mut self, object: &str) {
        *self.snapshot.bundles.get_mut(&ca(object)).unwrap() = Observed::Absent;
    }

    pub(super) fn set_secret(&mut self, object: &str, state: Observed<SecretState>) {
        *self.snapshot.secrets.get_mut(&tls(object)).unwrap_or_else(|| panic!("no {object}")) = state;
    }

    /// Changes an existing Secret.
    pub(super) fn change_secret(&mut self, object: &str, change: impl FnOnce(&mut SecretState)) {
        let mut state = self.secret(object).clone();
        change(&mut state);
        self.snapshot.certificates.insert(state.certificate.clone());
        self.set_secret(object, Observed::Present(state));
    }

    pub(super) fn secret(&self, object: &str) -> &SecretState {
        self.snapshot.secrets[&tls(object)].present().unwrap_or_else(|| panic!("{object} is not there"))
    }

    pub(super) fn bundle(&self, object: &str) -> &BundleState {
        self.snapshot.bundles[&ca(object)].present().unwrap_or_else(|| panic!("{object} is not there"))
    }

    /// Returns true if the leaf was signed by the current signer.
    pub(super) fn is_by(&self, leaf: &str, signer: &str) -> bool {
        self.secret(leaf).certificate.signed_by.as_ref() == Some(&self.secret(signer).certificate.subject)
    }

    pub(super) fn verify(&self) -> Vec<Checked> {
        verify(self.planner, &self.snapshot)
    }

    /// Returns the edges that hold now.
    fn holding(&self) -> BTreeSet<String> {
        let holds = |checked: &Checked| matches!(checked.state, State::Holds { .. });
        self.verify().into_iter().filter(holds).map(|checked| checked.edge).collect()
    }

    /// Returns the edges that are broken now, and why.
    pub(super) fn broken(&self) -> Vec<String> {
        let broken = |checked: Checked| match checked.state {
            State::Broken(broken) => Some(format!("{}: {broken}", checked.edge)),
            State::Holds { .. } | State::Nothing | State::Unknown { .. } => None,
        };
        self.verify().into_iter().filter_map(broken).collect()
    }
}

pub(super) fn service(name: &str, headless: bool) -> Service {
    Service { name: name.to_owned(), headless, uid: format!("uid-of-{name}"), ..Service::default() }
}

fn hold(held: &mut Vec<Held>, by: &str, since: Timestamp, members: Vec<CertificateId>) {
    let before = held.iter().position(|held| held.by == by).map(|position| held.remove(position));
    let revision = before.as_ref().and_then(|before| before.revision).unwrap_or(0) + 1;
    held.push(Held { by: by.to_owned(), revision: Some(revision), since: Some(since), members });
    held.sort_by(|one, other| one.by.cmp(&other.by));
}

/// Returns the issues of these steps.
pub(super) fn issues(steps: &[Step]) -> Vec<&Issue> {
    let actions = steps.iter().map(|step| &step.action);
    actions.filter_map(|action| if let Action::Issue(issue) = action { Some(issue.as_ref()) } else { None }).collect()
}

/// Returns the issue of this object in these steps.
pub(super) fn issue_of<'s>(steps: &'s [Step], object: &str) -> Option<&'s Issue> {
    issues(steps).into_iter().find(|issue| issue.slot.object_text() == object)
}

/// Returns the Secret with another validity.
pub(super) fn living(state: &SecretState, from: Timestamp, to: Timestamp) -> SecretState {
    let mut certificate = state.certificate.as_ref().clone();
    certificate.id = CertificateId(format!("{} from {from}", certificate.id).into());
    certificate.validity.not_before = from;
    certificate.validity.not_after = to;
    SecretState { certificate: Arc::new(certificate), ..state.clone() }
}
