//! The planner: from a snapshot to the writes that are due and safe, and to what waits for what.
//!
//! A pass goes through signers, bundles with their copies, certificates, and the copies of those, in this order. For each
//! it asks the [`crate::rules`] what they wish, and [`crate::trust::prove`] whether the wish is safe with everything that
//! processes may still hold; what is safe becomes a [`Step`] and is taken as done for the rest of the pass, what is not
//! becomes a [`Pending`] that says what it waits for. Nothing here knows a key, a clock or a cluster.

mod draft;
mod pass;
mod proof;
mod step;
#[cfg(test)]
mod tests;
mod touched;
mod versions;

pub use step::{Action, Bridge, CopyItem, Issue, Pending, Publication, Report, Risk, Step};

pub(crate) use draft::Draft;
use pass::Pass;
pub use pass::distrusted;
pub(crate) use touched::{every_edge, states};

use crate::catalog::{Catalog, Day, Instance, Row, Signer};
use crate::policy::Usage;
use crate::snapshot::Snapshot;
use crate::wiring::{Wiring, instances};

/// Plans for clusters of one catalog.
#[derive(Debug)]
pub struct Planner<'c> {
    wiring: Wiring<'c>,
}

/// What a plan is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything.
    All,
    /// Everything but the certificates of Services, of which there may be very many: each is planned for itself.
    Cluster,
    /// A self-signed signer by its row, and everything that follows from it.
    Signer(&'static str),
    /// One certificate of a row.
    Certificate(&'static str, Instance),
}

impl<'c> Planner<'c> {
    /// A planner for a catalog without defects.
    pub fn new(catalog: &'c Catalog) -> Planner<'c> {
        Planner { wiring: Wiring::new(catalog) }
    }

    /// The catalog as it walks it.
    pub fn wiring(&self) -> &Wiring<'c> {
        &self.wiring
    }

    /// What is to be done. The snapshot has been checked.
    pub fn plan(&self, snapshot: &Snapshot, scope: &Scope) -> Report {
        let mut pass = Pass::new(&self.wiring, snapshot);
        match scope {
            Scope::All | Scope::Cluster => {
                let is_meant = |row: &&Row| *scope == Scope::All || row.scope != crate::catalog::Scope::Service;
                let rows: Vec<&Row> = self.wiring.catalog.rows.iter().filter(is_meant).collect();
                self.plan_rows(&mut pass, &rows, None);
                pass.types();
                pass.descriptions();
                pass.look_at_edges();
            }
            Scope::Signer(id) => {
                let family = self.family(id);
                let bundles = family.first().map(|row| self.flows_into(row.id)).unwrap_or_default();
                self.plan_rows(&mut pass, &family, Some(bundles));
            }
            Scope::Certificate(id, instance) => {
                if let Some(wired) = self.wiring.row(id) {
                    pass.certificate(wired.row, instance);
                    pass.copies(&[wired.row]);
                }
            }
        }
        pass.finish()
    }

    fn plan_rows(&self, pass: &mut Pass<'_, 'c>, rows: &[&'c Row], bundles: Option<Vec<&'static str>>) {
        let day2 = |row: &&&Row| row.day == Day::Two;
        let (signers, leaves): (Vec<&Row>, Vec<&Row>) =
            rows.iter().filter(day2).partition(|row| row.usage == Usage::Signer);
        for row in &signers {
            pass.certificate(row, &Instance::Cluster);
        }
        let catalog = &self.wiring.catalog.bundles;
        let all = || catalog.iter().filter(|bundle| bundle.day == Day::Two).map(|bundle| bundle.id).collect();
        for id in bundles.unwrap_or_else(all) {
            pass.bundle(id);
        }
        pass.copies(&signers);
        for row in &leaves {
            for instance in instances(row, pass.snapshot()) {
                pass.certificate(row, &instance);
            }
        }
        pass.copies(&leaves);
    }

    /// A signer with everything below it, signers before what they sign.
    fn family(&self, id: &'static str) -> Vec<&'c Row> {
        let Some(wired) = self.wiring.row(id) else { return Vec::new() };
        let mut family = vec![wired.row];
        wired.signs.iter().for_each(|id| family.extend(self.family(id)));
        family
    }

    /// The Day-2 bundles that the signer or one below it is in.
    fn flows_into(&self, id: &'static str) -> Vec<&'static str> {
        let family = self.family(id);
        let mut bundles = Vec::new();
        for wired in family.iter().filter_map(|row| self.wiring.row(row.id)) {
            for id in &wired.flows_into {
                if !bundles.contains(id) && self.wiring.bundle(id).is_some_and(|it| it.bundle.day == Day::Two) {
                    bundles.push(*id);
                }
            }
        }
        bundles
    }

    /// The signer at the top of a row: with it, everything that the row depends on is planned.
    pub fn root_of(&self, id: &'static str) -> Option<&'static str> {
        let row = self.wiring.row(id)?.row;
        match row.signer {
            Signer::Itself => Some(row.id),
            Signer::Row(signer) => self.root_of(signer),
        }
    }
}
