//! The decisions about copies of certificates. Several copies in one object are one write.

use std::collections::BTreeSet;

use super::{Pass, restarted};
use crate::catalog::index::{Presents, copy_slot, instances};
use crate::catalog::{CopyData, Delivery, Instance, Row};
use crate::plan::proof::{Broken, Urgency};
use crate::plan::step::{Action, CopyItem, Step};
use crate::plan::touched;
use crate::snapshot::Slot;

impl<'c> Pass<'_, 'c> {
    /// Decides about the copies of these rows. Several copies in one object are one write.
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
                        alone: copy.data == CopyData::Alone,
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

    /// Returns all places in an object that holds copies of many certificates, independent of the scope of the pass.
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
        if self.is_foreign(&first.to, first.row.id, first.row.component) {
            return;
        }
        let restarts = restarted(&first.to, first.delivery);
        let step = |items: Vec<CopyItem>| Step::new(object, Action::CopySecret(items), restarts.clone());
        // Copies without a source are removed with the next write, or separately.
        let is_free = self.unblocked(&first.to).and_then(|()| self.known([first.to.clone()], [])).is_ok();
        let mut safe = if is_free { self.stale(object, first) } else { Vec::new() };
        let mut broken = Broken::default();
        // Each copy is proved separately, so that one that must wait does not delay the others. Then all are one write.
        for it in items.iter().filter(|it| self.is_due(it)).collect::<Vec<_>>() {
            let presented = [Presents::Copy(it.number)];
            let touched = touched::edges_of_leaf(self.wiring, &self.draft, it.row, &it.instance, &presented);
            let urgency = Urgency::Replaces { missing_until: self.missing_until(it.row, &it.to) };
            let item = CopyItem { from: Some(it.from.clone()), to: it.to.clone(), alone: it.alone, first: false };
            let free = self.unblocked(&it.to).and_then(|()| self.known([it.to.clone()], []));
            match free.and_then(|()| self.try_out(&step(vec![item.clone()]), &touched, &[], urgency)) {
                Ok(more) => {
                    safe.push(item);
                    broken.append(more);
                }
                Err(waiting) => self.wait(&it.to, it.row.id, None, waiting),
            }
        }
        if !safe.is_empty() {
            let Broken { risks, consented } = broken;
            self.report.steps.push(Step { risks, consented, ..step(safe) });
        }
    }

    /// Returns true if the source exists and differs from the copy.
    fn is_due(&self, it: &Repeated<'_>) -> bool {
        let Some(source) = self.draft.secret(&it.from).present() else { return false };
        let copy = self.draft.secret(&it.to).present();
        let chain = if it.alone { &[][..] } else { &source.chain };
        copy.is_none_or(|copy| copy.certificate.id != source.certificate.id || copy.chain != chain)
    }

    /// Returns the copies in an object whose sources no longer exist.
    fn stale(&self, object: &str, first: &Repeated<'_>) -> Vec<CopyItem> {
        let copy = first.row.copies[first.number];
        if copy.data != CopyData::UnderItsName {
            return Vec::new();
        }
        let wanted = self.gathered(copy.object);
        let stale = self.draft.keys_of(object).into_iter().filter(|slot| !wanted.contains(slot));
        stale.map(|to| CopyItem { from: None, to, alone: false, first: false }).collect()
    }
}

/// A certificate and the place of its copy.
struct Repeated<'c> {
    row: &'c Row,
    number: usize,
    from: Slot,
    to: Slot,
    instance: Instance,
    delivery: Delivery,
    alone: bool,
}
