//! One pass of the planner over a snapshot.

mod bundles;
mod certificates;
mod copies;
mod describe;
mod distrust;
mod metadata;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

pub use distrust::closure as distrusted;

use super::draft::Draft;
use super::proof::{self, Broken, Outcome, Urgency};
use super::reverted::reverted;
use super::step::{Pending, Report, Risk, Step};
use super::touched::{self, Touched};
use super::versions::after;
use crate::catalog::index::{Wiring, instances, presented_slot};
use crate::catalog::{BundleInput, Component, Day, Delivery, Instance, ROLLOUT_AT_MOST, Row, Signer};
use crate::policy::{Policy, Usage};
use crate::rules::{Reason, Waiting};
use crate::snapshot::{Observed, SecretState, Slot, Snapshot};
use crate::trust::KeyId;

/// The state of a pass.
pub(super) struct Pass<'a, 'c> {
    wiring: &'a Wiring<'c>,
    draft: Draft<'a>,
    policy: Policy,
    report: Report,
    issued: usize,
    /// The distrusted keys, and since when.
    distrusted: BTreeMap<KeyId, Timestamp>,
    /// The components that another operator writes, with an object and the writer as evidence.
    foreign: Vec<(Component, String, String)>,
}

impl<'a, 'c> Pass<'a, 'c> {
    pub(super) fn new(wiring: &'a Wiring<'c>, snapshot: &'a Snapshot) -> Pass<'a, 'c> {
        let report = Report {
            at: snapshot.taken_at,
            steps: Vec::new(),
            waiting: Vec::new(),
            risks: Vec::new(),
            next_look: Timestamp::MAX,
        };
        let policy = snapshot.key_policy().present().cloned().unwrap_or_default();
        let foreign = foreign_components(wiring, snapshot);
        let distrusted = distrust::closure(snapshot);
        Pass { wiring, draft: Draft::new(snapshot), policy, report, issued: 0, distrusted, foreign }
    }

    pub(super) fn snapshot(&self) -> &'a Snapshot {
        self.draft.snapshot()
    }

    pub(super) fn finish(mut self) -> Report {
        self.describe_steps();
        self.report
    }

    fn now(&self) -> Timestamp {
        self.report.at
    }

    fn look(&mut self, at: Timestamp) {
        if self.now() < at {
            self.report.next_look = self.report.next_look.min(at);
        }
    }

    fn wait(&mut self, slot: &Slot, name: &'static str, reason: Option<Reason>, waiting: Waiting) {
        if let Some(until) = waiting.until() {
            self.look(until);
        }
        self.report.waiting.push(Pending { slot: slot.clone(), name, reason, waiting });
    }

    /// Returns true if the component is not to be written: another operator writes it, or a setting excludes it.
    fn is_foreign(&mut self, slot: &Slot, name: &'static str, component: Component) -> bool {
        if self.snapshot().leaves(self.wiring.catalog, component, name) {
            return true;
        }
        let found = self.foreign.iter().find(|(foreign, ..)| *foreign == component);
        let Some((_, object, writer)) = found.cloned() else { return false };
        self.wait(slot, name, None, Waiting::OtherWriter { object, writer });
        true
    }

    /// Returns the same for a write that is not due by itself, without a report.
    fn is_left_alone(&self, name: &str, component: Component) -> bool {
        self.snapshot().leaves(self.wiring.catalog, component, name)
            || self.foreign.iter().any(|(foreign, ..)| *foreign == component)
    }

    /// Returns true if a Service asks for a Secret that holds a certificate of the cluster.
    fn is_taken(&mut self, row: &'c Row, slot: &Slot) -> bool {
        if row.scope != crate::catalog::Scope::Service {
            return false;
        }
        let Some(owner) = self.wiring.owner(slot.object_text(), self.snapshot()) else { return false };
        let waiting = Waiting::OtherWriter { object: slot.object_text().to_owned(), writer: owner.to_owned() };
        self.wait(slot, row.id, None, waiting);
        true
    }

    /// Returns the wait if the last write of the object failed: this pass does not retry it.
    fn unblocked(&self, slot: &Slot) -> Result<(), Waiting> {
        let blocked = self.snapshot().blocked.iter().find(|(blocked, _)| blocked.is_beside(slot));
        let Some((_, why)) = blocked else { return Ok(()) };
        Err(Waiting::Blocked { object: slot.object_text().to_owned(), why: why.clone(), until: None })
    }

    /// Checks that the content of these places is known.
    fn known(
        &self,
        secrets: impl IntoIterator<Item = Slot>,
        bundles: impl IntoIterator<Item = Slot>,
    ) -> Result<(), Waiting> {
        let unknown = |slot: &Slot, why: Option<&str>| {
            why.map(|why| Waiting::Unknown { object: slot.object_text().to_owned(), why: why.to_owned() })
        };
        let secret = secrets.into_iter().find_map(|slot| unknown(&slot, self.draft.secret(&slot).unknown()));
        let bundle = || bundles.into_iter().find_map(|slot| unknown(&slot, self.draft.bundle(&slot).unknown()));
        secret.or_else(bundle).map_or(Ok(()), Err)
    }

    /// Returns the places of the bundles that contain a signer directly.
    fn bundles_with(&self, signer: &str) -> Vec<Slot> {
        let Some(wired) = self.wiring.row(signer) else { return Vec::new() };
        let bundles = wired.flows_into.iter().filter_map(|id| self.wiring.bundle(id));
        let is_direct = |input: &BundleInput| matches!(input, BundleInput::History(id) if *id == signer);
        bundles.filter(|wired| wired.bundle.inputs.iter().any(is_direct)).map(|wired| wired.home.clone()).collect()
    }

    /// Returns the signer's place and state, if it can sign now.
    fn signer(&self, id: &'static str) -> Result<(Slot, &SecretState), Waiting> {
        let waiting = |until| Waiting::Signer { signer: id.to_owned(), until };
        let row = self.wiring.row(id).ok_or_else(|| waiting(None))?.row;
        let slot = self.wiring.home(row, &Instance::Cluster);
        let state = self.draft.secret(&slot).present().ok_or_else(|| waiting(None))?;
        Ok((slot, state))
    }

    /// Returns until when a row that has no certificate waits for the rollout of a new signer.
    ///
    /// A Service does not wait. Its pods cannot start without the Secret, so delaying it is an outage for its owner, and no
    /// client is better off by it. Where the Secret was deleted and pods may still present what was in it, the clients that
    /// reject the new certificate are named as a risk. A certificate that never existed does not wait either: no process
    /// presents another one in its place.
    fn missing_until(&self, row: &Row, slot: &Slot) -> Timestamp {
        match row.scope {
            _ if reverted().new_services => self.rolled_out_at(row),
            crate::catalog::Scope::Service => self.now(),
            _ if self.never_existed(row, slot) => self.now(),
            _ => self.rolled_out_at(row),
        }
    }

    /// Returns true if no process can have a certificate of this place.
    ///
    /// etcd is an exception: a late new member is better than one that the running members reject.
    fn never_existed(&self, row: &Row, slot: &Slot) -> bool {
        let snapshot = self.snapshot();
        let is_held = snapshot.held_secrets.get(slot).is_some_and(|held| !held.is_empty());
        // A damaged Secret existed, and processes may still use its earlier content.
        *self.draft.secret(slot) == Observed::Absent
            && row.component != Component::Etcd
            && row.usage != Usage::Signer
            && !is_held
            && !snapshot.deleted.contains(slot)
            && snapshot.lost_issues.get(slot).is_none_or(Vec::is_empty)
    }

    /// Returns when a new signer of a row is rolled out to all readers, if nothing delays the rollout.
    fn rolled_out_at(&self, row: &Row) -> Timestamp {
        let Signer::Row(signer) = row.signer else { return self.now() };
        // A row that issues on request is a new signer itself.
        let new = if self.wiring.is_staged(row) { row.id } else { signer };
        let since = self.signer(new).ok().and_then(|(_, state)| state.issued_at).unwrap_or(Timestamp::MIN);
        after(since.min(self.now()), ROLLOUT_AT_MOST.scaled(self.snapshot().time_scale()))
    }

    /// Does the write in the draft and records it, or returns what it waits for.
    fn attempt(&mut self, step: Step, touched: &[Touched], flow: &[Step], urgency: Urgency) -> Result<(), Waiting> {
        let Broken { risks, consented } = self.try_out(&step, touched, flow, urgency)?;
        self.report.steps.push(Step { risks, consented, ..step });
        Ok(())
    }

    /// Does the write in the draft only, and returns the broken edges, or what it waits for.
    fn try_out(
        &mut self,
        step: &Step,
        touched: &[Touched],
        flow: &[Step],
        urgency: Urgency,
    ) -> Result<Broken, Waiting> {
        // An edge with an unknown side cannot be proved.
        for touched in touched {
            let edge = &self.wiring.edges()[touched.edge];
            let presented =
                self.wiring.row(edge.row).map(|it| presented_slot(it.row, edge.presents, &touched.instance));
            self.known(presented, [edge.trust.clone()])?;
        }
        match proof::attempt(self.wiring, &mut self.draft, step, touched, flow, urgency) {
            Outcome::Safe(broken) => Ok(broken),
            Outcome::Waits { waiting, risks, more_at } => {
                self.note(risks);
                more_at.into_iter().for_each(|at| self.look(at));
                Err(waiting)
            }
        }
    }

    /// Reports every broken edge that the plan does not repair at once, and plans the next pass for when time alone breaks or
    /// repairs an edge.
    pub(super) fn look_at_edges(&mut self) {
        let now = self.now();
        let edges = touched::every_edge(self.wiring, &self.draft);
        let found = touched::states(self.wiring, &Draft::new(self.snapshot()), &edges);
        let planned = touched::states(self.wiring, &self.draft, &edges);
        let reported = touched::states(self.wiring, &Draft::to_report(self.snapshot()), &edges);
        // An edge without a bundle or certificate is not broken.
        let states = found.iter().zip(&planned).zip(&reported);
        for ((found, planned), reported) in states.filter(|((found, _), _)| !found.is_idle()) {
            let holds = planned.holds(now);
            let next = self.report.next_look;
            let changes = |at: &Timestamp| planned.holds(*at).is_ok() != holds.is_ok();
            if let Some(at) = proof::instants_after(planned, now).take_while(|at| *at < next).find(changes) {
                self.look(at);
            }
            let Err(broken) = holds else { continue };
            if found.holds(now).is_ok() || reported.holds(now).is_ok() {
                continue;
            }
            let edge = planned.name.to_string();
            let mut known = self.report.steps.iter().flat_map(|step| &step.risks).chain(&self.report.risks);
            if !known.any(|risk| risk.edge == edge && risk.at == now) {
                self.report.risks.push(Risk { edge, at: now, broken });
            }
        }
    }

    fn note(&mut self, risks: Vec<Risk>) {
        for risk in risks {
            if !self.report.risks.contains(&risk) {
                self.report.risks.push(risk);
            }
        }
    }
}

/// Returns the static pods that a change of this slot restarts.
fn restarted(slot: &Slot, delivery: Delivery) -> BTreeSet<String> {
    match delivery {
        Delivery::Revisioned | Delivery::Relayed { .. } => BTreeSet::from([slot.namespace().to_owned()]),
        Delivery::Reloaded { .. } | Delivery::Never | Delivery::Indirect => BTreeSet::new(),
    }
}

/// Returns the components of which another operator writes an object, except those that were taken over.
fn foreign_components(wiring: &Wiring<'_>, snapshot: &Snapshot) -> Vec<(Component, String, String)> {
    if snapshot.other_writers.is_empty() {
        return Vec::new();
    }
    let mut found: Vec<(Component, String, String)> = Vec::new();
    let mut add = |component: Component, slot: &Slot| {
        let Some(writer) = snapshot.other_writers.get(slot) else { return };
        let known = found.iter().any(|(known, ..)| *known == component);
        if !known && !snapshot.settings.taken_over.contains(component.owner()) {
            found.push((component, slot.object_text().to_owned(), writer.clone()));
        }
    };
    for row in wiring.catalog.rows.iter().filter(|row| row.day == Day::Two) {
        instances(row, snapshot).iter().for_each(|instance| add(row.component, &wiring.home(row, instance)));
    }
    for bundle in wiring.catalog.bundles.iter().filter(|bundle| bundle.day == Day::Two) {
        if let Some(wired) = wiring.bundle(bundle.id) {
            add(bundle.component, &wired.home);
        }
    }
    found
}
