//! Copies of certificates, several in one object in one write.

use std::collections::BTreeSet;

use super::{Pass, restarted};
use crate::catalog::{CopyData, Delivery, Instance, Row};
use crate::plan::proof::{self, Outcome, Urgency};
use crate::plan::step::{Action, CopyItem, Step};
use crate::snapshot::Slot;
use crate::wiring::{Presents, copy_slot, instances};

impl<'c> Pass<'_, 'c> {
    /// Decides about the copies of these rows, several in one object in one write.
    pub(in crate::plan) fn copies(&mut self, rows: &[&'c Row]) {
        let mut objects: Vec<(String, Vec<Repeated<'c>>)> = Vec::new();
        for row in rows {
            for (number, copy) in row.copies.iter().enumerate() {
                for instance in instances(row, self.snapshot()) {
                    let to = copy_slot(row, copy, &instance);
                    let repeated = Repeated {
                        row,
                        number,
                        from: self.wiring.home(row, &instance),
                        to,
                        instance,
                        delivery: copy.delivery,
                    };
                    let object = repeated.to.object_text();
                    match objects.iter_mut().find(|(known, _)| known == object) {
                        Some((_, list)) => list.push(repeated),
                        None => objects.push((object.to_owned(), vec![repeated])),
                    }
                }
            }
        }
        for (object, items) in objects {
            self.copy_secret(&object, &items);
        }
    }

    /// Everything that belongs in an object that gathers many certificates, whatever this pass is about.
    fn gathered(&self, object: crate::catalog::Object) -> BTreeSet<Slot> {
        let mut slots = BTreeSet::new();
        for row in self.wiring.gathered_in(object) {
            for copy in row.copies.iter().filter(|copy| copy.object == object) {
                slots.extend(instances(row, self.snapshot()).iter().map(|instance| copy_slot(row, copy, instance)));
            }
        }
        slots
    }

    fn copy_secret(&mut self, object: &str, items: &[Repeated<'c>]) {
        let Some(first) = items.first() else { return };
        let (row, delivery, data) = (first.row, first.delivery, first.row.copies[first.number].data);
        if self.is_foreign(&first.to, row.id, row.component) {
            return;
        }
        let mut writes = Vec::new();
        for item in items {
            let Some(source) = self.draft.secret(&item.from).present() else { continue };
            let is_there = self
                .draft
                .secret(&item.to)
                .present()
                .is_some_and(|copy| copy.certificate.id == source.certificate.id && copy.chain == source.chain);
            if !is_there {
                let touched = proof::edges_of_leaf(
                    self.wiring,
                    &self.draft,
                    item.row,
                    &item.instance,
                    &[Presents::Copy(item.number)],
                    true,
                );
                writes.push((CopyItem { from: Some(item.from.clone()), to: item.to.clone() }, item.row, touched));
            }
        }
        // What nothing is repeated from any more goes with the next write, or alone.
        let gone: Vec<CopyItem> = if data == CopyData::UnderItsName {
            let wanted = self.gathered(first.row.copies[first.number].object);
            let stale = self.draft.keys_of(object).into_iter().filter(|slot| !wanted.contains(slot));
            stale.map(|to| CopyItem { from: None, to }).collect()
        } else {
            Vec::new()
        };
        let restarts = restarted(&first.to, delivery);
        let step = |items: Vec<CopyItem>| Step {
            object: object.to_owned(),
            action: Action::CopySecret(items),
            restarts: restarts.clone(),
            risks: Vec::new(),
        };
        // Each is proved by itself, so that one that must wait does not hold up the others; then all are one write.
        let (mut safe, mut risks) = (gone, Vec::new());
        for (item, row, touched) in writes {
            let step = step(vec![item.clone()]);
            let missing_until = self.missing_until(row);
            match proof::attempt(
                self.wiring,
                &mut self.draft,
                &step,
                &touched,
                &[],
                Urgency::Replaces { missing_until },
            ) {
                Outcome::Safe(more) => {
                    safe.push(item);
                    risks.extend(more);
                }
                Outcome::Waits(waiting, risks) => {
                    self.note(risks);
                    self.wait(&item.to, row.id, None, waiting);
                }
            }
        }
        if !safe.is_empty() {
            self.report.steps.push(Step { risks, ..step(safe) });
        }
    }
}

/// A certificate and where it is repeated.
struct Repeated<'c> {
    row: &'c Row,
    number: usize,
    from: Slot,
    to: Slot,
    instance: Instance,
    delivery: Delivery,
}
