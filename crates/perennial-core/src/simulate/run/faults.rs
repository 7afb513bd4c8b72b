//! How each fault changes the simulated cluster.

use std::sync::Arc;

use jiff::SignedDuration;

use super::super::Fault;
use super::super::chance::Chance;
use super::super::outcome::Happening;
use super::super::world::Reads;
use super::queue::Event;
use super::{Run, node_address, service};
use crate::catalog::Day;
use crate::key::KeySpec;
use crate::policy::Policy;
use crate::snapshot::{Annotation, BundleState, Observed, SecretState, Slot};

/// The smallest and largest number of control-plane nodes.
const NODES: std::ops::RangeInclusive<usize> = 3..=5;

impl Run<'_, '_> {
    pub(super) fn fault(&mut self, number: usize) {
        let fault = self.script[number].fault.clone();
        let victim = match fault {
            Fault::OperatorDown { seconds } => self.operator_goes_down(seconds),
            Fault::ClusterDown { seconds } => self.cluster_goes_down(seconds),
            Fault::DeleteSecret(number) => self.with_secret(number, |_| Observed::Absent),
            Fault::CorruptSecret(number) => {
                self.with_secret(number, |_| Observed::Unreadable { why: "tls.crt is no certificate".to_owned() })
            }
            Fault::GarbleAnnotation(number) => self.with_secret(number, |state| {
                Observed::Present(SecretState { not_after: Annotation::Missing, ..state.clone() })
            }),
            Fault::DeleteBundle(number) => self.with_bundle(number, |_| Observed::Absent),
            Fault::CorruptBundle(number) => {
                self.with_bundle(number, |state| Observed::Present(damaged(state, number % 2 == 0)))
            }
            Fault::LoseWrites(count) => {
                self.operator.lose_writes = count;
                None
            }
            Fault::RepeatWrite => {
                self.operator.lose_answer = true;
                None
            }
            Fault::Crash(writes) => {
                self.operator.crash_after = Some(writes);
                None
            }
            Fault::ClockOff { seconds, lasts } => {
                self.operator.clock_off = (seconds, self.now + SignedDuration::from_secs(lasts));
                self.plan_all_families();
                None
            }
            Fault::NodeJoins => self.node_joins(),
            Fault::NodeLeaves => self.node_leaves(),
            Fault::ServiceComes => self.service_comes(),
            Fault::ServiceGoes => self.service_goes(),
            Fault::PolicyEdit(number) => self.policy_is_edited(number),
            Fault::PolicyUnreadable { seconds } => self.policy_is_unreadable(seconds),
            Fault::Force(number) => self.force(number),
        };
        let text = victim.map_or_else(|| fault.to_string(), |victim| format!("{fault}: {victim}"));
        self.outcome.record(self.now, Happening::Fault, text);
    }

    // Power

    fn operator_goes_down(&mut self, seconds: i64) -> Option<String> {
        let until = self.now + SignedDuration::from_secs(seconds);
        self.operator.down_until = self.operator.down_until.max(until);
        self.operator.pending.clear();
        self.look_at(self.operator.down_until);
        None
    }

    /// Stops all processes. Each starts with the current content of its files when the cluster is up again.
    fn cluster_goes_down(&mut self, seconds: i64) -> Option<String> {
        self.cluster_down = self.cluster_down.max(self.now + SignedDuration::from_secs(seconds));
        self.operator.pending.clear();
        self.look_at(self.cluster_down);
        let again = |(number, process): (usize, &super::super::world::Process)| {
            matches!(process.reads, Reads::Again { .. }).then_some(number)
        };
        let again: Vec<usize> = self.world.processes.iter().enumerate().filter_map(again).collect();
        for process in again {
            let at = self.cluster_down + self.chance.seconds(1, 120);
            self.queue.push(at, Event::Load(process));
        }
        let nodes: Vec<Arc<str>> = self.snapshot.nodes.found().keys().map(|node| node.as_str().into()).collect();
        for node in nodes {
            let at = self.cluster_down + self.chance.seconds(1, 120);
            self.queue.push(at, Event::Boot(node));
        }
        None
    }

    // Objects

    fn with_secret(&mut self, number: u64, change: impl Fn(&SecretState) -> Observed<SecretState>) -> Option<String> {
        let present: Vec<(&Slot, &SecretState)> = self
            .snapshot
            .secrets
            .iter()
            .filter(|(slot, _)| !slot.is_file())
            .filter_map(|(slot, found)| Some((slot, found.present()?)))
            .collect();
        let (slot, state) = Chance::new(number).pick(&present)?;
        let (slot, state) = ((*slot).clone(), change(state));
        if state.present().is_none() {
            self.key_is_lost(&slot);
        }
        if state == Observed::Absent {
            self.snapshot.deleted.insert(slot.clone());
        }
        self.ledger.disturb(&slot, self.now);
        self.snapshot.secrets.insert(slot.clone(), state);
        self.another_client_wrote(&slot);
        Some(slot.object_text().to_owned())
    }

    /// Changes a bundle that can be rebuilt. Those of the installation cannot.
    fn with_bundle(&mut self, number: u64, change: impl Fn(&BundleState) -> Observed<BundleState>) -> Option<String> {
        let wiring = self.planner.wiring();
        let bundles = wiring.catalog.bundles.iter().filter(|bundle| bundle.day == Day::Two);
        let wired = bundles.filter_map(|bundle| wiring.bundle(bundle.id));
        let slots = wired.flat_map(|it| [&it.home].into_iter().chain(it.copies.iter().map(|(slot, _)| slot)));
        let present: Vec<(&Slot, &BundleState)> =
            slots.filter_map(|slot| Some((slot, self.snapshot.bundles.get(slot)?.present()?))).collect();
        let (slot, state) = Chance::new(number).pick(&present)?;
        let (slot, state) = ((*slot).clone(), change(state));
        self.snapshot.bundles.insert(slot.clone(), state);
        self.another_client_wrote(&slot);
        Some(slot.object_text().to_owned())
    }

    fn another_client_wrote(&mut self, slot: &Slot) {
        self.forgotten.insert(slot.clone(), self.now);
        self.operator.touched.insert(slot.object_text().to_owned());
        self.plan_all_families();
    }

    // Members

    fn node_joins(&mut self) -> Option<String> {
        if self.snapshot.nodes.found().len() >= *NODES.end() {
            return Some("none, because there are enough".to_owned());
        }
        let name = format!("master-{}", self.names);
        self.snapshot.nodes.found_mut().insert(name.clone(), vec![node_address(self.names)]);
        self.names += 1;
        self.rebuild();
        // Its static pods start like all others.
        let operands: Vec<Arc<str>> = self.world.operands.keys().cloned().collect();
        operands.iter().for_each(|operand| self.dirty(operand));
        self.plan_all_families();
        Some(name)
    }

    fn node_leaves(&mut self) -> Option<String> {
        if self.snapshot.nodes.found().len() <= *NODES.start() {
            return Some("none, because there are too few".to_owned());
        }
        let name = self.snapshot.nodes.found().keys().next().cloned()?;
        self.snapshot.nodes.found_mut().remove(&name);
        self.rebuild();
        self.close_gone();
        self.plan_all_families();
        Some(name)
    }

    fn service_comes(&mut self) -> Option<String> {
        let (slot, service) = service(self.names);
        self.names += 1;
        let name = service.name.clone();
        self.snapshot.services.found_mut().insert(slot, service);
        self.rebuild();
        self.plan_all_families();
        Some(name)
    }

    fn service_goes(&mut self) -> Option<String> {
        let (slot, service) = self.snapshot.services.found_mut().pop_first()?;
        self.snapshot.secrets.remove(&slot);
        self.rebuild();
        self.close_gone();
        Some(service.name)
    }

    // Administrators

    fn policy_is_edited(&mut self, number: u64) -> Option<String> {
        let key = *Chance::new(number).pick(&KeySpec::ALL)?;
        self.snapshot.policy = Observed::Present(Policy { defaults: Some(key), ..Policy::default() });
        self.plan_all_families();
        Some(key.to_string())
    }

    fn policy_is_unreadable(&mut self, seconds: i64) -> Option<String> {
        self.snapshot.policy = Observed::Unreadable { why: "spec.defaults is garbled".to_owned() };
        self.queue.push(self.now + SignedDuration::from_secs(seconds), Event::PolicyReadable);
        self.plan_all_families();
        None
    }

    pub(super) fn policy_is_readable(&mut self) {
        self.snapshot.policy = Observed::Absent;
        self.plan_all_families();
    }

    fn force(&mut self, number: u64) -> Option<String> {
        let rows = self.planner.wiring().catalog.rows.iter().filter(|row| row.day == Day::Two);
        let rows: Vec<&'static str> = rows.map(|row| row.id).collect();
        let row = *Chance::new(number).pick(&rows)?;
        self.snapshot.settings.forced.insert(row.to_owned(), format!("drill {}", self.now));
        self.ledger.force(row, self.now);
        self.plan_all_families();
        Some(row.to_owned())
    }
}

/// Returns a bundle with some unreadable blocks, or with none that is readable.
fn damaged(state: &BundleState, completely: bool) -> BundleState {
    let mut state = state.clone();
    state.members.truncate(if completely { 0 } else { 1 });
    state.damage.push("block 2 is no certificate".to_owned());
    state
}
