//! One pass over a snapshot.

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
use super::step::{Pending, Report, Risk, Step};
use super::touched::{self, Touched};
use super::versions::after;
use crate::catalog::{BundleInput, Component, Day, Delivery, Instance, Row, Signer};
use crate::policy::Policy;
use crate::rules::{Reason, SecretState, Waiting};
use crate::snapshot::{Slot, Snapshot};
use crate::trust::KeyId;
use crate::wiring::{Wiring, instances, presented_slot};

/// A pass in the making.
pub(super) struct Pass<'a, 'c> {
    wiring: &'a Wiring<'c>,
    draft: Draft<'a>,
    policy: Policy,
    report: Report,
    issued: usize,
    /// The keys that nobody is to trust any more, and since when.
    distrusted: BTreeMap<KeyId, Timestamp>,
    /// Components that somebody else writes, and the object and writer that show it.
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
        let policy = snapshot.policy.present().cloned().unwrap_or_default();
        let foreign = foreign_components(wiring, snapshot);
        let distrusted = distrust::closure(snapshot);
        Pass { wiring, draft: Draft::new(snapshot), policy, report, issued: 0, distrusted, foreign }
    }

    pub(super) fn snapshot(&self) -> &'a Snapshot {
        self.draft.snapshot()
    }

    pub(super) fn finish(self) -> Report {
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

    /// Whether somebody else writes this component's objects, or somebody wants them as they are; then nothing of it is touched.
    fn is_foreign(&mut self, slot: &Slot, name: &'static str, component: Component) -> bool {
        if self.snapshot().settings.leaves(component, name) {
            return true;
        }
        let found = self.foreign.iter().find(|(foreign, ..)| *foreign == component);
        let Some((_, object, writer)) = found.cloned() else { return false };
        self.wait(slot, name, None, Waiting::OtherWriter { object, writer });
        true
    }

    /// The same for what is not due by itself, and not worth a word.
    fn is_left_alone(&self, name: &str, component: Component) -> bool {
        self.snapshot().settings.leaves(component, name)
            || self.foreign.iter().any(|(foreign, ..)| *foreign == component)
    }

    /// Whether a Service asks for a Secret that holds one of the cluster's own certificates.
    fn is_taken(&mut self, row: &'c Row, slot: &Slot) -> bool {
        if row.scope != crate::catalog::Scope::Service {
            return false;
        }
        let Some(owner) = self.wiring.owner(slot.object_text(), self.snapshot()) else { return false };
        let waiting = Waiting::OtherWriter { object: slot.object_text().to_owned(), writer: owner.to_owned() };
        self.wait(slot, row.id, None, waiting);
        true
    }

    /// Whether the object was tried a moment ago, in vain: it is not tried again now.
    fn unblocked(&self, slot: &Slot) -> Result<(), Waiting> {
        let blocked = self.snapshot().blocked.iter().find(|(blocked, _)| blocked.is_beside(slot));
        let Some((_, why)) = blocked else { return Ok(()) };
        Err(Waiting::Blocked { object: slot.object_text().to_owned(), why: why.clone(), until: None })
    }

    /// Whether it is known what is in these places.
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

    /// The places of the bundles that a signer is in by itself.
    fn bundles_with(&self, signer: &str) -> Vec<Slot> {
        let Some(wired) = self.wiring.row(signer) else { return Vec::new() };
        let bundles = wired.flows_into.iter().filter_map(|id| self.wiring.bundle(id));
        let is_direct = |input: &BundleInput| matches!(input, BundleInput::History(id) if *id == signer);
        bundles.filter(|wired| wired.bundle.inputs.iter().any(is_direct)).map(|wired| wired.home.clone()).collect()
    }

    /// The signer's place and state, if it can sign now.
    fn signer(&self, id: &'static str) -> Result<(Slot, &SecretState), Waiting> {
        let waiting = |until| Waiting::Signer { signer: id.to_owned(), until };
        let row = self.wiring.row(id).ok_or_else(|| waiting(None))?.row;
        let slot = self.wiring.home(row, &Instance::Cluster);
        let state = self.draft.secret(&slot).present().ok_or_else(|| waiting(None))?;
        Ok((slot, state))
    }

    /// Returns until when a row that has no certificate waits for a new signer to spread.
    ///
    /// A Service does not wait. Its pods cannot start without the Secret, so delaying it is an outage for its owner, and no
    /// client is better off by it. Where the Secret was deleted and pods may still present what was in it, the clients that
    /// reject the new certificate are named as a risk.
    fn missing_until(&self, row: &Row) -> Timestamp {
        match row.scope {
            crate::catalog::Scope::Service => self.now(),
            _ => self.rolled_out_at(row),
        }
    }

    /// Returns when a new signer of a row has spread, if nothing keeps it from that: after the time that a rollout takes.
    fn rolled_out_at(&self, row: &Row) -> Timestamp {
        let Signer::Row(signer) = row.signer else { return self.now() };
        // What issues on request is a new signer itself.
        let new = if self.wiring.is_staged(row) { row.id } else { signer };
        let since = self.signer(new).ok().and_then(|(_, state)| state.issued_at).unwrap_or(Timestamp::MIN);
        after(since, proof::ROLLOUT.scaled(self.snapshot().settings.time_scale))
    }

    /// Makes the write in the draft and notes it, or says what it waits for.
    fn attempt(&mut self, step: Step, touched: &[Touched], flow: &[Step], urgency: Urgency) -> Result<(), Waiting> {
        let Broken { risks, consented } = self.try_out(&step, touched, flow, urgency)?;
        self.report.steps.push(Step { risks, consented, ..step });
        Ok(())
    }

    /// Makes the write in the draft only, and says what is broken all the same; or what it waits for.
    fn try_out(
        &mut self,
        step: &Step,
        touched: &[Touched],
        flow: &[Step],
        urgency: Urgency,
    ) -> Result<Broken, Waiting> {
        // Nothing is proved about what nobody knows.
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

    /// Names every edge that was found broken and that the plan does not mend at once, and looks again when time alone
    /// breaks or mends one.
    pub(super) fn look_at_edges(&mut self) {
        let now = self.now();
        let edges = touched::every_edge(self.wiring, &self.draft);
        let found = touched::states(self.wiring, &Draft::new(self.snapshot()), &edges);
        let planned = touched::states(self.wiring, &self.draft, &edges);
        // Where there is nothing to trust or to present, nothing is broken.
        for (found, planned) in found.iter().zip(&planned).filter(|(found, _)| !found.is_idle()) {
            let holds = planned.holds(now);
            let next = self.report.next_look;
            let changes = |at: &Timestamp| planned.holds(*at).is_ok() != holds.is_ok();
            if let Some(at) = proof::instants_after(planned, now).take_while(|at| *at < next).find(changes) {
                self.look(at);
            }
            let Err(broken) = holds else { continue };
            if found.holds(now).is_ok() {
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

/// The static pods that a change of this slot restarts.
fn restarted(slot: &Slot, delivery: Delivery) -> BTreeSet<String> {
    match delivery {
        Delivery::Revisioned | Delivery::Relayed { .. } => BTreeSet::from([slot.namespace().to_owned()]),
        Delivery::Reloaded { .. } | Delivery::Never | Delivery::Indirect => BTreeSet::new(),
    }
}

/// Components of which somebody else writes an object, unless they were taken over.
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
