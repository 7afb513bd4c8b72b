//! The decisions about the metadata of objects: type, labels and annotations.

use std::collections::BTreeSet;

use super::Pass;
use crate::catalog::{Component, Span};
use crate::description::Description;
use crate::plan::step::{Action, Described, Kind, Step};
use crate::plan::versions::after;
use crate::rules::Waiting;
use crate::snapshot::{Mode, Slot};

/// How often labels and annotations are corrected within an hour before they are left to the other writer.
const MOST_DESCRIPTIONS: usize = 3;
const DESCRIPTIONS_WINDOW: Span = Span::minutes(60);

fn described(slot: &Slot, kind: Kind, is_replaced: bool) -> Step {
    let described = Described { slot: slot.clone(), kind, is_replaced };
    Step::new(slot.object_text(), Action::Describe(described), BTreeSet::new())
}

impl Pass<'_, '_> {
    /// Corrects the type of Secrets with the right content, unless the Secret is written anyway. A recovery leaves this to
    /// the operator.
    pub(in crate::plan) fn types(&mut self) {
        if self.snapshot().settings.mode == Mode::OnlyWhenExpired {
            return;
        }
        for slot in self.snapshot().mistyped.clone() {
            let object = slot.object_text();
            let owner = self.wiring.owner(object, self.snapshot()).and_then(|id| self.wiring.row(id));
            let Some(row) = owner.map(|wired| wired.row) else { continue };
            if self.is_written(object) || self.is_foreign(&slot, row.id, row.component) {
                continue;
            }
            match self.unblocked(&slot) {
                Ok(()) => self.report.steps.push(described(&slot, Kind::Secret, true)),
                Err(waiting) => self.wait(&slot, row.id, None, waiting),
            }
        }
    }

    /// Corrects labels and annotations, unless the object is written anyway. No process decides by them, so the write restarts nothing,
    /// and only another writer of the same fields delays it. A recovery leaves this to the operator.
    pub(in crate::plan) fn descriptions(&mut self, is_meant: impl Fn(&Slot) -> bool) {
        if self.snapshot().settings.mode == Mode::OnlyWhenExpired {
            return;
        }
        for slot in self.snapshot().undescribed.iter().filter(|slot| is_meant(slot)) {
            let object = slot.object_text();
            let Some((name, component)) = self.managed_in(slot) else { continue };
            let kind = if self.wiring.bundle_in(slot).is_some() { Kind::ConfigMap } else { Kind::Secret };
            if self.is_written(object) || self.is_left_alone(name, component) || self.snapshot().mistyped.contains(slot)
            {
                continue;
            }
            match self.unblocked(slot).and_then(|()| self.uncontested(slot)) {
                Ok(()) => self.report.steps.push(described(slot, kind, false)),
                Err(waiting) => self.wait(slot, name, None, waiting),
            }
        }
    }

    /// Adds the description of its object to each step.
    pub(in crate::plan) fn describe_steps(&mut self) {
        let mut steps = std::mem::take(&mut self.report.steps);
        for step in &mut steps {
            step.description = self.description_of(step);
        }
        self.report.steps = steps;
    }

    fn description_of(&self, step: &Step) -> Description {
        let (catalog, snapshot) = (self.wiring.catalog, self.snapshot());
        let of_bundle =
            |slot: &Slot| Description::of_bundle(catalog, self.wiring.bundle_in(slot).map(|wired| wired.bundle));
        let of_secret = |slot: &Slot| match self.wiring.place(slot, snapshot) {
            Some(place) => Description::of_place(catalog, &place, snapshot.services.found().get(slot)),
            None => Description::of_gathered(),
        };
        match &step.action {
            Action::Issue(issue) => {
                let row = self.wiring.row(issue.row).map(|wired| wired.row);
                let service = snapshot.services.found().get(&issue.slot);
                let scale = snapshot.time_scale();
                row.map(|row| Description::of_issue(catalog, row, service, scale)).unwrap_or_default()
            }
            Action::Publish(bundles) => {
                let each = bundles.iter().map(|it| Description::of_bundle(catalog, catalog.bundle(it.bundle)));
                each.reduce(Description::and).unwrap_or_default()
            }
            Action::CopyBundle(item) => of_bundle(&item.to),
            Action::CopySecret(items) => items.first().map(|item| of_secret(&item.to)).unwrap_or_default(),
            Action::Describe(Described { slot, kind: Kind::Secret, .. }) => of_secret(slot),
            Action::Describe(Described { slot, kind: Kind::ConfigMap, .. }) => of_bundle(slot),
        }
    }

    /// Returns the row or bundle that has its content or a copy in a place.
    fn managed_in(&self, slot: &Slot) -> Option<(&'static str, Component)> {
        let bundle = self.wiring.bundle_in(slot).map(|wired| (wired.bundle.id, wired.bundle.component));
        let place = || self.wiring.place(slot, self.snapshot());
        bundle.or_else(|| place().map(|place| (place.row.id, place.row.component)))
    }

    fn is_written(&self, object: &str) -> bool {
        self.report.steps.iter().any(|step| step.object == object)
    }

    /// A second correction is normal; more mean another writer of the same fields.
    fn uncontested(&self, slot: &Slot) -> Result<(), Waiting> {
        let times = self.snapshot().described.get(slot).map(Vec::as_slice).unwrap_or_default();
        let window = DESCRIPTIONS_WINDOW.scaled(self.snapshot().time_scale());
        let recent: Vec<_> = times.iter().filter(|at| self.now() < after(**at, window)).collect();
        match recent[..] {
            [&since, ..] if recent.len() >= MOST_DESCRIPTIONS => {
                Err(Waiting::Contested { times: recent.len(), since, until: after(since, window) })
            }
            _ => Ok(()),
        }
    }
}
