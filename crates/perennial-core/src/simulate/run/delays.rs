//! Judges missing writes: a certificate that is missing or delayed although issuing it would harm no client, and a condition
//! that reports "as configured" while a write waits.
//!
//! Like the judge of writes, this module uses no rule of the planner. It creates the due certificate itself, and checks it against
//! the versions that the processes of the cluster may really hold.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::super::judge::{Content, Side};
use super::super::words;
use super::{Run, later};
use crate::catalog::index::{home_slot, instances};
use crate::catalog::{Component, Day, Delivery, Instance, Row, Scope, Signer};
use crate::conditions::{self, Circumstances, Services, WaitingService};
use crate::plan::{Action, Pending, Report};
use crate::policy::Usage;
use crate::rules::Waiting;
use crate::service_ca::SERVING_ROW;
use crate::snapshot::{Observed, SecretState, Slot};
use crate::spec::Validity;
use crate::trust::{CertificateFacts, CertificateId, KeyId, Principal};

/// The time that a wait must have lasted, and must still last, to be judged.
///
/// The judge checks a wait only if it has already lasted five minutes and still lasts five minutes or more. The planner adds five
/// minutes to the lag of every reader, because clocks may differ by as much as certificates are backdated
/// ([`BACKDATE`](crate::issuance::BACKDATE)). So each wait that protects a client ends five minutes after the last process has
/// reloaded, and the judge cannot judge a shorter wait.
const CAUTION: SignedDuration = SignedDuration::from_mins(5);
/// The time for which the planner may know less than the judge after an object was deleted or damaged.
///
/// Such an object has lost its recorded history. The time is that of the slowest client.
const MEMORY: SignedDuration = SignedDuration::from_hours(24 * 400);

impl Run<'_, '_> {
    /// Judges what a report leaves undone.
    pub(super) fn judge_delays(&mut self, root: &'static str, report: &Report) {
        // While the plan has writes, the next pass knows more.
        if self.now < self.operator.clock_off.1 || !report.steps.is_empty() {
            return;
        }
        for pending in &report.waiting {
            if self.is_needless(root, pending) {
                let what = format!("it waits although issuing it would harm no client: {}", pending.waiting);
                self.delay(&pending.slot, words::short(&what));
            }
        }
        for slot in self.missing(root, report) {
            self.delay(&slot, "no process has a certificate of this place, and none is issued".to_owned());
        }
        self.judge_conditions();
    }

    /// Returns when a new wait is judged again: a short one is the planner's caution, a longer one must protect
    /// a client.
    pub(super) fn second_look(&self, root: &'static str) -> Option<Timestamp> {
        let of_root = self.operator.waiting.iter().filter(|((of, _), _)| *of == root);
        let looks = of_root.map(|(_, (since, ..))| later(*since, CAUTION)).filter(|at| self.now < *at);
        looks.min().map(|at| later(at, self.now.duration_until(self.snapshot.taken_at)))
    }

    /// Records a delay, once for each object.
    fn delay(&mut self, slot: &Slot, what: String) {
        if self.delays.insert(slot.clone()) {
            self.violation(slot.object_text().to_owned(), "nothing is written".to_owned(), what);
        }
    }

    /// Returns the Services without a certificate, and other rows that never had one, for which this report issues none although their
    /// signer can sign. A new member of etcd may have to wait until the running members trust its signer.
    fn missing(&self, root: &'static str, report: &Report) -> Vec<Slot> {
        let wiring = self.planner.wiring();
        let is_meant =
            |row: &&Row| row.day == Day::Two && row.usage != Usage::Signer && row.component != Component::Etcd;
        let rows = wiring.catalog.rows.iter().filter(is_meant);
        let rows = rows.filter(|row| self.planner.root_of(row.id) == Some(root) && self.signer_of(row).is_some());
        let is_issued = |slot: &Slot| {
            report.steps.iter().any(|step| matches!(&step.action, Action::Issue(issue) if issue.slot == *slot))
        };
        let is_bounded = |slot: &Slot| {
            let mut waiting = report.waiting.iter().filter(|it| it.slot == *slot);
            waiting.any(|it| !matches!(it.waiting, Waiting::Trust { .. } | Waiting::Rollout { .. }))
        };
        let slots = rows.flat_map(|row| {
            let instances = instances(row, &self.snapshot).into_iter();
            let slots = instances.map(|instance| home_slot(row, &instance));
            let is_new = |slot: &Slot| row.scope == Scope::Service || !self.snapshot.deleted.contains(slot);
            slots.filter(is_new).collect::<Vec<_>>()
        });
        let is_absent = |slot: &Slot| self.snapshot.secrets.get(slot).is_none_or(|it| *it == Observed::Absent);
        slots.filter(|slot| is_absent(slot) && !is_issued(slot) && !is_bounded(slot)).collect()
    }

    /// Returns true if a wait for clients protects none of them.
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
        let is_judged = |delivery: Delivery| !matches!(delivery, Delivery::Never | Delivery::Indirect);
        // Only if a change reaches all processes of the edge. The operator observes the revisions of static pods.
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

    /// Returns the signer of a row, if it can sign now.
    fn signer_of(&self, row: &Row) -> Option<&SecretState> {
        let state = self.snapshot.secrets.get(&self.signer_slot(row)?)?.present()?;
        let Validity { not_before, not_after } = state.certificate.validity;
        (not_before <= self.now && self.now <= not_after).then_some(state)
    }

    /// Returns what processes would present if the certificate of a row were issued now: a leaf, and all cross-certificates from its
    /// signer to earlier ones.
    fn issued_now(&self, row: &Row, signer: &SecretState, hosts: &[crate::spec::Host]) -> Content {
        let name: Arc<str> = format!("{} of now", row.id).into();
        let end = later(self.now, row.validity.scaled(self.snapshot.time_scale()));
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
        let chain = signer.cross_signed_by_earlier.iter().filter_map(|id| self.snapshot.certificates.get(id)).cloned();
        [Arc::new(leaf)].into_iter().chain(chain).collect()
    }

    /// Counts the Services that wait, as the operator does.
    fn counted_services(&self, waiting: &[Pending]) -> Services {
        let of_services = waiting.iter().filter(|it| it.name == SERVING_ROW);
        let (blocked, progress): (Vec<&Pending>, Vec<&Pending>) =
            of_services.partition(|it| conditions::blocks_service(&it.slot, &it.waiting));
        let named = |it: &&Pending| (it.slot.object(), it.waiting.summary());
        Services {
            all: self.snapshot.services.found().len(),
            waiting: progress.len(),
            oldest: progress.first().map(|it| WaitingService {
                name: it.slot.object(),
                since: self.now,
                why: it.waiting.summary(),
            }),
            blocked: blocked.len(),
            first_blocked: blocked.iter().map(named).collect(),
            backlog: 0,
        }
    }

    /// Checks that each component with a waiting write reports it.
    fn judge_conditions(&mut self) {
        let waiting: Vec<Pending> = self.operator.waiting.values().map(|(_, _, pending)| pending.clone()).collect();
        let key: Vec<(Slot, &'static str)> = waiting.iter().map(|it| (it.slot.clone(), it.waiting.label())).collect();
        // This checks every edge, so the same waits are not judged again.
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
            problems: &[],
            services: &self.counted_services(&report.waiting),
            stale_pods: None,
            rotation_base: None,
        };
        let mut silent = Vec::new();
        for pending in &report.waiting {
            let Some(component) = conditions::component_named(catalog, pending.name) else { continue };
            let Some(claims) = (self.claims)(self.planner, component, &circumstances) else { continue };
            let is_said = |type_: &str, text: &str| {
                claims.iter().any(|it| it.type_ == type_ && it.is_true && it.message.contains(text))
            };
            let claims_all_is_well = claims.iter().any(|it| it.message.contains("as configured"));
            let object = pending.slot.object_text();
            let is_reported = match pending.name {
                SERVING_ROW if conditions::blocks_service(&pending.slot, &pending.waiting) => {
                    is_said("ServingCertificatesBlocked", object)
                }
                SERVING_ROW => !claims_all_is_well && is_said("Progressing", "Services wait"),
                _ => !claims_all_is_well && (is_said("Progressing", object) || is_said("Degraded", object)),
            };
            if !is_reported {
                silent.push((pending.slot.clone(), pending.waiting.to_string()));
            }
        }
        for (slot, waiting) in silent {
            let what = format!("the conditions do not say that it waits: {}", words::short(&waiting));
            self.violation(slot.object_text().to_owned(), "as configured".to_owned(), what);
        }
    }
}
