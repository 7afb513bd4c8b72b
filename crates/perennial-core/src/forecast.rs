//! What will happen: the planner on a virtual clock, with processes that load everything in the time they are allowed.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::{BundleInput, Custody, Day, Span, Succession};
use crate::plan::{Action, Planner, Report, Scope, Step};
use crate::rules::Reason;
use crate::snapshot::{Held, Slot, Snapshot};
use crate::trust::CertificateId;

/// How long the rollout of a revision is taken to last.
const ROLLOUT: Span = Span::minutes(30);

/// What will happen up to an instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// From when on.
    pub from: Timestamp,
    /// Until when.
    pub to: Timestamp,
    /// Every certificate that will be issued, in the order of time.
    pub rotations: Vec<Rotation>,
    /// Everything that ends in that time and that nobody here can renew.
    pub endings: Vec<Ending>,
    /// What waits at the end, or is never decided.
    pub stuck: Vec<String>,
}

/// A certificate that will be issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    /// When, if everything goes as it should.
    pub at: Timestamp,
    /// When it must have happened at the latest: the end of the one that it replaces.
    pub latest: Option<Timestamp>,
    /// Where it is kept.
    pub slot: Slot,
    /// Its row in the catalog.
    pub row: &'static str,
    /// Whether it is a signer.
    pub is_signer: bool,
    /// Why.
    pub reason: Reason,
    /// The static pods that restart because of it, or of what follows from it at once.
    pub restarts: BTreeSet<String>,
}

/// Something that ends, and that nobody here can renew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// Its last second.
    pub at: Timestamp,
    /// Its row in the catalog.
    pub row: &'static str,
    /// Who has the key, if it is a signer.
    pub custody: Option<Custody>,
}

/// What will happen from the snapshot on, if nothing else does.
pub fn forecast(planner: &Planner<'_>, snapshot: &Snapshot, to: Timestamp) -> Forecast {
    let mut future = Future {
        planner,
        // What could not be written a moment ago is tried again.
        snapshot: Snapshot { blocked: BTreeMap::new(), ..snapshot.clone() },
        loads: BTreeMap::new(),
        forecast: Forecast {
            from: snapshot.taken_at,
            to,
            rotations: Vec::new(),
            endings: endings(planner, snapshot, to),
            stuck: Vec::new(),
        },
    };
    future.run(to);
    future.forecast
}

struct Future<'a, 'c> {
    planner: &'a Planner<'c>,
    snapshot: Snapshot,
    /// When static pods will have loaded what.
    loads: BTreeMap<Timestamp, Vec<Load>>,
    forecast: Forecast,
}

#[derive(Debug, Clone)]
enum Load {
    Bundle(Slot),
    Secret(Slot),
}

impl Future<'_, '_> {
    fn run(&mut self, to: Timestamp) {
        loop {
            let report = self.planner.plan(&self.snapshot, &Scope::All);
            if !report.steps.is_empty() {
                self.carry_out(&report);
                continue;
            }
            let load = self.loads.keys().next().copied().unwrap_or(Timestamp::MAX);
            let next = report.next_look.min(load);
            if to < next {
                self.forecast.stuck = report.waiting.iter().map(|it| format!("{}: {}", it.slot, it.waiting)).collect();
                return;
            }
            self.snapshot.taken_at = next;
            self.load(next);
        }
    }

    fn carry_out(&mut self, report: &Report) {
        let restarts: Vec<&Step> = report.steps.iter().filter(|step| !step.restarts.is_empty()).collect();
        for step in &report.steps {
            if let Action::Issue(issue) = &step.action {
                let old = self.snapshot.secrets.get(&issue.slot).and_then(|found| found.present());
                let wired = self.planner.wiring().row(issue.row);
                let reached: BTreeSet<&str> = wired.map(|it| it.restarts.iter().copied().collect()).unwrap_or_default();
                let now = restarts.iter().flat_map(|step| &step.restarts).cloned().collect::<BTreeSet<_>>();
                self.forecast.rotations.push(Rotation {
                    at: self.snapshot.taken_at,
                    latest: old.map(|old| old.certificate.validity.not_after),
                    slot: issue.slot.clone(),
                    row: issue.row,
                    is_signer: issue.spec.usage == crate::policy::Usage::Signer,
                    reason: issue.reason.clone(),
                    restarts: now.into_iter().filter(|it| reached.contains(it.as_str())).collect(),
                });
            }
            self.snapshot.apply(step);
            self.schedule(step);
        }
        self.snapshot.forget_unmentioned();
    }

    fn schedule(&mut self, step: &Step) {
        let at = self.snapshot.taken_at + ROLLOUT.scaled(self.snapshot.settings.time_scale);
        let mut loads: Vec<Load> = match &step.action {
            Action::Issue(issue) => vec![Load::Secret(issue.slot.clone())],
            Action::Publish(bundles) => bundles.iter().map(|it| Load::Bundle(it.slot.clone())).collect(),
            Action::CopySecret(items) => items.iter().map(|it| Load::Secret(it.to.clone())).collect(),
            Action::CopyBundle(item) => vec![Load::Bundle(item.to.clone())],
            Action::Retype(_) | Action::Describe(_) => Vec::new(),
        };
        loads.retain(|load| match load {
            Load::Bundle(slot) => self.snapshot.held_bundles.contains_key(slot),
            Load::Secret(slot) => self.snapshot.held_secrets.contains_key(slot),
        });
        if !loads.is_empty() {
            self.loads.entry(at).or_default().extend(loads);
        }
    }

    fn load(&mut self, now: Timestamp) {
        let later = self.loads.split_off(&now);
        let mut due: Vec<Load> = std::mem::replace(&mut self.loads, later).into_values().flatten().collect();
        due.extend(self.loads.remove(&now).into_iter().flatten());
        for load in due {
            match load {
                Load::Bundle(slot) => {
                    let found = self.snapshot.bundles.get(&slot).and_then(|found| found.present());
                    let members = found.map(|state| state.members.clone());
                    update(self.snapshot.held_bundles.get_mut(&slot), members, now);
                }
                Load::Secret(slot) => {
                    let found = self.snapshot.secrets.get(&slot).and_then(|found| found.present());
                    let served = found.map(|state| {
                        [&state.certificate.id].into_iter().chain(&state.chain).cloned().collect::<Vec<_>>()
                    });
                    update(self.snapshot.held_secrets.get_mut(&slot), served, now);
                }
            }
        }
    }
}

fn update(held: Option<&mut Vec<Held>>, members: Option<Vec<CertificateId>>, now: Timestamp) {
    let (Some(held), Some(members)) = (held, members) else { return };
    for held in held {
        held.since = Some(now);
        held.members.clone_from(&members);
    }
}

/// What the installation left, and what only its keepers could renew.
fn endings(planner: &Planner<'_>, snapshot: &Snapshot, to: Timestamp) -> Vec<Ending> {
    let wiring = planner.wiring();
    let files = wiring.catalog.rows.iter().filter(|row| row.day == Day::One);
    let mut endings = Vec::new();
    for row in files {
        let found = snapshot.secrets.get(&Slot::file(row.id)).and_then(|found| found.present());
        if let Some(at) = found.map(|state| state.certificate.validity.not_after).filter(|at| *at <= to) {
            endings.push(Ending { at, row: row.id, custody: row.custody });
        }
    }
    // Signers whose key nobody here has: their certificates are in the bundles of the installation.
    for bundle in wiring.catalog.bundles.iter().filter(|bundle| bundle.day == Day::One) {
        let [BundleInput::History(id)] = bundle.inputs else { continue };
        let Some(row) = wiring.catalog.row(id).filter(|row| row.succession == Succession::Never) else { continue };
        let slots = wiring.bundle(bundle.id).map(|it| it.home.clone()).into_iter().chain([Slot::file(bundle.id)]);
        let mut found = slots.filter_map(|slot| snapshot.bundles.get(&slot)?.present());
        let Some(state) = found.next() else { continue };
        let ends = state.members.iter().filter_map(|id| snapshot.certificates.get(id)).map(|it| it.validity.not_after);
        endings.extend(ends.filter(|at| *at <= to).map(|at| Ending { at, row: row.id, custody: row.custody }));
    }
    endings.sort_by_key(|ending| (ending.at, ending.row));
    endings
}
