//! The forecast: the planner on a virtual clock, with processes that load every change within their allowed time.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::Serialize;

use crate::catalog::{BundleInput, Custody, Day, Succession, USUAL_ROLLOUT};
use crate::clocks::shifted;
use crate::plan::{Action, Kind, Planner, Report, Scope, Step};
use crate::rules::Reason;
use crate::snapshot::{Held, Slot, Snapshot};
use crate::trust::CertificateId;

/// The expected rotations and expirations of a period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    /// The start of the period.
    pub from: Timestamp,
    /// The end of the period.
    pub to: Timestamp,
    /// Every certificate that will be issued, in order of time.
    pub rotations: Vec<Rotation>,
    /// Every certificate that expires in the period and that Perennial cannot renew.
    pub endings: Vec<Ending>,
    /// The writes that still wait at the end of the period.
    pub stuck: Vec<String>,
}

/// A certificate that will be issued.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rotation {
    /// The expected time of issue.
    pub at: Timestamp,
    /// The latest time of issue: when the certificate that it replaces expires.
    pub latest: Option<Timestamp>,
    /// The place of the certificate.
    pub slot: Slot,
    /// The row of the certificate in the catalog.
    pub row: &'static str,
    /// True for a signer.
    pub is_signer: bool,
    /// Why it is issued.
    pub reason: Reason,
    /// The static pods that this rotation restarts, directly or through the writes that follow at once.
    pub restarts: BTreeSet<String>,
}

/// A certificate that expires and that Perennial cannot renew.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Ending {
    /// The last second of the certificate's validity.
    pub at: Timestamp,
    /// The row of the certificate in the catalog.
    pub row: &'static str,
    /// For a signer: the holder of the key.
    pub custody: Option<Custody>,
}

/// Returns what happens after the snapshot if nothing else changes.
pub fn forecast(planner: &Planner<'_>, snapshot: &Snapshot, to: Timestamp) -> Forecast {
    let mut future = Future {
        planner,
        // The forecast retries writes that have just failed.
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
    /// What static pods will load, by time.
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
        let at = shifted(self.snapshot.taken_at, USUAL_ROLLOUT.scaled(self.snapshot.time_scale()));
        let load = |slot: &Slot| match step.kind() {
            Kind::Secret => Load::Secret(slot.clone()),
            Kind::ConfigMap => Load::Bundle(slot.clone()),
        };
        let mut loads: Vec<Load> = step.changes().into_iter().map(load).collect();
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

/// Returns the certificates of the installation that expire, and those of signers whose key is outside the cluster.
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
    // Signers whose key is outside the cluster: their certificates are in the bundles of the installation.
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
