//! What is about an object and not in it: its type, its labels and its annotations.

use std::collections::BTreeSet;

use super::Pass;
use crate::catalog::{Component, Span};
use crate::plan::step::{Action, Step};
use crate::plan::versions::after;
use crate::rules::{Mode, Waiting};
use crate::snapshot::Slot;

/// How often labels and annotations are set right within an hour before they are left to whoever sets them otherwise.
const MOST_DESCRIPTIONS: usize = 3;
const DESCRIPTIONS_WINDOW: Span = Span::minutes(60);

impl Pass<'_, '_> {
    /// Gives Secrets that hold what they should the type that they should have, unless they are written anyway. Who recovers
    /// leaves that to the operator.
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
                Ok(()) => self.report.steps.push(Step::new(object, Action::Retype(slot.clone()), BTreeSet::new())),
                Err(waiting) => self.wait(&slot, row.id, None, waiting),
            }
        }
    }

    /// Sets labels and annotations right, unless the object is written anyway. Nobody reads them to decide, so nothing restarts by
    /// it, and it waits for nothing but whoever sets them otherwise. Who recovers leaves it to the operator.
    pub(in crate::plan) fn descriptions(&mut self) {
        if self.snapshot().settings.mode == Mode::OnlyWhenExpired {
            return;
        }
        for slot in &self.snapshot().undescribed {
            let object = slot.object_text();
            let Some((name, component)) = self.kept_in(slot) else { continue };
            if self.is_written(object) || self.is_left_alone(name, component) || self.snapshot().mistyped.contains(slot)
            {
                continue;
            }
            match self.unblocked(slot).and_then(|()| self.uncontested(slot)) {
                Ok(()) => self.report.steps.push(Step::new(object, Action::Describe(slot.clone()), BTreeSet::new())),
                Err(waiting) => self.wait(slot, name, None, waiting),
            }
        }
    }

    /// The row or bundle that is kept or repeated in a place.
    fn kept_in(&self, slot: &Slot) -> Option<(&'static str, Component)> {
        let bundle = self.wiring.bundle_in(slot).map(|wired| (wired.bundle.id, wired.bundle.component));
        let row = || self.wiring.owner(slot.object_text(), self.snapshot()).and_then(|id| self.wiring.row(id));
        bundle.or_else(|| row().map(|wired| (wired.row.id, wired.row.component)))
    }

    fn is_written(&self, object: &str) -> bool {
        self.report.steps.iter().any(|step| step.object == object)
    }

    /// A second time has its reasons; many are somebody who wants something else.
    fn uncontested(&self, slot: &Slot) -> Result<(), Waiting> {
        let times = self.snapshot().described.get(slot).map(Vec::as_slice).unwrap_or_default();
        let window = DESCRIPTIONS_WINDOW.scaled(self.snapshot().settings.time_scale);
        let recent: Vec<_> = times.iter().filter(|at| self.now() < after(**at, window)).collect();
        match recent[..] {
            [&since, ..] if recent.len() >= MOST_DESCRIPTIONS => {
                Err(Waiting::Contested { times: recent.len(), since, until: after(since, window) })
            }
            _ => Ok(()),
        }
    }
}
