//! Judges what is not written: a certificate that is missing or delayed although issuing it would make no client worse off,
//! and a report that says "as configured" while something waits.
//!
//! Like the judge of writes, it asks no rule of the planner: it makes the certificate that is due by itself, and looks at what
//! the processes of the cluster really may hold.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::judge::{Content, Side};
use super::super::words;
use super::{Run, later};
use crate::catalog::{Delivery, Instance, Row, Scope, Signer};
use crate::conditions::{self, Circumstances, Services};
use crate::plan::{Action, Pending, Report};
use crate::policy::Usage;
use crate::rules::{Observed, SecretState, Waiting};
use crate::snapshot::Slot;
use crate::spec::Validity;
use crate::trust::{CertificateFacts, CertificateId, KeyId, Principal};
use crate::wiring::{home_slot, instances};

/// The planner may be this careful: it allows for clocks that differ and for timers that are late.
const CAUTION: SignedDuration = SignedDuration::from_hours(1);
/// What was deleted or damaged has lost its memory, and the planner knows less than this judge for as long as the slowest
/// client takes.
const MEMORY: SignedDuration = SignedDuration::from_hours(24 * 400);

impl Run<'_, '_> {
    /// Judges what a report leaves undone.
    pub(super) fn judge_delays(&mut self, root: &'static str, report: &Report) {
        // While something is written, the next look knows more.
        if self.now < self.operator.clock_off.1 || !report.steps.is_empty() {
            return;
        }
        for pending in &report.waiting {
            if self.is_needless(root, pending) {
                let what = format!("it waits although issuing it would make no client worse off: {}", pending.waiting);
                self.delay(&pending.slot, words::short(&what));
            }
        }
        for slot in self.missing_services(root, report) {
            self.delay(&slot, "a Service has no certificate, and none is issued".to_owned());
        }
        self.judge_conditions();
    }

    /// When a wait that has just begun is looked at once more: a short one is the planner's caution, a longer one has to protect
    /// a client.
    pub(super) fn second_look(&self, root: &'static str) -> Option<Timestamp> {
        let of_root = self.operator.waiting.iter().filter(|((of, _), _)| *of == root);
        let looks = of_root.map(|(_, (since, ..))| later(*since, CAUTION)).filter(|at| self.now < *at);
        looks.min().map(|at| later(at, self.now.duration_until(self.snapshot.taken_at)))
    }

    /// Notes a delay, once for each object.
    fn delay(&mut self, slot: &Slot, what: String) {
        if self.delays.insert(slot.clone()) {
            self.violation(slot.object_text().to_owned(), "nothing is written".to_owned(), what);
        }
    }

    /// Services without a certificate that this report does not give one, although their CA can sign.
    fn missing_services(&self, root: &'static str, report: &Report) -> Vec<Slot> {
        let wiring = self.planner.wiring();
        let rows = wiring.catalog.rows.iter().filter(|row| row.scope == Scope::Service);
        let rows = rows.filter(|row| self.planner.root_of(row.id) == Some(root) && self.signer_of(row).is_some());
        let is_issued = |slot: &Slot| {
            report.steps.iter().any(|step| matches!(&step.action, Action::Issue(issue) if issue.slot == *slot))
        };
        let is_bounded = |slot: &Slot| {
            let mut waiting = report.waiting.iter().filter(|it| it.slot == *slot);
            waiting.any(|it| matches!(it.waiting, Waiting::Breaker { .. } | Waiting::Pace { .. }))
        };
        let slots = rows.flat_map(|row| {
            let instances = instances(row, &self.snapshot).into_iter();
            instances.map(|instance| home_slot(row, &instance)).collect::<Vec<_>>()
        });
        let is_absent = |slot: &Slot| self.snapshot.secrets.get(slot).is_none_or(|it| *it == Observed::Absent);
        slots.filter(|slot| is_absent(slot) && !is_issued(slot) && !is_bounded(slot)).collect()
    }

    /// Whether a wait for clients protects none of them.
    fn is_needless(&self, root: &'static str, pending: &Pending) -> bool {
        if !matches!(pending.waiting, Waiting::Trust { .. } | Waiting::Rollout { .. }) {
            return false;
        }
        let waited = self.operator.waiting.get(&(root, pending.slot.clone()));
        let ends_soon = pending.waiting.until().is_some_and(|until| until <= later(self.now, CAUTION));
        if ends_soon || waited.is_none_or(|(since, ..)| self.now < later(*since, CAUTION)) {
            return false;
        }
        let wiring = self.planner.wiring();
        let Some(row) = wiring.row(pending.name).map(|wired| wired.row) else { return false };
        let (Some(signer), false) = (self.signer_of(row), row.usage == Usage::Signer) else { return false };
        let cases = self.world.cases_of.get(&(Side::Presented, pending.slot.clone()));
        let cases: Vec<_> = cases.into_iter().flatten().map(|number| &self.world.cases[*number]).collect();
        let is_judged = |delivery: Delivery| matches!(delivery, Delivery::Reloaded { .. });
        // Only where everybody reads again: what others hold is the operator's to observe, and it may not have.
        if cases.is_empty() || !cases.iter().all(|it| is_judged(it.verifier) && is_judged(it.presenter)) {
            return false;
        }
        let forgot = |slot: &Slot| self.forgotten.get(slot).is_some_and(|at| self.now <= later(*at, MEMORY));
        let signer_slot = self.signer_slot(row);
        if cases.iter().any(|it| forgot(&it.trust))
            || forgot(&pending.slot)
            || signer_slot.is_some_and(|it| forgot(&it))
        {
            return false;
        }
        cases.iter().all(|case| {
            let new = self.issued_now(row, signer, &case.hosts);
            self.judge.judge(case, Side::Presented, &new, &self.world, self.now).is_none()
        })
    }

    fn signer_slot(&self, row: &Row) -> Option<Slot> {
        let Signer::Row(id) = row.signer else { return None };
        Some(home_slot(self.planner.wiring().row(id)?.row, &Instance::Cluster))
    }

    /// The signer of a row, if it can sign now.
    fn signer_of(&self, row: &Row) -> Option<&SecretState> {
        let state = self.snapshot.secrets.get(&self.signer_slot(row)?)?.present()?;
        let Validity { not_before, not_after } = state.certificate.validity;
        (not_before <= self.now && self.now <= not_after).then_some(state)
    }

    /// What processes would present if the certificate of a row were issued now: a leaf, and all that leads from its signer to
    /// earlier ones.
    fn issued_now(&self, row: &Row, signer: &SecretState, hosts: &[crate::spec::Host]) -> Content {
        let name: Arc<str> = format!("{} of now", row.id).into();
        let end = later(self.now, row.validity.scaled(self.snapshot.settings.time_scale));
        let leaf = CertificateFacts {
            id: CertificateId(name.clone()),
            subject: Principal { name: name.clone(), key: KeyId(name) },
            signed_by: Some(signer.certificate.subject.clone()),
            validity: Validity { not_before: self.now, not_after: end.min(signer.certificate.validity.not_after) },
            ca: None,
            serves: row.usage.serves(),
            connects: row.usage.connects(),
            hosts: hosts.to_vec(),
        };
        let chain = signer.bridges.iter().filter_map(|id| self.snapshot.certificates.get(id)).cloned();
        [Arc::new(leaf)].into_iter().chain(chain).collect()
    }

    /// Whether each component of which something waits says so.
    fn judge_conditions(&mut self) {
        let waiting: Vec<Pending> = self.operator.waiting.values().map(|(_, _, pending)| pending.clone()).collect();
        let key: Vec<(Slot, &'static str)> = waiting.iter().map(|it| (it.slot.clone(), it.waiting.label())).collect();
        // It takes a look at every edge, so the same is not asked again.
        if waiting.is_empty() || self.conditions_asked == key || self.conditions_left == 0 {
            return;
        }
        self.conditions_asked = key;
        self.conditions_left -= 1;
        let catalog = self.planner.wiring().catalog;
        let report = Report { at: self.now, steps: Vec::new(), waiting, risks: Vec::new(), next_look: Timestamp::MAX };
        let circumstances = Circumstances {
            snapshot: &self.snapshot,
            report: &report,
            failed: &[],
            troubles: &[],
            services: &Services::default(),
            rotation_base: None,
        };
        let mut silent = Vec::new();
        for pending in &report.waiting {
            let Some(component) = conditions::component_named(catalog, pending.name) else { continue };
            let Some(claims) = conditions::claims(self.planner, component, &circumstances) else { continue };
            let object = pending.slot.object_text();
            let says =
                |type_: &str| claims.iter().any(|it| it.type_ == type_ && it.is_true && it.message.contains(object));
            let claims_all_is_well = claims.iter().any(|it| it.message.contains("as configured"));
            if claims_all_is_well || (!says("Progressing") && !says("Degraded")) {
                silent.push((pending.slot.clone(), pending.waiting.to_string()));
            }
        }
        for (slot, waiting) in silent {
            let what = format!("the conditions do not say that it waits: {}", words::short(&waiting));
            self.violation(slot.object_text().to_owned(), "as configured".to_owned(), what);
        }
    }
}
